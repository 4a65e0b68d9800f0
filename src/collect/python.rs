//! Python environments: every interpreter that a search, a variable or an option leads to, and what is installed for it. Nothing is
//! imported and no Python is run.

pub mod dist;
mod find;
pub mod layout;
mod shim;
pub mod site;
mod strings;

use super::lists::left_out;
use super::{Lists, deepspeed, torch};
use crate::binary::elf::summarise;
use crate::facts::elf::ElfFacts;
use crate::facts::observed::Observed;
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::raw::HostPath;
use crate::host::Host;
use dist::Dist;
use find::Candidate;
use layout::Layout;
use shim::Behind;
use site::Site;
use std::path::Path;

/// The one interpreter that would run, with the versions of its torch and DeepSpeed.
pub fn for_lists(host: &dyn Host, chosen: Option<&Path>, lists: Lists, notes: &mut Vec<String>) -> Observed<Vec<Interpreter>> {
    let looked = |candidate: Candidate| match shim::follow(host, &candidate.path) {
        Behind::Program(executable) => {
            let layout = layout::look(host, &executable);
            Some(build(host, candidate, &executable, layout, Some(lists), notes))
        }
        Behind::Unknown(why) => Some(unknown(candidate, &why)),
        Behind::Nothing if candidate.named => nothing(host, &candidate, Some(lists), notes),
        Behind::Nothing => None,
    };
    match find::that_run(host, chosen).into_iter().find_map(looked) {
        Some(interpreter) => Observed::seen(vec![interpreter]),
        None => Observed::absent(["PATH"]),
    }
}

/// The environments, in the order in which they were found: the option, VIRTUAL_ENV, CONDA_PREFIX, what a search of PATH finds
/// (`python3`, else `python`), the rest of PATH, `.venv` in the current folder.
///
/// `chosen` is what `--python` says: a program, or the folder of an environment.
pub fn collect(host: &dyn Host, chosen: Option<&Path>, notes: &mut Vec<String>) -> Observed<Vec<Interpreter>> {
    let mut found: Vec<Interpreter> = Vec::new();
    let mut looked: Vec<String> = Vec::new();
    for candidate in find::candidates(host, chosen) {
        match shim::follow(host, &candidate.path) {
            Behind::Program(executable) => meet(host, &mut found, candidate, &executable, notes),
            Behind::Unknown(why) => found.push(unknown(candidate, &why)),
            Behind::Nothing if candidate.named => match nothing(host, &candidate, None, notes) {
                Some(interpreter) => found.push(interpreter),
                None => looked.push(candidate.path.display().to_string()),
            },
            Behind::Nothing => {}
        }
    }
    if found.is_empty() {
        looked.push("PATH".to_owned());
        return Observed::absent(looked);
    }
    Observed::seen(found)
}

/// Adds an environment, or one more way to it.
fn meet(host: &dyn Host, found: &mut Vec<Interpreter>, candidate: Candidate, executable: &Path, notes: &mut Vec<String>) {
    let layout = layout::look(host, executable);
    let real = |path: &Path| host.real_path(path).unwrap_or_else(|_| path.to_owned());
    // A virtual environment is its folder; any other installation is its program.
    let same = |known: &&mut Interpreter| {
        known.version.is_some() == layout.known()
            && known.kind == layout.kind
            && match layout.kind {
                EnvironmentKind::Venv => real(&known.prefix) == real(&layout.prefix),
                _ => *known.real == *layout.real,
            }
    };
    match found.iter_mut().find(same) {
        Some(known) => {
            known.sources.push(candidate.source);
            known.paths.push(candidate.path.into());
        }
        None => found.push(build(host, candidate, executable, layout, None, notes)),
    }
}

