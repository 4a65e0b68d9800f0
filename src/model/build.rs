//! The ways an extension is built, and what each of them checks and asks for before a compiler runs.

use super::cuda_home::CudaHome;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::{DeepSpeed, Torch};
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
pub fn deepspeed_check(
    path: BuildPath,
    facts: &Snapshot,
    version: &Dotted,
    torch: &Torch,
    nvcc: CudaVersion,
    host_op: bool,
) -> VersionCheck {
    let checked = match path {
        BuildPath::Setup => false,
        BuildPath::Prebuild => true,
        BuildPath::Jit if !version.at_least(&[0, 12, 3]) => true,
        BuildPath::Jit => host_op && !version.at_least(&[0, 19, 7]),
    };
    let Some(cuda) = torch.cuda.filter(|_| checked) else { return VersionCheck::NotChecked };
    if nvcc == cuda {
        return VersionCheck::Passes;
    }
    let accepted = |release: CudaVersion| accepted_minors(version, nvcc.major).contains(&release.minor) && release.major == nvcc.major;
    let differ = format!("Installed CUDA version {nvcc} does not match the version torch was compiled with {cuda}");
    if accepted(nvcc) && accepted(cuda) {
        return VersionCheck::Warns { message: format!("{differ} but since the APIs are compatible, accepting this combination") };
    }
    if facts.env.get("DS_SKIP_CUDA_CHECK").is_some_and(|value| value == "1") && version.at_least(&[0, 9, 3]) {
        return VersionCheck::Skipped { message: format!("{differ}. Detected `DS_SKIP_CUDA_CHECK=1`") };
    }
    VersionCheck::Stops {
        by: Checker::DeepSpeed,
        message: format!("{differ}, unable to compile cuda/cpp extensions without a matching cuda version."),
    }
}

/// The minors of a CUDA major that this DeepSpeed takes for one another.
pub fn accepted_minors(version: &Dotted, major: u32) -> Vec<u32> {
    match major {
        10 => (0..=2).collect(),
        11 => (0..=8).collect(),
        12 => TWELVE.iter().filter(|(since, _)| version.at_least(since)).flat_map(|(_, minors)| minors.iter().copied()).collect(),
        // No release has a row for CUDA 13.
        _ => Vec::new(),
    }
}

/// The release of DeepSpeed from which minors of CUDA 12 are in its table.
const TWELVE: &[(&[u32], &[u32])] =
    &[(&[0, 9, 3], &[0, 1]), (&[0, 12, 1], &[2, 3]), (&[0, 14, 3], &[4, 5]), (&[0, 15, 3], &[6]), (&[0, 16, 4], &[8]), (&[0, 17, 2], &[9])];

