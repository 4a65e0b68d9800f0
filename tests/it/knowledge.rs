//! The knowledge tables: what the build and `--rules-dir` refuse, and what an override changes.

mod truth;

use crate::util::{skipped, trial};
use ds_doctor::knowledge::Knowledge;
use ds_doctor::knowledge::schema::languages::Phrase;
use ds_doctor::knowledge::schema::signatures::Signature;
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("knowledge: a row with a fault is refused with its place", refused),
        trial("knowledge: rows are added and overridden by key", overridden),
        trial("knowledge: an override sees the embedded rows as its neighbours", whole),
        trial("knowledge: the embedded tables pass as overrides of themselves", themselves),
        trial("knowledge: every row has a source and a month", provenance),
    ];
    trials.extend(truth::trials());
    trials.push(match build_script() {
        Ok(script) => trial("knowledge: the build stops at a table with a fault", move || build_stops(&script)),
        Err(why) => skipped("knowledge: the build stops at a table with a fault", &why),
    });
    trials
}

const TOOLKIT: &str = r#"
[[toolkit]]
cuda = "14.0"
max_gcc = 17
max_clang = 24
max_cxx_standard = 23
targets = ["80", "90"]
default_target = "80"
ptx_isa = "10.0"
cudart_soname = "libcudart.so.14"
source = "a cluster's own"
checked = "2027-01"
"#;

/// The toolkit row with one line in the place of another.
fn toolkit_with(old: &str, new: &str) -> String {
    assert!(TOOLKIT.contains(old), "{old}");
    TOOLKIT.replace(old, new)
}

fn refusal(file: &str, text: &str) -> String {
    match Knowledge::with_rules([(file, text)]) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("accepted: {text}"),
    }
}

