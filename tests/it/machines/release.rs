//! What is in a CUDA release: libraries, headers, programs and the words in them.

use super::machine::Machine;
use super::manifest::Toolkit;
use ds_doctor::version::{CudaVersion, Dotted};

/// What one release holds.
pub struct Release {
    pub cuda: CudaVersion,
    /// `12.4.131`
    pub nvcc: String,
    /// `12.4.127`
    pub cudart: String,
    /// `12.4.5.8`, where the tables know it.
    pub cublas: Option<String>,
    pub gcc_max: u32,
    clang_max: u32,
    /// `90a`
    targets: Vec<String>,
}

/// One library: the name behind `lib`, and the version that its SONAME ends in.
pub type Library = (&'static str, String);

impl Release {
    pub fn new(m: &Machine<'_>, kit: &Toolkit) -> Self {
        let nvcc: Dotted = kit.release.parse().unwrap();
        let cuda = CudaVersion::new(nvcc.major(), nvcc.minor());
        let row = m.know.toolkit(cuda);
        let targets = kit.targets.clone().or_else(|| Some(row?.targets.iter().map(|t| t.sm()[3..].to_owned()).collect()));
        let unknown = || -> ! { panic!("no table knows CUDA {cuda}: give gcc-max, clang-max and targets") };
        Self {
            cuda,
            cudart: m.know.releases_of_nvcc(&nvcc).last().map_or_else(|| kit.release.clone(), |release| release.cudart.to_string()),
            cublas: m.know.releases_of_nvcc(&nvcc).last().and_then(|release| Some(release.cublas.as_ref()?.to_string())),
            gcc_max: kit.gcc_max.or_else(|| row.map(|row| row.max_gcc)).unwrap_or_else(|| unknown()),
            clang_max: kit.clang_max.or_else(|| row.map(|row| row.max_clang)).unwrap_or_else(|| unknown()),
            targets: targets.unwrap_or_else(|| unknown()),
            nvcc: kit.release.clone(),
        }
    }

    pub fn from(&self, major: u32, minor: u32) -> bool {
        self.cuda >= CudaVersion::new(major, minor)
    }
}

/// Libraries that torch or an op links, with the SONAMEs of that release.
pub fn libraries(cuda: CudaVersion) -> Vec<Library> {
    let from = |major, minor| cuda >= CudaVersion::new(major, minor);
    let major = cuda.major;
    let runtime = match major {
        ..=10 => cuda.to_string(),
        11 => "11.0".to_owned(),
        _ => major.to_string(),
    };
    let rtc = match major {
        ..=10 => cuda.to_string(),
        11 => "11.2".to_owned(),
        _ => major.to_string(),
    };
    let number = |n: u32| n.to_string();
    let mut all = vec![
        ("cudart", runtime),
        ("cublas", number(major)),
        ("cublasLt", number(major)),
        ("curand", number(10)),
        (
            "cufft",
            number(if major == 10 || major == 11 {
                10
            } else if major == 12 {
                11
            } else {
                12
            }),
        ),
        (
            "cusolver",
            number(match major {
                ..=10 => 10,
                11 | 12 => 11,
                _ => 12,
            }),
        ),
        (
            "cusparse",
            number(match major {
                ..=10 => 10,
                11 => 11,
                _ => 12,
            }),
        ),
        ("nvrtc", rtc),
        ("cupti", if major <= 11 { cuda.to_string() } else { number(major) }),
    ];
    if from(11, 4) {
        all.push(("cufile", number(0)));
    }
    if from(12, 0) {
        all.push(("nvJitLink", number(major)));
    }
    if !from(12, 9) {
        all.push(("nvToolsExt", number(1)));
    }
    all
}

/// A library of CUDA: its SONAME, and for the runtime the release in its code.
pub fn library_file(m: &Machine<'_>, (name, version): &Library, cuda: CudaVersion, runpath: Option<&str>) -> Vec<u8> {
    let mut elf = m.tree.library(&format!("lib{name}.so.{version}"));
    match *name {
        "cublas" => elf.needed.insert(0, format!("libcublasLt.so.{version}")),
        "cusolver" | "cusparse" if cuda.major > 11 => elf.needed.insert(0, format!("libnvJitLink.so.{}", cuda.major)),
        _ => {}
    }
    elf.runpath = runpath.map(str::to_owned);
    if *name == "cudart" {
        elf.code = cudart_code(m.tree.machine, cuda);
        elf.exports = runtime_functions(cuda);
    }
    elf.bytes()
}

/// `cudaRuntimeGetVersion` stores the release through its first argument.
pub fn cudart_code(machine: u16, cuda: CudaVersion) -> Vec<u8> {
    let number = cuda.major * 1000 + cuda.minor * 10;
    if machine == super::elf::AARCH64 {
        // movz w1, #number; str w1, [x0]; mov w0, #0; ret
        let words = [0x5280_0000 | number << 5 | 1, 0xb900_0001, 0x5280_0000, 0xd65f_03c0_u32];
        return words.iter().flat_map(|word| word.to_le_bytes()).collect();
    }
    // test rdi,rdi; mov dword [rdi], number; xor eax,eax; ret
    let mut code = vec![0x48, 0x85, 0xff, 0xc7, 0x07];
    code.extend_from_slice(&number.to_le_bytes());
    code.extend_from_slice(&[0x31, 0xc0, 0xc3]);
    code
}

/// Some of what a libcudart exports, with the functions that came later.
fn runtime_functions(cuda: CudaVersion) -> Vec<String> {
    let later = [
        ((11, 8), "cudaLaunchKernelExC"),
        ((12, 0), "cudaInitDevice"),
        ((12, 2), "cudaGraphAddNode"),
        ((12, 4), "cudaFuncGetParamInfo"),
        ((12, 8), "cudaLibraryLoadData"),
        ((13, 0), "cudaLogsCurrent"),
    ];
    let new = later.into_iter().filter(|((major, minor), _)| cuda >= CudaVersion::new(*major, *minor)).map(|(_, name)| name);
    ["cudaRuntimeGetVersion", "cudaGetDeviceCount", "cudaMalloc", "cudaLaunchKernel"].into_iter().chain(new).map(str::to_owned).collect()
}

/// Headers of the toolkit, by release; those of CCCL moved into a folder of their own with 13.0.
pub fn headers(release: &Release) -> Vec<(String, String)> {
    let CudaVersion { major, minor } = release.cuda;
    let number = major * 1000 + minor * 10;
    let guard = |name: &str| format!("#if !defined(__{0}__)\n#define __{0}__\n#endif\n", name.replace(['/', '.'], "_").to_uppercase());
    let mut all: Vec<(String, String)> = Vec::new();
    let mut put = |name: &str, text: String| all.push((name.to_owned(), text));
    put(
        "cuda.h",
        format!(
            "#ifndef __cuda_cuda_h__\n#define __cuda_cuda_h__\n\n/**\n * CUDA API version number\n */\n#define CUDA_VERSION {number}\n#endif\n"
        ),
    );
    put(
        "cuda_runtime_api.h",
        format!("#if !defined(__CUDA_RUNTIME_API_H__)\n/** CUDA Runtime API Version */\n#define CUDART_VERSION  {number}\n#endif\n"),
    );
    let plain = [
        "cuda_runtime.h",
        "cuda_fp16.h",
        "cublas_v2.h",
        "cublasLt.h",
        "curand.h",
        "curand_kernel.h",
        "cusolverDn.h",
        "cusolver_common.h",
        "cusparse.h",
        "cufft.h",
        "cuda_profiler_api.h",
        "mma.h",
        "cooperative_groups.h",
        "nvrtc.h",
        "nvtx3/nvToolsExt.h",
    ];
    for name in plain {
        put(name, guard(name));
    }
    if release.from(11, 0) {
        put("cuda_bf16.h", guard("cuda_bf16.h"));
    }
    if release.from(11, 4) {
        put("cufile.h", guard("cufile.h"));
    }
    let cccl = if release.from(13, 0) { "cccl/" } else { "" };
    put(&format!("{cccl}thrust/version.h"), guard("thrust/version.h"));
    if release.from(11, 0) {
        for name in ["cub/cub.cuh", "nv/target", "cuda/std/cassert"] {
            put(&format!("{cccl}{name}"), guard(name));
        }
    }
    all
}

/// What belongs to nvcc: `crt`.
pub fn compiler_headers(release: &Release) -> Vec<(String, String)> {
    let (gcc, clang) = (release.gcc_max, release.clang_max);
    const FLAG: &str = "The nvcc flag '-allow-unsupported-compiler' can be used to override this version check";
    let host = format!(
        "#if !defined(__CRT_HOST_CONFIG_H__)\n#define __CRT_HOST_CONFIG_H__\n\n#if defined(__CUDACC__)\n\n#if defined(__GNUC__)\n\n\
         #if __GNUC__ > {gcc}\n\n#error -- unsupported GNU version! gcc versions later than {gcc} are not supported! {FLAG}\n\n#endif /* __GNUC__ > {gcc} */\n\n\
         #if defined(__clang__) && !defined(__ibmxl_vrm__) && !defined(__ICC) && !defined(__HORIZON__) && !defined(__APPLE__)\n\n\
         #if (__clang_major__ >= {next}) || (__clang_major__ < 3) || ((__clang_major__ == 3) &&  (__clang_minor__ < 3))\n\
         #error -- unsupported clang version! clang version must be less than {next} and greater than 3.2 . {FLAG}\n\n#endif\n\n#endif\n\n\
         #endif /* __GNUC__ */\n\n#endif /* __CUDACC__ */\n\n#endif /* !__CRT_HOST_CONFIG_H__ */\n",
        next = clang + 1
    );
    let iec = if release.from(13, 0) { "#define __NV_IEC_60559_FUNCS_EXCEPTION_SPECIFIER noexcept(true)\n" } else { "" };
    let rsqrt = if release.from(13, 2) { "#define _NV_RSQRT_SPECIFIER noexcept(true)\n" } else { "" };
    let maths =
        format!("#if !defined(__MATH_FUNCTIONS_H__)\n#define __MATH_FUNCTIONS_H__\n{iec}{rsqrt}extern double cospi(double x);\n#endif\n");
    vec![
        ("crt/host_config.h".to_owned(), host),
        ("crt/math_functions.h".to_owned(), maths),
        ("crt/device_functions.h".to_owned(), String::new()),
        ("crt/host_defines.h".to_owned(), String::new()),
    ]
}

/// One of CUDA's programs: the words that `--version` prints are in all of them.
pub fn program(m: &Machine<'_>, release: &Release) -> Vec<u8> {
    m.tree.program().say(version_words(release)).bytes()
}

fn version_words(release: &Release) -> [String; 2] {
    let CudaVersion { major, minor } = release.cuda;
    [
        format!("Cuda compilation tools, release {major}.{minor}, V{}", release.nvcc),
        format!("Build cuda_{major}.{minor}.r{major}.{minor}/compiler.34097967_0"),
    ]
}

pub fn nvcc(m: &Machine<'_>, release: &Release) -> Vec<u8> {
    let mut words = version_words(release).to_vec();
    words.extend(["compute_%d", "sm_%d", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"].map(str::to_owned));
    if release.from(12, 5) {
        words.push("NVCC_CCBIN".to_owned());
    }
    for target in &release.targets {
        words.extend([format!("compute_{target}"), format!("sm_{target}"), format!("lto_{target}")]);
    }
    m.tree.program().say(words).bytes()
}

/// NVIDIA's profile: all places are told from nvcc's own.
pub fn profile(release: &Release) -> String {
    let nvvm = if release.from(13, 0) { "nvvm" } else { "$(_NVVM_BRANCH_)" };
    let cicc = if release.from(13, 0) { "CICC_PATH        = $(TOP)/nvvm/bin\n" } else { "" };
    let path = if release.from(13, 0) { "$(CICC_PATH)" } else { "$(TOP)/$(_NVVM_BRANCH_)/bin" };
    let cccl =
        if release.from(13, 0) { "SYSTEM_INCLUDES +=  \"-isystem\" \"$(TOP)/$(_TARGET_DIR_)/include/cccl\" $(_SPACE_)\n" } else { "" };
    format!(
        "\nTOP              = $(_HERE_)/..\n\n{cicc}NVVMIR_LIBRARY_DIR = $(TOP)/{nvvm}/libdevice\n\nLD_LIBRARY_PATH += $(TOP)/lib:\nPATH            += {path}:$(_HERE_):\n\n\
         INCLUDES        +=  \"-I$(TOP)/$(_TARGET_DIR_)/include\" $(_SPACE_)\n{cccl}\n\
         LIBRARIES        =+ $(_SPACE_) \"-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs\" \"-L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)\"\n\n\
         CUDAFE_FLAGS    +=\nPTXAS_FLAGS     +=\n"
    )
}
