//! What a machine's manifest can say. One TOML file, `tests/machines/<name>.toml`, is one machine and what must be said of it.
//!
//! ```toml
//! about = "what kind of machine this is, and what its owner met"
//! expect = ["no-nvcc"]          # root causes in order; none: healthy, no finding
//! folded = ["..."]              # what must be folded below them; not given: not looked at
//! info = ["..."]                # states that must be told with -v; not given: not looked at
//! args = ["--gpu", "h100*2", "--for", "both"]
//! exit = 1                      # default: 0 when healthy, else 1
//! verdict = "unknown"           # default: healthy where nothing is expected, else by the exit code
//! fixes = ["..."]               # what the plan must tell somebody to type
//! stays = ["..."]               # ids that `fix --print-exports` need not cure although its plan is all exports
//!
//! system = "debian-12"          # see `system.rs`: os-release, libc, libstdc++, gcc, python, ninja, ld.so.cache
//! aarch64 = true
//! without = ["gcc", "g++", "c++", "ninja", "python", "python-headers", "ldconfig"]   # parts of the system left out
//! path = ["/usr/local/cuda-12.4/bin"]     # in front of PATH; environments that are activated come before it
//! env = { CUDA_HOME = "/usr/local/cuda-12.4" }
//! files = { "/etc/motd" = "text" }        programs = { "/usr/bin/x" = "#!/bin/sh\n" }
//! links = { "/usr/local/cuda" = "cuda-12.4" }       folders = ["/opt/empty"]
//! remove = ["/usr/lib/x*"]      empty = ["/usr/bin/nvcc"]     truncated = ["/usr/lib/libx.so"]
//! modes = { "/usr/bin/nvcc" = 0o644 }               times = { "/root/lock" = 1700000000 }
//!
//! [[toolkit]] ...    [[gcc]] ...    [[clang]] ...    [[python]] ...    [[torch]] ...    [[deepspeed]] ...
//! [[lib]] ...        [[ld-cache]] ...                [[cached-op]] ...                  [driver] ...
//! ```
//!
//! The parts are the structs below; each becomes the files that the real package has. They are made in the order system, compilers,
//! Pythons, toolkits, torch, DeepSpeed, driver, libraries, cache; then `files`, `programs`, `folders`, `links`, `remove`, `empty`,
//! `truncated`, `modes`, `times`.

use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    pub about: String,
    pub expect: Vec<String>,
    pub folded: Option<Vec<String>>,
    pub info: Option<Vec<String>>,
    #[serde(default)]
    pub args: Vec<String>,
    pub exit: Option<i32>,
    pub verdict: Option<String>,
    #[serde(default)]
    pub fixes: Vec<String>,
    #[serde(default)]
    pub stays: Vec<String>,
    pub system: String,
    #[serde(default)]
    pub aarch64: bool,
    #[serde(default)]
    pub without: Vec<String>,
    #[serde(default)]
    pub path: Vec<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    #[serde(default)]
    pub programs: BTreeMap<String, String>,
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    #[serde(default)]
    pub folders: Vec<String>,
    #[serde(default)]
    pub remove: Vec<String>,
    #[serde(default)]
    pub empty: Vec<String>,
    #[serde(default)]
    pub truncated: Vec<String>,
    #[serde(default)]
    pub modes: BTreeMap<String, u32>,
    #[serde(default)]
    pub times: BTreeMap<String, u64>,
    #[serde(default)]
    pub toolkit: Vec<Toolkit>,
    #[serde(default)]
    pub gcc: Vec<Gcc>,
    #[serde(default)]
    pub clang: Vec<Clang>,
    #[serde(default)]
    pub python: Vec<Python>,
    #[serde(default)]
    pub torch: Vec<Torch>,
    #[serde(default)]
    pub deepspeed: Vec<DeepSpeed>,
    #[serde(default)]
    pub lib: Vec<Library>,
    #[serde(default)]
    pub ld_cache: Vec<CacheEntry>,
    #[serde(default)]
    pub cached_op: Vec<CachedOp>,
    pub driver: Option<Driver>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// NVIDIA's runfile, deb and rpm: `include` and `lib64` are links into `targets/<system>`.
    Nvidia,
    /// Debian's own packages, below `/usr`: nvcc is a script, the parts lie in `/usr/bin` and `/usr/lib/nvidia-cuda-toolkit`.
    Distribution,
    /// conda packages in one prefix: headers in `include`, libraries in `lib`.
    Conda,
    /// conda packages with headers and libraries in `targets/<system>`; versioned libraries are linked into `lib`.
    CondaTargets,
    /// NVIDIA's HPC SDK: `root` is `…/<release of the SDK>/cuda/<CUDA>`, mathematics lie in `…/math_libs/<CUDA>`.
    HpcSdk,
    /// pip's packages of CUDA 13: `root` is `site-packages/nvidia/cu13`; no unversioned library.
    Pip,
}