fn refused() {
    let compat = |row: &str| format!("meta = {{ checked = \"2026-11\", source = \"x\" }}\n\nminor_compat = [\n{row}\n]\n");
    let cases = [
        // What the reader of TOML and the types refuse.
        ("cuda.toml", "toolkit = [".to_owned(), "cuda.toml:1: `toolkit`: unclosed array, expected `]`"),
        ("cuda.toml", toolkit_with("max_gcc = 17", "maxgcc = 17"), "cuda.toml:4: `maxgcc`: unknown field `maxgcc`, expected one of"),
        ("cuda.toml", toolkit_with("max_gcc = 17\n", ""), "cuda.toml:2: missing field `max_gcc`"),
        ("cuda.toml", toolkit_with("max_gcc = 17", "max_gcc = \"17\""), "cuda.toml:4: `max_gcc`: invalid type: string \"17\", expected u32"),
        ("cuda.toml", toolkit_with("cuda = \"14.0\"", "cuda = \"14\""), "cuda.toml:3: `cuda`: `14` is not a CUDA release (major.minor)"),
        ("cuda.toml", toolkit_with("\"90\"", "\"9x\""), "cuda.toml:7: `targets`: `9x` is not a compute capability"),
        ("cuda.toml", toolkit_with("10.0", "10.x"), "cuda.toml:9: `ptx_isa`: `10.x` is not numbers joined by dots"),
        ("cuda.toml", "tookit = []".to_owned(), "cuda.toml:1: `tookit`: unknown field `tookit`"),
        ("cuda.toml", "meta = { date = \"2026-11\" }".to_owned(), "cuda.toml:1: `date`: unknown field `date`"),
        ("torch.toml", "headers = [\n  { torch = \"2.7\", default_standard = 17, min_standard = 17 },\n]".to_owned(), "torch.toml:2: `torch`: `2.7` names no operator"),
        ("torch.toml", "does = [\n  { trait = \"flies\", torch = \">=0\" },\n]".to_owned(), "torch.toml:2: `trait`: unknown variant `flies`"),
        ("gpus.toml", "gpu = [\n  { name = \"X\", cc = \"9.0\", pci = \"20G5\" },\n]".to_owned(), "gpus.toml:2: `pci`: `20G5` is not four hexadecimal digits"),
        // Source and date.
        ("cuda.toml", toolkit_with("source = \"a cluster's own\"\n", ""), "cuda.toml:2: toolkit 14.0: `source`: is missing"),
        ("cuda.toml", toolkit_with("a cluster's own", " "), "cuda.toml:11: toolkit 14.0: `source`: is missing"),
        ("cuda.toml", toolkit_with("checked = \"2027-01\"\n", ""), "cuda.toml:2: toolkit 14.0: `checked`: is missing"),
        ("cuda.toml", toolkit_with("2027-01", "2027-13"), "cuda.toml:12: toolkit 14.0: `checked`: `2027-13` is not a month"),
        ("cuda.toml", "meta = { checked = \"11/2026\" }".to_owned(), "cuda.toml:1: meta: `checked`: `11/2026` is not a month"),
        // Order.
        (
            "cuda.toml",
            compat("  { cuda_major = 14, min_driver = \"700.1\" },\n  { cuda_major = 13, min_driver = \"580.1\" },"),
            "cuda.toml:5: minor_compat 13: is out of order: it belongs before minor_compat 14",
        ),
        (
            "cuda.toml",
            compat("  { cuda_major = 14, min_driver = \"700.1\" },\n  { cuda_major = 14, min_driver = \"700.2\" },"),
            "cuda.toml:5: minor_compat 14: stands twice",
        ),
        // What a row says against itself.
        ("cuda.toml", toolkit_with("\"80\", \"90\"", "\"90\", \"80\""), "cuda.toml:7: toolkit 14.0: `targets`: are not in ascending order"),
        ("cuda.toml", toolkit_with("default_target = \"80\"", "default_target = \"75\""), "cuda.toml:8: toolkit 14.0: `default_target`: is not among"),
        ("cuda.toml", toolkit_with("= 23", "= 22"), "cuda.toml:6: toolkit 14.0: `max_cxx_standard`: is not 14, 17, 20 or 23"),
        ("cuda.toml", toolkit_with("libcudart.so.14", "libcuda.so.1"), "cuda.toml:10: toolkit 14.0: `cudart_soname`: does not begin"),
        (
            "deepspeed.toml",
            "cuda_row = [\n  { cuda_major = 13, deepspeed = \">=1\", members = [\"12.0\"], source = \"x\", checked = \"2026-11\" },\n]".to_owned(),
            "deepspeed.toml:2: cuda_row 13 >=1: `members`: has a release of another major",
        ),
        (
            "packages.toml",
            "package = [\n  { family = \"arch\", need = \"gxx\", command = \"pacman -S gcc{major}\", source = \"x\", checked = \"2026-11\" },\n]".to_owned(),
            "packages.toml:2: package Arch Gxx: `command`: has `{major}`, which stands for nothing",
        ),
        // What tables say against each other.
        ("cuda.toml", TOOLKIT.to_owned(), "cuda.toml: `minor_compat`: has no row for CUDA 14"),
        (
            "gpus.toml",
            "gpu = [\n  { name = \"NVIDIA X1\", cc = \"15.0\", source = \"x\", checked = \"2026-11\" },\n]".to_owned(),
            "gpus.toml: `arch`: has no row for 15.0, which `NVIDIA X1` has",
        ),
        (
            "torch.toml",
            "headers = [\n  { torch = \">=2.15\", default_standard = 20, min_standard = 20, source = \"x\", checked = \"2026-11\" },\n]".to_owned(),
            "torch.toml: `headers`: has two rows for 2.15.0: `>=2.14` and `>=2.15`",
        ),
        (
            "environment.toml",
            "variable = [\n  { name = \"X\", read_by = [], mistaken_for = \"Y\", effect = \"x\", source = \"x\", checked = \"2026-11\" },\n]".to_owned(),
            "environment.toml: `variable`: says that `X` is mistaken for a name that has no row",
        ),
        ("rocm.toml", String::new(), "rocm.toml: no table has this name; there are cuda.toml, deepspeed.toml"),
    ];
    let mut wrong = String::new();
    for (file, text, expected) in cases {
        let said = refusal(file, &text);
        if !said.starts_with(expected) {
            wrong += &format!("\nsaid     {said}\nexpected {expected}\n");
        }
        // The same in a folder: the error names the path that was given.
        let path = format!("/etc/ds-doctor/{file}");
        assert!(refusal(&path, &text).starts_with(&path), "{path}");
    }
    assert!(wrong.is_empty(), "{wrong}");
}

fn overridden() {
    let compat = "minor_compat = [\n  { cuda_major = 14, min_driver = \"700.10\", source = \"x\", checked = \"2027-01\" },\n]\n";
    let text = format!("{compat}{TOOLKIT}");
    let all = Knowledge::with_rules([("cuda.toml", text.as_str())]).unwrap();
    let cuda = "14.0".parse().unwrap();
    assert_eq!(all.toolkit(cuda).unwrap().max_gcc, 17);
    assert_eq!(all.newest_cuda(), Some(cuda));
    assert_eq!(all.oldest_driver(cuda), Some("700.10".parse().unwrap()));
    assert_eq!(all.date(), "2027-01");
    assert!(all.toolkit("12.4".parse().unwrap()).is_some(), "the embedded rows are still there");

    let own_limit = TOOLKIT.replace("14.0", "12.4").replace("libcudart.so.14", "libcudart.so.12");
    let all = Knowledge::with_rules([("cuda.toml", own_limit.as_str())]).unwrap();
    assert_eq!(all.toolkit("12.4".parse().unwrap()).unwrap().max_gcc, 17);
    assert_eq!(all.cuda.toolkit.len(), Knowledge::embedded().cuda.toolkit.len(), "replaced, not added");
    assert!(all.cuda.toolkit.windows(2).all(|pair| pair[0].cuda < pair[1].cuda), "still in order");

    let gpu =
        "meta = { checked = \"2027-01\", source = \"ours\" }\ngpu = [\n  { name = \"NVIDIA H999\", cc = \"9.0\", pci = \"2399\" },\n]";
    let all = Knowledge::with_rules([("gpus.toml", gpu), ("torch.toml", "")]).unwrap();
    assert_eq!(all.gpu_by_pci(0x2399).unwrap().capability(), "9.0".parse().unwrap());
    assert_eq!(all.gpus.gpu.iter().find(|gpu| gpu.name == "NVIDIA H999").unwrap().source, "ours");
}

