//! What CUDA makes of `CUDA_VISIBLE_DEVICES`: which GPUs a program sees, in which order, and what is wrong with the mask.
//!
//! The rules are those of the CUDA programming guide (environment variables) and the MIG user guide (device enumeration); where they are
//! silent, those of torch's own reading, which imitates the driver.

use crate::facts::gpu::Device;
use std::ffi::OsStr;

/// One visible GPU: places in the list of devices, and in that device's MIG instances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    pub device: usize,
    pub instance: Option<usize>,
}

/// What a CUDA program would see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Visible {
    /// In the mask's order.
    pub picks: Vec<Pick>,
    /// False when the mask uses numbers, the GPUs differ, and CUDA's own order (fastest first, by a rule that is not published) decides
    /// which ones those are: `picks` then takes the numbers in PCI order.
    pub certain: bool,
    /// What is wrong with the mask, in the order in which it is met.
    pub problems: Vec<Problem>,
    /// Whether DeepSpeed can read the variable: it takes every item for a Python integer.
    pub deepspeed_reads: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Problem {
    /// Set to nothing: no GPU.
    Empty,
    /// `NoDevFiles`: a scheduler's mark for a job without GPUs.
    NoDevFiles,
    /// Below zero, often on purpose (`-1`): it and all after it are hidden.
    Negative(String),
    /// No such number: it and all after it are hidden.
    OutOfRange { item: String, count: usize },
    /// Neither a number nor (after the first item) of the first item's kind: it and all after it are hidden.
    Unreadable(String),
    /// Read as the number it begins with.
    Trailing { item: String, number: usize },
    /// No GPU has a UUID that begins so: it and all after it are hidden.
    NoSuchUuid(String),
    /// Several GPUs have: it and all after it are hidden.
    AmbiguousUuid(String),
    /// The same GPU twice: no GPU at all.
    Repeated(String),
    /// A program gets one MIG instance, and no whole GPU beside it; this many more were asked for.
    OneInstanceOnly { hidden: usize },
    /// The GPU is in MIG mode and has no instance.
    NoInstance { device: usize },
}

/// `mask` and `order` are the values of `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`, as set.
pub fn visible(devices: &[Device], mask: Option<&OsStr>, order: Option<&OsStr>) -> Visible {
    let Some(mask) = mask else {
        let all = (0..devices.len()).collect();
        return enumerate(devices, all, Visible { certain: true, deepspeed_reads: true, ..Visible::default() });
    };
    let mask = mask.to_string_lossy();
    let mut seen = Visible { certain: true, deepspeed_reads: mask.split(',').all(is_python_int), ..Visible::default() };
    match mask.trim() {
        "" => seen.problems.push(Problem::Empty),
        "NoDevFiles" => seen.problems.push(Problem::NoDevFiles),
        _ => match ["GPU-", "MIG-"].into_iter().find(|kind| mask.starts_with(kind)) {
            Some(kind) => return by_uuid(devices, &mask, kind, seen),
            None => {
                let chosen = by_number(devices, &mask, &mut seen.problems);
                let fixed = order.is_some_and(|o| o == "PCI_BUS_ID") || all_alike(devices);
                seen.certain = fixed || chosen.is_empty() || chosen.len() == devices.len();
                return enumerate(devices, chosen, seen);
            }
        },
    }
    seen
}

fn by_number(devices: &[Device], mask: &str, problems: &mut Vec<Problem>) -> Vec<usize> {
    let mut read: Vec<(usize, &str)> = Vec::new();
    for item in mask.split(',').map(str::trim) {
        let number = match leading_number(item) {
            Number::Read { value, whole: true } => value,
            Number::Read { value, whole: false } => {
                problems.push(Problem::Trailing { item: item.to_owned(), number: value });
                value
            }
            Number::Negative => {
                problems.push(Problem::Negative(item.to_owned()));
                break;
            }
            Number::None => {
                problems.push(Problem::Unreadable(item.to_owned()));
                break;
            }
        };
        if read.iter().any(|(earlier, _)| *earlier == number) {
            problems.push(Problem::Repeated(item.to_owned()));
            return Vec::new();
        }
        read.push((number, item));
    }
    // Whether there is such a GPU is asked last: a repetition further on has emptied the list by then.
    if let Some((at, (_, item))) = read.iter().enumerate().find(|(_, (number, _))| *number >= devices.len()) {
        problems.push(Problem::OutOfRange { item: (*item).to_owned(), count: devices.len() });
        read.truncate(at);
    }
    read.into_iter().map(|(number, _)| number).collect()
}

