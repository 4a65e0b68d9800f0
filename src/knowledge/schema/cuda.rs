//! The tables of `cuda.toml`.

use super::{Fault, List, Number, Str, Versions};
use crate::version::{CudaVersion, Target};

record! {
    /// One CUDA toolkit release, all its updates together.
    pub struct Toolkit {
        pub cuda: CudaVersion,
        /// The newest gcc major that `crt/host_config.h` lets through.
        pub max_gcc: u32,
        /// The newest clang major that `crt/host_config.h` lets through.
        pub max_clang: u32,
        /// The newest C++ standard that `nvcc -std` knows: 14, 17, 20 or 23.
        pub max_cxx_standard: u32,
        /// Real targets, in ascending order; the virtual ones are the same.
        pub targets: List<Target>,
        /// What nvcc compiles for when nothing is asked.
        pub default_target: Target,
        /// The version of PTX that this nvcc writes.
        pub ptx_isa: Number,
        /// The SONAME of its libcudart.
        pub cudart_soname: Str,
        /// The oldest driver that has this CUDA level of its own, without compatibility.
        pub min_driver: Option<Number>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Toolkit, CudaVersion, |t| t.cuda, t.cuda.to_string(), {
    let sorted = t.targets.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
    match () {
        () if !sorted => Err(Fault::new("targets", "are not in ascending order, each once")),
        () if !t.targets.contains(&t.default_target) => Err(Fault::new("default_target", "is not among the targets")),
        () if !matches!(t.max_cxx_standard, 14 | 17 | 20 | 23) => Err(Fault::new("max_cxx_standard", "is not 14, 17, 20 or 23")),
        () if !t.cudart_soname.starts_with("libcudart.so.") => Err(Fault::new("cudart_soname", "does not begin with `libcudart.so.`")),
        () => Ok(()),
    }
});

record! {
    /// One nvcc build that differs from its release, or has a bug of its own.
    pub struct NvccBuild {
        /// As `nvcc --version` prints it after `V`: `11.4.48`.
        pub nvcc: Number,
        pub max_gcc: Option<u32>,
        pub max_clang: Option<u32>,
        /// What goes wrong with this very build; a clause for a sentence.
        pub bug: Option<Str>,
        /// Only with a host gcc of this major or a newer one.
        pub bug_from_gcc: Option<u32>,
        /// The first build without the bug.
        pub fixed_in: Option<Number>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(NvccBuild, crate::version::Dotted, |b| b.nvcc.dotted(), b.nvcc.to_string(), {
    let nothing = b.max_gcc.is_none() && b.max_clang.is_none() && b.bug.is_none();
    if nothing { Err(Fault::new("nvcc", "is a row that says nothing: give max_gcc, max_clang or bug")) } else { Ok(()) }
});

record! {
    /// One published update of a toolkit: its label, and the versions that its parts print.
    pub struct Release {
        /// `12.4.1`
        pub label: Number,
        pub nvcc: Number,
        pub cudart: Number,
        /// Left out where it is not known.
        pub cublas: Option<Number>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Release, crate::version::Dotted, |r| r.label.dotted(), r.label.to_string());

record! {
    /// The oldest driver on which every release of a CUDA major runs (Linux, no PTX).
    pub struct MinorCompat {
        pub cuda_major: u32,
        pub min_driver: Number,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(MinorCompat, u32, |m| m.cuda_major, m.cuda_major.to_string());

record! {
    /// The CUDA level that a driver branch reports. Some levels (12.7) never were a toolkit.
    pub struct DriverBranch {
        /// The first number of the driver's version.
        pub branch: u32,
        pub cuda: CudaVersion,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(DriverBranch, u32, |d| d.branch, d.branch.to_string());

record! {
    /// A clash of glibc's mathematics headers with those of CUDA, which no other compiler cures.
    pub struct GlibcClash {
        /// The first glibc that declares the functions.
        pub glibc: Number,
        /// One function that the compiler names in its error.
        pub function: Str,
        /// The first CUDA release with headers that allow for it.
        pub fixed_in: CudaVersion,
        /// A text that `crt/math_functions.h` holds when it allows for it; read the header where there is one.
        pub header_marker: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(GlibcClash, crate::version::Dotted, |g| g.glibc.dotted(), g.glibc.to_string());

choice! {
    /// What some releases of nvcc can do and others cannot.
    pub enum NvccAbility {
        /// Reads the host compiler from the variable `NVCC_CCBIN`.
        ReadsCcbinVariable,
        /// Knows `-allow-unsupported-compiler`.
        AllowUnsupportedCompiler,
        /// Knows targets of a family, `sm_100f`.
        FamilyTargets,
    }
}

record! {
    /// The releases whose nvcc can do a thing.
    pub struct NvccCan {
        pub ability: NvccAbility,
        pub cuda: Versions,
        /// Releases for which it is not known.
        pub unknown: Option<Versions>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(NvccCan, NvccAbility, |n| n.ability, format!("{:?}", n.ability));

record! {
    /// What an error of a CUDA call means, whether the driver or the runtime answers so: where it matters both use the same numbers.
    pub struct CallStatus {
        pub code: u32,
        /// The problem, by its id.
        pub id: Str,
        /// A clause: what is wrong.
        pub says: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(CallStatus, u32, |s| s.code, s.code.to_string());

tables! {
    /// What is known of CUDA toolkits and drivers.
    CudaTables in "cuda.toml" {
        toolkit: Toolkit,
        nvcc_build: NvccBuild,
        release: Release,
        minor_compat: MinorCompat,
        driver_branch: DriverBranch,
        glibc_clash: GlibcClash,
        nvcc_can: NvccCan,
        call_status: CallStatus,
    }
    whole: |t| {
        let levels_rise = t.driver_branch.windows(2).all(|pair| matches!(pair, [a, b] if a.cuda <= b.cuda));
        if !levels_rise {
            return Err(Fault::new("driver_branch", "has a newer branch with a lower CUDA level"));
        }
        for kit in t.toolkit.iter() {
            if kit.cuda.major >= 11 && !t.minor_compat.iter().any(|m| m.cuda_major == kit.cuda.major) {
                return Err(Fault::new("minor_compat", format!("has no row for CUDA {}, which the toolkits have", kit.cuda.major)));
            }
        }
        match NvccAbility::ALL.iter().find(|a| !t.nvcc_can.iter().any(|row| row.ability == **a)) {
            Some(ability) => Err(Fault::new("nvcc_can", format!("has no row for {ability:?}"))),
            None => Ok(()),
        }
    }
}
