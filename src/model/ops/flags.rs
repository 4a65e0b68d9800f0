//! The flags of an op in a pre-build, as its builder gives them to torch.

use super::{Archs, NvccFound, Scene};
use crate::knowledge::schema::Str;
use crate::knowledge::schema::deepspeed::{AcceleratorKind, Part};
use crate::knowledge::schema::ops::{Extension, Op, OpBuild};
use crate::model::arch_list::{self, Format};
use crate::version::CudaVersion;

/// Empty where the op cannot come so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    pub cxx: Vec<String>,
    pub nvcc: Vec<String>,
    pub link: Vec<String>,
}

pub fn flags(scene: &Scene<'_>, op: &Op, build: Option<&OpBuild>, archs: &Archs) -> Flags {
    let Some(build) = build.filter(|_| scene.torch.is_some()) else { return Flags::default() };
    let cuda = build.extension == Extension::Cuda && scene.accelerator == AcceleratorKind::Cuda;
    let nvcc = match scene.nvcc() {
        Ok(NvccFound::Release(release)) => Some(release),
        _ if cuda => return Flags::default(),
        _ => None,
    };
    let maker = Maker { scene, op, archs, nvcc };
    Flags {
        cxx: maker.set(build.cxx.as_deref(), &build.cxx_own, Part::Host, build.torch_2_0_standard),
        nvcc: if cuda { maker.set(build.nvcc.as_deref(), &build.nvcc_own, Part::Nvcc, None) } else { Vec::new() },
        link: build.link.iter().flat_map(|flag| maker.word(flag, Part::Host)).collect(),
    }
}

struct Maker<'s, 'a> {
    scene: &'s Scene<'a>,
    op: &'s Op,
    archs: &'s Archs,
    nvcc: Option<CudaVersion>,
}

impl Maker<'_, '_> {
    fn set(&self, set: Option<&str>, own: &[Str], part: Part, old_standard: Option<u32>) -> Vec<String> {
        let shared = set.and_then(|set| self.scene.know.op_flags(set, &self.scene.deepspeed.version)).unwrap_or_default();
        // The macro of BF16 is added last of all.
        let (last, first): (Vec<&Str>, Vec<&Str>) = shared.iter().partition(|flag| *flag == "{bf16}");
        let mut words: Vec<String> = first.into_iter().chain(own).chain(last).flat_map(|flag| self.word(flag, part)).collect();
        if let Some(standard) = old_standard.filter(|_| self.scene.torch.is_some_and(|torch| !torch.version.at_least(&[2, 1]))) {
            words.iter_mut().filter(|word| word.starts_with("-std=")).for_each(|word| *word = format!("-std=c++{standard}"));
        }
        words
    }

    fn word(&self, flag: &str, part: Part) -> Vec<String> {
        let scene = self.scene;
        let one = |word: String| vec![word];
        match flag {
            "{std}" => {
                let nvcc = self.nvcc.unwrap_or(CudaVersion::new(0, 0));
                let standard =
                    scene.torch.and_then(|torch| scene.know.deepspeed_standard(part, &scene.deepspeed.version, nvcc, &torch.version));
                standard.map(|standard| format!("-std=c++{standard}")).into_iter().collect()
            }
            "{arch}" => arch_list::print(&self.archs.kept, Format::Gencode).split_whitespace().map(str::to_owned).collect(),
            "{bf16}" => {
                let new = !self.archs.kept.is_empty() && self.archs.kept.iter().all(|item| item.target.capability.major >= 8);
                new.then(|| "-DBF16_AVAILABLE".to_owned()).into_iter().collect()
            }
            "{threads}" => one(format!("--threads={}", self.threads())),
            "{march}" => one(self.march().to_owned()),
            "{simd}" => one(self.simd().to_owned()),
            flag => one(self.named(flag)),
        }
    }

    fn named(&self, flag: &str) -> String {
        let scene = self.scene;
        let mut word = flag.to_owned();
        if word.contains("{cuda}") {
            let home = scene.home.value.as_ref().map(ToString::to_string).unwrap_or_default();
            // The host ops take `lib` where there is no `lib64`; the others name `lib64` whatever there is.
            let host = scene.know.op_build(self.op, &scene.deepspeed.version).is_some_and(|build| build.cxx.as_deref() == Some("host"));
            let aio = matches!(self.op.op.as_ref(), "async_io" | "gds");
            let lib = scene.home.lib().and_then(|lib| lib.file_name().map(|name| name.to_string_lossy().into_owned()));
            if let Some(lib) = lib.filter(|lib| lib == "lib" && host && !aio) {
                word = word.replace("{cuda}/lib64", &format!("{{cuda}}/{lib}"));
            }
            word = word.replace("{cuda}", &home);
        }
        if word.contains("{kernels}") {
            let site = scene.python.and_then(|python| python.package("deepspeed-kernels")).map(|package| package.site.join("dskernels"));
            word = word.replace("{kernels}", &site.map(|site| site.to_string()).unwrap_or_default());
        }
        if word.contains("{gpu}") {
            let first = scene.gpus.as_ref().ok().and_then(|gpus| gpus.first()?.capability);
            word = word.replace("{gpu}", &first.map(|capability| format!("{}{}", capability.major, capability.minor)).unwrap_or_default());
        }
        word
    }

    /// DS_NVCC_THREADS, else the number of CPUs, 8 at most.
    fn threads(&self) -> usize {
        let said = self.scene.facts.env.text("DS_NVCC_THREADS").and_then(|value| value.trim().parse::<usize>().ok()).filter(|n| *n > 0);
        said.unwrap_or_else(|| self.scene.facts.host.cpu.value().map_or(1, |cpu| cpu.count.max(1)).min(8))
    }

    fn march(&self) -> &'static str {
        match self.scene.facts.host.machine.value().map_or("", String::as_str) {
            machine if machine.starts_with("ppc") => "-mcpu=native",
            "riscv64" => "-march=rv64gc",
            _ => "-march=native",
        }
    }

    /// `simd_width` of op_builder/builder.py.
    fn simd(&self) -> &'static str {
        let scene = self.scene;
        let has = |flag: &str| scene.facts.host.cpu.value().is_some_and(|cpu| cpu.flags.iter().any(|own| own == flag));
        let arm = scene.does(crate::knowledge::schema::deepspeed::DeepSpeedTrait::CpuOpsWithoutCuda);
        match scene.facts.host.machine.value().map_or("", String::as_str) {
            "aarch64" if arm && has("sve") => "-D__SVE__",
            "aarch64" if arm => "-D__NEON__",
            "x86_64" if has("avx512") || has("avx512f") => "-D__AVX512__",
            "x86_64" if has("avx2") => "-D__AVX256__",
            _ => "-D__SCALAR__",
        }
    }
}
