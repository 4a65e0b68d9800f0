//! Whether somebody holds a lock in the extension cache. A wrong "nobody" makes two builds write one folder, so every doubt is an
//! answer of its own.

use super::mount::{self, Mount};
use crate::facts::cache::Lock;
use crate::facts::host::is_local;
use crate::facts::observed::Observed;
use crate::host::{Host, Kind, Meta};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The first process namespace, in which all processes are seen. Source: `PROC_PID_INIT_INO` of the kernel's include/linux/proc_ns.h.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";
/// Where looking through all processes takes longer, the answer is not worth it.
const PATIENCE: Duration = Duration::from_millis(500);

/// Fills in [`Lock::in_use`].
pub fn judge(host: &dyn Host, locks: &mut [&mut Lock]) {
    if locks.is_empty() {
        return;
    }
    let Some(system) = host.system() else {
        locks.iter_mut().for_each(|lock| lock.in_use = Observed::skipped("no processes can be seen from a file tree"));
        return;
    };
    let mounts = mount::mounts(host).unwrap_or_default();
    let sees_all = host.read_link(Path::new("/proc/self/ns/pid")).is_ok_and(|name| name == Path::new(FIRST_NAMESPACE));
    let mut asked = Vec::new();
    for lock in locks.iter_mut() {
        match doubt(host, &mounts, system.uid(), sees_all, &lock.path) {
            Some(why) => lock.in_use = Observed::skipped(why),
            None => asked.push(lock),
        }
    }
    let folders: Vec<PathBuf> = asked.iter().filter_map(|lock| host.real_path(lock.path.parent()?).ok()).collect();
    if folders.len() != asked.len() {
        return;
    }
    match holders(host, &folders) {
        Ok(held) => asked.iter_mut().zip(held).for_each(|(lock, held)| lock.in_use = Observed::seen(held)),
        Err(why) => asked.iter_mut().for_each(|lock| lock.in_use = Observed::failed(why.as_str())),
    }
}

/// Why the processes that can be seen do not settle it.
fn doubt(host: &dyn Host, mounts: &[Mount], uid: u32, sees_all: bool, lock: &Path) -> Option<String> {
    let Ok(real) = host.real_path(lock) else { return Some("it is gone by now".to_owned()) };
    let Some(mount) = mount::of(mounts, &real) else { return Some("its file system is not known".to_owned()) };
    if !is_local(&mount.filesystem) {
        return Some(format!("on `{}` another host may hold it", mount.filesystem));
    }
    if !sees_all && mount.point != Path::new("/") {
        return Some(format!("`{}` may be shared with processes outside this container", mount.point.display()));
    }
    match host.metadata(&real) {
        Ok(Meta { uid: owner, .. }) if uid != 0 && owner != uid => {
            Some(format!("it belongs to user {owner}, whose processes cannot be looked at"))
        }
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    }
}

/// For each folder whether a process works in it: has a file of it open, or it as its current folder.
fn holders(host: &dyn Host, folders: &[PathBuf]) -> Result<Vec<bool>, String> {
    let begin = Instant::now();
    let mut held = vec![false; folders.len()];
    let proc = Path::new("/proc");
    let processes = host.list(proc).map_err(|error| format!("`/proc`: {error}"))?;
    let uid = host.system().map_or(0, crate::host::System::uid);
    for entry in
        processes.iter().filter(|entry| entry.kind == Kind::Folder && entry.name.to_str().is_some_and(|name| name.parse::<u32>().is_ok()))
    {
        if begin.elapsed() > PATIENCE {
            return Err("looking through all processes takes too long".to_owned());
        }
        let process = proc.join(&entry.name);
        let mut note = |link: &Path| {
            let Ok(target) = host.read_link(link) else { return };
            for (held, folder) in held.iter_mut().zip(folders) {
                *held |= target.starts_with(folder) || is_by_another_way(host, link, &target, folder);
            }
        };
        note(&process.join("cwd"));
        let files = process.join("fd");
        match host.list(&files) {
            Ok(open) => open.iter().for_each(|file| note(&files.join(&file.name))),
            // Another user's process cannot have made this user's lock; one of this user's that hides could have.
            Err(error)
                if error.kind() == std::io::ErrorKind::PermissionDenied && host.metadata(&process).is_ok_and(|meta| meta.uid == uid) =>
            {
                return Err(format!("process {} of this user cannot be looked at", entry.name.display()));
            }
            Err(_) => {}
        }
    }
    Ok(held)
}

/// A container sees the folder under a path of its own. Only what has the right name is asked for its inode: on a dead network file
/// system that would wait forever.
fn is_by_another_way(host: &dyn Host, link: &Path, target: &Path, folder: &Path) -> bool {
    let lock = folder.join("lock");
    [folder, &lock].into_iter().any(|own| {
        let identity = |path: &Path| host.metadata(path).ok().map(|meta| (meta.device, meta.inode));
        own.file_name() == target.file_name() && identity(own).is_some_and(|own| identity(link) == Some(own))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::Live;
    use std::fs::{self, File};

    fn lock(folder: &Path) -> Lock {
        fs::create_dir_all(folder).unwrap();
        let path = folder.join("lock");
        fs::write(&path, "").unwrap();
        Lock { path: path.into(), modified: 0, in_use: Observed::default() }
    }

    #[test]
    fn an_open_lock_is_held_and_a_closed_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let (mut open, mut left) = (lock(&dir.path().join("open")), lock(&dir.path().join("left")));
        let file = File::open(&*open.path).unwrap();
        judge(&Live::new(), &mut [&mut open, &mut left]);
        drop(file);
        // In a container with its temporary folder on a volume there is no answer, which is right there.
        match (&open.in_use, &left.in_use) {
            (Observed::Seen { value: open }, Observed::Seen { value: left }) => assert_eq!((*open, *left), (true, false)),
            (Observed::Skipped { .. } | Observed::Failed { .. }, other) => assert!(!matches!(other, Observed::Seen { .. })),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_may_be_shared_is_not_judged() {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock(dir.path());
        let mount = |filesystem: &str, point: &str| {
            vec![Mount { root: "/".into(), point: point.into(), filesystem: filesystem.into(), options: Vec::new() }]
        };
        let ask = |mounts: &[Mount], uid, sees_all| doubt(&Live::new(), mounts, uid, sees_all, &lock.path);
        assert!(ask(&mount("nfs4", "/"), 0, true).unwrap().contains("nfs4"));
        assert!(ask(&mount("fuse.sshfs", "/"), 0, true).is_some());
        assert!(ask(&[], 0, true).is_some());
        assert_eq!(ask(&mount("ext4", "/"), 0, false), None);
        let point = dir.path().parent().unwrap().to_str().unwrap();
        assert!(ask(&mount("ext4", point), 0, false).unwrap().contains("container"));
        assert_eq!(ask(&mount("ext4", point), 0, true), None);
        let other = host_uid(&lock.path) + 1;
        assert!(ask(&mount("ext4", "/"), other, true).unwrap().contains("user"));
    }

    fn host_uid(path: &Path) -> u32 {
        Live::new().metadata(path).unwrap().uid
    }
}
