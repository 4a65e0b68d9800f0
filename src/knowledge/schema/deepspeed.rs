//! The tables of `deepspeed.toml`.

use super::{Fault, List, Number, Str, Versions};
use crate::version::{Capability, CudaVersion};

record! {
    /// The releases that the tables were made with in sight: one row.
    pub struct Covered {
        pub oldest: Number,
        pub newest: Number,
        /// Every release from the one to the other.
        pub releases: List<Number>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Covered, &'static str, |_c| "deepspeed", "deepspeed".to_owned());

record! {
    /// CUDA releases of one major that DeepSpeed takes for one another: nvcc's and torch's must both be in the row of nvcc's major.
    pub struct CudaRow {
        pub cuda_major: u32,
        pub deepspeed: Versions,
        pub members: List<CudaVersion>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(CudaRow, (u32, semver::Version), |c| (c.cuda_major, c.deepspeed.lowest()), format!("{} {}", c.cuda_major, c.deepspeed.0), {
    let own = c.members.iter().all(|member| member.major == c.cuda_major);
    if own { Ok(()) } else { Err(Fault::new("members", "has a release of another major")) }
});

record! {
    /// What a pre-build compiles for where `TORCH_CUDA_ARCH_LIST` is unset.
    pub struct DefaultArchs {
        pub deepspeed: Versions,
        /// The release of nvcc.
        pub cuda: Versions,
        pub archs: List<Capability>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(
    DefaultArchs,
    (semver::Version, semver::Version),
    |d| (d.deepspeed.lowest(), d.cuda.lowest()),
    format!("{} {}", d.deepspeed.0, d.cuda.0)
);

choice! {
    /// The two compilers of an op.
    pub enum Part {
        /// The C++ sources.
        Host,
        /// The CUDA sources. The fused optimizers give no standard of their own: torch's default holds for them.
        Nvcc,
    }
}

record! {
    /// The `-std` of an op's sources.
    pub struct Standard {
        pub part: Part,
        pub deepspeed: Versions,
        /// The release of nvcc; none: whichever.
        pub cuda: Option<Versions>,
        /// The release of torch; none: whichever.
        pub torch: Option<Versions>,
        pub standard: u32,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(
    Standard,
    (Part, semver::Version, semver::Version, semver::Version),
    |s| {
        let lowest = |range: &Option<Versions>| range.as_ref().map_or(semver::Version::new(0, 0, 0), Versions::lowest);
        (s.part, s.deepspeed.lowest(), lowest(&s.cuda), lowest(&s.torch))
    },
    format!("{:?} {}", s.part, s.deepspeed.0)
);

choice! {
    /// What DeepSpeed takes the machine for.
    pub enum AcceleratorKind {
        Cuda,
        Cpu,
    }
}

record! {
    /// The accelerator that is chosen where `DS_ACCELERATOR` says nothing and no other vendor's is there.
    pub struct Accelerator {
        pub deepspeed: Versions,
        /// Where torch sees no GPU.
        pub no_gpu: AcceleratorKind,
        /// Where torch cannot be imported.
        pub no_torch: AcceleratorKind,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Accelerator, semver::Version, |a| a.deepspeed.lowest(), a.deepspeed.0.to_string());

choice! {
    /// What some releases of DeepSpeed do and others do not.
    pub enum DeepSpeedTrait {
        /// Reads `DS_ACCELERATOR`.
        ReadsAccelerator,
        /// Reads `DS_SKIP_CUDA_CHECK`.
        ReadsSkipCudaCheck,
        /// Reads `DS_IGNORE_CUDA_DETECTION` for evoformer_attn.
        IgnoresDetectionForEvoformer,
        /// Reads `DS_IGNORE_CUDA_DETECTION` for the other ops with a gate.
        IgnoresDetection,
        /// Takes an empty `DS_BUILD_*` for an unset one.
        EmptyIsUnset,
        /// Drops an op that was asked for and cannot be built; others stop the install.
        DropsIncompatibleOps,
        /// Pre-builds with ninja only where `DS_ENABLE_NINJA` is set.
        NinjaOptIn,
        /// Looks for ninja as a program; others as a Python module.
        NinjaAsProgram,
        /// Compares nvcc's CUDA with torch's before a JIT build of any CUDA op.
        JitChecksCuda,
        /// Compares them before a JIT build of the host ops (cpu_*, async_io, gds, dc) only.
        JitChecksCudaForHostOps,
        /// Reads `TORCH_CUDA_ARCH_LIST` in a JIT build.
        JitReadsArchList,
        /// Parses every item of the list as a number, so that `9.0a`, names and blank items are errors.
        ParsesArchList,
        /// Reads a capability of two digits before the point.
        TwoDigitCapabilities,
        /// Writes the list that an op filtered back to the environment, where the next op reads it.
        LeaksArchList,
        /// Dies at import on a machine with a GPU and without nvcc.
        ImportNeedsNvcc,
        /// Dies at import with `DS_ACCELERATOR=cuda` and triton, without a GPU.
        ImportNeedsGpu,
        /// Imports distutils at import: Python 3.12 and newer then need setuptools.
        ImportNeedsDistutils,
        /// Runs nvcc in setup.py wherever torch sees a GPU, even when no op is built.
        SetupRunsNvcc,
        /// Reads capabilities only where the process has a CUDA context already.
        CapabilityOnlyWithContext,
        /// Builds cpu_adam, cpu_adagrad and cpu_lion without CUDA.
        CpuOpsWithoutCuda,
        /// Needs torch 2.
        NeedsTorch2,
    }
}

record! {
    /// The releases that do a thing.
    pub struct DeepSpeedDoes {
        #[serde(rename = "trait")]
        pub what: DeepSpeedTrait,
        pub deepspeed: Versions,
        /// Releases for which it is not known.
        pub unknown: Option<Versions>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(DeepSpeedDoes, DeepSpeedTrait, |d| d.what, format!("{:?}", d.what));

tables! {
    /// What is known of DeepSpeed.
    DeepSpeedTables in "deepspeed.toml" {
        covered: Covered,
        cuda_row: CudaRow,
        default_archs: DefaultArchs,
        standard: Standard,
        accelerator: Accelerator,
        does: DeepSpeedDoes,
    }
    whole: |t| {
        let [covered] = t.covered.as_ref() else { return Err(Fault::new("covered", "must have one row")) };
        let ends = [covered.oldest.dotted().semver(), covered.newest.dotted().semver()];
        super::one_each("accelerator", t.accelerator.iter().map(|row| &row.deepspeed), &ends)?;
        for row in t.cuda_row.iter() {
            let same = t.cuda_row.iter().filter(|other| other.cuda_major == row.cuda_major);
            super::one_at_most("cuda_row", same.map(|other| &other.deepspeed))?;
        }
        for row in t.default_archs.iter() {
            // Rows for the same DeepSpeed must share out all CUDA releases among them.
            let same: Vec<&DefaultArchs> = t.default_archs.iter().filter(|other| other.deepspeed == row.deepspeed).collect();
            super::one_each("default_archs", same.iter().map(|other| &other.cuda), &[semver::Version::new(10, 0, 0), semver::Version::new(99, 0, 0)])?;
        }
        match DeepSpeedTrait::ALL.iter().find(|what| !t.does.iter().any(|row| row.what == **what)) {
            Some(what) => Err(Fault::new("does", format!("has no row for {what:?}"))),
            None => Ok(()),
        }
    }
}
