//! GPUs by name, by PCI id, and what code runs on them.

use super::Knowledge;
use super::near::edits;
use super::schema::gpus::{Arch, Gpu};
use super::schema::{PciDevice, Str};
use crate::version::{Capability, CudaVersion, Suffix, Target};

/// What a name stands for.
#[derive(Debug, Clone, PartialEq)]
pub enum GpuMatch {
    /// One capability, under the name as the tables write it.
    One { name: Str, capability: Capability },
    /// Products of different capabilities have this name; the note says which.
    Several { capabilities: Vec<Capability>, note: Str },
    /// No such product is known; names like it, the nearest first, perhaps none.
    Unknown { near: Vec<Str> },
}

/// How well a PCI device id is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PciMatch<'a> {
    /// The id of this product.
    Product(&'a Gpu),
    /// An id among those of chips with this capability; the product is not known.
    Chip(Capability),
}

impl PciMatch<'_> {
    pub fn capability(&self) -> Capability {
        match self {
            Self::Product(gpu) => gpu.cc,
            Self::Chip(capability) => *capability,
        }
    }
}

/// Words of a product name that say nothing about the chip.
const BRANDS: [&str; 5] = ["nvidia", "geforce", "tesla", "quadro", "grid"];

/// How many near names are worth showing.
const NEAR: usize = 5;

impl Knowledge {
    /// What a product name stands for: as the driver prints it, or as people type it. Counts (`h100*8`) and capabilities (`9.0`) are not
    /// names.
    pub fn gpu(&self, text: &str) -> GpuMatch {
        let asked = Name::of(text);
        if asked.bare.is_empty() {
            return GpuMatch::Unknown { near: Vec::new() };
        }
        if let Some(found) = agree(self.gpus.gpu.iter().filter(|gpu| letters(&gpu.name).eq(asked.full.chars()))) {
            return found;
        }
        if let Some(row) = self.gpus.ambiguous.iter().find(|row| asked.is(&row.text)) {
            return GpuMatch::Several { capabilities: row.ccs.to_vec(), note: row.note.clone() };
        }
        if let Some(row) = self.gpus.alias.iter().find(|row| asked.is(&row.alias)) {
            return GpuMatch::One { name: row.alias.clone(), capability: row.cc };
        }
        let rows: Vec<(&Gpu, Vec<String>)> = self.gpus.gpu.iter().map(|gpu| (gpu, Name::of(&gpu.name).bare)).collect();
        if let Some(found) = agree(rows.iter().filter(|(_, bare)| *bare == asked.bare).map(|(gpu, _)| *gpu)) {
            return found;
        }
        // `H100 80GB` is no product, but all products that begin so are of one capability.
        if asked.bare.iter().any(|word| word.bytes().any(|b| b.is_ascii_digit()))
            && let Some(found @ GpuMatch::One { .. }) =
                agree(rows.iter().filter(|(_, bare)| bare.starts_with(&asked.bare)).map(|(gpu, _)| *gpu))
        {
            return found;
        }
        self.part_of_gpu(text).unwrap_or_else(|| GpuMatch::Unknown { near: self.near_gpus(&asked) })
    }

    /// A slice (`NVIDIA A100-SXM4-40GB MIG 1g.5gb`) or a virtual GPU (`GRID A100-40C`).
    fn part_of_gpu(&self, text: &str) -> Option<GpuMatch> {
        let lower = text.trim().to_ascii_lowercase();
        if let Some((whole, _)) = lower.split_once(" mig ") {
            return Some(self.gpu(whole)).filter(|found| !matches!(found, GpuMatch::Unknown { .. }));
        }
        let rest = ["nvidia ", "grid "].iter().find_map(|brand| lower.strip_prefix(brand))?;
        let profile_of = |base: &str| rest.strip_prefix(&base.to_ascii_lowercase())?.strip_prefix(['-', ' ']);
        let is_profile = |profile: &str| profile.starts_with(|c: char| c.is_ascii_digit());
        let row = self.gpus.virtual_gpu.iter().find(|row| profile_of(&row.base).is_some_and(is_profile))?;
        Some(GpuMatch::One { name: row.base.clone(), capability: row.cc })
    }

