//! GPUs and their driver. What /proc, /dev and /sys tell comes first and costs nothing; NVML and libcuda are asked, in a child process,
//! only where that shows a driver at work: initialising them creates device nodes and may load a kernel module.

use crate::facts::gpu::{
    DeviceNode, DriverFacts, DriverKind, GpuFacts, KernelModule, LibcudaFacts, ListedGpu, NodePolicy, NvmlFacts, PciGpu,
};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::gpu::client::Client;
use crate::gpu::protocol::NvmlAnswer;
use crate::host::{Host, Kind};
use crate::version::Dotted;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The names under which CUDA programs load the driver's libraries.
pub const NVML: &str = "libnvidia-ml.so.1";
pub const LIBCUDA: &str = "libcuda.so.1";

/// How long NVML may take: without persistence mode the driver first wakes every device, seconds on a large machine.
pub const LIMIT: Duration = Duration::from_secs(30);

const VERSION: &str = "/proc/driver/nvidia/version";
const PARAMS: &str = "/proc/driver/nvidia/params";
const LISTED: &str = "/proc/driver/nvidia/gpus";
const DXG: &str = "/dev/dxg";
/// Nodes of the GPU that is part of a Tegra chip: before and since JetPack 5.
const TEGRA: [&str; 3] = ["/dev/nvhost-gpu", "/dev/nvhost-ctrl-gpu", "/dev/nvgpu/igpu0/ctrl"];
/// Folders of device nodes beside /dev itself.
const NODE_FOLDERS: [&str; 3] = ["/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/nvgpu/igpu0"];
const PCI: &str = "/sys/bus/pci/devices";
const NVIDIA: u32 = 0x10de;

/// Everything about GPUs, all candidates, no mask applied. `limit` bounds each child.
pub fn gpu(host: &dyn Host, limit: Duration) -> GpuFacts {
    let (devices, driver) = match shown(host) {
        None => {
            let gates = || [VERSION, DXG].into_iter().chain(TEGRA);
            (Observed::absent(gates()), Observed::absent(gates()))
        }
        Some((kind, shown_by)) => {
            let (devices, nvml, libcuda) = ask(host, limit);
            let listed = listed(host);
            let node_policy = host.read_text(Path::new(PARAMS)).ok().and_then(|text| node_policy(&text));
            let driver = DriverFacts { kind, shown_by: HostPath::new(shown_by), kernel: kernel(host), nvml, libcuda, listed, node_policy };
            (devices, Observed::seen(driver))
        }
    };
    GpuFacts { devices, driver, nodes: nodes(host), pci: pci(host) }
}

/// What shows a driver at work, and where it was seen.
fn shown(host: &dyn Host) -> Option<(DriverKind, &'static str)> {
    let there = |path: &&'static str| host.exists(Path::new(path));
    if let Some(node) = TEGRA.iter().find(|path| there(path)) {
        return Some((DriverKind::Tegra, node));
    }
    [(DriverKind::Native, VERSION), (DriverKind::Wsl, DXG)].into_iter().find(|(_, path)| there(path))
}

type Asked = (Observed<Vec<crate::facts::gpu::Device>>, Observed<NvmlFacts>, Observed<LibcudaFacts>);

/// Both libraries at the same time: each wakes the driver.
fn ask(host: &dyn Host, limit: Duration) -> Asked {
    if host.system().is_none() {
        let why = "libraries of a file tree are not loaded";
        return (Observed::skipped(why), Observed::skipped(why), Observed::skipped(why));
    }
    let client = Client::new(host.var("LD_LIBRARY_PATH"), limit);
    let (nvml, libcuda) = std::thread::scope(|scope| {
        let libcuda = scope.spawn(|| client.driver(LIBCUDA, false));
        let nvml = client.nvml(NVML);
        (nvml, libcuda.join().unwrap_or_else(|_| Observed::failed("the thread that asks libcuda ended early")))
    });
    let libcuda = map(libcuda, |a| LibcudaFacts { library: a.library, status: a.status, cuda: a.cuda, init: a.init });
    let devices = devices(&nvml);
    let nvml =
        map(nvml, |a| NvmlFacts { library: a.library, init: a.init, driver: a.driver, cuda: a.cuda, nvml: a.nvml, errors: a.errors });
    (devices, nvml, libcuda)
}

