//! The changes of an environment as statements for a shell, or as lines for files that set variables.

use super::shell::quote_sh;
use crate::facts::env::EnvFacts;
use crate::facts::raw::Raw;
use crate::finding::Change;
use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// sh, bash, zsh.
    Sh,
    Fish,
    Csh,
    /// The file that `$GITHUB_ENV` names.
    GithubEnv,
    Dockerfile,
    Dotenv,
}

/// What was written, and what this target cannot carry: variable and reason.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exports {
    pub text: Vec<u8>,
    pub left_out: Vec<(String, &'static str)>,
}

/// One line a variable, in the order of names. `env` is the environment the changes were made for.
pub fn render(changes: &BTreeMap<String, Change>, env: &EnvFacts, target: Target) -> Exports {
    let mut exports = Exports::default();
    for (name, change) in changes {
        let full = change.apply(env.get(name));
        if let Some(why) = full.as_ref().and_then(|value| cannot_carry(value, target)) {
            exports.left_out.push((name.clone(), why));
            continue;
        }
        exports.text.extend(match target {
            Target::Sh => sh(name, change),
            Target::Fish => fish(name, change),
            Target::Csh => csh(name, change, env),
            Target::GithubEnv => github(name, full.unwrap_or_default().bytes()),
            Target::Dockerfile => dockerfile(name, change),
            Target::Dotenv => dotenv(name, full.unwrap_or_default().bytes()),
        });
        exports.text.push(b'\n');
    }
    exports
}

/// csh reads these through backquotes, which split at blanks, match globs and stop at a line's length.
const CSH_LONGEST: usize = 4000;

fn cannot_carry(value: &Raw, target: Target) -> Option<&'static str> {
    let bytes = value.bytes();
    match target {
        Target::Csh if bytes.contains(&b'\n') => Some("holds a newline, which csh cannot take"),
        Target::Csh if bytes.iter().any(|b| b"*?[]{}~".contains(b)) => Some("holds a character that csh would match against file names"),
        Target::Csh if bytes.windows(2).any(|pair| pair.iter().all(u8::is_ascii_whitespace)) => {
            Some("holds a run of blanks, which csh would shorten")
        }
        Target::Csh if bytes.first().is_some_and(u8::is_ascii_whitespace) || bytes.last().is_some_and(u8::is_ascii_whitespace) => {
            Some("begins or ends with a blank, which csh would drop")
        }
        Target::Csh if bytes.iter().any(|b| (b.is_ascii_control() && *b != b'\n') || !b.is_ascii()) => {
            Some("holds bytes that csh does not carry through backquotes")
        }
        Target::Csh if bytes.len() > CSH_LONGEST => Some("is longer than csh reads"),
        Target::Dockerfile if bytes.contains(&b'\n') => Some("holds a newline, which a Dockerfile cannot take"),
        Target::Dotenv if std::str::from_utf8(bytes).is_err() => Some("is not UTF-8, which a .env file must be"),
        Target::GithubEnv | Target::Dockerfile if std::str::from_utf8(bytes).is_err() => Some("is not UTF-8, which this file must be"),
        _ => None,
    }
}

fn concat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// `/a:/b` of the entries put in front.
fn joined(front: &[crate::facts::raw::HostPath]) -> Vec<u8> {
    front.iter().map(crate::facts::raw::HostPath::bytes).collect::<Vec<_>>().join(&b':')
}

fn sh(name: &str, change: &Change) -> Vec<u8> {
    let name = name.as_bytes();
    match change {
        Change::Set(value) | Change::Rewrite(value) => concat(&[b"export ", name, b"=", &quote_sh(value.bytes()), b";"]),
        Change::Unset => concat(&[b"unset ", name, b";"]),
        Change::Prepend(front) => concat(&[b"export ", name, b"=", &quote_sh(&joined(front)), b"\"${", name, b":+:$", name, b"}\";"]),
    }
}

