//! The command lines of a JIT build: which programs torch and this DeepSpeed start for a `.cu` file, a `.cpp` file and the link, and with
//! which flags, in their order.
//!
//! Source of the rules: `_write_ninja_file_to_build_library`, `COMMON_NVCC_FLAGS` and `_prepare_ldflags` of torch 1.13 to 2.15;
//! `CUDAOpBuilder.nvcc_args` and `cxx_args` of DeepSpeed 0.9 to 0.19. The programs are started without a shell here, so the words are those
//! that the shell of ninja's rule would make.

use super::arch_list::{self, Item, Reader, Reading, Use};
use super::build::{self, Pair};
use super::cuda_home::CudaHome;
use super::host_compiler::{self, shell_words};
use crate::facts::probe::Targets;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::{DeepSpeed, Torch};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::Part;
use crate::version::{Capability, CudaVersion};
use std::ffi::OsString;

/// What a build is made from, as the models choose it.
#[derive(Clone, Copy)]
pub struct Choice<'a> {
    pub facts: &'a Snapshot,
    pub know: &'a Knowledge,
    pub home: &'a CudaHome<'a>,
    pub torch: Option<&'a Torch>,
    pub deepspeed: Option<&'a DeepSpeed>,
    /// Of the GPUs that a program would see.
    pub gpus: &'a [Capability],
}

/// The programs and flags of a build.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Toolchain {
    /// CUDA_HOME
    pub home: HostPath,
    /// As words: PYTORCH_NVCC can hold several.
    pub nvcc: Vec<OsString>,
    /// As words: CXX can hold several.
    pub cxx: Vec<OsString>,
    /// In front of the source.
    pub nvcc_flags: Vec<OsString>,
    pub cxx_flags: Vec<OsString>,
    /// Folders that are passed with `-L`.
    pub libs: Vec<HostPath>,
    pub targets: Targets,
}

/// Same in all releases.
const COMMON_NVCC_FLAGS: &[&str] = &[
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
];

/// DeepSpeed takes the first three back.
const DEEPSPEED_HALF: &[&str] = &["-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_HALF2_OPERATORS__"];

/// The newest standard that torch asks for, where there is no torch to ask.
const STANDARD_WITHOUT_TORCH: u32 = 17;

/// `None` where torch finds no toolkit.
pub fn toolchain(choice: &Choice<'_>) -> Option<Toolchain> {
    let Choice { facts, know, home, torch, deepspeed, .. } = *choice;
    let nvcc = shell_words(&build::nvcc_command(facts, know, home, torch)?);
    let cxx = host_compiler::cxx(facts).words;
    let (targets, items) = targets(choice);
    let includes = home.includes(facts, know, torch);
    let system = || includes.iter().flat_map(|folder| [OsString::from("-isystem"), folder.0.clone().into_os_string()]);
    let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
    let standard = torch.map_or(STANDARD_WITHOUT_TORCH, |torch| build::torch_cxx_standard(know, torch));

    let mut nvcc_flags = Vec::new();
    if let Some(cc) = facts.env.get("CC") {
        nvcc_flags.push("-ccbin".into());
        nvcc_flags.extend(shell_words(cc));
    }
    nvcc_flags.extend(system());
    nvcc_flags.extend(words(COMMON_NVCC_FLAGS));
    let gencode = arch_list::print(&items, arch_list::Format::Gencode);
    nvcc_flags.extend(gencode.split_whitespace().map(OsString::from));
    nvcc_flags.extend(words(&["--compiler-options", "-fPIC"]));

    let mut cxx_flags: Vec<OsString> = system().collect();
    cxx_flags.extend([OsString::from("-fPIC"), format!("-std=c++{standard}").into()]);

    match deepspeed {
        Some(deepspeed) => {
            let release = home.toolkit.and_then(crate::facts::toolkit::Toolkit::release);
            nvcc_flags.extend(words(&["-O3", "--use_fast_math"]));
            nvcc_flags.push(format!("-std=c++{}", deepspeed_nvcc_standard(choice, deepspeed, release).unwrap_or(standard)).into());
            nvcc_flags.extend(words(DEEPSPEED_HALF));
            nvcc_flags.extend(threads(facts, &deepspeed.version).map(OsString::from));
            cxx_flags.push("-O3".into());
            let own = torch.and_then(|torch| {
                let release = release.unwrap_or(CudaVersion::new(0, 0));
                know.deepspeed_standard(Part::Host, &deepspeed.version, release, &torch.version)
            });
            cxx_flags.push(format!("-std=c++{}", own.unwrap_or(standard)).into());
            cxx_flags.extend(words(&["-g", "-Wno-reorder"]));
        }
        None => nvcc_flags.push(format!("-std=c++{standard}").into()),
    }
    let home_path = HostPath::new(home.value.as_ref()?.0.clone());
    Some(Toolchain { home: home_path, nvcc, cxx, nvcc_flags, cxx_flags, libs: home.lib_folders(facts), targets })
}

