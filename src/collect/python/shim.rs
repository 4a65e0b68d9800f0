//! What a `python3` that is found starts: the program itself, or what a pyenv shim or a plain `exec` script leads to. Nothing is run.

use crate::collect::{place, search};
use crate::host::{Host, Kind};
use std::path::{Path, PathBuf};

/// What is behind a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Behind {
    /// A search passes over it.
    Nothing,
    /// The program as it would see itself in `sys.executable`: links not resolved.
    Program(PathBuf),
    /// It is taken, and what it starts cannot be told.
    Unknown(String),
}

/// Scripts that start scripts: two are usual (a shim that leads to the system's), more is a circle.
const LONGEST_CHAIN: usize = 4;
/// A shim has 300 bytes; what is longer is a program of its own.
const SCRIPT_CAP: u64 = 16 << 10;

pub fn follow(host: &dyn Host, path: &Path) -> Behind {
    step(host, path, LONGEST_CHAIN)
}

fn step(host: &dyn Host, path: &Path, left: usize) -> Behind {
    if left == 0 {
        return Behind::Unknown(format!("`{}` leads round in a circle of scripts", path.display()));
    }
    match host.metadata(path) {
        Ok(meta) if meta.executable() => {}
        _ => return Behind::Nothing,
    }
    let mut start = [0; 4];
    let read = host.open(path).and_then(|(file, _)| std::os::unix::fs::FileExt::read_at(&file, &mut start, 0));
    match read {
        Err(error) => Behind::Unknown(format!("`{}` cannot be read: {error}", path.display())),
        Ok(0) => Behind::Unknown(format!("`{}` is an empty file", path.display())),
        Ok(4) if &start == b"\x7fELF" => program(host, path),
        Ok(2..) if start.starts_with(b"#!") => match host.read(path, SCRIPT_CAP) {
            Ok(bytes) => script(host, path, &String::from_utf8_lossy(&bytes), left),
            Err(error) => Behind::Unknown(format!("`{}` cannot be read: {error}", path.display())),
        },
        Ok(_) => Behind::Unknown(format!("`{}` is no program", path.display())),
    }
}

