//! What one ELF file says of itself.

use crate::version::Dotted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// An ELF file as the dynamic loader sees it. Names are as stored; nothing is resolved.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElfFacts {
    pub machine: Machine,
    /// 32 or 64.
    pub class_bits: u8,
    pub little_endian: bool,
    pub kind: ElfKind,
    /// The program interpreter of an executable, `/lib64/ld-linux-x86-64.so.2`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soname: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed: Vec<String>,
    /// The entries of DT_RPATH between colons, with `$ORIGIN` as written and empty entries kept. The loader ignores them where
    /// there is a RUNPATH.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rpath: Option<Vec<String>>,
    /// The entries of DT_RUNPATH, in the same form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runpath: Option<Vec<String>>,
    /// DF_1_NODEFLIB: neither the loader's cache nor the default folders are searched for this file's needs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nodeflib: bool,
    /// Version nodes this file defines, without the base node (the file's own name).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version_definitions: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub version_needs: Vec<VersionNeed>,
    /// Set when the headers speak of bytes behind the end of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub truncated: Option<Truncated>,
}

impl ElfFacts {
    /// The highest version this file needs of a family of version nodes, from whichever library: `GLIBC`, `GLIBCXX`, `CXXABI`.
    ///
    /// Nodes without a number (`GLIBC_PRIVATE`, `CXXABI_FLOAT128`) and weak needs do not count.
    pub fn highest_need(&self, family: &str) -> Option<Dotted> {
        highest(self.version_needs.iter().flat_map(|need| &need.versions), family)
    }

    /// The highest version of a family this file itself provides.
    pub fn highest_definition(&self, family: &str) -> Option<Dotted> {
        highest(self.version_definitions.iter(), family)
    }
}

/// The highest of the version nodes `FAMILY_1.2.3`; the answer is without the family's name.
pub fn highest<'a>(nodes: impl Iterator<Item = &'a String>, family: &str) -> Option<Dotted> {
    nodes
        .filter_map(|node| node.strip_prefix(family)?.strip_prefix('_'))
        .filter(|rest| rest.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
        .filter_map(|rest| rest.parse().ok())
        .max()
}

/// The version nodes needed of one library.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionNeed {
    pub library: String,
    /// The loader refuses to start without these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<String>,
    /// The loader goes on without these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub weak: Vec<String>,
}

/// How much is missing of a file that was cut short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Truncated {
    /// Bytes the headers speak of.
    pub expected: u64,
    /// Bytes there are.
    pub actual: u64,
    /// Whether a loadable segment is hurt: such a file dies with SIGBUS or is refused. Otherwise only the section table is gone,
    /// which the loader never reads.
    pub segments: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ElfKind {
    Relocatable,
    Executable,
    /// A library, or a position-independent executable.
    Shared,
    Core,
    #[default]
    Other,
}

/// `e_machine`, written by name where the name matters here: `x86-64`, `aarch64`, otherwise `em-<number>`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Machine(pub u16);

impl Machine {
    pub const X86: Self = Self(3);
    pub const PPC64: Self = Self(21);
    pub const S390: Self = Self(22);
    pub const ARM: Self = Self(40);
    pub const X86_64: Self = Self(62);
    pub const AARCH64: Self = Self(183);
    pub const CUDA: Self = Self(190);
    pub const RISCV: Self = Self(243);

    const NAMES: [(Self, &'static str); 8] = [
        (Self::X86, "x86"),
        (Self::PPC64, "ppc64"),
        (Self::S390, "s390"),
        (Self::ARM, "arm"),
        (Self::X86_64, "x86-64"),
        (Self::AARCH64, "aarch64"),
        (Self::CUDA, "cuda"),
        (Self::RISCV, "riscv"),
    ];
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Self::NAMES.iter().find(|(machine, _)| machine == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "em-{}", self.0),
        }
    }
}

impl Serialize for Machine {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Machine {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let named = Self::NAMES.iter().find(|(_, name)| *name == text).map(|(machine, _)| *machine);
        named
            .or_else(|| text.strip_prefix("em-")?.parse().ok().map(Self))
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}` is not an ELF machine")))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn machines_survive_json() {
        for machine in [Machine::X86_64, Machine::AARCH64, Machine(7777)] {
            let text = serde_json::to_string(&machine).unwrap();
            assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine, "{text}");
        }
        assert!(serde_json::from_str::<Machine>("\"vax\"").is_err());
    }

    #[test]
    fn the_highest_node_counts_numbers() {
        let nodes: Vec<String> =
            ["GLIBC_2.9", "GLIBC_2.17", "GLIBC_PRIVATE", "GLIBC_ABI_DT_RELR", "GLIBCXX_3.4.30"].map(str::to_owned).into();
        assert_eq!(highest(nodes.iter(), "GLIBC").unwrap().text, "2.17");
        assert_eq!(highest(nodes.iter(), "GLIBCXX").unwrap().text, "3.4.30");
        assert_eq!(highest(nodes.iter(), "CXXABI"), None);
    }
}
