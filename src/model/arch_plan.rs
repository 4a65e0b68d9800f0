//! The list to build with: from the GPUs that are asked for, through what the compiler can target and the reader can read.

use crate::knowledge::Knowledge;
use crate::version::{Capability, CudaVersion, Target};
use std::collections::BTreeMap;

/// A GPU (or a whole target) that the list must serve, and who asked for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub capability: Capability,
    /// `NVIDIA H100`, `torch's own list`
    pub from: String,
}

/// What the build can do. `None`: not known, so nothing is held against it.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Plain targets of the compiler.
    pub compiler: Option<Vec<Capability>>,
    pub cuda: Option<CudaVersion>,
    /// Numbers the reader accepts.
    pub reader: Option<Vec<Capability>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ptx {
    None,
    Last,
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Item {
    pub capability: Capability,
    pub ptx: bool,
    pub from: Vec<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// In numeric order, each capability once.
    pub items: Vec<Item>,
    /// Wishes that no item serves, with the reason: the list would leave them without code.
    pub dropped: Vec<(Wish, String)>,
    /// Wishes served by another capability than their own, and why.
    pub notes: Vec<String>,
}

/// Makes the list.
pub fn plan(wishes: &[Wish], limits: &Limits, ptx: Ptx, know: &Knowledge) -> Plan {
    let mut plan = Plan::default();
    let mut items: BTreeMap<Capability, Item> = BTreeMap::new();
    for wish in wishes {
        match serve(wish, limits, know) {
            Ok((capability, by_ptx, note)) => {
                let item = items.entry(capability).or_insert(Item { capability, ptx: false, from: Vec::new() });
                item.ptx |= by_ptx;
                if !item.from.contains(&wish.from) {
                    item.from.push(wish.from.clone());
                }
                plan.notes.extend(note.filter(|note| !plan.notes.contains(note)));
            }
            Err(why) => {
                if !plan.dropped.iter().any(|(known, _)| known == wish) {
                    plan.dropped.push((wish.clone(), why));
                }
            }
        }
    }
    plan.items = items.into_values().collect();
    match ptx {
        Ptx::None => {}
        Ptx::Last => plan.items.iter_mut().next_back().into_iter().for_each(|item| item.ptx = true),
        Ptx::All => plan.items.iter_mut().for_each(|item| item.ptx = true),
    }
    plan
}

/// The capability whose code serves a wish: its own; else SASS of a lower one that runs there; else PTX of the highest older one.
fn serve(wish: &Wish, limits: &Limits, know: &Knowledge) -> Result<(Capability, bool, Option<String>), String> {
    let own = limits.cuda.map_or(wish.capability, |cuda| know.capability_for(wish.capability, cuda));
    let takes = |list: &Option<Vec<Capability>>, capability: Capability| list.as_ref().is_none_or(|list| list.contains(&capability));
    if takes(&limits.compiler, own) && takes(&limits.reader, own) {
        let note = (own != wish.capability).then(|| format!("{} is {own} for this nvcc", wish.capability));
        return Ok((own, false, note));
    }
    let known: Vec<Capability> = match (&limits.compiler, &limits.reader) {
        (Some(compiler), reader) => compiler.iter().copied().filter(|capability| takes(reader, *capability)).collect(),
        (None, Some(reader)) => reader.clone(),
        (None, None) => Vec::new(),
    };
    let who = if takes(&limits.compiler, own) { "the reader" } else { "nvcc" };
    let older = || known.iter().copied().filter(|capability| *capability <= own);
    let from = &wish.from;
    if let Some(sass) = older().filter(|capability| know.runs_on(Target::plain(*capability), own, limits.cuda)).max() {
        return Ok((sass, false, Some(format!("{own} ({from}): {who} does not know it; code for {sass} runs on it"))));
    }
    if let Some(virtual_arch) = older().max() {
        let note = format!("{own} ({from}): {who} is older than this GPU; PTX of {virtual_arch} is compiled by the driver when first run");
        return Ok((virtual_arch, true, Some(note)));
    }
    match known.iter().min() {
        Some(lowest) => Err(format!("{who} starts at {lowest}")),
        None => Err(format!("{who} takes nothing that would run on it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cc(text: &str) -> Capability {
        let (major, minor) = text.split_once('.').map_or((0, 0), |(a, b)| (a.parse().unwrap_or(0), b.parse().unwrap_or(0)));
        Capability::new(major, minor)
    }

    fn list(wishes: &[&str], compiler: &[&str], ptx: Ptx) -> (String, usize) {
        let know = Knowledge::embedded();
        let wishes: Vec<Wish> = wishes.iter().map(|text| Wish { capability: cc(text), from: format!("gpu {text}") }).collect();
        let compiler = (!compiler.is_empty()).then(|| compiler.iter().map(|text| cc(text)).collect());
        let plan = plan(&wishes, &Limits { compiler, cuda: None, reader: None }, ptx, &know);
        let items: Vec<String> = plan.items.iter().map(|i| format!("{}{}", i.capability, if i.ptx { "+PTX" } else { "" })).collect();
        (items.join(";"), plan.dropped.len())
    }

    #[test]
    fn numeric_order_and_each_once() {
        assert_eq!(list(&["8.6"], &[], Ptx::None), ("8.6".to_owned(), 0));
        assert_eq!(list(&["8.6", "6.1", "8.6"], &[], Ptx::None), ("6.1;8.6".to_owned(), 0));
        assert_eq!(list(&["10.0", "9.0", "12.0"], &[], Ptx::Last), ("9.0;10.0;12.0+PTX".to_owned(), 0));
    }

    #[test]
    fn clamped_to_what_the_compiler_knows() {
        let cuda_11_8 = ["7.0", "7.5", "8.0", "8.6", "8.9", "9.0"];
        assert_eq!(list(&["12.0"], &cuda_11_8, Ptx::None), ("9.0+PTX".to_owned(), 0));
        let cuda_12_8 = ["9.0", "10.0", "12.0"];
        assert_eq!(list(&["12.1", "10.3"], &cuda_12_8, Ptx::None), ("10.0;12.0".to_owned(), 0));
        let cuda_13 = ["7.5", "8.0", "9.0"];
        assert_eq!(list(&["6.1", "8.0"], &cuda_13, Ptx::None), ("8.0".to_owned(), 1));
    }
}
