//! The root cause first: one table says which finding explains which, and consequences are folded under their cause.

use super::registry;
use crate::finding::{Finding, ProblemId};
use std::cmp::Reverse;

/// Where one of the first is found, the second ones are its consequences. Earlier rows win.
pub const RULES: &[(&[ProblemId], &[ProblemId])] = &[
    (&["cuda-home-dangling", "cuda-home-wrong"], &["no-nvcc", "cuda-home-unset"]),
    (
        &["cuda-home-dangling", "cuda-home-wrong", "no-nvcc", "cuda-home-unset"],
        &[
            "toolkit-incomplete",
            "toolkit-mixed",
            "nvcc-wrapper",
            "nvcc-patch-release-bug",
            "missing-cuda-headers",
            "linker-cannot-find-cuda-lib",
            "libcuda-not-found-at-link",
            "conda-targets-layout",
            "conflicting-cub-headers",
            "glibc-too-new-for-cuda-headers",
            "nvcc-too-old-for-cxx-standard",
            "path-nvcc-differs-from-cuda-home",
            "multiple-toolkits-path-order",
            "distro-nvcc-usr-bin",
            "torch-nvcc-mismatch-major",
            "torch-nvcc-mismatch-minor",
            "gcc-too-new-for-nvcc",
            "clang-unsupported-by-nvcc",
            "gcc-rejected-by-torch",
            "nvcc-too-old-for-gpu",
            "nvcc-dropped-arch",
            "ds-default-arch-list-rejected",
            "spaces-in-path",
            "cuda-env-not-read",
        ],
    ),
    (
        &["torch-not-found", "cpu-only-torch", "rocm-torch"],
        &[
            "torch-nvcc-mismatch-major",
            "torch-nvcc-mismatch-minor",
            "no-nvcc",
            "cuda-home-unset",
            "gpu-too-new-for-torch",
            "gcc-rejected-by-torch",
            "ds-accelerator-cpu",
            "ds-default-arch-list-rejected",
            "arch-list-unset-no-gpu",
        ],
    ),
    (&["python-env-mismatch"], &["torch-not-found"]),
    (
        &["path-nvcc-differs-from-cuda-home"],
        &["multiple-toolkits-path-order", "torch-nvcc-mismatch-major", "torch-nvcc-mismatch-minor", "distro-nvcc-usr-bin"],
    ),
    (
        &["torch-nvcc-mismatch-major"],
        &[
            "torch-nvcc-mismatch-minor",
            "gcc-too-new-for-nvcc",
            "gcc-rejected-by-torch",
            "clang-unsupported-by-nvcc",
            "nvcc-dropped-arch",
            "nvcc-too-old-for-gpu",
            "nvcc-too-old-for-cxx-standard",
            "ds-default-arch-list-rejected",
            "missing-cuda-headers",
            "linker-cannot-find-cuda-lib",
            "conda-targets-layout",
            "toolkit-incomplete",
            "toolkit-mixed",
            "glibc-too-new-for-cuda-headers",
            "multiple-toolkits-path-order",
            "distro-nvcc-usr-bin",
        ],
    ),
    (&["libcudart-impostor", "ld-library-path-overrides-torch-libs"], &["multiple-toolkits-path-order"]),
    (&["multiple-toolkits-path-order"], &["distro-nvcc-usr-bin"]),
    // torch takes the folder above the wrapper for the toolkit, and its release is that of the nvcc which the wrapper starts.
    (
        &["nvcc-wrapper"],
        &[
            "torch-nvcc-mismatch-major",
            "torch-nvcc-mismatch-minor",
            "toolkit-incomplete",
            "missing-cuda-headers",
            "linker-cannot-find-cuda-lib",
        ],
    ),
    (&["conda-targets-layout"], &["toolkit-incomplete", "missing-cuda-headers", "linker-cannot-find-cuda-lib"]),
    (&["toolkit-incomplete", "toolkit-mixed"], &["missing-cuda-headers", "linker-cannot-find-cuda-lib"]),
    (&["missing-cxx-compiler", "cxx-env-var-malformed"], &["gcc-too-new-for-nvcc", "gcc-rejected-by-torch", "gcc-too-old-for-torch"]),
    (&["conda-compiler-shadows-system-gcc"], &["host-compiler-no-sysroot"]),
    (&["gcc-too-new-for-nvcc"], &["gcc-rejected-by-torch"]),
    (&["nvcc-too-old-for-gpu"], &["gpu-too-new-for-torch", "arch-list-wrong"]),
    (&["jetson-aarch64"], &["gpu-too-new-for-torch", "gpu-too-old-for-software"]),
    (&["gpu-too-new-for-torch", "gpu-too-old-for-software"], &["arch-list-wrong", "no-kernel-image"]),
    (&["arch-list-malformed", "nvcc-dropped-arch", "arch-list-wrong"], &["no-kernel-image", "ptx-newer-than-driver"]),
    (&["prebuilt-ops-torch-changed"], &["no-kernel-image", "ptx-newer-than-driver"]),
    (&["driver-too-old"], &["ptx-newer-than-driver"]),
    (&["arch-list-malformed"], &["nvcc-dropped-arch", "arch-list-wrong", "ds-bf16-disabled"]),
    (&["nvcc-dropped-arch"], &["arch-list-wrong"]),
    (&["ds-default-arch-list-rejected"], &["arch-list-unset-no-gpu"]),
    (&["libcudart-impostor"], &["libcudart-not-found", "ld-library-path-overrides-torch-libs"]),
    (&["libcudart-not-found"], &["runtime-lib-not-on-loader-path", "cudnn-not-found", "ld-library-path-overrides-torch-libs"]),
    (&["two-cuda-families"], &["nccl-system-vs-torch"]),
    (&["stubs-on-loader-path"], &["libcuda-not-found", "libnvidia-ml-not-found"]),
    (
        &["nvidia-module-not-loaded", "nvml-driver-library-mismatch", "cuda-compat-wrong"],
        &[
            "driver-too-old",
            "no-gpu",
            "libcuda-not-found",
            "libnvidia-ml-not-found",
            "gpu-device-nodes",
            "arch-list-unset-no-gpu",
            "ds-accelerator-cpu",
        ],
    ),
    (&["no-gpu"], &["libcuda-not-found", "libnvidia-ml-not-found"]),
    (&["libcuda-not-found"], &["libnvidia-ml-not-found", "arch-list-unset-no-gpu", "ds-accelerator-cpu"]),
    (&["gpu-device-nodes", "gpu-dropped-by-driver", "driver-too-old"], &["no-gpu", "arch-list-unset-no-gpu", "ds-accelerator-cpu"]),
    (&["cuda-visible-devices-mask"], &["no-gpu", "arch-list-unset-no-gpu", "ds-accelerator-cpu"]),
    // The trial build fails of these in words that no signature may know.
    (
        &[
            "cuda-home-wrong",
            "toolkit-incomplete",
            "toolkit-mixed",
            "nvcc-wrapper",
            "glibc-too-new-for-cuda-headers",
            "gcc-too-new-for-nvcc",
            "gcc-too-old-for-torch",
            "conda-compiler-shadows-system-gcc",
            "disk-full-tmp",
            "tmpdir-broken",
        ],
        &["probe-failed", "probe-crashed", "probe-timeout"],
    ),
    (&["module-shadowing"], &["torch-not-found"]),
    (&["missing-ninja"], &["max-jobs-ignored"]),
    (
        &["libcuda-not-found", "stubs-on-loader-path", "cuda-compat-wrong", "nvml-driver-library-mismatch", "gpu-device-nodes"],
        &["nccl-init-failed"],
    ),
    (&["shm-too-small", "fabric-manager-down"], &["nccl-init-failed", "nccl-collective-failed", "nccl-crashed"]),
    (&["two-cuda-families", "nccl-system-vs-torch"], &["nccl-not-found", "nccl-init-failed", "nccl-collective-failed", "nccl-crashed"]),
];

