//! Toolkits, compilers and programs as collected, against what the real programs say of themselves when they run.

use crate::util::{lab, trial, trial_with};
use ds_doctor::collect::{Notes, compiler, env, program, toolkit};
use ds_doctor::facts::compiler::{Compiler, Family, Language};
use ds_doctor::facts::observed::Observed;
use ds_doctor::facts::program::Program;
use ds_doctor::facts::toolkit::{Layout, Nvcc, NvccKind, StatedBy, Toolkit};
use ds_doctor::host::{Environment, Host, Live, Rooted};
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for part in ["pip-cu130/nvidia/cu13", "pip-cu135/nvidia/cu13", "deb-cuda118/usr/lib/nvidia-cuda-toolkit"] {
        let name = |what: &str| format!("collect_toolkit::{what}_of_{}", part.split('/').next().unwrap());
        trials.push(trial_with(&name("version_and_targets"), lab(part), |root| version_and_targets(&root)));
        trials.push(trial_with(&name("nvcc_ccbin"), lab(part), |root| nvcc_ccbin(&root)));
    }
    trials.extend([
        trial_with("collect_toolkit::searched_folders_are_those_of_dryrun", lab("pip-cu130/nvidia/cu13"), |root| searched(&root)),
        trial_with("collect_toolkit::complete_toolkits_compile", lab("pip-cu130/nvidia/cu13"), |root| compiles(&root, true)),
        trial_with("collect_toolkit::incomplete_toolkits_do_not", lab("pip-nvcc-alone/nvidia/cu13"), |root| compiles(&root, false)),
        trial_with("collect_toolkit::a_cicc_of_another_release", both("pip-cu130", "pip-cu135"), |(old, new)| mixed(&old, &new)),
        trial_with("collect_toolkit::debian", lab("deb-cuda118"), |root| debian(&root)),
        trial_with("collect_toolkit::compilers", some_gcc(), |()| compilers()),
        trial("collect_toolkit::first_program_on_path", first_on_path),
        trial("collect_toolkit::variables_that_rules_speak_of", variables),
    ]);
    trials
}

fn both(first: &str, second: &str) -> Result<(PathBuf, PathBuf), String> {
    Ok((lab(first)?.join("nvidia/cu13"), lab(second)?.join("nvidia/cu13")))
}

fn at(root: &Path) -> Toolkit {
    let env: Environment = [("CUDA_HOME".into(), root.into()), ("PATH".into(), PATH.into())].into();
    let host = Live::with_env(env);
    find(&host, root)
}

fn find(host: &dyn Host, root: &Path) -> Toolkit {
    let Observed::Seen { value } = toolkit::collect(host, &toolkit::roots(host, None, None), &mut Notes::new()) else {
        panic!("no toolkit")
    };
    value.into_iter().find(|toolkit| *toolkit.root == *root).expect("the toolkit")
}

fn nvcc(toolkit: &Toolkit) -> &Nvcc {
    toolkit.nvcc.value().expect("nvcc")
}

fn run(program: &Path, args: &[&str], env: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(args).env_clear().env("PATH", PATH).env("LC_ALL", "C").envs(env.iter().copied());
    command.output().unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A source file to compile, and a folder for what comes of it.
fn source() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k.cu");
    fs::write(&path, "__global__ void k(int *p) { *p = 1; }\n").unwrap();
    (dir, path.to_str().unwrap().to_owned())
}

fn version_and_targets(root: &Path) {
    let toolkit = at(root);
    let nvcc = nvcc(&toolkit);
    assert_eq!(nvcc.kind, NvccKind::Program);
    let said = text(&run(&nvcc.path, &["-V"], &[]).stdout);
    assert!(said.contains(&format!("V{}", nvcc.version.as_ref().unwrap())), "{said}");

    let listed = text(&run(&nvcc.path, &["--list-gpu-arch"], &[]).stdout);
    let listed: BTreeSet<String> = listed.split_whitespace().map(str::to_owned).collect();
    let plain: BTreeSet<String> = nvcc.targets.iter().filter(|target| target.suffix.is_none()).map(|target| target.compute()).collect();
    assert_eq!(plain, listed);
    let codes = text(&run(&nvcc.path, &["--list-gpu-code"], &[]).stdout);
    for code in codes.split_whitespace().filter(|code| code.starts_with("sm_")) {
        assert!(nvcc.targets.iter().any(|target| target.sm() == code), "{code}");
    }

    // The forms that nvcc does not list, and all others that could be thought of.
    let (_dir, source) = source();
    for target in &nvcc.targets {
        for suffix in ["", "a", "f"] {
            let name = format!("sm_{}{suffix}", target.capability.sm());
            let accepted = run(&nvcc.path, &["--dryrun", "-ptx", &format!("-arch={name}"), &source], &[]).status.success();
            assert_eq!(accepted, nvcc.targets.iter().any(|target| target.sm() == name), "{name}");
        }
    }
}

