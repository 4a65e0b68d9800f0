//! The readers of nvcc (flags, or items written as people write them) and of CMake (`CMAKE_CUDA_ARCHITECTURES`).

use super::{Item, Reading, Refusal, Refuser, merged, unsupported};
use crate::version::{Suffix, Target};

/// nvcc: items separated by `;`, `,` or blanks, each `sm_90`, `compute_90`, `9.0a`, `9.0+PTX` or a whole `-gencode=arch=…,code=…`. The
/// targets are those of the nvcc that is meant; none: only the form counts.
pub fn nvcc(targets: &[Target], text: Option<&str>) -> Result<Reading, Refusal> {
    let text = text.unwrap_or_default().trim();
    match text {
        "" | "native" | "-arch=native" => return Ok(Reading::VisibleGpus),
        "all" | "-arch=all" => return Ok(Reading::All { major_only: false }),
        "all-major" | "-arch=all-major" => return Ok(Reading::All { major_only: true }),
        _ => {}
    }
    let words: Vec<&str> = text.split([';', ' ', '\t']).filter(|word| !word.is_empty() && *word != "-gencode").collect();
    let mut items = Vec::new();
    for word in words {
        let read = match word.strip_prefix("-gencode=").or_else(|| word.starts_with("arch=").then_some(word)) {
            Some(pair) => vec![gencode(targets, pair)?],
            None => word.split(',').map(|item| plain(targets, item)).collect::<Result<_, _>>()?,
        };
        items.extend(read);
    }
    Ok(Reading::List(merged(items)))
}

fn known(targets: &[Target], item: &str, name: &str, target: Option<Target>) -> Result<Target, Refusal> {
    target.filter(|target| targets.is_empty() || targets.contains(target)).ok_or_else(|| unsupported(item, name))
}

fn plain(targets: &[Target], item: &str) -> Result<Item, Refusal> {
    let (number, ptx) = match item.strip_suffix("+PTX") {
        Some(number) => (number, true),
        None => (item, false),
    };
    let parsed = number.parse::<Target>().ok();
    let name = parsed.map_or_else(|| number.to_owned(), Target::compute);
    let target = known(targets, item, &name, parsed)?;
    Ok(if number.starts_with("compute_") { Item { target, sass: false, ptx: true } } else { Item { target, sass: true, ptx } })
}

/// `arch=compute_80,code=sm_80` or `…,code=compute_80`.
fn gencode(targets: &[Target], pair: &str) -> Result<Item, Refusal> {
    let malformed = |word: &str| {
        let message = format!("nvcc fatal   : '{word}' is not in 'keyword=value' format");
        Refusal { item: pair.to_owned(), by: Refuser::Nvcc, message }
    };
    let (mut arch, mut code) = (None, None);
    for word in pair.split(',') {
        match word.split_once('=') {
            Some(("arch", value)) => arch = Some(value),
            Some(("code", value)) => code = Some(value),
            _ => return Err(malformed(word)),
        }
    }
    let arch = arch.ok_or_else(|| malformed(pair))?;
    let virtual_target = known(targets, pair, arch, arch.strip_prefix("compute_").and_then(|n| n.parse().ok()))?;
    let code = code.unwrap_or(arch);
    if let Some(number) = code.strip_prefix("compute_") {
        return Ok(Item { target: known(targets, pair, code, number.parse().ok())?, sass: false, ptx: true });
    }
    let target = known(targets, pair, code, code.strip_prefix("sm_").and_then(|n| n.parse().ok()))?;
    // Plain PTX becomes SASS of the same or a newer capability, that of a family SASS of its newer members, and specific PTX its own only.
    let newer = target.capability >= virtual_target.capability;
    let fits = match virtual_target.suffix {
        None => newer,
        Some(Suffix::Specific) => target == virtual_target,
        Some(Suffix::Family) => newer && target.capability.major == virtual_target.capability.major,
    };
    if fits {
        return Ok(Item::sass(target));
    }
    if virtual_target.suffix == Some(Suffix::Specific) && target.suffix == Some(Suffix::Specific) && newer {
        let message = format!("ptxas fatal   : Program with .target '{}' cannot be compiled to future architecture", virtual_target.sm());
        return Err(Refusal { item: pair.to_owned(), by: Refuser::Nvcc, message });
    }
    let message = format!("nvcc fatal   : Incompatible code generation requested: arch='{arch}', code='{code}'");
    Err(Refusal { item: pair.to_owned(), by: Refuser::Nvcc, message })
}

