//! The ways an extension is built, and what each of them checks and asks for before a compiler runs.

use super::cuda_home::CudaHome;
use crate::facts::raw::Raw;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::{DeepSpeed, Torch};
use crate::knowledge::Knowledge;
use crate::knowledge::deepspeed::CudaPair;
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait, Part};
use crate::knowledge::schema::torch::TorchTrait;
use crate::version::{CudaVersion, Dotted};

/// How an extension comes to be built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BuildPath {
    /// `setup.py` or `pip install` of a package with `CUDAExtension`.
    Setup,
    /// DeepSpeed's own wheel with `DS_BUILD_*`.
    Prebuild,
    /// `torch.utils.cpp_extension.load`, DeepSpeed's ops at first use.
    Jit,
}

impl BuildPath {
    pub const ALL: [Self; 3] = [Self::Setup, Self::Prebuild, Self::Jit];
}

/// What a build says to the pair of nvcc and torch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VersionCheck {
    Passes,
    /// It goes on; `message` is what it prints.
    Warns {
        message: String,
    },
    Stops {
        by: Checker,
        message: String,
    },
    /// It would stop, but `DS_SKIP_CUDA_CHECK=1` holds; torch's own check comes after.
    Skipped {
        message: String,
    },
    /// This path checks nothing: a wrong pair shows later, as a library that is not found.
    NotChecked,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checker {
    Torch,
    DeepSpeed,
}

/// torch's rule for `setup.py` builds: majors must be equal, minors may differ with a warning (from 1.11 on). JIT checks nothing.
pub fn torch_check(path: BuildPath, torch: &Torch, nvcc: CudaVersion) -> VersionCheck {
    let Some(cuda) = torch.cuda.filter(|_| path != BuildPath::Jit) else { return VersionCheck::NotChecked };
    if nvcc.major != cuda.major {
        return VersionCheck::Stops {
            by: Checker::Torch,
            message: format!("The detected CUDA version ({nvcc}) mismatches the version that was used to compile PyTorch ({cuda})"),
        };
    }
    if nvcc.minor == cuda.minor {
        return VersionCheck::Passes;
    }
    let message = format!(
        "The detected CUDA version ({nvcc}) has a minor version mismatch with the version that was used to compile PyTorch ({cuda}). \
         Most likely this shouldn't be a problem."
    );
    VersionCheck::Warns { message }
}

/// DeepSpeed's rule: the same release, or both in one row of its table. `host_op`: one of cpu_adam, cpu_adagrad, cpu_lion, async_io, gds,
/// dc, whose JIT builds were checked longer than the others.
pub fn deepspeed_check(pair: &Pair, know: &Knowledge, path: BuildPath, facts: &Snapshot, host_op: bool) -> VersionCheck {
    let does = |what| know.deepspeed_does(what, pair.deepspeed).unwrap_or(false);
    let checked = match path {
        BuildPath::Setup => false,
        BuildPath::Prebuild => true,
        BuildPath::Jit => does(DeepSpeedTrait::JitChecksCuda) || (host_op && does(DeepSpeedTrait::JitChecksCudaForHostOps)),
    };
    let (Some(cuda), true) = (pair.torch.cuda, checked) else { return VersionCheck::NotChecked };
    let nvcc = pair.nvcc;
    let differ = format!("Installed CUDA version {nvcc} does not match the version torch was compiled with {cuda}");
    match know.deepspeed_cuda_pair(pair.deepspeed, nvcc, cuda) {
        CudaPair::Equal => VersionCheck::Passes,
        CudaPair::Compatible => {
            VersionCheck::Warns { message: format!("{differ} but since the APIs are compatible, accepting this combination") }
        }
        CudaPair::Refused => {
            let skips = facts.env.get("DS_SKIP_CUDA_CHECK").is_some_and(|value| value == "1");
            if skips && does(DeepSpeedTrait::ReadsSkipCudaCheck) {
                return VersionCheck::Skipped { message: format!("{differ}. Detected `DS_SKIP_CUDA_CHECK=1`") };
            }
            let message = format!("{differ}, unable to compile cuda/cpp extensions without a matching cuda version.");
            VersionCheck::Stops { by: Checker::DeepSpeed, message }
        }
    }
}

/// What DeepSpeed compares.
#[derive(Debug, Clone, Copy)]
pub struct Pair<'a> {
    pub deepspeed: &'a Dotted,
    pub torch: &'a Torch,
    pub nvcc: CudaVersion,
}

