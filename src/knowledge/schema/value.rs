//! The kinds of value that a row can hold, each readable from TOML and writable as a constant.

use crate::version::Dotted;
use serde::{Deserialize, Deserializer, de::Error};
use std::borrow::Cow;
use std::fmt;

/// A text: embedded, or read at run time.
pub type Str = Cow<'static, str>;

/// A list: embedded, or read at run time.
pub type List<T> = Cow<'static, [T]>;

/// The versions that a row speaks of, as a `semver` range: `>=2.7, <2.9`.
///
/// Every comparator names its operator, since a bare `2.7` would mean `^2.7`, which nobody reading a table expects. Versions are compared
/// by their first three numbers, without pre-release or local part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Versions(pub Str);

impl Versions {
    /// # Errors
    /// Why the text is no range of this form.
    pub fn read(text: &str) -> Result<Self, String> {
        let req = semver::VersionReq::parse(text).map_err(|e| format!("`{text}` is no version range: {e}"))?;
        if text.split(',').any(|part| part.trim_start().starts_with(|c: char| c.is_ascii_digit())) || req.comparators.is_empty() {
            return Err(format!("`{text}` names no operator: write `={text}`, `~{text}` or `>={text}`"));
        }
        Ok(Self(Cow::Owned(text.to_owned())))
    }

    /// Whether the range holds `version`.
    pub fn contain(&self, version: &semver::Version) -> bool {
        // A range is judged when it is read, so one that fails here cannot be; it would hold nothing.
        semver::VersionReq::parse(&self.0).is_ok_and(|req| req.matches(version))
    }

    /// The lowest version that the range's own numbers name; 0.0.0 for one without a lower end.
    pub fn lowest(&self) -> semver::Version {
        let zero = semver::Version::new(0, 0, 0);
        let Ok(req) = semver::VersionReq::parse(&self.0) else { return zero };
        req.comparators.iter().filter(|c| !matches!(c.op, semver::Op::Less | semver::Op::LessEq)).map(edge).max().unwrap_or(zero)
    }

    /// Every version at which the range begins or ends, and those just beside.
    pub fn edges(&self) -> Vec<semver::Version> {
        let Ok(req) = semver::VersionReq::parse(&self.0) else { return Vec::new() };
        let at = req.comparators.iter().map(edge);
        at.flat_map(|v| {
            let next_patch = semver::Version::new(v.major, v.minor, v.patch + 1);
            let next_minor = semver::Version::new(v.major, v.minor + 1, 0);
            let before = match (v.minor, v.patch) {
                (_, 1..) => Some(semver::Version::new(v.major, v.minor, v.patch - 1)),
                (1.., 0) => Some(semver::Version::new(v.major, v.minor - 1, 99)),
                (0, 0) => None,
            };
            [Some(v), Some(next_patch), Some(next_minor), before].into_iter().flatten()
        })
        .collect()
    }
}

fn edge(comparator: &semver::Comparator) -> semver::Version {
    semver::Version::new(comparator.major, comparator.minor.unwrap_or(0), comparator.patch.unwrap_or(0))
}

/// A dotted number, `525.60.13`: digits and dots, its zeros kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Number(pub Str);

impl Number {
    /// # Errors
    /// Why the text is no such number.
    pub fn read(text: &str) -> Result<Self, String> {
        let good = text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) && part.parse::<u32>().is_ok());
        if good { Ok(Self(Cow::Owned(text.to_owned()))) } else { Err(format!("`{text}` is not numbers joined by dots")) }
    }

    pub fn dotted(&self) -> Dotted {
        Dotted { text: self.0.to_string(), parts: self.0.split('.').filter_map(|part| part.parse().ok()).collect() }
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A PCI device id of NVIDIA's, as four hexadecimal digits: `20B5`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciDevice(pub u16);

impl PciDevice {
    /// # Errors
    /// Why the text is no such id.
    pub fn read(text: &str) -> Result<Self, String> {
        match u16::from_str_radix(text, 16) {
            Ok(id) if text.len() == 4 => Ok(Self(id)),
            _ => Err(format!("`{text}` is not four hexadecimal digits")),
        }
    }
}

impl fmt::Display for PciDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04X}", self.0)
    }
}

macro_rules! from_text {
    ($($type:ty),*) => {$(
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::read(&String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    )*};
}
from_text!(Versions, Number, PciDevice);