fn nvcc_ccbin(root: &Path) {
    let toolkit = at(root);
    let (_dir, source) = source();
    let output = run(&nvcc(&toolkit).path, &["--dryrun", "-ptx", &source], &[("NVCC_CCBIN", "/none/such-compiler")]);
    let read = text(&output.stderr).contains("/none/such-compiler");
    assert_eq!(nvcc(&toolkit).reads_nvcc_ccbin, Some(read), "{}", text(&output.stderr));
}

/// What nvcc says it will search, against what was read from its profile: in place, by way of a link to the folder, with a `targets`
/// folder beside it, and through a link to nvcc alone.
fn searched(root: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let at_dir = |name: &str| dir.path().join(name);
    symlink(root, at_dir("linked")).unwrap();
    fs::create_dir_all(at_dir("targets/bin")).unwrap();
    fs::create_dir_all(at_dir("targets/targets/x86_64-linux/lib")).unwrap();
    symlink(root.join("include"), at_dir("targets/targets/x86_64-linux/include")).unwrap();
    fs::copy(root.join("bin/nvcc"), at_dir("targets/bin/nvcc")).unwrap();
    for name in ["nvcc.profile", "ptxas", "cudafe++", "fatbinary", "nvlink"] {
        symlink(root.join("bin").join(name), at_dir("targets/bin").join(name)).unwrap();
    }
    symlink(root.join("nvvm"), at_dir("targets/nvvm")).unwrap();
    fs::create_dir_all(at_dir("alone/bin")).unwrap();
    symlink(root.join("bin/nvcc"), at_dir("alone/bin/nvcc")).unwrap();

    for root in [root.to_owned(), at_dir("linked"), at_dir("targets"), at_dir("alone")] {
        let toolkit = at(&root);
        let (_dir, source) = source();
        let said = text(&run(&root.join("bin/nvcc"), &["--dryrun", "-c", &source], &[]).stderr);
        let value = |name: &str| said.lines().rev().find_map(|line| line.strip_prefix(&format!("#$ {name}="))).unwrap_or_default();
        let real = |path: &str| fs::canonicalize(path).ok();

        let words = shlex::split(&format!("{} {}", value("INCLUDES"), value("SYSTEM_INCLUDES"))).unwrap();
        let theirs: BTreeSet<PathBuf> =
            words.iter().filter(|word| *word != "-isystem").filter_map(|word| real(word.trim_start_matches("-I"))).collect();
        let defaults = ["/usr/include", "/usr/local/include", "/usr/include/x86_64-linux-gnu"];
        let ours = toolkit.includes.iter().filter(|folder| folder.searched_by_nvcc);
        let ours: BTreeSet<PathBuf> = ours
            .map(|folder| fs::canonicalize(&folder.path).unwrap())
            .filter(|path| !defaults.iter().any(|d| path == Path::new(d)))
            .collect();
        assert_eq!(ours, theirs, "{}", root.display());

        let path = if value("PATH").is_empty() { PATH } else { value("PATH") };
        for name in ["ptxas", "cudafe++", "fatbinary", "nvlink", "cicc"] {
            let folders = if name == "cicc" && !value("CICC_PATH").is_empty() { value("CICC_PATH") } else { path };
            let theirs = folders.split(':').find_map(|folder| real(&format!("{folder}/{name}")));
            let ours = toolkit.part(name).unwrap().path.as_ref().map(|path| fs::canonicalize(path).unwrap());
            assert_eq!(ours, theirs, "{name} of {}", root.display());
        }
    }
}

fn compiles(root: &Path, well: bool) {
    let toolkit = at(root);
    let whole = toolkit.parts.iter().all(|part| part.path.is_some() && part.broken.is_none());
    assert_eq!((toolkit.parts.len(), whole), (8, well), "{:#?}", toolkit.parts);
    let (dir, source) = source();
    let output = run(
        &root.join("bin/nvcc"),
        &["-ptx", "-allow-unsupported-compiler", "-o", dir.path().join("k.ptx").to_str().unwrap(), &source],
        &[],
    );
    assert_eq!(output.status.success(), whole, "{}", text(&output.stderr));
}

/// nvcc and ptxas of one release with the cicc of another: the pieces of `nvidia-nvvm` and `nvidia-cuda-nvcc` that pip may put together.
fn mixed(old: &Path, new: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("cuda");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::copy(old.join("bin/nvcc"), root.join("bin/nvcc")).unwrap();
    for name in ["nvcc.profile", "ptxas", "cudafe++", "fatbinary", "nvlink"] {
        symlink(old.join("bin").join(name), root.join("bin").join(name)).unwrap();
    }
    symlink(old.join("include"), root.join("include")).unwrap();
    symlink(new.join("nvvm"), root.join("nvvm")).unwrap();
    let toolkit = at(&root);
    let stated = |what| toolkit.stated.iter().find(|stated| stated.what == what).map(|stated| stated.version.major_minor());
    assert_eq!(stated(StatedBy::Nvcc).as_deref(), Some("13.0"));
    assert_eq!(stated(StatedBy::Ptxas).as_deref(), Some("13.0"));
    assert_eq!(stated(StatedBy::Cicc).as_deref(), Some("13.5"));
    assert_eq!(stated(StatedBy::CudaHeader).as_deref(), Some("13.0"));
}

