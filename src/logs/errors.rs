//! Lines that look like an error, for logs that no signature knows: what to show, and whose words they are.

use crate::facts::log::ErrorLine;
use regex::bytes::{Regex, RegexBuilder};
use std::cell::OnceCell;

/// Innermost first: the tool, and what its errors look like once colours and prefixes are gone.
const LIKE: &[(&str, &str)] = &[
    (
        "compiler",
        r"[\w.)\]'+-]: (?:fatal |internal compiler )?error: |^\S+\(\d+\): (?:catastrophic )?error[ :]|: (?:fatal )?error C\d+|^nvcc fatal|^ptxas .*(?:fatal|error)|^error: .*-->|^error\[E\d+\]",
    ),
    ("linker", r"undefined reference to|(?:^|/)ld(?:\.\w+)?: .*(?:cannot|error|not recognized)|LINK : fatal|error LNK\d+"),
    ("loader", r"cannot open shared object file|undefined symbol: |failed to map segment|DLL load failed"),
    (
        "system",
        r"(?:^|: |\()(?:Killed|Segmentation fault|Aborted|Illegal instruction|Bus error)(?:$|[ :(])|core dumped|No space left on device|oom-kill",
    ),
    ("runtime", r"CUDA error: |CUDA out of memory|OutOfMemoryError|NCCL (?:WARN|error)|^Fatal Python error"),
    ("python", r"^(?:\w+\.)*\w*(?:Error|Exception|Interrupt)(?::|$)|^SystemExit: "),
    ("cmake", r"^CMake Error"),
    ("ninja", r"^FAILED: |^ninja: (?:error|fatal|build stopped)|^g?make(?:\[\d+\])?: \*\*\*"),
    ("setuptools", r"^error: (?:command|\[Errno|Setup script|package directory|can't|could not|Microsoft)"),
    ("pip", r"^ERROR: |^error: "),
    ("docker", r"^ERROR \[|^ERROR: (?:process|failed)|^failed to (?:solve|build)"),
    ("other", r"^(?:[\w.+/-]+(?:\[\d+\])?: |\[)?(?:[Ee]rror|ERROR|[Ff]atal|FATAL|FAILED)(?:: | :|\])"),
];

/// Of what such lines hold one. In raw output a colour may end right after the word.
const WORDS: &[&str] = &[
    "rror: ",
    "rror : ",
    "rror\u{1b}[",
    "rror C",
    "rror LNK",
    "rror[E",
    "rror] ",
    "RROR: ",
    "RROR [",
    "RROR]",
    "atal: ",
    "nvcc fatal",
    "FAILED: ",
    "xception: ",
    "KeyboardInterrupt",
    "SystemExit: ",
    "undefined reference",
    "cannot open shared object",
    "undefined symbol",
    "failed to map segment",
    "DLL load failed",
    "core dumped",
    "Killed",
    "Segmentation fault",
    "Illegal instruction",
    "No space left",
    "out of memory",
    "NCCL WARN",
    "CMake Error",
    ": *** ",
    "ninja: ",
    "failed to solve",
];

/// Of a longer line no more is looked at.
const LONG: usize = 12 << 10;
/// What is kept of a line.
const SHOWN: usize = 1 << 10;

pub struct Errors {
    patterns: OnceCell<Vec<Option<Regex>>>,
}

impl Errors {
    pub const fn new() -> Self {
        Self { patterns: OnceCell::new() }
    }

    pub const fn words(&self) -> &'static [&'static str] {
        WORDS
    }

    /// Keeps the line where it is the first of its tool. `read`: the same in English.
    pub fn look(&self, read: &[u8], line: &[u8], number: usize, into: &mut Vec<ErrorLine>) {
        // setup.py asks git for a commit, and goes on without.
        if memchr::memmem::find(read, b"fatal: not a git repository").is_some() {
            return;
        }
        let patterns =
            self.patterns.get_or_init(|| LIKE.iter().map(|(_, pattern)| RegexBuilder::new(pattern).unicode(false).build().ok()).collect());
        let matches = |pattern: &Option<Regex>| pattern.as_ref().is_some_and(|pattern| pattern.is_match(read));
        let Some(depth) = patterns.iter().position(matches) else { return };
        let tool = LIKE.get(depth).map_or("other", |(tool, _)| tool);
        if !into.iter().any(|known| known.depth == depth) {
            let text = String::from_utf8_lossy(line.get(..line.len().min(SHOWN)).unwrap_or_default()).into_owned();
            into.push(ErrorLine { tool: tool.to_owned(), depth, line: number, text });
        }
    }
}

/// The first line that tells of an error, whoever wrote it; else the last line that is not empty.
pub fn first_error(output: &[u8]) -> String {
    let lines = || output.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let tells = |line: &&[u8]| {
        let lower = line.get(..line.len().min(LONG)).unwrap_or_default().to_ascii_lowercase();
        let has = |word: &str| memchr::memmem::find(&lower, word.as_bytes()).is_some();
        ["error:", "error :", "fatal:", "fatal :", "fatal   :", "cannot find", "undefined reference", "undefined symbol", "not found"]
            .into_iter()
            .any(has)
            || has("no such file")
            || has("no space left")
            || has("permission denied")
            || has("killed")
    };
    let line = lines().find(tells).or_else(|| lines().next_back()).unwrap_or_default();
    String::from_utf8_lossy(line.get(..line.len().min(2048)).unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::first_error;

    #[test]
    fn first_errors() {
        assert_eq!(first_error(b"note: x\na.cu(3): error: boom\nb.cu(4): error: more\n"), "a.cu(3): error: boom");
        assert_eq!(first_error(b"collect2\n\n last words \n\n"), "last words");
        assert_eq!(first_error(b""), "");
    }
}
