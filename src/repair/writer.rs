//! The one writer. A folder is opened once, links in its own name not followed, and everything in it is reached from that handle: what
//! another process does to the path meanwhile leads nowhere else.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags};
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Component, Path, PathBuf};

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER_MODE: Mode = Mode::from_raw_mode(0o755);

/// An open folder.
#[derive(Debug)]
pub struct Folder(OwnedFd);

/// What stands at a name, not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    pub device: u64,
    pub inode: u64,
    pub owner: u32,
    /// Seconds since 1970.
    pub modified: i64,
    pub is: Is,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Is {
    Folder,
    Link,
    File,
    Other,
}

impl Folder {
    /// # Errors
    /// As the system says; `NotADirectory` for a link too.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(CWD, path, FOLDER, Mode::empty())?))
    }

    /// A folder of this one.
    ///
    /// # Errors
    /// As [`Folder::open`].
    pub fn child(&self, name: &OsStr) -> io::Result<Self> {
        Ok(Self(rustix::fs::openat(&self.0, name, FOLDER, Mode::empty())?))
    }

    /// A folder any number of levels below; no level may be a link.
    ///
    /// # Errors
    /// As [`Folder::open`]; `InvalidInput` for a path that leaves the folder.
    pub fn below(&self, path: &Path) -> io::Result<Self> {
        let mut at = Self(self.0.try_clone()?);
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            at = at.child(name)?;
        }
        Ok(at)
    }

    /// # Errors
    /// As the system says: `AlreadyExists`.
    pub fn make_folder(&self, name: &OsStr) -> io::Result<Self> {
        rustix::fs::mkdirat(&self.0, name, FOLDER_MODE)?;
        self.child(name)
    }

    /// The folders of a path below, made where they are not there.
    ///
    /// # Errors
    /// As [`Folder::below`] and [`Folder::make_folder`].
    pub fn make_below(&self, path: &Path) -> io::Result<Self> {
        let mut at = Self(self.0.try_clone()?);
        for part in path.components() {
            let Component::Normal(name) = part else { return Err(io::ErrorKind::InvalidInput.into()) };
            at = match at.make_folder(name) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => at.child(name)?,
                other => other?,
            };
        }
        Ok(at)
    }

    /// # Errors
    /// As the system says: `AlreadyExists`.
    pub fn make_link(&self, name: &OsStr, to: &Path) -> io::Result<()> {
        Ok(rustix::fs::symlinkat(to, &self.0, name)?)
    }

    /// # Errors
    /// As the system says; `InvalidInput` for what is no link.
    pub fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        let text = rustix::fs::readlinkat(&self.0, name, Vec::new())?;
        Ok(PathBuf::from(OsString::from_vec(text.into_bytes())))
    }

    /// A new file, written to the disk before this returns.
    ///
    /// # Errors
    /// As the system says: `AlreadyExists`.
    pub fn make_file(&self, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = std::fs::File::from(rustix::fs::openat(&self.0, name, flags, Mode::from_raw_mode(0o644))?);
        file.write_all(bytes)?;
        file.sync_all()
    }

    /// A regular file that is no link, up to `cap` bytes.
    ///
    /// # Errors
    /// As the system says; `InvalidData` for another kind of file or a longer one.
    pub fn read_file(&self, name: &OsStr, cap: u64) -> io::Result<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = std::fs::File::from(rustix::fs::openat(&self.0, name, flags, Mode::empty())?);
        let meta = file.metadata()?;
        if !meta.is_file() || meta.len() > cap {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a regular file of that size"));
        }
        let mut bytes = Vec::new();
        file.take(cap).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// # Errors
    /// As the system says: `NotFound`.
    pub fn identity(&self, name: &OsStr) -> io::Result<Identity> {
        Ok(identity(&rustix::fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW)?))
    }

    /// Whether a link of this name leads to something that is there.
    pub fn leads_somewhere(&self, name: &OsStr) -> bool {
        rustix::fs::statat(&self.0, name, AtFlags::empty()).is_ok()
    }

    /// Of the folder itself.
    ///
    /// # Errors
    /// As the system says.
    pub fn own_identity(&self) -> io::Result<Identity> {
        Ok(identity(&rustix::fs::fstat(&self.0)?))
    }

    /// Names, sorted.
    ///
    /// # Errors
    /// As the system says.
    pub fn list(&self) -> io::Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.0)? {
            let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// # Errors
    /// As the system says.
    pub fn remove_file(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::empty())?)
    }

    /// An empty folder.
    ///
    /// # Errors
    /// As the system says: `DirectoryNotEmpty`.
    pub fn remove_folder(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR)?)
    }

    /// To another name, in this folder or another, that must be free.
    ///
    /// # Errors
    /// As the system says: `AlreadyExists`, `CrossesDevices`.
    pub fn rename(&self, name: &OsStr, to: &Self, new: &OsStr) -> io::Result<()> {
        match rustix::fs::renameat_with(&self.0, name, &to.0, new, RenameFlags::NOREPLACE) {
            // Some file systems know no flags.
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) if to.identity(new).is_err() => {
                Ok(rustix::fs::renameat(&self.0, name, &to.0, new)?)
            }
            other => Ok(other?),
        }
    }

    /// Two names change places in one step. `Ok(false)` where the file system cannot do that.
    ///
    /// # Errors
    /// As the system says.
    pub fn exchange(&self, one: &OsStr, other: &OsStr) -> io::Result<bool> {
        match rustix::fs::renameat_with(&self.0, one, &self.0, other, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Held until the folder is closed; false where another process holds it. NFS locks no folders, and there nothing is held.
    pub fn lock(&self) -> bool {
        rustix::fs::flock(&self.0, rustix::fs::FlockOperation::NonBlockingLockExclusive) != Err(rustix::io::Errno::WOULDBLOCK)
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn identity(stat: &rustix::fs::Stat) -> Identity {
    let is = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Is::Folder,
        FileType::Symlink => Is::Link,
        FileType::RegularFile => Is::File,
        _ => Is::Other,
    };
    Identity { device: stat.st_dev, inode: stat.st_ino, owner: stat.st_uid, modified: stat.st_mtime, is }
}

/// The folder and every one above it that is not there, as `mkdir -p` does.
///
/// # Errors
/// As the system says.
#[expect(clippy::disallowed_methods, reason = "the writer")]
pub fn make_folders(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// The user this process acts for.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}
