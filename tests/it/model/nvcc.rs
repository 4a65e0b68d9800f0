//! The host compiler that nvcc runs, seen by compilers that write down their own paths.

use super::{Draw, machine, script};
use crate::util::{lab, trial_with};
use ds_doctor::facts::observed::Observed;
use ds_doctor::knowledge::Knowledge;
use ds_doctor::model::arch_list::{self, Reader};
use ds_doctor::model::build::BuildPath;
use ds_doctor::model::cuda_home::cuda_home;
use ds_doctor::model::host_compiler::{ChosenBy, nvcc_host};
use ds_doctor::version::{Suffix, Target};
use libtest_mimic::Trial;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let gcc = || if Path::new("/usr/bin/gcc").exists() { Ok(()) } else { Err("no /usr/bin/gcc".to_owned()) };
    let need = |part: &str| gcc().and_then(|()| lab(part));
    vec![
        trial_with("model::host_compiler_of_nvcc_13_0", need("pip-cu130"), |kit| drawn(&Kit::of_pip(&kit, "13.0.88"), 120)),
        trial_with("model::host_compiler_of_nvcc_13_5", need("pip-cu135"), |kit| drawn(&Kit::of_pip(&kit, "13.5.37"), 60)),
        trial_with("model::host_compiler_of_debians_nvcc_11_8", need("deb-cuda118"), |tree| drawn(&Kit::of_debian(&tree), 60)),
        trial_with("model::targets_that_nvcc_refuses", need("pip-cu130"), |kit| refusals(&kit)),
    ]
}

/// What nvcc says to one `-gencode` flag, and what the reader that imitates it says.
fn refusals(site: &Path) {
    let nvcc = site.join("nvidia/cu13/bin/nvcc");
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.cu"), "int x;\n").unwrap();
    let run = |args: &[&str]| {
        let output = Command::new(&nvcc).args(args).current_dir(folder.path()).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
        (output.status.success(), format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)))
    };
    let listed = run(&["--list-gpu-code"]).1;
    let mut targets: Vec<Target> = listed.lines().filter_map(|line| line.trim().parse().ok()).collect();
    // The list leaves out the specific and the family forms.
    let more: Vec<Target> = targets.iter().filter(|t| t.capability.major >= 9).flat_map(|t| suffixed(*t)).collect();
    targets.extend(more);
    assert!(targets.len() > 12, "{listed}");
    let archs = ["60", "75", "80", "86", "90", "90a", "100f", "103", "1.", "860", "８６", "80,9", "80,8", "Am", "", "-86"];
    let mut pairs: Vec<(String, String)> = archs.iter().map(|arch| (format!("compute_{arch}"), format!("sm_{arch}"))).collect();
    for (arch, code) in [
        ("80", "sm_75"),
        ("80", "sm_90"),
        ("90", "sm_90a"),
        ("90a", "sm_90"),
        ("90a", "sm_90a"),
        ("75", "sm_60"),
        ("80", "compute_80"),
        ("90a", "compute_90a"),
        ("100f", "sm_103f"),
        ("100f", "sm_103"),
        ("100f", "sm_103a"),
        ("100f", "sm_120f"),
        ("100", "sm_100f"),
        ("90a", "sm_100a"),
        ("100a", "sm_103a"),
        ("103", "sm_100f"),
    ] {
        pairs.push((format!("compute_{arch}"), code.to_owned()));
    }
    let (mut taken, mut refused) = (0, 0);
    for (arch, code) in pairs {
        let flag = format!("-gencode=arch={arch},code={code}");
        let (fine, said) = run(&[&flag, "-c", "m.cu", "-o", "m.o"]);
        match arch_list::read(&Knowledge::embedded(), &Reader::Nvcc(&targets), Some(&flag)) {
            Ok(_) => {
                assert!(fine, "{flag}: {said}");
                taken += 1;
            }
            Err(refusal) => {
                assert!(!fine && said.contains(&refusal.message), "{flag}: {said}\n{}", refusal.message);
                refused += 1;
            }
        }
    }
    assert!(taken > 8 && refused > 8, "{taken} {refused}");
}

fn suffixed(target: Target) -> Vec<Target> {
    [Suffix::Specific, Suffix::Family]
        .into_iter()
        .filter(|suffix| *suffix == Suffix::Specific || target.capability.major >= 10)
        .map(|suffix| Target { suffix: Some(suffix), ..target })
        .collect()
}