enum Number {
    Read { value: usize, whole: bool },
    Negative,
    None,
}

/// As `strtoul` reads: an optional sign, digits, and the rest of the item is ignored.
fn leading_number(item: &str) -> Number {
    let (negative, unsigned) = match item.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, item.strip_prefix('+').unwrap_or(item)),
    };
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    match unsigned[..digits].parse::<usize>() {
        // `-0` is 0.
        Ok(value) if !negative || value == 0 => Number::Read { value, whole: digits == unsigned.len() },
        Ok(_) => Number::Negative,
        Err(_) if digits > 0 => Number::Read { value: usize::MAX, whole: digits == unsigned.len() },
        Err(_) => Number::None,
    }
}

fn by_uuid(devices: &[Device], mask: &str, kind: &str, mut seen: Visible) -> Visible {
    let named: Vec<(&str, Pick)> = devices.iter().enumerate().flat_map(|(device, d)| uuids(device, d)).collect();
    let items: Vec<&str> = mask.split(',').collect();
    let readable = items.iter().position(|item| !item.starts_with(kind)).unwrap_or(items.len());
    // A text that stands twice empties the list, wherever it stands.
    let repeated = (0..readable).find(|at| items[..*at].contains(&items[*at]));
    let mut picks: Vec<Pick> = Vec::new();
    if let Some(at) = repeated {
        seen.problems.push(Problem::Repeated(items[at].to_owned()));
        return seen;
    }
    for (at, item) in items.iter().enumerate() {
        let mut matching = named.iter().filter(|(uuid, _)| uuid.starts_with(item)).map(|(_, pick)| *pick);
        let problem = match (at < readable, matching.next(), matching.next()) {
            (false, ..) => Problem::Unreadable((*item).to_owned()),
            (true, None, _) => Problem::NoSuchUuid((*item).to_owned()),
            (true, Some(_), Some(_)) => Problem::AmbiguousUuid((*item).to_owned()),
            (true, Some(pick), None) if picks.contains(&pick) => {
                seen.problems.push(Problem::Repeated((*item).to_owned()));
                return seen;
            }
            (true, Some(pick), None) => {
                picks.push(pick);
                continue;
            }
        };
        seen.problems.push(problem);
        break;
    }
    if kind == "MIG-" {
        one_instance(picks, &mut seen);
        seen
    } else {
        enumerate(devices, picks.iter().map(|p| p.device).collect(), seen)
    }
}

/// The UUIDs by which a device and its instances can be named.
fn uuids(device: usize, of: &Device) -> Vec<(&str, Pick)> {
    let own = of.uuid.as_deref().map(|uuid| (uuid, Pick { device, instance: None }));
    let instances = of.mig.iter().filter(|mig| mig.enabled).flat_map(|mig| mig.instances.iter().enumerate());
    own.into_iter().chain(instances.filter_map(|(at, i)| Some((i.uuid.as_deref()?, Pick { device, instance: Some(at) })))).collect()
}

/// From chosen devices to what is enumerated: a GPU in MIG mode stands for its first instance.
fn enumerate(devices: &[Device], chosen: Vec<usize>, mut seen: Visible) -> Visible {
    let in_mig = |device: &usize| devices[*device].mig.as_ref().filter(|mig| mig.enabled);
    let mut whole = Vec::new();
    let mut split = Vec::new();
    for device in chosen {
        match in_mig(&device) {
            None => whole.push(Pick { device, instance: None }),
            Some(mig) if mig.instances.is_empty() => seen.problems.push(Problem::NoInstance { device }),
            Some(mig) => split.extend((0..mig.instances.len()).map(|at| Pick { device, instance: Some(at) })),
        }
    }
    if split.is_empty() {
        seen.picks = whole;
    } else {
        split.extend(whole);
        one_instance(split, &mut seen);
    }
    seen
}

