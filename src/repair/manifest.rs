//! What an overlay is made of: the file in it that names each of its links, so that only they are ever taken away.

use crate::facts::raw::HostPath;
use crate::facts::toolkit::OVERLAY_MANIFEST;
use crate::version::CudaVersion;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};

/// Its name in the overlay.
pub const NAME: &str = OVERLAY_MANIFEST;
/// A manifest is text of some tens of KiB.
pub const CAP: u64 = 8 << 20;
const SCHEMA: u32 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    pub ds_doctor_overlay: u32,
    /// The toolkit behind it, links in its path resolved.
    pub toolkit: HostPath,
    pub release: Option<CudaVersion>,
    /// In order of their place.
    pub links: Vec<Link>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Link {
    /// Below the overlay.
    pub at: HostPath,
    /// The text of the link: a path from the root, or a name beside it.
    pub to: HostPath,
    pub why: Why,
}

/// What a link is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Why {
    /// A file of the toolkit, in the place where it is looked for.
    Toolkit,
    /// The toolkit lacks it, and a Python package of the same release has it.
    Package,
    /// The name without a version, which linkers look for.
    Name,
    /// A host compiler that nvcc accepts, where only nvcc looks.
    Compiler,
    /// The driver's libcuda in place of the toolkit's stub, for linking only.
    Driver,
    /// Another name for a folder of the overlay.
    Alias,
}

impl Manifest {
    pub fn new(toolkit: HostPath, release: Option<CudaVersion>, mut links: Vec<Link>) -> Self {
        links.sort();
        Self { ds_doctor_overlay: SCHEMA, toolkit, release, links }
    }

    /// # Errors
    /// What is wrong with it, in words: it is no manifest, of a later release, or it names something outside the overlay.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if manifest.ds_doctor_overlay > SCHEMA {
            return Err(format!("it has schema {}, and this program reads up to {SCHEMA}: update ds-doctor", manifest.ds_doctor_overlay));
        }
        match manifest.links.iter().find(|link| !stays_inside(&link.at)) {
            Some(link) => Err(format!("it names `{}`, which is not inside", link.at)),
            None => Ok(manifest),
        }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// The folders that hold links, the deepest last.
    pub fn folders(&self) -> Vec<PathBuf> {
        let above =
            |link: &Link| link.at.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned).collect::<Vec<_>>();
        self.links.iter().flat_map(above).collect::<BTreeSet<_>>().into_iter().collect()
    }

    pub fn count(&self, why: Why) -> usize {
        self.links.iter().filter(|link| link.why == why).count()
    }
}

/// Names only: no root, no `..`.
fn stays_inside(path: &Path) -> bool {
    path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn link(at: &str, to: &str) -> Link {
        Link { at: at.into(), to: to.into(), why: Why::Toolkit }
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let manifest =
            Manifest::new("/cuda".into(), Some(CudaVersion::new(13, 0)), vec![link("lib64/stubs/a", "/a"), link("bin/nvcc", "/n")]);
        assert_eq!(Manifest::parse(&manifest.bytes()).unwrap(), manifest);
        assert_eq!(manifest.folders(), ["bin", "lib64", "lib64/stubs"].map(PathBuf::from));
    }

    #[test]
    fn nothing_outside_the_overlay_is_named() {
        for at in ["/etc/passwd", "../x", "bin/../../x", ""] {
            let manifest = Manifest::new("/cuda".into(), None, vec![link(at, "/n")]);
            assert!(Manifest::parse(&manifest.bytes()).is_err(), "{at}");
        }
        assert!(Manifest::parse(b"{}").is_err());
        let later = String::from_utf8(Manifest::new("/cuda".into(), None, vec![]).bytes()).unwrap().replace("overlay\": 1", "overlay\": 2");
        assert!(Manifest::parse(later.as_bytes()).unwrap_err().contains("update"));
    }
}