fn deepspeed_nvcc_standard(choice: &Choice<'_>, deepspeed: &DeepSpeed, nvcc: Option<CudaVersion>) -> Option<u32> {
    let pair = Pair { deepspeed: &deepspeed.version, torch: choice.torch?, nvcc: nvcc? };
    build::deepspeed_nvcc_standard(choice.know, &pair, false)
}

/// `--threads`: DS_NVCC_THREADS, else the number of CPUs, 8 at most; since 0.13.3.
fn threads(facts: &Snapshot, deepspeed: &crate::version::Dotted) -> Option<String> {
    if !deepspeed.at_least(&[0, 13, 3]) {
        return None;
    }
    let said = facts.env.text("DS_NVCC_THREADS").and_then(|value| value.trim().parse::<usize>().ok()).filter(|number| *number > 0);
    let cpus = facts.host.cpu.value().map_or(1, |cpu| cpu.count.max(1));
    Some(format!("--threads={}", said.unwrap_or(cpus.min(8))))
}

/// What is built for: the list where one is set that can be read, else the GPUs, else what nvcc takes by itself.
fn targets(choice: &Choice<'_>) -> (Targets, Vec<Item>) {
    let Choice { facts, know, torch, deepspeed, gpus, .. } = *choice;
    let of = |items: Vec<Item>, from: &str| {
        let list = arch_list::print(&items, arch_list::Format::Sm).split_whitespace().map(str::to_owned).collect();
        (Targets { list, from: from.to_owned() }, items)
    };
    let reader = match deepspeed {
        Some(deepspeed) => Reader::DeepSpeed(Some(&deepspeed.version), Use::Jit),
        None => Reader::Torch(torch.map(|torch| &torch.version)),
    };
    const LIST: &str = "TORCH_CUDA_ARCH_LIST";
    let text = facts.env.text(LIST);
    let refused = match text.as_deref().map(|text| arch_list::read(know, &reader, Some(text))) {
        Some(Ok(Reading::List(items))) if !items.is_empty() => return of(items, LIST),
        // An older DeepSpeed looks at the GPUs whatever the list says; without one the list is the best that there is.
        Some(Ok(Reading::Ignored)) if gpus.is_empty() => {
            let plain = Reader::Torch(torch.map(|torch| &torch.version));
            match arch_list::read(know, &plain, text.as_deref()) {
                Ok(Reading::List(items)) if !items.is_empty() => return of(items, LIST),
                _ => true,
            }
        }
        Some(Err(_)) => true,
        _ => false,
    };
    let archs = torch.and_then(|torch| torch.arch_list.value()).map_or(&[][..], Vec::as_slice);
    let seen = if gpus.is_empty() { None } else { arch_list::for_gpus(know, &reader, gpus, archs).ok() };
    match seen {
        Some(items) => of(items, "the visible GPUs"),
        None if refused => of(Vec::new(), "nvcc's default: TORCH_CUDA_ARCH_LIST cannot be read"),
        None => of(Vec::new(), "nvcc's default: no list is set and no GPU is seen"),
    }
}