    fn near_gpus(&self, asked: &Name) -> Vec<Str> {
        let asked = asked.bare.concat();
        // Of two spellings the one that people type.
        let names = self.gpus.alias.iter().map(|row| &row.alias).chain(self.gpus.gpu.iter().map(|row| &row.name));
        let mut near: Vec<(bool, usize, String, Str)> = Vec::new();
        for name in names {
            let bare = Name::of(name).bare.concat();
            let apart = if asked.len() >= 3 && (bare.contains(&asked) || asked.contains(&bare)) {
                bare.len().abs_diff(asked.len()).min(3)
            } else {
                edits(&asked, &bare)
            };
            if (apart <= 2 || (apart == 3 && bare.len() > 6)) && near.iter().all(|(_, _, known, _)| *known != bare) {
                // A name that goes on where the word ends is likelier meant than one with another letter in it.
                let begins = asked.len() > 1 && (bare.starts_with(&asked) || asked.starts_with(&bare));
                near.push((!begins, apart, bare, name.clone()));
            }
        }
        near.sort_by(|a, b| (a.0, a.1, a.2.len(), &a.2).cmp(&(b.0, b.1, b.2.len(), &b.2)));
        near.into_iter().map(|(.., name)| name).take(NEAR).collect()
    }

    /// The capability that a text names (`9.0`, `sm_90`, `90`). Bare digits count only where the tables know such a capability, so that
    /// `750`, half a product name, is none.
    pub fn capability(&self, text: &str) -> Option<Capability> {
        let capability: Capability = text.parse().ok()?;
        let bare = text.trim().bytes().all(|b| b.is_ascii_digit());
        (!bare || self.arch(capability).is_some()).then_some(capability)
    }

    /// What a GPU on the bus is, by NVIDIA's device id, where no driver says it.
    pub fn gpu_by_pci(&self, device: u16) -> Option<PciMatch<'_>> {
        let id = PciDevice(device);
        if let Some(gpu) = self.gpus.gpu.iter().find(|gpu| gpu.pci == Some(id)) {
            return Some(PciMatch::Product(gpu));
        }
        self.gpus.pci_range.iter().find(|range| range.from <= id && id <= range.to).map(|range| PciMatch::Chip(range.cc))
    }

    /// What is known of a capability.
    pub fn arch(&self, capability: Capability) -> Option<&Arch> {
        self.gpus.arch.iter().find(|arch| arch.cc == capability)
    }

    /// The capability by which a toolkit calls the chip: Thor is 10.1 for CUDA 12.8 and 12.9, and 11.0 from 13.0 on.
    pub fn capability_for(&self, device: Capability, cuda: CudaVersion) -> Capability {
        let same_chip =
            self.gpus.arch.iter().find(|arch| arch.renamed_to == Some(device) && arch.last_cuda.is_some_and(|last| cuda <= last));
        match same_chip {
            Some(old) => old.cc,
            None => self
                .arch(device)
                .filter(|arch| arch.last_cuda.is_some_and(|last| cuda > last))
                .and_then(|arch| arch.renamed_to)
                .unwrap_or(device),
        }
    }

    /// Whether SASS for `code` runs on `device`. `cuda` is the release that compiled it (`None`: not known; the exceptions then hold).
    ///
    /// By the rule for capabilities that no table knows: the same major, a minor not below; with the suffix `a` the very same.
    pub fn runs_on(&self, code: Target, device: Capability, cuda: Option<CudaVersion>) -> bool {
        let made_for = code.capability;
        let by_rule = made_for.major == device.major && made_for.minor <= device.minor;
        match code.suffix {
            Some(Suffix::Specific) => made_for == device || self.renamed(made_for, device),
            Some(Suffix::Family) => match self.gpus.family.iter().find(|row| row.target == code) {
                Some(row) => row.runs_on.contains(&device),
                None => by_rule,
            },
            None => match self.gpus.runs_on.iter().find(|row| row.code == made_for) {
                Some(row) if !row.only.is_empty() => row.only.contains(&device),
                Some(row) => {
                    by_rule && (!row.not.contains(&device) || matches!((cuda, row.lifted_in), (Some(by), Some(lifted)) if by >= lifted))
                }
                None => by_rule,
            },
        }
    }

    /// Whether a driver can compile PTX for `code` for `device`: any device that is not older; with a suffix the very same, or the family.
    pub fn ptx_serves(&self, code: Target, device: Capability) -> bool {
        match code.suffix {
            None => code.capability <= device,
            Some(_) => self.runs_on(code, device, None),
        }
    }

    fn renamed(&self, one: Capability, other: Capability) -> bool {
        let from = |a: Capability, b: Capability| self.arch(a).is_some_and(|arch| arch.renamed_to == Some(b));
        from(one, other) || from(other, one)
    }
}

/// A name in the forms that are compared.
struct Name {
    /// Without the maker: letters and digits only.
    full: String,
    /// The words without maker and brands.
    bare: Vec<String>,
}

impl Name {
    fn of(text: &str) -> Self {
        let lower = text.to_lowercase();
        let words: Vec<&str> = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).collect();
        let full = letters(text).collect();
        let bare = words.iter().filter(|word| !BRANDS.contains(word)).map(|word| (*word).to_owned()).collect();
        Self { full, bare }
    }

    fn is(&self, other: &str) -> bool {
        letters(other).eq(self.full.chars()) || letters(other).eq(self.bare.iter().flat_map(|word| word.chars()))
    }
}

