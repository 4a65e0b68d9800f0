//! Which release of NVIDIA's driver `libcuda.so.1` and `libnvidia-ml.so.1` belong to.

use super::elf::{Elf, ElfError};
use super::read::ReadAt;
use super::scan::{scan, section};
use crate::version::Dotted;
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// The strings of libnvidia-ml have 0.4 MB, those of libcuda 20.
const MOST_STRINGS: u64 = 2 << 20;

/// The release in the name of a real file: `libcuda.so.535.261.03`. `libcuda.so.1.1`, the name under WSL, has none.
pub fn release_in_name(name: &str) -> Option<Dotted> {
    ["libcuda.so.", "libnvidia-ml.so."].iter().find_map(|stem| super::release_in_name(name, stem)).filter(is_driver)
}

/// The release from the library's strings, for files without a number in their name.
///
/// `None` where no string or more than one has the form of a driver's release, and for the stub libraries of toolkits.
///
/// # Errors
/// See [`ElfError`].
pub fn release_in_strings(file: &dyn ReadAt) -> Result<Option<Dotted>, ElfError> {
    const PROFILES: &str = "nvidia-application-profiles-";
    let elf = Elf::open(file)?;
    let range = section(&elf, ".rodata")?.range;
    let mut found = BTreeSet::new();
    // libcuda names its application profiles by release.
    scan(file, range.clone(), &[PROFILES.as_bytes()], |hit| {
        found.extend(hit.text_after(PROFILES).and_then(|rest| number(rest.split('-').next()?)));
        ControlFlow::Continue(())
    })?;
    // libnvidia-ml has its release as a whole string. In the sea of zeros of a large library that search would take a second.
    if found.is_empty() && range.end - range.start <= MOST_STRINGS {
        scan(file, range, &[b"\0"], |hit| {
            let rest = hit.at.get(1..24).unwrap_or_default();
            let text = memchr::memchr(0, rest).and_then(|end| std::str::from_utf8(rest.get(..end)?).ok());
            found.extend(text.and_then(number));
            ControlFlow::Continue(())
        })?;
    }
    Ok(if found.len() == 1 { found.pop_first().and_then(|text| text.parse().ok()) } else { None })
}

/// Driver releases: three digits, two or three, and from 2013 on often a third number.
fn number(text: &str) -> Option<String> {
    let parts: Vec<_> = text.split('.').collect();
    let digits =
        |part: &&str, lengths: std::ops::RangeInclusive<usize>| lengths.contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
    let driver = match parts.as_slice() {
        [major, minor] => digits(major, 3..=3) && digits(minor, 2..=3),
        [major, minor, patch] => digits(major, 3..=3) && digits(minor, 2..=3) && digits(patch, 2..=2),
        _ => false,
    };
    driver.then(|| text.to_owned())
}

fn is_driver(version: &Dotted) -> bool {
    number(&version.text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        assert_eq!(release_in_name("libcuda.so.535.261.03").map(|v| v.text).as_deref(), Some("535.261.03"));
        assert_eq!(release_in_name("libnvidia-ml.so.384.81").map(|v| v.text).as_deref(), Some("384.81"));
        for name in ["libcuda.so", "libcuda.so.1", "libcuda.so.1.1", "libcudart.so.12.4.127", "libcuda.so.535.261.03.bak"] {
            assert_eq!(release_in_name(name), None, "{name}");
        }
    }
}