/// In single quotes only `\` and `'` mean anything to fish.
fn quote_fish(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in bytes {
        if matches!(byte, b'\\' | b'\'') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    out.push(b'\'');
    out
}

/// fish splits variables whose name ends in PATH at colons and joins them again when exported.
fn fish(name: &str, change: &Change) -> Vec<u8> {
    let name = name.as_bytes();
    match change {
        Change::Set(value) | Change::Rewrite(value) => concat(&[b"set -gx ", name, b" ", &quote_fish(value.bytes()), b";"]),
        Change::Unset => concat(&[b"set -e ", name, b";"]),
        Change::Prepend(front) => {
            let words: Vec<Vec<u8>> = front.iter().map(|dir| quote_fish(dir.bytes())).collect();
            concat(&[b"set -gx ", name, b" ", &words.join(&b' '), b" $", name, b";"])
        }
    }
}

/// csh expands `!` even in single quotes.
fn quote_csh(bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in bytes {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            b'!' => out.extend(b"\\!"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
    out
}

fn csh(name: &str, change: &Change, env: &EnvFacts) -> Vec<u8> {
    let plain = name.as_bytes();
    match change {
        Change::Set(value) | Change::Rewrite(value) => concat(&[b"setenv ", plain, b" ", &quote_csh(value.bytes()), b";"]),
        Change::Unset => concat(&[b"unsetenv ", plain, b";"]),
        // csh stops at an unset variable, so only one that is set is referred to.
        Change::Prepend(front) if env.filled(name).is_some() => {
            concat(&[b"setenv ", plain, b" ", &quote_csh(&joined(front)), b":\"$", plain, b"\";"])
        }
        Change::Prepend(front) => concat(&[b"setenv ", plain, b" ", &quote_csh(&joined(front)), b";"]),
    }
}

/// A heredoc for values of several lines, with an end that does not occur in the value.
fn github(name: &str, value: &[u8]) -> Vec<u8> {
    if !value.iter().any(|b| matches!(b, b'\n' | b'\r')) {
        return concat(&[name.as_bytes(), b"=", value]);
    }
    let text = String::from_utf8_lossy(value);
    let mut end = String::from("END_OF_VALUE");
    while text.contains(&end) {
        end.push('_');
    }
    concat(&[name.as_bytes(), b"<<", end.as_bytes(), b"\n", value, b"\n", end.as_bytes()])
}

fn escape(bytes: &[u8], special: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| if special.contains(byte) { vec![b'\\', *byte] } else { vec![*byte] }).collect()
}

fn dockerfile(name: &str, change: &Change) -> Vec<u8> {
    let plain = name.as_bytes();
    let quoted = |bytes: &[u8]| escape(bytes, b"\\\"$");
    match change {
        Change::Set(value) | Change::Rewrite(value) => concat(&[b"ENV ", plain, b"=\"", &quoted(value.bytes()), b"\""]),
        Change::Unset => concat(&[b"ENV ", plain, b"=\"\""]),
        Change::Prepend(front) => concat(&[b"ENV ", plain, b"=\"", &quoted(&joined(front)), b"${", plain, b":+:$", plain, b"}\""]),
    }
}

/// Single quotes, in which nothing means anything; double ones where the value holds a single quote or a newline.
fn dotenv(name: &str, value: &[u8]) -> Vec<u8> {
    if !value.iter().any(|b| matches!(b, b'\'' | b'\n' | b'\r')) {
        return concat(&[name.as_bytes(), b"='", value, b"'"]);
    }
    let mut out = Vec::new();
    for byte in escape(value, b"\\\"$") {
        match byte {
            b'\n' => out.extend(b"\\n"),
            b'\r' => out.extend(b"\\r"),
            byte => out.push(byte),
        }
    }
    concat(&[name.as_bytes(), b"=\"", &out, b"\""])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes() -> BTreeMap<String, Change> {
        [
            ("CUDA_HOME".to_owned(), Change::Set("/opt/it's cuda".into())),
            ("CUDA_PATH".to_owned(), Change::Unset),
            ("PATH".to_owned(), Change::Prepend(vec!["/c/bin".into()])),
        ]
        .into()
    }

    fn text(target: Target) -> String {
        let mut env = EnvFacts::default();
        env.set("PATH", "/usr/bin");
        env.set("CUDA_PATH", "/x");
        String::from_utf8_lossy(&render(&changes(), &env, target).text).into_owned()
    }

    #[test]
    fn each_target_has_its_own_words() {
        assert_eq!(text(Target::Sh), "export CUDA_HOME=\"/opt/it's cuda\";\nunset CUDA_PATH;\nexport PATH=/c/bin\"${PATH:+:$PATH}\";\n");
        assert_eq!(text(Target::Fish), "set -gx CUDA_HOME '/opt/it\\'s cuda';\nset -e CUDA_PATH;\nset -gx PATH '/c/bin' $PATH;\n");
        assert_eq!(text(Target::Csh), "setenv CUDA_HOME '/opt/it'\\''s cuda';\nunsetenv CUDA_PATH;\nsetenv PATH '/c/bin':\"$PATH\";\n");
        assert_eq!(text(Target::GithubEnv), "CUDA_HOME=/opt/it's cuda\nCUDA_PATH=\nPATH=/c/bin:/usr/bin\n");
        assert_eq!(text(Target::Dockerfile), "ENV CUDA_HOME=\"/opt/it's cuda\"\nENV CUDA_PATH=\"\"\nENV PATH=\"/c/bin${PATH:+:$PATH}\"\n");
        assert_eq!(text(Target::Dotenv), "CUDA_HOME=\"/opt/it's cuda\"\nCUDA_PATH=''\nPATH='/c/bin:/usr/bin'\n");
    }

    #[test]
    fn what_csh_cannot_carry_is_named() {
        let changes = [("LD_LIBRARY_PATH".to_owned(), Change::Rewrite("/a  b".into()))].into();
        let exports = render(&changes, &EnvFacts::default(), Target::Csh);
        assert!(exports.text.is_empty());
        assert_eq!(exports.left_out.len(), 1);
    }
}