/// A name's letters and digits in lower case, without the maker in front.
fn letters(name: &str) -> impl Iterator<Item = char> {
    let name = name.trim();
    let bare = match name.get(..7) {
        Some(maker) if maker.eq_ignore_ascii_case("nvidia ") => name.get(7..).unwrap_or_default(),
        _ => name,
    };
    bare.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase)
}

/// One answer from several rows: their capability where they agree.
fn agree<'a>(rows: impl Iterator<Item = &'a Gpu>) -> Option<GpuMatch> {
    let rows: Vec<&Gpu> = rows.collect();
    let first = rows.first()?;
    let mut capabilities: Vec<Capability> = rows.iter().flat_map(|gpu| std::iter::once(gpu.cc).chain(gpu.also.iter().copied())).collect();
    capabilities.sort();
    capabilities.dedup();
    match capabilities.as_slice() {
        [capability] => Some(GpuMatch::One { name: first.name.clone(), capability: *capability }),
        _ => Some(GpuMatch::Several { note: format!("products of different chips are called {}", first.name).into(), capabilities }),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn cc(text: &str) -> Capability {
        text.parse().unwrap()
    }

    fn one(text: &str) -> String {
        match Knowledge::embedded().gpu(text) {
            GpuMatch::One { capability, .. } => capability.to_string(),
            other => panic!("{text}: {other:?}"),
        }
    }

    fn runs(code: &str, device: &str, cuda: Option<&str>) -> bool {
        Knowledge::embedded().runs_on(code.parse().unwrap(), cc(device), cuda.map(|c| c.parse().unwrap()))
    }

    #[test]
    fn names_people_type() {
        for (text, capability) in [
            ("a100", "8.0"),
            ("A100-80G", "8.0"),
            ("4090", "8.9"),
            ("rtx4090", "8.9"),
            ("RTX 4090", "8.9"),
            ("h100", "9.0"),
            ("H100 80GB", "9.0"),
            ("v100_sxm2", "7.0"),
            ("1080", "6.1"),
            ("thor", "11.0"),
            ("gb10", "12.1"),
            ("gb200", "10.0"),
            ("b300", "10.3"),
            ("k80", "3.7"),
        ] {
            assert_eq!(one(text), capability, "{text}");
        }
    }

    #[test]
    fn names_the_driver_prints() {
        for (text, capability) in [
            ("NVIDIA A100-SXM4-80GB", "8.0"),
            ("GeForce RTX 3090", "8.6"),
            ("NVIDIA GeForce RTX 3050 A Laptop GPU", "8.9"),
            ("Tesla T4", "7.5"),
            ("Quadro RTX 6000", "7.5"),
            ("NVIDIA RTX 6000 Ada Generation", "8.9"),
            ("NVIDIA TITAN X (Pascal)", "6.1"),
            ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "8.0"),
            ("GRID A100-40C", "8.0"),
            ("NVIDIA A40-48Q", "8.6"),
            ("NVIDIA RTX6000-Ada-48Q", "8.9"),
            ("GRID RTX6000-24Q", "7.5"),
        ] {
            assert_eq!(one(text), capability, "{text}");
        }
    }

    #[test]
    fn names_that_mean_two_things() {
        let all = Knowledge::embedded();
        for (text, capabilities) in
            [("rtx 6000", "7.5 8.9 12.0"), ("NVIDIA RTX 6000", "7.5 8.9 12.0"), ("titan x", "5.2 6.1"), ("GeForce GTX 750", "5.0 5.2")]
        {
            let GpuMatch::Several { capabilities: found, .. } = all.gpu(text) else { panic!("{text}: {:?}", all.gpu(text)) };
            let found: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found.join(" "), capabilities, "{text}");
        }
    }

    #[test]
    fn names_nobody_knows() {
        let all = Knowledge::embedded();
        let near = |text: &str| match all.gpu(text) {
            GpuMatch::Unknown { near } => near,
            other => panic!("{text}: {other:?}"),
        };
        assert!(near("h100*8").iter().any(|name| name == "h100"), "{:?}", near("h100*8"));
        assert!(near("a1000x").iter().any(|name| name == "a1000"), "{:?}", near("a1000x"));
        assert_eq!(near("h10").first().map(AsRef::as_ref), Some("h100"), "{:?}", near("h10"));
        for text in ["h10", "b20", "409", "h100x"] {
            let spelled: Vec<String> = near(text).iter().map(|name| Name::of(name).bare.concat()).collect();
            let once: std::collections::BTreeSet<&String> = spelled.iter().collect();
            assert_eq!(once.len(), spelled.len(), "{spelled:?}");
        }
        assert!(near("4091").iter().any(|name| name == "4090"), "{:?}", near("4091"));
        for text in ["", " ", "nvidia", "geforce", "😀", "🎮🎮🎮🎮🎮🎮🎮", "Radeon RX 7900 XTX", "zzzzzzzzzzzzzz", "9.0"] {
            assert!(near(text).len() <= NEAR, "{text}");
        }
        assert_eq!(near("nvidia"), [""; 0]);
        assert_eq!(near("zzzzzzzzzzzzzz"), [""; 0]);
    }

    #[test]
    fn every_name_and_alias_is_found() {
        let all = Knowledge::embedded();
        for gpu in all.gpus.gpu.iter().filter(|gpu| gpu.also.is_empty()) {
            assert_eq!(one(&gpu.name), gpu.cc.to_string(), "{}", gpu.name);
        }
        for alias in all.gpus.alias.iter() {
            assert_eq!(one(&alias.alias), alias.cc.to_string(), "{}", alias.alias);
        }
    }

    #[test]
    fn capabilities_are_not_half_names() {
        let all = Knowledge::embedded();
        assert_eq!(all.capability("9.0"), Some(cc("9.0")));
        assert_eq!(all.capability("sm_150"), Some(Capability::new(15, 0)));
        assert_eq!(all.capability("120"), Some(cc("12.0")));
        assert_eq!(all.capability("750"), None);
        assert_eq!(all.capability("4090"), None);
        assert_eq!(all.capability("9.0a"), None);
    }

    #[test]
    fn pci_ids() {
        let all = Knowledge::embedded();
        assert!(matches!(all.gpu_by_pci(0x20b5), Some(PciMatch::Product(gpu)) if gpu.name == "NVIDIA A100 80GB PCIe"));
        assert_eq!(all.gpu_by_pci(0x2336), Some(PciMatch::Chip(cc("9.0"))));
        assert_eq!(all.gpu_by_pci(0xffff), None);
    }

    #[test]
    fn where_sass_runs() {
        assert!(runs("8.0", "8.6", None));
        assert!(runs("8.6", "8.9", None));
        assert!(!runs("8.9", "8.6", None));
        assert!(!runs("8.0", "9.0", None));
        assert!(!runs("8.6", "8.7", None));
        assert!(!runs("8.6", "8.7", Some("13.1")));
        assert!(runs("8.6", "8.7", Some("13.2")));
        assert!(!runs("6.0", "6.2", Some("13.2")));
        assert!(!runs("8.7", "8.9", Some("13.2")));
        assert!(runs("10.0", "10.7", None));
        assert!(!runs("10.0", "10.1", None));
        assert!(runs("10.1", "11.0", None) && runs("11.0", "10.1", None));
        assert!(!runs("12.0", "10.0", None));
        assert!(runs("9.0a", "9.0", None));
        assert!(!runs("10.0a", "10.3", None));
        assert!(runs("10.0f", "10.3", None));
        assert!(!runs("10.3f", "10.0", None));
        assert!(runs("12.0f", "12.1", None));
        assert!(runs("15.0", "15.2", None), "a capability that no table knows goes by the rule");
        assert!(!runs("15.0", "16.0", None));
    }

    #[test]
    fn where_ptx_serves() {
        let all = Knowledge::embedded();
        let serves = |code: &str, device: &str| all.ptx_serves(code.parse().unwrap(), cc(device));
        assert!(serves("8.0", "12.0"));
        assert!(!serves("9.0", "8.9"));
        assert!(!serves("9.0a", "10.0"));
        assert!(serves("10.0f", "10.3"));
        assert!(!serves("10.0f", "12.0"));
    }

    #[test]
    fn thor_under_its_two_names() {
        let all = Knowledge::embedded();
        let called = |device: &str, cuda: &str| all.capability_for(cc(device), cuda.parse().unwrap()).to_string();
        assert_eq!(called("11.0", "12.9"), "10.1");
        assert_eq!(called("11.0", "13.0"), "11.0");
        assert_eq!(called("10.1", "13.0"), "11.0");
        assert_eq!(called("8.6", "11.8"), "8.6");
        assert_eq!(called("7.0", "13.0"), "7.0");
    }

    #[test]
    fn arch_rows_agree_with_the_toolkits() {
        let all = Knowledge::embedded();
        let oldest = all.cuda.toolkit.first().unwrap().cuda;
        for arch in all.gpus.arch.iter() {
            let (first, last) = all.toolkits_for(arch.cc).unwrap_or_else(|| panic!("{}: in no toolkit", arch.cc));
            assert!(arch.first_cuda == first || (arch.first_cuda < oldest && first == oldest), "{}: {first}", arch.cc);
            assert_eq!(arch.last_cuda, last, "{}", arch.cc);
        }
    }
}
