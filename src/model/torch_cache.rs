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
use crate::knowledge::Knowledge;
use crate::knowledge::schema::torch::TorchTrait;
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
pub fn folder<'a>(facts: &'a Snapshot, know: &Knowledge, python: &Interpreter, torch: &Torch) -> Option<CacheFolder<'a>> {
    let (root, source, tag) = match facts.env.get("TORCH_EXTENSIONS_DIR") {
        Some(value) => (Path::new(value).to_owned(), Source::variable("TORCH_EXTENSIONS_DIR"), None),
        None => {
            let (base, source) = match facts.env.get("XDG_CACHE_HOME") {
                Some(value) => (Path::new(value).to_owned(), Source::variable("XDG_CACHE_HOME")),
                None => (facts.env.path("HOME")?.join(".cache"), Source::variable("HOME")),
            };
            (base.join("torch_extensions"), source, Some(tag(know, python, torch)?))
        }
    };
    let root = HostPath(search::absolute(facts, &root)?);
    let known = facts.cache.value().and_then(|cache| cache.roots.iter().find(|known| known.path == root));
    Some(CacheFolder { root, source, tag, facts: known })
}

/// `py311_cu130`: Python's version, its ABI letters from torch 2.6 on, and torch's CUDA (`cpu` without). ROCm has a
/// tag of its own from torch 2.11 on, made of numbers that are not collected: `None`.
pub fn tag(know: &Knowledge, python: &Interpreter, torch: &Torch) -> Option<String> {
    let version = python.version.as_ref()?;
    let abi = if python.free_threaded && know.torch_does(TorchTrait::CacheNamesAbiFlags, &torch.version) { "t" } else { "" };
    let device = match (torch.cuda, &torch.hip) {
        (Some(cuda), _) => cuda.tag(),
        (None, Some(_)) if know.torch_does(TorchTrait::CacheNamesRocm, &torch.version) => return None,
        _ => "cpu".to_owned(),
    };
    Some(format!("py{}{}{abi}_{device}", version.major(), version.minor()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn python(version: &str, free_threaded: bool) -> Interpreter {
        let text = format!(
            r#"{{"path": "/p", "real": "/p", "sources": [], "version": "{version}", "free_threaded": {free_threaded}, "kind": "system",
                "prefix": "/", "base_prefix": "/"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn torch(version: &str, cuda: &str) -> Torch {
        serde_json::from_str(&format!(r#"{{"path": "/site/torch", "version": "{version}", "cuda": {cuda}}}"#)).unwrap()
    }

    #[test]
    fn tags() {
        assert_eq!(tag(&Knowledge::embedded(), &python("3.11.7", false), &torch("2.11.0+cu130", "\"13.0\"")).unwrap(), "py311_cu130");
        assert_eq!(tag(&Knowledge::embedded(), &python("3.13.0", true), &torch("2.6.0", "\"12.4\"")).unwrap(), "py313t_cu124");
        assert_eq!(tag(&Knowledge::embedded(), &python("3.13.0", true), &torch("2.5.1", "null")).unwrap(), "py313_cpu");
    }

    #[test]
    fn roots() {
        let mut facts = Snapshot::default();
        facts.env.cwd = Some("/here".into());
        let (python, torch) = (python("3.11", false), torch("2.6.0", "\"12.4\""));
        assert!(folder(&facts, &Knowledge::embedded(), &python, &torch).is_none());
        let mut of = |name: &str, value: &str| {
            facts.env.set(name, value);
            let folder = folder(&facts, &Knowledge::embedded(), &python, &torch).unwrap();
            (folder.op("fused_adam").to_string(), folder.source.to_string())
        };
        let is = |path: &str, source: &str| (path.to_owned(), source.to_owned());
        assert_eq!(of("HOME", "/root"), is("/root/.cache/torch_extensions/py311_cu124/fused_adam", "HOME"));
        assert_eq!(of("XDG_CACHE_HOME", ""), is("/here/torch_extensions/py311_cu124/fused_adam", "XDG_CACHE_HOME"));
        assert_eq!(of("XDG_CACHE_HOME", "/x"), is("/x/torch_extensions/py311_cu124/fused_adam", "XDG_CACHE_HOME"));
        assert_eq!(of("TORCH_EXTENSIONS_DIR", "/e"), is("/e/fused_adam", "TORCH_EXTENSIONS_DIR"));
        assert_eq!(of("TORCH_EXTENSIONS_DIR", ""), is("/here/fused_adam", "TORCH_EXTENSIONS_DIR"));
    }
}
