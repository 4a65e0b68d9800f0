//! torch's CUDA_HOME: which folder `torch.utils.cpp_extension` takes for the toolkit, and what it and DeepSpeed derive from it.
//!
//! Source of the rules: `_find_cuda_home`, `include_paths` and `library_paths` of torch 1.13 to 2.15; `installed_cuda_version` and the
//! builders of DeepSpeed 0.9 to 0.19.

use super::search;
use crate::facts::env::PlaceState;
use crate::facts::raw::{HostPath, Raw};
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::toolkit::Toolkit;
use crate::facts::torch::Torch;
use crate::knowledge::Knowledge;
use crate::knowledge::schema::torch::TorchTrait;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The value of `torch.utils.cpp_extension.CUDA_HOME` and how it comes about.
#[derive(Debug, Clone, PartialEq)]
pub struct CudaHome<'a> {
    /// What the variable holds. It need not exist, and it can be empty (which torch takes for a folder: the current one).
    pub value: Option<Raw>,
    pub by: FoundBy,
    /// The toolkit at that folder, as collected.
    pub toolkit: Option<&'a Toolkit>,
    /// Why torch answers None although a toolkit may be found: `value` is None then, and `by` and `toolkit` tell what the search met.
    pub gate: Option<Gate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FoundBy {
    /// The variable CUDA_HOME.
    CudaHome,
    /// The variable CUDA_PATH.
    CudaPath,
    /// `nvcc` on PATH.
    PathNvcc {
        nvcc: HostPath,
        entry: Option<usize>,
    },
    /// `/usr/local/cuda` exists.
    UsrLocalCuda,
    Nothing,
}

/// Why this torch does not look for CUDA at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// torch 2.2 and later: built with neither CUDA nor ROCm.
    CpuOnlyTorch,
    /// torch 2.8 and later: built for ROCm.
    RocmTorch,
}

impl FoundBy {
    /// For evidence; `None` for [`FoundBy::Nothing`].
    pub fn source(&self) -> Option<Source> {
        match self {
            Self::CudaHome => Some(Source::variable("CUDA_HOME")),
            Self::CudaPath => Some(Source::variable("CUDA_PATH")),
            Self::PathNvcc { entry: Some(entry), .. } => Some(Source::entry("PATH", *entry)),
            Self::PathNvcc { nvcc, entry: None } => Some(Source::File { path: nvcc.clone() }),
            Self::UsrLocalCuda => Some(Source::UsualPlace),
            Self::Nothing => None,
        }
    }
}

/// What torch's search answers. Without a torch, as its newest release would.
pub fn cuda_home<'a>(facts: &'a Snapshot, know: &Knowledge, torch: Option<&Torch>) -> CudaHome<'a> {
    let (value, by) = search_home(facts, know, torch);
    let toolkit = value.as_ref().and_then(|value| toolkit_at(facts, value));
    let gate = torch.and_then(|torch| gate(know, torch));
    CudaHome { value: value.filter(|_| gate.is_none()), by, toolkit, gate }
}

fn gate(know: &Knowledge, torch: &Torch) -> Option<Gate> {
    let does = |what| know.torch_does(what, &torch.version);
    match (torch.cuda, &torch.hip) {
        (None, None) if !does(TorchTrait::CudaHomeWithoutCuda) => Some(Gate::CpuOnlyTorch),
        (None, Some(_)) if does(TorchTrait::CudaHomeNeedsTorchCuda) => Some(Gate::RocmTorch),
        _ => None,
    }
}

fn search_home(facts: &Snapshot, know: &Knowledge, torch: Option<&Torch>) -> (Option<Raw>, FoundBy) {
    if let Some(value) = facts.env.filled("CUDA_HOME") {
        return (Some(Raw(value.to_owned())), FoundBy::CudaHome);
    }
    // `environ.get(CUDA_HOME) or environ.get(CUDA_PATH)`: the second counts even when it is empty.
    if let Some(value) = facts.env.get("CUDA_PATH") {
        return (Some(Raw(value.to_owned())), FoundBy::CudaPath);
    }
    if searches_path(facts, know, torch)
        && let Some(hit) = search::which(facts, "nvcc")
    {
        let home = dirname(dirname(hit.written.as_os_str()));
        return (Some(Raw(home.to_owned())), FoundBy::PathNvcc { nvcc: hit.written, entry: hit.entry });
    }
    if exists(facts, Path::new(USR_LOCAL_CUDA)) {
        return (Some(Raw::from(USR_LOCAL_CUDA)), FoundBy::UsrLocalCuda);
    }
    (None, FoundBy::Nothing)
}

