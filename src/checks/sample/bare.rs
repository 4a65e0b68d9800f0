//! Small machines: the facts that one check of drivers and libraries asks for, and nothing else.

use crate::facts::cache::CacheFacts;
use crate::facts::elf::{ElfFacts, ElfKind, Machine};
use crate::facts::gpu::{DeviceNode, DriverFacts, DriverKind, GpuFacts, KernelModule, NodePolicy, PciGpu};
use crate::facts::host::OsRelease;
use crate::facts::loader::{CacheEntry, FAMILIES, Library, LoaderFacts};
use crate::facts::observed::Observed;
use crate::facts::python::{EnvironmentKind, Interpreter};
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::torch::Torch;

pub const SYSTEM_LIB: &str = "/usr/lib/x86_64-linux-gnu";
pub const SITE: &str = "/opt/venv/lib/python3.11/site-packages";
const PYTHON: &str = "/opt/venv/bin/python3";

/// An Ubuntu without anything on it.
pub fn machine() -> Snapshot {
    let mut facts = Snapshot::default();
    facts.host.os = Observed::seen(OsRelease { id: "ubuntu".to_owned(), id_like: vec!["debian".to_owned()], ..OsRelease::default() });
    facts.host.machine = Observed::seen("x86_64".to_owned());
    facts.host.glibc = Observed::seen("2.35".parse().unwrap());
    facts.host.root = Observed::seen(false);
    facts.env.set("HOME", "/root");
    facts.cache = Observed::seen(CacheFacts::default());
    facts.toolkits = Observed::seen(Vec::new());
    facts.pythons = Observed::seen(Vec::new());
    facts.loader = Observed::seen(LoaderFacts {
        cache: Observed::seen(Vec::new()),
        default_folders: vec![SYSTEM_LIB.into(), "/usr/lib".into()],
        ..LoaderFacts::default()
    });
    facts.gpu = GpuFacts {
        devices: Observed::absent(["/proc/driver/nvidia/version"]),
        driver: Observed::absent(["/proc/driver/nvidia/version"]),
        nodes: Vec::new(),
        pci: Observed::seen(Vec::new()),
    };
    facts
}

/// A machine with one H100 and this driver, complete.
pub fn with_driver(release: &str) -> Snapshot {
    let mut facts = machine();
    let skipped = || "libraries of a file tree are not loaded";
    facts.gpu.pci = Observed::seen(vec![on_bus(0x2330, Some("nvidia"))]);
    facts.gpu.devices = Observed::skipped(skipped());
    facts.gpu.driver = Observed::seen(DriverFacts {
        kind: DriverKind::Native,
        shown_by: "/proc/driver/nvidia/version".into(),
        kernel: Observed::seen(KernelModule { version: release.parse().unwrap(), open: false }),
        nvml: Observed::skipped(skipped()),
        libcuda: Observed::skipped(skipped()),
        listed: vec![listed("0000:18:00.0", "NVIDIA H100 80GB HBM3")],
        node_policy: Some(NodePolicy { made_by_driver: true, uid: 0, gid: 0, mode: 0o666 }),
    });
    facts.gpu.nodes = ["nvidia-uvm", "nvidia0", "nvidiactl"].map(node).into();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        add(&mut facts, &format!("{SYSTEM_LIB}/{name}"), Source::DefaultFolder).release = Some(release.parse().unwrap());
    }
    facts
}

pub fn listed(bus: &str, name: &str) -> crate::facts::gpu::ListedGpu {
    crate::facts::gpu::ListedGpu { bus: bus.to_owned(), name: Some(name.to_owned()), uuid: None, minor: Some(0), excluded: false }
}

pub fn on_bus(device: u16, held_by: Option<&str>) -> PciGpu {
    PciGpu { address: "0000:18:00.0".to_owned(), device, class: 0x03_0200, held_by: held_by.map(str::to_owned) }
}

pub fn node(name: &str) -> DeviceNode {
    DeviceNode { path: format!("/dev/{name}").into(), device: true, mode: 0o666, uid: 0 }
}

pub fn driver(facts: &mut Snapshot) -> &mut DriverFacts {
    facts.gpu.driver.value_mut().unwrap()
}

pub fn loader(facts: &mut Snapshot) -> &mut LoaderFacts {
    facts.loader.value_mut().unwrap()
}

