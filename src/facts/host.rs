//! The machine around the build: system, memory, limits, file systems.

use super::observed::Observed;
use super::raw::HostPath;
use crate::version::Dotted;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostFacts {
    #[serde(default)]
    pub os: Observed<OsRelease>,
    /// `uname -r`
    #[serde(default)]
    pub kernel: Observed<String>,
    /// `x86_64`, `aarch64`
    #[serde(default)]
    pub machine: Observed<String>,
    #[serde(default)]
    pub glibc: Observed<Dotted>,
    #[serde(default)]
    pub wsl: bool,
    /// `docker`, `podman`, `kubernetes`, `apptainer`, `lxc`: what runs this file system, where a sign of it was seen.
    #[serde(default)]
    pub container: Option<String>,
    /// The device tree's model, else the first line of `/etc/nv_tegra_release`, on Jetson.
    #[serde(default)]
    pub tegra: Option<String>,
    #[serde(default)]
    pub cpu: Observed<Cpu>,
    #[serde(default)]
    pub memory: Observed<Memory>,
    #[serde(default)]
    pub pids: Observed<Pids>,
    /// Running as uid 0.
    #[serde(default)]
    pub root: Observed<bool>,
    /// Seconds since 1970.
    #[serde(default)]
    pub booted: Observed<i64>,
    #[serde(default)]
    pub folders: Vec<WorkFolder>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OsRelease {
    /// `debian`
    pub id: String,
    /// `ubuntu`, `rhel`…: families it says it is like.
    #[serde(default)]
    pub id_like: Vec<String>,
    #[serde(default)]
    pub version: Option<String>,
    #[serde(default)]
    pub pretty: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpu {
    /// CPUs this process may use.
    pub count: usize,
    #[serde(default)]
    pub model: String,
    /// The SIMD flags of the first CPU: avx2, avx512f, asimd, sve…
    #[serde(default)]
    pub flags: Vec<String>,
}

/// Bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    pub total: u64,
    pub available: u64,
    /// The cgroup's limit, lowest of the hierarchy.
    #[serde(default)]
    pub limit: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pids {
    /// The cgroup's limit on processes.
    #[serde(default)]
    pub limit: Option<u64>,
    #[serde(default)]
    pub current: Option<u64>,
}

/// A folder that a build or a run writes to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WorkFolder {
    pub purpose: FolderPurpose,
    pub path: HostPath,
    /// The nearest folder that exists.
    pub nearest: Option<HostPath>,
    /// File system type: `ext4`, `nfs4`, `overlay`, `tmpfs`.
    #[serde(default)]
    pub filesystem: Option<String>,
    #[serde(default)]
    pub options: Vec<String>,
    /// Device number, so that two folders on one file system can be told.
    #[serde(default)]
    pub device: Option<u64>,
    /// Bytes free for this user, and in all.
    #[serde(default)]
    pub free: Option<u64>,
    #[serde(default)]
    pub size: Option<u64>,
    #[serde(default)]
    pub writable: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FolderPurpose {
    /// TMPDIR or /tmp
    Temporary,
    /// The extension cache
    Cache,
    /// /dev/shm
    SharedMemory,
}

/// Kept on this machine alone: what other hosts do is never seen there. Anything else, FUSE included, may be shared.
pub fn is_local(filesystem: &str) -> bool {
    const LOCAL: &[&str] =
        &["bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "overlay", "ramfs", "reiserfs", "rootfs", "tmpfs", "xfs", "zfs"];
    LOCAL.contains(&filesystem)
}

/// Meant for several hosts at once.
pub fn is_network(filesystem: &str) -> bool {
    const NETWORK: &[&str] = &[
        "afs",
        "beegfs",
        "beegfs_nodev",
        "ceph",
        "cifs",
        "fhgfs",
        "fuse.ceph-fuse",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.juicefs",
        "fuse.s3fs",
        "fuse.sshfs",
        "gfs2",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "ocfs2",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "wekafs",
    ];
    NETWORK.contains(&filesystem)
}

impl FolderPurpose {
    /// The variable that moves it.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Temporary => "TMPDIR",
            Self::Cache => "TORCH_EXTENSIONS_DIR",
            Self::SharedMemory => "",
        }
    }
}

impl WorkFolder {
    pub fn has_option(&self, option: &str) -> bool {
        self.options.iter().any(|own| own == option)
    }

    /// Whether the folder itself is there; else `nearest` is one above it.
    pub fn exists(&self) -> bool {
        self.nearest.as_ref() == Some(&self.path)
    }
}

impl HostFacts {
    pub fn folder(&self, purpose: FolderPurpose) -> Option<&WorkFolder> {
        self.folders.iter().find(|folder| folder.purpose == purpose)
    }
}
