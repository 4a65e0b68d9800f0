//! Version numbers as this field writes them: CUDA releases, compute capabilities, targets, and dotted numbers of any length.
//!
//! `semver` reads none of `550.144.03`, `12.4`, `9.0a` or `2.6.0a0+abc`; [`Dotted`] keeps the text as found beside its numbers, and
//! [`Dotted::semver`] hands the first three to `semver` where a rule table asks with a range.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// Why a text is not the version it was taken for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {wanted}")]
pub struct NotAVersion {
    pub text: String,
    pub wanted: &'static str,
}

fn refuse<T>(text: &str, wanted: &'static str) -> Result<T, NotAVersion> {
    Err(NotAVersion { text: text.to_owned(), wanted })
}

/// A CUDA release: major and minor, `12.4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CudaVersion {
    pub major: u32,
    pub minor: u32,
}

impl CudaVersion {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// From the `CUDA_VERSION` or `CUDART_VERSION` macro: 1000 * major + 10 * minor.
    pub const fn from_macro(value: u32) -> Self {
        Self { major: value / 1000, minor: (value % 1000) / 10 }
    }

    /// From the tag in a wheel or folder name: `cu124`, `cu1210` (the last digit is the minor; `cu92` too).
    pub fn from_tag(tag: &str) -> Option<Self> {
        let digits = tag.strip_prefix("cu")?;
        if digits.len() < 2 || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        // cu92, cu102, cu124: the last digit is the minor. A two-digit minor has never been released.
        let (major, minor) = digits.split_at(digits.len() - 1);
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The tag used in wheel names and extension cache folders: `cu124`.
    pub fn tag(self) -> String {
        format!("cu{}{}", self.major, self.minor)
    }
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for CudaVersion {
    type Err = NotAVersion;
    /// `12.4` or `12.4.131`: the first two numbers count.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let dotted = Dotted::from_str(text)?;
        match dotted.parts.as_slice() {
            [major, minor, ..] => Ok(Self { major: *major, minor: *minor }),
            _ => refuse(text, "a CUDA release (major.minor)"),
        }
    }
}

/// A GPU's compute capability: `9.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Capability {
    pub major: u32,
    pub minor: u32,
}

impl Capability {
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }

    /// From the number in `sm_90`: the last digit is the minor.
    pub const fn from_sm(number: u32) -> Self {
        Self { major: number / 10, minor: number % 10 }
    }

    /// The number in `sm_90`.
    pub const fn sm(self) -> u32 {
        self.major * 10 + self.minor
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Capability {
    type Err = NotAVersion;
    /// `9.0`, and as people type it: `sm_90`, `sm90`, `compute_90`, `90`.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let target = Target::from_str(text)?;
        if target.suffix.is_some() { refuse(text, "a compute capability") } else { Ok(target.capability) }
    }
}

/// What follows the number of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suffix {
    /// `sm_90a`: this very capability and no other.
    Specific,
    /// `sm_100f`: the capability's family.
    Family,
}

impl Suffix {
    pub const fn letter(self) -> char {
        match self {
            Self::Specific => 'a',
            Self::Family => 'f',
        }
    }
}

/// What code is compiled for, real or virtual: `9.0`, `9.0a`, `10.0f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    pub capability: Capability,
    pub suffix: Option<Suffix>,
}

impl Target {
    pub const fn plain(capability: Capability) -> Self {
        Self { capability, suffix: None }
    }

    fn letter(self) -> String {
        self.suffix.map(|s| s.letter().to_string()).unwrap_or_default()
    }

    /// `sm_90a`
    pub fn sm(self) -> String {
        format!("sm_{}{}", self.capability.sm(), self.letter())
    }

    /// `compute_90a`
    pub fn compute(self) -> String {
        format!("compute_{}{}", self.capability.sm(), self.letter())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.capability, self.letter())
    }
}

impl FromStr for Target {
    type Err = NotAVersion;
    /// `9.0a`, `sm_90a`, `sm90a`, `compute_90a`, `90a`.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        const WANTED: &str = "a compute capability";
        let lower = text.trim().to_ascii_lowercase();
        let rest = ["sm_", "compute_", "sm"].iter().find_map(|p| lower.strip_prefix(p)).unwrap_or(&lower);
        let (number, suffix) = match rest.strip_suffix('a') {
            Some(number) => (number, Some(Suffix::Specific)),
            None => match rest.strip_suffix('f') {
                Some(number) => (number, Some(Suffix::Family)),
                None => (rest, None),
            },
        };
        let digits = |s: &str| !s.is_empty() && s.len() <= 4 && s.bytes().all(|b| b.is_ascii_digit());
        let capability = match number.split_once('.') {
            Some((major, minor)) if digits(major) && minor.len() == 1 && digits(minor) => {
                Capability::new(major.parse().unwrap_or(0), minor.parse().unwrap_or(0))
            }
            None if digits(number) && number.len() >= 2 => Capability::from_sm(number.parse().unwrap_or(0)),
            _ => return refuse(text, WANTED),
        };
        if capability.major == 0 { refuse(text, WANTED) } else { Ok(Self { capability, suffix }) }
    }
}

/// A version of the PTX language, `8.4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa {
    pub major: u16,
    pub minor: u16,
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Isa {
    type Err = NotAVersion;
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let numbers = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match numbers {
            Some((major, minor)) => Ok(Self { major, minor }),
            None => refuse(text, "a version of PTX"),
        }
    }
}