impl Toolchain {
    /// The same for the highest of its real targets alone: enough where only headers are compiled.
    pub fn for_one_target(&self) -> Self {
        let target = |word: &OsString| word.to_string_lossy().starts_with("-gencode");
        let real = |word: &&OsString| target(word) && word.to_string_lossy().contains("code=sm_");
        let last = self.nvcc_flags.iter().rfind(real).cloned();
        let kept = |word: &&OsString| !target(word) || last.as_ref().is_none_or(|last| *word == last);
        Self { nvcc_flags: self.nvcc_flags.iter().filter(kept).cloned().collect(), ..self.clone() }
    }

    /// nvcc on one source, with flags of its own behind those of every build.
    pub fn nvcc_command(&self, source: &str, object: &str, more: &[OsString]) -> Vec<OsString> {
        let tail = ["-c", source, "-o", object].map(OsString::from);
        self.nvcc.iter().chain(&self.nvcc_flags).chain(more).cloned().chain(tail).collect()
    }

    /// The C++ compiler on one source.
    pub fn cxx_command(&self, source: &str, object: &str, more: &[OsString]) -> Vec<OsString> {
        let tail = ["-c", source, "-o", object].map(OsString::from);
        self.cxx.iter().chain(&self.cxx_flags).chain(more).cloned().chain(tail).collect()
    }

