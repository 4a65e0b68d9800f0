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
        let devices: String = (0..gpus)
            .map(|gpu| format!("{gpu}.name NVIDIA H100\n{gpu}.capability 90\n{gpu}.total 85520809984\n{gpu}.free 314572800\n{gpu}.bus 00000000:{:02x}:00.0\n", 0x18 + gpu))
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
        let args = [&["nccl"], args].concat();
        under_driver(RELEASE, self.folder.path().to_str().unwrap(), &args)
    }
}
