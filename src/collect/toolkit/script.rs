//! What a shell script in nvcc's place starts.

use std::collections::BTreeMap;
use std::path::Path;

/// What the script starts, as its text says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// `ccache`, `sccache` or `distcc` where the script goes through one.
    pub through: Option<String>,
    /// A path, or a name to be looked up on PATH.
    pub program: String,
}

/// Programs that run the rest of their command line.
const CACHES: [&str; 3] = ["ccache", "distcc", "sccache"];
const PREFIXES: [&str; 5] = ["command", "env", "exec", "nice", "time"];

/// The nvcc that the script starts. Reads plain commands, variables set in the script or in the environment, and the usual ways to write
/// the script's own folder; for anything cleverer the answer is none. `here` is the script's folder, `real` that of the file behind links.
pub fn starts(text: &str, here: &Path, real: &Path, variable: &dyn Fn(&str) -> Option<String>) -> Option<Start> {
    let shell = |line: &str| line.split([' ', '\t']).any(|word| word.ends_with("sh"));
    if text.lines().next().is_some_and(|line| line.starts_with("#!") && !shell(line)) {
        return None;
    }
    let text = own_folder(text, here, real);
    let mut set: BTreeMap<String, String> = BTreeMap::new();
    let mut first = None;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with('#')) {
        let line = expand(line, &|name| set.get(name).cloned().or_else(|| variable(name)));
        if let Some((name, value)) = assignment(&line) {
            set.insert(name, value);
            continue;
        }
        let Some(start) = command(&line) else { continue };
        // The line that hands all arguments on is the one that matters; others may only ask for the version.
        if line.contains("$@") || line.contains("$*") {
            return Some(start);
        }
        first.get_or_insert(start);
    }
    first
}

/// The script's own folder written out.
fn own_folder(text: &str, here: &Path, real: &Path) -> String {
    const BEHIND_LINKS: [&str; 5] = [
        r#"$(dirname "$(readlink -f "$0")")"#,
        r#"$(dirname $(readlink -f "$0"))"#,
        "$(dirname $(readlink -f $0))",
        r#"$(dirname "$(realpath "$0")")"#,
        "$(dirname $(realpath $0))",
    ];
    const PLAIN: [&str; 11] = [
        r#"$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"#,
        r#"$(cd "$(dirname "$0")" && pwd)"#,
        r#"$(cd "$(dirname "$0")"; pwd)"#,
        "$(cd $(dirname $0) && pwd)",
        r#"$(dirname "${BASH_SOURCE[0]}")"#,
        r#"$(dirname -- "$0")"#,
        r#"$(dirname "$0")"#,
        "$(dirname $0)",
        r#"`dirname "$0"`"#,
        "`dirname $0`",
        "${0%/*}",
    ];
    let mut text = text.to_owned();
    for (forms, folder) in [(&BEHIND_LINKS[..], real), (&PLAIN[..], here)] {
        for form in forms {
            text = text.replace(form, &folder.to_string_lossy());
        }
    }
    text
}

/// `$NAME`, `${NAME}` and `${NAME:-default}` replaced; what is not known stays, and so does `$@`.
fn expand(text: &str, value: &dyn Fn(&str) -> Option<String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let word = |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_').len();
        let (name, default, tail) = match after.strip_prefix('{').and_then(|inner| inner.split_once('}')) {
            Some((inner, tail)) => {
                let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, default)| (name, Some(default)));
                (name, default, tail)
            }
            None => (after.get(..word(after)).unwrap_or_default(), None, after.get(word(after)..).unwrap_or_default()),
        };
        let known = if word(name) == name.len() && !name.is_empty() { value(name).filter(|v| !v.is_empty()) } else { None };
        match known.or_else(|| default.map(str::to_owned)) {
            Some(value) => {
                out.push_str(&value);
                rest = tail;
            }
            None => {
                out.push('$');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out
}

/// A line that is one assignment: `NAME=value`, `export NAME="value"`.
fn assignment(line: &str) -> Option<(String, String)> {
    let words = shlex::split(line)?;
    let (name, value) = match words.as_slice() {
        [only] => only.split_once('=')?,
        [export, rest] if ["export", "local", "readonly"].contains(&export.as_str()) => rest.split_once('=')?,
        _ => return None,
    };
    let plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    plain.then(|| (name.to_owned(), value.to_owned()))
}

fn command(line: &str) -> Option<Start> {
    let words = shlex::split(line).unwrap_or_else(|| line.split_whitespace().map(str::to_owned).collect());
    let plain = |word: &str| word.chars().all(|c| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ' '));
    let base = |word: &str| word.rsplit('/').next().unwrap_or_default().to_owned();
    let mut through = None;
    for word in words {
        let name = base(&word);
        if CACHES.contains(&name.as_str()) {
            through = Some(name);
        } else if name.contains("nvcc") && plain(&word) {
            return Some(Start { through, program: word });
        } else if !PREFIXES.contains(&name.as_str()) && !word.contains('=') {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(text: &str) -> Option<(Option<String>, String)> {
        let variable = |name: &str| (name == "CUDA_HOME").then(|| "/usr/local/cuda".to_owned());
        starts(text, Path::new("/w/bin"), Path::new("/real/bin"), &variable).map(|start| (start.through, start.program))
    }

    fn plain(program: &str) -> Option<(Option<String>, String)> {
        Some((None, program.to_owned()))
    }

    #[test]
    fn scripts_people_write() {
        assert_eq!(
            start("#!/bin/sh\n\nexec /usr/lib/nvidia-cuda-toolkit/bin/nvcc \"$@\"\n"),
            plain("/usr/lib/nvidia-cuda-toolkit/bin/nvcc")
        );
        let ccache = Some((Some("ccache".to_owned()), "/usr/local/cuda/bin/nvcc".to_owned()));
        assert_eq!(start("#!/bin/bash\nexec ccache ${CUDA_HOME}/bin/nvcc \"$@\"\n"), ccache);
        assert_eq!(start("#!/bin/sh\nexec /usr/bin/ccache $CUDA_HOME/bin/nvcc $*"), ccache);
        assert_eq!(start("D=\"$(dirname \"$0\")\"\nexec \"$D/nvcc.real\" \"$@\""), plain("/w/bin/nvcc.real"));
        assert_eq!(start("exec $(dirname $(readlink -f $0))/nvcc-real -ccbin gcc-11 \"$@\""), plain("/real/bin/nvcc-real"));
        assert_eq!(start("export CUDA=/opt/cuda\nnvcc --version\nLANG=C exec $CUDA/bin/nvcc \"$@\""), plain("/opt/cuda/bin/nvcc"));
        assert_eq!(start("exec ${NVCC:-/opt/c/bin/nvcc} \"$@\""), plain("/opt/c/bin/nvcc"));
        assert_eq!(start("exec nvcc -allow-unsupported-compiler \"$@\""), plain("nvcc"));
    }

    #[test]
    fn what_cannot_be_read_is_not_guessed() {
        for text in [
            "",
            "#!/bin/sh\n# exec /x/nvcc\n",
            "#!/usr/bin/python3\nimport os\nos.execv('/x/nvcc', [])\n",
            "exec $UNKNOWN/bin/nvcc \"$@\"",
            "exec $(which -a nvcc | tail -1) \"$@\"",
            "echo nvcc",
            "${",
            "exec \"$",
        ] {
            assert_eq!(start(text), None, "{text}");
        }
    }
}
