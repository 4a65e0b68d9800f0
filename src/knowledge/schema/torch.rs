//! The tables of `torch.toml`.

use super::{Fault, List, Number, Str, Versions};
use crate::version::{CudaVersion, Dotted, Target};

record! {
    /// One torch release, as the default wheel for Linux on x86_64 has it.
    pub struct TorchRelease {
        pub torch: Number,
        /// The CUDA releases it was published for.
        pub cuda_builds: List<CudaVersion>,
        /// The one of PyPI's wheel.
        pub default_cuda: CudaVersion,
        /// What `torch.cuda.get_arch_list()` says in PyPI's wheel.
        pub archs: List<Target>,
        pub nccl: Number,
        pub cudnn: Number,
        /// The triton that the wheel asks for; the lowest, where it gives a range.
        pub triton: Option<Number>,
        pub min_python: Number,
        pub max_python: Number,
        /// Whether PyPI's wheel was built with the new ABI of libstdc++.
        pub cxx11_abi: bool,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(TorchRelease, Dotted, |t| t.torch.dotted(), t.torch.to_string(), {
    match () {
        () if t.torch.0.split('.').count() != 3 => Err(Fault::new("torch", "has not three numbers")),
        () if !t.cuda_builds.contains(&t.default_cuda) => Err(Fault::new("default_cuda", "is not among the `cuda_builds`")),
        () if t.min_python.dotted() > t.max_python.dotted() => Err(Fault::new("max_python", "is below `min_python`")),
        () => Ok(()),
    }
});

record! {
    /// The targets of the builds that are not on PyPI.
    pub struct TorchBuild {
        pub torch: Versions,
        pub cuda: CudaVersion,
        pub archs: List<Target>,
        /// PTX at the end of the list, `compute_120`.
        pub ptx: Option<Target>,
        pub cxx11_abi: Option<bool>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(TorchBuild, (semver::Version, CudaVersion), |t| (t.torch.lowest(), t.cuda), format!("{} {}", t.torch.0, t.cuda));

record! {
    /// The items that `TORCH_CUDA_ARCH_LIST` can have, each also with `+PTX`.
    pub struct ArchValues {
        pub torch: Versions,
        pub values: List<Target>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(ArchValues, semver::Version, |a| a.torch.lowest(), a.torch.0.to_string());

record! {
    /// A name that `TORCH_CUDA_ARCH_LIST` can have, and what torch puts in its place.
    pub struct ArchName {
        pub name: Str,
        pub torch: Versions,
        pub expands: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(ArchName, (Str, semver::Version), |a| (a.name.clone(), a.torch.lowest()), format!("{} {}", a.name, a.torch.0));

choice! {
    /// The compilers that torch tells apart.
    pub enum Compiler {
        Gcc,
        Clang,
    }
}

record! {
    /// The versions of a host compiler between which setup builds go on; outside torch stops. Without a row torch only warns.
    pub struct HostBound {
        pub torch: Versions,
        pub compiler: Compiler,
        pub cuda: CudaVersion,
        /// Only for this build of nvcc.
        pub nvcc: Option<Number>,
        /// The lowest version accepted.
        pub min: Number,
        /// The first version refused, or, if `inclusive`, the last accepted.
        pub max: Number,
        #[serde(default)]
        pub inclusive: bool,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(
    HostBound,
    (Compiler, CudaVersion, semver::Version, Option<Dotted>),
    |b| (b.compiler, b.cuda, b.torch.lowest(), b.nvcc.as_ref().map(Number::dotted)),
    format!("{:?} {} {}", b.compiler, b.cuda, b.torch.0),
    if b.min.dotted() > b.max.dotted() { Err(Fault::new("max", "is below `min`")) } else { Ok(()) }
);

record! {
    /// What torch's headers need, and what its build helper asks for.
    pub struct Headers {
        pub torch: Versions,
        /// The `-std` that cpp_extension gives when the extension gives none.
        pub default_standard: u32,
        /// The lowest standard with which ATen's headers compile.
        pub min_standard: u32,
        /// The lowest compilers that the headers accept by their own words and that know the default standard.
        pub min_gcc: Option<u32>,
        pub min_clang: Option<u32>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Headers, semver::Version, |h| h.torch.lowest(), h.torch.0.to_string());

record! {
    /// A setuptools with which torch's build helper cannot be imported.
    pub struct SetuptoolsLimit {
        pub torch: Versions,
        /// The first setuptools that does not work.
        pub below: Number,
        /// Why; a clause for a sentence.
        pub why: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(SetuptoolsLimit, semver::Version, |s| s.torch.lowest(), s.torch.0.to_string());

choice! {
    /// What some releases of torch do and others do not.
    pub enum TorchTrait {
        /// Looks for nvcc on PATH with the program `which`: without that program it finds none.
        CudaHomeByWhichProgram,
        /// Looks for CUDA_HOME even in a build without CUDA.
        CudaHomeWithoutCuda,
        /// Looks for CUDA_HOME only where `torch.version.cuda` is set (a ROCm build has none).
        CudaHomeNeedsTorchCuda,
        /// Adds `CUDA_INC_PATH` to the include folders.
        ReadsCudaIncPath,
        /// Takes the nvcc command from `PYTORCH_NVCC`.
        ReadsPytorchNvcc,
        /// Puts ccache or sccache in front of the compilers.
        WrapsCompilers,
        /// Knows clang as a host compiler.
        KnowsClang,
        /// Tests that nvcc is a file before it runs it.
        TestsNvccPath,
        /// Reports through a logger: no more `Using … as PyTorch extensions root` in a log.
        LogsThroughLogger,
        /// Prints a mismatch of CUDA versions as an unformatted tuple.
        MismatchAsTuple,
        /// Adds no arch flags to a JIT build that brings its own.
        JitHonoursArchFlags,
        /// Reads `native` in `TORCH_CUDA_ARCH_LIST`.
        ArchListNative,
        /// Warns when `TORCH_CUDA_ARCH_LIST` is unset.
        ArchListUnsetWarns,
        /// Cannot clamp a GPU to its own targets where one has a suffix.
        ClampBreaksOnSuffix,
        /// Judges devices by a table of its own rather than by their major alone.
        DeviceTable,
        /// Gives `-D_GLIBCXX_USE_CXX11_ABI` to extensions.
        GivesAbiFlag,
        /// Puts Python's ABI flags into the name of the cache folder.
        CacheNamesAbiFlags,
        /// Names the ROCm release in the cache folder.
        CacheNamesRocm,
        /// Locks the cache with flock: the file stays and says nothing.
        LockIsFlock,
        /// Loads libcurand itself, so that an extension need not.
        LoadsCurand,
    }
}

record! {
    /// The releases that do a thing.
    pub struct TorchDoes {
        #[serde(rename = "trait")]
        pub what: TorchTrait,
        pub torch: Versions,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(TorchDoes, TorchTrait, |t| t.what, format!("{:?}", t.what));

tables! {
    /// What is known of torch.
    TorchTables in "torch.toml" {
        release: TorchRelease,
        build: TorchBuild,
        arch_values: ArchValues,
        arch_name: ArchName,
        host_bound: HostBound,
        headers: Headers,
        setuptools_limit: SetuptoolsLimit,
        does: TorchDoes,
    }
    whole: |t| {
        let releases: Vec<semver::Version> = t.release.iter().map(|row| row.torch.dotted().semver()).collect();
        super::one_each("arch_values", t.arch_values.iter().map(|row| &row.torch), &releases)?;
        super::one_each("headers", t.headers.iter().map(|row| &row.torch), &releases)?;
        for row in t.arch_name.iter() {
            let same = t.arch_name.iter().filter(|other| other.name == row.name).map(|other| &other.torch);
            super::one_at_most("arch_name", same)?;
        }
        for row in t.host_bound.iter() {
            let same = |other: &&HostBound| (other.compiler, other.cuda, &other.nvcc) == (row.compiler, row.cuda, &row.nvcc);
            super::one_at_most("host_bound", t.host_bound.iter().filter(same).map(|other| &other.torch))?;
        }
        for row in t.build.iter() {
            let same = t.build.iter().filter(|other| other.cuda == row.cuda).map(|other| &other.torch);
            super::one_at_most("build", same)?;
        }
        match TorchTrait::ALL.iter().find(|what| !t.does.iter().any(|row| row.what == **what)) {
            Some(what) => Err(Fault::new("does", format!("has no row for {what:?}"))),
            None => Ok(()),
        }
    }
}
