//! Names and values quoted for the shell that reads them.

use crate::finding::{Action, Fix};
use crate::text::clean;
use std::borrow::Cow;
use std::os::unix::ffi::OsStrExt as _;

/// One word for sh, bash and zsh: any bytes but NUL, which no environment can hold.
pub fn quote_sh(bytes: &[u8]) -> Vec<u8> {
    shlex::bytes::try_quote(bytes).map_or_else(|_| b"''".to_vec(), Cow::into_owned)
}

/// [`quote_sh`] for a line that is shown. What a terminal must not get, and bytes that are not UTF-8, stand as escapes in `$'…'`, which
/// bash, zsh and newer shells of POSIX read.
pub fn word(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if matches!(clean(text), Cow::Borrowed(_)) => String::from_utf8_lossy(&quote_sh(bytes)).into_owned(),
        _ => escaped(bytes),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::from("$'");
    for byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\\' | b'\'' => out.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => out.push(char::from(*byte)),
            byte => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('\'');
    out
}

/// The line a person pastes for this step; `None` for words that are no command.
pub fn paste_line(fix: &Fix) -> Option<String> {
    Some(match &fix.action {
        Action::SetEnv { name, value } => format!("export {name}={}", word(value.bytes())),
        Action::UnsetEnv { name } => format!("unset {name}"),
        Action::PrependPath { name, dir } => format!("export {name}={}\"${{{name}:+:${name}}}\"", word(dir.bytes())),
        Action::RemovePath { name, dir } if dir.as_os_str().is_empty() => {
            format!("export {name}=\"$(printf %s \"${name}\" | tr -s : | sed 's/^://; s/:$//')\"")
        }
        Action::RemovePath { name, dir } => format!(
            "export {name}=\"$(printf %s \"${name}\" | tr : '\\n' | grep -Fxv -- {} | paste -sd: -)\"",
            word(dir.as_os_str().as_bytes())
        ),
        Action::Run { argv, needs_root } => {
            let words: Vec<String> = argv.iter().map(|arg| word(arg.as_bytes())).collect();
            format!("{}{}", if *needs_root { "sudo " } else { "" }, words.join(" "))
        }
        Action::Edit { .. } | Action::Advice { .. } => return None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_can_be_pasted() {
        let line = |fix: Fix| paste_line(&fix).unwrap();
        assert_eq!(line(Fix::set("CUDA_HOME", "/opt/my cuda", "")), "export CUDA_HOME='/opt/my cuda'");
        assert_eq!(line(Fix::set("CUDA_HOME", "/opt/my\ncu'da\u{202e}", "")), r"export CUDA_HOME=$'/opt/my\ncu\'da\342\200\256'");
        assert_eq!(line(Fix::prepend("PATH", &"/c/bin".into(), "")), "export PATH=/c/bin\"${PATH:+:$PATH}\"");
        assert_eq!(line(Fix::run_as_root(["apt-get", "install", "g++-12"], "")), "sudo apt-get install g++-12");
    }
}
