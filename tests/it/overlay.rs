//! `ds-doctor overlay` on real toolkits: nvcc compiles through it, the linker finds what torch asks for, and nothing but its own links is
//! ever taken away.

mod plan;

use crate::util::{Doctor, Output, lab, trial, trial_with};
use libtest_mimic::Trial;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub fn trials() -> Vec<Trial> {
    let cxx = |part: &str| if Path::new("/usr/bin/c++").exists() { lab(part) } else { Err("no /usr/bin/c++".to_owned()) };
    vec![
        trial_with("overlay::builds_with_the_pip_toolkit_of_13_0", cxx("pip-cu130/nvidia/cu13"), |kit| builds(&kit)),
        trial_with("overlay::builds_with_the_pip_toolkit_of_13_5", cxx("pip-cu135/nvidia/cu13"), |kit| builds(&kit)),
        trial_with("overlay::is_followed_and_removed", lab("pip-cu130/nvidia/cu13"), |kit| followed(&kit)),
        trial_with("overlay::packages_of_another_release_are_not_mixed_in", both("pip-cu135/nvidia/cu13"), |(kit, venv)| {
            not_mixed(&kit, &venv)
        }),
        trial_with("overlay::a_toolkit_without_its_parts_is_refused", lab("pip-nvcc-alone/nvidia/cu13"), |kit| refused(&kit)),
        trial_with("overlay::exports_point_to_it", both("pip-cu130/nvidia/cu13"), |(kit, venv)| exports(&kit, &venv)),
        trial_with("overlay::a_gcc_that_nvcc_takes_is_found_by_nvcc_alone", newer_gcc(), |tree| older_gcc(&tree)),
        trial_with("overlay::condas_layout_is_put_right", cxx("pip-cu130/nvidia/cu13"), |kit| conda(&kit)),
        trial("overlay::plan_of_places", plan::places),
        trial("overlay::plan_keeps_names", plan::kept_names),
        trial("overlay::plan_refuses", plan::refusals),
        trial("overlay::nothing_to_make_it_from", nothing),
        trial("overlay::folders_that_builds_cannot_use", unusable_names),
    ]
}

fn both(kit: &str) -> Result<(PathBuf, PathBuf), String> {
    Ok((lab(kit)?, lab("torch-venv")?))
}

/// Debian's CUDA 11.8 takes gcc 11 at most.
fn newer_gcc() -> Result<PathBuf, String> {
    let tree = lab("deb-cuda118")?;
    let version = Command::new("/usr/bin/gcc").arg("-dumpversion").output().map_err(|_| "no /usr/bin/gcc".to_owned())?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let major: u32 = version.split('.').next().unwrap_or_default().parse().unwrap_or(0);
    if major > 11 { Ok(tree) } else { Err(format!("/usr/bin/gcc is {version}, which CUDA 11.8 takes")) }
}

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn doctor(kit: &Path, data: &Path, args: &[&str]) -> Output {
    Doctor::new([]).args(args).env("CUDA_HOME", kit).env("XDG_DATA_HOME", data).timeout(Duration::from_secs(120)).run()
}

/// Every path below, with what a link says or a file's time and size.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry.unwrap();
        let meta = entry.path().symlink_metadata().unwrap();
        let what = match fs::read_link(entry.path()) {
            Ok(to) => to.display().to_string(),
            Err(_) => format!("{} {} {}", meta.mode(), meta.ino(), meta.mtime()),
        };
        all.insert(entry.path().to_owned(), what);
    }
    all
}

