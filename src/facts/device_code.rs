//! The device code in a binary: for which targets, in how many containers, in which form.
//!
//! nvcc puts one container (a "fat binary") into an object for each source it compiles; a library holds those of all its objects. A
//! target serves the whole library only where every container has it: one kernel compiled for one more GPU adds a target, not a GPU on
//! which the library runs.

use crate::version::{Isa, NotAVersion, Suffix, Target, serde_as_text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The form of a piece of device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Machine code: a cubin.
    Sass,
    /// Text that the driver compiles when it is loaded.
    Ptx,
    /// An intermediate form for the device linker (`-dlto`); no driver runs it.
    Lto,
    /// A kind that this release does not know, by its number.
    Other(u16),
}

impl fmt::Display for Kind {
    /// As in the names of targets: `sm`, `compute`, `lto`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sass => f.write_str("sm"),
            Self::Ptx => f.write_str("compute"),
            Self::Lto => f.write_str("lto"),
            Self::Other(number) => write!(f, "kind{number}"),
        }
    }
}

/// What a piece of device code is and for which GPUs: `sm_90a`, `compute_120f`. SASS comes before PTX, each in ascending order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CodeTarget {
    pub kind: Kind,
    pub target: Target,
}

impl CodeTarget {
    pub const fn new(kind: Kind, target: Target) -> Self {
        Self { kind, target }
    }

    pub const fn sass(target: Target) -> Self {
        Self::new(Kind::Sass, target)
    }

    pub const fn ptx(target: Target) -> Self {
        Self::new(Kind::Ptx, target)
    }
}

impl fmt::Display for CodeTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}", self.kind, self.target.capability.sm())?;
        self.target.suffix.map_or(Ok(()), |suffix: Suffix| write!(f, "{}", suffix.letter()))
    }
}

impl FromStr for CodeTarget {
    type Err = NotAVersion;
    fn from_str(text: &str) -> Result<Self, NotAVersion> {
        let refused = || NotAVersion { text: text.to_owned(), wanted: "a target of device code" };
        let (kind, number) = text.split_once('_').ok_or_else(refused)?;
        let kind = match kind {
            "sm" => Kind::Sass,
            "compute" => Kind::Ptx,
            "lto" => Kind::Lto,
            other => Kind::Other(other.strip_prefix("kind").and_then(|n| n.parse().ok()).ok_or_else(refused)?),
        };
        match number.parse() {
            Ok(target) if number.starts_with(|c: char| c.is_ascii_digit()) => Ok(Self { kind, target }),
            _ => Err(refused()),
        }
    }
}

serde_as_text!(CodeTarget);

/// What a file, or several, hold for one target.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetUse {
    /// Containers that have it, of those that [`DeviceCode::containers_for`] counts for its kind.
    pub containers: u64,
    /// Cubins, or PTX texts, wherever they lie.
    pub entries: u64,
    /// Bytes in the file. Entries that are packed together (CUDA 13.4 and later, `--concat`) count in [`DeviceCode::stored`] alone.
    pub stored: u64,
    /// Bytes when unpacked.
    pub unpacked: u64,
    /// The highest version among the PTX of this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isa: Option<Isa>,
}

/// What becomes of a container when the binary is loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The driver loads it as it is.
    Whole,
    /// The result of a device link (`-rdc=true`): machine code only.
    Linked,
    /// What a device link was made from. The driver links it anew where the result has nothing for the GPU.
    Prelinked,
}

/// Containers with the same role and the same targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerGroup {
    pub role: Role,
    /// Ascending, each once.
    pub targets: Vec<CodeTarget>,
    /// The highest version among their PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub isa: Option<Isa>,
    pub containers: u64,
}

/// The device code of a file, or of several together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceCode {
    /// Every target there is, the rare ones too.
    pub targets: BTreeMap<CodeTarget, TargetUse>,
    /// The containers by what is in them, in descending order of number.
    pub groups: Vec<ContainerGroup>,
    /// Entries in all: cubins, PTX texts and others.
    pub entries: u64,
    /// Those of them that are stored compressed.
    pub compressed: u64,
    /// Containers of relocatable code (section `__nv_relfatbin`), whatever their role.
    pub relocatable: u64,
    /// Containers without a kernel that nvcc's own link step adds. They are counted nowhere else but in the entries of their targets.
    pub stubs: u64,
    /// Bytes of all entries in the file.
    pub stored: u64,
    /// Bytes of all entries unpacked.
    pub unpacked: u64,
}

impl DeviceCode {
    /// Containers with device code.
    pub fn containers(&self) -> u64 {
        self.groups.iter().map(|group| group.containers).sum()
    }

    /// The containers in which code of this kind is expected: a device link leaves machine code, and PTX stays in what it was made from.
    pub fn containers_for(&self, kind: Kind) -> u64 {
        self.groups.iter().filter(|group| counts(group.role, kind)).map(|group| group.containers).sum()
    }

    /// Whether every container in which code of its kind is expected has the target.
    pub fn is_listed(&self, target: CodeTarget) -> bool {
        let all = self.containers_for(target.kind);
        all > 0 && self.targets.get(&target).is_some_and(|held| held.containers == all)
    }

    /// The targets that every container has, ascending.
    pub fn listed(&self) -> impl Iterator<Item = (CodeTarget, &TargetUse)> {
        self.targets.iter().map(|(target, held)| (*target, held)).filter(|(target, _)| self.is_listed(*target))
    }