fn whole() {
    // A range that the embedded one already holds would make two answers for one release.
    let twice = "host_bound = [\n  { torch = \">=2.12\", compiler = \"gcc\", cuda = \"13.0\", min = \"6\", max = \"17\", source = \"x\", checked = \"2026-11\" },\n]";
    assert!(refusal("torch.toml", twice).contains("`host_bound`: has two rows for 2.12.0"), "{}", refusal("torch.toml", twice));
    // The embedded row itself can be changed.
    let changed = twice.replace(">=2.12", ">=2.11");
    let all = Knowledge::with_rules([("torch.toml", changed.as_str())]).unwrap();
    let bound =
        all.torch_host_bound(&"2.15.0".parse().unwrap(), ds_doctor::knowledge::schema::torch::Compiler::Gcc, &"13.0.88".parse().unwrap());
    assert_eq!(bound.unwrap().max.to_string(), "17");
}

fn rules() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("rules")
}

fn themselves() {
    let text = |path: &Path| std::fs::read_to_string(path).unwrap();
    // The signatures are one table in many files.
    let parts = |name: &str| -> Vec<PathBuf> {
        let folder = rules().join(name.trim_end_matches(".toml"));
        if folder.is_dir() {
            let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
            files.sort();
            return files;
        }
        vec![rules().join(name)]
    };
    let files: Vec<(String, String)> =
        Knowledge::FILES.iter().flat_map(|name| parts(name).into_iter().map(|path| ((*name).to_owned(), text(&path)))).collect();
    assert!(files.len() > Knowledge::FILES.len());
    let mut read = Knowledge::with_rules(files.iter().map(|(name, text)| (name.as_str(), text.as_str()))).unwrap();
    // The words to look for are found when the program is built; no file holds them.
    read.signatures.signature.to_mut().iter_mut().for_each(Signature::find_words);
    read.languages.phrase.to_mut().iter_mut().for_each(Phrase::find_words);
    // What was embedded is what the texts say: the constants and the reader agree on every value.
    assert_eq!(format!("{read:?}"), format!("{:?}", Knowledge::embedded()));
}

fn provenance() {
    let all = Knowledge::embedded();
    let text = format!("{all:?}");
    let sources = text.matches("source: \"").count();
    assert!(sources > 800, "{sources}");
    assert_eq!(text.matches("source: \"\"").count(), 0);
    assert_eq!(text.matches("checked: \"20").count(), sources);
    assert_eq!(all.date(), "2026-11");
}

/// The newest build script that cargo has built beside the binary under test.
fn build_script() -> Result<PathBuf, String> {
    let folder = Path::new(crate::util::BINARY).parent().unwrap().join("build");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut scripts: Vec<_> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("ds-doctor-"))
        .filter_map(|entry| {
            let script = entry.path().join("build-script-build");
            Some((script.metadata().ok()?.modified().ok()?, script))
        })
        .collect();
    scripts.sort();
    scripts.pop().map(|(_, script)| script).ok_or_else(|| format!("no build script of ds-doctor in {}", folder.display()))
}

fn build_stops(script: &Path) {
    let folder = tempfile::tempdir().unwrap();
    for read in ["rules", "kernels"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(read);
        let copied = Command::new("cp").arg("-r").arg(from).arg(folder.path()).status().unwrap();
        assert!(copied.success());
    }
    let build = || {
        let output = Command::new(script)
            .current_dir(&folder)
            .env("OUT_DIR", folder.path())
            .env("CARGO_MANIFEST_DIR", folder.path())
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    let (good, said) = build();
    assert!(good, "{said}");

    let path = folder.path().join("rules/cuda.toml");
    let text = std::fs::read_to_string(&path).unwrap();
    for (old, new, expected) in [
        ("max_gcc = 13", "max_gc = 13", "unknown field `max_gc`"),
        ("cuda = \"12.4\"\nmax_gcc", "cuda = \"12.3\"\nmax_gcc", "toolkit 12.3: stands twice"),
        ("source = \"strings of", "sauce = \"strings of", "unknown field `sauce`"),
    ] {
        std::fs::write(&path, text.replacen(old, new, 1)).unwrap();
        let (good, said) = build();
        assert!(!good && said.contains("cargo::error=rules/cuda.toml:") && said.contains(expected), "{old}: {said}");
    }
    std::fs::write(&path, text).unwrap();
    std::fs::write(folder.path().join("rules/environment.toml"), "meta = { checked = \"2026-11\" }\n").unwrap();
    let (good, said) = build();
    assert!(!good && said.contains("rules/environment.toml: table `variable` is empty"), "{said}");
}
