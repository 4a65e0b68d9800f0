//! Lists of compute capabilities: how torch, DeepSpeed, nvcc and CMake read them, and how they are written.
//!
//! Pure text: nothing here knows a machine. Every reader takes what the real one takes and refuses with the message the real one prints.
//! Making a list for GPUs is [`arch_plan`](super::arch_plan)'s.

mod cover;
mod deepspeed;
mod gpus;
mod native;
mod print;
mod python;
mod torch;

pub use cover::cover;
pub use deepspeed::{Use, default_list, filter};
pub use gpus::for_gpus;
pub use print::{Format, print};

use crate::knowledge::Knowledge;
use crate::version::{Capability, Dotted, Target};
use std::fmt;

/// One target of a list and the forms of code it asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Item {
    pub target: Target,
    /// Machine code for the target.
    pub sass: bool,
    /// PTX, which the driver compiles for newer GPUs.
    pub ptx: bool,
}

impl Item {
    pub const fn sass(target: Target) -> Self {
        Self { target, sass: true, ptx: false }
    }

    pub const fn with_ptx(target: Target) -> Self {
        Self { target, sass: true, ptx: true }
    }

    /// SASS for a plain capability, `8.0`.
    pub const fn plain(major: u32, minor: u32) -> Self {
        Self::sass(Target::plain(Capability::new(major, minor)))
    }
}

/// What a reader makes of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// The targets, ascending, each once.
    List(Vec<Item>),
    /// The reader asks the GPUs it sees (and fails where there are none): the list is unset, empty or `native`.
    VisibleGpus,
    /// The reader never looks at the list: it asks the GPUs whatever the list says.
    Ignored,
    /// Every target that this nvcc has, or the first of each major: `all`, `all-major`.
    All { major_only: bool },
    /// The list is unset and the reader has one of its own: [`default_list`].
    Default,
}

/// Who refuses a list, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The item as the reader sees it; empty for an empty item.
    pub item: String,
    pub by: Refuser,
    /// The text that is printed, the kind of exception included.
    pub message: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refuser {
    Torch,
    DeepSpeed,
    Nvcc,
    Cmake,
}

impl fmt::Display for Refuser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Torch => "torch",
            Self::DeepSpeed => "DeepSpeed",
            Self::Nvcc => "nvcc",
            Self::Cmake => "CMake",
        })
    }
}

/// Who reads the list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reader<'a> {
    /// `TORCH_CUDA_ARCH_LIST` in torch's own builds; `None`: its newest release.
    Torch(Option<&'a Dotted>),
    /// DeepSpeed; `None`: its newest release. A JIT build of 0.19 hands what it reads to torch, so torch must take it too.
    DeepSpeed(Option<&'a Dotted>, Use),
    /// nvcc with these targets: the list as flags or items. Without targets, only the form is judged.
    Nvcc(&'a [Target]),
    /// `CMAKE_CUDA_ARCHITECTURES`
    Cmake,
}

/// Reads a list as this reader would. `None`: the variable is not set.
///
/// # Errors
/// The first item it refuses, with the message.
pub fn read(know: &Knowledge, reader: &Reader, text: Option<&str>) -> Result<Reading, Refusal> {
    match reader {
        Reader::Torch(version) => torch::read(know, *version, text),
        Reader::DeepSpeed(version, usage) => deepspeed::read(know, *version, *usage, text),
        Reader::Nvcc(targets) => native::nvcc(targets, text),
        Reader::Cmake => native::cmake(text),
    }
}

/// Ascending, one item for each target.
fn merged(items: impl IntoIterator<Item = Item>) -> Vec<Item> {
    let mut all: Vec<Item> = Vec::new();
    for item in items {
        match all.iter_mut().find(|known| known.target == item.target) {
            Some(known) => {
                known.sass |= item.sass;
                known.ptx |= item.ptx;
            }
            None => all.push(item),
        }
    }
    all.sort_unstable();
    all
}

/// nvcc's words for a target that it does not have.
fn unsupported(item: &str, name: &str) -> Refusal {
    Refusal { item: item.to_owned(), by: Refuser::Nvcc, message: format!("nvcc fatal   : Unsupported gpu architecture '{name}'") }
}