fn map<T, U>(observed: Observed<T>, with: impl FnOnce(T) -> U) -> Observed<U> {
    match observed {
        Observed::Seen { value } => Observed::seen(with(value)),
        Observed::Absent { looked } => Observed::Absent { looked },
        Observed::Failed { why } => Observed::Failed { why },
        Observed::Skipped { why } => Observed::Skipped { why },
    }
}

/// There is a driver, so a list that is not there is unknown, never empty.
fn devices(nvml: &Observed<NvmlAnswer>) -> Observed<Vec<crate::facts::gpu::Device>> {
    match nvml {
        Observed::Seen { value } => match (&value.devices, value.errors.last()) {
            (Some(devices), _) => Observed::seen(devices.clone()),
            (None, _) if !value.init.ok() => Observed::failed(format!("nvmlInit_v2 answers {}", value.init)),
            (None, Some(error)) => Observed::failed(format!("{}: {}", error.call, error.why)),
            (None, None) => Observed::failed("NVML gives no list of devices"),
        },
        Observed::Absent { .. } => Observed::skipped(format!("the loader finds no {NVML} to ask")),
        Observed::Failed { why } => Observed::failed(why.clone()),
        Observed::Skipped { why } => Observed::skipped(why.clone()),
    }
}

fn kernel(host: &dyn Host) -> Observed<KernelModule> {
    match host.read_text(Path::new(VERSION)) {
        Ok(text) => match kernel_module(&text) {
            Some(module) => Observed::seen(module),
            None => Observed::failed(format!("{VERSION} names no release")),
        },
        Err(e) if e.kind() == io::ErrorKind::NotFound => Observed::absent([VERSION]),
        Err(e) => Observed::failed(format!("{VERSION}: {e}")),
    }
}

/// `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon …`, or `… UNIX Open Kernel Module for x86_64  570.86.15  …`
fn kernel_module(text: &str) -> Option<KernelModule> {
    let line = text.lines().find(|line| line.starts_with("NVRM version"))?;
    let (_, after) = line.split_once("Kernel Module")?;
    let is_release = |word: &&str| word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let version: Dotted = after.split_whitespace().find(is_release)?.parse().ok()?;
    Some(KernelModule { version, open: line.contains("Open Kernel Module") })
}

/// Name and value of each `Name: value` line.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim()))
}

fn node_policy(text: &str) -> Option<NodePolicy> {
    let number = |wanted: &str| lines(text).find(|(name, _)| *name == wanted).and_then(|(_, value)| value.parse().ok());
    Some(NodePolicy {
        made_by_driver: number("ModifyDeviceFiles")? != 0,
        uid: number("DeviceFileUID")?,
        gid: number("DeviceFileGID")?,
        mode: number("DeviceFileMode")?,
    })
}

fn listed(host: &dyn Host) -> Vec<ListedGpu> {
    let folders = host.list(Path::new(LISTED)).unwrap_or_default();
    let text = |name: &OsStr| host.read_text(&Path::new(LISTED).join(name).join("information")).unwrap_or_default();
    folders.iter().map(|entry| listed_gpu(&entry.name.to_string_lossy(), &text(&entry.name))).collect()
}

fn listed_gpu(folder: &str, text: &str) -> ListedGpu {
    // The driver writes `?` where it has not woken the device yet.
    let value = |wanted: &str| {
        let found = lines(text).find(|(name, _)| *name == wanted).map(|(_, value)| value);
        found.filter(|v| !v.is_empty() && !v.contains('?') && *v != "Unknown").map(str::to_owned)
    };
    ListedGpu {
        bus: folder.to_ascii_lowercase(),
        name: value("Model"),
        uuid: value("GPU UUID"),
        minor: value("Device Minor").and_then(|v| v.parse().ok()),
        excluded: value("GPU Excluded").is_some_and(|v| v == "Yes"),
    }
}

