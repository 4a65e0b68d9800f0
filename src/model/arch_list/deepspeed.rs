//! DeepSpeed's readers: `compute_capability_args` of op_builder/builder.py, 0.9 to 0.19.
//!
//! Three forms: to 0.16.3 by characters (only one digit before and behind the dot), to 0.18.9 by the text between dots, since 0.19.0 by
//! numbers. What they let through goes to nvcc, which refuses the rest.

use super::python::{index_error, int_of};
use super::{Item, Reading, Refusal, Refuser, merged, unsupported};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::version::{Capability, CudaVersion, Dotted, Target};

/// Where DeepSpeed reads the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Building its wheel.
    Prebuild,
    /// At first use of an op.
    Jit,
}

pub fn read(know: &Knowledge, version: Option<&Dotted>, usage: Use, text: Option<&str>) -> Result<Reading, Refusal> {
    // Without a version, and where it is not known, as the newest release does.
    let does = |what| version.and_then(|version| know.deepspeed_does(what, version)).unwrap_or(true);
    match usage {
        Use::Jit if !does(DeepSpeedTrait::JitReadsArchList) => Ok(Reading::Ignored),
        Use::Jit => by_numbers_jit(text.unwrap_or_default().trim()),
        Use::Prebuild => {
            let Some(text) = text else { return Ok(Reading::Default) };
            let list = text.replace(' ', ";");
            let reader = match () {
                () if does(DeepSpeedTrait::ParsesArchList) => by_numbers,
                () if does(DeepSpeedTrait::TwoDigitCapabilities) => between_dots,
                () => by_characters,
            };
            all(list.split(';').map(reader)).map(|items| Reading::List(merged(items)))
        }
    }
}

/// All items, or the first refusal. DeepSpeed reads the whole list before nvcc sees any of it.
fn all(read: impl Iterator<Item = Result<Item, Refusal>>) -> Result<Vec<Item>, Refusal> {
    let (mut items, mut later) = (Vec::new(), None);
    for result in read {
        match result {
            Ok(item) => items.push(item),
            Err(refusal) if refusal.by == Refuser::Nvcc => drop(later.get_or_insert(refusal)),
            Err(refusal) => return Err(refusal),
        }
    }
    later.map_or(Ok(items), Err)
}

fn by_numbers_jit(text: &str) -> Result<Reading, Refusal> {
    if text.is_empty() {
        return Ok(Reading::VisibleGpus);
    }
    let list = text.replace(' ', ";");
    let mut items: Vec<(Vec<i64>, String)> = Vec::new();
    for item in list.split(';').map(str::trim).filter(|item| !item.is_empty()) {
        // The sort reads every part of every item as a number first.
        let key: Result<Vec<i64>, Refusal> = item.split('.').map(|part| int_of(item, part.split('+').next().unwrap_or_default())).collect();
        items.push((key?, item.to_owned()));
    }
    items.sort_by(|one, other| one.0.cmp(&other.0));
    let with_ptx = items.iter().any(|(_, item)| item.contains("+PTX"));
    let (_, last) = items.last_mut().ok_or_else(|| index_error("", "list"))?;
    if !with_ptx {
        // Before the items are read, so that the text shows in messages.
        last.push_str("+PTX");
    }
    all(items.iter().map(|(_, item)| by_numbers(item))).map(|items| Reading::List(merged(items)))
}

/// Above any capability that nvcc will know for long: `8.60` and `86.0` become `compute_860`, which it refuses.
const HIGHEST_MAJOR: u32 = 29;

/// 0.19.0 and later.
fn by_numbers(item: &str) -> Result<Item, Refusal> {
    let mut parts = item.split('.');
    let major = int_of(item, parts.next().unwrap_or_default())?;
    let minor_text = parts.next().ok_or_else(|| index_error(item, "list"))?;
    let minor = int_of(item, minor_text.split('+').next().unwrap_or_default())?;
    let name = format!("compute_{major}{minor}");
    let target = match (u32::try_from(major), u32::try_from(minor)) {
        (Ok(major @ 1..=HIGHEST_MAJOR), Ok(minor @ 0..=9)) => Target::plain(Capability::new(major, minor)),
        _ => return Err(unsupported(item, &name)),
    };
    Ok(Item { target, sass: true, ptx: minor_text.ends_with("+PTX") })
}

/// 0.16.4 to 0.18.9.
fn between_dots(item: &str) -> Result<Item, Refusal> {
    let mut parts = item.split('.');
    let major = parts.next().unwrap_or_default();
    let minor_text = parts.next().ok_or_else(|| index_error(item, "list"))?;
    let number = format!("{major}{}", minor_text.split('+').next().unwrap_or_default());
    int_of(item, major)?;
    passed_on(item, &number, minor_text.ends_with("+PTX"))
}

/// 0.16.3 and earlier: the first and the third character.
fn by_characters(item: &str) -> Result<Item, Refusal> {
    let mut characters = item.chars();
    let (Some(major), Some(_), Some(minor)) = (characters.next(), characters.next(), characters.next()) else {
        return Err(index_error(item, "string"));
    };
    int_of(item, &major.to_string())?;
    passed_on(item, &format!("{major}{minor}"), item.ends_with("+PTX"))
}