fn run(program: &Path, args: &[&str], folder: &Path) -> (bool, String) {
    let out = Command::new(program).args(args).current_dir(folder).env_clear().env("PATH", PATH).env("LC_ALL", "C").output().unwrap();
    (out.status.success(), format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}

/// As torch does: nvcc by `$CUDA_HOME/bin/nvcc`, the link by `c++ … -L$CUDA_HOME/lib64 -lcudart`.
fn builds(kit: &Path) {
    let data = tempfile::tempdir().unwrap();
    let before = tree(kit);
    let out = doctor(kit, data.path(), &["overlay", "create"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    let overlay = data.path().join("ds-doctor/overlay");
    let work = tempfile::tempdir().unwrap();
    let source = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\n\
                  __global__ void twice(float* p) { p[threadIdx.x] = __half2float(__float2half(p[threadIdx.x])) * 2.f; }\n\
                  extern \"C\" int start(float* p) { twice<<<1, 32>>>(p); return cudaGetLastError(); }\n";
    fs::write(work.path().join("k.cu"), source).unwrap();
    let host = "#include <cuda_runtime_api.h>\nextern \"C\" int release() { int v = 0; cudaRuntimeGetVersion(&v); return v; }\n";
    fs::write(work.path().join("h.cpp"), host).unwrap();
    let nvcc = overlay.join("bin/nvcc");
    let (fine, said) = run(&nvcc, &["-gencode=arch=compute_90,code=sm_90", "-Xcompiler", "-fPIC", "-c", "k.cu", "-o", "k.o"], work.path());
    assert!(fine, "{said}");
    let dry = run(&nvcc, &["--dryrun", "-c", "k.cu"], work.path()).1;
    assert!(dry.contains(&format!("TOP={}/bin/..", overlay.display())), "nvcc takes the overlay for its place: {dry}");
    let cxx = Path::new("/usr/bin/c++");
    let (fine, said) = run(cxx, &["-isystem", overlay.join("include").to_str().unwrap(), "-fPIC", "-c", "h.cpp", "-o", "h.o"], work.path());
    assert!(fine, "{said}");
    let link = |home: &Path| {
        let folder = format!("-L{}/lib64", home.display());
        run(cxx, &["h.o", "k.o", "-shared", "-Wl,-z,defs", &folder, "-lcudart", "-o", "k.so"], work.path())
    };
    let (fine, said) = link(kit);
    assert!(!fine && said.contains("cannot find -lcudart"), "the toolkit as it comes is at fault: {said}");
    let (fine, said) = link(&overlay);
    assert!(fine, "{said}");
    let (_, needs) = run(Path::new("/usr/bin/readelf"), &["-d", "k.so"], work.path());
    assert!(needs.contains("[libcudart.so.13]"), "{needs}");
    // nvcc's own link goes by its profile, whichever of `lib` and `lib64` that names.
    let (fine, said) = run(&nvcc, &["-shared", "-cudart", "shared", "k.o", "-o", "n.so"], work.path());
    assert!(fine, "{said}");
    judged(kit, &overlay, data.path());
    assert_eq!(tree(kit), before, "the toolkit is untouched");
}

/// The overlay is a whole toolkit to the checks, and the toolkit as it comes is not.
fn judged(kit: &Path, overlay: &Path, data: &Path) {
    let torch = "--assume=torch=2.11.0+cu130";
    let errors = |home: &Path| {
        let out = doctor(home, data, &["check", "--static", "--for", "build", torch, "--format", "json"]);
        let json: serde_json::Value = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
        let of_toolkit = json["findings"].as_array().unwrap().iter().filter(|finding| finding["subject"] == home.to_str().unwrap());
        of_toolkit.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(errors(kit).contains(&"linker-cannot-find-cuda-lib".to_owned()), "{:?}", errors(kit));
    let left = errors(overlay);
    assert!(!left.iter().any(|id| id == "linker-cannot-find-cuda-lib" || id.starts_with("toolkit-")), "{left:?}");
    let out = doctor(overlay, data, &["snapshot", "--no-redact"]);
    let facts: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    let all = facts["toolkits"]["value"].as_array().unwrap();
    let seen = all.iter().find(|toolkit| toolkit["root"] == overlay.to_str().unwrap()).expect("it is a toolkit");
    assert_eq!(seen["layout"], "overlay");
    assert_eq!(seen["nvcc"]["value"]["program"], kit.join("bin/nvcc").to_str().unwrap());
    assert!(seen["parts"].as_array().unwrap().iter().all(|part| part["path"].is_string()), "{}", seen["parts"]);
}

/// A toolkit of links to the real one, which can be changed.
fn own_kit(kit: &Path, at: &Path) {
    fs::create_dir_all(at.join("lib")).unwrap();
    for name in ["bin", "include", "nvvm"] {
        symlink(kit.join(name), at.join(name)).unwrap();
    }
    fs::copy(kit.join("lib/libcudart.so.13"), at.join("lib/libcudart.so.13")).unwrap();
}

fn followed(kit: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("cuda");
    own_kit(kit, &own);
    let overlay = dir.path().join("data/ds-doctor/overlay");
    let say = |args: &[&str]| {
        let out = doctor(&own, &dir.path().join("data"), args);
        assert_eq!(out.code, Some(0), "{out:?}");
        out.stdout
    };
    let shown = say(&["overlay", "create", "--dry-run"]);
    assert!(shown.starts_with("would make") && !overlay.exists(), "{shown}");
    assert!(say(&["overlay", "create"]).starts_with("made"));
    let first = tree(&overlay);
    assert!(say(&["overlay", "create"]).starts_with("nothing to change"));
    assert_eq!(tree(&overlay), first);
    // With the overlay in force it is still the toolkit behind it that is meant.
    let out = doctor(&overlay, &dir.path().join("data"), &["overlay", "create"]);
    assert!(out.stdout.starts_with("nothing to change"), "{out:?}");
    fs::write(own.join("lib/libcurand.so.10"), "x").unwrap();
    assert!(say(&["overlay", "create"]).starts_with("renewed"));
    assert_eq!(fs::read_link(overlay.join("lib64/libcurand.so")).unwrap(), Path::new("libcurand.so.10"));
    assert_eq!(fs::read_dir(overlay.parent().unwrap()).unwrap().count(), 1, "nothing is left beside it");
    assert!(say(&["overlay", "show"]).contains("names for the linker"));
    fs::remove_file(own.join("lib/libcurand.so.10")).unwrap();
    let out = doctor(&own, &dir.path().join("data"), &["overlay", "show"]);
    assert!(out.code == Some(1) && out.stdout.contains("`lib64/libcurand.so.10` links to"), "{out:?}");
    let out = doctor(&own, &dir.path().join("data"), &["overlay", "show", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!((&report["verdict"], out.code), (&"broken".into(), Some(1)), "{report:#}");
    assert!(say(&["overlay", "remove"]).starts_with("removed"));
    assert!(!overlay.exists() && own.join("bin/nvcc").exists() && own.join("lib/libcudart.so.13").exists());
    let out = doctor(&own, &dir.path().join("data"), &["overlay", "remove", own.to_str().unwrap()]);
    assert!(out.code == Some(2) && out.stderr.contains("a folder of something else"), "{out:?}");
    assert!(own.join("bin/nvcc").exists());
}

/// The finding names the overlay, the exports put it in force and cure the finding, a second run has nothing to say; and nothing points to
/// an overlay that is not whole.
fn exports(kit: &Path, venv: &Path) {
    let data = tempfile::tempdir().unwrap();
    let overlay = data.path().join("ds-doctor/overlay");
    let path = format!("{}:{PATH}", venv.join("bin").display());
    let say = |home: &Path, path: &str, args: &[&str]| {
        Doctor::new([]).args(args).env("CUDA_HOME", home).env("XDG_DATA_HOME", data.path()).env("PATH", path).run()
    };
    let list = ["--gpu", "h100", "--for", "build"];
    let out = say(kit, &path, &[&["fix"], &list[..]].concat());
    assert!(out.code == Some(0) && out.stdout.contains("ds-doctor overlay create"), "{out:?}");
    assert!(out.stdout.contains("missing-cuda-headers") || out.stdout.contains("linker-cannot-find-cuda-lib"), "{out:?}");
    assert_eq!(say(kit, &path, &["overlay", "create"]).code, Some(0));
    let with = ["fix", "--print-exports", "--overlay", overlay.to_str().unwrap()];
    let out = say(kit, &path, &[&with, &list[..]].concat());
    assert!(out.code == Some(0) && out.stdout.contains(&format!("export CUDA_HOME={};", overlay.display())), "{out:?}");
    let script = "eval \"$1\"; /bin/echo \"$CUDA_HOME\"; /bin/echo \"$PATH\"; /usr/bin/env -0 > env";
    let shell =
        Doctor::new(["-c", script, "sh", &out.stdout]).program("/bin/sh").env("CUDA_HOME", kit).env("PATH", &path).cwd(data.path()).run();
    let lines: Vec<&str> = shell.stdout.lines().collect();
    assert_eq!(lines, [overlay.to_str().unwrap(), &format!("{}/bin:{path}", overlay.display())]);
    let env = data.path().join("env");
    let judged = |args: &[&str]| Doctor::new([]).args(args).args(["--env-file", env.to_str().unwrap()]).env("PATH", lines[1]).run();
    let again = judged(&[&with, &list[..]].concat());
    assert!(again.code == Some(0) && again.stdout.is_empty(), "{again:?}");
    let check = judged(&[&["check", "--static"], &list[..]].concat());
    assert!(check.code == Some(0) && check.stdout.contains("no finding"), "{check:?}");
    // Broken by a change of the toolkit, it is not pointed to.
    fs::remove_file(overlay.join("lib64/libcudart.so")).unwrap();
    let out = say(kit, &path, &with);
    assert!(out.code == Some(2) && out.stdout.is_empty() && out.stderr.contains("not whole"), "{out:?}");
    let out = say(kit, &path, &["fix", "--print-exports", "--overlay", kit.to_str().unwrap()]);
    assert!(out.code == Some(2) && out.stdout.is_empty(), "{out:?}");
}

fn links(from: &Path, names: &[&str], into: &Path) {
    fs::create_dir_all(into).unwrap();
    for name in names {
        symlink(from.join(name), into.join(name)).unwrap();
    }
}

/// In the form of NVIDIA's own.
const PROFILE: &str = "TOP = $(_HERE_)/..\nCICC_PATH = $(TOP)/nvvm/bin\nNVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice\n\
    PATH += $(CICC_PATH):$(_HERE_):\nINCLUDES += \"-I$(TOP)/$(_TARGET_DIR_)/include\" $(_SPACE_)\n\
    LIBRARIES =+ $(_SPACE_) \"-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs\" \"-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)\"\n";

/// NVIDIA's layout made of links to the Debian packages, without Debian's script that picks a gcc.
fn older_gcc(tree: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let (kit, debian) = (dir.path().join("cuda"), tree.join("usr/lib/nvidia-cuda-toolkit"));
    links(&debian.join("bin"), &["nvcc", "crt"], &kit.join("bin"));
    links(&tree.join("usr/bin"), &["ptxas", "fatbinary", "cudafe++", "nvlink"], &kit.join("bin"));
    links(&debian.join("bin"), &["cicc"], &kit.join("nvvm/bin"));
    links(&debian, &["libdevice"], &kit.join("nvvm"));
    fs::write(kit.join("bin/nvcc.profile"), PROFILE).unwrap();
    // Debian's `include` has the headers of its C library too.
    fs::create_dir(kit.join("include")).unwrap();
    for entry in fs::read_dir(tree.join("usr/include")).unwrap() {
        let name = entry.unwrap().file_name();
        if !Path::new("/usr/include").join(&name).exists() {
            symlink(tree.join("usr/include").join(&name), kit.join("include").join(&name)).unwrap();
        }
    }
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    links(&libraries, &["libcudart.so", "libcudart_static.a", "libcudadevrt.a"], &kit.join("lib64"));
    let programs = dir.path().join("path");
    fs::create_dir(&programs).unwrap();
    for name in ["gcc-11", "g++-11"] {
        symlink(tree.join(format!("usr/bin/x86_64-linux-gnu-{name}")), programs.join(name)).unwrap();
    }
    let source = "#include <vector>\n__global__ void one(int* p) { *p = 1; }\n\
                  int start(int* p) { std::vector<int> v{1}; one<<<1, 1>>>(p); return v[0]; }\n";
    fs::write(dir.path().join("k.cu"), source).unwrap();
    let compile =
        |home: &Path| run(&home.join("bin/nvcc"), &["-gencode=arch=compute_80,code=sm_80", "-c", "k.cu", "-o", "k.o"], dir.path());
    let (fine, said) = compile(&kit);
    assert!(!fine && said.contains("unsupported GNU version"), "the toolkit as it is: {said}");
    let path = format!("{}:{PATH}", programs.display());
    let overlay = dir.path().join("o");
    let say = |home: &Path, args: &[&str]| Doctor::new([]).args(args).env("CUDA_HOME", home).env("PATH", &path).run();
    let list = ["check", "--static", "--assume", "torch=2.1.0+cu118", "--gpu", "a100", "--only", "gcc-too-new-for-nvcc"];
    let before = say(&kit, &list);
    assert!(before.code == Some(1) && before.stdout.contains("ds-doctor overlay create"), "{before:?}");
    let out = say(&kit, &["overlay", "create", overlay.to_str().unwrap()]);
    assert!(out.code == Some(0) && out.stdout.contains("where only nvcc looks"), "{out:?}");
    // The plain PATH: nothing but the overlay leads to that gcc.
    let (fine, said) = compile(&overlay);
    assert!(fine, "{said}");
    let comment = run(Path::new("/usr/bin/readelf"), &["-p", ".comment", "k.o"], dir.path()).1;
    assert!(comment.contains("11."), "{comment}");
    assert!(!overlay.join("bin/gcc").exists() && !overlay.join("bin/g++").exists());
    let after = say(&overlay, &list);
    assert_eq!(after.code, Some(0), "{after:?}");
    let again = say(&overlay, &["overlay", "create", overlay.to_str().unwrap()]);
    assert!(again.stdout.starts_with("nothing to change"), "{again:?}");
}

/// conda keeps headers and libraries under `targets`, and everything else it has in the same `bin` and `lib`.
fn conda(kit: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let prefix = dir.path().join("conda");
    let target = prefix.join("targets/x86_64-linux");
    links(&kit.join("bin"), &["nvcc", "nvcc.profile", "crt", "ptxas", "fatbinary", "cudafe++", "nvlink"], &prefix.join("bin"));
    links(kit, &["nvvm"], &prefix);
    links(kit, &["include"], &target);
    links(&kit.join("lib"), &["libcudart.so.13", "libcudadevrt.a", "libcudart_static.a"], &target.join("lib"));
    symlink("libcudart.so.13", target.join("lib/libcudart.so")).unwrap();
    for (file, text) in [
        ("conda-meta/history", ""),
        ("bin/python3", "#!/bin/sh\n"),
        ("bin/x86_64-conda-linux-gnu-g++", "#!/bin/sh\n"),
        ("include/openssl/ssl.h", ""),
        ("lib/libssl.so.3", "x"),
        ("lib/libcurl.so.4", "x"),
        ("lib/libnccl.so.2", "x"),
    ] {
        fs::create_dir_all(prefix.join(file).parent().unwrap()).unwrap();
        fs::write(prefix.join(file), text).unwrap();
    }
    let overlay = dir.path().join("o");
    let out = doctor(&prefix, dir.path(), &["overlay", "create", overlay.to_str().unwrap()]);
    assert_eq!(out.code, Some(0), "{out:?}");
    for absent in ["bin/python3", "bin/x86_64-conda-linux-gnu-g++", "include/openssl", "lib64/libssl.so.3", "lib64/libcurl.so.4", "targets"]
    {
        assert!(overlay.join(absent).symlink_metadata().is_err(), "{absent}");
    }
    for present in ["include/cuda.h", "lib64/libcudart.so", "lib64/libnccl.so", "bin/ptxas", "nvvm/bin/cicc"] {
        assert!(overlay.join(present).exists(), "{present}");
    }
    fs::write(dir.path().join("k.cu"), "#include <cuda_runtime_api.h>\n__global__ void one(int* p) { *p = 1; }\nextern \"C\" int start() { int v; return cudaRuntimeGetVersion(&v); }\n").unwrap();
    let nvcc = overlay.join("bin/nvcc");
    let (fine, said) = run(&nvcc, &["-gencode=arch=compute_90,code=sm_90", "-Xcompiler", "-fPIC", "-c", "k.cu", "-o", "k.o"], dir.path());
    assert!(fine, "{said}");
    let cxx = Path::new("/usr/bin/c++");
    let link = |home: &Path| run(cxx, &["k.o", "-shared", &format!("-L{}/lib64", home.display()), "-lcudart", "-o", "k.so"], dir.path());
    assert!(!link(&prefix).0);
    let (fine, said) = link(&overlay);
    assert!(fine, "{said}");
    let out = doctor(
        &overlay,
        dir.path(),
        &["check", "--static", "--assume", "torch=2.11.0+cu130", "--only", "conda-targets-layout,linker-cannot-find-cuda-lib"],
    );
    assert_eq!(out.code, Some(0), "{out:?}");
}

/// torch's packages are of CUDA 13.0, this toolkit is of 13.5.
fn not_mixed(kit: &Path, venv: &Path) {
    let data = tempfile::tempdir().unwrap();
    let python = venv.join("bin/python3");
    let out = doctor(kit, data.path(), &["overlay", "create", "--python", python.to_str().unwrap()]);
    assert_eq!(out.code, Some(0), "{out:?}");
    let manifest = fs::read_to_string(data.path().join("ds-doctor/overlay/.ds-doctor-overlay.json")).unwrap();
    assert!(!manifest.contains("torch-venv"), "{}", out.stdout);
}

fn refused(kit: &Path) {
    let data = tempfile::tempdir().unwrap();
    let out = doctor(kit, data.path(), &["overlay", "create"]);
    assert!(out.code == Some(2) && out.stderr.contains("`cicc`"), "{out:?}");
    assert_eq!(fs::read_dir(data.path()).unwrap().count(), 0);
}

fn nothing() {
    let data = tempfile::tempdir().unwrap();
    let out = doctor(Path::new("/nowhere"), data.path(), &["overlay", "create", "--toolkit", "/nowhere"]);
    assert!(out.code == Some(2) && out.stderr.contains("no CUDA toolkit"), "{out:?}");
    let out = doctor(Path::new("/nowhere"), data.path(), &["overlay", "show"]);
    assert!(out.code == Some(2) && out.stderr.contains("there is no overlay"), "{out:?}");
}

fn unusable_names() {
    let data = tempfile::tempdir().unwrap();
    for name in ["my cuda", "a:b", "a$b"] {
        let out = doctor(Path::new("/nowhere"), data.path(), &["overlay", "create", name]);
        assert!(out.code == Some(2) && out.stderr.contains("name another folder"), "{name}: {out:?}");
    }
}
