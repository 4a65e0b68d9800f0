//! Symbols as people read them, and whose they are.

use cpp_demangle::{DemangleOptions, Symbol};

/// Longer names are shown as they are: templates of templates grow without end.
const LONGEST: usize = 4096;

/// A C++ symbol as its source would write it; `None` for other names.
pub fn demangled(name: &str) -> Option<String> {
    if !name.starts_with("_Z") || name.len() > LONGEST {
        return None;
    }
    let text = Symbol::new(name).ok()?.demangle_with_options(&DemangleOptions::new().no_return_type()).ok()?;
    (text.len() <= LONGEST).then_some(text)
}

/// For a sentence: demangled where that is possible, and not too long.
pub fn shown(name: &str) -> String {
    const MOST: usize = 160;
    let text = demangled(name).unwrap_or_else(|| name.to_owned());
    if text.chars().count() <= MOST { text } else { format!("{}…", text.chars().take(MOST).collect::<String>()) }
}

/// The C++ ABI of libstdc++ that a symbol shows by the strings and lists in it: true for the C++11 one.
pub fn cxx11_abi(name: &str) -> Option<bool> {
    let text = demangled(name)?;
    if text.contains("std::__cxx11::") || text.contains("[abi:cxx11]") {
        return Some(true);
    }
    // The older form is a mangling of its own, `Ss`, and has this name alone.
    (text.contains("std::string") || text.contains("std::basic_string<")).then_some(false)
}

/// Whose a symbol is, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Torch,
    Python,
    /// The name for `-l`, and how its library's file name begins.
    Library(&'static str, &'static str),
    Unknown,
}

pub fn owner(name: &str) -> Owner {
    if is_torch(name) {
        return Owner::Torch;
    }
    if name.starts_with("Py") || name.starts_with("_Py") {
        return Owner::Python;
    }
    LIBRARIES
        .iter()
        .find(|(prefix, upper, ..)| {
            name.strip_prefix(prefix).is_some_and(|rest| !upper || rest.starts_with(|c: char| c.is_ascii_uppercase()))
        })
        .map_or(Owner::Unknown, |(_, _, link, file)| Owner::Library(link, file))
}

/// Prefix of the C names of a library, whether an upper-case letter must follow, name for the linker, start of the file's name. Longer
/// prefixes first. Source: the exports of these libraries in CUDA 11.8 to 13.5, libaio 0.3.113, libgomp 12.
const LIBRARIES: &[(&str, bool, &str, &str)] = &[
    ("cublasLt", true, "cublasLt", "libcublasLt.so"),
    ("cublas", true, "cublas", "libcublas.so"),
    ("curand", true, "curand", "libcurand.so"),
    ("cusparse", true, "cusparse", "libcusparse.so"),
    ("cusolver", true, "cusolver", "libcusolver.so"),
    ("cufft", true, "cufft", "libcufft.so"),
    ("cuFile", true, "cufile", "libcufile.so"),
    ("cudnn", true, "cudnn", "libcudnn.so"),
    ("nccl", true, "nccl", "libnccl.so"),
    ("nvrtc", true, "nvrtc", "libnvrtc.so"),
    ("nvJitLink", true, "nvJitLink", "libnvJitLink.so"),
    ("nvml", true, "nvidia-ml", "libnvidia-ml.so"),
    ("__cuda", true, "cudart", "libcudart.so"),
    ("cuda", true, "cudart", "libcudart.so"),
    ("cu", true, "cuda", "libcuda.so"),
    ("io_setup", false, "aio", "libaio.so"),
    ("io_submit", false, "aio", "libaio.so"),
    ("io_destroy", false, "aio", "libaio.so"),
    ("io_getevents", false, "aio", "libaio.so"),
    ("io_pgetevents", false, "aio", "libaio.so"),
    ("io_cancel", false, "aio", "libaio.so"),
    ("GOMP_", false, "gomp", "libgomp.so"),
    ("omp_", false, "gomp", "libgomp.so"),
    ("__kmpc_", false, "omp", "libomp.so"),
];

/// Names in torch's namespaces, and its C functions.
fn is_torch(name: &str) -> bool {
    const SPACES: [&str; 6] = ["2at", "3c10", "5torch", "6caffe2", "4c10d", "5torch"];
    let Some(rest) = name.strip_prefix("_Z") else {
        return name.starts_with("aoti_torch_") || name.starts_with("THP");
    };
    let rest = ["TV", "TI", "TS", "TT", "GV"].iter().find_map(|special| rest.strip_prefix(special)).unwrap_or(rest);
    let Some(nested) = rest.strip_prefix('N') else { return false };
    let nested = nested.trim_start_matches(['K', 'V', 'r', 'R', 'O']);
    SPACES.iter().any(|space| nested.starts_with(space))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    const OLD: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKSs";
    const NEW: &str = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

    #[test]
    fn names_for_people() {
        assert!(demangled(NEW).unwrap().starts_with("c10::detail::torchCheckFail(char const*, char const*, unsigned int, std::__cxx11::"));
        assert_eq!(shown("cuInit"), "cuInit");
        assert_eq!(demangled("_Zgarbage"), None);
        assert_eq!(demangled(&format!("_Z{}v", "N".repeat(100_000))), None);
    }

    #[test]
    fn string_abis() {
        assert_eq!((cxx11_abi(OLD), cxx11_abi(NEW)), (Some(false), Some(true)));
        assert_eq!(cxx11_abi("_ZN3c105ErrorC1ENS_14SourceLocationESs"), Some(false));
        for neither in ["_ZN2at4_ops5empty4callEv", "cuInit", "_ZN2at9ClSsGuardE", "_ZNK3c1010TensorImpl5sizesEv", "_Z1fILi3EEvv"] {
            assert_eq!(cxx11_abi(neither), None, "{neither}");
        }
    }

    #[test]
    fn owners() {
        for torch in [OLD, "_ZNK2at6Tensor3stdEv", "_ZTVN5torch8autograd4NodeE", "aoti_torch_empty", "THPVariableClass"] {
            assert_eq!(owner(torch), Owner::Torch, "{torch}");
        }
        assert_eq!(owner("cuInit"), Owner::Library("cuda", "libcuda.so"));
        assert_eq!(owner("cublasLtCreate"), Owner::Library("cublasLt", "libcublasLt.so"));
        assert_eq!(owner("cudaMalloc"), Owner::Library("cudart", "libcudart.so"));
        assert_eq!(owner("io_setup"), Owner::Library("aio", "libaio.so"));
        assert_eq!(owner("PyObject_Call"), Owner::Python);
        for unknown in ["cutlass_gemm", "custom_op", "_ZSt4cout", "malloc", "_ZN4acme3fooE"] {
            assert_eq!(owner(unknown), Owner::Unknown, "{unknown}");
        }
    }
}
