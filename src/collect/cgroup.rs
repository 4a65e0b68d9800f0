//! Limits on memory and processes: those of the machine and of the control groups this process lives in, version 1 and 2.

use super::host::{proc_text, retype};
use super::mount::Mount;
use crate::facts::host::{Memory, Pids};
use crate::facts::observed::Observed;
use crate::host::Host;
use std::path::{Path, PathBuf};

pub fn memory(host: &dyn Host, mounts: &[Mount]) -> Observed<Memory> {
    let text = match proc_text(host, "/proc/meminfo") {
        Ok(text) => text,
        Err(why) => return retype(why),
    };
    let bytes = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
    };
    let Some(total) = bytes("MemTotal") else { return Observed::failed("`/proc/meminfo` has no `MemTotal`") };
    // Kernels before 3.14 have no estimate.
    let available = bytes("MemAvailable").or_else(|| bytes("MemFree")).unwrap_or(0);
    let limit = lowest(host, mounts, "memory", ["memory.limit_in_bytes", "memory.max"]).map(|(limit, _)| limit);
    // Version 1 writes "no limit" as a number near 2^63.
    Observed::seen(Memory { total, available, limit: limit.filter(|limit| *limit < total.saturating_mul(64)) })
}

pub fn pids(host: &dyn Host, mounts: &[Mount]) -> Observed<Pids> {
    if let Err(why) = proc_text(host, "/proc/self/cgroup") {
        return retype(why);
    }
    let current = |folder: &Path| number(host, &folder.join("pids.current"));
    match lowest(host, mounts, "pids", ["pids.max", "pids.max"]) {
        Some((limit, folder)) => Observed::seen(Pids { limit: Some(limit), current: current(&folder) }),
        None => Observed::seen(Pids { limit: None, current: own(host, mounts, "pids").and_then(|(folder, ..)| current(&folder)) }),
    }
}

/// The lowest limit from this process's group up to the root, and the group that sets it.
fn lowest(host: &dyn Host, mounts: &[Mount], controller: &str, files: [&str; 2]) -> Option<(u64, PathBuf)> {
    let (folder, top, version) = own(host, mounts, controller)?;
    let file = files.get(version - 1)?;
    let groups = folder.ancestors().take_while(|group| group.starts_with(&top));
    groups.filter_map(|group| Some((number(host, &group.join(file))?, group.to_owned()))).min_by_key(|(limit, _)| *limit)
}

/// The folder of this process's group for a controller, the mount it is in, and the version.
fn own(host: &dyn Host, mounts: &[Mount], controller: &str) -> Option<(PathBuf, PathBuf, usize)> {
    let groups = host.read_text(Path::new("/proc/self/cgroup")).ok()?;
    let mut unified = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        if controllers.split(',').any(|name| name == controller) {
            let mounted = |m: &&Mount| m.filesystem == "cgroup" && m.options.iter().any(|option| option == controller);
            let mount = mounts.iter().rfind(mounted)?;
            return Some((inside(host, mount, path), mount.point.clone(), 1));
        }
        if controllers.is_empty() {
            unified = mounts.iter().rfind(|m| m.filesystem == "cgroup2").map(|m| (inside(host, m, path), m.point.clone(), 2));
        }
    }
    unified
}

/// Where a group's path lies below the mount. A container sees its own group as the mount's root, but may be told the whole path.
fn inside(host: &dyn Host, mount: &Mount, path: &str) -> PathBuf {
    let path = Path::new(path);
    let below = path.strip_prefix(&mount.root).or_else(|_| path.strip_prefix("/")).unwrap_or(path);
    let folder = mount.point.join(below);
    if host.is_folder(&folder) { folder } else { mount.point.clone() }
}

/// `None` for `max`.
fn number(host: &dyn Host, path: &Path) -> Option<u64> {
    host.read_text(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Rooted) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let host = Rooted::new(dir.path(), Environment::new()).unwrap();
        (dir, host)
    }

    fn mounts(host: &Rooted) -> Vec<Mount> {
        crate::collect::mount::mounts(host).unwrap_or_default()
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n");

    #[test]
    fn version_2_takes_the_lowest_of_the_hierarchy() {
        let (_dir, host) = tree(&[
            MEMINFO,
            ("proc/self/cgroup", "0::/a/b\n"),
            ("proc/self/mountinfo", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/a/memory.max", "4096\n"),
            ("sys/fs/cgroup/a/b/memory.max", "8192\n"),
            ("sys/fs/cgroup/a/pids.max", "max\n"),
            ("sys/fs/cgroup/a/b/pids.max", "100\n"),
            ("sys/fs/cgroup/a/b/pids.current", "7\n"),
        ]);
        let memory = *memory(&host, &mounts(&host)).value().unwrap();
        assert_eq!(memory, Memory { total: 16384 << 10, available: 8192 << 10, limit: Some(4096) });
        assert_eq!(pids(&host, &mounts(&host)), Observed::seen(Pids { limit: Some(100), current: Some(7) }));
    }

    #[test]
    fn version_1_in_a_container_and_without_a_limit() {
        let (_dir, host) = tree(&[
            MEMINFO,
            ("proc/self/cgroup", "8:pids:/\n4:memory,x:/docker/abc\n0::/\n"),
            (
                "proc/self/mountinfo",
                "31 20 0:27 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n\
                 32 20 0:28 / /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n33 20 0:29 / /sys/fs/cgroup/unified rw - cgroup2 c rw\n",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1048576\n"),
            ("sys/fs/cgroup/pids/x", ""),
        ]);
        assert_eq!(memory(&host, &mounts(&host)).value().unwrap().limit, Some(1 << 20));
        assert_eq!(pids(&host, &mounts(&host)), Observed::seen(Pids::default()));
        fs::write(_dir.path().join("sys/fs/cgroup/memory/memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        assert_eq!(memory(&host, &mounts(&host)).value().unwrap().limit, None);
    }

    #[test]
    fn a_tree_without_proc_is_not_asked() {
        let (_dir, host) = tree(&[("etc/x", "")]);
        assert!(matches!(memory(&host, &mounts(&host)), Observed::Skipped { .. }));
        assert!(matches!(pids(&host, &mounts(&host)), Observed::Skipped { .. }));
        let (_dir, host) = tree(&[("proc/meminfo", "\0")]);
        assert!(memory(&host, &mounts(&host)).is_failed());
    }
}
