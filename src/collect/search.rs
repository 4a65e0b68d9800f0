//! Where things are looked for: entries of list variables, environments of Python, usual folders. Shared by the topics.

use crate::facts::source::Source;
use crate::host::{Host, Kind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// A folder named by an entry of a list variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Counted from 1, as people count.
    pub index: usize,
    /// Absolute: a relative entry starts from the current folder, an empty one is the current folder.
    pub path: PathBuf,
}

/// The path from the root; `None` for a relative one where there is no current folder to start from.
pub fn absolute(host: &dyn Host, path: &Path) -> Option<PathBuf> {
    if path.is_absolute() { Some(tidy(path)) } else { host.cwd().map(|cwd| tidy(&cwd.join(path))) }
}

/// Without doubled and trailing slashes and `.`; `..` stays, since what is before it may be a link.
pub fn tidy(path: &Path) -> PathBuf {
    path.components().filter(|component| *component != Component::CurDir).collect()
}

/// The entries of a list variable in order. Entries that start from an unknown current folder are left out, their numbers stay.
pub fn entries(host: &dyn Host, name: &str) -> Vec<Entry> {
    let Some(value) = host.var(name).filter(|value| !value.is_empty()) else { return Vec::new() };
    value
        .as_bytes()
        .split(|b| *b == b':')
        .enumerate()
        .filter_map(|(at, entry)| Some(Entry { index: at + 1, path: absolute(host, Path::new(OsStr::from_bytes(entry)))? }))
        .collect()
}

/// The folder that a variable with one path names.
pub fn variable(host: &dyn Host, name: &str) -> Option<PathBuf> {
    let value = host.var(name).filter(|value| !value.is_empty())?;
    absolute(host, Path::new(value))
}

/// The prefixes of Python and conda environments: that of an interpreter that was asked for, what VIRTUAL_ENV and CONDA_PREFIX name, the
/// parents of `bin` folders on PATH, the versions behind a folder of shims on PATH, the current folder's `.venv`, and the system's. Each
/// once.
pub fn prefixes(host: &dyn Host, python: Option<&Path>) -> Vec<(PathBuf, Source)> {
    let mut found: Vec<(PathBuf, Source)> = Vec::new();
    let mut add = |path: PathBuf, source: Source| {
        // `/bin` is a link to `/usr/bin` wherever there is a Python.
        if path != Path::new("/") && !found.iter().any(|(known, _)| *known == path) {
            found.push((path, source));
        }
    };
    if let Some(prefix) = python.and_then(|python| absolute(host, python)).and_then(|path| Some(path.parent()?.parent()?.to_owned())) {
        add(prefix, Source::Option { name: "--python".to_owned() });
    }
    for name in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        if let Some(prefix) = variable(host, name) {
            add(prefix, Source::variable(name));
        }
    }
    for entry in entries(host, "PATH") {
        if let (Some(name), Some(prefix)) = (entry.path.file_name(), entry.path.parent())
            && name == "bin"
        {
            add(prefix.to_owned(), Source::entry("PATH", entry.index));
        }
        // pyenv: which version a shim starts is decided when it runs.
        if entry.path.ends_with("shims")
            && let Some(versions) = entry.path.parent().map(|root| root.join("versions"))
        {
            for version in host.list(&versions).unwrap_or_default() {
                add(versions.join(&version.name), Source::entry("PATH", entry.index));
            }
        }
    }
    if let Some(local) = host.cwd().map(|cwd| cwd.join(".venv")).filter(|path| host.is_folder(path)) {
        add(local, Source::UsualPlace);
    }
    for usual in ["/usr/local", "/usr"] {
        add(usual.into(), Source::UsualPlace);
    }
    found
}

/// The folders of installed Python packages below a prefix: `lib/python3.*/site-packages`, Debian's `dist-packages`.
pub fn sites_of(host: &dyn Host, prefix: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for lib in ["lib", "lib64"] {
        let lib = prefix.join(lib);
        // A `lib64` that leads to `lib` would give every folder twice.
        if lib.ends_with("lib64") && host.link_metadata(&lib).is_ok_and(|meta| meta.kind == Kind::Link) {
            continue;
        }
        let Ok(list) = host.list(&lib) else { continue };
        for entry in list.iter().filter(|entry| entry.name.as_bytes().starts_with(b"python3") && entry.kind != Kind::File) {
            for packages in ["site-packages", "dist-packages"] {
                let site = lib.join(&entry.name).join(packages);
                if host.is_folder(&site) {
                    found.push(site);
                }
            }
        }
    }
    found
}

/// [`sites_of`] every one of [`prefixes`] and of the user's own, and the folders of PYTHONPATH.
pub fn sites(host: &dyn Host, python: Option<&Path>) -> Vec<PathBuf> {
    let prefixes = prefixes(host, python).into_iter().map(|(prefix, _)| prefix);
    let user = variable(host, "PYTHONUSERBASE").or_else(|| Some(variable(host, "HOME")?.join(".local")));
    let below = prefixes.chain(user).flat_map(|prefix| sites_of(host, &prefix));
    let mut found: Vec<PathBuf> = Vec::new();
    for site in below.chain(entries(host, "PYTHONPATH").into_iter().map(|entry| entry.path)) {
        if !found.contains(&site) {
            found.push(site);
        }
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn entries_keep_their_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let env: Environment = [("PATH".into(), "/a:.:/b//c/./:".into())].into();
        let host = Rooted::new(dir.path(), env).unwrap();
        let found = entries(&host, "PATH");
        assert_eq!(found, [Entry { index: 1, path: "/a".into() }, Entry { index: 3, path: "/b/c".into() }]);
        assert_eq!(found[1].path.as_os_str(), "/b/c");
    }

    #[test]
    fn sites_of_every_environment_once() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        for site in [
            "opt/venv/lib/python3.11/site-packages",
            "usr/lib/python3/dist-packages",
            "opt/conda/lib/python3.12/site-packages",
            "home/me/.local/lib/python3.11/site-packages",
            "home/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages",
        ] {
            fs::create_dir_all(at(site)).unwrap();
        }
        symlink("lib", at("opt/venv/lib64")).unwrap();
        let env: Environment = [
            ("VIRTUAL_ENV".into(), "/opt/venv".into()),
            ("PATH".into(), "/opt/venv/bin:/opt/conda/bin:/usr/bin:/none/bin:/home/me/.pyenv/shims".into()),
            ("HOME".into(), "/home/me".into()),
            ("PYTHONPATH".into(), "/src".into()),
        ]
        .into();
        let host = Rooted::new(dir.path(), env).unwrap();
        assert_eq!(
            sites(&host, None),
            [
                Path::new("/opt/venv/lib/python3.11/site-packages"),
                Path::new("/opt/conda/lib/python3.12/site-packages"),
                Path::new("/usr/lib/python3/dist-packages"),
                Path::new("/home/me/.pyenv/versions/3.13.1/lib/python3.13/site-packages"),
                Path::new("/home/me/.local/lib/python3.11/site-packages"),
                Path::new("/src"),
            ]
        );
    }
}