fn debian(tree: &Path) {
    let env: Environment = [("PATH".into(), "/usr/bin:/bin".into())].into();
    let host = Rooted::new(tree, env).unwrap();
    let usr = find(&host, Path::new("/usr"));
    let own = nvcc(&usr);
    assert_eq!((usr.layout, &own.kind), (Layout::Distribution, &NvccKind::DistributionScript));
    assert_eq!(&*own.program, Path::new("/usr/lib/nvidia-cuda-toolkit/bin/nvcc"));
    assert!(usr.parts.iter().all(|part| part.path.is_some() && part.broken.is_none()), "{:#?}", usr.parts);
    let releases: BTreeSet<String> = usr.stated.iter().map(|stated| stated.version.major_minor()).collect();
    assert_eq!(releases, BTreeSet::from(["11.8".to_owned()]));
    assert_eq!(usr.stated.len(), 6, "{:#?}", usr.stated);
    // Debian's own wrapper takes gcc 11 at most.
    let wrapper = fs::read_to_string(tree.join("usr/lib/nvidia-cuda-toolkit/bin/g++")).unwrap();
    let newest = wrapper.lines().find_map(|line| line.trim().strip_prefix("if g++-")?.split(' ').next()?.parse().ok());
    assert_eq!(usr.host_limits.value().unwrap().gcc_max, newest);
    for header in ["cuda_runtime.h", "cublas_v2.h", "curand.h", "cub/cub.cuh"] {
        assert!(usr.includes.iter().any(|folder| folder.searched_by_torch && folder.headers.iter().any(|name| name == header)), "{header}");
    }
    let lib = usr.libs.iter().find(|folder| folder.path.ends_with("x86_64-linux-gnu")).unwrap();
    assert!(lib.files.iter().any(|name| name == "libcudart.so") && usr.stubs().unwrap().files.iter().any(|name| name == "libcuda.so"));
}

fn live_programs() -> (Live, Vec<Program>) {
    let host = Live::with_env([("PATH".into(), PATH.into())].into());
    let programs = program::collect(&host, &[], &mut Notes::new());
    (host, programs)
}

fn some_gcc() -> Result<(), String> {
    Path::new("/usr/bin/gcc").exists().then_some(()).ok_or_else(|| "no /usr/bin/gcc".to_owned())
}

/// Version, target and `cc1plus` of every gcc here, against its own answers.
fn compilers() {
    let (host, programs) = live_programs();
    let Observed::Seen { value: found } = compiler::collect(&host, &programs, Duration::from_secs(10)) else { panic!("no compilers") };
    let gcc: Vec<&Compiler> = found.iter().filter(|compiler| compiler.family == Family::Gcc).collect();
    assert!(!gcc.is_empty(), "{found:#?}");
    for compiler in &gcc {
        let ask = |option: &str| text(&run(&compiler.real, &[option], &[]).stdout).trim().to_owned();
        assert_eq!(compiler.version.as_ref().unwrap().text, ask("-dumpfullversion"), "{compiler:?}");
        if let Some(target) = &compiler.target {
            assert_eq!(*target, ask("-dumpmachine"), "{compiler:?}");
        }
        if compiler.language == Language::Cxx {
            let program = ask("-print-prog-name=cc1plus");
            assert_eq!(compiler.cc1plus, Some(Path::new(&program).is_absolute()), "{compiler:?}");
        }
    }
    for compiler in found.iter().filter(|compiler| compiler.family == Family::Clang) {
        let said = text(&run(&compiler.paths[0], &["--version"], &[]).stdout);
        let version = compiler.version.as_ref().unwrap();
        assert!(said.contains(&format!("clang version {}", version.text)), "{version} in {said}");
    }
}

/// The first program of a name in the folders of PATH is the one that a shell finds.
fn first_on_path() {
    let (_, programs) = live_programs();
    let names: BTreeSet<&str> = programs.iter().map(|program| program.name.as_str()).collect();
    for name in names {
        let ours = PATH.split(':').find_map(|folder| {
            let path = Path::new(folder).join(name);
            programs.iter().find(|program| *program.path == path && program.found_by_search())
        });
        let theirs = run(Path::new("/bin/sh"), &["-c", "command -v \"$0\"", name], &[]);
        let theirs = Some(text(&theirs.stdout).trim().to_owned()).filter(|path| !path.is_empty());
        assert_eq!(ours.map(|program| program.path.display().to_string()), theirs, "{name}");
    }
}

/// A rule about a variable that no snapshot holds would never fire.
fn variables() {
    let rules = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/rules/environment.toml")).unwrap();
    let names: Vec<&str> = rules.lines().filter_map(|line| line.trim().strip_prefix("{ name = \"")?.split('"').next()).collect();
    assert!(names.len() > 50, "{}", names.len());
    for name in names {
        assert!(env::row_of(name).is_some(), "{name}");
    }
}