/// What the whole path says for an op: DeepSpeed's check first, then torch's, the first that stops. `None` where nvcc's release is not
/// known, or torch finds no toolkit.
pub fn version_check(
    path: BuildPath,
    facts: &Snapshot,
    know: &Knowledge,
    home: &CudaHome,
    torch: &Torch,
    deepspeed: Option<&DeepSpeed>,
) -> Option<VersionCheck> {
    let nvcc = home.toolkit.filter(|_| home.value.is_some())?.release()?;
    let own = match deepspeed {
        Some(deepspeed) => deepspeed_check(&Pair { deepspeed: &deepspeed.version, torch, nvcc }, know, path, facts, false),
        None => VersionCheck::NotChecked,
    };
    Some(match (own, torch_check(path, torch, nvcc)) {
        (own @ VersionCheck::Stops { .. }, _) => own,
        (_, stops @ VersionCheck::Stops { .. }) => stops,
        (VersionCheck::NotChecked | VersionCheck::Passes, after) => after,
        (own, _) => own,
    })
}

/// The op set that DeepSpeed builds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    Cuda,
    Cpu,
    /// Named by DS_ACCELERATOR, neither of these; an empty or unknown name stops DeepSpeed.
    Other,
}

/// The accelerator of DeepSpeed, and whether DS_ACCELERATOR says so. `gpu`: a CUDA device is visible to torch. XPU, NPU and other kinds
/// that come before CUDA in its search are not modelled. `None` for a release that no table knows.
pub fn accelerator(facts: &Snapshot, know: &Knowledge, version: &Dotted, torch: Option<&Torch>, gpu: bool) -> Option<(Accelerator, bool)> {
    let reads = know.deepspeed_does(DeepSpeedTrait::ReadsAccelerator, version).unwrap_or(true);
    if let Some(value) = facts.env.get("DS_ACCELERATOR").filter(|_| reads) {
        let named = match value.to_str() {
            Some("cuda") => Accelerator::Cuda,
            Some("cpu") => Accelerator::Cpu,
            _ => Accelerator::Other,
        };
        return Some((named, true));
    }
    let row = know.deepspeed_accelerator(version)?;
    let kind = match torch {
        None => row.no_torch,
        Some(torch) if gpu && (torch.cuda.is_some() || torch.hip.is_some()) => AcceleratorKind::Cuda,
        Some(_) => row.no_gpu,
    };
    let found = match kind {
        AcceleratorKind::Cuda => Accelerator::Cuda,
        AcceleratorKind::Cpu => Accelerator::Cpu,
    };
    Some((found, false))
}

/// The C++ standard (14, 17, 20) that torch adds where the extension names none; 14 for releases before the tables.
pub fn torch_cxx_standard(know: &Knowledge, torch: &Torch) -> u32 {
    know.torch_headers(&torch.version).map_or(14, |row| row.default_standard)
}

/// The C++ standard that DeepSpeed asks nvcc for. fused_adam, fused_lamb and fused_lion leave it to torch.
pub fn deepspeed_nvcc_standard(know: &Knowledge, pair: &Pair, fused_optimizer: bool) -> Option<u32> {
    if fused_optimizer {
        return Some(torch_cxx_standard(know, pair.torch));
    }
    know.deepspeed_standard(Part::Nvcc, pair.deepspeed, pair.nvcc, &pair.torch.version)
}

