//! The machine: system, container, processor, and the folders a build writes to. Limits are read in [`super::cgroup`].

use super::{cache, cgroup, mount, place, search};
use crate::binary::elf::{Elf, summarise};
use crate::binary::scan;
use crate::facts::elf::Machine;
use crate::facts::host::{Cpu, FolderPurpose, HostFacts, OsRelease, WorkFolder};
use crate::facts::observed::Observed;
use crate::host::{Host, Kind};
use crate::version::Dotted;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

/// Where a tree cannot tell what a running machine can.
pub(super) const NOT_RUNNING: &str = "only a running machine tells";

pub fn collect(host: &dyn Host) -> HostFacts {
    let kernel = kernel(host);
    // Long on nodes with many containers, so read once.
    let mounts = mount::mounts(host).unwrap_or_default();
    HostFacts {
        os: os(host),
        wsl: is_wsl(host, &kernel),
        machine: machine(host),
        glibc: glibc(host),
        container: container(host),
        tegra: tegra(host),
        cpu: cpu(host),
        memory: cgroup::memory(host, &mounts),
        pids: cgroup::pids(host, &mounts),
        root: match host.system() {
            Some(system) => Observed::seen(system.uid() == 0),
            None => Observed::skipped(NOT_RUNNING),
        },
        booted: booted(host),
        folders: folders(host, &mounts),
        kernel,
    }
}

/// A file of `/proc`: missing in a tree it is no fault.
pub(super) fn proc_text(host: &dyn Host, path: &str) -> Result<String, Observed<()>> {
    host.read_text(Path::new(path)).map_err(|error| match (error.kind(), host.system()) {
        (io::ErrorKind::NotFound, None) => Observed::skipped(NOT_RUNNING),
        _ => Observed::failed(format!("`{path}`: {error}")),
    })
}

/// The same reason for another kind of fact.
pub(super) fn retype<T>(why: Observed<()>) -> Observed<T> {
    match why {
        Observed::Failed { why } => Observed::Failed { why },
        Observed::Skipped { why } => Observed::Skipped { why },
        Observed::Absent { looked } => Observed::Absent { looked },
        Observed::Seen { .. } => Observed::default(),
    }
}

fn os(host: &dyn Host) -> Observed<OsRelease> {
    const PLACES: [&str; 2] = ["/etc/os-release", "/usr/lib/os-release"];
    for place in PLACES {
        match host.read_text(Path::new(place)) {
            Ok(text) => return Observed::seen(os_release(&text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Observed::failed(format!("`{place}`: {error}")),
        }
    }
    Observed::absent(PLACES)
}

/// Source of the form: os-release(5), shell assignments.
fn os_release(text: &str) -> OsRelease {
    let mut found: BTreeMap<&str, String> = BTreeMap::new();
    for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
        let value = shlex::split(value).and_then(|words| words.into_iter().next()).unwrap_or_default();
        found.insert(key, value);
    }
    let mut take = |key| found.remove(key).filter(|value: &String| !value.is_empty());
    OsRelease {
        id: take("ID").unwrap_or_else(|| "linux".to_owned()),
        id_like: take("ID_LIKE").map(|like| like.split_whitespace().map(str::to_owned).collect()).unwrap_or_default(),
        version: take("VERSION_ID"),
        pretty: take("PRETTY_NAME").or_else(|| take("NAME")).unwrap_or_default(),
    }
}

fn kernel(host: &dyn Host) -> Observed<String> {
    if let Some(system) = host.system() {
        return Observed::seen(system.uname().0);
    }
    match proc_text(host, "/proc/sys/kernel/osrelease") {
        Ok(text) => Observed::seen(text.trim().to_owned()),
        Err(why) => retype(why),
    }
}

/// Microsoft's kernels name it in their release; `/dev/dxg` is the GPU as WSL 2 shows it.
fn is_wsl(host: &dyn Host, kernel: &Observed<String>) -> bool {
    let names = |text: &str| text.to_ascii_lowercase().contains("microsoft");
    kernel.value().is_some_and(|kernel| names(kernel))
        || host.read_text(Path::new("/proc/version")).is_ok_and(|text| names(&text))
        || host.exists(Path::new("/dev/dxg"))
}

/// Files of which every tree has one; each names the machine it is for and the loader. The C library is a program too.
pub(super) fn programs() -> impl Iterator<Item = &'static str> {
    ["/bin/sh", "/usr/bin/env", "/bin/busybox", "/sbin/ldconfig"].into_iter().chain(LIBC.iter().copied()).chain(["/usr/bin/python3"])
}

