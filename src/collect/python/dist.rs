//! Installed packages by the names of their metadata folders.

use super::site::Site;
use crate::binary::read::read_up_to;
use crate::facts::python::Package;
use crate::host::Host;
use std::path::{Path, PathBuf};

/// One installed package and where its metadata lies.
#[derive(Debug, Clone)]
pub struct Dist {
    pub package: Package,
    /// `…/torch-2.6.0.dist-info`
    pub metadata: PathBuf,
}

/// Those whose normalised name is `wanted`.
pub fn list(host: &dyn Host, site: &Site, wanted: impl Fn(&str) -> bool) -> Vec<Dist> {
    let mut found = Vec::new();
    for folder in &site.folders {
        for entry in &folder.entries {
            let Some(name) = entry.name.to_str() else { continue };
            let Some(stem) = name.strip_suffix(".dist-info").or_else(|| name.strip_suffix(".egg-info")) else { continue };
            // pip renames a package to `~ame` while it replaces it; what a crash leaves is never imported.
            if stem.starts_with('~') {
                continue;
            }
            let metadata = folder.path.join(name);
            let (name, rest) = stem.split_once('-').map_or((stem, None), |(name, rest)| (name, Some(rest)));
            let name = normalise(name);
            if !wanted(&name) {
                continue;
            }
            let version = match rest {
                Some(rest) => rest.split('-').next().map(str::to_owned),
                // `python setup.py develop` leaves `deepspeed.egg-info` in the source folder.
                None => header(host, &metadata, "Version"),
            };
            let Some(version) = version.and_then(|version| version.parse().ok()) else { continue };
            found.push(Dist { package: Package { name, version, site: folder.path.clone().into() }, metadata });
        }
    }
    found
}

/// The value of a header in the package's METADATA or PKG-INFO.
fn header(host: &dyn Host, metadata: &Path, name: &str) -> Option<String> {
    headers(host, metadata).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// The headers before the description. Those of torch with its requirements take 2 KiB, the description ten times that.
pub fn headers(host: &dyn Host, metadata: &Path) -> Vec<(String, String)> {
    const ENOUGH: u64 = 64 << 10;
    let read = |name: &str| {
        let file = crate::collect::open(host, &metadata.join(name)).ok()?;
        read_up_to(&file, 0, ENOUGH).ok()
    };
    let Some(bytes) = read("METADATA").or_else(|| read("PKG-INFO")) else { return Vec::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines = text.lines().take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_once(": ")).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// Source: PEP 503.
pub fn normalise(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '-' | '_' | '.' if out.ends_with('-') => {}
            '-' | '_' | '.' => out.push('-'),
            c => out.extend(c.to_lowercase()),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_normalised() {
        for (from, to) in [("Nvidia_CUDA.Runtime", "nvidia-cuda-runtime"), ("a-_.b", "a-b"), ("torch", "torch")] {
            assert_eq!(normalise(from), to);
        }
    }
}