/// A toolkit made of links to a real one, in a folder of its own, beside compilers that log.
struct Kit {
    root: tempfile::TempDir,
    toolkit: serde_json::Value,
}

impl Kit {
    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn of_pip(site: &Path, version: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("kit");
        link_all(&site.join("nvidia/cu13"), &home);
        // A second toolkit has a gcc of its own beside nvcc.
        link_all(&site.join("nvidia/cu13"), &root.path().join("own"));
        let kit = Self { root, toolkit: json!({"version": version, "layout": "pip", "kind": {"is": "program"}, "script": false}) };
        kit.compiler("own/bin/gcc");
        kit.compilers();
        kit
    }

    fn of_debian(tree: &Path) -> Self {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("kit/lib/nvidia-cuda-toolkit/bin");
        fs::create_dir_all(&bin).unwrap();
        for name in ["nvcc", "cicc", "gcc", "g++"] {
            symlink(tree.join("usr/lib/nvidia-cuda-toolkit/bin").join(name), bin.join(name)).unwrap();
        }
        // Debian's own profile names this folder by its place in the system.
        let profile = fs::read_to_string(tree.join("etc/nvcc.profile")).unwrap();
        let here = bin.to_str().unwrap();
        fs::write(bin.join("nvcc.profile"), profile.replace("/usr/lib/nvidia-cuda-toolkit/bin", here)).unwrap();
        let kit = Self {
            root,
            toolkit: json!({"version": "11.8.89", "layout": "distribution", "kind": {"is": "distribution-script"}, "script": true}),
        };
        script(&kit.path("kit/bin/nvcc"), &format!("#!/bin/sh\nexec {here}/nvcc \"$@\"\n"));
        kit.compilers();
        for name in ["a/gcc-12", "a/g++-12", "a/gcc-10", "b/gcc-11", "b/g++-11", "c/g++-10", "c/gcc-10"] {
            kit.compiler(name);
        }
        kit
    }

    fn compilers(&self) {
        for name in
            ["a/gcc", "a/g++", "b/gcc", "b/my-cc", "c/clang", "flags/pre", "flags/app", "flags/cc", "sp ace/gcc", "sp ace/cc", "here/gcc"]
        {
            self.compiler(name);
        }
        fs::create_dir_all(self.path("empty")).unwrap();
        fs::write(self.path("m.cu"), "int x;\n").unwrap();
    }

    fn compiler(&self, name: &str) {
        let log = self.path("log");
        let text = format!("#!/bin/sh\necho \"$0\" >> '{}'\nexec /usr/bin/gcc \"$@\"\n", log.display());
        script(&self.path(name), &text);
    }

    /// The compiler that ran last, if one ran. nvcc 13 asks the one of the plain PATH for its properties first.
    fn ran(&self, home: &Path, env: &[(String, String)], cc: Option<&str>, path: BuildPath) -> Option<PathBuf> {
        let _ = fs::remove_file(self.path("log"));
        let nvcc = home.join("bin/nvcc");
        let mut command = match (cc, path) {
            // As torch writes it into a ninja file.
            (Some(cc), BuildPath::Jit) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(format!("'{}' -ccbin {cc} -E '{}'", nvcc.display(), self.path("m.cu").display()));
                command
            }
            (cc, _) => {
                let mut command = Command::new(&nvcc);
                command.args(cc.iter().flat_map(|cc| ["-ccbin", cc])).arg("-E").arg(self.path("m.cu"));
                command
            }
        };
        let output = command.env_clear().envs(env.iter().cloned()).current_dir(self.path("here")).output().unwrap();
        assert!(output.status.code().is_some());
        let log = fs::read_to_string(self.path("log")).unwrap_or_default();
        log.lines().last().map(|line| self.path("here").join(line))
    }
}

fn link_all(from: &Path, to: &Path) {
    fs::create_dir_all(to.join("bin")).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten().filter(|entry| entry.file_name() != "bin") {
        symlink(entry.path(), to.join(entry.file_name())).unwrap();
    }
    for entry in fs::read_dir(from.join("bin")).unwrap().flatten() {
        symlink(entry.path(), to.join("bin").join(entry.file_name())).unwrap();
    }
}

