//! The loader model against the real dynamic loader, on small libraries made for each case, and against a real torch.

use super::Draw;
use crate::util::{lab, trial_with};
use ds_doctor::binary::FileAt;
use ds_doctor::binary::elf::summarise;
use ds_doctor::collect;
use ds_doctor::facts::elf::ElfFacts;
use ds_doctor::facts::loader::{CacheEntry, FAMILIES, Library, LoaderFacts};
use ds_doctor::facts::observed::Observed;
use ds_doctor::facts::snapshot::Snapshot;
use ds_doctor::facts::torch::Torch;
use ds_doctor::host::Live;
use ds_doctor::model::loader::{Answer, Process};
use libtest_mimic::Trial;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let tools = || {
        let there = ["gcc", "ld", "ldconfig"]
            .iter()
            .all(|tool| ["/usr/bin", "/sbin", "/usr/sbin"].iter().any(|at| Path::new(at).join(tool).exists()));
        if there && cfg!(target_arch = "x86_64") { Ok(()) } else { Err("no gcc, ld or ldconfig for x86-64".to_owned()) }
    };
    let python = || tools().and_then(|()| Ok((lab("truth-python")?.join("bin/python"), lab("torch-venv")?)));
    vec![
        trial_with("model::loader_as_the_real_one", tools(), |()| real_loader()),
        trial_with("model::torch_preloads_as_torch_does", python(), |(python, venv)| preloads(&python, &venv)),
        trial_with("model::real_torch_with_decoys_on_ld_library_path", python(), |(_, venv)| real_torch(&venv)),
    ]
}

/// Opens what it is told to, then prints every loaded file; `?NAME` prints the file that a name gets.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i] + (argv[i][0] == '?');
        void *handle = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
        if (!handle) { printf("! %s\n", dlerror()); return 0; }
        struct link_map *map;
        dlinfo(handle, RTLD_DI_LINKMAP, &map);
        if (argv[i][0] == '?') printf("? %s\n", map->l_name);
    }
    struct link_map *all;
    dlinfo(dlopen(NULL, RTLD_NOW), RTLD_DI_LINKMAP, &all);
    for (; all; all = all->l_next) if (all->l_name[0]) printf("= %s\n", all->l_name);
    return 0;
}
"#;

fn run(program: &str, args: &[&str], folder: &Path) {
    let output = Command::new(program).args(args).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// How the folders of an object are written into it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Tag {
    Rpath,
    Runpath,
    None,
}

/// A folder with the tools' inputs: an empty object, a stub for each name to link against, and the programs.
struct Bench {
    root: tempfile::TempDir,
}

const NAMES: [&str; 8] = [
    "libcudart.so.13",
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcusolver.so.12",
    "libnvrtc.so.13",
    "libnccl.so.2",
    "libcudnn.so.9",
    "libstdc++.so.6",
];
const TORCH: [&str; 4] = ["libtorch_global_deps.so", "libtorch_cpu.so", "libtorch_cuda.so", "libtorch_python.so"];

