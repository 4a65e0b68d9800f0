//! A machine with a driver and an NCCL, all fake: namespaces in which the real command finds them.

use crate::fake::{build, compiler, driver};
use crate::gpu_e2e::{RELEASE, namespace, under_driver};
use crate::util::Output;
use std::path::Path;

pub struct Machine {
    folder: tempfile::TempDir,
}

impl Machine {
    pub fn possible() -> Result<(), String> {
        compiler()?;
        namespace()
    }

    /// GPUs with 300 MiB free; what NCCL and the driver's library answer beside that.
    pub fn new(gpus: usize, nccl: &str, cuda: &str) -> Self {
        Self::with_memory(gpus, (85_520_809_984, 314_572_800), nccl, cuda)
    }

    /// `memory`: total and free bytes of each.
    pub fn with_memory(gpus: usize, memory: (u64, u64), nccl: &str, cuda: &str) -> Self {
        let (total, free) = memory;
        let devices: String = (0..gpus)
            .map(|gpu| {
                let bus = 0x18 + gpu;
                format!("{gpu}.name NVIDIA H100\n{gpu}.capability 90\n{gpu}.total {total}\n{gpu}.free {free}\n{gpu}.bus 00000000:{bus:02x}:00.0\n")
            })
            .collect();
        let nvml = format!("count {gpus}\ndriver {RELEASE}\ncuda 13000\n{devices}");
        let folder = driver(RELEASE, &nvml, &format!("{cuda}\ncount {gpus}\nversion 13000\n"));
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("nccl.script"), format!("{nccl}\nshared {}\n", folder.path().display())).unwrap();
        build("nccl.c", &at("libnccl.so.2"), &[&format!("-DSCRIPT_PATH=\"{}\"", at("nccl.script").display())]);
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.doctor(&[&["nccl"], args].concat())
    }

    /// Another command.
    pub fn doctor(&self, args: &[&str]) -> Output {
        under_driver(RELEASE, self.folder.path().to_str().unwrap(), args)
    }
}