const USR_LOCAL_CUDA: &str = "/usr/local/cuda";

/// torch 2.3 and older ask the program `which`; where it is missing they go on as if PATH had no nvcc. Whether it is there is known only
/// from programs of that name; where none was collected it is taken to be there, as on nearly every system.
fn searches_path(facts: &Snapshot, know: &Knowledge, torch: Option<&Torch>) -> bool {
    let looks_itself = torch.is_none_or(|torch| !know.torch_does(TorchTrait::CudaHomeByWhichProgram, &torch.version));
    looks_itself || !facts.programs.iter().any(|program| program.name == "which") || search::which(facts, "which").is_some()
}

/// Python's `os.path.dirname` on a path without trailing slashes.
fn dirname(path: &OsStr) -> &OsStr {
    let bytes = path.as_bytes();
    let Some(slash) = bytes.iter().rposition(|b| *b == b'/') else { return OsStr::new("") };
    let head = bytes.get(..=slash).unwrap_or_default();
    let kept = head.len() - head.iter().rev().take_while(|b| **b == b'/').count();
    OsStr::from_bytes(if kept == 0 { head } else { head.get(..kept).unwrap_or_default() })
}

/// The collected toolkit whose folder this is. An empty value is the current folder.
pub fn toolkit_at<'a>(facts: &'a Snapshot, value: &OsStr) -> Option<&'a Toolkit> {
    let path = search::absolute(facts, Path::new(value))?;
    let all = facts.toolkits.value()?;
    all.iter().find(|kit| *kit.root == *path).or_else(|| all.iter().find(|kit| *kit.real == *path))
}

/// Whether the path is known to be there: a place that a variable names, a toolkit, or a folder of one.
fn exists(facts: &Snapshot, path: &Path) -> bool {
    match facts.env.state(path) {
        Some(PlaceState::Folder | PlaceState::File | PlaceState::Unreadable { .. }) => true,
        Some(PlaceState::Missing | PlaceState::Dangling { .. }) => false,
        None => toolkit_at(facts, path.as_os_str()).is_some(),
    }
}

impl CudaHome<'_> {
    /// Python's `os.path.join(CUDA_HOME, …)`; `None` where torch raises `CUDA_HOME environment variable is not set`.
    pub fn join(&self, more: &str) -> Option<HostPath> {
        self.value.as_ref().map(|value| HostPath::new(Path::new(&value.0).join(more)))
    }

    /// The compiler that torch builds with: `<home>/bin/nvcc`, never the one on PATH.
    pub fn nvcc(&self) -> Option<HostPath> {
        self.join("bin/nvcc")
    }

    /// The text DeepSpeed runs for `-V`: home and `/bin/nvcc` put together as text, so that an empty home means `/bin/nvcc`.
    pub fn deepspeed_nvcc(&self) -> Option<HostPath> {
        let mut text = self.value.as_ref()?.0.clone();
        text.push("/bin/nvcc");
        Some(HostPath::new(text))
    }

    /// The folder torch passes with `-L`: `lib64`, or `lib` where only that is there.
    pub fn lib(&self) -> Option<HostPath> {
        let only_lib = self.toolkit.is_some_and(|kit| {
            use crate::facts::toolkit::LibFolderKind::{Lib, Lib64};
            kit.libs.iter().any(|folder| folder.kind == Lib) && !kit.libs.iter().any(|folder| folder.kind == Lib64)
        });
        self.join(if only_lib { "lib" } else { "lib64" })
    }

    /// Every folder torch passes with `-L` for CUDA, cuDNN's behind CUDA's.
    pub fn lib_folders(&self, facts: &Snapshot) -> Vec<HostPath> {
        let Some(lib) = self.lib() else { return Vec::new() };
        let name = lib.file_name().unwrap_or_default().to_owned();
        let cudnn = cudnn_home(facts).map(|home| HostPath::new(Path::new(home).join(&name)));
        [lib].into_iter().chain(cudnn).collect()
    }

    /// Every folder torch passes as include folder for CUDA, in order. `/usr/include` is left out: the compiler has it.
    pub fn includes(&self, facts: &Snapshot, know: &Knowledge, torch: Option<&Torch>) -> Vec<HostPath> {
        let own = self.join("include").filter(|path| path.as_os_str() != "/usr/include");
        if self.value.is_none() {
            return Vec::new();
        }
        let reads_inc_path = torch.is_none_or(|torch| know.torch_does(TorchTrait::ReadsCudaIncPath, &torch.version));
        let extra = facts.env.path("CUDA_INC_PATH").filter(|path| reads_inc_path && path.as_os_str() != "/usr/include");
        let cudnn = cudnn_home(facts).map(|home| HostPath::new(Path::new(home).join("include")));
        own.into_iter().chain(extra.map(HostPath::new)).chain(cudnn).collect()
    }

    /// The folders that DeepSpeed's async_io and gds add with `-L`: home itself and `lib64`, never `lib`.
    pub fn deepspeed_aio_folders(&self) -> Vec<HostPath> {
        self.value.iter().map(|value| HostPath::new(&value.0)).chain(self.join("lib64")).collect()
    }
}

