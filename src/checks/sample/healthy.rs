//! A healthy machine for tests: Debian 12 with a virtual environment that holds torch 2.6 and DeepSpeed 0.16.9, CUDA 12.4, 8 processors,
//! 32 GiB.

use crate::facts::cache::{CacheFacts, CacheRoot, CachedObject, CachedOp, Lock};
use crate::facts::host::{Cpu, FolderPurpose, Memory, OsRelease, Pids, WorkFolder};
use crate::facts::observed::Observed;
use crate::facts::program::{Program, ProgramKind};
use crate::facts::python::{EnvironmentKind, Interpreter, Package};
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::torch::{DeepSpeed, Torch};

pub const GIB: u64 = 1 << 30;
pub const BOOT: i64 = 1_750_000_000;
pub const INSTALLED: i64 = 1_740_000_000;
pub const CACHE: &str = "/root/.cache/torch_extensions";

pub fn healthy() -> Snapshot {
    let mut facts = Snapshot::default();
    for (name, value) in [("PATH", "/venv/bin:/usr/local/bin:/usr/bin:/bin"), ("HOME", "/root"), ("VIRTUAL_ENV", "/venv")] {
        facts.env.set(name, value);
    }
    facts.env.cwd = Some("/srv".into());
    facts.programs = vec![
        program("/venv/bin/python3", ProgramKind::Elf),
        program("/venv/bin/ninja", ProgramKind::Elf),
        program("/usr/bin/python3", ProgramKind::Elf),
    ];
    facts.pythons = Observed::seen(vec![venv(), system_python()]);
    facts.toolkits = Observed::absent(["/usr/local/cuda"]);
    facts.compilers = Observed::seen(Vec::new());
    facts.gpu.devices = Observed::absent(["no driver"]);
    facts.host.os = Observed::seen(OsRelease { id: "debian".to_owned(), version: Some("12".to_owned()), ..OsRelease::default() });
    facts.host.root = Observed::seen(true);
    facts.host.cpu = Observed::seen(Cpu { count: 8, ..Cpu::default() });
    facts.host.memory = Observed::seen(Memory { total: 32 * GIB, available: 30 * GIB, limit: None });
    facts.host.pids = Observed::seen(Pids { limit: Some(4096), current: Some(30) });
    facts.host.booted = Observed::seen(BOOT);
    facts.host.folders = vec![
        folder(FolderPurpose::Temporary, "/tmp", 1),
        folder(FolderPurpose::Cache, CACHE, 1),
        WorkFolder { size: Some(16 * GIB), ..folder(FolderPurpose::SharedMemory, "/dev/shm", 2) },
    ];
    facts.cache = Observed::seen(CacheFacts {
        roots: vec![CacheRoot {
            path: CACHE.into(),
            source: Source::UsualPlace,
            exists: true,
            writable: Observed::seen(true),
            closed: Vec::new(),
            ops: Vec::new(),
        }],
    });
    facts
}

pub fn program(path: &str, kind: ProgramKind) -> Program {
    Program { name: path.rsplit('/').next().unwrap().to_owned(), path: path.into(), real: path.into(), kind }
}

pub fn package(name: &str, version: &str) -> Package {
    Package { name: name.to_owned(), version: version.parse().unwrap(), site: "/venv/lib/python3.11/site-packages".into() }
}

fn folder(purpose: FolderPurpose, path: &str, device: u64) -> WorkFolder {
    WorkFolder {
        purpose,
        path: path.into(),
        nearest: Some(path.into()),
        filesystem: Some(if device == 2 { "tmpfs" } else { "ext4" }.to_owned()),
        options: vec!["rw".to_owned()],
        device: Some(device),
        free: Some(100 * GIB),
        size: Some(200 * GIB),
        writable: Some(true),
    }
}

fn venv() -> Interpreter {
    let site = "/venv/lib/python3.11/site-packages";
    let torch = Torch {
        path: format!("{site}/torch").into(),
        version: "2.6.0+cu124".parse().unwrap(),
        cuda: Some("12.4".parse().unwrap()),
        installed: Some(INSTALLED),
        ..Torch::default()
    };
    let deepspeed = DeepSpeed {
        path: format!("{site}/deepspeed").into(),
        version: "0.16.9".parse().unwrap(),
        built: Observed::absent(["nothing"]),
        editable: false,
        binaries: Vec::new(),
    };
    Interpreter {
        path: "/venv/bin/python3".into(),
        paths: vec!["/venv/bin/python3".into()],
        real: "/usr/bin/python3".into(),
        sources: vec![Source::variable("VIRTUAL_ENV"), Source::entry("PATH", 1)],
        version: Some("3.11.7".parse().unwrap()),
        kind: EnvironmentKind::Venv,
        prefix: "/venv".into(),
        base_prefix: "/usr".into(),
        header: Observed::seen("/usr/include/python3.11/Python.h".into()),
        packages: vec![package("ninja", "1.11.1"), package("pip", "24.0"), package("setuptools", "70.0.0"), package("wheel", "0.43.0")],
        has_distutils: Some(true),
        torch: Observed::seen(torch),
        deepspeed: Observed::seen(deepspeed),
        ..Interpreter::default()
    }
}

fn system_python() -> Interpreter {
    Interpreter {
        path: "/usr/bin/python3".into(),
        paths: vec!["/usr/bin/python3".into()],
        real: "/usr/bin/python3".into(),
        sources: vec![Source::entry("PATH", 3)],
        version: Some("3.11.7".parse().unwrap()),
        prefix: "/usr".into(),
        base_prefix: "/usr".into(),
        externally_managed: true,
        torch: Observed::absent(["/usr/lib/python3/dist-packages"]),
        deepspeed: Observed::absent(["/usr/lib/python3/dist-packages"]),
        ..Interpreter::default()
    }
}

/// The interpreter that is judged.
pub fn python(facts: &mut Snapshot) -> &mut Interpreter {
    &mut facts.pythons.value_mut().unwrap()[0]
}

pub fn torch(facts: &mut Snapshot, version: &str) {
    python(facts).torch.value_mut().unwrap().version = version.parse().unwrap();
}

pub fn root(facts: &mut Snapshot) -> &mut CacheRoot {
    &mut facts.cache.value_mut().unwrap().roots[0]
}

pub fn place(facts: &mut Snapshot, purpose: FolderPurpose) -> &mut WorkFolder {
    facts.host.folders.iter_mut().find(|folder| folder.purpose == purpose).unwrap()
}

/// An op in the cache of the torch above.
pub fn op(name: &str) -> CachedOp {
    CachedOp {
        path: format!("{CACHE}/py311_cu124/{name}").into(),
        name: name.to_owned(),
        tag: Some("py311_cu124".to_owned()),
        built: Some(INSTALLED + 100),
        torch_path: Some("/venv/lib/python3.11/site-packages/torch".into()),
        libraries: Vec::new(),
        objects: vec![CachedObject { name: format!("{name}.o"), made: INSTALLED + 90, outdated: false }],
        lock: None,
    }
}

pub fn lock(name: &str, modified: i64, in_use: Observed<bool>) -> CachedOp {
    let mut op = op(name);
    op.lock = Some(Lock { path: op.path.join("lock"), modified, in_use });
    op
}
