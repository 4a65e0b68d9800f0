//! What a file says of itself when it is looked into: a library, an object, an archive of objects, device code, a wheel with all of these.

use super::device_code::DeviceCode;
use super::elf::ElfFacts;
use super::observed::Observed;
use super::raw::HostPath;
use super::torch::InstalledOps;
use crate::version::Dotted;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::fmt;

/// One path that was looked into.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Inspected {
    Binary(Box<Binary>),
    Wheel(Box<Wheel>),
}

impl Inspected {
    pub fn path(&self) -> &HostPath {
        match self {
            Self::Binary(binary) => &binary.path,
            Self::Wheel(wheel) => &wheel.path,
        }
    }

    /// The file itself, or those of the wheel.
    pub fn binaries(&self) -> &[Binary] {
        match self {
            Self::Binary(binary) => std::slice::from_ref(binary),
            Self::Wheel(wheel) => &wheel.binaries,
        }
    }
}

/// A file that the loader, the linker or the CUDA driver takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Binary {
    /// The file; of a member the wheel.
    pub path: HostPath,
    /// The name inside the wheel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Bytes.
    pub size: u64,
    pub form: Form,
    /// Absent for archives and bare fat binaries.
    #[serde(default)]
    pub elf: Observed<ElfFacts>,
    /// `strip` has taken the symbol table; none where that cannot be told.
    #[serde(default)]
    pub stripped: Option<bool>,
    /// `cpython-311-x86_64-linux-gnu`, `abi3`: from the file's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// It has the entry point of a Python module of its name.
    #[serde(default)]
    pub module: bool,
    /// Absent: it was read, and there is none.
    #[serde(default)]
    pub device_code: Observed<DeviceCode>,
    /// The dynamic symbols that it wants from others. Absent for what the loader does not load.
    #[serde(default)]
    pub imports: Observed<Vec<Wanted>>,
    /// Fingerprints of what a member offers to others; files on disk are asked themselves.
    #[serde(skip)]
    pub exports: HashSet<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Wanted {
    pub name: String,
    /// The loader goes on without it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub weak: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    Library,
    Executable,
    Object,
    /// A static library.
    Archive,
    Cubin,
    /// A bare fat binary, as nvcc's `-fatbin` writes it.
    Fatbin,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Library => "shared library",
            Self::Executable => "executable",
            Self::Object => "object file",
            Self::Archive => "static library",
            Self::Cubin => "cubin",
            Self::Fatbin => "fat binary",
        })
    }
}

impl Binary {
    /// The name that people know it by: the member, or the path.
    pub fn name(&self) -> String {
        self.member.clone().unwrap_or_else(|| self.path.to_string())
    }

    /// The last part of the name.
    pub fn file_name(&self) -> String {
        let name = self.name();
        name.rsplit('/').next().unwrap_or(&name).to_owned()
    }

    /// The loader takes it: a library or an executable.
    pub fn is_loaded(&self) -> bool {
        matches!(self.form, Form::Library | Form::Executable)
    }
}

/// A wheel, or another zip file with binaries in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Wheel {
    pub path: HostPath,
    /// Bytes.
    pub size: u64,
    /// Members, and their bytes unpacked.
    pub files: usize,
    pub unpacked: u64,
    /// What the name says; none for a file whose name is not a wheel's.
    #[serde(default)]
    pub name: Option<WheelName>,
    /// From METADATA.
    #[serde(default)]
    pub metadata: Observed<Metadata>,
    /// The tags of the WHEEL file: `cp311-cp311-manylinux_2_28_x86_64`.
    #[serde(default)]
    pub tags: Vec<String>,
    /// Names of RECORD that the wheel does not hold, and members that RECORD does not name; at most a few of each.
    #[serde(default)]
    pub record: Observed<Record>,
    /// What DeepSpeed's setup.py wrote down.
    #[serde(default)]
    pub built: Observed<InstalledOps>,
    #[serde(default)]
    pub binaries: Vec<Binary>,
}

/// Source of the form: PyPA, binary distribution format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WheelName {
    pub distribution: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// `cp311`, `py3`
    pub python: Vec<String>,
    /// `cp311`, `abi3`, `none`
    pub abi: Vec<String>,
    /// `manylinux_2_28_x86_64`, `linux_x86_64`, `any`
    pub platform: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metadata {
    pub name: String,
    pub version: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub requires: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Named, and not there.
    pub missing: Vec<String>,
    /// There, and not named.
    pub unlisted: Vec<String>,
}

impl WheelName {
    /// Of a file name; `None` where it is not one of a wheel.
    pub fn parse(file: &str) -> Option<Self> {
        let parts: Vec<&str> = file.strip_suffix(".whl")?.split('-').collect();
        let (distribution, version, build, tags) = match parts.as_slice() {
            [distribution, version, tags @ ..] if tags.len() == 3 => (distribution, version, None, tags),
            [distribution, version, build, tags @ ..] if tags.len() == 3 => (distribution, version, Some(*build), tags),
            _ => return None,
        };
        let [python, abi, platform] = tags else { return None };
        let list = |text: &str| text.split('.').map(str::to_owned).collect::<Vec<_>>();
        Some(Self {
            distribution: (*distribution).to_owned(),
            version: (*version).to_owned(),
            build: build.map(str::to_owned),
            python: list(python),
            abi: list(abi),
            platform: list(platform),
        })
    }

    /// The glibc that the platform tags ask for at least: the lowest, since pip takes the wheel where any tag fits. `None`: no tag names one.
    pub fn glibc(&self) -> Option<Dotted> {
        if !self.platform.iter().all(|tag| tag.starts_with("manylinux")) {
            return None;
        }
        self.platform.iter().filter_map(|tag| manylinux(tag)).min()
    }
}

/// Source: PEP 513, 571, 599 and 600.
fn manylinux(tag: &str) -> Option<Dotted> {
    let rest = tag.strip_prefix("manylinux")?;
    for (old, glibc) in [("1_", "2.5"), ("2010_", "2.12"), ("2014_", "2.17")] {
        if rest.starts_with(old) {
            return glibc.parse().ok();
        }
    }
    let mut numbers = rest.strip_prefix('_')?.splitn(3, '_');
    let (major, minor) = (numbers.next()?, numbers.next()?);
    format!("{major}.{minor}").parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn names_of_wheels() {
        let name = WheelName::parse("flash_attn-2.7.4.post1+cu12torch2.6cxx11abiFALSE-cp311-cp311-linux_x86_64.whl").unwrap();
        assert_eq!((name.version.as_str(), name.python.as_slice()), ("2.7.4.post1+cu12torch2.6cxx11abiFALSE", &["cp311".to_owned()][..]));
        assert_eq!(name.glibc(), None);
        let name = WheelName::parse("ninja-1.13.2-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl").unwrap();
        assert_eq!(name.glibc().unwrap().text, "2.17");
        assert_eq!(WheelName::parse("torch-2.11.0-1-cp311-cp311-manylinux_2_28_x86_64.whl").unwrap().build.as_deref(), Some("1"));
        for bad in ["torch.whl", "torch-2.zip", "a-b-c-d.whl", "a-1-b-c-d-e-f.whl", ""] {
            assert_eq!(WheelName::parse(bad), None, "{bad}");
        }
    }
}