    /// The link of a shared object: `-L` of the toolkit and `-lcudart` last, as torch has them. `more` stands before them, as the flags of
    /// an op do.
    pub fn link_command(&self, objects: &[&str], library: &str, more: &[OsString]) -> Vec<OsString> {
        let libs = self.libs.iter().map(|folder| {
            let mut flag = OsString::from("-L");
            flag.push(&folder.0);
            flag
        });
        let tail = [OsString::from("-lcudart"), "-o".into(), library.into()];
        let objects = objects.iter().map(OsString::from);
        self.cxx
            .iter()
            .cloned()
            .chain(objects)
            .chain([OsString::from("-shared")])
            .chain(more.iter().cloned())
            .chain(libs)
            .chain(tail)
            .collect()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::cuda_home::cuda_home;
    use super::*;
    use crate::facts::observed::Observed;

    fn torch(version: &str) -> Torch {
        serde_json::from_str(&format!(r#"{{"path": "/site/torch", "version": "{version}", "cuda": "13.0"}}"#)).unwrap()
    }

    fn deepspeed(version: &str) -> DeepSpeed {
        DeepSpeed {
            path: "/site/deepspeed".into(),
            version: version.parse().unwrap(),
            built: Observed::absent(["nothing"]),
            editable: false,
            binaries: Vec::new(),
        }
    }

    fn of(env: &[(&str, &str)], torch: Option<&Torch>, deepspeed: Option<&DeepSpeed>, gpus: &[&str]) -> Toolchain {
        let mut facts = Snapshot::default();
        facts.env.set("CUDA_HOME", "/cuda");
        for (name, value) in env {
            facts.env.set(name, *value);
        }
        let know = Knowledge::embedded();
        let home = cuda_home(&facts, &know, torch);
        let gpus: Vec<Capability> = gpus.iter().map(|text| text.parse().unwrap()).collect();
        toolchain(&Choice { facts: &facts, know: &know, home: &home, torch, deepspeed, gpus: &gpus }).unwrap()
    }

    fn line(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn torch_alone() {
        let torch = torch("2.11.0");
        let chain = of(&[("TORCH_CUDA_ARCH_LIST", "8.0;9.0+PTX")], Some(&torch), None, &[]);
        assert_eq!(
            line(&chain.nvcc_command("a.cu", "a.o", &[])),
            "/cuda/bin/nvcc -isystem /cuda/include -D__CUDA_NO_HALF_OPERATORS__ -D__CUDA_NO_HALF_CONVERSIONS__ \
             -D__CUDA_NO_BFLOAT16_CONVERSIONS__ -D__CUDA_NO_HALF2_OPERATORS__ --expt-relaxed-constexpr \
             -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90 \
             --compiler-options -fPIC -std=c++17 -c a.cu -o a.o"
        );
        assert_eq!(line(&chain.cxx_command("a.cpp", "a.o", &[])), "c++ -isystem /cuda/include -fPIC -std=c++17 -c a.cpp -o a.o");
        assert_eq!(line(&chain.link_command(&["h.o", "a.o"], "a.so", &[])), "c++ h.o a.o -shared -L/cuda/lib64 -lcudart -o a.so");
        assert!(line(&of(&[], Some(&self::torch("2.12.0")), None, &[]).nvcc_flags).ends_with("-std=c++20"));
    }

    #[test]
    fn one_target() {
        let flags =
            |list: &str| line(&of(&[("TORCH_CUDA_ARCH_LIST", list)], Some(&torch("2.11.0")), None, &[]).for_one_target().nvcc_flags);
        let many = flags("8.0;9.0+PTX");
        assert_eq!(many.matches("-gencode").count(), 1, "{many}");
        assert!(many.contains("-gencode=arch=compute_90,code=sm_90 "), "{many}");
        assert!(many.contains("--compiler-options -fPIC"), "{many}");
        assert_eq!(flags("8.0").matches("-gencode").count(), 1);
    }

    #[test]
    fn compilers_of_the_environment() {
        let chain = of(&[("CC", "gcc-12"), ("CXX", "ccache g++-12"), ("PYTORCH_NVCC", "ccache /x/nvcc")], None, None, &[]);
        assert!(line(&chain.nvcc_command("a.cu", "a.o", &[])).starts_with("ccache /x/nvcc -ccbin gcc-12 -isystem"));
        assert!(line(&chain.cxx_command("a.cpp", "a.o", &[])).starts_with("ccache g++-12 -isystem"));
        assert!(!line(&of(&[], None, None, &[]).nvcc_flags).contains("ccbin"), "CXX alone does not reach nvcc");
    }

    #[test]
    fn deepspeed_adds_its_own() {
        let (torch, deepspeed) = (torch("2.11.0"), deepspeed("0.19.8"));
        let flags = line(&of(&[("DS_NVCC_THREADS", "3")], Some(&torch), Some(&deepspeed), &[]).nvcc_flags);
        assert!(flags.contains("-O3 --use_fast_math -std=c++17 -U__CUDA_NO_HALF_OPERATORS__"), "{flags}");
        assert!(flags.ends_with("--threads=3"), "{flags}");
        let flags = line(&of(&[], Some(&torch), Some(&self::deepspeed("0.13.2")), &[]).nvcc_flags);
        assert!(!flags.contains("--threads"), "{flags}");
    }

    #[test]
    fn where_the_targets_come_from() {
        let torch = torch("2.11.0");
        let targets = |env: &[(&str, &str)], gpus: &[&str]| {
            let targets = of(env, Some(&torch), Some(&deepspeed("0.19.8")), gpus).targets;
            (targets.list.join(" "), targets.from)
        };
        assert_eq!(targets(&[], &["9.0"]), ("sm_90 compute_90".to_owned(), "the visible GPUs".to_owned()));
        assert_eq!(targets(&[("TORCH_CUDA_ARCH_LIST", "8.0")], &["9.0"]).1, "TORCH_CUDA_ARCH_LIST");
        assert_eq!(targets(&[("TORCH_CUDA_ARCH_LIST", "8.0,9.0")], &["9.0"]).1, "the visible GPUs");
        assert!(targets(&[("TORCH_CUDA_ARCH_LIST", "8.0,9.0")], &[]).1.contains("cannot be read"));
        assert_eq!(targets(&[], &[]).0, "");
    }
}