/// What the whole path says: DeepSpeed's check first, then torch's, the first that stops.
pub fn version_check(
    path: BuildPath,
    facts: &Snapshot,
    home: &CudaHome,
    torch: &Torch,
    deepspeed: Option<&DeepSpeed>,
) -> Option<VersionCheck> {
    let nvcc = home.toolkit.filter(|_| home.value.is_some())?.release()?;
    let own = match deepspeed.filter(|_| path != BuildPath::Setup) {
        Some(deepspeed) => deepspeed_check(path, facts, &deepspeed.version, torch, nvcc, false),
        None => VersionCheck::NotChecked,
    };
    if matches!(own, VersionCheck::Stops { .. }) {
        return Some(own);
    }
    let after = torch_check(path, torch, nvcc);
    Some(match (own, after) {
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
    /// Named by DS_ACCELERATOR, neither of these.
    Other,
}

/// The accelerator of DeepSpeed, and whether DS_ACCELERATOR says so. `gpu`: a CUDA device is visible to torch. XPU, NPU and other kinds
/// that come before CUDA in its search are not modelled.
pub fn accelerator(facts: &Snapshot, version: &Dotted, torch: Option<&Torch>, gpu: bool) -> (Accelerator, bool) {
    // Every release asks whether the variable is there at all; an empty one is an unknown name and stops it.
    if let Some(value) = facts.env.get("DS_ACCELERATOR") {
        let named = match value.to_str() {
            Some("cuda") => Accelerator::Cuda,
            Some("cpu") => Accelerator::Cpu,
            _ => Accelerator::Other,
        };
        return (named, true);
    }
    let found = match torch {
        None if version.at_least(&[0, 16, 2]) => Accelerator::Cpu,
        None => Accelerator::Cuda,
        Some(torch) if torch.cuda.is_some() && gpu => Accelerator::Cuda,
        Some(torch) if torch.hip.is_some() && gpu => Accelerator::Cuda,
        Some(_) if version.at_least(&[0, 14, 1]) => Accelerator::Cpu,
        Some(_) => Accelerator::Cuda,
    };
    (found, false)
}

/// The C++ standard (14, 17, 20) that torch adds where the extension names none.
pub fn torch_cxx_standard(torch: Option<&Torch>) -> u32 {
    match torch {
        Some(torch) if !torch.version.at_least(&[2]) => 14,
        Some(torch) if !torch.version.at_least(&[2, 12]) => 17,
        _ => 20,
    }
}

/// The C++ standard that DeepSpeed asks the host compiler for in CUDA builders.
pub fn deepspeed_cxx_standard(version: &Dotted, torch: Option<&Torch>) -> u32 {
    match () {
        () if !version.at_least(&[0, 9, 3]) => 14,
        () if version.at_least(&[0, 19, 5]) && torch.is_none_or(|torch| torch.version.at_least(&[2, 12])) => 20,
        () => 17,
    }
}

/// The C++ standard that DeepSpeed asks nvcc for in every op but fused_adam, fused_lamb and fused_lion, which leave it to torch.
pub fn deepspeed_nvcc_standard(version: &Dotted, nvcc: CudaVersion) -> u32 {
    match (nvcc.major, nvcc.minor) {
        (..=10, _) => 14,
        _ if !version.at_least(&[0, 9, 3]) => 14,
        (12, 5..) if version.at_least(&[0, 14, 5]) => 20,
        (13.., _) if version.at_least(&[0, 19, 7]) => 20,
        _ => 17,
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
        deepspeed_check(BuildPath::Prebuild, &facts, &version.parse().unwrap(), &torch("2.6.0", torch_cuda), cuda(nvcc), false)
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
            let torch = torch("2.6.0", "12.4");
            deepspeed_check(BuildPath::Jit, &facts, &version.parse().unwrap(), &torch, cuda("11.8"), host_op) != VersionCheck::NotChecked
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
        let of = |version: &str, torch: Option<&Torch>, gpu| accelerator(&Snapshot::default(), &version.parse().unwrap(), torch, gpu).0;
        assert_eq!(
            ["0.14.0", "0.14.1", "0.19.8"].map(|v| of(v, Some(&with), false)),
            [Accelerator::Cuda, Accelerator::Cpu, Accelerator::Cpu]
        );
        assert_eq!(["0.16.1", "0.16.2"].map(|v| of(v, None, false)), [Accelerator::Cuda, Accelerator::Cpu]);
        assert_eq!(of("0.19.8", Some(&with), true), Accelerator::Cuda);
        let mut facts = Snapshot::default();
        facts.env.set("DS_ACCELERATOR", "cuda");
        assert_eq!(accelerator(&facts, &"0.19.8".parse().unwrap(), None, false), (Accelerator::Cuda, true));
    }

    #[test]
    fn standards() {
        let version = |text: &str| text.parse::<Dotted>().unwrap();
        assert_eq!(["1.13.1", "2.11.0", "2.12.0"].map(|v| torch_cxx_standard(Some(&torch(v, "12.4")))), [14, 17, 20]);
        let nvcc = |v: &str, release: &str| deepspeed_nvcc_standard(&version(v), cuda(release));
        assert_eq!([nvcc("0.14.4", "12.6"), nvcc("0.14.5", "12.4"), nvcc("0.14.5", "12.6")], [17, 17, 20]);
        assert_eq!([nvcc("0.19.6", "13.0"), nvcc("0.19.8", "13.0"), nvcc("0.19.8", "14.0"), nvcc("0.19.8", "10.2")], [17, 20, 20, 14]);
        assert_eq!(deepspeed_cxx_standard(&version("0.19.5"), Some(&torch("2.12.0", "13.0"))), 20);
        assert_eq!(deepspeed_cxx_standard(&version("0.19.4"), Some(&torch("2.12.0", "13.0"))), 17);
    }
}
