//! The variables that enter a snapshot, what their values are, and who reads them. The documentation lists this table.

/// What a value is, and so what is looked up behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Paths separated by `:`.
    Paths,
    /// Libraries separated by `:` or blanks.
    Libraries,
    /// One folder or file.
    Path,
    /// A program: a name, a path, or a command line.
    Program,
    /// Flags, numbers, words.
    Text,
}

#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// A whole name, or a prefix when it ends in `*`.
    pub name: &'static str,
    pub shape: Shape,
    /// Who reads it.
    pub reader: &'static str,
    /// What it does there; empty where `rules/environment.toml` tells.
    pub effect: &'static str,
}

impl Variable {
    const fn does(mut self, effect: &'static str) -> Self {
        self.effect = effect;
        self
    }
}

const fn row(name: &'static str, shape: Shape, reader: &'static str) -> Variable {
    Variable { name, shape, reader, effect: "" }
}

/// Sorted by name. A whole name wins over a prefix, a longer prefix over a shorter one.
pub const VARIABLES: &[Variable] = &[
    row("AR", Shape::Program, "distutils").does("makes static libraries in setup builds"),
    row("CC", Shape::Program, "torch (nvcc gets it as -ccbin), distutils"),
    row("CCACHE_COMPILER", Shape::Program, "ccache").does("the compiler that ccache runs, whatever name it was called by"),
    row("CCACHE_DISABLE", Shape::Text, "ccache").does("makes ccache pass everything through"),
    row("CCACHE_PATH", Shape::Paths, "ccache").does("folders in which ccache looks for the compiler instead of PATH"),
    row("CCACHE_PREFIX", Shape::Program, "ccache").does("a program that is put before the compiler"),
    row("CCL_ROOT", Shape::Path, "DeepSpeed's ccl op"),
    row("CFLAGS", Shape::Text, "distutils, DeepSpeed's link tests"),
    row("CMAKE_CUDA_ARCHITECTURES", Shape::Text, "nothing from the environment"),
    row("CMAKE_CUDA_COMPILER", Shape::Program, "nothing from the environment"),
    row("CMAKE_CUDA_HOST_COMPILER", Shape::Program, "nothing from the environment"),
    row("COMPILER_PATH", Shape::Paths, "gcc").does("folders in which gcc looks for its own parts: `cc1plus`, `as`, `ld`"),
    row("CONDA_*", Shape::Text, "conda").does("which environment is active, and what its compilers are called"),
    row("CONDA_BUILD_SYSROOT", Shape::Path, "conda's compilers").does("the C library that conda's compilers build against"),
    row("CONDA_EXE", Shape::Path, "conda").does("the conda program"),
    row("CONDA_PREFIX", Shape::Path, "conda, and builds that run in its environment").does("the active environment"),
    row("CPATH", Shape::Paths, "gcc, clang, nvcc's host compiler"),
    row("CPLUS_INCLUDE_PATH", Shape::Paths, "g++, clang++"),
    row("CPPFLAGS", Shape::Text, "distutils").does("flags of the preprocessor in setup builds"),
    row("CUDAARCHS", Shape::Text, "CMake"),
    row("CUDACXX", Shape::Program, "CMake"),
    row("CUDAHOME", Shape::Path, "nothing in torch or DeepSpeed"),
    row("CUDAHOSTCXX", Shape::Program, "CMake; nothing in torch or DeepSpeed"),
    row("CUDATOOLKIT_HOME", Shape::Path, "module systems").does("the toolkit that a module loaded; no build reads it"),
    row("CUDAToolkit_ROOT", Shape::Path, "CMake"),
    row("CUDA_*", Shape::Text, "torch, nvcc, the driver, build scripts").does("shown in reports; those that matter have rows of their own"),
    row("CUDA_BIN_PATH", Shape::Path, "old build scripts"),
    row("CUDA_CACHE_PATH", Shape::Path, "the driver").does("where the driver keeps code that it compiled from PTX"),
    row("CUDA_DIR", Shape::Path, "makefiles of single projects"),
    row("CUDA_HOME", Shape::Path, "torch, DeepSpeed"),
    row("CUDA_INC_PATH", Shape::Path, "torch 2.4 and later"),
    row("CUDA_INSTALL_PATH", Shape::Path, "makefiles of single projects"),
    row("CUDA_LIB_PATH", Shape::Path, "old build scripts"),
    row("CUDA_PATH", Shape::Path, "torch, where CUDA_HOME is not set"),
    row("CUDA_ROOT", Shape::Path, "module systems; nothing in torch or DeepSpeed"),
    row("CUDA_TOOLKIT_PATH", Shape::Path, "other projects' builds; nothing in torch or DeepSpeed"),
    row("CUDA_TOOLKIT_ROOT_DIR", Shape::Path, "CMake; nothing in torch or DeepSpeed"),
    row("CUDNN_*", Shape::Text, "torch").does("shown in reports; those that matter have rows of their own"),
    row("CUDNN_HOME", Shape::Path, "torch"),
    row("CUDNN_INCLUDE_DIR", Shape::Path, "torch's own build").does("cuDNN's headers for building torch itself; extensions do not read it"),
    row("CUDNN_LIB_DIR", Shape::Path, "torch's own build").does("cuDNN's libraries for building torch itself; extensions do not read it"),
    row("CUDNN_PATH", Shape::Path, "torch"),
    row("CUTLASS_*", Shape::Text, "DeepSpeed's evoformer_attn").does("shown in reports; those that matter have rows of their own"),
    row("CUTLASS_HOME", Shape::Path, "DeepSpeed's evoformer_attn"),
    row("CUTLASS_PATH", Shape::Path, "DeepSpeed's evoformer_attn"),
    row("CUTLASS_ROOT", Shape::Path, "DeepSpeed's evoformer_attn"),
    row("CXX", Shape::Program, "torch (JIT and ninja builds)"),
    row("CXXFLAGS", Shape::Text, "distutils, CMake"),
    row("C_INCLUDE_PATH", Shape::Paths, "gcc, clang"),
    row("DEEPSPEED_*", Shape::Text, "DeepSpeed").does("shown in reports; those that matter have rows of their own"),
    row("DS_*", Shape::Text, "DeepSpeed").does("`DS_BUILD_` and the name of an op asks for that op in a pre-build (`0` leaves it out); the others have rows of their own, and one that no release reads is a finding"),
    row("EBROOTCUDA", Shape::Path, "EasyBuild's CUDA module").does("the toolkit that the module loaded; torch reads CUDA_HOME, which the module sets too"),
    row("EBROOTCUDNN", Shape::Path, "EasyBuild's cuDNN module").does("the cuDNN that the module loaded"),
    row("EBROOTGCC", Shape::Path, "EasyBuild's GCC module").does("the gcc that the module loaded"),
    row("EBROOTNCCL", Shape::Path, "EasyBuild's NCCL module").does("the NCCL that the module loaded"),
    row("FORCE_CUDA", Shape::Text, "setup scripts of extensions").does("makes several projects build their CUDA part on a machine without GPU; neither torch nor DeepSpeed reads it"),
    row("GCC_EXEC_PREFIX", Shape::Path, "gcc").does("where gcc looks for its own parts, before its own folder"),
    row("HOME", Shape::Path, "caches and user folders").does("torch's extension cache and pip's user folder lie under it"),
    row("LDFLAGS", Shape::Text, "distutils, DeepSpeed's link tests"),
    row("LDSHARED", Shape::Program, "distutils").does("the command that links a setup build's library, instead of the compiler"),
    row("LD_AUDIT", Shape::Libraries, "the loader").does("libraries that watch the loader, and may change what it finds"),
    row("LD_LIBRARY_PATH", Shape::Paths, "the loader"),
    row("LD_PRELOAD", Shape::Libraries, "the loader"),
    row("LD_RUN_PATH", Shape::Paths, "the linker").does("is written into what is linked as RUNPATH where no `-rpath` is given"),
    row("LIBRARY_PATH", Shape::Paths, "gcc and clang, for the linker"),
    row("LOADEDMODULES", Shape::Text, "environment modules").does("the modules that are loaded"),
    row("LOCAL_RANK", Shape::Text, "torch, DeepSpeed").does("the number of a process on its node"),
    row("LOCAL_WORLD_SIZE", Shape::Text, "torch").does("how many processes there are on this node"),
    row("MAKEFLAGS", Shape::Text, "make").does("flags of make, `-j` among them; ninja does not read it"),
    row("MAMBA_ROOT_PREFIX", Shape::Path, "micromamba").does("where micromamba keeps its environments"),
    row("MAX_JOBS", Shape::Text, "torch, for ninja"),
    row("MPI_HOME", Shape::Path, "build scripts").does("the MPI that several projects build against"),
    row("NCCL_*", Shape::Text, "NCCL").does("settings of NCCL, each read when a communicator is made"),
    row("NCCL_HOME", Shape::Path, "build scripts").does("the NCCL that several projects build against; torch loads its own"),
    row("NCCL_INCLUDE_DIR", Shape::Path, "torch's own build").does("NCCL's header for building torch itself; extensions do not read it"),
    row("NCCL_LIB_DIR", Shape::Path, "torch's own build").does("NCCL's library for building torch itself; extensions do not read it"),
    row("NCCL_ROOT", Shape::Path, "torch's own build").does("NCCL for building torch itself; extensions do not read it"),
    row("NVCC", Shape::Program, "build scripts"),
    row("NVCC_*", Shape::Text, "nvcc").does("shown in reports; those that matter have rows of their own"),
    row("NVCC_CCBIN", Shape::Program, "nvcc 12.5 and later"),
    row("NVHPC", Shape::Path, "the NVIDIA HPC SDK").does("the folder of the SDK's releases"),
    row("NVHPC_CUDA_HOME", Shape::Path, "the NVIDIA HPC SDK").does("the toolkit that the SDK's compilers use; torch reads CUDA_HOME"),
    row("NVHPC_ROOT", Shape::Path, "the NVIDIA HPC SDK").does("the release of the SDK that is in use"),
    row("NVIDIA_*", Shape::Text, "the NVIDIA container runtime").does("which GPUs and driver libraries a container gets, and what its image asks of the driver"),
    row("PATH", Shape::Paths, "every search for a program").does("`nvcc`, `c++`, `ninja` and `python3` are what it finds first"),
    row("PIP_CONFIG_FILE", Shape::Path, "pip").does("pip's settings"),
    row("PIP_CONSTRAINT", Shape::Text, "pip").does("versions that pip must keep to, in isolated builds too"),
    row("PIP_NO_BINARY", Shape::Text, "pip").does("packages that pip builds from source"),
    row("PIP_NO_BUILD_ISOLATION", Shape::Text, "pip").does("`0` turns build isolation off, and `1` leaves it on"),
    row("PIP_NO_CACHE_DIR", Shape::Text, "pip").does("keeps pip from using wheels that it built before"),
    row("PYENV_ROOT", Shape::Path, "pyenv").does("where pyenv keeps its versions"),
    row("PYENV_VERSION", Shape::Text, "pyenv").does("the version that pyenv's `python3` runs"),
    row("PYTHONHOME", Shape::Path, "python").does("where python looks for its own library"),
    row("PYTHONNOUSERSITE", Shape::Text, "python").does("leaves the user's own site-packages out"),
    row("PYTHONPATH", Shape::Paths, "python").does("folders searched for modules before site-packages"),
    row("PYTHONSAFEPATH", Shape::Text, "python 3.11 and later").does("keeps the current folder off the search for modules"),
    row("PYTHONUSERBASE", Shape::Path, "python").does("where the user's own site-packages lie"),
    row("PYTORCH_*", Shape::Text, "torch").does("shown in reports; those that matter have rows of their own"),
    row("PYTORCH_NVCC", Shape::Program, "torch 2.1 and later, for ninja builds"),
    row("RANK", Shape::Text, "torch, DeepSpeed").does("the number of a process among all"),
    row("ROCM_HOME", Shape::Path, "torch").does("the ROCm of a torch for AMD"),
    row("ROCM_PATH", Shape::Path, "torch").does("the same where ROCM_HOME is unset"),
    row("SETUPTOOLS_USE_DISTUTILS", Shape::Text, "setuptools").does("`stdlib` or `local`: whose distutils setuptools uses"),
    row("SLURM_CPUS_ON_NODE", Shape::Text, "SLURM").does("CPUs of the node; shown in reports"),
    row("SLURM_CPUS_PER_TASK", Shape::Text, "SLURM").does("CPUs that each process of a job has"),
    row("SLURM_JOB_CPUS_PER_NODE", Shape::Text, "SLURM").does("CPUs that the job has on each node; shown in reports"),
    row("SLURM_JOB_NUM_NODES", Shape::Text, "SLURM").does("nodes of the job"),
    row("SLURM_MEM_PER_CPU", Shape::Text, "SLURM").does("MiB that a job has for each CPU"),
    row("SLURM_MEM_PER_GPU", Shape::Text, "SLURM").does("MiB that a job has for each GPU"),
    row("SLURM_MEM_PER_NODE", Shape::Text, "SLURM").does("MiB that a job has on each node"),
    row("TEMP", Shape::Path, "python, where TMPDIR is not set").does("where temporary files go"),
    row("TMP", Shape::Path, "python, where TMPDIR and TEMP are not set").does("where temporary files go"),
    row("TMPDIR", Shape::Path, "python, gcc, nvcc").does("where temporary files go; nvcc stops where it names no folder"),
    row("TORCH_*", Shape::Text, "torch").does("shown in reports; those that matter have rows of their own"),
    row("TORCH_EXTENSIONS_DIR", Shape::Path, "torch (JIT builds)"),
    row("TORCH_HOME", Shape::Path, "torch").does("where torch keeps models that it downloaded; not the extension cache"),
    row("TRITON_*", Shape::Text, "triton").does("shown in reports; those that matter have rows of their own"),
    row("TRITON_CACHE_DIR", Shape::Path, "triton, DeepSpeed").does("where triton keeps the kernels that it compiled"),
    row("USE_NINJA", Shape::Text, "setup scripts of extensions").does("turns ninja on or off in several projects' setup scripts; neither torch's extension builder nor DeepSpeed reads it"),
    row("UV_NO_BUILD_ISOLATION", Shape::Text, "uv").does("turns build isolation off"),
    row("UV_PYTHON", Shape::Text, "uv").does("the interpreter that uv installs for"),
    row("VIRTUAL_ENV", Shape::Path, "pip, uv, shells").does("the active environment"),
    row("WORLD_SIZE", Shape::Text, "torch, DeepSpeed").does("how many processes there are in all"),
    row("WSL_DISTRO_NAME", Shape::Text, "WSL").does("set inside the Windows Subsystem for Linux"),
    row("XDG_*", Shape::Text, "desktop and cache conventions").does("shown in reports; those that matter have rows of their own"),
    row("XDG_CACHE_HOME", Shape::Path, "torch (JIT builds), triton"),
    row("XDG_DATA_DIRS", Shape::Paths, "desktop conventions").does("read by none of the programs of a build; shown in reports"),
];

/// The row that covers a variable.
pub fn row_of(name: &str) -> Option<&'static Variable> {
    let whole = VARIABLES.iter().find(|row| row.name == name);
    let prefix = |row: &&Variable| row.name.strip_suffix('*').is_some_and(|start| name.starts_with(start));
    whole.or_else(|| VARIABLES.iter().filter(prefix).max_by_key(|row| row.name.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorted_and_every_row_says_who_reads_it() {
        assert!(VARIABLES.is_sorted_by(|a, b| a.name < b.name));
        assert!(VARIABLES.iter().all(|row| !row.reader.is_empty()));
    }

    #[test]
    fn whole_names_win_over_prefixes() {
        let shape = |name| row_of(name).map(|row| row.shape);
        assert_eq!(shape("CUDA_HOME"), Some(Shape::Path));
        assert_eq!(shape("CUDA_VISIBLE_DEVICES"), Some(Shape::Text));
        assert_eq!(shape("DS_BUILD_OPS"), Some(Shape::Text));
        assert_eq!(shape("AWS_SECRET_ACCESS_KEY"), None);
        assert_eq!(shape("CUDAX"), None);
    }
}