/// A library at this path, its SONAME its name.
pub fn add<'a>(facts: &'a mut Snapshot, path: &str, source: Source) -> &'a mut Library {
    let name = path.rsplit('/').next().unwrap().to_owned();
    let family = FAMILIES.iter().find(|(_, start)| name == *start || name.starts_with(&format!("{start}."))).unwrap().0;
    let libraries = &mut loader(facts).libraries;
    libraries.push(Library {
        family: family.to_owned(),
        elf: Observed::seen(elf(&name, &[])),
        name,
        path: path.into(),
        real: path.into(),
        sources: vec![source],
        size: 1000,
        release: None,
        release_from: String::new(),
    });
    libraries.last_mut().unwrap()
}

/// An entry of the loader's cache for a library that was added.
pub fn cache(facts: &mut Snapshot, path: &str) {
    let soname = path.rsplit('/').next().unwrap().to_owned();
    let entry = CacheEntry { soname, path: path.into(), exists: true };
    loader(facts).cache.value_mut().unwrap().push(entry);
}

pub fn elf(soname: &str, needed: &[&str]) -> ElfFacts {
    ElfFacts {
        machine: Machine::X86_64,
        class_bits: 64,
        little_endian: true,
        kind: ElfKind::Shared,
        soname: Some(soname.to_owned()),
        needed: needed.iter().map(|name| (*name).to_owned()).collect(),
        ..ElfFacts::default()
    }
}

/// A virtual environment with this torch; `needed` is what each of its libraries needs, found by DT_RPATH as in NVIDIA's wheels.
pub fn with_torch<'a>(facts: &'a mut Snapshot, version: &str, cuda: &str, needed: &[&str]) -> &'a mut Torch {
    let rpath = ["cublas", "cuda_runtime", "cudnn", "cusparse", "nccl", "nvjitlink"].map(|name| format!("$ORIGIN/../../nvidia/{name}/lib"));
    let of = |name: &str, needed: &[&str]| {
        let rpath = rpath.iter().cloned().chain(["$ORIGIN".to_owned()]).collect();
        (name.to_owned(), ElfFacts { rpath: Some(rpath), ..elf(name, needed) })
    };
    let inner = [&["libc10.so"][..], needed].concat();
    let libs = [
        of("libtorch_global_deps.so", needed),
        of("libc10.so", &[]),
        of("libtorch_cuda.so", &inner),
        of("libtorch_python.so", &["libtorch_cuda.so", "libc10.so"]),
    ];
    let torch = Torch {
        path: format!("{SITE}/torch").into(),
        version: version.parse().unwrap(),
        cuda: Some(cuda.parse().unwrap()),
        cudart: needed.iter().find(|name| name.starts_with("libcudart")).map(|name| (*name).to_owned()),
        libs: libs.into(),
        ..Torch::default()
    };
    let python = Interpreter {
        path: PYTHON.into(),
        paths: vec![PYTHON.into()],
        real: "/usr/bin/python3.11".into(),
        version: Some("3.11.7".parse().unwrap()),
        kind: EnvironmentKind::Venv,
        prefix: "/opt/venv".into(),
        base_prefix: "/usr".into(),
        site: vec![SITE.into()],
        sources: vec![Source::Option { name: "--python".to_owned() }],
        torch: Observed::seen(torch),
        deepspeed: Observed::absent(["site"]),
        ..Interpreter::default()
    };
    facts.pythons = Observed::seen(vec![python]);
    facts.pythons.value_mut().unwrap()[0].torch.value_mut().unwrap()
}

/// What torch needs in [`wheels`].
const NEEDED: &[&str] = &["libcudart.so.12", "libcublas.so.12", "libcudnn.so.9"];

/// torch 2.5 with NVIDIA's packages, those of `without` left out.
pub fn wheels(without: &[&str]) -> Snapshot {
    let mut facts = machine();
    let torch = with_torch(&mut facts, "2.5.1+cu124", "12.4", NEEDED);
    torch.requires =
        vec![("nvidia-cuda-runtime-cu12".to_owned(), "==12.4.127".to_owned()), ("nvidia-cudnn-cu12".to_owned(), "==9.1.0.70".to_owned())];
    for (folder, name) in [("cuda_runtime", "libcudart.so.12"), ("cublas", "libcublas.so.12"), ("cudnn", "libcudnn.so.9")] {
        if !without.contains(&name) {
            add(&mut facts, &format!("{SITE}/nvidia/{folder}/lib/{name}"), Source::Pip { site: SITE.into() });
        }
    }
    facts
}
