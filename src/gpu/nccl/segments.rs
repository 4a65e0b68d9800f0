//! Shared memory that ranks leave behind when they end in the middle: NCCL takes the name of a segment away only when all ranks of the
//! machine have it open, and the name is random.
#![expect(clippy::disallowed_methods, reason = "takes away what the ranks of this test have left in /dev/shm")]

use crate::host::interrupt;
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const FOLDER: &str = "/dev/shm";
/// Source: `ncclShmOpen` in NCCL's src/misc/shmutils.cc.
const PREFIX: &str = "nccl-";
/// How often the ranks are looked at: a process of CUDA has thousands of mappings.
const PERIOD: Duration = Duration::from_millis(200);
/// The number of the first namespace of processes, from which all can be seen. Source: `PROC_PID_INIT_INO` in include/linux/proc_ns.h.
const FIRST_NAMESPACE: &str = "pid:[4026531836]";

/// The segments of one test.
pub struct Segments {
    /// Those that were there before the first rank, by inode.
    before: BTreeSet<u64>,
    /// Those that a rank was seen to hold: nobody else knows them.
    held: BTreeSet<PathBuf>,
    looked: Instant,
}

impl Segments {
    /// To be made before the first rank starts.
    pub fn new() -> Self {
        Self { before: all().into_keys().collect(), held: BTreeSet::new(), looked: Instant::now() }
    }

    /// Whether it is time to look at the ranks again.
    pub fn is_due(&mut self) -> bool {
        let due = self.looked.elapsed() >= PERIOD;
        if due {
            self.looked = Instant::now();
        }
        due
    }

    /// Notes what a rank holds now.
    pub fn note(&mut self, rank: u32) {
        let maps = fs::read_to_string(format!("/proc/{rank}/maps")).unwrap_or_default();
        for path in named(&maps) {
            interrupt::file(&path);
            self.held.insert(path);
        }
    }

    /// To be called when all ranks have ended, one of them in the middle. A segment that no rank was seen to hold goes too where it is as
    /// good as certain whose it is: of this user, made since the test began, and open nowhere.
    pub fn remove(&self) {
        // Gone already where all ranks had it open.
        for path in &self.held {
            let _ = fs::remove_file(path);
        }
        let mut new = all();
        new.retain(|inode, (_, uid)| !self.before.contains(inode) && *uid == geteuid().as_raw());
        if new.is_empty() || !fs::read_link("/proc/self/ns/pid").is_ok_and(|own| own == Path::new(FIRST_NAMESPACE)) {
            return;
        }
        let Ok(open) = open_inodes() else { return };
        for (_, (path, _)) in new.iter().filter(|(inode, _)| !open.contains(inode)) {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        for path in &self.held {
            interrupt::keep(path);
        }
    }
}

/// NCCL's segments that have a name, by inode, with their owners.
fn all() -> BTreeMap<u64, (PathBuf, u32)> {
    let entries = fs::read_dir(FOLDER).into_iter().flatten().filter_map(Result::ok);
    let ours = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    ours.filter_map(|entry| Some((entry.metadata().ok()?, entry.path()))).map(|(meta, path)| (meta.ino(), (path, meta.uid()))).collect()
}

/// Segments in the text of `/proc/PID/maps` that bear NCCL's name and still have one.
fn named(maps: &str) -> impl Iterator<Item = PathBuf> {
    let start = format!("{FOLDER}/{PREFIX}");
    let paths = maps.lines().filter_map(move |line| line.get(line.find(&start)?..));
    paths.filter(|path| !path.ends_with(" (deleted)")).map(PathBuf::from)
}

/// The inodes of the shared memory that any process of this user holds, mapped or open.
fn open_inodes() -> io::Result<BTreeSet<u64>> {
    let device = fs::metadata(FOLDER)?.dev();
    let mut open = BTreeSet::new();
    for entry in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let name = entry.file_name();
        // The machine's init runs no NCCL, and may be closed to root too.
        if name == "1" || !name.as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        let of_process = inodes_of(&entry.path(), device);
        match of_process {
            Ok(inodes) => open.extend(inodes),
            // Others cannot open what belongs to this user. One that has ended meanwhile holds nothing.
            Err(_) if !is_ours(&entry.path()) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(open)
}

fn inodes_of(process: &Path, device: u64) -> io::Result<Vec<u64>> {
    let named = format!("{:02x}:{:02x}", rustix::fs::major(device), rustix::fs::minor(device));
    let mut inodes: Vec<u64> = Vec::new();
    for line in fs::read_to_string(process.join("maps"))?.lines() {
        // `ADDRESS PERMISSIONS OFFSET DEVICE INODE PATH`
        let mut words = line.split_ascii_whitespace().skip(3);
        if words.next() == Some(named.as_str()) {
            inodes.extend(words.next().and_then(|inode| inode.parse::<u64>().ok()));
        }
    }
    for descriptor in fs::read_dir(process.join("fd"))?.filter_map(Result::ok) {
        inodes.extend(fs::metadata(descriptor.path()).ok().filter(|meta| meta.dev() == device).map(|meta| meta.ino()));
    }
    Ok(inodes)
}

/// Whether a process that runs is one of this user's. A zombie has no memory and no open file.
fn is_ours(process: &Path) -> bool {
    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
    let value = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    let own = geteuid().as_raw().to_string();
    !value("State:").starts_with('Z') && value("Uid:").split_ascii_whitespace().any(|uid| uid == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_in_a_memory_map() {
        let maps = "7f0-7f1 rw-s 00000000 00:18 5    /dev/shm/nccl-AbCdEf\n7f1-7f2 rw-s 00000000 00:18 5    /dev/shm/nccl-AbCdEf\n\
                    7f2-7f3 rw-s 00000000 00:18 6    /dev/shm/nccl-gone (deleted)\n7f3-7f4 rw-s 0 00:18 7  /dev/shm/other\n";
        let found: BTreeSet<PathBuf> = named(maps).collect();
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [PathBuf::from("/dev/shm/nccl-AbCdEf")]);
    }
}