/// CMake: `80`, `80-real`, `80-virtual`, `90a`, `100f`, separated by `;`; or one of the words.
pub fn cmake(text: Option<&str>) -> Result<Reading, Refusal> {
    let Some(text) = text else { return Ok(Reading::Default) };
    let refuse = |item: &str, message: String| Err(Refusal { item: item.to_owned(), by: Refuser::Cmake, message });
    match text {
        "" => return refuse("", "CMAKE_CUDA_ARCHITECTURES must be non-empty if set.".to_owned()),
        "all" => return Ok(Reading::All { major_only: false }),
        "all-major" => return Ok(Reading::All { major_only: true }),
        "native" => return Ok(Reading::VisibleGpus),
        // What CMake takes for false turns the flags off.
        _ if is_false(text) => return Ok(Reading::List(Vec::new())),
        _ => {}
    }
    let mut items = Vec::new();
    for (at, item) in text.split(';').enumerate() {
        if item.is_empty() && at > 0 {
            continue;
        }
        let (number, sass, ptx) = match (item.strip_suffix("-real"), item.strip_suffix("-virtual")) {
            (Some(number), _) => (number, true, false),
            (_, Some(number)) => (number, false, true),
            _ => (item, true, true),
        };
        let digits = number.strip_suffix(['a', 'f']).unwrap_or(number);
        let shaped = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        if !shaped {
            let message = format!("CMAKE_CUDA_ARCHITECTURES:\n\n  {text}\n\nis not one of the following:");
            return refuse(item, message);
        }
        let target: Target = number.parse().map_err(|_| unsupported(item, &format!("compute_{number}")))?;
        items.push(Item { target, sass, ptx });
    }
    Ok(Reading::List(merged(items)))
}

fn is_false(text: &str) -> bool {
    let upper = text.to_ascii_uppercase();
    matches!(upper.as_str(), "0" | "OFF" | "NO" | "FALSE" | "N" | "IGNORE" | "NOTFOUND") || upper.ends_with("-NOTFOUND")
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::{Format, print};
    use super::*;

    fn told(reading: Result<Reading, Refusal>) -> Result<String, String> {
        match reading {
            Ok(Reading::List(items)) => Ok(print(&items, Format::Sm)),
            Ok(other) => Ok(format!("{other:?}")),
            Err(refusal) => Err(refusal.message),
        }
    }

    #[test]
    fn nvcc_words() {
        let targets: Vec<Target> = ["7.5", "8.0", "9.0", "9.0a", "10.0f"].map(|t| t.parse().unwrap()).into();
        let read = |text| told(nvcc(&targets, Some(text)));
        assert_eq!(read("8.0;9.0+PTX").unwrap(), "sm_80 sm_90 compute_90");
        assert_eq!(read("sm_80,compute_90").unwrap(), "sm_80 compute_90");
        assert_eq!(read("-gencode=arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a").unwrap(), "sm_80 sm_90a");
        assert_eq!(read("6.0").unwrap_err(), "nvcc fatal   : Unsupported gpu architecture 'compute_60'");
        assert_eq!(read("Ampere").unwrap_err(), "nvcc fatal   : Unsupported gpu architecture 'Ampere'");
        let pair = "-gencode=arch=compute_80,9,code=sm_80,9";
        assert_eq!(read(pair).unwrap_err(), "nvcc fatal   : '9' is not in 'keyword=value' format");
        let pair = "-gencode=arch=compute_80,code=sm_75";
        assert_eq!(read(pair).unwrap_err(), "nvcc fatal   : Incompatible code generation requested: arch='compute_80', code='sm_75'");
        assert_eq!(read("all-major").unwrap(), "All { major_only: true }");
    }

    #[test]
    fn cmake_words() {
        assert_eq!(told(cmake(Some("80-real;90;100f-virtual"))).unwrap(), "sm_80 sm_90 compute_90 compute_100f");
        assert_eq!(told(cmake(Some("80;;90-real;"))).unwrap(), "sm_80 compute_80 sm_90");
        assert_eq!(told(cmake(Some("OFF"))).unwrap(), "");
        for text in ["8.6", "sm_80", "80,90", "80 90", ";80", "80-Real", "all;80", "80+PTX"] {
            assert!(cmake(Some(text)).is_err(), "{text}");
        }
        assert!(told(cmake(Some(""))).unwrap_err().contains("must be non-empty"));
    }
}
