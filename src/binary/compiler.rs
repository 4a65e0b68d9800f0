//! A host compiler's version from its driver program, without running it.

use super::elf::{Elf, ElfError};
use super::read::ReadAt;
use super::scan::{Hit, scan, section};
use crate::facts::compiler::Family;
use crate::version::Dotted;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// What a compiler driver says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompilerStrings {
    pub family: Family,
    /// All of it, `12.2.0`; of a clang that uses LLVM's shared libraries only the first one or two numbers, which their names carry.
    pub version: Option<Dotted>,
    /// `x86_64-linux-gnu`, as given to gcc's configure.
    pub target: Option<String>,
}

/// Reads a compiler driver (`gcc`, `g++`, `cpp`, `clang`).
///
/// # Errors
/// [`ElfError::NotElf`] for scripts in a compiler's place; the others for a damaged program.
pub fn compiler_strings(file: &dyn ReadAt) -> Result<CompilerStrings, ElfError> {
    let elf = Elf::open(file)?;
    let needed = elf.needed()?;
    let clang = needed.iter().filter_map(|name| name.strip_prefix("libclang-cpp.so.")).find_map(|rest| rest.parse().ok());
    if clang.is_some() {
        return Ok(CompilerStrings { family: Family::Clang, version: clang, target: None });
    }
    static_driver(file, &elf)
}

/// A driver whose strings are all in the program itself.
///
/// gcc's holds its version and, next to it, the packager's text: `12.2.0` and `(Debian 12.2.0-14+deb12u1) `. clang's holds it in what
/// its compiler proper prints: `clang -cc1 version 16.0.6`.
fn static_driver(file: &dyn ReadAt, elf: &Elf<'_>) -> Result<CompilerStrings, ElfError> {
    const GCC: &str = "GCC_EXEC_PREFIX";
    const CLANG: &str = "clang LLVM compiler";
    const CC1: &str = "clang -cc1 version ";
    const TARGET: &str = "--target=";
    let needles = [GCC.as_bytes(), CLANG.as_bytes(), CC1.as_bytes(), TARGET.as_bytes(), b") \0"];
    let (mut gcc, mut clang, mut target) = (false, false, None);
    let (mut gcc_versions, mut clang_versions) = (BTreeSet::new(), BTreeSet::new());
    scan(file, section(elf, ".rodata")?.range, &needles, |hit| {
        match hit.needle {
            0 => gcc |= hit.starts_a_string() && hit.text() == Some(GCC),
            1 => clang |= hit.starts_a_string() && hit.text() == Some(CLANG),
            2 => clang_versions.extend(hit.text_after(CC1).and_then(|rest| version_number(rest.as_bytes()))),
            3 => {
                let word = hit.text_after(TARGET).and_then(|rest| rest.split([' ', '\'', '"']).next());
                target = target.take().or_else(|| word.filter(|w| !w.is_empty() && !w.contains('%')).map(str::to_owned));
            }
            _ => gcc_versions.extend(version_beside_package(&hit)),
        }
        ControlFlow::Continue(())
    })?;
    Ok(match (gcc, clang) {
        (true, false) => CompilerStrings { family: Family::Gcc, version: only(gcc_versions), target },
        (false, true) => CompilerStrings { family: Family::Clang, version: only(clang_versions), target: None },
        _ => CompilerStrings { family: Family::Other, version: None, target: None },
    })
}

/// Two candidates would be a guess.
fn only(mut versions: BTreeSet<String>) -> Option<Dotted> {
    if versions.len() == 1 { versions.pop_first()?.parse().ok() } else { None }
}

/// The version before, or behind, the text that ends in this `) `. Zeros between the two are alignment.
fn version_beside_package(hit: &Hit<'_>) -> Option<String> {
    let package = hit.before.get(memchr::memrchr(0, hit.before)?..)?;
    if package.get(1) != Some(&b'(') {
        return None;
    }
    let before = hit.before.get(..hit.before.len() - package.len())?;
    let before = before.trim_end_zeros();
    let before = before.get(memchr::memrchr(0, before).map_or(0, |nul| nul + 1)..)?;
    let after = hit.at.get(2..)?.trim_start_zeros();
    let after = after.get(..memchr::memchr(0, after).unwrap_or(0))?;
    [before, after].into_iter().find_map(version_number)
}

/// `12.2.0` of `12.2.0` or `10.2.1 20210110`: three numbers, then the end or a blank.
fn version_number(text: &[u8]) -> Option<String> {
    let word = std::str::from_utf8(text.split(|b| *b == b' ').next()?).ok()?;
    let numbers: Vec<_> = word.split('.').collect();
    let plain = |n: &&str| !n.is_empty() && n.len() <= 3 && n.bytes().all(|b| b.is_ascii_digit());
    (numbers.len() == 3 && numbers.iter().all(plain)).then(|| word.to_owned())
}

trait Zeros {
    fn trim_end_zeros(&self) -> &Self;
    fn trim_start_zeros(&self) -> &Self;
}

impl Zeros for [u8] {
    fn trim_end_zeros(&self) -> &Self {
        let end = self.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        self.get(..end).unwrap_or_default()
    }

    fn trim_start_zeros(&self) -> &Self {
        let start = self.iter().position(|b| *b != 0).unwrap_or(self.len());
        self.get(start..).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beside(before: &[u8], at: &[u8]) -> Option<String> {
        version_beside_package(&Hit { needle: 1, offset: 0, before, at })
    }

    #[test]
    fn the_version_stands_beside_the_packagers_text() {
        assert_eq!(beside(b"x\x0012.2.0\0(Debian 12.2.0-14", b") \0").as_deref(), Some("12.2.0"));
        assert_eq!(beside(b"x\x0011.3.0\0\0(Debian", b") \0").as_deref(), Some("11.3.0"));
        assert_eq!(beside(b"x\x0010.2.1 20210110\0(GCC", b") \0").as_deref(), Some("10.2.1"));
        assert_eq!(beside(b"%s\0\0(GCC", b") \0\0\x0011.4.1 20231218 (Red Hat 11.4.1-3)\0").as_deref(), Some("11.4.1"));
        assert_eq!(beside(b"x\x0012.2.0\0usage (see there", b") \0"), None);
        assert_eq!(beside(b"x\0a.b.c\0(GCC", b") \0next\0"), None);
    }
}
