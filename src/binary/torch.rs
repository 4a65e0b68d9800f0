//! What torch's libraries tell about themselves.

use super::elf::{Elf, ElfError};
use super::read::ReadAt;
use super::scan::{Hit, scan, section};
use std::ops::ControlFlow;

/// The targets that torch was built for, from `libtorch_python.so`: what `torch.cuda.get_arch_list()` answers, `sm_80`, `compute_90`.
///
/// `None` for a build without CUDA, and where two different strings look like the list.
///
/// # Errors
/// See [`ElfError`].
pub fn arch_list(file: &dyn ReadAt) -> Result<Option<Vec<String>>, ElfError> {
    let elf = Elf::open(file)?;
    let mut lists: Vec<Vec<String>> = Vec::new();
    scan(file, section(&elf, ".rodata")?.range, &[b"sm_", b"compute_"], |hit| {
        if let Some(list) = list(&hit)
            && !lists.contains(&list)
        {
            lists.push(list);
        }
        if lists.len() > 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(if lists.len() == 1 { lists.pop() } else { None })
}

/// A whole string of targets separated by single blanks.
fn list(hit: &Hit<'_>) -> Option<Vec<String>> {
    let text = hit.text().filter(|_| hit.starts_a_string())?;
    text.split(' ').map(|word| is_target(word).then(|| word.to_owned())).collect()
}

fn is_target(word: &str) -> bool {
    let Some(number) = word.strip_prefix("sm_").or_else(|| word.strip_prefix("compute_")) else { return false };
    let digits = number.strip_suffix(|c: char| c.is_ascii_lowercase()).unwrap_or(number);
    (2..=4).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Whether `libc10.so` uses the C++11 ABI of libstdc++ (`_GLIBCXX_USE_CXX11_ABI=1`); `None` where it exports neither form of
/// `c10::detail::torchCheckFail`.
///
/// # Errors
/// See [`ElfError`].
pub fn cxx11_abi(file: &dyn ReadAt) -> Result<Option<bool>, ElfError> {
    const OLD: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs";
    const NEW: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";
    let elf = Elf::open(file)?;
    Ok(match (elf.symbol(OLD)?.is_some(), elf.symbol(NEW)?.is_some()) {
        (true, false) => Some(false),
        (false, true) => Some(true),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_told_from_other_strings() {
        let read = |before: &[u8], at: &[u8]| list(&Hit { needle: 0, offset: 0, before, at });
        let expected = ["sm_75", "sm_90a", "compute_120"].map(str::to_owned).to_vec();
        assert_eq!(read(b"\0", b"sm_75 sm_90a compute_120\0"), Some(expected));
        for not in [&b"sm_%d\0"[..], b"sm_75, sm_80\0", b"sm_75 \0", b"sm_\0", b"sm_75 and up\0", b"sm_75"] {
            assert_eq!(read(b"\0", not), None, "{not:?}");
        }
        assert_eq!(read(b" ", b"sm_75\0"), None);
    }
}
