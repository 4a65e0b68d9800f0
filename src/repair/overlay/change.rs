//! An overlay made beside its place and moved there in one step, and taken away link by link.

use super::super::manifest::{self, Manifest};
use super::super::writer::{self, Folder};
use super::{Fault, Overlay, Place, Trouble, at, look, refused};
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

/// What [`make`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    Made,
    /// An overlay was there, and it is another now.
    Renewed,
    Unchanged,
}

/// Makes the overlay what the manifest says. Whatever goes wrong before the last step leaves what was there.
///
/// # Errors
/// When something else stands there, somebody has changed the overlay that does, or the disk says no.
pub fn make(dir: &Path, manifest: &Manifest) -> Result<Done, Trouble> {
    let old = look(dir)?;
    if let Place::Overlay(overlay) = &old {
        let faults = overlay.faults().map_err(at(dir))?;
        if let Some(fault) = faults.iter().find(|fault| matches!(fault, Fault::Foreign(_) | Fault::Changed(_))) {
            return refused(format!("in `{}`, {fault}: move it away first", dir.display()));
        }
        if overlay.manifest == *manifest && faults.is_empty() {
            sweep(dir)?;
            return Ok(Done::Unchanged);
        }
    }
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return refused(format!("`{}` cannot be an overlay", dir.display()));
    };
    writer::make_folders(parent).map_err(at(parent))?;
    // The folder that the path leads to by now, whatever becomes of the path.
    let above = Folder::open(&parent.join(".")).map_err(at(parent))?;
    let beside = beside(name);
    let new_path = parent.join(&beside);
    // The folder beside is no name that anybody has typed.
    let new = scratch(&above, &beside, &new_path).map_err(|trouble| match trouble {
        Trouble::Io { error, .. } => Trouble::Io { what: "make", path: dir.to_owned(), error },
        refused => refused,
    })?;
    let built = fill(&new, manifest).and_then(|()| put_in_place(&above, &beside, name, &old));
    if let Err(error) = built {
        let half = Overlay { manifest: manifest.clone(), folder: new };
        let _ = half.clear().and_then(|()| above.remove_folder(&beside));
        return Err(at(&new_path)(error));
    }
    Ok(match old {
        Place::Overlay(overlay) => {
            overlay.clear().and_then(|()| above.remove_folder(&beside)).map_err(at(&new_path))?;
            Done::Renewed
        }
        Place::Absent | Place::EmptyFolder => Done::Made,
    })
}

/// Takes away what an interrupted run left beside an overlay that stays.
fn sweep(dir: &Path) -> Result<(), Trouble> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
    let above = Folder::open(&parent.join(".")).map_err(at(parent))?;
    let beside = beside(name);
    if above.identity(&beside).is_err() {
        return Ok(());
    }
    let path = parent.join(&beside);
    scratch(&above, &beside, &path).and_then(|_held| above.remove_folder(&beside).map_err(at(&path)))
}

/// `.overlay.ds-doctor-new`
fn beside(name: &OsStr) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(".ds-doctor-new");
    beside
}

/// An empty folder to build in, held against other doctors; what an interrupted one left in it is taken away.
fn scratch(above: &Folder, name: &OsStr, path: &Path) -> Result<Folder, Trouble> {
    let new = match above.make_folder(name) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => above.child(name).map_err(at(path))?,
        other => other.map_err(at(path))?,
    };
    if !new.lock() {
        return refused(format!("another ds-doctor is at work in `{}`", path.display()));
    }
    match look(path)? {
        Place::Overlay(left) => left.clear().map_err(at(path))?,
        Place::Absent | Place::EmptyFolder => {}
    }
    Ok(new)
}

fn fill(new: &Folder, manifest: &Manifest) -> io::Result<()> {
    new.make_file(OsStr::new(manifest::NAME), &manifest.bytes())?;
    for link in &manifest.links {
        if let (Some(parent), Some(name)) = (link.at.parent(), link.at.file_name()) {
            new.make_below(parent)?.make_link(name, &link.to)?;
        }
    }
    Ok(())
}

