//! An overlay on disk, compared with its manifest. [`make`] and [`remove`] change it.

mod change;

pub use change::{Done, make, remove};

use super::manifest::{self, Link, Manifest};
use super::writer::{self, Folder};
use crate::facts::raw::HostPath;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    #[error("{0}")]
    Refused(String),
    /// The reason is part of the words and no source, which would be printed again.
    #[error("cannot {what} `{}`: {error}", path.display())]
    Io { what: &'static str, path: PathBuf, error: io::Error },
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> Trouble + '_ {
    doing("make or change", path)
}

/// What was being done to the path.
fn doing<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> Trouble + 'a {
    move |error| Trouble::Io { what, path: path.to_owned(), error }
}

fn refused<T>(why: String) -> Result<T, Trouble> {
    Err(Trouble::Refused(why))
}

/// What stands where an overlay is to be.
#[derive(Debug)]
pub enum Place {
    Absent,
    EmptyFolder,
    Overlay(Overlay),
}

/// An overlay that is there.
#[derive(Debug)]
pub struct Overlay {
    pub manifest: Manifest,
    folder: Folder,
}

/// How a thing in an overlay differs from its manifest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    Missing(HostPath),
    /// It is another link, a file, or a folder.
    Changed(HostPath),
    /// What it links to is gone.
    Dangling(Link),
    /// Nothing that the manifest names.
    Foreign(HostPath),
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing(path) => write!(f, "`{path}` is missing"),
            Self::Changed(path) => write!(f, "`{path}` is not the link that was made"),
            Self::Dangling(link) => write!(f, "`{}` links to `{}`, which is not there", link.at, link.to),
            Self::Foreign(path) => write!(f, "`{path}` is not of the overlay"),
        }
    }
}

/// # Errors
/// When something else stands there: a link, a file, a folder that is no overlay, another user's overlay.
pub fn look(dir: &Path) -> Result<Place, Trouble> {
    let folder = match Folder::open(dir) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::Absent),
        Err(error)
            if error.kind() == io::ErrorKind::NotADirectory || error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) =>
        {
            return refused(format!("`{}` is a link or a file, not the folder of an overlay", dir.display()));
        }
        Err(error) => return Err(at(dir)(error)),
    };
    let names = folder.list().map_err(at(dir))?;
    if names.is_empty() {
        return Ok(Place::EmptyFolder);
    }
    if !names.iter().any(|name| name == manifest::NAME) {
        return refused(format!("`{}` is a folder of something else: it has no `{}`", dir.display(), manifest::NAME));
    }
    if folder.own_identity().map_err(at(dir))?.owner != writer::user() {
        return refused(format!("`{}` is another user's overlay", dir.display()));
    }
    let bytes = folder.read_file(OsStr::new(manifest::NAME), manifest::CAP).map_err(at(&dir.join(manifest::NAME)))?;
    match Manifest::parse(&bytes) {
        Ok(manifest) => Ok(Place::Overlay(Overlay { manifest, folder })),
        Err(why) => refused(format!("`{}` cannot be understood: {why}", dir.join(manifest::NAME).display())),
    }
}

impl Overlay {
    /// Everything in which it differs from its manifest. A link whose target is gone is found by following it.
    ///
    /// # Errors
    /// When its folders cannot be read.
    pub fn faults(&self) -> io::Result<Vec<Fault>> {
        let mut faults = Vec::new();
        let folders = self.manifest.folders();
        let mut known: BTreeSet<PathBuf> = folders.iter().cloned().collect();
        known.insert(manifest::NAME.into());
        for link in &self.manifest.links {
            known.insert(link.at.0.clone());
            let Some((folder, name)) = self.place(&link.at) else {
                faults.push(Fault::Missing(link.at.clone()));
                continue;
            };
            match folder.read_link(name) {
                Ok(to) if to != *link.to => faults.push(Fault::Changed(link.at.clone())),
                Ok(_) if !folder.leads_somewhere(name) => faults.push(Fault::Dangling(link.clone())),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => faults.push(Fault::Missing(link.at.clone())),
                Err(_) => faults.push(Fault::Changed(link.at.clone())),
            }
        }
        for below in std::iter::once(PathBuf::new()).chain(folders) {
            let Ok(folder) = self.folder.below(&below) else { continue };
            let foreign = folder.list()?.into_iter().map(|name| below.join(name)).filter(|path| !known.contains(path));
            faults.extend(foreign.map(|path| Fault::Foreign(path.into())));
        }
        Ok(faults)
    }

    fn place<'p>(&self, path: &'p Path) -> Option<(Folder, &'p OsStr)> {
        Some((self.folder.below(path.parent()?).ok()?, path.file_name()?))
    }

    /// Takes away the links of the manifest that are still what they were, the folders this empties, and the manifest last: what is
    /// interrupted can be taken up again.
    fn clear(&self) -> io::Result<()> {
        for link in &self.manifest.links {
            let Some((folder, name)) = self.place(&link.at) else { continue };
            if folder.read_link(name).is_ok_and(|to| to == *link.to) {
                folder.remove_file(name)?;
            }
        }
        for below in self.manifest.folders().iter().rev() {
            let Some((folder, name)) = self.place(below) else { continue };
            match folder.remove_folder(name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        self.folder.remove_file(OsStr::new(manifest::NAME))
    }
}