/// `lists`: of torch and DeepSpeed what an arch list needs, and of the interpreter what tells it from others.
fn build(
    host: &dyn Host,
    candidate: Candidate,
    executable: &Path,
    layout: Layout,
    lists: Option<Lists>,
    notes: &mut Vec<String>,
) -> Interpreter {
    let site = Site::build(host, &layout);
    let dists = dist::list(host, &site, |name| lists.is_none() || name == "deepspeed");
    let (torch, deepspeed) = if layout.series.is_some() {
        (torch::collect(host, &site, &dists, lists), deepspeed::collect(host, &site, &dists))
    } else {
        let why = format!("the version of `{}`, and so its package folder, is not known", executable.display());
        notes.push(why.clone());
        (Observed::failed(why.clone()), Observed::failed(why))
    };
    let found = Interpreter {
        path: executable.into(),
        paths: vec![candidate.path.into()],
        sources: vec![candidate.source],
        kind: layout.kind,
        free_threaded: layout.series.is_some_and(|series| series.free_threaded),
        site: site.folders.iter().map(|folder| HostPath::new(&folder.path)).collect(),
        packages: dists.into_iter().map(|dist| dist.package).collect(),
        torch,
        deepspeed,
        elf: left_out(),
        header: left_out(),
        ..Interpreter::default()
    };
    let found = if lists.is_none() { whole(host, &layout, found) } else { found };
    Interpreter {
        base_prefix: layout.base.map(|base| base.prefix.into()).unwrap_or_default(),
        prefix: layout.prefix.into(),
        real: layout.real.into(),
        ..found
    }
}

/// The facts of the installation itself.
fn whole(host: &dyn Host, layout: &Layout, found: Interpreter) -> Interpreter {
    let stdlib = layout.base.as_ref().and_then(|base| base.stdlib.as_ref());
    let has = |name: &str| stdlib.map(|stdlib| host.is_file(&stdlib.join(name)));
    Interpreter {
        elf: program(host, &layout.real),
        header: layout::header(host, layout),
        version: layout.version(host),
        // PEP 668: the mark counts for the base alone.
        externally_managed: layout.kind != EnvironmentKind::Venv && has("EXTERNALLY-MANAGED") == Some(true),
        // Debian keeps a stub of it where the rest is not installed.
        has_distutils: has("distutils/core.py"),
        ..found
    }
}

/// An interpreter of which only the way to it is known.
fn unknown(candidate: Candidate, why: &str) -> Interpreter {
    Interpreter {
        path: candidate.path.clone().into(),
        real: candidate.path.clone().into(),
        paths: vec![candidate.path.into()],
        sources: vec![candidate.source],
        kind: EnvironmentKind::Standalone,
        elf: Observed::failed(why),
        header: Observed::failed(why),
        torch: Observed::failed(why),
        deepspeed: Observed::failed(why),
        ..Interpreter::default()
    }
}

fn program(host: &dyn Host, real: &Path) -> Observed<ElfFacts> {
    match super::open(host, real).map_err(|e| e.to_string()).and_then(|file| summarise(&file).map_err(|e| e.to_string())) {
        Ok(facts) => Observed::seen(facts),
        Err(why) => Observed::failed(format!("`{}`: {why}", real.display())),
    }
}

/// Something names a program that is not there. A virtual environment whose Python was removed still has its packages.
fn nothing(host: &dyn Host, candidate: &Candidate, lists: Option<Lists>, notes: &mut Vec<String>) -> Option<Interpreter> {
    let dangling = host.read_link(&candidate.path).ok()?;
    notes.push(format!("`{}` ({}) leads to `{}`, which is not there", candidate.path.display(), candidate.source, dangling.display()));
    let layout = layout::look(host, &candidate.path);
    let candidate = Candidate { path: candidate.path.clone(), source: candidate.source.clone(), named: true };
    let path = candidate.path.clone();
    Some(build(host, candidate, &path, layout, lists, notes))
}