fn drawn(kit: &Kit, count: usize) {
    let at = |name: &str| kit.path(name).to_string_lossy().into_owned();
    let mut draw = Draw(3);
    let path_entries = [at("a"), at("b"), at("c"), at("empty"), at("sp ace"), "../b".to_owned(), String::new(), at("none")];
    let values = [
        at("flags/cc"),
        at("b/my-cc"),
        at("a"),
        format!("{}/", at("b")),
        at("empty"),
        at("none"),
        at("sp ace/cc"),
        "gcc".to_owned(),
        "my-cc".to_owned(),
        "../b/my-cc".to_owned(),
        String::new(),
    ];
    let flags = [
        format!("-ccbin {}", at("flags/pre")),
        format!("-O1  -ccbin={}", at("flags/app")),
        format!("--compiler-bindir\t{} -g", at("flags/app")),
        format!("--compiler-bindir={}", at("b")),
        format!("-ccbin {} -ccbin {}", at("flags/pre"), at("flags/app")),
        "-O2".to_owned(),
        format!("-ccbin \"{}\"", at("sp ace/cc")),
        format!("-Xcompiler \"-O1 -g\" -ccbin {}", at("flags/pre")),
        "-ccbin gcc".to_owned(),
        "-ccbin none-of-that-name".to_owned(),
    ];
    let folders: Vec<PathBuf> =
        ["a", "b", "c", "flags", "sp ace", "here", "own/bin", "kit/bin", "kit/lib/nvidia-cuda-toolkit/bin", "here/../b"]
            .map(|name| kit.path(name))
            .into();
    let folders: Vec<&Path> = folders.iter().map(PathBuf::as_path).collect();
    let know = Knowledge::embedded();
    let mut met = BTreeSet::new();
    for _ in 0..count {
        let home = if kit.path("own").exists() && draw.chance(4) { kit.path("own") } else { kit.path("kit") };
        // A gcc of the plain PATH is always there: without one nvcc 13 stops before it looks in its own folders.
        let mut path: Vec<String> = (0..draw.below(3)).map(|_| draw.of(&path_entries).clone()).collect();
        path.push(at("b"));
        let mut env = vec![("PATH".to_owned(), path.join(":")), ("CUDA_HOME".to_owned(), home.to_string_lossy().into_owned())];
        let pick = |draw: &mut Draw, all: &[String]| if draw.chance(2) { Some(draw.of(all).clone()) } else { None };
        for (name, all) in [("NVCC_PREPEND_FLAGS", &flags[..]), ("NVCC_APPEND_FLAGS", &flags[..]), ("NVCC_CCBIN", &values[..])] {
            if let Some(value) = pick(&mut draw, all).filter(|_| !draw.chance(3)) {
                env.push((name.to_owned(), value));
            }
        }
        let build = if draw.chance(2) { BuildPath::Jit } else { BuildPath::Setup };
        // An empty CC in a JIT build swallows torch's next flag; nothing of that is modelled but that it fails.
        let cc = if draw.chance(3) { pick(&mut draw, &values).filter(|cc| !(cc.is_empty() && build == BuildPath::Jit)) } else { None };
        env.extend(cc.iter().map(|cc| ("CC".to_owned(), cc.clone())));

        let mut facts = machine(&env, &kit.path("here"), &folders);
        let program = if kit.toolkit["script"] == true { kit.path("kit/lib/nvidia-cuda-toolkit/bin/nvcc") } else { home.join("bin/nvcc") };
        let toolkit = json!({"root": home, "real": home, "sources": [], "layout": kit.toolkit["layout"], "nvcc": {"state": "seen", "value": {
            "path": home.join("bin/nvcc"), "program": program, "kind": kit.toolkit["kind"], "version": kit.toolkit["version"],
            "reads_nvcc_ccbin": null}}});
        facts.toolkits = Observed::seen(vec![serde_json::from_value(toolkit).unwrap()]);
        let cuda_home = cuda_home(&facts, &know, None);
        let ours = nvcc_host(&facts, &know, &cuda_home, build).unwrap();
        let truth = kit.ran(&home, &env, cc.as_deref(), build);
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let expected = ours.program.filter(|_| ours.extra_words().is_empty()).map(|program| real(&program.path));
        assert_eq!(truth.as_deref().map(real), expected, "{env:?}\ncc {cc:?} {build:?}\n{ours:?}");
        met.insert(format!("{:?} {}", ours.by, ours.program.is_some()));
    }
    assert!(met.len() >= 7, "the cases should differ: {met:?}");
    let script = format!("{:?} true", ChosenBy::DistributionScript);
    assert_eq!(met.contains(&script), kit.toolkit["script"] == true, "{met:?}");
}
