//! nvcc.profile: the file beside nvcc that says where it finds everything else.
//!
//! nvcc sets `_HERE_` to the folder of the name it was started by, links not followed, and reads the profile there: a link to nvcc alone
//! has no profile, and then only PATH is searched for its programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a profile makes nvcc search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Folders put in front of PATH.
    pub path: Vec<PathBuf>,
    /// The only folder for `cicc`, where it is set (13.0 and later).
    pub cicc: Option<PathBuf>,
    /// `-I` and `-isystem`.
    pub includes: Vec<PathBuf>,
    /// `-L`.
    pub libraries: Vec<PathBuf>,
    pub libdevice: Option<PathBuf>,
}

/// Reads a profile. `here` is nvcc's folder; `target` is `targets/x86_64-linux` where that folder is beside `bin`, else empty.
pub fn parse(text: &str, here: &Path, target: &str) -> Profile {
    let mut values: BTreeMap<String, String> = BTreeMap::new();
    let here = here.to_string_lossy();
    let size = if target.is_empty() { "64" } else { "" };
    for (name, value) in [
        ("_HERE_", &*here),
        ("_THERE_", &here),
        ("_SPACE_", " "),
        ("_TARGET_DIR_", target),
        ("_TARGET_SIZE_", size),
        ("_NVVM_BRANCH_", "nvvm"),
    ] {
        values.insert(name.to_owned(), value.to_owned());
    }
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let Some((left, value)) = line.split_once('=') else { continue };
        // `=+` puts behind, `+=` in front, as the comment in Debian's profile says and `--dryrun` shows.
        let (left, value, how) = match (left.strip_suffix('+'), left.strip_suffix('?'), value.strip_prefix('+')) {
            (Some(left), ..) => (left, value, How::Front),
            (_, Some(left), _) => (left, value, How::IfUnset),
            (.., Some(value)) => (left, value, How::Behind),
            _ => (left, value, How::Set),
        };
        let (name, value) = (left.trim(), expand(value.trim(), &values));
        let old = values.get(name);
        let new = match (how, old) {
            (How::Set, _) | (_, None) => value,
            (How::IfUnset, Some(_)) => continue,
            (How::Front, Some(old)) => format!("{value}{old}"),
            (How::Behind, Some(old)) => format!("{old}{value}"),
        };
        values.insert(name.to_owned(), new);
    }
    let of = |name: &str| values.get(name).map(String::as_str).unwrap_or_default();
    let folder = |name: &str| Some(of(name)).filter(|value| !value.is_empty()).map(PathBuf::from);
    Profile {
        path: of("PATH").split(':').filter(|entry| !entry.is_empty()).map(PathBuf::from).collect(),
        cicc: folder("CICC_PATH"),
        includes: flags(&format!("{} {}", of("INCLUDES"), of("SYSTEM_INCLUDES")), &["-I", "-isystem"]),
        libraries: flags(of("LIBRARIES"), &["-L"]),
        libdevice: folder("NVVMIR_LIBRARY_DIR"),
    }
}

enum How {
    Set,
    IfUnset,
    Front,
    Behind,
}

/// `$(NAME)` replaced; a name that is not set gives nothing.
fn expand(text: &str, values: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("$(") {
        let Some((name, tail)) = after.split_once(')') else { break };
        out.push_str(before);
        out.push_str(values.get(name).map(String::as_str).unwrap_or_default());
        rest = tail;
    }
    out.push_str(rest);
    out
}

/// The values of flags, joined (`-Ifolder`) or apart (`-isystem folder`).
fn flags(text: &str, names: &[&str]) -> Vec<PathBuf> {
    let words = shlex::split(text).unwrap_or_else(|| text.split_whitespace().map(str::to_owned).collect());
    let mut found = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        if let Some(joined) = names.iter().find_map(|name| word.strip_prefix(name)) {
            let value = if joined.is_empty() { words.next() } else { Some(joined.to_owned()) };
            found.extend(value.map(PathBuf::from));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In the form of NVIDIA's own, 13.0.
    const NVIDIA: &str = r#"
TOP              = $(_HERE_)/..

CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice

PATH            += $(CICC_PATH):$(_HERE_):
INCLUDES        +=  "-I$(TOP)/$(_TARGET_DIR_)/include" $(_SPACE_)
SYSTEM_INCLUDES +=  "-isystem" "$(TOP)/$(_TARGET_DIR_)/include/cccl" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs" "-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)"
"#;

    fn paths(list: &[&str]) -> Vec<PathBuf> {
        list.iter().map(PathBuf::from).collect()
    }

    #[test]
    fn what_nvcc_dryrun_shows() {
        let profile = parse(NVIDIA, Path::new("/c/bin"), "");
        assert_eq!(profile.path, paths(&["/c/bin/../nvvm/bin", "/c/bin"]));
        assert_eq!(profile.cicc, Some("/c/bin/../nvvm/bin".into()));
        assert_eq!(profile.includes, paths(&["/c/bin/..//include", "/c/bin/..//include/cccl"]));
        assert_eq!(profile.libraries, paths(&["/c/bin/..//lib64/stubs", "/c/bin/..//lib64"]));
        assert_eq!(profile.libdevice, Some("/c/bin/../nvvm/libdevice".into()));
        let profile = parse(NVIDIA, Path::new("/my c/bin"), "targets/x86_64-linux");
        assert_eq!(profile.includes.first(), Some(&"/my c/bin/../targets/x86_64-linux/include".into()));
        assert_eq!(profile.libraries.last(), Some(&"/my c/bin/../targets/x86_64-linux/lib".into()));
    }

    #[test]
    fn order_and_conditions() {
        let text = "A = 1\nA ?= 2\nB ?= 3\nPATH += /x:\nPATH += /y:\nPATH =+ /z:$(A)$(B)$(none)\n# PATH = no\nbroken\n= x\nC = $(A\n";
        assert_eq!(parse(text, Path::new("/h"), "").path, paths(&["/y", "/x", "/z", "13"]));
        assert_eq!(parse("", Path::new("/h"), ""), Profile::default());
    }
}
