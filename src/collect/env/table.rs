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
}

const fn row(name: &'static str, shape: Shape, reader: &'static str) -> Variable {
    Variable { name, shape, reader }
}

/// Sorted by name. A whole name wins over a prefix, a longer prefix over a shorter one.
pub const VARIABLES: &[Variable] = &[
    row("AR", Shape::Program, "distutils"),
    row("CC", Shape::Program, "torch (nvcc gets it as -ccbin), distutils"),
    row("CCACHE_COMPILER", Shape::Program, "ccache"),
    row("CCACHE_DISABLE", Shape::Text, "ccache"),
    row("CCACHE_PATH", Shape::Paths, "ccache"),
    row("CCACHE_PREFIX", Shape::Program, "ccache"),
    row("CCL_ROOT", Shape::Path, "DeepSpeed's ccl op"),
    row("CFLAGS", Shape::Text, "distutils, DeepSpeed's link tests"),
    row("CMAKE_CUDA_ARCHITECTURES", Shape::Text, "nothing from the environment"),
    row("CMAKE_CUDA_COMPILER", Shape::Program, "nothing from the environment"),
    row("CMAKE_CUDA_HOST_COMPILER", Shape::Program, "nothing from the environment"),
    row("COMPILER_PATH", Shape::Paths, "gcc"),
    row("CONDA_*", Shape::Text, "conda"),
    row("CONDA_BUILD_SYSROOT", Shape::Path, "conda's compilers"),
    row("CONDA_EXE", Shape::Path, "conda"),
    row("CONDA_PREFIX", Shape::Path, "conda, and builds that run in its environment"),
    row("CPATH", Shape::Paths, "gcc, clang, nvcc's host compiler"),
    row("CPLUS_INCLUDE_PATH", Shape::Paths, "g++, clang++"),
    row("CPPFLAGS", Shape::Text, "distutils"),
    row("CUDAARCHS", Shape::Text, "CMake"),
    row("CUDACXX", Shape::Program, "CMake"),
    row("CUDAHOME", Shape::Path, "nothing in torch or DeepSpeed"),
    row("CUDAHOSTCXX", Shape::Program, "CMake; nothing in torch or DeepSpeed"),
    row("CUDATOOLKIT_HOME", Shape::Path, "module systems"),
    row("CUDAToolkit_ROOT", Shape::Path, "CMake"),
    row("CUDA_*", Shape::Text, "torch, nvcc, the driver, build scripts"),
    row("CUDA_BIN_PATH", Shape::Path, "old build scripts"),
    row("CUDA_CACHE_PATH", Shape::Path, "the driver"),
    row("CUDA_DIR", Shape::Path, "makefiles of single projects"),
    row("CUDA_HOME", Shape::Path, "torch, DeepSpeed"),
    row("CUDA_INC_PATH", Shape::Path, "torch 2.4 and later"),
    row("CUDA_INSTALL_PATH", Shape::Path, "makefiles of single projects"),
    row("CUDA_LIB_PATH", Shape::Path, "old build scripts"),
    row("CUDA_PATH", Shape::Path, "torch, where CUDA_HOME is not set"),
    row("CUDA_ROOT", Shape::Path, "module systems; nothing in torch or DeepSpeed"),
    row("CUDA_TOOLKIT_PATH", Shape::Path, "other projects' builds; nothing in torch or DeepSpeed"),
    row("CUDA_TOOLKIT_ROOT_DIR", Shape::Path, "CMake; nothing in torch or DeepSpeed"),
    row("CUDNN_*", Shape::Text, "torch"),
    row("CUDNN_HOME", Shape::Path, "torch"),
    row("CUDNN_INCLUDE_DIR", Shape::Path, "torch's own build"),
    row("CUDNN_LIB_DIR", Shape::Path, "torch's own build"),
    row("CUDNN_PATH", Shape::Path, "torch"),
    row("CUTLASS_*", Shape::Text, "DeepSpeed's evoformer_attn"),
    row("CUTLASS_HOME", Shape::Path, "DeepSpeed's evoformer_attn"),
    row("CUTLASS_PATH", Shape::Path, "DeepSpeed's evoformer_attn"),
    row("CUTLASS_ROOT", Shape::Path, "DeepSpeed's evoformer_attn"),
    row("CXX", Shape::Program, "torch (JIT and ninja builds)"),
    row("CXXFLAGS", Shape::Text, "distutils, CMake"),
    row("C_INCLUDE_PATH", Shape::Paths, "gcc, clang"),
    row("DEEPSPEED_*", Shape::Text, "DeepSpeed"),
    row("DS_*", Shape::Text, "DeepSpeed"),
    row("EBROOTCUDA", Shape::Path, "EasyBuild's CUDA module"),
    row("EBROOTCUDNN", Shape::Path, "EasyBuild's cuDNN module"),
    row("EBROOTGCC", Shape::Path, "EasyBuild's GCC module"),
    row("EBROOTNCCL", Shape::Path, "EasyBuild's NCCL module"),
    row("FORCE_CUDA", Shape::Text, "setup scripts of extensions"),
    row("GCC_EXEC_PREFIX", Shape::Path, "gcc"),
    row("HOME", Shape::Path, "caches and user folders"),
    row("LDFLAGS", Shape::Text, "distutils, DeepSpeed's link tests"),
    row("LDSHARED", Shape::Program, "distutils"),
    row("LD_AUDIT", Shape::Libraries, "the loader"),
    row("LD_LIBRARY_PATH", Shape::Paths, "the loader"),
    row("LD_PRELOAD", Shape::Libraries, "the loader"),
    row("LD_RUN_PATH", Shape::Paths, "the linker"),
    row("LIBRARY_PATH", Shape::Paths, "gcc and clang, for the linker"),
    row("LOADEDMODULES", Shape::Text, "environment modules"),
    row("LOCAL_RANK", Shape::Text, "torch, DeepSpeed"),
    row("LOCAL_WORLD_SIZE", Shape::Text, "torch"),
    row("MAKEFLAGS", Shape::Text, "make"),
    row("MAMBA_ROOT_PREFIX", Shape::Path, "micromamba"),
    row("MAX_JOBS", Shape::Text, "torch, for ninja"),
    row("MPI_HOME", Shape::Path, "build scripts"),
    row("NCCL_*", Shape::Text, "NCCL"),
    row("NCCL_HOME", Shape::Path, "build scripts"),
    row("NCCL_INCLUDE_DIR", Shape::Path, "torch's own build"),
    row("NCCL_LIB_DIR", Shape::Path, "torch's own build"),
    row("NCCL_ROOT", Shape::Path, "torch's own build"),
    row("NVCC", Shape::Program, "build scripts"),
    row("NVCC_*", Shape::Text, "nvcc"),
    row("NVCC_CCBIN", Shape::Program, "nvcc 12.5 and later"),
    row("NVHPC", Shape::Path, "the NVIDIA HPC SDK"),
    row("NVHPC_CUDA_HOME", Shape::Path, "the NVIDIA HPC SDK"),
    row("NVHPC_ROOT", Shape::Path, "the NVIDIA HPC SDK"),
    row("NVIDIA_*", Shape::Text, "the NVIDIA container runtime"),
    row("PATH", Shape::Paths, "every search for a program"),
    row("PIP_CONFIG_FILE", Shape::Path, "pip"),
    row("PIP_CONSTRAINT", Shape::Text, "pip"),
    row("PIP_NO_BINARY", Shape::Text, "pip"),
    row("PIP_NO_BUILD_ISOLATION", Shape::Text, "pip"),
    row("PIP_NO_CACHE_DIR", Shape::Text, "pip"),
    row("PYENV_ROOT", Shape::Path, "pyenv"),
    row("PYENV_VERSION", Shape::Text, "pyenv"),
    row("PYTHONHOME", Shape::Path, "python"),
    row("PYTHONNOUSERSITE", Shape::Text, "python"),
    row("PYTHONPATH", Shape::Paths, "python"),
    row("PYTHONSAFEPATH", Shape::Text, "python 3.11 and later"),
    row("PYTHONUSERBASE", Shape::Path, "python"),
    row("PYTORCH_*", Shape::Text, "torch"),
    row("PYTORCH_NVCC", Shape::Program, "torch 2.1 and later, for ninja builds"),
    row("RANK", Shape::Text, "torch, DeepSpeed"),
    row("ROCM_HOME", Shape::Path, "torch"),
    row("ROCM_PATH", Shape::Path, "torch"),
    row("SETUPTOOLS_USE_DISTUTILS", Shape::Text, "setuptools"),
    row("SLURM_CPUS_ON_NODE", Shape::Text, "SLURM"),
    row("SLURM_CPUS_PER_TASK", Shape::Text, "SLURM"),
    row("SLURM_JOB_CPUS_PER_NODE", Shape::Text, "SLURM"),
    row("SLURM_JOB_NUM_NODES", Shape::Text, "SLURM"),
    row("SLURM_MEM_PER_CPU", Shape::Text, "SLURM"),
    row("SLURM_MEM_PER_GPU", Shape::Text, "SLURM"),
    row("SLURM_MEM_PER_NODE", Shape::Text, "SLURM"),
    row("TEMP", Shape::Path, "python, where TMPDIR is not set"),
    row("TMP", Shape::Path, "python, where TMPDIR and TEMP are not set"),
    row("TMPDIR", Shape::Path, "python, gcc, nvcc"),
    row("TORCH_*", Shape::Text, "torch"),
    row("TORCH_EXTENSIONS_DIR", Shape::Path, "torch (JIT builds)"),
    row("TORCH_HOME", Shape::Path, "torch"),
    row("TRITON_*", Shape::Text, "triton"),
    row("TRITON_CACHE_DIR", Shape::Path, "triton, DeepSpeed"),
    row("USE_NINJA", Shape::Text, "setup scripts of extensions"),
    row("UV_NO_BUILD_ISOLATION", Shape::Text, "uv"),
    row("UV_PYTHON", Shape::Text, "uv"),
    row("VIRTUAL_ENV", Shape::Path, "pip, uv, shells"),
    row("WORLD_SIZE", Shape::Text, "torch, DeepSpeed"),
    row("WSL_DISTRO_NAME", Shape::Text, "WSL"),
    row("XDG_*", Shape::Text, "desktop and cache conventions"),
    row("XDG_CACHE_HOME", Shape::Path, "torch (JIT builds), triton"),
    row("XDG_DATA_DIRS", Shape::Paths, "desktop conventions"),
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