impl Bench {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let at = root.path();
        fs::write(at.join("empty.c"), "int made_for_a_test;\n").unwrap();
        run("gcc", &["-c", "-fPIC", "empty.c", "-o", "empty.o"], at);
        fs::create_dir(at.join("stubs")).unwrap();
        let bench = Self { root };
        for name in NAMES.iter().chain(&TORCH) {
            bench.library(&bench.path("stubs").join(name), Some(name), &[], Tag::None, &[], false);
        }
        fs::write(bench.path("program.c"), PROGRAM).unwrap();
        for (name, flags) in [
            ("plain", &[][..]),
            ("rpath", &["-Wl,-rpath,$ORIGIN/../lib", "-Wl,--disable-new-dtags"][..]),
            ("runpath", &["-Wl,-rpath,$ORIGIN/../lib", "-Wl,--enable-new-dtags"][..]),
        ] {
            let args = [&["program.c", "-o", name, "-ldl"][..], flags].concat();
            run("gcc", &args, bench.root.path());
        }
        bench
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn library(&self, to: &Path, soname: Option<&str>, needed: &[&str], tag: Tag, folders: &[String], nodeflib: bool) {
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let mut args: Vec<String> = ["-shared", "--no-as-needed", "-o"].map(str::to_owned).into();
        args.push(to.to_string_lossy().into_owned());
        args.extend(soname.iter().flat_map(|name| ["-soname".to_owned(), (*name).to_owned()]));
        args.push(if tag == Tag::Rpath { "--disable-new-dtags" } else { "--enable-new-dtags" }.to_owned());
        if tag != Tag::None {
            args.extend(["-rpath".to_owned(), folders.join(":")]);
        }
        if nodeflib {
            args.extend(["-z", "nodefaultlib"].map(str::to_owned));
        }
        args.push("empty.o".to_owned());
        args.extend(needed.iter().map(|name| format!("stubs/{name}")));
        run("ld", &args.iter().map(String::as_str).collect::<Vec<_>>(), self.root.path());
    }
}

fn elf(path: &Path) -> Result<ElfFacts, String> {
    let file = File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let file = FileAt::new(file, length);
    summarise(&file).map_err(|error| error.to_string())
}

fn library(path: &Path) -> Option<Library> {
    let name = path.file_name()?.to_str()?.to_owned();
    let (family, _) =
        FAMILIES.iter().find(|(_, start)| name.strip_prefix(start).is_some_and(|rest| rest.is_empty() || rest.starts_with('.')))?;
    Some(Library {
        family: (*family).to_owned(),
        name,
        path: path.into(),
        real: fs::canonicalize(path).ok()?.into(),
        sources: Vec::new(),
        size: fs::metadata(path).ok()?.len(),
        elf: elf(path).map_or_else(Observed::failed, Observed::seen),
        release: None,
        release_from: String::new(),
    })
}

/// What the system's cache has of the families.
fn cache() -> Vec<CacheEntry> {
    let ldconfig = ["/sbin/ldconfig", "/usr/sbin/ldconfig"].into_iter().find(|path| Path::new(path).exists()).unwrap();
    let output = Command::new(ldconfig).arg("-p").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines = text.lines().filter(|line| line.contains("x86-64")).filter_map(|line| line.trim().split_once(" => "));
    lines
        .map(|(left, path)| CacheEntry {
            soname: left.split(' ').next().unwrap().to_owned(),
            path: path.into(),
            exists: Path::new(path).exists(),
        })
        .filter(|entry| FAMILIES.iter().any(|(_, start)| entry.soname.starts_with(start)))
        .collect()
}

/// The facts of every library below some folders, and of those in the system's cache.
fn facts(folders: &[PathBuf], env: &[(&str, String)], cwd: &Path) -> Snapshot {
    let mut loader = LoaderFacts { cache: Observed::seen(cache()), ..LoaderFacts::default() };
    loader.default_folders = ["/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib", "/usr/lib"].map(Into::into).into();
    let mut paths: Vec<PathBuf> = cache().into_iter().map(|entry| entry.path.0).collect();
    for folder in folders {
        paths.extend(fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()));
    }
    loader.libraries = paths.iter().filter_map(|path| library(path)).collect();
    let mut facts = Snapshot { loader: Observed::seen(loader), ..Snapshot::default() };
    facts.env.cwd = Some(cwd.into());
    for (name, value) in env {
        facts.env.set(name, value.as_str());
    }
    facts
}

fn torch(package: &Path, version: &str) -> Torch {
    let mut torch: Torch = serde_json::from_value(json!({"path": package, "version": version, "cuda": "13.0"})).unwrap();
    for entry in fs::read_dir(package.join("lib")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if ["libtorch", "libc10", "libcaffe2", "libshm"].iter().any(|start| name.starts_with(start)) && name.ends_with(".so") {
            torch.libs.insert(name, elf(&entry.path()).unwrap());
        }
    }
    torch
}