/// "CUDA can only enumerate a single compute instance", and then no whole GPU either (MIG user guide).
fn one_instance(picks: Vec<Pick>, seen: &mut Visible) {
    if picks.len() > 1 {
        seen.problems.push(Problem::OneInstanceOnly { hidden: picks.len() - 1 });
    }
    seen.picks = picks.into_iter().take(1).collect();
}

/// Whether CUDA's fastest-first order cannot change which GPUs a number means.
fn all_alike(devices: &[Device]) -> bool {
    devices.windows(2).all(|pair| match pair {
        [a, b] => a.name.is_some() && a.name == b.name && a.capability == b.capability,
        _ => true,
    })
}

/// Whether Python's `int()` takes the text: blanks round it, a sign, digits with single underscores between them.
fn is_python_int(item: &str) -> bool {
    let text = item.trim();
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    digits.split('_').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu::{Mig, MigInstance};
    use crate::version::Capability;

    fn device(index: u32, name: &str) -> Device {
        let uuid = Some(format!("GPU-{index}aaa-{index}"));
        Device { index, name: Some(name.to_owned()), capability: Some(Capability::new(8, 0)), uuid, ..Device::default() }
    }

    fn alike(count: u32) -> Vec<Device> {
        (0..count).map(|index| device(index, "NVIDIA A100")).collect()
    }

    fn mig(index: u32, instances: &[&str]) -> Device {
        let instance = |(index, uuid): (usize, &&str)| MigInstance {
            index: u32::try_from(index).unwrap_or(0),
            uuid: Some((*uuid).to_owned()),
            name: None,
            memory: None,
        };
        let mig = Mig { enabled: true, pending: true, instances: instances.iter().enumerate().map(instance).collect() };
        Device { mig: Some(mig), ..device(index, "NVIDIA A100") }
    }

    fn see(devices: &[Device], mask: &str) -> Visible {
        visible(devices, Some(OsStr::new(mask)), None)
    }

    /// Places of whole GPUs.
    fn places(seen: &Visible) -> Vec<usize> {
        assert!(seen.picks.iter().all(|p| p.instance.is_none()), "{seen:?}");
        seen.picks.iter().map(|p| p.device).collect()
    }

    #[test]
    fn without_a_mask_all_are_visible() {
        let seen = visible(&alike(3), None, None);
        assert_eq!((places(&seen), seen.certain, seen.deepspeed_reads, seen.problems.len()), (vec![0, 1, 2], true, true, 0));
        assert_eq!(visible(&[], None, None).picks, []);
    }

    #[test]
    fn numbers() {
        let gpus = alike(4);
        let item = str::to_owned;
        for (mask, expected, problems) in [
            ("2,0", vec![2, 0], vec![]),
            (" 1 , 3 ", vec![1, 3], vec![]),
            ("+1,-0", vec![1, 0], vec![]),
            ("0,-1,1", vec![0], vec![Problem::Negative(item("-1"))]),
            ("-1", vec![], vec![Problem::Negative(item("-1"))]),
            ("0,7,1", vec![0], vec![Problem::OutOfRange { item: item("7"), count: 4 }]),
            ("99999999999999999999999", vec![], vec![Problem::OutOfRange { item: item("99999999999999999999999"), count: 4 }]),
            ("0,1,0", vec![], vec![Problem::Repeated(item("0"))]),
            ("1,9,1", vec![], vec![Problem::Repeated(item("1"))]),
            ("0,,1", vec![0], vec![Problem::Unreadable(String::new())]),
            ("0;1", vec![0], vec![Problem::Trailing { item: item("0;1"), number: 0 }]),
            ("0 1", vec![0], vec![Problem::Trailing { item: item("0 1"), number: 0 }]),
            ("cuda:0", vec![], vec![Problem::Unreadable(item("cuda:0"))]),
            ("1,GPU-0aaa", vec![1], vec![Problem::Unreadable(item("GPU-0aaa"))]),
            ("", vec![], vec![Problem::Empty]),
            ("NoDevFiles", vec![], vec![Problem::NoDevFiles]),
        ] {
            let seen = see(&gpus, mask);
            assert_eq!((places(&seen), &seen.problems), (expected, &problems), "{mask}");
            assert!(seen.certain, "{mask}");
        }
    }

    #[test]
    fn uuids() {
        let mut gpus = alike(3);
        gpus.push(Device { uuid: Some("GPU-0abc".to_owned()), ..device(3, "NVIDIA A100") });
        let item = str::to_owned;
        for (mask, expected, problems) in [
            ("GPU-2aaa-2,GPU-0aa", vec![2, 0], vec![]),
            ("GPU-0a", vec![], vec![Problem::AmbiguousUuid(item("GPU-0a"))]),
            ("GPU-1,GPU-9,GPU-2", vec![1], vec![Problem::NoSuchUuid(item("GPU-9"))]),
            ("GPU-1,GPU-1a", vec![], vec![Problem::Repeated(item("GPU-1a"))]),
            ("GPU-1,GPU-1", vec![], vec![Problem::Repeated(item("GPU-1"))]),
            ("GPU-1, GPU-2", vec![1], vec![Problem::Unreadable(item(" GPU-2"))]),
            ("GPU-1,2", vec![1], vec![Problem::Unreadable(item("2"))]),
            ("gpu-1", vec![], vec![Problem::Unreadable(item("gpu-1"))]),
            ("MIG-1", vec![], vec![Problem::NoSuchUuid(item("MIG-1"))]),
        ] {
            let seen = see(&gpus, mask);
            assert_eq!((places(&seen), &seen.problems), (expected, &problems), "{mask}");
            assert!(!seen.deepspeed_reads, "{mask}");
        }
    }

    #[test]
    fn numbers_of_different_gpus_depend_on_the_order() {
        let gpus = [device(0, "NVIDIA GeForce GTX 1080"), device(1, "NVIDIA GeForce RTX 3090")];
        assert!(!see(&gpus, "0").certain);
        assert!(see(&gpus, "1,0").certain, "all of them");
        assert!(see(&gpus, "-1").certain, "none of them");
        assert!(see(&gpus, "GPU-1").certain);
        let pci = visible(&gpus, Some(OsStr::new("1")), Some(OsStr::new("PCI_BUS_ID")));
        assert_eq!((places(&pci), pci.certain), (vec![1], true));
        assert!(!visible(&gpus, Some(OsStr::new("1")), Some(OsStr::new("pci_bus_id"))).certain);
    }

    #[test]
    fn a_program_sees_one_mig_instance() {
        let gpus = [device(0, "NVIDIA A100"), mig(1, &["MIG-a", "MIG-b"]), mig(2, &[])];
        let second = |at| vec![Pick { device: 1, instance: Some(at) }];
        let all = visible(&gpus, None, None);
        assert_eq!((&all.picks, &all.problems[1..]), (&second(0), &[Problem::OneInstanceOnly { hidden: 2 }][..]));
        assert_eq!(all.problems[0], Problem::NoInstance { device: 2 });
        let named = see(&gpus, "MIG-b");
        assert_eq!((named.picks, named.problems, named.deepspeed_reads), (second(1), vec![], false));
        let two = see(&gpus, "MIG-b,MIG-a");
        assert_eq!((two.picks, two.problems), (second(1), vec![Problem::OneInstanceOnly { hidden: 1 }]));
        assert_eq!(see(&gpus, "0").picks, [Pick { device: 0, instance: None }]);
        assert_eq!(see(&gpus, "2").picks, []);
    }

    #[test]
    fn what_python_takes_for_an_integer() {
        for yes in ["0", " 1 ", "+2", "-1", "1_0", "007"] {
            assert!(is_python_int(yes), "{yes}");
        }
        for no in ["", " ", "1.0", "0x1", "_1", "1_", "1__0", "1a", "- 1", "GPU-1"] {
            assert!(!is_python_int(no), "{no}");
        }
    }
}