/// The command that builds run for nvcc: PYTORCH_NVCC (JIT and ninja builds, torch 2.1 and later), else `<home>/bin/nvcc`.
pub fn nvcc_command(facts: &Snapshot, know: &Knowledge, home: &CudaHome, torch: Option<&Torch>) -> Option<Raw> {
    let reads = torch.is_none_or(|torch| know.torch_does(TorchTrait::ReadsPytorchNvcc, &torch.version));
    match facts.env.get("PYTORCH_NVCC").filter(|_| reads) {
        Some(value) => Some(Raw(value.to_owned())),
        None => home.nvcc().map(|path| Raw(path.0.into_os_string())),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn torch(version: &str, cuda: &str) -> Torch {
        serde_json::from_str(&format!(r#"{{"path": "/site/torch", "version": "{version}", "cuda": "{cuda}"}}"#)).unwrap()
    }

    fn cuda(text: &str) -> CudaVersion {
        text.parse().unwrap()
    }

    fn says(version: &str, torch_cuda: &str, nvcc: &str, skip: &str) -> VersionCheck {
        let mut facts = Snapshot::default();
        facts.env.set("DS_SKIP_CUDA_CHECK", skip);
        let pair = Pair { deepspeed: &version.parse().unwrap(), torch: &torch("2.6.0", torch_cuda), nvcc: cuda(nvcc) };
        deepspeed_check(&pair, &Knowledge::embedded(), BuildPath::Prebuild, &facts, false)
    }

    #[test]
    fn deepspeed_and_minors() {
        assert_eq!(says("0.19.8", "13.0", "13.0", "0"), VersionCheck::Passes);
        assert!(matches!(says("0.19.8", "13.0", "13.2", "0"), VersionCheck::Stops { by: Checker::DeepSpeed, .. }));
        assert!(matches!(says("0.19.8", "13.0", "13.2", "1"), VersionCheck::Skipped { .. }));
        assert!(matches!(says("0.19.8", "13.0", "13.2", "yes"), VersionCheck::Stops { .. }));
        assert!(matches!(says("0.19.8", "12.4", "12.9", "0"), VersionCheck::Warns { .. }));
        assert!(matches!(says("0.17.1", "12.4", "12.9", "0"), VersionCheck::Stops { .. }));
        assert!(matches!(says("0.16.4", "12.4", "12.8", "0"), VersionCheck::Warns { .. }));
        assert!(matches!(says("0.19.8", "12.4", "12.7", "0"), VersionCheck::Stops { .. }), "there is no 12.7");
        assert!(matches!(says("0.14.5", "12.4", "11.8", "0"), VersionCheck::Stops { .. }));
        assert!(matches!(says("0.9.2", "12.0", "12.1", "1"), VersionCheck::Stops { .. }));
        assert!(matches!(says("0.19.8", "14.0", "14.1", "0"), VersionCheck::Stops { .. }));
    }

    #[test]
    fn jit_checks_less_and_less() {
        let of = |version: &str, host_op| {
            let facts = Snapshot::default();
            let pair = Pair { deepspeed: &version.parse().unwrap(), torch: &torch("2.6.0", "12.4"), nvcc: cuda("11.8") };
            deepspeed_check(&pair, &Knowledge::embedded(), BuildPath::Jit, &facts, host_op) != VersionCheck::NotChecked
        };
        assert_eq!(["0.12.2", "0.12.3", "0.19.8"].map(|version| of(version, false)), [true, false, false]);
        assert_eq!(["0.12.2", "0.12.3", "0.19.6", "0.19.8"].map(|version| of(version, true)), [true, true, true, false]);
        assert_eq!(torch_check(BuildPath::Jit, &torch("2.6.0", "12.4"), cuda("11.8")), VersionCheck::NotChecked);
    }

    #[test]
    fn torch_stops_at_majors_only() {
        assert!(matches!(torch_check(BuildPath::Setup, &torch("2.11.0", "13.0"), cuda("13.2")), VersionCheck::Warns { .. }));
        assert!(matches!(torch_check(BuildPath::Setup, &torch("2.11.0", "13.0"), cuda("12.9")), VersionCheck::Stops { .. }));
    }

    #[test]
    fn accelerators() {
        let with = torch("2.6.0", "12.4");
        let of = |version: &str, torch: Option<&Torch>, gpu| {
            accelerator(&Snapshot::default(), &Knowledge::embedded(), &version.parse().unwrap(), torch, gpu).unwrap().0
        };
        assert_eq!(
            ["0.14.0", "0.14.1", "0.19.8"].map(|v| of(v, Some(&with), false)),
            [Accelerator::Cuda, Accelerator::Cpu, Accelerator::Cpu]
        );
        assert_eq!(["0.16.1", "0.16.2"].map(|v| of(v, None, false)), [Accelerator::Cuda, Accelerator::Cpu]);
        assert_eq!(of("0.19.8", Some(&with), true), Accelerator::Cuda);
        let mut facts = Snapshot::default();
        facts.env.set("DS_ACCELERATOR", "cuda");
        assert_eq!(accelerator(&facts, &Knowledge::embedded(), &"0.19.8".parse().unwrap(), None, false), Some((Accelerator::Cuda, true)));
    }

    #[test]
    fn standards() {
        let know = Knowledge::embedded();
        assert_eq!(["1.13.1", "2.11.0", "2.12.0", "3.0.0"].map(|v| torch_cxx_standard(&know, &torch(v, "12.4"))), [14, 17, 20, 20]);
        let nvcc = |v: &str, release: &str, fused| {
            let pair = Pair { deepspeed: &v.parse().unwrap(), torch: &torch("2.12.0", release), nvcc: cuda(release) };
            deepspeed_nvcc_standard(&know, &pair, fused).unwrap()
        };
        assert_eq!([nvcc("0.14.4", "12.6", false), nvcc("0.14.5", "12.4", false), nvcc("0.14.5", "12.6", false)], [17, 17, 20]);
        assert_eq!([nvcc("0.19.6", "13.0", false), nvcc("0.19.8", "14.0", false), nvcc("0.19.6", "13.0", true)], [17, 20, 20]);
    }

    #[test]
    fn the_command_for_nvcc() {
        let mut facts = Snapshot::default();
        facts.env.set("CUDA_HOME", "/cuda");
        facts.env.set("PYTORCH_NVCC", "ccache /x/nvcc");
        let know = Knowledge::embedded();
        let home = super::super::cuda_home::cuda_home(&facts, &know, None);
        let of = |version: &str| nvcc_command(&facts, &know, &home, Some(&torch(version, "12.4"))).unwrap().to_string();
        assert_eq!([of("2.0.1"), of("2.1.0")], ["/cuda/bin/nvcc", "ccache /x/nvcc"]);
    }
}