/// `environ.get(CUDNN_HOME) or environ.get(CUDNN_PATH)`
fn cudnn_home(facts: &Snapshot) -> Option<&OsStr> {
    facts.env.filled("CUDNN_HOME").or_else(|| facts.env.get("CUDNN_PATH"))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::env::NamedPlace;
    use crate::facts::observed::Observed;
    use crate::facts::program::{Program, ProgramKind};

    fn torch(version: &str, cuda: Option<&str>, hip: Option<&str>) -> Torch {
        let quoted = |value: Option<&str>| value.map_or("null".to_owned(), |value| format!("\"{value}\""));
        let text = format!(r#"{{"path": "/site/torch", "version": "{version}", "cuda": {}, "hip": {}}}"#, quoted(cuda), quoted(hip));
        serde_json::from_str(&text).unwrap()
    }

    fn machine(env: &[(&str, &str)], programs: &[&str]) -> Snapshot {
        let mut facts = Snapshot::default();
        facts.env.cwd = Some("/here".into());
        for (name, value) in env {
            facts.env.set(name, *value);
        }
        facts.programs = programs
            .iter()
            .map(|path| Program {
                name: path.rsplit('/').next().unwrap().to_owned(),
                path: (*path).into(),
                real: (*path).into(),
                kind: ProgramKind::Elf,
            })
            .collect();
        facts
    }

    fn value(facts: &Snapshot, torch: Option<&Torch>) -> Option<String> {
        cuda_home(facts, &Knowledge::embedded(), torch).value.map(|value| value.to_string())
    }

    #[test]
    fn variables_are_not_checked() {
        let facts = machine(&[("CUDA_HOME", "/none:/x"), ("CUDA_PATH", "/y"), ("PATH", "/k/bin")], &["/k/bin/nvcc"]);
        assert_eq!(value(&facts, None).unwrap(), "/none:/x");
        let facts = machine(&[("CUDA_HOME", ""), ("CUDA_PATH", "/y"), ("PATH", "/k/bin")], &["/k/bin/nvcc"]);
        assert_eq!(value(&facts, None).unwrap(), "/y");
        let facts = machine(&[("CUDA_HOME", ""), ("PATH", "/k/bin")], &["/k/bin/nvcc"]);
        assert_eq!(value(&facts, None).unwrap(), "/k");
        let facts = machine(&[("CUDA_PATH", ""), ("PATH", "/k/bin")], &["/k/bin/nvcc"]);
        let home = cuda_home(&facts, &Knowledge::embedded(), None);
        assert_eq!((home.value.clone().unwrap(), home.by.clone()), (Raw::default(), FoundBy::CudaPath));
        assert_eq!(home.nvcc().unwrap(), "bin/nvcc".into());
        assert_eq!(home.deepspeed_nvcc().unwrap(), "/bin/nvcc".into());
    }

    #[test]
    fn path_is_taken_as_text() {
        let of = |path: &str, nvcc: &str| value(&machine(&[("PATH", path)], &[nvcc]), None).unwrap();
        assert_eq!(of("/usr/bin", "/usr/bin/nvcc"), "/usr");
        assert_eq!(of("/k//bin/", "/k/bin/nvcc"), "/k");
        assert_eq!(of("/bin", "/bin/nvcc"), "/");
        assert_eq!(of(":/x", "/here/nvcc"), "");
        assert_eq!(of("bin", "/here/bin/nvcc"), "");
        assert_eq!(of("./bin", "/here/bin/nvcc"), ".");
    }

    #[test]
    fn usr_local_cuda_is_the_last() {
        let mut facts = machine(&[("PATH", "/usr/bin")], &[]);
        assert_eq!(cuda_home(&facts, &Knowledge::embedded(), None).by, FoundBy::Nothing);
        facts.env.places = vec![NamedPlace { path: "/usr/local/cuda".into(), state: PlaceState::Folder }];
        assert_eq!(cuda_home(&facts, &Knowledge::embedded(), None).by, FoundBy::UsrLocalCuda);
        facts.env.places = vec![NamedPlace { path: "/usr/local/cuda".into(), state: PlaceState::Dangling { target: "/gone".into() } }];
        assert_eq!(cuda_home(&facts, &Knowledge::embedded(), None).by, FoundBy::Nothing);
    }

    #[test]
    fn gates() {
        let facts = machine(&[("CUDA_HOME", "/k")], &[]);
        let of = |version, cuda, hip| {
            let torch = torch(version, cuda, hip);
            let home = cuda_home(&facts, &Knowledge::embedded(), Some(&torch));
            assert_eq!(home.by, FoundBy::CudaHome);
            (home.value.is_some(), home.gate)
        };
        assert_eq!(of("2.1.2+cpu", None, None), (true, None));
        assert_eq!(of("2.2.0", None, None), (false, Some(Gate::CpuOnlyTorch)));
        assert_eq!(of("2.7.1", None, Some("6.3")), (true, None));
        assert_eq!(of("2.8.0", None, Some("6.4")), (false, Some(Gate::RocmTorch)));
        assert_eq!(of("3.0.0", Some("14.0"), None), (true, None));
    }

    #[test]
    fn the_program_which() {
        let torch = torch("2.3.1", Some("12.1"), None);
        let without = machine(&[("PATH", "/k/bin:/usr/bin")], &["/k/bin/nvcc", "/sbin/which"]);
        assert_eq!(value(&without, Some(&torch)), None);
        let with = machine(&[("PATH", "/k/bin:/usr/bin")], &["/k/bin/nvcc", "/usr/bin/which"]);
        assert_eq!(value(&with, Some(&torch)).unwrap(), "/k");
    }

    #[test]
    fn derived_folders() {
        let mut facts = machine(&[("CUDA_HOME", "/usr"), ("CUDA_INC_PATH", "/inc"), ("CUDNN_PATH", "/dnn")], &[]);
        let paths = |paths: Vec<HostPath>| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
        let home = cuda_home(&facts, &Knowledge::embedded(), None);
        assert_eq!(paths(home.includes(&facts, &Knowledge::embedded(), None)), ["/inc", "/dnn/include"]);
        assert_eq!(paths(home.includes(&facts, &Knowledge::embedded(), Some(&torch("2.3.1", Some("12.1"), None)))), ["/dnn/include"]);
        assert_eq!(paths(home.lib_folders(&facts)), ["/usr/lib64", "/dnn/lib64"]);
        let kit = r#"{"root": "/usr", "real": "/usr", "sources": [], "layout": "conda", "nvcc": {"state": "absent"},
            "libs": [{"path": "/usr/lib", "kind": "lib"}]}"#;
        facts.toolkits = Observed::seen(vec![serde_json::from_str(kit).unwrap()]);
        let home = cuda_home(&facts, &Knowledge::embedded(), None);
        assert_eq!(paths(home.lib_folders(&facts)), ["/usr/lib", "/dnn/lib"]);
        assert_eq!(paths(home.deepspeed_aio_folders()), ["/usr", "/usr/lib64"]);
    }
}
