//! Lists for GPUs: what to compile for with the targets there are, and whether a list covers a GPU.

use super::Item;
use crate::version::{Capability, Suffix, Target};

/// What to compile for one GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Choice {
    /// nvcc has the GPU's own target.
    Exact(Item),
    /// nvcc is older than the GPU: the highest target below it, with PTX.
    Clamped(Item),
    /// nvcc has no target at or below it: support was dropped.
    Dropped,
}

/// The list for a set of GPUs, and how each GPU came into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clamped {
    /// Ascending, each target once.
    pub items: Vec<Item>,
    /// In the order of the GPUs given, each capability once.
    pub choices: Vec<(Capability, Choice)>,
}

/// The targets to compile for these GPUs with an nvcc of these targets. Only plain targets are chosen: every reader takes those.
pub fn clamp(devices: &[Capability], targets: &[Target]) -> Clamped {
    let mut clamped = Clamped::default();
    for device in devices {
        if clamped.choices.iter().any(|(known, _)| known == device) {
            continue;
        }
        let below = targets.iter().filter(|target| target.suffix.is_none() && target.capability <= *device).max();
        let choice = match below {
            Some(target) if target.capability == *device => Choice::Exact(Item::sass(*target)),
            Some(target) => Choice::Clamped(Item::with_ptx(*target)),
            None => Choice::Dropped,
        };
        clamped.choices.push((*device, choice));
    }
    let chosen = clamped.choices.iter().filter_map(|(_, choice)| match choice {
        Choice::Exact(item) | Choice::Clamped(item) => Some(*item),
        Choice::Dropped => None,
    });
    clamped.items = super::merged(chosen);
    clamped
}

/// Whether code of this list runs on the GPU: SASS of the same major and no higher minor, PTX of any lower capability; `a` targets on
/// themselves alone, `f` targets on the same major from their minor on.
pub fn cover(items: &[Item], device: Capability) -> bool {
    items.iter().any(|item| {
        let target = item.target.capability;
        match item.target.suffix {
            Some(Suffix::Specific) => target == device,
            Some(Suffix::Family) => target.major == device.major && target.minor <= device.minor,
            None => (item.sass && target.major == device.major && target.minor <= device.minor) || (item.ptx && target <= device),
        }
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::{Format, print};
    use super::*;

    #[test]
    fn clamping() {
        let targets: Vec<Target> = ["7.5", "8.0", "8.6", "8.9", "9.0", "9.0a"].map(|t| t.parse().unwrap()).into();
        let of = |devices: &[(u32, u32)]| {
            let devices: Vec<Capability> = devices.iter().map(|(major, minor)| Capability::new(*major, *minor)).collect();
            clamp(&devices, &targets)
        };
        assert_eq!(print(&of(&[(9, 0), (8, 0), (9, 0)]).items, Format::List), "8.0;9.0");
        assert_eq!(print(&of(&[(15, 0), (9, 0)]).items, Format::List), "9.0+PTX");
        let old = of(&[(6, 1), (8, 7)]);
        assert_eq!(print(&old.items, Format::List), "8.6+PTX");
        assert_eq!(old.choices[0].1, Choice::Dropped);
    }

    #[test]
    fn covering() {
        let covers = |item: Item, device: &str| cover(&[item], device.parse().unwrap());
        let item = |text: &str| Item::sass(text.parse().unwrap());
        assert!(covers(item("8.0"), "8.6") && !covers(item("8.6"), "8.0") && !covers(item("8.0"), "9.0"));
        assert!(covers(Item::with_ptx("8.0".parse().unwrap()), "12.0"));
        assert!(covers(item("9.0a"), "9.0") && !covers(Item::with_ptx("9.0a".parse().unwrap()), "10.0"));
        assert!(covers(item("10.0f"), "10.3") && !covers(item("10.0f"), "12.0"));
    }
}