fn put_in_place(above: &Folder, new: &OsStr, name: &OsStr, old: &Place) -> io::Result<()> {
    match old {
        Place::Absent => above.rename(new, above, name),
        Place::EmptyFolder => {
            above.remove_folder(name)?;
            above.rename(new, above, name)
        }
        Place::Overlay(_) if above.exchange(new, name)? => Ok(()),
        Place::Overlay(overlay) => {
            // Without an exchange there is a moment without overlay, never one with half of it.
            overlay.clear()?;
            above.remove_folder(name)?;
            above.rename(new, above, name)
        }
    }
}

/// Takes an overlay away. Says how many links it had.
///
/// # Errors
/// When it is no overlay, holds something that is not of it, or cannot be changed.
pub fn remove(dir: &Path) -> Result<usize, Trouble> {
    let overlay = match look(dir)? {
        Place::Overlay(overlay) => overlay,
        Place::EmptyFolder => return refused(format!("`{}` is an empty folder, not an overlay", dir.display())),
        Place::Absent => return refused(format!("there is no `{}`", dir.display())),
    };
    let faults = overlay.faults().map_err(at(dir))?;
    if let Some(fault) = faults.iter().find(|fault| matches!(fault, Fault::Foreign(_) | Fault::Changed(_))) {
        return refused(format!("in `{}`, {fault}, and removing takes away only what was made: move it away first", dir.display()));
    }
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return refused(format!("`{}` cannot be an overlay", dir.display()));
    };
    let above = Folder::open(&parent.join(".")).map_err(at(parent))?;
    let same = above.identity(name).map_err(at(dir))?.inode == overlay.folder.own_identity().map_err(at(dir))?.inode;
    if !same {
        return refused(format!("`{}` has changed meanwhile", dir.display()));
    }
    sweep(dir)?;
    overlay.clear().and_then(|()| above.remove_folder(name)).map_err(at(dir))?;
    Ok(overlay.manifest.links.len())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::super::super::manifest::{Link, Why};
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    struct Bench {
        dir: tempfile::TempDir,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for file in ["cuda/bin/nvcc", "cuda/lib/libcudart.so.13"] {
                let path = dir.path().join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, "x").unwrap();
            }
            Self { dir }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn manifest(&self, more: &[(&str, &str)]) -> Manifest {
            let links = [("bin/nvcc", "cuda/bin/nvcc"), ("lib64/libcudart.so.13", "cuda/lib/libcudart.so.13")];
            let links = links.iter().chain(more).map(|(at, to)| Link { at: (*at).into(), to: self.at(to).into(), why: Why::Toolkit });
            Manifest::new(self.at("cuda").into(), None, links.collect())
        }

        fn beside(&self) -> Vec<String> {
            let mut names: Vec<String> =
                fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }
    }

    fn why(trouble: Trouble) -> String {
        trouble.to_string()
    }

    #[test]
    fn made_renewed_and_removed() {
        let bench = Bench::new();
        let dir = bench.at("o");
        assert_eq!(make(&dir, &bench.manifest(&[])).unwrap(), Done::Made);
        let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::symlink_metadata(path).unwrap());
        let before = inode(&dir);
        assert_eq!(make(&dir, &bench.manifest(&[])).unwrap(), Done::Unchanged);
        assert_eq!(inode(&dir), before);
        assert_eq!(fs::read_link(dir.join("bin/nvcc")).unwrap(), bench.at("cuda/bin/nvcc"));
        let more = bench.manifest(&[("bin/ptxas", "cuda/bin/nvcc")]);
        assert_eq!(make(&dir, &more).unwrap(), Done::Renewed);
        assert!(dir.join("bin/ptxas").exists());
        assert_eq!(bench.beside(), ["cuda", "o"]);
        assert_eq!(remove(&dir).unwrap(), 3);
        assert_eq!(bench.beside(), ["cuda"]);
        assert!(bench.at("cuda/bin/nvcc").exists());
        assert!(why(remove(&dir).unwrap_err()).contains("there is no"));
    }

    #[test]
    fn what_is_no_overlay_is_left_alone() {
        let bench = Bench::new();
        let manifest = bench.manifest(&[]);
        fs::write(bench.at("file"), "x").unwrap();
        symlink(bench.at("cuda"), bench.at("link")).unwrap();
        for name in ["cuda", "file", "link"] {
            assert!(make(&bench.at(name), &manifest).is_err(), "{name}");
            assert!(remove(&bench.at(name)).is_err(), "{name}");
        }
        // A link to an overlay is no overlay either.
        make(&bench.at("o"), &manifest).unwrap();
        symlink(bench.at("o"), bench.at("alias")).unwrap();
        assert!(why(remove(&bench.at("alias")).unwrap_err()).contains("a link or a file"));
        assert!(bench.at("cuda/bin/nvcc").exists() && bench.at("o/bin/nvcc").exists());
        fs::create_dir(bench.at("empty")).unwrap();
        assert!(remove(&bench.at("empty")).is_err());
        assert_eq!(make(&bench.at("empty"), &manifest).unwrap(), Done::Made);
    }

    #[test]
    fn what_somebody_put_in_is_not_lost() {
        let bench = Bench::new();
        let dir = bench.at("o");
        make(&dir, &bench.manifest(&[])).unwrap();
        fs::write(dir.join("lib64/mine.so"), "x").unwrap();
        assert!(why(remove(&dir).unwrap_err()).contains("lib64/mine.so"));
        assert!(make(&dir, &bench.manifest(&[("bin/a", "cuda/bin/nvcc")])).is_err());
        fs::remove_file(dir.join("lib64/mine.so")).unwrap();
        // A folder of the overlay that is a link by now leads out of it.
        fs::rename(dir.join("bin"), bench.at("kept")).unwrap();
        symlink(bench.at("kept"), dir.join("bin")).unwrap();
        assert!(remove(&dir).is_err());
        assert!(bench.at("kept/nvcc").is_symlink());
        assert_eq!(bench.beside(), ["cuda", "kept", "o"]);
    }

    #[test]
    fn links_that_went_missing_or_dangle_are_faults_and_mended() {
        let bench = Bench::new();
        let dir = bench.at("o");
        let manifest = bench.manifest(&[("bin/gone", "cuda/gone")]);
        make(&dir, &manifest).unwrap();
        fs::remove_file(dir.join("bin/nvcc")).unwrap();
        let Place::Overlay(overlay) = look(&dir).unwrap() else { unreachable!() };
        let faults: Vec<String> = overlay.faults().unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("`bin/gone` links to") && faults[1] == "`bin/nvcc` is missing", "{faults:?}");
        assert_eq!(make(&dir, &bench.manifest(&[])).unwrap(), Done::Renewed);
        assert!(dir.join("bin/nvcc").exists());
    }

    #[test]
    fn what_an_interrupted_run_left_is_taken_away() {
        let bench = Bench::new();
        let left = bench.at(".o.ds-doctor-new");
        make(&left, &bench.manifest(&[("x", "cuda")])).unwrap();
        fs::remove_file(left.join("bin/nvcc")).unwrap();
        assert_eq!(make(&bench.at("o"), &bench.manifest(&[])).unwrap(), Done::Made);
        assert_eq!(bench.beside(), ["cuda", "o"]);
        // Also where the overlay itself is right already, and where it goes.
        make(&left, &bench.manifest(&[])).unwrap();
        assert_eq!(make(&bench.at("o"), &bench.manifest(&[])).unwrap(), Done::Unchanged);
        assert_eq!(bench.beside(), ["cuda", "o"]);
        // Something of somebody else's under that name stays.
        fs::create_dir(&left).unwrap();
        fs::write(left.join("theirs"), "x").unwrap();
        assert!(make(&bench.at("o"), &bench.manifest(&[("x", "cuda")])).is_err());
        assert!(left.join("theirs").exists() && bench.at("o/bin/nvcc").exists());
    }

    #[test]
    fn two_at_once_do_not_mix() {
        let bench = Bench::new();
        let held = bench.at(".o.ds-doctor-new");
        fs::create_dir(&held).unwrap();
        let other = Folder::open(&held).unwrap();
        assert!(other.lock());
        assert!(why(make(&bench.at("o"), &bench.manifest(&[])).unwrap_err()).contains("at work"));
        drop(other);
        assert_eq!(make(&bench.at("o"), &bench.manifest(&[])).unwrap(), Done::Made);
    }
}