fn machine(host: &dyn Host) -> Observed<String> {
    if let Some(system) = host.system() {
        return Observed::seen(system.uname().1);
    }
    match tree_machine(host) {
        Some(machine) => Observed::seen(machine),
        None => Observed::absent(programs()),
    }
}

/// As `uname -m` would call it.
fn tree_machine(host: &dyn Host) -> Option<String> {
    programs().find_map(|program| {
        let file = super::open(host, Path::new(program)).ok()?;
        Some(match Elf::open(&file).ok()?.machine() {
            Machine::X86_64 => "x86_64".to_owned(),
            Machine::PPC64 => "ppc64le".to_owned(),
            other => other.to_string(),
        })
    })
}

/// Where the distributions keep the C library.
const LIBC: &[&str] = &[
    "/lib/x86_64-linux-gnu/libc.so.6",
    "/lib/aarch64-linux-gnu/libc.so.6",
    "/lib64/libc.so.6",
    "/usr/lib64/libc.so.6",
    "/usr/lib/libc.so.6",
    "/lib/libc.so.6",
    "/lib/powerpc64le-linux-gnu/libc.so.6",
];

fn glibc(host: &dyn Host) -> Observed<Dotted> {
    let Some(path) = LIBC.iter().map(Path::new).find(|path| host.is_file(path)) else { return Observed::absent(LIBC.iter().copied()) };
    let read = super::open(host, path).map_err(|e| e.to_string()).and_then(|file| {
        let elf = Elf::open(&file).map_err(|e| e.to_string())?;
        let range = scan::section(&elf, ".rodata").map_err(|e| e.to_string())?.range;
        let mut found = None;
        scan::scan(&file, range, &[b"GNU C Library"], |hit| {
            found = hit.text().and_then(banner);
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .map_err(|e| e.to_string())?;
        // Every release so far has defined a version node of its own.
        Ok(found.or_else(|| summarise(&file).ok()?.highest_definition("GLIBC")))
    });
    match read {
        Ok(Some(version)) => Observed::seen(version),
        Ok(None) => Observed::failed(format!("`{}` does not tell its release", path.display())),
        Err(why) => Observed::failed(format!("`{}`: {why}", path.display())),
    }
}

/// `GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.`
fn banner(text: &str) -> Option<Dotted> {
    let number = text.split("release version ").nth(1)?;
    let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
    number.get(..end)?.trim_end_matches('.').parse().ok()
}

fn container(host: &dyn Host) -> Option<String> {
    let set = |name: &str| host.var(name).is_some_and(|value| !value.is_empty());
    let there = |path: &str| host.link_metadata(Path::new(path)).is_ok();
    let control = host.read_text(Path::new("/proc/1/cgroup")).unwrap_or_default();
    let kind = if set("APPTAINER_CONTAINER") || set("SINGULARITY_CONTAINER") || there("/.singularity.d") {
        "apptainer"
    } else if set("KUBERNETES_SERVICE_HOST") || control.contains("kubepods") {
        "kubernetes"
    } else if there("/run/.containerenv") || control.contains("libpod") {
        "podman"
    } else if there("/.dockerenv") || control.contains("/docker") {
        "docker"
    } else if control.contains("/lxc") {
        "lxc"
    } else {
        // systemd's convention, which lxc, nspawn and podman keep.
        return host.var("container").filter(|value| !value.is_empty()).map(|value| value.to_string_lossy().into_owned());
    };
    Some(kind.to_owned())
}

fn tegra(host: &dyn Host) -> Option<String> {
    let read = |path: &str| {
        let text = host.read_text(Path::new(path)).ok()?;
        let text = text.trim_matches(|c: char| c == '\0' || c.is_whitespace());
        text.lines().next().map(str::to_owned).filter(|text| !text.is_empty())
    };
    // The release file names no board.
    let model = read("/proc/device-tree/model").filter(|model| ["Jetson", "Tegra", "NVIDIA Orin"].iter().any(|name| model.contains(name)));
    model.or_else(|| read("/etc/nv_tegra_release"))
}

/// The SIMD sets that compilers and DeepSpeed's builders ask for, by the start of their names.
const SIMD: &[&str] = &["sse", "ssse", "avx", "amx", "fma", "f16c", "neon", "asimd", "sve", "bf16", "i8mm", "altivec", "vsx"];

fn cpu(host: &dyn Host) -> Observed<Cpu> {
    const PATH: &str = "/proc/cpuinfo";
    // The first processor says it; the file of a large machine has a megabyte, and the kernel makes it up as it is read.
    let read = host.open(Path::new(PATH)).and_then(|(file, _)| {
        let mut block = vec![0; 8192];
        let n = std::os::unix::fs::FileExt::read_at(&file, &mut block, 0)?;
        block.truncate(n);
        Ok(block)
    });
    let text = match read {
        Ok(block) => String::from_utf8_lossy(&block).into_owned(),
        Err(error) => {
            return match (error.kind(), host.system()) {
                (io::ErrorKind::NotFound, None) => Observed::skipped(NOT_RUNNING),
                _ => Observed::failed(format!("`{PATH}`: {error}")),
            };
        }
    };
    let count = match host.system() {
        Some(system) => system.cpus(),
        None => {
            let whole = host.read_text(Path::new(PATH)).unwrap_or_default();
            whole.lines().filter(|line| line.starts_with("processor")).count()
        }
    };
    Observed::seen(Cpu { count, ..first_cpu(&text) })
}

fn first_cpu(text: &str) -> Cpu {
    let mut cpu = Cpu::default();
    let block = text.split("\n\n").next().unwrap_or_default();
    for (key, value) in block.lines().filter_map(|line| line.split_once(':')) {
        let value = value.trim();
        match key.trim() {
            // x86 has the first, some ARM kernels the second.
            "model name" | "Model" | "cpu" if cpu.model.is_empty() => cpu.model = value.to_owned(),
            "flags" | "Features" if cpu.flags.is_empty() => {
                let simd = value.split_whitespace().filter(|flag| SIMD.iter().any(|start| flag.starts_with(start)));
                cpu.flags = simd.map(str::to_owned).collect();
            }
            _ => {}
        }
    }
    cpu
}

fn booted(host: &dyn Host) -> Observed<i64> {
    match proc_text(host, "/proc/stat") {
        Ok(text) => match text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok()) {
            Some(time) => Observed::seen(time),
            None => Observed::failed("`/proc/stat` has no `btime`"),
        },
        Err(why) => retype(why),
    }
}

fn folders(host: &dyn Host, mounts: &[mount::Mount]) -> Vec<WorkFolder> {
    let temporary = search::variable(host, "TMPDIR");
    let mut wanted = vec![(FolderPurpose::Temporary, temporary.unwrap_or_else(|| "/tmp".into()))];
    // What is fallen back on where TMPDIR is of no use.
    if !wanted.iter().any(|(_, path)| path == Path::new("/tmp")) {
        wanted.push((FolderPurpose::Temporary, "/tmp".into()));
    }
    wanted.extend(cache::possible(host).into_iter().map(|(path, _)| (FolderPurpose::Cache, path)));
    wanted.push((FolderPurpose::SharedMemory, "/dev/shm".into()));
    wanted.into_iter().map(|(purpose, path)| work_folder(host, mounts, purpose, &path)).collect()
}

fn work_folder(host: &dyn Host, mounts: &[mount::Mount], purpose: FolderPurpose, path: &Path) -> WorkFolder {
    let nearest = place::nearest_folder(host, path);
    let real = nearest.as_ref().and_then(|folder| host.real_path(folder).ok());
    let mounted = real.as_ref().and_then(|real| mount::of(mounts, real));
    let system = host.system().zip(nearest.as_deref());
    let space = system.and_then(|(system, folder)| system.space(folder).ok());
    WorkFolder {
        purpose,
        path: path.into(),
        filesystem: mounted.map(|mount| mount.filesystem.clone()),
        options: mounted.map(|mount| mount.options.clone()).unwrap_or_default(),
        device: nearest.as_ref().and_then(|folder| host.metadata(folder).ok()).filter(|meta| meta.kind == Kind::Folder).map(|m| m.device),
        free: space.map(|space| space.free),
        size: space.map(|space| space.size),
        writable: system.map(|(system, folder)| system.may_write(folder)),
        nearest: nearest.map(Into::into),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;

    fn tree(env: &[(&str, &str)], files: &[(&str, &str)]) -> HostFacts {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let env: Environment = env.iter().map(|(k, v)| (k.into(), v.into())).collect();
        collect(&Rooted::new(dir.path(), env).unwrap())
    }

    #[test]
    fn os_release_files() {
        let read = os_release(
            "PRETTY_NAME=\"Rocky Linux 9.4 (Blue Onyx)\"\nID='rocky'\nID_LIKE=\"rhel centos fedora\"\n# x\nVERSION_ID=\"9.4\"\n",
        );
        assert_eq!((read.id.as_str(), read.version.as_deref(), read.id_like.len()), ("rocky", Some("9.4"), 3));
        assert_eq!(read.pretty, "Rocky Linux 9.4 (Blue Onyx)");
        assert_eq!(os_release("ID=\nNAME=\"unclosed\n\0").id, "linux");
    }

    #[test]
    fn glibcs_words() {
        let read = |text| banner(text).map(|version| version.text);
        assert_eq!(read("GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\n"), Some("2.36".into()));
        assert_eq!(read("GNU C Library (GNU libc) development release version 2.41.9000."), Some("2.41.9000".into()));
        assert_eq!(read("GNU C Library"), None);
    }

    #[test]
    fn signs_of_containers() {
        let kind = |env: &[(&str, &str)], files: &[(&str, &str)]| tree(env, files).container.unwrap_or_default();
        assert_eq!(kind(&[], &[(".dockerenv", "")]), "docker");
        assert_eq!(kind(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1")], &[(".dockerenv", "")]), "kubernetes");
        assert_eq!(kind(&[("APPTAINER_CONTAINER", "/x.sif")], &[("run/.containerenv", "")]), "apptainer");
        assert_eq!(kind(&[], &[("run/.containerenv", "")]), "podman");
        assert_eq!(kind(&[], &[("proc/1/cgroup", "1:name=systemd:/lxc/x\n")]), "lxc");
        assert_eq!(kind(&[("container", "systemd-nspawn")], &[]), "systemd-nspawn");
        assert_eq!(kind(&[], &[("proc/1/cgroup", "0::/init.scope\n")]), "");
    }

    #[test]
    fn wsl_and_jetson() {
        let wsl = tree(&[], &[("proc/version", "Linux version 5.15.167.4-microsoft-standard-WSL2 (root@x)\n")]);
        assert!(wsl.wsl && wsl.tegra.is_none());
        let jetson = tree(&[], &[("proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0")]);
        assert_eq!(jetson.tegra.as_deref(), Some("NVIDIA Jetson AGX Orin Developer Kit"));
        assert_eq!(tree(&[], &[("proc/device-tree/model", "Raspberry Pi 5\0")]).tegra, None);
    }

    #[test]
    fn processors() {
        let x86 = tree(
            &[],
            &[("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: fpu sme avx2 avx512f sse4_2\n\nprocessor\t: 1\n")],
        );
        assert_eq!(
            x86.cpu,
            Observed::seen(Cpu { count: 2, model: "AMD EPYC".into(), flags: ["avx2", "avx512f", "sse4_2"].map(str::to_owned).into() })
        );
        let arm = first_cpu("processor\t: 0\nFeatures\t: fp asimd sve i8mm bf16\nCPU implementer\t: 0x41\n");
        assert_eq!(arm.flags, ["asimd", "sve", "i8mm", "bf16"]);
        assert_eq!(first_cpu("\0\u{fffd}:"), Cpu::default());
    }

    #[test]
    fn files_that_are_none() {
        let facts = tree(
            &[("TMPDIR", "/none/tmp")],
            &[("etc/os-release/x", ""), ("proc/stat", "cpu 1\n"), ("lib/libc.so.6", ""), ("proc/meminfo/x", "")],
        );
        assert!(facts.os.is_failed() && facts.booted.is_failed() && facts.glibc.is_failed() && facts.memory.is_failed());
        let temporary = facts.folder(FolderPurpose::Temporary).unwrap();
        assert_eq!((&*temporary.path, temporary.nearest.as_deref()), (Path::new("/none/tmp"), Some(Path::new("/"))));
    }
}