/// A dotted version of any length with its text as found: `550.144.03`, `2.6.0+cu124`, `12.2.0-14+deb12u1`.
///
/// Ordered by its leading numbers (a missing one counts as 0), so `12.2` equals `12.2.0` in order but not in text.
#[derive(Debug, Clone, Default)]
pub struct Dotted {
    pub text: String,
    pub parts: Vec<u32>,
}

impl Dotted {
    pub fn part(&self, index: usize) -> u32 {
        self.parts.get(index).copied().unwrap_or(0)
    }

    pub fn major(&self) -> u32 {
        self.part(0)
    }

    pub fn minor(&self) -> u32 {
        self.part(1)
    }

    /// The first two numbers as `12.4`.
    pub fn major_minor(&self) -> String {
        format!("{}.{}", self.major(), self.minor())
    }

    /// The text after `+`: the local part of a Python version, `cu124`.
    pub fn local(&self) -> Option<&str> {
        self.text.split_once('+').map(|(_, local)| local)
    }

    /// The first three numbers, for `semver` ranges (which would refuse pre-releases and leading zeros).
    pub fn semver(&self) -> semver::Version {
        semver::Version::new(self.part(0).into(), self.part(1).into(), self.part(2).into())
    }

    /// Compares numbers only.
    pub fn cmp_numbers(&self, other: &Self) -> Ordering {
        let longest = self.parts.len().max(other.parts.len());
        (0..longest).map(|i| self.part(i).cmp(&other.part(i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Whether the numbers are at least `parts`.
    pub fn at_least(&self, parts: &[u32]) -> bool {
        let longest = self.parts.len().max(parts.len());
        (0..longest).map(|i| self.part(i).cmp(&parts.get(i).copied().unwrap_or(0))).find(|o| o.is_ne()).is_none_or(Ordering::is_gt)
    }
}

impl PartialEq for Dotted {
    fn eq(&self, other: &Self) -> bool {
        self.cmp_numbers(other).is_eq()
    }
}
impl Eq for Dotted {}
impl PartialOrd for Dotted {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Dotted {
    fn cmp(&self, other: &Self) -> Ordering {
        self.cmp_numbers(other)
    }
}

impl fmt::Display for Dotted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Dotted {
    type Err = NotAVersion;
    /// Reads the leading dotted numbers; a leading `V` or `v` (nvcc) is allowed, what follows the numbers is kept as text only.
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let text = text.trim();
        let mut rest = text.strip_prefix(['V', 'v']).unwrap_or(text);
        let mut parts = Vec::new();
        loop {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let Ok(number) = rest[..digits].parse() else { break };
            parts.push(number);
            match rest[digits..].strip_prefix('.') {
                Some(after) => rest = after,
                None => break,
            }
        }
        if parts.is_empty() { refuse(text, "a version number") } else { Ok(Self { text: text.to_owned(), parts }) }
    }
}

/// Types that are text in JSON, as they are printed and parsed.
macro_rules! serde_as_text {
    ($($type:ty),*) => {$(
        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}
#[allow(unused_imports, reason = "build.rs reads this file too")]
pub(crate) use serde_as_text;
serde_as_text!(CudaVersion, Capability, Target, Isa, Dotted);

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn cuda_versions() {
        assert_eq!("12.4.131".parse(), Ok(CudaVersion::new(12, 4)));
        assert_eq!(CudaVersion::from_tag("cu130"), Some(CudaVersion::new(13, 0)));
        assert_eq!(CudaVersion::from_tag("cu92"), Some(CudaVersion::new(9, 2)));
        assert_eq!(CudaVersion::from_tag("cpu"), None);
        assert_eq!(CudaVersion::from_macro(12040), CudaVersion::new(12, 4));
        assert!("12".parse::<CudaVersion>().is_err());
        assert!("".parse::<CudaVersion>().is_err());
    }

    #[test]
    fn targets_as_people_write_them() {
        for text in ["9.0a", "sm_90a", "SM_90A", "compute_90a", "90a"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), "9.0a", "{text}");
        }
        assert_eq!("sm_120f".parse::<Target>().unwrap().sm(), "sm_120f");
        assert_eq!("12.0".parse::<Capability>().unwrap().sm(), 120);
        for text in ["", "9", "a", "8.6.1", "8.60", "sm_", "-8.6", "0.5", "9.0b", "８.６"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn dotted_numbers() {
        let deb: Dotted = "12.2.0-14+deb12u1".parse().unwrap();
        assert_eq!(deb.parts, [12, 2, 0]);
        let driver: Dotted = "550.144.03".parse().unwrap();
        assert_eq!((driver.to_string().as_str(), driver.part(2)), ("550.144.03", 3));
        assert!("12.10".parse::<Dotted>().unwrap() > "12.9.9".parse().unwrap());
        assert!("2.6.0a0+abc".parse::<Dotted>().unwrap().at_least(&[2, 6]));
        assert!(!"2.5.1".parse::<Dotted>().unwrap().at_least(&[2, 6]));
        assert_eq!("2.6.0+cu124".parse::<Dotted>().unwrap().local(), Some("cu124"));
        assert!("99999999999.1".parse::<Dotted>().is_err());
    }
}