/// Parts of a toolkit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// nvcc, its programs and `crt` headers.
    Compiler,
    Headers,
    /// Versioned shared libraries.
    Runtime,
    /// Unversioned and static libraries, stubs.
    Dev,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Toolkit {
    pub root: String,
    /// What nvcc prints: `12.4.131`.
    pub release: String,
    #[serde(default = "nvidia")]
    pub layout: Layout,
    /// All parts where not given.
    pub parts: Option<Vec<Part>>,
    /// Paths below the root that are taken away again; `*` at the end stands for any rest.
    #[serde(default)]
    pub without: Vec<String>,
    /// From the knowledge tables where not given; must be given for a release that they do not know.
    pub gcc_max: Option<u32>,
    pub clang_max: Option<u32>,
    pub targets: Option<Vec<String>>,
    /// The package leaves a file in `/etc/ld.so.conf.d`, and ldconfig has run.
    #[serde(default)]
    pub ldconfig: bool,
    /// CUDA_HOME names it.
    #[serde(default)]
    pub home: bool,
    /// Its `bin` is on PATH.
    #[serde(default)]
    pub on_path: bool,
}

const fn nvidia() -> Layout {
    Layout::Nvidia
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gcc {
    pub version: String,
    /// A folder of its own (`/opt/gcc-11/bin`) with plain names; not given: `/usr/bin`, as the distribution packages it.
    pub folder: Option<String>,
    /// A conda prefix: names with the target in front.
    pub conda: Option<String>,
    /// Also `gcc`, `g++`, `cc`, `c++`.
    #[serde(default)]
    pub default: bool,
    /// Of `g++`, `c++`, `cc`.
    #[serde(default)]
    pub without: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Clang {
    /// `16.0.6`
    pub version: String,
    /// `cc` and `c++` lead to it.
    #[serde(default)]
    pub default: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PythonKind {
    /// A further Python of the distribution, in `/usr`.
    System,
    Venv,
    Conda,
    /// pyenv's or uv's build in a prefix of its own.
    Standalone,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Python {
    pub prefix: String,
    pub kind: PythonKind,
    /// `3.11.7`; of a virtual environment its base's.
    pub version: Option<String>,
    /// The prefix of the Python that a virtual environment was made with.
    #[serde(default = "usr")]
    pub base: String,
    /// Python.h, where the kind has any.
    #[serde(default = "yes")]
    pub headers: bool,
    #[serde(default)]
    pub system_site_packages: bool,
    /// Name and version; not given: pip and setuptools, as the tool that made it installs them.
    pub packages: Option<BTreeMap<String, String>>,
    /// pip's ninja: the module and `bin/ninja`.
    #[serde(default)]
    pub ninja: bool,
    /// VIRTUAL_ENV or CONDA_PREFIX names it and PATH finds it; so for venv and conda where not given.
    pub activate: Option<bool>,
}

fn usr() -> String {
    "/usr".to_owned()
}

const fn yes() -> bool {
    true
}

/// Where torch's CUDA libraries come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Runtime {
    /// NVIDIA's packages in the same site folder.
    Wheels,
    /// Copies with a hash in their names in `torch/lib`.
    Bundled,
    /// The environment's or the system's.
    Shared,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Torch {
    /// `2.6.0+cu124`
    pub version: String,
    /// The prefix of the Python; the first `[[python]]` where not given, else the system's.
    pub python: Option<String>,
    /// In the user's own site folder.
    #[serde(default)]
    pub user: bool,
    /// What version.py says; from the version's `+cuNNN` where not given.
    pub cuda: Option<String>,
    pub hip: Option<String>,
    /// `["sm_80", "compute_90"]`; from the knowledge tables where not given.
    pub arch_list: Option<Vec<String>>,
    pub cxx11_abi: Option<bool>,
    pub runtime: Option<Runtime>,
    /// Release of NVIDIA's NCCL package; from the tables where not given.
    pub nccl: Option<String>,
    /// When it was installed.
    #[serde(default = "installed")]
    pub time: u64,
}

const fn installed() -> u64 {
    1_740_000_000
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DeepSpeed {
    pub version: String,
    pub python: Option<String>,
    /// Pre-built ops.
    #[serde(default)]
    pub ops: Vec<String>,
    /// What setup.py noted: major.minor of torch and of its CUDA.
    pub torch: Option<String>,
    pub cuda: Option<String>,
    #[serde(default = "cpu")]
    pub accelerator: String,
    /// The containers of device code in its pre-built `fused_adam`: `["sm_80 compute_80@8.4"]`.
    #[serde(default)]
    pub device_code: Vec<String>,
}

fn cpu() -> String {
    "cpu".to_owned()
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Library {
    pub path: String,
    pub soname: String,
    #[serde(default)]
    pub needed: Vec<String>,
    pub runpath: Option<String>,
    /// Version nodes that it defines.
    #[serde(default)]
    pub defines: Vec<String>,
    #[serde(default)]
    pub exports: Vec<String>,
    #[serde(default)]
    pub aarch64: bool,
    /// The CUDA release in its code, for a libcudart: `12.4`.
    pub cuda: Option<String>,
    /// Strings in it.
    #[serde(default)]
    pub strings: Vec<String>,
    /// ldconfig has listed it.
    #[serde(default)]
    pub ldconfig: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CacheEntry {
    pub soname: String,
    pub path: String,
}

/// A folder of torch's extension cache.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CachedOp {
    /// `/root/.cache/torch_extensions/py311_cu124/fused_adam`
    pub path: String,
    /// When its library was built; none is there where not given.
    pub built: Option<u64>,
    /// The torch it was built against.
    pub torch: Option<String>,
    /// When its lock was made.
    pub lock: Option<u64>,
    /// Version nodes that its library needs: `GLIBCXX_3.4.32` of libstdc++, `GLIBC_2.38` of libc.
    #[serde(default)]
    pub needs: Vec<String>,
    /// The containers of device code in its library: `["sm_80 compute_80@8.4"]`.
    #[serde(default)]
    pub device_code: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Driver {
    /// `550.54.15`
    pub version: String,
    /// Names of the GPUs.
    #[serde(default)]
    pub gpus: Vec<String>,
    /// The PCI device number, `0x2330`.
    #[serde(default = "h100")]
    pub device: String,
    /// The kernel module is loaded.
    #[serde(default = "yes")]
    pub module: bool,
    /// What holds the GPU on the bus where the module is not loaded.
    pub held_by: Option<String>,
    #[serde(default = "yes")]
    pub nodes: bool,
    /// libcuda and libnvidia-ml; another version than the module's where given.
    #[serde(default = "yes")]
    pub libraries: bool,
    pub library_version: Option<String>,
    /// Windows' driver under WSL 2.
    #[serde(default)]
    pub wsl: bool,
}

fn h100() -> String {
    "0x2330".to_owned()
}
