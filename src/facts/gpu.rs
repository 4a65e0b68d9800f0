//! GPUs and the driver that serves them.
//!
//! `devices` comes from NVML in a child process; `nodes`, `pci` and `kernel` are read from /dev, /sys and /proc without loading anything.
//! All devices are listed, whatever CUDA_VISIBLE_DEVICES says: that is a selection, made by the models.

use super::observed::Observed;
use super::raw::HostPath;
use crate::version::{Capability, CudaVersion, Dotted};
use serde::{Deserialize, Serialize};
use std::fmt;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub struct GpuFacts {
    /// What NVML lists, in the order of PCI bus addresses. Seen and empty: the driver answers and has no device.
    pub devices: Observed<Vec<Device>>,
    /// Absent: nothing shows a driver at work on this machine.
    pub driver: Observed<DriverFacts>,
    /// The device nodes that exist, by path.
    pub nodes: Vec<DeviceNode>,
    /// NVIDIA display and compute devices on the PCI bus. Absent where there is no such bus to read (WSL, Tegra).
    pub pci: Observed<Vec<PciGpu>>,
}

/// One GPU as NVML sees it. A field is absent where the device lacks the feature, or where `errors` says why it could not be read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct Device {
    /// NVML's index: by PCI bus address, not CUDA's default order.
    pub index: u32,
    pub name: Option<String>,
    pub capability: Option<Capability>,
    pub memory: Option<Memory>,
    /// `GPU-` and a UUID.
    pub uuid: Option<String>,
    /// PCI address in lower case, `00000000:18:00.0` (the domain has eight digits here, four in /sys and /proc).
    pub bus: Option<String>,
    /// The number in `/dev/nvidia0`.
    pub minor: Option<u32>,
    /// None: no MIG on this model (or see `errors`).
    pub mig: Option<Mig>,
    pub compute_mode: Option<ComputeMode>,
    /// Whether the driver stays loaded between programs.
    pub persistence: Option<bool>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<CallError>,
}

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub total: u64,
    pub free: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mig {
    pub enabled: bool,
    /// What it will be after the next reset.
    pub pending: bool,
    pub instances: Vec<MigInstance>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MigInstance {
    pub index: u32,
    /// `MIG-` and a UUID; with drivers before 470 `MIG-GPU-` and the device's UUID, `/`, two numbers.
    pub uuid: Option<String>,
    /// With the profile: `NVIDIA H100 80GB HBM3 MIG 1g.10gb`.
    pub name: Option<String>,
    pub memory: Option<Memory>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    Default,
    ExclusiveThread,
    /// No CUDA program may use the device.
    Prohibited,
    /// One program at a time.
    ExclusiveProcess,
}

/// A call of a GPU library that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallError {
    pub call: String,
    /// The code it answered; none when it could not be called.
    pub code: Option<u32>,
    pub why: String,
}

/// What a call of a GPU library answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub code: u32,
    /// The code's name in the library's header; empty for one we do not know.
    pub name: String,
}

impl Status {
    pub fn ok(&self) -> bool {
        self.code == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "code {}", self.code) } else { write!(f, "{} ({})", self.name, self.code) }
    }
}

/// A library that the loader opened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Library {
    /// The name that was asked for.
    pub asked: String,
    /// The file that answered, links resolved. None when that cannot be told.
    pub path: Option<HostPath>,
    /// The driver release in that file's name.
    pub version: Option<Dotted>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct DriverFacts {
    pub kind: DriverKind,
    /// The path that shows it.
    pub shown_by: HostPath,
    /// From /proc/driver/nvidia/version. Absent on WSL.
    pub kernel: Observed<KernelModule>,
    /// Absent: no such library on the loader's path. Seen with another `init` than 0: the library is there and refuses.
    pub nvml: Observed<NvmlFacts>,
    /// As for `nvml`.
    pub libcuda: Observed<LibcudaFacts>,
    /// The GPUs that the kernel module lists, read without NVML.
    pub listed: Vec<ListedGpu>,
    /// From /proc/driver/nvidia/params: who may use the device nodes, and whether the driver makes them itself.
    #[serde(default)]
    pub node_policy: Option<NodePolicy>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// A kernel module of this system.
    Native,
    /// Windows' driver, reached through /dev/dxg.
    Wsl,
    /// A Jetson's own driver.
    Tegra,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KernelModule {
    pub version: Dotted,
    /// The open kernel modules (Turing and newer only).
    pub open: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NvmlFacts {
    pub library: Library,
    /// What `nvmlInit_v2` answered.
    pub init: Status,
    /// The release of the driver that NVML talks to.
    pub driver: Option<Dotted>,
    /// The newest CUDA release that the driver library serves.
    pub cuda: Option<CudaVersion>,
    /// `12.550.144.03`: a CUDA major and the library's release.
    pub nvml: Option<Dotted>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<CallError>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LibcudaFacts {
    pub library: Library,
    /// What `cuDriverGetVersion` answered: 34 from a toolkit's stub.
    pub status: Status,
    pub cuda: Option<CudaVersion>,
    /// What `cuInit` answered; none when it was not asked.
    pub init: Option<Status>,
}

/// From /proc/driver/nvidia/gpus/*/information.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedGpu {
    /// PCI address, `0000:18:00.0`.
    pub bus: String,
    pub name: Option<String>,
    pub uuid: Option<String>,
    pub minor: Option<u32>,
    /// Excluded by a module parameter.
    pub excluded: bool,
}

/// Parameters of the kernel module. The library that opens a device first makes the nodes so, unless told not to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodePolicy {
    pub made_by_driver: bool,
    pub uid: u32,
    pub gid: u32,
    /// Permission bits; everybody (0666) unless the administrator changed them.
    pub mode: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceNode {
    pub path: HostPath,
    /// A device; a plain file at this path (which serves nobody) is none, except in a file tree, where it stands for one.
    pub device: bool,
    /// Permission bits.
    pub mode: u32,
    pub uid: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PciGpu {
    /// PCI address, `0000:18:00.0`.
    pub address: String,
    pub device: u16,
    pub class: u32,
    /// The kernel driver that holds it: `nvidia`, `nouveau`, `vfio-pci`. None: none does.
    pub held_by: Option<String>,
}

impl GpuFacts {
    /// Something shows that a driver is at work, or devices were assumed.
    pub fn driver_seen(&self) -> bool {
        self.driver.value().is_some() || self.devices.value().is_some_and(|devices| !devices.is_empty())
    }
}