/// The package whose metadata lies nearest to a folder of packages: the one that was installed with it.
pub(super) fn dist_of<'d>(dists: &'d [Dist], name: &str, site: &Path, version: &str) -> Option<&'d Dist> {
    let mut own = dists.iter().filter(|dist| dist.package.name == name && *dist.package.site == *site);
    let first = own.clone().next();
    // An interrupted upgrade leaves two; the local part may be in one place only.
    let plain = |text: &str| text.split('+').next().unwrap_or_default().to_owned();
    own.find(|dist| plain(&dist.package.version.text) == plain(version)).or(first)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::facts::source::Source;
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::PathBuf;

    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn at(&self, name: &str) -> PathBuf {
            let path = self.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            path
        }

        fn put(&self, name: &str, text: &str) {
            fs::write(self.at(name), text).unwrap();
        }

        fn program(&self, name: &str) {
            self.put(name, "\x7fELF");
            fs::set_permissions(self.at(name), fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn link(&self, target: &str, name: &str) {
            symlink(target, self.at(name)).unwrap();
        }

        fn look(&self, env: &[(&str, &str)]) -> (Vec<Interpreter>, Vec<String>) {
            let env: Environment = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
            let host = Rooted::new(self.0.path(), env).unwrap();
            let mut notes = Vec::new();
            (collect(&host, None, &mut notes).value().cloned().unwrap_or_default(), notes)
        }
    }

    fn debian() -> Tree {
        let tree = Tree::new();
        tree.program("usr/bin/python3.11");
        tree.link("python3.11", "usr/bin/python3");
        tree.link("usr/bin", "bin");
        tree.link("usr/lib", "lib");
        tree.put("usr/lib/python3.11/os.py", "");
        tree.put("usr/lib/python3.11/EXTERNALLY-MANAGED", "");
        tree.put("usr/lib/python3/dist-packages/setuptools-66.1.1.egg-info", "");
        tree.put("usr/local/lib/python3.11/dist-packages/Foo_Bar-1.0.dist-info/METADATA", "");
        tree
    }

    fn sites(interpreter: &Interpreter) -> Vec<String> {
        interpreter.site.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_image_is_searched_by_place_without_a_path() {
        let tree = debian();
        tree.put("opt/venv/pyvenv.cfg", "home = /usr/bin\nversion = 3.11.2\n");
        tree.link("/usr/bin/python3", "opt/venv/bin/python3");
        tree.put("opt/venv/lib/python3.11/site-packages/a-1.dist-info/METADATA", "");
        let (found, _) = tree.look(&[]);
        assert_eq!(found.len(), 2, "{found:?}");
        let [venv, system] = &found[..] else { unreachable!() };
        assert_eq!((venv.kind, venv.externally_managed, &venv.sources[..]), (EnvironmentKind::Venv, false, &[Source::UsualPlace][..]));
        assert_eq!((&*venv.prefix, &*venv.base_prefix), (Path::new("/opt/venv"), Path::new("/usr")));
        assert_eq!(system.kind, EnvironmentKind::System);
        assert!(system.externally_managed && system.header.is_absent() && system.torch.is_absent());
        assert_eq!(system.version.as_ref().unwrap().text, "3.11");
        assert_eq!(sites(system), ["/usr/local/lib/python3.11/dist-packages", "/usr/lib/python3/dist-packages"]);
        assert_eq!(system.packages.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["foo-bar", "setuptools"]);
    }

    #[test]
    fn fedoras_folders() {
        let tree = Tree::new();
        tree.program("usr/bin/python3.12");
        tree.link("python3.12", "usr/bin/python3");
        tree.put("usr/lib64/python3.12/os.py", "");
        for site in ["usr/lib64", "usr/lib", "usr/local/lib", "usr/local/lib64"] {
            tree.put(&format!("{site}/python3.12/site-packages/x"), "");
        }
        let (found, _) = tree.look(&[("PATH", "/usr/bin")]);
        assert_eq!(found.len(), 1);
        let expected = ["/usr/local/lib64", "/usr/local/lib", "/usr/lib64", "/usr/lib"];
        assert_eq!(sites(&found[0]), expected.map(|lib| format!("{lib}/python3.12/site-packages")));
    }

    #[test]
    fn a_conda_environment_without_package_metadata() {
        let tree = Tree::new();
        tree.program("opt/conda/bin/python3.10");
        tree.link("python3.10", "opt/conda/bin/python");
        tree.put("opt/conda/conda-meta/python-3.10.14-h955ad1f_1.json", "{}");
        tree.put("opt/conda/lib/python3.10/os.py", "");
        let torch = "opt/conda/lib/python3.10/site-packages/torch";
        tree.put(&format!("{torch}/__init__.py"), "");
        tree.put(&format!("{torch}/version.py"), "__version__ = '2.3.1'\ncuda: Optional[str] = '12.1'\nhip: Optional[str] = None\n");
        let (found, _) = tree.look(&[("CONDA_PREFIX", "/opt/conda")]);
        let conda = &found[0];
        assert_eq!((conda.kind, conda.version.as_ref().unwrap().text.as_str()), (EnvironmentKind::Conda, "3.10.14"));
        let torch = conda.torch.value().unwrap();
        assert_eq!((torch.cuda.unwrap().to_string().as_str(), torch.nccl.as_ref(), torch.requires.len()), ("12.1", None, 0));
        assert!(torch.cxx11_abi.is_failed() && torch.arch_list.is_failed() && torch.broken.len() == 1, "{torch:?}");
    }

    #[test]
    fn a_torch_that_is_none_says_why() {
        let site = "usr/local/lib/python3.11/dist-packages";
        let why = |prepare: &dyn Fn(&Tree)| {
            let tree = debian();
            prepare(&tree);
            match &tree.look(&[("PATH", "/usr/bin")]).0[0].torch {
                Observed::Failed { why } => why.clone(),
                other => format!("{other:?}"),
            }
        };
        let package = |tree: &Tree| tree.put(&format!("{site}/torch/__init__.py"), "");
        assert!(why(&|tree| tree.put(&format!("{site}/torch.py"), "")).contains("hides"));
        assert!(why(&|tree| tree.put(&format!("{site}/torch/lib/x"), "")).contains("no `__init__.py`"));
        assert!(why(&package).contains("version.py"));
        for content in ["", "\u{0}\u{0}", "__version__ = 3\ncuda = None\n"] {
            let prepare = |tree: &Tree| {
                package(tree);
                tree.put(&format!("{site}/torch/version.py"), content);
            };
            assert!(why(&prepare).contains("`__version__`"), "{content:?}");
        }
        let folder = |tree: &Tree| {
            package(tree);
            tree.put(&format!("{site}/torch/version.py/x"), "");
        };
        assert!(why(&folder).contains("not a regular file"));
        let dangling = |tree: &Tree| {
            package(tree);
            tree.link("gone", &format!("{site}/torch/version.py"));
        };
        assert!(why(&dangling).contains("version.py"));
    }

    #[test]
    fn odd_trees_are_looked_at_to_the_end() {
        use std::os::unix::ffi::OsStrExt as _;
        let tree = debian();
        tree.link("loop", "loop/a");
        fs::remove_dir_all(tree.at("loop")).unwrap();
        tree.link("loop", "loop");
        tree.put("file/bin", "");
        tree.program("odd/python3");
        tree.put("odd/pyvenv.cfg/x", "");
        tree.program("cut/python");
        tree.put("cut/python", "\x7fE");
        let site = tree.at("usr/local/lib/python3.11/dist-packages/x.pth");
        fs::write(&site, b"/usr\xff\n../..\nimport __editable___gone_finder\n\0\n").unwrap();
        fs::create_dir(site.with_file_name("y.pth")).unwrap();
        fs::write(site.with_file_name(std::ffi::OsStr::from_bytes(b"\xffz-1.0.dist-info")), "").unwrap();
        symlink("self.dist-info", site.with_file_name("self.dist-info")).unwrap();
        let (found, notes) =
            tree.look(&[("PATH", "/loop:/file/bin:/odd:/cut::/usr/bin:/bin"), ("VIRTUAL_ENV", "/none"), ("PYTHONPATH", "/loop:/file/bin")]);
        let system = found.iter().find(|python| python.kind == EnvironmentKind::System).unwrap();
        assert_eq!(system.paths.len(), 3, "{:?}", system.paths);
        assert!(system.site.iter().any(|folder| **folder == *Path::new("/usr/local/lib")), "{:?}", system.site);
        let odd = found.iter().find(|python| *python.path == *Path::new("/odd/python3")).unwrap();
        assert!(odd.version.is_none() && odd.torch.is_failed(), "{odd:?}");
        assert!(
            found.iter().any(|python| matches!(&python.torch, Observed::Failed { why } if why.contains("`/cut/python` is no program")))
        );
        assert!(notes.iter().any(|note| note.contains("/odd/python3")), "{notes:?}");
    }

    #[test]
    fn no_python_is_absent() {
        let tree = Tree::new();
        let host = Rooted::new(tree.0.path(), Environment::new()).unwrap();
        assert!(collect(&host, Some(Path::new("/none/python")), &mut Vec::new()).is_absent());
    }
}
