//! Which folder torch's JIT builds in.
//!
//! Source: `_get_build_directory` and `get_default_build_root` of torch/utils/cpp_extension.py.

use super::search;
use crate::facts::cache::CacheRoot;
use crate::facts::python::Interpreter;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::torch::Torch;
use std::path::Path;

/// The folder under which this torch and this Python build ops.
#[derive(Debug, Clone, PartialEq)]
pub struct CacheFolder<'a> {
    /// Links in it are not resolved here (torch resolves those of its default root).
    pub root: HostPath,
    /// TORCH_EXTENSIONS_DIR, XDG_CACHE_HOME or HOME.
    pub source: Source,
    /// `py311_cu130`; `None` where TORCH_EXTENSIONS_DIR is set, which adds none, so that several Pythons and torches share it.
    pub tag: Option<String>,
    /// The collected facts of the root.
    pub facts: Option<&'a CacheRoot>,
}

impl CacheFolder<'_> {
    /// Where an op of this name lies.
    pub fn op(&self, name: &str) -> HostPath {
        match &self.tag {
            Some(tag) => self.root.join(tag).join(name),
            None => self.root.join(name),
        }
    }
}

/// `None` where the home folder is not known, or a relative value is met and the current folder is not known.
pub fn folder<'a>(facts: &'a Snapshot, python: &Interpreter, torch: &Torch) -> Option<CacheFolder<'a>> {
    let (root, source, tag) = match facts.env.get("TORCH_EXTENSIONS_DIR") {
        Some(value) => (Path::new(value).to_owned(), Source::variable("TORCH_EXTENSIONS_DIR"), None),
        None => {
            let (base, source) = match facts.env.get("XDG_CACHE_HOME") {
                Some(value) => (Path::new(value).to_owned(), Source::variable("XDG_CACHE_HOME")),
                None => (facts.env.path("HOME")?.join(".cache"), Source::variable("HOME")),
            };
            (base.join("torch_extensions"), source, Some(tag(python, torch)?))
        }
    };
    let root = HostPath(search::absolute(facts, &root)?);
    let known = facts.cache.value().and_then(|cache| cache.roots.iter().find(|known| known.path == root));
    Some(CacheFolder { root, source, tag, facts: known })
}

/// `py311_cu130`: Python's version, its ABI letters from torch 2.6 on, and torch's CUDA (`cpu` without; ROCm has a tag of its own from
/// torch 2.11 on, which needs no more than the version's first two numbers).
pub fn tag(python: &Interpreter, torch: &Torch) -> Option<String> {
    let version = python.version.as_ref()?;
    let abi = if python.free_threaded && torch.version.at_least(&[2, 6]) { "t" } else { "" };
    let device = match (torch.cuda, &torch.hip) {
        (Some(cuda), _) => cuda.tag(),
        (None, Some(hip)) if torch.version.at_least(&[2, 11]) => format!("rocm{}", hip.replace('.', "")),
        _ => "cpu".to_owned(),
    };
    Some(format!("py{}{}{abi}_{device}", version.major(), version.minor()))
}
