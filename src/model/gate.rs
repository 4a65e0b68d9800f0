//! What a release is expected to hold: lists of targets and of GPUs as people write them, and folders that a library may search.

use super::arch_list::Item;
use crate::facts::elf::ElfFacts;
use crate::facts::inspect::Binary;
use crate::facts::torch::Torch;
use crate::version::Target;

/// An expected list: `8.0;9.0+PTX`, `sm_80 sm_90a compute_90`, `10.0f,12.0`.
///
/// # Errors
/// The item that is no target, for a person.
pub fn expected(text: &str) -> Result<Vec<Item>, String> {
    let mut items: Vec<Item> = Vec::new();
    for word in text.split([';', ',', ' ']).map(str::trim).filter(|word| !word.is_empty()) {
        let item = item(word).ok_or_else(|| format!("`{word}` is no target: write 8.0, 9.0a, 10.0f, 9.0+PTX, sm_90 or compute_90"))?;
        match items.iter_mut().find(|known| known.target == item.target) {
            Some(known) => {
                known.sass |= item.sass;
                known.ptx |= item.ptx;
            }
            None => items.push(item),
        }
    }
    if items.is_empty() {
        return Err("the list names no target".to_owned());
    }
    items.sort_unstable();
    Ok(items)
}

fn item(word: &str) -> Option<Item> {
    if let Some(number) = word.strip_prefix("compute_") {
        return Some(Item { target: number.parse().ok()?, sass: false, ptx: true });
    }
    let (word, ptx) = word.strip_suffix("+PTX").or_else(|| word.strip_suffix("+ptx")).map_or((word, false), |word| (word, true));
    let target: Target = word.parse().ok()?;
    Some(Item { target, sass: true, ptx })
}

/// What this torch holds: the list of `torch.cuda.get_arch_list()`.
pub fn of_torch(torch: &Torch) -> Option<Vec<Item>> {
    expected(&torch.arch_list.value()?.join(" ")).ok()
}

/// The flags that make a target.
pub fn flag(target: Target, sass: bool) -> String {
    let code = if sass { target.sm() } else { target.compute() };
    format!("-gencode=arch={},code={code}", target.compute())
}

/// Folders that every Linux system has for libraries: no part of a build machine.
const SYSTEM: [&str; 6] = ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/local/lib64"];

/// Entries of RPATH and RUNPATH that mean another folder on another machine: absolute ones, relative ones, and those that climb out of
/// the folder that holds the wheel's packages (`deep`: how many folders lie between that and the file; `None` where there is no wheel).
pub fn outside(elf: &ElfFacts, deep: Option<usize>) -> Vec<&str> {
    // With a RUNPATH the loader ignores RPATH.
    let entries = elf.runpath.as_ref().or(elf.rpath.as_ref()).into_iter().flatten();
    entries.map(String::as_str).filter(|entry| leaves(entry, deep)).collect()
}

fn leaves(entry: &str, deep: Option<usize>) -> bool {
    let origin =
        ["${ORIGIN}", "$ORIGIN"].iter().find_map(|name| entry.strip_prefix(name)).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let Some(below) = origin else {
        let plain = entry.trim_end_matches('/');
        let multiarch = |folder: &str| {
            plain.strip_prefix(folder).is_some_and(|rest| rest.ends_with("-linux-gnu") && !rest.trim_start_matches('/').contains('/'))
        };
        return !(SYSTEM.contains(&plain) || ["/lib/", "/usr/lib/"].iter().any(|folder| multiarch(folder)));
    };
    let Some(deep) = deep else { return false };
    let mut level = deep as i64;
    for part in below.split('/') {
        match part {
            "" | "." => {}
            ".." => level -= 1,
            _ => level += 1,
        }
        if level < 0 {
            return true;
        }
    }
    false
}

/// How many folders lie between the top of the wheel and its file.
pub fn depth(binary: &Binary) -> Option<usize> {
    let member = binary.member.as_deref()?;
    // What is below `NAME.data/purelib` is installed at the top.
    let below = member.split_once(".data/").and_then(|(_, rest)| rest.split_once('/')).map_or(member, |(_, rest)| rest);
    Some(below.matches('/').count())
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::arch_list::{Format, print};

    #[test]
    fn lists() {
        let read = |text: &str| print(&expected(text).unwrap(), Format::Sm);
        assert_eq!(read("8.0;9.0+PTX"), "sm_80 sm_90 compute_90");
        assert_eq!(read("sm_80 sm_90a, compute_90"), "sm_80 compute_90 sm_90a");
        assert_eq!(read("10.0f;12.0"), "sm_100f sm_120");
        for bad in ["", " ; ", "Ampere", "8.0;nine", "8.0+PTZ", "compute_"] {
            assert!(expected(bad).is_err(), "{bad}");
        }
        assert_eq!(flag("9.0a".parse().unwrap(), true), "-gencode=arch=compute_90a,code=sm_90a");
        assert_eq!(flag("9.0".parse().unwrap(), false), "-gencode=arch=compute_90,code=compute_90");
    }

    #[test]
    fn folders_of_other_machines() {
        let of = |entries: &[&str], deep| {
            let elf = ElfFacts { runpath: Some(entries.iter().map(|e| (*e).to_owned()).collect()), ..ElfFacts::default() };
            outside(&elf, deep).len()
        };
        assert_eq!(of(&["$ORIGIN", "$ORIGIN/../../nvidia/cublas/lib", "${ORIGIN}/x", "/usr/lib/x86_64-linux-gnu"], Some(2)), 0);
        assert_eq!(of(&["$ORIGIN/../../../lib"], Some(2)), 1, "out of site-packages");
        assert_eq!(of(&["$ORIGIN/../../../lib"], None), 0);
        for entry in ["/root/build/lib", "/usr/local/cuda/lib64", "lib", "", "$ORIGINAL/x", "/usr/lib/../../home", "/opt/conda/lib"] {
            assert_eq!(of(&[entry], Some(1)), 1, "{entry}");
        }
        let ignored = ElfFacts { rpath: Some(vec!["/x".into()]), runpath: Some(vec!["$ORIGIN".into()]), ..ElfFacts::default() };
        assert!(outside(&ignored, None).is_empty());
    }
}
