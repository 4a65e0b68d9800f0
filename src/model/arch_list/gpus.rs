//! What a JIT build compiles for when no list says it: the GPUs it sees.

use super::python::int_of;
use super::{Item, Reader, Refusal, Refuser, Use, merged};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::knowledge::schema::torch::TorchTrait;
use crate::version::{Capability, Dotted, Target};

/// The targets that this reader asks nvcc for on a machine with these visible GPUs, in CUDA's order. `torch_archs`: what
/// `torch.cuda.get_arch_list()` answers, `sm_80`…; torch clamps GPUs to its highest, DeepSpeed does not.
///
/// torch, and DeepSpeed to 0.18.9, sort as text, so that PTX lands on 8.0 where there are 8.0 and 12.0. nvcc and CMake answer as DeepSpeed's
/// newest: every GPU, PTX for the newest.
///
/// # Errors
/// Without GPUs, and where torch cannot read its own list.
pub fn for_gpus(know: &Knowledge, reader: &Reader, devices: &[Capability], torch_archs: &[String]) -> Result<Vec<Item>, Refusal> {
    match reader {
        Reader::Torch(version) => torch(know, *version, devices, torch_archs),
        Reader::DeepSpeed(version, usage) => {
            let by_number = version.and_then(|version| know.deepspeed_does(DeepSpeedTrait::JitReadsArchList, version)).unwrap_or(true);
            deepspeed(devices, *usage, by_number)
        }
        Reader::Nvcc(_) | Reader::Cmake => deepspeed(devices, Use::Prebuild, true),
    }
}

fn torch(know: &Knowledge, version: Option<&Dotted>, devices: &[Capability], archs: &[String]) -> Result<Vec<Item>, Refusal> {
    // The clamp is made for each device, so without any it is the sort's end that fails.
    if devices.is_empty() {
        return Err(refusal("IndexError: list index out of range"));
    }
    let strict = version.is_some_and(|version| know.torch_does(TorchTrait::ClampBreaksOnSuffix, version));
    let mut highest = None;
    for arch in archs.iter().filter(|arch| arch.contains("sm_")) {
        let number = arch.split('_').nth(1).unwrap_or_default();
        let digits: String = number.chars().filter(char::is_ascii_digit).collect();
        let number = int_of(arch, if strict { number } else { &digits }).map_err(by_torch)?;
        highest = highest.max(u32::try_from(number).ok().map(Capability::from_sm));
    }
    let clamp = |device: &Capability| match highest {
        Some(highest) => Ok((*device).min(highest)),
        None => Err(refusal("ValueError: max() arg is an empty sequence")),
    };
    let clamped: Result<Vec<Capability>, Refusal> = devices.iter().map(clamp).collect();
    ptx_on_last(clamped?, true).ok_or_else(|| refusal("IndexError: list index out of range"))
}

fn deepspeed(devices: &[Capability], usage: Use, by_number: bool) -> Result<Vec<Item>, Refusal> {
    let message = match (usage, by_number) {
        (Use::Jit, true) => "RuntimeError: found no CUDA devices. Set TORCH_CUDA_ARCH_LIST or make GPUs visible.",
        _ => "IndexError: list index out of range",
    };
    ptx_on_last(devices.to_vec(), !by_number).ok_or_else(|| Refusal {
        item: String::new(),
        by: Refuser::DeepSpeed,
        message: message.to_owned(),
    })
}

/// Each once, PTX for the last: of the text's order or of the number's.
fn ptx_on_last(mut devices: Vec<Capability>, as_text: bool) -> Option<Vec<Item>> {
    devices.sort();
    if as_text {
        devices.sort_by_key(ToString::to_string);
    }
    let last = *devices.last()?;
    let plain = devices.into_iter().map(|device| Item::sass(Target::plain(device)));
    Some(merged(plain.chain([Item::with_ptx(Target::plain(last))])))
}

fn refusal(message: &str) -> Refusal {
    Refusal { item: String::new(), by: Refuser::Torch, message: message.to_owned() }
}

fn by_torch(refusal: Refusal) -> Refusal {
    Refusal { by: Refuser::Torch, ..refusal }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::{Format, print};
    use super::*;

    fn list(reader: &Reader, devices: &[&str]) -> Result<String, String> {
        let devices: Vec<Capability> = devices.iter().map(|text| text.parse().unwrap()).collect();
        let archs = ["sm_80", "sm_90", "sm_120", "compute_120"].map(str::to_owned);
        for_gpus(&Knowledge::embedded(), reader, &devices, &archs)
            .map(|items| print(&items, Format::List))
            .map_err(|refusal| refusal.message)
    }

    #[test]
    fn text_and_numbers() {
        let old = "0.18.9".parse().unwrap();
        let both = ["12.0", "8.0", "12.0"];
        assert_eq!(list(&Reader::Torch(None), &both).unwrap(), "8.0+PTX;12.0");
        assert_eq!(list(&Reader::DeepSpeed(Some(&old), Use::Jit), &both).unwrap(), "8.0+PTX;12.0");
        assert_eq!(list(&Reader::DeepSpeed(None, Use::Jit), &both).unwrap(), "8.0;12.0+PTX");
    }

    #[test]
    fn only_torch_clamps() {
        assert_eq!(list(&Reader::Torch(None), &["15.0"]).unwrap(), "12.0+PTX");
        assert_eq!(list(&Reader::DeepSpeed(None, Use::Jit), &["15.0"]).unwrap(), "15.0+PTX");
    }

    #[test]
    fn nothing_to_see() {
        assert_eq!(list(&Reader::Torch(None), &[]).unwrap_err(), "IndexError: list index out of range");
        assert!(list(&Reader::DeepSpeed(None, Use::Jit), &[]).unwrap_err().contains("found no CUDA devices"));
    }
}
