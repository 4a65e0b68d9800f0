//! torch's reader: `_get_cuda_arch_flags` of torch/utils/cpp_extension.py, 1.13 to 2.15.

use super::{Item, Reading, Refusal, Refuser, merged};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::torch::TorchTrait;
use crate::version::{Dotted, Target};

pub fn read(know: &Knowledge, version: Option<&Dotted>, text: Option<&str>) -> Result<Reading, Refusal> {
    let newest = know.newest_torch();
    let version = version.or(newest.as_ref());
    let text = text.unwrap_or_default();
    let knows_native = version.is_none_or(|version| know.torch_does(TorchTrait::ArchListNative, version));
    if text.is_empty() || (knows_native && text == "native") {
        return Ok(Reading::VisibleGpus);
    }
    // Blanks first: torch replaces names after it has turned each blank into a semicolon.
    let list = text.replace(' ', ";");
    let list = version.map_or_else(|| list.clone(), |version| know.expand_torch_arch_names(version, &list));
    let items: Result<Vec<Item>, Refusal> = list.split(';').map(|item| read_item(know, version, item)).collect();
    items.map(|items| Reading::List(merged(items)))
}

fn read_item(know: &Knowledge, version: Option<&Dotted>, item: &str) -> Result<Item, Refusal> {
    let (number, ptx) = match item.strip_suffix("+PTX") {
        Some(number) => (number, true),
        None => (item, false),
    };
    // Only the very form `9.0a` is in torch's list; a target of ours can be read from `sm_90a` too.
    let target = number.parse::<Target>().ok().filter(|target| target.to_string() == number);
    let known = |target: &Target| version.and_then(|version| know.torch_arch_values(version)).is_none_or(|row| row.values.contains(target));
    match target.filter(known) {
        Some(target) => Ok(Item { target, sass: true, ptx }),
        None => {
            let message = format!("ValueError: Unknown CUDA arch ({item}) or GPU not supported");
            Err(Refusal { item: item.to_owned(), by: Refuser::Torch, message })
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::{Reader, print, print::Format};
    use super::*;

    fn list(version: &str, text: &str) -> Result<String, String> {
        let version: Dotted = version.parse().unwrap();
        match super::super::read(&Knowledge::embedded(), &Reader::Torch(Some(&version)), Some(text)) {
            Ok(Reading::List(items)) => Ok(print(&items, Format::List)),
            Ok(other) => Ok(format!("{other:?}")),
            Err(refusal) => Err(refusal.message),
        }
    }

    #[test]
    fn names_by_release() {
        assert_eq!(list("2.5.1", "Ampere").unwrap(), "8.0;8.6+PTX");
        assert_eq!(list("2.5.1", "Ampere+Tegra Hopper").unwrap(), "8.7;9.0+PTX");
        assert_eq!(list("2.6.0", "Blackwell").unwrap(), "10.0+PTX");
        assert_eq!(list("2.7.1", "Blackwell").unwrap(), "10.0;12.0+PTX");
        assert_eq!(list("3.0.0", "Blackwell+Tegra;Rubin").unwrap(), "10.7+PTX;11.0");
        assert!(list("2.5.1", "Blackwell").is_err());
        // 1.13 has no `Volta+Tegra`: the name inside is replaced, and what is left is refused.
        assert_eq!(list("1.13.1", "Volta+Tegra").unwrap_err(), "ValueError: Unknown CUDA arch (7.0+PTX+Tegra) or GPU not supported");
    }

    #[test]
    fn numbers_by_release() {
        assert_eq!(list("2.8.0", "12.1a;10.1;8.0").unwrap(), "8.0;10.1;12.1a");
        for (version, text) in [("2.6.0", "12.0"), ("2.9.0", "10.1"), ("2.15.0", "8.8"), ("2.15.0", "10.0f"), ("2.1.2", "9.0a")] {
            assert!(list(version, text).is_err(), "{version} {text}");
        }
    }

    #[test]
    fn forms() {
        assert_eq!(list("2.11.0", "8.0;8.0+PTX").unwrap(), "8.0+PTX");
        assert_eq!(list("2.11.0", "native").unwrap(), "VisibleGpus");
        assert_eq!(list("2.8.0", "native").unwrap_err(), "ValueError: Unknown CUDA arch (native) or GPU not supported");
        assert_eq!(list("2.11.0", "").unwrap(), "VisibleGpus");
        for (text, item) in [("8.0;", ""), ("8.0  9.0", ""), ("8.0,9.0", "8.0,9.0"), ("８.６", "８.６"), ("sm_80", "sm_80"), ("80", "80")]
        {
            assert_eq!(list("2.11.0", text).unwrap_err(), format!("ValueError: Unknown CUDA arch ({item}) or GPU not supported"));
        }
    }
}