    /// The other targets: their [`TargetUse::containers`] against [`DeviceCode::containers_for`] say how far they go.
    pub fn partial(&self) -> impl Iterator<Item = (CodeTarget, &TargetUse)> {
        self.targets.iter().map(|(target, held)| (*target, held)).filter(|(target, _)| !self.is_listed(*target))
    }

    /// The highest version of PTX.
    pub fn isa(&self) -> Option<Isa> {
        self.targets.values().filter_map(|held| held.isa).max()
    }

    /// Adds the containers of these groups: to their like, and to their targets.
    pub fn add_groups(&mut self, groups: impl IntoIterator<Item = ContainerGroup>) {
        for group in groups {
            self.add_group(group);
        }
        self.groups.sort_by(|a, b| b.containers.cmp(&a.containers).then_with(|| a.targets.cmp(&b.targets)));
    }

    fn add_group(&mut self, group: ContainerGroup) {
        for target in &group.targets {
            if counts(group.role, target.kind) {
                self.targets.entry(*target).or_default().containers += group.containers;
            }
        }
        match self.groups.iter_mut().find(|known| (known.role, known.isa, &known.targets) == (group.role, group.isa, &group.targets)) {
            Some(known) => known.containers += group.containers,
            None => self.groups.push(group),
        }
    }

    /// Adds what another file holds.
    pub fn absorb(&mut self, other: &Self) {
        for (target, held) in &other.targets {
            let own = self.targets.entry(*target).or_default();
            // Its containers come with the groups.
            own.entries += held.entries;
            own.stored += held.stored;
            own.unpacked += held.unpacked;
            own.isa = own.isa.max(held.isa);
        }
        self.add_groups(other.groups.iter().cloned());
        self.entries += other.entries;
        self.compressed += other.compressed;
        self.relocatable += other.relocatable;
        self.stubs += other.stubs;
        self.stored += other.stored;
        self.unpacked += other.unpacked;
    }
}

fn counts(role: Role, kind: Kind) -> bool {
    match role {
        Role::Whole => true,
        Role::Linked => kind == Kind::Sass,
        Role::Prelinked => kind != Kind::Sass,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<CodeTarget> {
        text.split(' ').map(|word| word.parse().unwrap()).collect()
    }

    fn group(role: Role, text: &str, containers: u64) -> ContainerGroup {
        ContainerGroup { role, targets: targets(text), isa: None, containers }
    }

    #[test]
    fn targets_are_written_as_nvcc_writes_them() {
        for text in ["sm_90a", "compute_120f", "lto_90", "kind64_100", "sm_35"] {
            assert_eq!(text.parse::<CodeTarget>().unwrap().to_string(), text);
        }
        for bad in ["sm90", "sm_", "cm_90", "kind_90", "sm_x", "sm_sm_90", "kind70000_90"] {
            assert!(bad.parse::<CodeTarget>().is_err(), "{bad}");
        }
        let mut all = targets("compute_80 sm_120 lto_70 sm_90a sm_90 compute_75");
        all.sort_unstable();
        assert_eq!(all, targets("sm_90 sm_90a sm_120 compute_75 compute_80 lto_70"));
    }

    #[test]
    fn a_target_is_listed_where_every_container_has_it() {
        let mut code = DeviceCode::default();
        code.add_groups([group(Role::Whole, "sm_80 sm_90 compute_90", 440), group(Role::Whole, "sm_80 sm_90 sm_103 compute_90", 4)]);
        let words = |of: Vec<(CodeTarget, &TargetUse)>| of.iter().map(|(t, held)| format!("{t} {}", held.containers)).collect::<Vec<_>>();
        assert_eq!(words(code.listed().collect()), ["sm_80 444", "sm_90 444", "compute_90 444"]);
        assert_eq!(words(code.partial().collect()), ["sm_103 4"]);
        assert_eq!(code.containers(), 444);
    }

    #[test]
    fn a_device_link_divides_the_work() {
        let mut code = DeviceCode::default();
        code.add_groups([group(Role::Linked, "sm_80 sm_90", 1), group(Role::Prelinked, "sm_80 sm_90 compute_90", 2)]);
        let listed: Vec<_> = code.listed().map(|(target, held)| (target.to_string(), held.containers)).collect();
        assert_eq!(listed, [("sm_80".to_owned(), 1), ("sm_90".to_owned(), 1), ("compute_90".to_owned(), 2)]);
    }

    #[test]
    fn files_add_up() {
        let mut one = DeviceCode { entries: 3, stored: 10, ..DeviceCode::default() };
        one.add_groups([group(Role::Whole, "sm_80 sm_90", 2)]);
        let mut other = DeviceCode { entries: 1, stored: 5, ..DeviceCode::default() };
        other.add_groups([group(Role::Whole, "sm_90", 1)]);
        one.absorb(&other);
        assert_eq!((one.entries, one.stored, one.containers()), (4, 15, 3));
        assert_eq!(one.listed().map(|(target, _)| target.to_string()).collect::<Vec<_>>(), ["sm_90"]);
        let json = serde_json::to_string(&one).unwrap();
        assert_eq!(serde_json::from_str::<DeviceCode>(&json).unwrap(), one, "{json}");
        assert!(json.contains(r#""sm_90":{"containers":3"#), "{json}");
    }
}