fn nodes(host: &dyn Host) -> Vec<DeviceNode> {
    let in_dev = |name: &str| name.starts_with("nvidia") || name.starts_with("nvhost-") || ["dxg", "nvmap"].contains(&name);
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in ["/dev"].iter().chain(&NODE_FOLDERS) {
        for entry in host.list(Path::new(folder)).unwrap_or_default() {
            if entry.kind != Kind::Folder && (*folder != "/dev" || in_dev(&entry.name.to_string_lossy())) {
                paths.push(Path::new(folder).join(entry.name));
            }
        }
    }
    paths.sort();
    let stands_for_one = |kind| kind == Kind::Other || (kind == Kind::File && host.root().is_some());
    paths
        .into_iter()
        .filter_map(|path| {
            let meta = host.metadata(&path).ok()?;
            Some(DeviceNode { path: HostPath(path), device: stands_for_one(meta.kind), mode: meta.mode & 0o7777, uid: meta.uid })
        })
        .collect()
}

/// Display controllers and accelerators (PCI class 0x03 and 0x12) of NVIDIA.
fn pci(host: &dyn Host) -> Observed<Vec<PciGpu>> {
    let entries = match host.list(Path::new(PCI)) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Observed::absent([PCI]),
        Err(e) => return Observed::failed(format!("{PCI}: {e}")),
    };
    let gpus = entries.into_iter().filter_map(|entry| {
        let folder = Path::new(PCI).join(&entry.name);
        let number = |file: &str| u32::from_str_radix(host.read_text(&folder.join(file)).ok()?.trim().strip_prefix("0x")?, 16).ok();
        if number("vendor")? != NVIDIA {
            return None;
        }
        let class = number("class")?;
        let held_by = host.read_link(&folder.join("driver")).ok().and_then(|l| Some(l.file_name()?.to_string_lossy().into_owned()));
        let device = u16::try_from(number("device")?).ok()?;
        let address = entry.name.to_string_lossy().into_owned();
        matches!(class >> 16, 0x03 | 0x12).then_some(PciGpu { address, device, class, held_by })
    });
    Observed::seen(gpus.collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::facts::gpu::Status;
    use crate::host::{Environment, Rooted};

    /// A tree of files, by path and content; `->` makes a link.
    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            match content.strip_prefix("-> ") {
                Some(target) => std::os::unix::fs::symlink(target, path).unwrap(),
                None => std::fs::write(path, content).unwrap(),
            }
        }
        root
    }

    fn facts(files: &[(&str, &str)]) -> GpuFacts {
        let root = tree(files);
        gpu(&Rooted::new(root.path(), Environment::new()).unwrap(), LIMIT)
    }

    const RELEASE: &str =
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.144.03  Mon Jan 13 01:46:43 UTC 2025\nGCC version:  gcc 11.4.0\n";

    #[test]
    fn a_machine_without_anything() {
        let facts = facts(&[("/dev/null", ""), ("/etc/passwd", "")]);
        assert!(facts.devices.is_absent() && facts.driver.is_absent() && facts.pci.is_absent());
        assert!(facts.nodes.is_empty());
    }

    #[test]
    fn a_card_without_a_driver() {
        let facts = facts(&[
            ("/sys/bus/pci/devices/0000:18:00.0/vendor", "0x10de\n"),
            ("/sys/bus/pci/devices/0000:18:00.0/device", "0x2330\n"),
            ("/sys/bus/pci/devices/0000:18:00.0/class", "0x030200\n"),
            ("/sys/bus/pci/devices/0000:18:00.0/driver", "-> ../../../bus/pci/drivers/nouveau"),
            ("/sys/bus/pci/devices/0000:18:00.1/vendor", "0x10de\n"),
            ("/sys/bus/pci/devices/0000:18:00.1/device", "0x10ee\n"),
            ("/sys/bus/pci/devices/0000:18:00.1/class", "0x040300\n"),
            ("/sys/bus/pci/devices/0000:00:02.0/vendor", "0x8086\n"),
            ("/sys/bus/pci/devices/0000:00:03.0/vendor", "rubbish"),
        ]);
        assert!(facts.driver.is_absent() && facts.devices.is_absent());
        let held = PciGpu { address: "0000:18:00.0".to_owned(), device: 0x2330, class: 0x03_0200, held_by: Some("nouveau".to_owned()) };
        assert_eq!(facts.pci, Observed::seen(vec![held]), "an audio function and other makers are left out");
    }

    #[test]
    fn a_tree_with_a_driver_is_never_asked() {
        let facts = facts(&[
            (VERSION, RELEASE),
            (PARAMS, "ResmanDebugLevel: 4294967295\nModifyDeviceFiles: 1\nDeviceFileUID: 0\nDeviceFileGID: 44\nDeviceFileMode: 432\n"),
            (
                "/proc/driver/nvidia/gpus/0000:C1:00.0/information",
                "Model: \t\t NVIDIA A100\nGPU UUID: \t GPU-1\nDevice Minor: \t 2\nGPU Excluded:\t Yes\n",
            ),
            (
                "/proc/driver/nvidia/gpus/0000:01:00.0/information",
                "Model: \t\t Unknown\nGPU UUID: \t GPU-????????-????\nDevice Minor: \t 0\n",
            ),
            ("/dev/nvidia0", ""),
            ("/dev/nvidiactl", ""),
            ("/dev/nvidia-caps/nvidia-cap1", ""),
            ("/dev/sda", ""),
        ]);
        assert!(matches!(facts.devices, Observed::Skipped { .. }));
        let driver = facts.driver.value().unwrap();
        assert_eq!((driver.kind, driver.shown_by.display().to_string().as_str()), (DriverKind::Native, VERSION));
        assert_eq!(driver.kernel.value().unwrap().version.text, "550.144.03");
        assert!(matches!((&driver.nvml, &driver.libcuda), (Observed::Skipped { .. }, Observed::Skipped { .. })));
        assert_eq!(driver.node_policy, Some(NodePolicy { made_by_driver: true, uid: 0, gid: 44, mode: 0o660 }));
        let [asleep, excluded] = driver.listed.as_slice() else { unreachable!("{:?}", driver.listed) };
        assert_eq!((asleep.bus.as_str(), &asleep.name, &asleep.uuid, asleep.minor), ("0000:01:00.0", &None, &None, Some(0)));
        assert_eq!((excluded.bus.as_str(), excluded.name.as_deref(), excluded.excluded), ("0000:c1:00.0", Some("NVIDIA A100"), true));
        let paths: Vec<_> = facts.nodes.iter().map(|n| (n.path.display().to_string(), n.device)).collect();
        let expected = [("/dev/nvidia-caps/nvidia-cap1", true), ("/dev/nvidia0", true), ("/dev/nvidiactl", true)];
        assert_eq!(paths, expected.map(|(path, device)| (path.to_owned(), device)));
    }

    #[test]
    fn wsl_and_tegra() {
        let wsl = facts(&[(DXG, "")]);
        let driver = wsl.driver.value().unwrap();
        assert_eq!((driver.kind, driver.kernel.is_absent()), (DriverKind::Wsl, true));
        let tegra = facts(&[
            ("/dev/nvhost-gpu", ""),
            (VERSION, "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build\n"),
        ]);
        let driver = tegra.driver.value().unwrap();
        assert_eq!((driver.kind, driver.kernel.value().unwrap().open), (DriverKind::Tegra, true));
    }

    #[test]
    fn release_lines() {
        let open =
            kernel_module("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (builder@host)\n").unwrap();
        assert_eq!((open.version.text.as_str(), open.open), ("570.86.15", true));
        let closed = kernel_module(RELEASE).unwrap();
        assert_eq!((closed.version.text.as_str(), closed.open), ("550.144.03", false));
        for text in ["", "NVRM version: ", "GCC version: 11.4.0\n", "NVRM version: Kernel Module none\n", "\u{0}\u{1}"] {
            assert_eq!(kernel_module(text), None, "{text}");
        }
    }

    #[test]
    fn without_a_list_the_devices_are_unknown() {
        let library = crate::facts::gpu::Library { asked: NVML.to_owned(), path: None, version: None };
        let status = |code, name: &str| Status { code, name: name.to_owned() };
        let answer = |init: Status| NvmlAnswer {
            library: library.clone(),
            init,
            driver: None,
            cuda: None,
            nvml: None,
            devices: None,
            errors: vec![],
        };
        let mismatch = devices(&Observed::seen(answer(status(18, "NVML_ERROR_LIB_RM_VERSION_MISMATCH"))));
        assert_eq!(mismatch, Observed::failed("nvmlInit_v2 answers NVML_ERROR_LIB_RM_VERSION_MISMATCH (18)"));
        assert!(devices(&Observed::seen(answer(status(0, "")))).is_failed());
        assert_eq!(devices(&Observed::absent([NVML])), Observed::skipped("the loader finds no libnvidia-ml.so.1 to ask"));
    }
}