fn real(path: &Path, folder: &Path) -> PathBuf {
    fs::canonicalize(folder.join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// One world of libraries: torch, its wheels, and folders on LD_LIBRARY_PATH.
fn build(bench: &Bench, root: &Path, draw: &mut Draw) {
    let wheel = ["$ORIGIN/../../nvidia/cu13/lib".to_owned(), "$ORIGIN/../../nvidia/nccl/lib".to_owned(), "$ORIGIN".to_owned()];
    let here = ["$ORIGIN".to_owned()];
    let tag = |draw: &mut Draw| [Tag::Rpath, Tag::Rpath, Tag::Runpath][draw.below(3)];
    let lib = |name: &str| root.join("site/torch/lib").join(name);
    bench.library(&lib(TORCH[0]), Some(TORCH[0]), &[NAMES[0]], tag(draw), &wheel, false);
    bench.library(&lib(TORCH[1]), Some(TORCH[1]), &[NAMES[0], NAMES[7]], tag(draw), &wheel, draw.chance(6));
    let mut needs = vec![TORCH[1], NAMES[1]];
    needs.extend(NAMES[2..].iter().filter(|_| draw.chance(2)));
    bench.library(&lib(TORCH[2]), Some(TORCH[2]), &needs, tag(draw), &wheel, false);
    let own = if draw.chance(3) { Tag::None } else { tag(draw) };
    let folders = if own == Tag::None { Vec::new() } else { here.to_vec() };
    // Without folders of its own it finds torch's libraries only because they are loaded: the program opens them first.
    bench.library(&lib(TORCH[3]), Some(TORCH[3]), &[TORCH[1], TORCH[2]], own, &folders, false);
    let places = ["site/nvidia/cu13/lib", "site/nvidia/nccl/lib", "a", "b", "here", "lib"];
    for (place, folder) in places.iter().enumerate() {
        fs::create_dir_all(root.join(folder)).unwrap();
        for (at, name) in NAMES.iter().enumerate() {
            let often = place == 0;
            if !(often && !draw.chance(8) || draw.chance(3)) {
                continue;
            }
            let path = root.join(folder).join(name);
            let needed: &[&str] = match at {
                1 => &["libcublasLt.so.13"],
                3 => &["libcublas.so.13", "libcublasLt.so.13"],
                6 => &["libnvrtc.so.13"],
                _ => &[],
            };
            let tag = [Tag::None, Tag::Rpath, Tag::Runpath][draw.below(3)];
            let soname = if draw.chance(10) { None } else { Some(*name) };
            let other = root.join(places[0]).join(name);
            match draw.below(14) {
                // The very same file under another path.
                0 if other.exists() && place > 0 => symlink(&other, &path).unwrap(),
                1 | 4 if place > 1 && draw.chance(3) => fs::write(
                    &path,
                    if draw.chance(2) {
                        ""
                    } else {
                        "not a library, though long enough to be read as a header, or so it seems to be......"
                    },
                )
                .unwrap(),
                2 | 3 if place > 0 => {
                    bench.library(&path, soname, needed, tag, &here, false);
                    let mut file = File::options().write(true).open(&path).unwrap();
                    file.seek(SeekFrom::Start(18)).unwrap();
                    file.write_all(&183_u16.to_le_bytes()).unwrap();
                }
                _ => bench.library(&path, soname, needed, tag, &here, draw.chance(12)),
            }
        }
    }
}

fn real_loader() {
    let bench = Bench::new();
    let mut draw = Draw(11);
    let (mut fine, mut failed, mut asked) = (0, 0, BTreeSet::new());
    for case in 0..60 {
        let root = fs::canonicalize(bench.root.path()).unwrap().join(format!("case{case}"));
        build(&bench, &root, &mut draw);
        fs::create_dir_all(root.join("bin")).unwrap();
        let kind = ["plain", "rpath", "runpath"][draw.below(3)];
        let program = root.join("bin/program");
        fs::copy(bench.path(kind), &program).unwrap();
        let at = |name: &str| root.join(name).to_string_lossy().into_owned();
        let entries = [
            at("a"),
            at("b"),
            "$ORIGIN/../b".to_owned(),
            "${ORIGIN}/../a/".to_owned(),
            String::new(),
            at("none"),
            "../a".to_owned(),
            at("lib"),
        ];
        let count = draw.below(4);
        let mut value = String::new();
        for entry in 0..count {
            if entry > 0 {
                value.push_str(if draw.chance(4) { ";" } else { ":" });
            }
            value.push_str(&entries[draw.below(entries.len())]);
        }
        let env = [("LD_LIBRARY_PATH", value)];
        let cwd = root.join("here");
        let folders = ["site/nvidia/cu13/lib", "site/nvidia/nccl/lib", "a", "b", "here", "lib"].map(|name| root.join(name));
        let facts = facts(&folders, &env, &cwd);
        let torch = torch(&root.join("site/torch"), "2.5.1");
        let mut process =
            Process::of_program(&facts, &program.as_path().into(), Some(elf(&program).unwrap()), Some(&torch)).unwrap().unwrap();
        process.import(&[], &torch);

        let libs: Vec<String> = [TORCH[0], TORCH[3]].iter().map(|name| at(&format!("site/torch/lib/{name}"))).collect();
        let say = |more: Option<&str>| {
            let output = Command::new(&program)
                .args(&libs)
                .args(more)
                .env_clear()
                .envs(env.iter().map(|(name, value)| (*name, value)))
                .current_dir(&cwd)
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let told = say(None);
        let about = format!("case {case} {kind} {env:?}\n{told}\n{:?}", process.unmet());
        if let Some(error) = told.lines().find_map(|line| line.strip_prefix("! ")) {
            assert!(process.import_fails(), "{about}");
            let first = &process.unmet()[0];
            assert!(error.contains(&first.name), "{about}");
            failed += 1;
            continue;
        }
        assert!(!process.import_fails(), "{about}");
        fine += 1;
        let ours: BTreeSet<PathBuf> = process.loaded().map(|(path, _)| real(path, &cwd)).collect();
        let known = |path: &Path| NAMES.iter().chain(&TORCH).any(|name| path.file_name().is_some_and(|file| file == *name));
        let theirs: BTreeSet<PathBuf> = told
            .lines()
            .filter_map(|line| line.strip_prefix("= "))
            .filter(|path| known(Path::new(path)))
            .map(|path| real(Path::new(path), &cwd))
            .collect();
        assert_eq!(ours, theirs, "{about}");
        for name in NAMES {
            let told = say(Some(&format!("?{name}")));
            let answer = process.extension_gets(name);
            let about = format!("case {case} {kind} {env:?} {name}: {answer:?}\n{told}");
            match &answer {
                Answer::Found { path, .. } => {
                    // A dependency of the library itself may be missing: then the file was the right one all the same.
                    let line = told.lines().find_map(|line| line.strip_prefix("? "));
                    match line {
                        Some(line) => assert_eq!(real(Path::new(line), &cwd), real(path, &cwd), "{about}"),
                        None => assert!(told.starts_with("! ") && !told.contains(&format!("! {name}:")), "{about}"),
                    }
                }
                Answer::NotFound { no_cache: false } => {
                    assert!(told.contains(&format!("! {name}: cannot open shared object file")), "{about}")
                }
                Answer::Refused { path, .. } => {
                    let said = told.strip_prefix("! ").and_then(|text| text.split_once(": ")).unwrap_or_else(|| panic!("{about}"));
                    assert_eq!(real(Path::new(said.0), &cwd), real(path, &cwd), "{about}");
                }
                other => panic!("{about} {other:?}"),
            }
            asked.insert(format!("{:?}", std::mem::discriminant(&answer)));
        }
    }
    assert!(fine >= 20 && failed >= 3 && asked.len() == 3, "{fine} imports, {failed} failures, {asked:?}");
}

/// torch's own functions of `torch/__init__.py`, on a tree made for the case; prints what is loaded in the end.
const IMPORT: &str = r#"
import ast, ctypes, glob, os, platform, sys
source, package, *site = sys.argv[1:]
names = ("_load_global_deps", "_preload_cuda_deps", "_preload_cuda_lib", "_get_cuda_dep_paths")
tree = ast.parse(open(source).read())
tree.body = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name in names]
assert len(tree.body) == 4
import types
torch = types.ModuleType("torch"); version = types.ModuleType("torch.version"); version.cuda = "13.0"
sys.modules.update({"torch": torch, "torch.version": version})
own = {"os": os, "glob": glob, "ctypes": ctypes, "platform": platform, "sys": sys, "__file__": package + "/__init__.py"}
sys.path[:] = site
exec(compile(ast.fix_missing_locations(ast.Module(tree.body, [])), source, "exec", 1 << 24), own)
try:
    own["_load_global_deps"]()
    ctypes.CDLL(package + "/lib/libtorch_python.so")
except Exception as error:
    print("!", error); sys.exit()
for line in open("/proc/self/maps"):
    path = line.split(None, 5)[-1].strip()
    if path.startswith("/"):
        print("=", path)
"#;

fn preloads(python: &Path, venv: &Path) {
    let bench = Bench::new();
    let mut draw = Draw(23);
    let source = venv.join("lib/python3.11/site-packages/torch/__init__.py");
    let (mut fine, mut failed) = (0, 0);
    // The interpreter that runs is behind the link of its environment.
    let program = fs::canonicalize(python).unwrap();
    for case in 0..24 {
        let root = fs::canonicalize(bench.root.path()).unwrap().join(format!("case{case}"));
        build(&bench, &root, &mut draw);
        let at = |name: &str| root.join(name).to_string_lossy().into_owned();
        // A second site folder in front, as PYTHONPATH or --target make them, and one library in a folder of the old kind.
        let old = root.join("first/nvidia/cuda_nvrtc/lib/libnvrtc.so.13");
        if draw.chance(2) {
            bench.library(&old, Some("libnvrtc.so.13"), &[], Tag::None, &[], false);
        }
        // torch opens these too; they are of no family here, and where one is missing it stops opening more.
        for (folder, name) in [
            ("cu13", "libnvrtc-builtins.so.13.0"),
            ("cu13", "libcupti.so.13"),
            ("cu13", "libcufft.so.12"),
            ("cu13", "libcurand.so.10"),
            ("cu13", "libnvJitLink.so.13"),
            ("cu13", "libcusparse.so.12"),
            ("cusparselt", "libcusparseLt.so.0"),
            ("nvshmem", "libnvshmem_host.so.3"),
            ("cu13", "libcufile.so.0"),
        ] {
            bench.library(&root.join("site/nvidia").join(folder).join("lib").join(name), Some(name), &[], Tag::None, &[], false);
        }
        let site = [root.join("first"), root.join("site")];
        let value = if draw.chance(3) { String::new() } else { [at("a"), at("b")].join(":") };
        let env = [("LD_LIBRARY_PATH", value)];
        let cwd = root.join("here");
        let folders =
            ["site/nvidia/cu13/lib", "site/nvidia/nccl/lib", "first/nvidia/cuda_nvrtc/lib", "a", "b", "here"].map(|name| root.join(name));
        let facts = facts(&folders, &env, &cwd);
        let torch = torch(&root.join("site/torch"), "2.11.0");
        let mut process = Process::of_program(&facts, &program.as_path().into(), None, Some(&torch)).unwrap().unwrap();
        process.import(&site.each_ref().map(|path| path.as_path().into()), &torch);
        let output = Command::new(python)
            .args(["-I", "-c", IMPORT])
            .arg(&source)
            .arg(root.join("site/torch"))
            .args(&site)
            .env_clear()
            .envs(env.iter().map(|(name, value)| (*name, value)))
            .current_dir(&cwd)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let about = format!("case {case} {env:?}\n{told}{}\n{:?}", String::from_utf8_lossy(&output.stderr), process.unmet());
        assert!(output.status.success(), "{about}");
        if told.starts_with('!') {
            assert!(process.import_fails(), "{about}");
            failed += 1;
            continue;
        }
        assert!(!process.import_fails(), "{about}");
        fine += 1;
        let known = |path: &Path| NAMES.iter().chain(&TORCH).any(|name| path.file_name().is_some_and(|file| file == *name));
        let theirs: BTreeSet<PathBuf> = told
            .lines()
            .filter_map(|line| line.strip_prefix("= "))
            .map(PathBuf::from)
            .filter(|path| known(path) && path.starts_with(&root))
            .collect();
        let ours: BTreeSet<PathBuf> =
            process.loaded().map(|(path, _)| real(path, &cwd)).filter(|path| known(path) && path.starts_with(&root)).collect();
        assert_eq!(ours, theirs, "{about}");
    }
    assert!(fine >= 8 && failed >= 2, "{fine} imports, {failed} failures");
}

fn real_torch(venv: &Path) {
    let bench = Bench::new();
    let site = fs::canonicalize(venv).unwrap().join("lib/python3.11/site-packages");
    let decoys = fs::canonicalize(bench.root.path()).unwrap().join("decoys");
    // Names that torch needs, as another toolkit on LD_LIBRARY_PATH would have them. An empty library cannot serve, so only those that the
    // model says are never taken may stand here: the import succeeds only if it is right.
    for name in [
        "libcudart.so.13",
        "libcublas.so.13",
        "libcublasLt.so.13",
        "libcudnn.so.9",
        "libnccl.so.2",
        "libnvrtc.so.13",
        "libcusparse.so.12",
        "libcufft.so.12",
    ] {
        bench.library(&decoys.join(name), Some(name), &[], Tag::None, &[], false);
    }
    let env = [("LD_LIBRARY_PATH", decoys.to_string_lossy().into_owned()), ("PATH", format!("{}/bin:/usr/bin:/bin", venv.display()))];
    // Facts as they are collected, so that collecting and judging are proved together.
    let host = Live::with_env(env.iter().map(|(name, value)| ((*name).into(), value.into())).collect());
    let facts = collect::snapshot(&host, &collect::Options { ask_gpu: false, ..collect::Options::default() });
    let choice = ds_doctor::model::python::chosen(&facts);
    let interpreter = choice.interpreter.unwrap_or_else(|| panic!("{choice:?}"));
    let python = venv.join("bin/python");
    assert_eq!(interpreter.path.parent(), python.parent());
    let torch = interpreter.torch.value().unwrap_or_else(|| panic!("{:?}", interpreter.torch));
    let process = Process::importing(&facts, interpreter, torch).unwrap().unwrap();
    assert!(!process.import_fails(), "{:?}", process.unmet());
    let script = "import torch\nfor line in open('/proc/self/maps'):\n    print(line.split(None, 5)[-1].strip())\n";
    let output = Command::new(&python).args(["-I", "-c", script]).env_clear().envs(env.iter().map(|(k, v)| (*k, v))).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let known = |path: &Path| library(path).is_some() || path.parent() == Some(&site.join("torch/lib"));
    let theirs: BTreeSet<PathBuf> =
        String::from_utf8_lossy(&output.stdout).lines().map(PathBuf::from).filter(|path| path.is_absolute() && known(path)).collect();
    let ours: BTreeSet<PathBuf> = process.loaded().map(|(path, _)| real(path, Path::new("/"))).collect();
    let missed: Vec<&PathBuf> = theirs.difference(&ours).filter(|path| !path.ends_with("libgomp.so.1")).collect();
    let invented: Vec<&PathBuf> = ours.difference(&theirs).collect();
    assert!(missed.is_empty() && invented.is_empty(), "missed {missed:?}\ninvented {invented:?}");
    assert!(ours.len() > 15, "{ours:?}");
}