/// What nvcc makes of the number in `compute_<number>`.
fn passed_on(item: &str, number: &str, ptx: bool) -> Result<Item, Refusal> {
    if let Some((_, behind)) = number.split_once(',') {
        let word = behind.split(',').next().unwrap_or_default();
        let message = format!("nvcc fatal   : '{word}' is not in 'keyword=value' format");
        return Err(Refusal { item: item.to_owned(), by: Refuser::Nvcc, message });
    }
    let name = format!("compute_{number}");
    match number.parse::<Target>() {
        Ok(target) if target.compute() == name && target.capability.major <= HIGHEST_MAJOR => Ok(Item { target, sass: true, ptx }),
        _ => Err(unsupported(item, &name)),
    }
}

/// What DeepSpeed builds for where TORCH_CUDA_ARCH_LIST is not set at all; `nvcc` is the release of CUDA_HOME's.
pub fn default_list(know: &Knowledge, version: &Dotted, nvcc: Option<CudaVersion>) -> Vec<Item> {
    let archs = know.deepspeed_default_archs(version, nvcc).unwrap_or_default();
    archs.iter().map(|capability| Item::sass(Target::plain(*capability))).collect()
}

/// The items that an op keeps, which asks for a major of at least `min_major`. An empty answer stops the build:
/// `no compute capabilities remaining after filtering`.
pub fn filter(items: &[Item], min_major: u32) -> Vec<Item> {
    items.iter().copied().filter(|item| item.target.capability.major >= min_major).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::{Format, Reader, print};
    use super::*;

    fn list(version: &str, usage: Use, text: &str) -> Result<String, String> {
        let version: Dotted = version.parse().unwrap();
        match super::super::read(&Knowledge::embedded(), &Reader::DeepSpeed(Some(&version), usage), Some(text)) {
            Ok(Reading::List(items)) => Ok(print(&items, Format::List)),
            Ok(other) => Ok(format!("{other:?}")),
            Err(refusal) => Err(refusal.message),
        }
    }

    #[test]
    fn by_release() {
        let now = |text| list("0.19.8", Use::Prebuild, text);
        assert_eq!(now("8.0;9.0").unwrap(), "8.0;9.0");
        assert_eq!(now("8.0;8.0+PTX").unwrap(), "8.0+PTX");
        assert_eq!(now("8.0;").unwrap_err(), "ValueError: invalid literal for int() with base 10: ''");
        assert_eq!(now("Ampere").unwrap_err(), "ValueError: invalid literal for int() with base 10: 'Ampere'");
        assert_eq!(now("9.0a").unwrap_err(), "ValueError: invalid literal for int() with base 10: '0a'");
        assert_eq!(now("8").unwrap_err(), "IndexError: list index out of range");
        assert_eq!(now("８.６").unwrap(), "8.6");
        let before = |text| list("0.18.9", Use::Prebuild, text);
        assert_eq!(before("9.0a;10.0+PTX").unwrap(), "9.0a;10.0+PTX");
        assert_eq!(before("8.0,8.6").unwrap_err(), "nvcc fatal   : '8' is not in 'keyword=value' format");
        assert_eq!(before("8.0;").unwrap_err(), "IndexError: list index out of range");
        assert_eq!(before("８.６").unwrap_err(), "nvcc fatal   : Unsupported gpu architecture 'compute_８６'");
        let old = |text| list("0.14.5", Use::Prebuild, text);
        assert_eq!(old("10.0").unwrap_err(), "nvcc fatal   : Unsupported gpu architecture 'compute_1.'");
        assert_eq!(old("9.0a;8.0,8.6").unwrap(), "8.0;9.0");
        assert_eq!(old("8.0;").unwrap_err(), "IndexError: string index out of range");
        assert_eq!(old("Ampere").unwrap_err(), "ValueError: invalid literal for int() with base 10: 'A'");
    }

    #[test]
    fn jit() {
        assert_eq!(list("0.18.9", Use::Jit, "garbage").unwrap(), "Ignored");
        assert_eq!(list("0.19.8", Use::Jit, " ").unwrap(), "VisibleGpus");
        assert_eq!(list("0.19.8", Use::Jit, "12.0  8.0;").unwrap(), "8.0;12.0+PTX");
        assert_eq!(list("0.19.8", Use::Jit, "8.0+PTX;12.0").unwrap(), "8.0+PTX;12.0");
        assert_eq!(list("0.19.8", Use::Jit, ";").unwrap_err(), "IndexError: list index out of range");
        assert_eq!(list("0.19.8", Use::Jit, "8.0,9.0").unwrap_err(), "ValueError: invalid literal for int() with base 10: '0,9'");
    }

    #[test]
    fn defaults() {
        let of = |version: &str, nvcc: &str| {
            print(&default_list(&Knowledge::embedded(), &version.parse().unwrap(), nvcc.parse().ok()), Format::List)
        };
        assert_eq!(of("0.19.8", "13.0"), "6.0;6.1;7.0");
        assert_eq!(of("0.19.8", "12.8"), "6.0;6.1;7.0;8.0;8.6;9.0;10.0;12.0");
        assert_eq!(of("0.16.3", "12.8"), "6.0;6.1;7.0;8.0;8.6;9.0");
        assert_eq!(of("0.14.5", "12.8"), "6.0;6.1;7.0;8.0;8.6");
        assert_eq!(of("0.14.5", "11.0"), "6.0;6.1;7.0;8.0");
        assert_eq!(of("0.19.8", "11.8"), "6.0;6.1;7.0;8.0;8.6;9.0");
        assert_eq!(of("0.19.8", "none"), "6.0;6.1;7.0");
    }
}