/// Version managers link `python3` to their own program (mise, rye), which decides when it runs.
fn program(host: &dyn Host, path: &Path) -> Behind {
    let Ok(real) = host.real_path(path) else { return Behind::Program(path.to_owned()) };
    let name = real.file_name().map(|name| name.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    if name.contains("py") {
        Behind::Program(path.to_owned())
    } else {
        Behind::Unknown(format!("`{}` leads to `{}`, which decides when it runs which Python it starts", path.display(), real.display()))
    }
}

fn script(host: &dyn Host, path: &Path, text: &str, left: usize) -> Behind {
    let exec = text.lines().map(str::trim_start).find(|line| line.starts_with("exec "));
    let words = exec.and_then(shlex::split).unwrap_or_default();
    let Some(program) = words.get(1).map(Path::new) else {
        return Behind::Unknown(format!("`{}` is a script; what it starts is decided when it runs", path.display()));
    };
    let name = program.file_name().unwrap_or_default();
    if name == "pyenv" && words.get(2).is_some_and(|word| word == "exec") {
        return match pyenv(host, path, text) {
            Ok(found) => step(host, &found, left - 1),
            Err(why) => Behind::Unknown(why),
        };
    }
    if program.is_absolute() && name.to_string_lossy().contains("python") {
        return match step(host, program, left - 1) {
            Behind::Nothing => Behind::Unknown(format!("`{}` starts `{}`, which is not there", path.display(), program.display())),
            behind => behind,
        };
    }
    Behind::Unknown(format!("`{}` is a script; what it starts is decided when it runs", path.display()))
}

/// The program behind a pyenv shim. Source: `pyenv-which`, `pyenv-version-name`, `pyenv-version-file` and `pyenv-latest` of pyenv 2.6.
fn pyenv(host: &dyn Host, shim: &Path, text: &str) -> Result<PathBuf, String> {
    let stated = text.lines().find_map(|line| shlex::split(line.trim().strip_prefix("export PYENV_ROOT=")?)?.into_iter().next());
    let root = stated
        .map(PathBuf::from)
        .or_else(|| host.var("PYENV_ROOT").filter(|root| !root.is_empty()).map(PathBuf::from))
        .or_else(|| place::home(host).map(|home| home.join(".pyenv")))
        .ok_or_else(|| format!("`{}` is a pyenv shim and PYENV_ROOT is not known", shim.display()))?;
    let command = shim.file_name().unwrap_or_default();
    let (versions, from) = wanted(host, &root);
    let mut missing = Vec::new();
    for version in versions.iter().map(String::as_str).chain(["system"]) {
        if version == "system" {
            let shims = root.join("shims");
            let found = search::entries(host, "PATH").into_iter().map(|entry| entry.path).filter(|folder| *folder != shims);
            let mut found = found.map(|folder| folder.join(command)).filter(|path| host.metadata(path).is_ok_and(|meta| meta.executable()));
            if let Some(found) = found.next() {
                return Ok(found);
            }
            continue;
        }
        let Some(folder) = installed(host, &root, version) else {
            missing.push(version);
            continue;
        };
        let found = folder.join("bin").join(command);
        if host.metadata(&found).is_ok_and(|meta| meta.executable()) {
            return Ok(found);
        }
    }
    let name = shim.display();
    Err(match missing.first() {
        Some(version) => format!("`{name}` is a pyenv shim and version `{version}`, which {from} names, is not installed"),
        None => format!("`{name}` is a pyenv shim and no version that {from} names has this program"),
    })
}

/// The versions that are set, and by what.
fn wanted(host: &dyn Host, root: &Path) -> (Vec<String>, String) {
    if let Some(value) = host.var("PYENV_VERSION").filter(|value| !value.is_empty()) {
        return (value.to_string_lossy().split(':').map(str::to_owned).collect(), "PYENV_VERSION".to_owned());
    }
    let start = host.var("PYENV_DIR").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let local = [start, host.cwd()].into_iter().flatten().find_map(|folder| {
        let folder = search::absolute(host, &folder)?;
        folder.ancestors().map(|above| above.join(".python-version")).find(|file| host.is_file(file))
    });
    let file = local.unwrap_or_else(|| root.join("version"));
    let text = host.read_text(&file).unwrap_or_default();
    let words = text.lines().filter_map(|line| line.split_whitespace().next()).filter(|word| !word.starts_with('#'));
    // pyenv refuses names that would leave its folder.
    let versions: Vec<String> = words.filter(|word| *word != ".." && !word.contains('/')).map(str::to_owned).collect();
    (versions, format!("`{}`", file.display()))
}

/// The folder of a version, which may be named by its beginning (`3.11`) or with `python-` in front.
fn installed(host: &dyn Host, root: &Path, version: &str) -> Option<PathBuf> {
    let versions = root.join("versions");
    let plain = version.strip_prefix("python-").unwrap_or(version);
    for name in [version, plain] {
        let folder = versions.join(name);
        if !name.is_empty() && host.is_folder(&folder) {
            return Some(folder);
        }
    }
    let entries = host.list(&versions).ok()?;
    // Links are virtual environments, which are not chosen by their beginning.
    let names: Vec<&str> = entries.iter().filter(|e| e.kind == Kind::Folder).filter_map(|e| e.name.to_str()).collect();
    latest(&names, version).or_else(|| latest(&names, plain)).map(|name| versions.join(name))
}

/// The newest final release that begins with `prefix` at a `.` or `-`.
fn latest<'n>(names: &[&'n str], prefix: &str) -> Option<&'n str> {
    let (prefix, threaded) = match prefix.strip_suffix('t') {
        Some(number) if number.ends_with(|c: char| c.is_ascii_digit()) => (number, true),
        _ => (prefix, false),
    };
    let fits = |name: &&&str| {
        let Some(rest) = name.strip_prefix(prefix).filter(|rest| rest.starts_with(['.', '-'])) else { return false };
        let digits = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        let early = digits.len() < rest.len() && digits.ends_with(['a', 'b', 'c']);
        let is_threaded = rest.strip_suffix('t').is_some_and(|r| r.ends_with(|c: char| c.is_ascii_digit()));
        !early && !rest.ends_with("-dev") && !rest.ends_with("-src") && !rest.ends_with("-latest") && is_threaded == threaded
    };
    let numbers = |name: &str| -> Vec<u32> { name.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect() };
    names.iter().filter(fits).max_by_key(|name| numbers(name)).copied()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    const SHIM: &str = "#!/usr/bin/env bash\nset -e\nprogram=\"${0##*/}\"\nexport PYENV_ROOT=\"/py\"\nexec \"/py/libexec/pyenv\" exec \"$program\" \"$@\"\n";

    fn put(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn tree(env: &[(&str, &str)]) -> (tempfile::TempDir, Rooted) {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "py/shims/python3", SHIM);
        for name in ["3.11.7", "3.11.10", "3.12.1", "3.12.0rc3"] {
            put(dir.path(), &format!("py/versions/{name}/bin/python3"), "\x7fELF");
        }
        put(dir.path(), "usr/bin/python3", "\x7fELF");
        let env: Environment = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        let host = Rooted::new(dir.path(), env).unwrap();
        (dir, host)
    }

    fn shim(env: &[(&str, &str)], version_file: Option<&str>) -> Behind {
        let (dir, host) = tree(env);
        if let Some(text) = version_file {
            put(dir.path(), "py/version", text);
        }
        follow(&host, Path::new("/py/shims/python3"))
    }

    #[test]
    fn pyenv_versions_in_its_own_order() {
        let program = |path: &str| Behind::Program(path.into());
        assert_eq!(shim(&[("PYENV_VERSION", "3.12.1")], Some("3.11.7")), program("/py/versions/3.12.1/bin/python3"));
        assert_eq!(shim(&[], Some("# none\n3.11\n3.12.1\n")), program("/py/versions/3.11.10/bin/python3"));
        assert_eq!(shim(&[], Some("python-3.12\r\n")), program("/py/versions/3.12.1/bin/python3"));
        assert_eq!(shim(&[("PATH", "/py/shims:/usr/bin")], None), program("/usr/bin/python3"));
        assert_eq!(shim(&[("PATH", "/py/shims:/usr/bin")], Some("3.9.1")), program("/usr/bin/python3"));
        let Behind::Unknown(why) = shim(&[("PATH", "/py/shims")], Some("3.9.1")) else { panic!("should not be found") };
        assert!(why.contains("`3.9.1`") && why.contains("`/py/version`"), "{why}");
    }

    #[test]
    fn other_scripts() {
        let (dir, host) = tree(&[]);
        put(dir.path(), "w/a", "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n");
        put(dir.path(), "w/b", "#!/bin/sh\nexec asdf exec python3 \"$@\"\n");
        put(dir.path(), "w/c", "#!/bin/sh\nexec /w/pythonc\n");
        put(dir.path(), "w/pythonc", "#!/bin/sh\nexec /w/pythonc\n");
        put(dir.path(), "w/empty", "");
        put(dir.path(), "w/text", "text");
        put(dir.path(), "w/mise", "\x7fELF");
        symlink("mise", dir.path().join("w/python3")).unwrap();
        symlink("nothing", dir.path().join("w/dangling")).unwrap();
        assert_eq!(follow(&host, Path::new("/w/a")), Behind::Program("/usr/bin/python3".into()));
        for unknown in ["b", "c", "empty", "text", "python3"] {
            assert!(matches!(follow(&host, &Path::new("/w").join(unknown)), Behind::Unknown(_)), "{unknown}");
        }
        for nothing in ["dangling", "none", "."] {
            assert_eq!(follow(&host, &Path::new("/w").join(nothing)), Behind::Nothing, "{nothing}");
        }
    }
}
