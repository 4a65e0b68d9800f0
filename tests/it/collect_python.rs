//! Python environments as collected, against what the interpreters themselves say: `sys`, `site`, `sysconfig`, `importlib.metadata` and
//! an imported torch.

use crate::util::{lab, trial_with};
use ds_doctor::collect::python::collect;
use ds_doctor::facts::observed::Observed;
use ds_doctor::facts::python::{EnvironmentKind, Interpreter};
use ds_doctor::facts::source::Source;
use ds_doctor::host::{Environment, Live};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

type Env<'e> = &'e [(&'e str, &'e str)];

/// What one interpreter says of itself. Works from Python 2.7 on.
const ASK: &str = r#"
import json, os, sys, sysconfig
std = [os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")]
def own(path):
    real = os.path.realpath(path)
    return not (real in std or os.path.dirname(real) in std and os.path.basename(real).startswith(("lib-", "plat-")))
seen, site = set(), []
for path in sys.path[1:]:
    if os.path.isdir(path) and own(path) and os.path.realpath(path) not in seen:
        seen.add(os.path.realpath(path))
        site.append(path)
packages = []
try:
    from importlib import metadata
    import re
    for dist in metadata.distributions(path=site):
        if dist.metadata and dist.metadata["Name"]:
            packages.append([re.sub(r"[-_.]+", "-", dist.metadata["Name"]).lower(), dist.version])
except ImportError:
    packages = None
print(json.dumps({
    "version": "%d.%d.%d" % sys.version_info[:3],
    "prefix": sys.prefix,
    "base": getattr(sys, "base_prefix", sys.prefix),
    "flags": getattr(sys, "abiflags", ""),
    "site": site,
    "header": os.path.join(sysconfig.get_path("include"), "Python.h"),
    "header_there": os.path.isfile(os.path.join(sysconfig.get_path("include"), "Python.h")),
    "managed": sys.prefix == getattr(sys, "base_prefix", sys.prefix)
        and os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")),
    "distutils": os.path.exists(os.path.join(sysconfig.get_path("stdlib"), "distutils", "core.py")),
    "packages": packages,
}))
"#;

fn python(program: &Path, env: Env, args: &[&str]) -> String {
    let output = Command::new(program).args(args).env_clear().envs(env.iter().copied()).current_dir("/").output().unwrap();
    assert!(output.status.success(), "{}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn environment(env: Env) -> Environment {
    env.iter().map(|(k, v)| (k.into(), v.into())).collect()
}

fn seen(found: Observed<Vec<Interpreter>>) -> Vec<Interpreter> {
    match found {
        Observed::Seen { value } => value,
        other => panic!("no interpreter: {other:?}"),
    }
}

fn look(program: &Path, env: Env) -> Interpreter {
    seen(collect(&Live::with_env(environment(env)), Some(program), &mut Vec::new())).remove(0)
}

/// Everything that can be asked must be the same.
fn compare(program: &Path, env: Env) -> Interpreter {
    let truth: Value = serde_json::from_str(&python(program, env, &["-c", ASK])).unwrap();
    let own = look(program, env);
    let name = program.display();
    let version = own.version.as_ref().map(|version| version.text.as_str()).unwrap_or_default();
    assert_eq!(version, truth["version"], "{name}");
    assert_eq!(own.prefix.to_str(), truth["prefix"].as_str(), "{name}");
    assert_eq!(own.base_prefix.to_str(), truth["base"].as_str(), "{name}");
    assert_eq!(own.free_threaded, truth["flags"].as_str().unwrap().contains('t'), "{name}");
    let site: Vec<&str> = own.site.iter().map(|path| path.to_str().unwrap()).collect();
    assert_eq!(serde_json::json!(site), truth["site"], "{name}");
    match &own.header {
        Observed::Seen { value } => {
            assert_eq!((value.to_str(), Some(true)), (truth["header"].as_str(), truth["header_there"].as_bool()), "{name}");
        }
        Observed::Absent { looked } => {
            assert_eq!(truth["header_there"], false, "{name}");
            assert!(looked.contains(&truth["header"].as_str().unwrap().to_owned()), "{name}: {looked:?}");
        }
        other => panic!("{name}: {other:?}"),
    }
    assert_eq!(serde_json::json!(own.externally_managed), truth["managed"], "{name}");
    assert_eq!(serde_json::json!(own.has_distutils), truth["distutils"], "{name}");
    if let Some(packages) = truth["packages"].as_array() {
        // Within one folder importlib has no order of its own.
        let mut theirs: Vec<(String, String)> = packages.iter().map(|p| (text(&p[0]), text(&p[1]))).collect();
        let mut ours: Vec<(String, String)> = own.packages.iter().map(|p| (p.name.clone(), p.version.text.clone())).collect();
        theirs.sort();
        ours.sort();
        assert_eq!(ours, theirs, "{name}");
    }
    own
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// The versions pyenv has installed here.
fn of_pyenv() -> Result<Vec<PathBuf>, String> {
    let root = std::env::var_os("PYENV_ROOT").ok_or("PYENV_ROOT is not set")?;
    let entries = fs::read_dir(Path::new(&root).join("versions")).map_err(|error| format!("no pyenv versions: {error}"))?;
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path().join("bin/python")).filter(|path| path.is_file()).collect();
    found.sort();
    if found.is_empty() { Err("pyenv has no version installed".to_owned()) } else { Ok(found) }
}

/// Every Python that is no virtual environment: pyenv's, and the one the lab was made with.
fn installed() -> Result<Vec<PathBuf>, String> {
    let own = lab("torch-venv")?.join("bin/python").canonicalize().map_err(|error| error.to_string())?;
    let mut found = of_pyenv().unwrap_or_default();
    if !found.iter().any(|path| path.canonicalize().is_ok_and(|real| real == own)) {
        found.push(own);
    }
    Ok(found)
}

/// The oldest and the newest that have `venv` and `importlib.metadata`.
fn two() -> Result<Vec<PathBuf>, String> {
    let modern = |path: &PathBuf| ["/2.", "/3.6.", "/3.7."].iter().all(|old| !path.to_string_lossy().contains(old));
    let modern: Vec<PathBuf> = installed()?.into_iter().filter(modern).collect();
    // By name 3.10 comes first.
    Ok(modern.first().into_iter().chain(modern.last().filter(|_| modern.len() > 1)).cloned().collect())
}

fn system() -> Result<PathBuf, String> {
    let path = PathBuf::from("/usr/bin/python3");
    if path.is_file() { Ok(path) } else { Err("no /usr/bin/python3".to_owned()) }
}

fn venv(base: &Path, folder: &Path, args: &[&str]) -> PathBuf {
    let mut all = vec!["-m", "venv", "--without-pip"];
    all.extend(args);
    all.push(folder.to_str().unwrap());
    python(base, &[], &all);
    folder.join("bin/python")
}

fn every_version(programs: Vec<PathBuf>) {
    let home = tempfile::tempdir().unwrap();
    for program in programs {
        let own = compare(&program, &[("HOME", home.path().to_str().unwrap())]);
        let kind = if program.starts_with("/usr/bin") { EnvironmentKind::System } else { EnvironmentKind::Standalone };
        assert_eq!(own.kind, kind);
    }
}

fn virtual_environments(programs: Vec<PathBuf>) {
    for base in programs.iter().filter(|path| !path.to_string_lossy().contains("/2.")) {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let program = venv(base, &dir.join("plain"), &[]);
        let own = compare(&program, &[]);
        assert_eq!(own.kind, EnvironmentKind::Venv);
        assert_eq!(own.site.len(), 1);
        compare(&venv(base, &dir.join("open"), &["--system-site-packages"]), &[("HOME", "/none")]);
        compare(&venv(base, &dir.join("copied"), &["--copies"]), &[]);
        // A link to its program is not the environment: pyvenv.cfg is not beside it.
        symlink(&program, dir.join("link")).unwrap();
        assert_ne!(compare(&dir.join("link"), &[("HOME", "/none")]).kind, EnvironmentKind::Venv);
    }
}

/// PYTHONPATH, the user's folder and path files, all at once.
fn folders_that_variables_add(base: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let at = |name: &str| {
        fs::create_dir_all(dir.join(name)).unwrap();
        dir.join(name).to_str().unwrap().to_owned()
    };
    let program = venv(base, &dir.join("venv"), &["--system-site-packages"]);
    let site = fs::canonicalize(dir.join("venv/lib")).unwrap();
    let site = fs::read_dir(site).unwrap().next().unwrap().unwrap().path().join("site-packages");
    let user = format!("home/.local/lib/{}/site-packages", site.parent().unwrap().file_name().unwrap().to_str().unwrap());
    at(&user);
    at("first/sub");
    for name in ["checkout", "linked", "twice", "user-added"] {
        at(name);
    }
    let lines = format!(
        "# a comment\n\n{}\n../../../../linked\nimport sys\nmissing\n{}\n{}  \n",
        dir.join("checkout").display(),
        dir.join("twice").display(),
        dir.join("twice").display()
    );
    fs::write(site.join("a.pth"), lines).unwrap();
    fs::write(site.join("b.pth"), "\u{feff}").unwrap();
    fs::write(dir.join(&user).join("u.pth"), dir.join("user-added").to_str().unwrap()).unwrap();
    for (folder, name) in
        [(dir.join("first"), "deepspeed-0.1.dist-info"), (site, "deepspeed-0.2.dist-info"), (dir.join("checkout"), "deepspeed.egg-info")]
    {
        fs::create_dir_all(folder.join(name)).unwrap();
        for file in ["METADATA", "PKG-INFO"] {
            let version = name.strip_prefix("deepspeed-").and_then(|rest| rest.strip_suffix(".dist-info")).unwrap_or("0.3");
            fs::write(folder.join(name).join(file), format!("Metadata-Version: 2.1\nName: deepspeed\nVersion: {version}\n\ntext")).unwrap();
        }
    }
    let path = format!("{0}/first:{0}/none:{0}/first/sub/../../first:{0}/first/sub", dir.display());
    let home = dir.join("home");
    let home = home.to_str().unwrap();
    let own = compare(&program, &[("HOME", home), ("PYTHONPATH", &path)]);
    let copies: Vec<&str> = own.packages.iter().filter(|p| p.name == "deepspeed").map(|p| p.version.text.as_str()).collect();
    assert_eq!(copies, ["0.1", "0.2", "0.3"]);
    let without = compare(&program, &[("HOME", home), ("PYTHONNOUSERSITE", "1")]);
    assert!(!without.site.iter().any(|path| path.to_string().contains(".local")));
    compare(&program, &[("HOME", "/none"), ("PYTHONUSERBASE", dir.join("home/.local").to_str().unwrap())]);
}

/// An editable install whose import hook setuptools itself wrote.
fn editable_install(lab: PathBuf) {
    let base = &lab.join("bin/python").canonicalize().unwrap();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let program = venv(base, &dir.join("venv"), &[]);
    let site = look(&program, &[]).site[0].clone();
    let source = dir.join("src/deepspeed");
    fs::create_dir_all(source.join("ops")).unwrap();
    fs::create_dir_all(dir.join("src/op_builder")).unwrap();
    for (name, content) in [("deepspeed/__init__.py", ""), ("setup.py", ""), ("version.txt", "0.16.9\n")] {
        fs::write(dir.join("src").join(name), content).unwrap();
    }
    let write = format!(
        "from setuptools.command.editable_wheel import _finder_template as t; print(t('x', {{'deepspeed': {:?}}}, {{}}))",
        source.to_str().unwrap()
    );
    fs::write(site.join("__editable___deepspeed_0_16_9_finder.py"), python(&lab.join("bin/python"), &[], &["-c", &write])).unwrap();
    let line = "import __editable___deepspeed_0_16_9_finder; __editable___deepspeed_0_16_9_finder.install()";
    fs::write(site.join("__editable__.deepspeed-0.16.9.pth"), line).unwrap();
    let own = look(&program, &[]);
    let found = python(&program, &[], &["-c", "import deepspeed, os; print(os.path.dirname(deepspeed.__file__))"]);
    let deepspeed = own.deepspeed.value().unwrap();
    assert_eq!(deepspeed.path.to_str(), Some(found.trim()));
    assert_eq!((deepspeed.version.text.as_str(), deepspeed.editable, deepspeed.built.is_absent()), ("0.16.9", true, true));
    assert!(own.torch.is_absent());
}

fn shims(programs: Vec<PathBuf>) {
    let root = PathBuf::from(std::env::var_os("PYENV_ROOT").unwrap());
    let shims = root.join("shims");
    let path = format!("{}:/usr/bin:/bin", shims.display());
    let dir = tempfile::tempdir().unwrap();
    let choices = programs.iter().map(|path| path.parent().unwrap().parent().unwrap().file_name().unwrap().to_str().unwrap());
    for choice in choices.filter(|name| name.starts_with('3')).chain(["3.11", "3.9:3.8", "system", "nonsense", "python-3.12"]) {
        let env = [
            ("PATH", path.as_str()),
            ("PYENV_VERSION", choice),
            ("PYENV_ROOT", root.to_str().unwrap()),
            ("HOME", dir.path().to_str().unwrap()),
        ];
        let all = seen(collect(&Live::with_env(environment(&env)), None, &mut Vec::new()));
        // The shim itself is the judge: `pyenv which` does not see `python-3.12` as `pyenv exec` does.
        let truth = python(&shims.join("python3"), &env, &["-c", "import sys; print(sys.executable)"]);
        assert_eq!(all[0].path.to_str(), Some(truth.trim()), "{choice}");
        assert_eq!(*all[0].paths[0], *shims.join("python3"), "{choice}");
        assert_eq!(all[0].sources[0], Source::entry("PATH", 1), "{choice}");
    }
}

/// Every way to one environment is told once, and a search of PATH comes before the rest of it.
fn ways(base: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    venv(base, &dir.join("venv"), &[]);
    fs::create_dir(dir.join("only-python")).unwrap();
    symlink(base, dir.join("only-python/python")).unwrap();
    let venv = dir.join("venv");
    let path = format!("{0}/only-python:{0}/venv/bin", dir.display());
    let env = [("PATH", path.as_str()), ("VIRTUAL_ENV", venv.to_str().unwrap()), ("HOME", "/none")];
    let all = seen(collect(&Live::with_env(environment(&env)), None, &mut Vec::new()));
    assert_eq!(all.len(), 2, "{all:#?}");
    let sources: Vec<String> = all[0].sources.iter().map(ToString::to_string).collect();
    assert_eq!(sources, ["VIRTUAL_ENV", "2nd entry of PATH", "2nd entry of PATH"]);
    assert_eq!(all[0].paths.len(), 3);
    assert_eq!(*all[0].paths[1], *venv.join("bin/python3"));
    assert_eq!(all[1].sources, [Source::entry("PATH", 1)]);
    // The Python it was made with goes away.
    fs::remove_file(venv.join("bin/python")).unwrap();
    fs::remove_file(venv.join("bin/python3")).unwrap();
    symlink("/none/bin/python3.11", venv.join("bin/python3")).unwrap();
    let mut notes = Vec::new();
    let all = seen(collect(&Live::with_env(environment(&env)), None, &mut notes));
    assert_eq!((all[0].kind, &*all[0].prefix), (EnvironmentKind::Venv, venv.as_path()));
    assert!(all[0].header.is_failed() && all[0].site.len() == 1, "{:?}", all[0]);
    assert!(notes[0].contains("/none/bin/python3.11"), "{notes:?}");
}

/// torch as read against torch as imported.
fn torch(folder: PathBuf) {
    const IMPORT: &str = "import torch, json, os; print(json.dumps([torch.__version__, torch.version.cuda, torch.version.hip, \
        torch._C._cuda_getArchFlags(), torch._C._GLIBCXX_USE_CXX11_ABI, torch.version.git_version, os.path.dirname(torch.__file__)]))";
    let program = folder.join("bin/python");
    let own = compare(&program, &[]);
    let truth: Value = serde_json::from_str(&python(&program, &[("PATH", "/usr/bin")], &["-c", IMPORT])).unwrap();
    let torch = own.torch.value().unwrap();
    assert_eq!(torch.version.text, truth[0]);
    assert_eq!(serde_json::json!(torch.cuda), truth[1]);
    assert_eq!(serde_json::json!(torch.hip), truth[2]);
    assert_eq!(torch.arch_list.value().unwrap().join(" "), truth[3]);
    assert_eq!(serde_json::json!(torch.cxx11_abi.value()), truth[4]);
    assert_eq!(serde_json::json!(torch.git_version), truth[5]);
    assert_eq!(torch.path.to_str(), truth[6].as_str());
    assert_eq!(torch.cudart, torch.cuda.map(|cuda| format!("libcudart.so.{}", cuda.major)));
    for name in ["libtorch_cuda.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libc10_cuda.so"] {
        assert!(torch.libs.contains_key(name), "{name}");
    }
    assert!(torch.broken.is_empty(), "{:?}", torch.broken);
    // The requirements by importlib's reading.
    let ask = "import importlib.metadata as m, json; print(json.dumps([r for r in m.requires('torch') if 'extra' not in r]))";
    let requires: Vec<String> = serde_json::from_str(&python(&program, &[], &["-c", ask])).unwrap();
    for (name, specifier) in &torch.requires {
        assert!(requires.iter().any(|line| line.starts_with(name.as_str()) && line.contains(specifier)), "{name}{specifier}: {requires:?}");
    }
    let (nccl, version) = torch.nccl.as_ref().unwrap();
    assert_eq!(own.package(nccl).map(|package| &package.version), Some(version));
    assert!(torch.requires.iter().any(|(name, _)| name == "triton"));
    let installed = torch.installed.unwrap();
    assert!((1_600_000_000..4_000_000_000).contains(&installed), "{installed}");
}

/// The installed-ops file by Python's own reading.
fn deepspeed(folder: PathBuf) {
    let program = folder.join("bin/python");
    let own = look(&program, &[]);
    let deepspeed = own.deepspeed.value().unwrap();
    let ask = format!(
        "import json; g = {{}}; exec(open({:?}).read(), g); print(json.dumps([g['version'], {{k: bool(v) for k, v in \
         g['installed_ops'].items()}}, g['accelerator_name'], g['torch_info']['version'], g['torch_info']['cuda_version']]))",
        deepspeed.path.join("git_version_info_installed.py").to_str().unwrap()
    );
    let truth: Value = serde_json::from_str(&python(&program, &[], &["-c", &ask])).unwrap();
    let built = deepspeed.built.value().unwrap();
    assert_eq!(serde_json::json!([deepspeed.version, built.ops, built.accelerator, built.torch, built.cuda]), truth);
    assert!(!deepspeed.editable);
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with("collect_python::every_version_says_the_same", installed(), every_version),
        trial_with("collect_python::the_systems_python_says_the_same", system(), |program| {
            assert_eq!(compare(&program, &[("HOME", "/none")]).kind, EnvironmentKind::System);
            assert_eq!(compare(Path::new("/bin/python3"), &[("HOME", "/none")]).kind, EnvironmentKind::System);
        }),
        trial_with("collect_python::the_systems_virtual_environment_says_the_same", system(), |base| {
            let dir = tempfile::tempdir().unwrap();
            compare(&venv(&base, &dir.path().canonicalize().unwrap().join("v"), &["--system-site-packages"]), &[("HOME", "/none")]);
        }),
        trial_with("collect_python::virtual_environments_say_the_same", installed(), virtual_environments),
        trial_with("collect_python::variables_and_path_files_add_the_same_folders", two(), |bases| {
            bases.iter().for_each(|base| folders_that_variables_add(base));
        }),
        trial_with("collect_python::an_editable_install_leads_to_its_source", lab("torch-venv"), editable_install),
        trial_with("collect_python::every_way_to_an_environment_is_told_once", two(), |bases| bases.iter().for_each(|base| ways(base))),
        // Held by a lane of its own where there is no pyenv.
        trial_with("collect_python::shims_lead_where_pyenv_leads", of_pyenv(), shims),
        trial_with("collect_python::torch_is_read_as_it_is_imported", lab("torch-venv"), torch),
        trial_with("collect_python::deepspeed_is_read_as_python_reads_it", lab("torch-venv"), deepspeed),
    ]
}
