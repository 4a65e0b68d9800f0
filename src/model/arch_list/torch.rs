//! torch's reader: `_get_cuda_arch_flags` of torch/utils/cpp_extension.py, 1.13 to 2.15.

use super::{Item, Reading, Refusal, Refuser, merged};
use crate::version::{Dotted, Target};

/// From which release on an item is taken, and from which no more.
type Life = (&'static str, &'static [u32], Option<&'static [u32]>);

const FIRST: &[u32] = &[0];

/// Items that a release takes, each also with `+PTX`.
const ACCEPTED: &[Life] = &[
    ("3.5", FIRST, None),
    ("3.7", FIRST, None),
    ("5.0", FIRST, None),
    ("5.2", FIRST, None),
    ("5.3", FIRST, None),
    ("6.0", FIRST, None),
    ("6.1", FIRST, None),
    ("6.2", FIRST, None),
    ("7.0", FIRST, None),
    ("7.2", FIRST, None),
    ("7.5", FIRST, None),
    ("8.0", FIRST, None),
    ("8.6", FIRST, None),
    ("8.7", &[2, 1], None),
    ("8.9", &[2, 0], None),
    ("9.0", &[2, 0], None),
    ("9.0a", &[2, 2], None),
    ("10.0", &[2, 6], None),
    ("10.0a", &[2, 7], None),
    ("10.1", &[2, 7], Some(&[2, 9])),
    ("10.1a", &[2, 7], Some(&[2, 9])),
    ("10.3", &[2, 8], None),
    ("10.3a", &[2, 8], None),
    ("10.7", &[2, 14], None),
    ("10.7a", &[2, 14], None),
    ("11.0", &[2, 9], None),
    ("11.0a", &[2, 9], None),
    ("12.0", &[2, 7], None),
    ("12.0a", &[2, 7], None),
    ("12.1", &[2, 8], None),
    ("12.1a", &[2, 8], None),
];

/// A name, what stands for it, and from which release to which.
type Name = (&'static str, &'static str, &'static [u32], Option<&'static [u32]>);

/// Names in the order torch replaces them: plain text in plain text, so `Ampere+Tegra` stands before `Ampere`.
const NAMES: &[Name] = &[
    ("Kepler+Tesla", "3.7", FIRST, None),
    ("Kepler", "3.5+PTX", FIRST, None),
    ("Maxwell+Tegra", "5.3", FIRST, None),
    ("Maxwell", "5.0;5.2+PTX", FIRST, None),
    ("Pascal", "6.0;6.1+PTX", FIRST, None),
    ("Volta+Tegra", "7.2", &[2, 1], None),
    ("Volta", "7.0+PTX", FIRST, None),
    ("Turing", "7.5+PTX", FIRST, None),
    ("Ampere+Tegra", "8.7", &[2, 1], None),
    ("Ampere", "8.0;8.6+PTX", FIRST, None),
    ("Ada", "8.9+PTX", &[2, 0], None),
    ("Hopper", "9.0+PTX", &[2, 0], None),
    ("Blackwell+Tegra", "10.1", &[2, 7], Some(&[2, 9])),
    ("Blackwell+Tegra", "11.0", &[2, 9], None),
    ("Blackwell", "10.0+PTX", &[2, 6], Some(&[2, 7])),
    ("Blackwell", "10.0;12.0+PTX", &[2, 7], Some(&[2, 8])),
    ("Blackwell", "10.0;10.3;12.0;12.1+PTX", &[2, 8], None),
    ("Rubin", "10.7+PTX", &[2, 14], None),
];

fn lives(version: Option<&Dotted>, since: &[u32], until: Option<&[u32]>) -> bool {
    match version {
        Some(version) => version.at_least(since) && until.is_none_or(|until| !version.at_least(until)),
        None => until.is_none(),
    }
}

pub fn read(version: Option<&Dotted>, text: Option<&str>) -> Result<Reading, Refusal> {
    let text = text.unwrap_or_default();
    let knows_native = version.is_none_or(|version| version.at_least(&[2, 9]));
    if text.is_empty() || (knows_native && text == "native") {
        return Ok(Reading::VisibleGpus);
    }
    let mut list = text.replace(' ', ";");
    for (name, meaning, since, until) in NAMES {
        if lives(version, since, *until) {
            list = list.replace(name, meaning);
        }
    }
    let items: Result<Vec<Item>, Refusal> = list.split(';').map(|item| read_item(version, item)).collect();
    items.map(|items| Reading::List(merged(items)))
}

fn read_item(version: Option<&Dotted>, item: &str) -> Result<Item, Refusal> {
    let refuse = || {
        let message = format!("ValueError: Unknown CUDA arch ({item}) or GPU not supported");
        Refusal { item: item.to_owned(), by: Refuser::Torch, message }
    };
    let (number, ptx) = match item.strip_suffix("+PTX") {
        Some(number) => (number, true),
        None => (item, false),
    };
    let known = ACCEPTED.iter().any(|(name, since, until)| *name == number && lives(version, since, *until));
    let target: Target = number.parse().map_err(|_| refuse())?;
    if known { Ok(Item { target, sass: true, ptx }) } else { Err(refuse()) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::{Reader, print, print::Format};
    use super::*;

    fn list(version: &str, text: &str) -> Result<String, String> {
        let version: Dotted = version.parse().unwrap();
        match super::super::read(&Reader::Torch(Some(&version)), Some(text)) {
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