/// Whether the table makes `consequence` follow from `cause`.
pub fn explains(cause: ProblemId, consequence: ProblemId) -> bool {
    RULES.iter().any(|(causes, consequences)| causes.contains(&cause) && consequences.contains(&consequence))
}

/// Folds each consequence under the first finding that explains it, and sorts: heaviest first, then in the registry's order.
pub fn fold(findings: Vec<Finding>) -> Vec<Finding> {
    let ids: Vec<ProblemId> = findings.iter().map(|finding| finding.id).collect();
    let cause_of = |id: ProblemId| -> Option<ProblemId> {
        RULES
            .iter()
            .filter(|(_, consequences)| consequences.contains(&id))
            .flat_map(|(causes, _)| causes.iter())
            .find(|cause| ids.contains(cause) && **cause != id)
            .copied()
    };
    let (mut roots, mut folded) = (Vec::new(), Vec::new());
    for mut finding in findings {
        match cause_of(finding.id) {
            Some(_) => {
                finding.caused_by = ids.iter().copied().filter(|cause| *cause != finding.id && explains(cause, finding.id)).fold(
                    Vec::new(),
                    |mut all, id| {
                        if !all.contains(&id) {
                            all.push(id);
                        }
                        all
                    },
                );
                folded.push(finding);
            }
            None => roots.push(finding),
        }
    }
    for finding in folded {
        let root = root_of(finding.id, &cause_of);
        match roots.iter_mut().find(|candidate| candidate.id == root) {
            Some(cause) => cause.folded.push(finding),
            None => roots.push(finding),
        }
    }
    roots.sort_by_key(|finding| (Reverse(finding.weight()), registry::check(finding.id).unwrap_or(usize::MAX)));
    roots
}

/// Follows causes up. The table must have no circle among findings that occur together; a step limit keeps a mistake from hanging.
fn root_of(id: ProblemId, cause_of: &dyn Fn(ProblemId) -> Option<ProblemId>) -> ProblemId {
    let mut at = id;
    for _ in 0..16 {
        match cause_of(at) {
            Some(cause) => at = cause,
            None => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(findings: &[Finding]) -> Vec<ProblemId> {
        findings.iter().map(|f| f.id).collect()
    }

    #[test]
    fn the_cause_speaks_and_carries_the_weight() {
        let roots = fold(vec![
            Finding::error("gcc-too-new-for-nvcc", ""),
            Finding::warning("stubs-on-loader-path", ""),
            Finding::warning("path-nvcc-differs-from-cuda-home", ""),
            Finding::error("torch-nvcc-mismatch-major", ""),
        ]);
        assert_eq!(ids(&roots), ["path-nvcc-differs-from-cuda-home", "stubs-on-loader-path"]);
        assert_eq!(ids(&roots[0].folded), ["gcc-too-new-for-nvcc", "torch-nvcc-mismatch-major"]);
        assert_eq!(roots[0].weight(), crate::finding::Severity::Error);
        assert_eq!(roots[0].folded[1].caused_by, ["path-nvcc-differs-from-cuda-home"]);
    }

    #[test]
    fn no_id_explains_itself_and_pairs_do_not_circle_except_where_one_must_win() {
        for (causes, consequences) in RULES {
            for cause in *causes {
                assert!(!consequences.contains(cause), "{cause} explains itself");
            }
        }
    }
}
