//! From the containers of one file to its device code.

use super::entry::Entry;
use super::places::{Places, Wrapper};
use super::{FatbinError, MOST_ENTRIES, Result};
use crate::facts::device_code::{CodeTarget, ContainerGroup, DeviceCode, Kind, Role};
use crate::version::Isa;
use std::collections::{BTreeMap, BTreeSet};

/// The most different sets of targets that the containers of one file may have. torch's largest library has some dozen.
const MOST_CONTENTS: usize = 4096;

/// Collects what one file holds.
#[derive(Debug, Default)]
pub struct Tally {
    code: DeviceCode,
    /// The different contents of containers, numbered in the order of their appearance.
    contents: BTreeMap<Content, usize>,
    /// Containers of whole-program code: their place in the file, and the number of their content.
    whole: Vec<(u64, usize)>,
    /// How many relocatable containers have a content.
    relocatable: BTreeMap<usize, u64>,
}

#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Content {
    targets: BTreeSet<CodeTarget>,
    isa: Option<Isa>,
}

/// What one container holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub entries: Vec<Entry>,
    /// Bytes in the file of groups, which belong to no single entry.
    pub grouped: u64,
}

impl Tally {
    /// Whether so many entries more are too many.
    pub fn allows(&self, more: usize) -> Result<()> {
        if self.code.entries.saturating_add(more as u64) > MOST_ENTRIES { Err(FatbinError::TooMany) } else { Ok(()) }
    }

    /// Counts the container at `offset` in the file. An empty one counts for nothing.
    pub fn container(&mut self, offset: u64, relocatable: bool, found: &Found) -> Result<()> {
        self.allows(found.entries.len())?;
        self.code.stored = self.code.stored.saturating_add(found.grouped);
        let mut content = Content::default();
        for entry in &found.entries {
            self.entry(entry);
            content.isa = content.isa.max(entry.isa);
            content.targets.insert(entry.target);
        }
        if content.targets.is_empty() {
            return Ok(());
        }
        let next = self.contents.len();
        let number = *self.contents.entry(content).or_insert(next);
        if self.contents.len() > MOST_CONTENTS {
            return Err(FatbinError::TooMany);
        }
        if relocatable {
            self.code.relocatable += 1;
            *self.relocatable.entry(number).or_default() += 1;
        } else {
            self.whole.push((offset, number));
        }
        Ok(())
    }

    fn entry(&mut self, entry: &Entry) {
        self.code.entries += 1;
        self.code.compressed += u64::from(entry.compressed);
        self.code.stored = self.code.stored.saturating_add(entry.stored);
        self.code.unpacked = self.code.unpacked.saturating_add(entry.unpacked);
        let held = self.code.targets.entry(entry.target).or_default();
        held.entries += 1;
        held.stored = held.stored.saturating_add(entry.stored);
        held.unpacked = held.unpacked.saturating_add(entry.unpacked);
        held.isa = held.isa.max(entry.isa);
    }

    /// The whole file is read, and its wrappers say which containers a device link made.
    pub fn finish(mut self, wrappers: &[Wrapper], places: &Places) -> Option<DeviceCode> {
        if self.code.entries == 0 {
            return None;
        }
        let mut contents: Vec<(Content, usize)> = std::mem::take(&mut self.contents).into_iter().collect();
        contents.sort_by_key(|(_, number)| *number);
        let linked = self.linked(wrappers, places, &contents);
        // nvcc's own link step leaves an empty result where there was nothing to link.
        let stubs = self.relocatable.is_empty() && linked.contains(&false);
        let mut counts: BTreeMap<(Role, usize), u64> = BTreeMap::new();
        for ((_, number), linked) in self.whole.iter().zip(&linked) {
            let role = match (linked, stubs) {
                (false, _) => Role::Whole,
                (true, false) => Role::Linked,
                (true, true) => {
                    self.code.stubs += 1;
                    continue;
                }
            };
            *counts.entry((role, *number)).or_default() += 1;
        }
        let role = if linked.contains(&true) { Role::Prelinked } else { Role::Whole };
        for (number, containers) in &self.relocatable {
            *counts.entry((role, *number)).or_default() += containers;
        }
        self.code.add_groups(counts.into_iter().filter_map(|((role, number), containers)| {
            let (content, _) = contents.get(number)?;
            Some(ContainerGroup { role, targets: content.targets.iter().copied().collect(), isa: content.isa, containers })
        }));
        Some(self.code)
    }

    /// Which of the whole-program containers are the result of a device link.
    fn linked(&self, wrappers: &[Wrapper], places: &Places, contents: &[(Content, usize)]) -> Vec<bool> {
        let pointed_at: BTreeSet<u64> = wrappers.iter().filter(|w| w.linked).filter_map(|w| places.container_of(w)).collect();
        // Where the addresses are left to the loader, wrappers still come in the order of their containers.
        let by_order =
            wrappers.iter().all(|w| places.container_of(w).is_none()) && self.relocatable.is_empty() && wrappers.len() == self.whole.len();
        let machine_code_only = |number: usize| contents.get(number).is_some_and(|(c, _)| c.targets.iter().all(|t| t.kind == Kind::Sass));
        let whole = self.whole.iter().enumerate();
        whole
            .map(|(index, (offset, number))| {
                let named = if by_order { wrappers.get(index).is_some_and(|w| w.linked) } else { pointed_at.contains(offset) };
                named && machine_code_only(*number)
            })
            .collect()
    }
}
