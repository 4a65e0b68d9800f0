//! CUDA toolkits: every folder that `CUDA_HOME` could name, with what its own files say.

mod contents;
mod find;
mod libraries;
mod nvcc;
mod profile;
mod script;

pub use find::{Root, roots};

use super::Notes;
use super::program::Inspector;
use crate::binary::nvcc::NvccStrings;
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{NvccKind, Toolkit};
use crate::host::{Entry, Host};
use crate::version::Dotted;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

/// The toolkits behind the roots, one for each name. Names that lead to one folder share what was read in it.
pub fn collect(host: &dyn Host, roots: &[Root], notes: &mut Notes) -> Observed<Vec<Toolkit>> {
    if roots.is_empty() {
        return Observed::absent([
            "CUDA_HOME",
            "CUDA_PATH",
            "PATH",
            "LD_LIBRARY_PATH",
            "/usr/local/cuda*",
            "/usr",
            "/opt",
            "Python environments",
        ]);
    }
    let look = Look::new(host);
    let real: Vec<PathBuf> = roots.iter().map(|root| host.real_path(&root.path).unwrap_or_else(|_| root.path.clone())).collect();
    let first_of = |path: &PathBuf| real.iter().position(|other| other == path);
    let mut built: Vec<Option<Toolkit>> = thread::scope(|scope| {
        let running: Vec<_> = roots
            .iter()
            .zip(&real)
            .enumerate()
            .map(|(at, (root, real))| (first_of(real) == Some(at)).then(|| scope.spawn(|| contents::toolkit(&look, root, real))))
            .collect();
        running
            .into_iter()
            .map(|toolkit| toolkit.map(|toolkit| toolkit.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))))
            .collect()
    });
    for (at, (root, path)) in roots.iter().zip(&real).enumerate() {
        let same = first_of(path).filter(|first| *first != at).and_then(|first| built.get(first).cloned().flatten());
        if let (Some(slot), Some(same)) = (built.get_mut(at), same) {
            *slot = Some(renamed(same, root));
        }
    }
    look.say(notes);
    Observed::seen(built.into_iter().flatten().collect())
}

/// The toolkits that torch's search can answer, with their nvcc's own words; what else their files state counts where nvcc says no release.
pub fn for_lists(host: &dyn Host, notes: &mut Notes) -> Observed<Vec<Toolkit>> {
    let roots = find::roots_of_torch(host);
    if roots.is_empty() {
        return Observed::absent(["CUDA_HOME", "CUDA_PATH", "PATH", "/usr/local/cuda"]);
    }
    let look = Look::new(host);
    let read = |root: &Root| {
        let real = host.real_path(&root.path).unwrap_or_else(|_| root.path.clone());
        contents::nvcc_alone(&look, root, &real).unwrap_or_else(|| contents::toolkit(&look, root, &real))
    };
    let found = roots.iter().map(read).collect();
    look.say(notes);
    Observed::seen(found)
}

/// The same toolkit under another name.
fn renamed(mut toolkit: Toolkit, root: &Root) -> Toolkit {
    let from = std::mem::replace(&mut toolkit.root, root.path.clone().into());
    toolkit.sources = root.sources.clone();
    let rename = |path: &mut HostPath| {
        if let Ok(below) = path.strip_prefix(&from) {
            *path = HostPath::new(root.path.join(below));
        }
    };
    if let Some(nvcc) = toolkit.nvcc.value_mut() {
        rename(&mut nvcc.path);
        if let NvccKind::Wrapper { runs: Some(runs), .. } = &mut nvcc.kind {
            rename(runs);
        }
    }
    if let Observed::Absent { looked } = &mut toolkit.nvcc {
        *looked = vec![root.path.join("bin/nvcc").to_string_lossy().into_owned()];
    }
    toolkit.stated.iter_mut().for_each(|stated| rename(&mut stated.path));
    toolkit.parts.iter_mut().filter_map(|part| part.path.as_mut()).for_each(rename);
    toolkit.includes.iter_mut().for_each(|folder| std::iter::once(&mut folder.path).chain(&mut folder.also).for_each(&rename));
    toolkit.libs.iter_mut().for_each(|folder| std::iter::once(&mut folder.path).chain(&mut folder.also).for_each(&rename));
    if let Some(limits) = toolkit.host_limits.value_mut() {
        rename(&mut limits.path);
    }
    toolkit
}

/// What all toolkits of one collection share: nothing is read twice.
struct Look<'a> {
    host: &'a dyn Host,
    inspector: Inspector<'a>,
    /// By real path.
    nvcc: Once<Result<NvccStrings, String>>,
    releases: Once<Option<Dotted>>,
    headers: Once<Vec<String>>,
    folders: Once<Vec<Entry>>,
    notes: Mutex<Notes>,
}

impl<'a> Look<'a> {
    fn new(host: &'a dyn Host) -> Self {
        Self {
            host,
            inspector: Inspector::new(host),
            nvcc: Once::default(),
            releases: Once::default(),
            headers: Once::default(),
            folders: Once::default(),
            notes: Mutex::default(),
        }
    }

    fn say(self, notes: &mut Notes) {
        let mut said = self.notes.into_inner().unwrap_or_else(PoisonError::into_inner);
        said.sort();
        notes.append(&mut said);
    }

    fn note(&self, text: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }
}

/// Values by path, each made once, whichever thread comes first.
struct Once<T>(Mutex<BTreeMap<PathBuf, Arc<OnceLock<T>>>>);

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Once<T> {
    fn get(&self, path: &Path, make: impl FnOnce() -> T) -> T {
        let cell = {
            let mut cells = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(cells.entry(path.to_owned()).or_default())
        };
        cell.get_or_init(make).clone()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::facts::toolkit::{Layout, LibFolderKind, StatedBy};
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use tempfile::TempDir;

    /// An ELF program without sections, which is then searched as a whole.
    fn elf(strings: &[&str]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
        bytes[20] = 1;
        bytes[52] = 64;
        for text in strings {
            bytes.extend_from_slice(text.as_bytes());
            bytes.push(0);
        }
        bytes
    }

    fn nvcc(release: &str) -> Vec<u8> {
        let short = release.rsplit_once('.').unwrap().0;
        elf(&[&format!("Cuda compilation tools, release {short}, V{release}"), "compute_80", "compute_90a", "compute_100 is the default"])
    }

    struct Tree(TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> &Self {
            let at = self.0.path().join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(&at, bytes).unwrap();
            fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
            self
        }

        fn link(&self, target: &str, path: &str) -> &Self {
            let at = self.0.path().join(path);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            symlink(target, at).unwrap();
            self
        }

        /// A whole toolkit in NVIDIA's layout.
        fn toolkit(&self, root: &str, release: &str) -> &Self {
            let number = release.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>();
            let number = number[0] * 1000 + number[1] * 10;
            self.put(&format!("{root}/bin/nvcc"), nvcc(release));
            for part in ["bin/ptxas", "bin/cudafe++", "bin/fatbinary", "bin/nvlink", "nvvm/bin/cicc"] {
                self.put(&format!("{root}/{part}"), nvcc(release));
            }
            let profile = "TOP = $(_HERE_)/..\nPATH += $(TOP)/nvvm/bin:$(_HERE_):\nINCLUDES += -I$(TOP)/$(_TARGET_DIR_)/include\n\
                LIBRARIES =+ $(_SPACE_) -L$(TOP)/$(_TARGET_DIR_)/lib$(_TARGET_SIZE_)/stubs\nNVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice\n";
            self.put(&format!("{root}/bin/nvcc.profile"), profile);
            self.put(&format!("{root}/nvvm/libdevice/libdevice.10.bc"), "x");
            let include = format!("{root}/targets/x86_64-linux/include");
            self.put(&format!("{include}/cuda.h"), format!("#define CUDA_VERSION {number}\n"));
            self.put(&format!("{include}/cuda_runtime_api.h"), format!("#define CUDART_VERSION {number}\n"));
            self.put(&format!("{include}/nv/target"), "");
            let config = "#if __GNUC__ > 13\n#error -- unsupported GNU version! gcc versions later than 13 are not supported!\n#endif\n";
            self.put(&format!("{include}/crt/host_config.h"), config);
            let lib = format!("{root}/targets/x86_64-linux/lib");
            self.put(&format!("{lib}/libcudart.so.{release}"), "x").put(&format!("{lib}/stubs/libcuda.so"), "x");
            self.link(&format!("libcudart.so.{release}"), &format!("{lib}/libcudart.so"));
            self.link("targets/x86_64-linux/include", &format!("{root}/include"));
            self.link("targets/x86_64-linux/lib", &format!("{root}/lib64"));
            self.put(&format!("{root}/version.json"), format!("{{\"cuda\": {{\"name\": \"CUDA SDK\", \"version\": \"{release}\"}}}}"))
        }

        fn collect(&self, env: &[(&str, &str)]) -> Vec<Toolkit> {
            let env: Environment = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
            let host = Rooted::new(self.0.path(), env).unwrap();
            match collect(&host, &roots(&host, None, None), &mut Notes::new()) {
                Observed::Seen { value } => value,
                other => panic!("{other:?}"),
            }
        }
    }

    fn at<'a>(toolkits: &'a [Toolkit], root: &str) -> &'a Toolkit {
        toolkits.iter().find(|toolkit| *toolkit.root == *Path::new(root)).unwrap_or_else(|| panic!("{root} in {toolkits:#?}"))
    }

    #[test]
    fn a_whole_toolkit_under_two_names() {
        let tree = Tree::new();
        tree.toolkit("usr/local/cuda-12.4", "12.4.131").link("cuda-12.4", "usr/local/cuda");
        tree.link("none", "usr/local/cuda-12.4/lib64/libcublas.so").put("usr/local/cuda-12.4/lib64/libcurand.so", "");
        let found = tree.collect(&[("CUDA_HOME", "/usr/local/cuda")]);
        assert_eq!(found.len(), 2);
        let (link, real) = (at(&found, "/usr/local/cuda"), at(&found, "/usr/local/cuda-12.4"));
        assert_eq!(*link.real, *real.root);
        assert_eq!(link.layout, Layout::Nvidia);
        let nvcc = link.nvcc.value().unwrap();
        assert_eq!(&*nvcc.path, Path::new("/usr/local/cuda/bin/nvcc"));
        assert_eq!(&*nvcc.program, Path::new("/usr/local/cuda-12.4/bin/nvcc"));
        assert_eq!((&nvcc.kind, nvcc.reads_nvcc_ccbin), (&NvccKind::Program, Some(false)));
        assert_eq!(nvcc.targets.iter().map(ToString::to_string).collect::<Vec<_>>(), ["8.0", "9.0a"]);
        let stated: Vec<_> =
            link.stated.iter().map(|stated| (stated.what, stated.version.text.as_str(), stated.path.to_str().unwrap())).collect();
        assert_eq!(
            stated,
            [
                (StatedBy::Nvcc, "12.4.131", "/usr/local/cuda/bin/nvcc"),
                (StatedBy::Ptxas, "12.4.131", "/usr/local/cuda/bin/ptxas"),
                (StatedBy::Cicc, "12.4.131", "/usr/local/cuda/nvvm/bin/cicc"),
                (StatedBy::CudaHeader, "12.4", "/usr/local/cuda/include/cuda.h"),
                (StatedBy::RuntimeHeader, "12.4", "/usr/local/cuda/include/cuda_runtime_api.h"),
                (StatedBy::Cudart, "12.4.131", "/usr/local/cuda/lib64/libcudart.so.12.4.131"),
                (StatedBy::VersionJson, "12.4.131", "/usr/local/cuda/version.json"),
            ]
        );
        assert!(link.parts.iter().all(|part| part.path.is_some() && part.broken.is_none()), "{:#?}", link.parts);
        let limits = link.host_limits.value().unwrap();
        assert_eq!((limits.gcc_max, limits.clang_max), (Some(13), None));
        let include = &link.includes[0];
        assert!(include.searched_by_torch && include.searched_by_nvcc, "{include:?}");
        assert_eq!(include.headers, ["cuda.h", "cuda_runtime_api.h", "nv/target"]);
        let lib = link.torch_lib().unwrap();
        assert_eq!(lib.files, ["libcudart.so", "libcudart.so.12.4.131"]);
        assert_eq!(lib.broken, ["libcublas.so", "libcurand.so"]);
        assert_eq!(link.stubs().unwrap().files, ["libcuda.so"]);
    }

    #[test]
    fn parts_that_are_missing_or_broken() {
        let tree = Tree::new();
        tree.toolkit("opt/cuda", "12.4.131").put("opt/cuda/bin/ptxas", "");
        fs::remove_file(tree.0.path().join("opt/cuda/nvvm/bin/cicc")).unwrap();
        fs::remove_file(tree.0.path().join("opt/cuda/bin/nvlink")).unwrap();
        tree.put("elsewhere/nvlink", elf(&[]));
        let found = tree.collect(&[("PATH", "/elsewhere")]);
        let part = |name: &str| at(&found, "/opt/cuda").part(name).unwrap();
        assert_eq!(part("cicc").path, None);
        assert_eq!(part("ptxas").broken.as_deref(), Some("the file is empty"));
        assert_eq!(part("nvlink").path, Some("/elsewhere/nvlink".into()));
    }

    #[test]
    fn a_link_to_nvcc_alone_finds_no_profile() {
        let tree = Tree::new();
        tree.toolkit("usr/local/cuda-12.4", "12.4.131").link("/usr/local/cuda-12.4/bin/nvcc", "usr/local/bin/nvcc");
        let found = tree.collect(&[("PATH", "/usr/local/bin")]);
        let shared = at(&found, "/usr/local");
        assert_eq!(shared.layout, Layout::Unknown);
        assert_eq!(shared.nvcc.value().unwrap().version.as_ref().unwrap().text, "12.4.131");
        assert!(shared.part("cicc").unwrap().path.is_none() && shared.part("nvcc.profile").unwrap().path.is_none());
        assert_eq!(at(&found, "/usr/local/cuda-12.4").part("cicc").unwrap().broken, None);
    }

    #[test]
    fn wrappers_are_followed() {
        let tree = Tree::new();
        tree.toolkit("opt/cuda-11.8", "11.8.89").put("usr/bin/ccache", elf(&[]));
        tree.put("w1/bin/nvcc", "#!/bin/sh\nexec /opt/cuda-11.8/bin/nvcc \"$@\"\n");
        tree.put("w2/bin/nvcc", "#!/bin/sh\nexec /none/nvcc \"$@\"\n");
        tree.put("w3/bin/nvcc", "#!/bin/sh\nexec \"$(dirname \"$0\")/nvcc\" \"$@\"\n");
        tree.put("w4/bin/nvcc", "#!/usr/bin/python3\nprint()\n").put("usr/bin/python3", elf(&[]));
        tree.link("/usr/bin/ccache", "w5/bin/nvcc");
        tree.put("w6/bin/nvcc", elf(&["nothing"]));
        let path = "/w5/bin:/w1/bin:/w2/bin:/w3/bin:/w4/bin:/w6/bin:/opt/cuda-11.8/bin";
        let found = tree.collect(&[("PATH", path)]);
        let wrapper = |by: &str, runs: Option<&str>, found| NvccKind::Wrapper { by: by.into(), runs: runs.map(HostPath::new), found };
        for (root, kind, version) in [
            ("/w1", wrapper("script", Some("/opt/cuda-11.8/bin/nvcc"), true), Some("11.8.89")),
            ("/w2", wrapper("script", Some("/none/nvcc"), false), None),
            ("/w3", wrapper("script", Some("/w3/bin/nvcc"), false), None),
            ("/w4", wrapper("script", None, false), None),
            ("/w5", wrapper("ccache", Some("/w1/bin/nvcc"), true), Some("11.8.89")),
            ("/w6", wrapper("another program", None, false), None),
        ] {
            let nvcc = at(&found, root).nvcc.value().unwrap();
            assert_eq!((&nvcc.kind, nvcc.version.as_ref().map(|version| version.text.as_str())), (&kind, version), "{root}");
        }
        assert!(at(&found, "/w1").part("cicc").unwrap().path.is_some());
        assert!(at(&found, "/w4").parts.is_empty());
    }

    #[test]
    fn files_that_cannot_be_nvcc() {
        let tree = Tree::new();
        tree.put("a/bin/nvcc", "").put("b/bin/nvcc", "text").put("c/bin/nvcc/x", "").link("none", "d/bin/nvcc");
        tree.put("e/bin/nvcc", &nvcc("12.4.131")[..40]).link("nvcc", "f/bin/nvcc");
        let found = tree.collect(&[("PATH", "/a/bin:/b/bin:/c/bin:/d/bin:/e/bin:/f/bin")]);
        for (root, word) in
            [("/a", "empty"), ("/b", "#!"), ("/c", "folder"), ("/d", "not there"), ("/e", "cut short"), ("/f", "symbolic links")]
        {
            let nvcc = at(&found, root).nvcc.value().unwrap();
            assert!(matches!(&nvcc.kind, NvccKind::Broken { why } if why.contains(word)), "{root}: {:?}", nvcc.kind);
            assert_eq!(nvcc.version, None);
        }
    }

    #[test]
    fn debian_and_runtime_packages() {
        let tree = Tree::new();
        tree.put("usr/bin/nvcc", "#!/bin/sh\n\nexec /usr/lib/nvidia-cuda-toolkit/bin/nvcc \"$@\"\n");
        tree.put("usr/lib/nvidia-cuda-toolkit/bin/nvcc", nvcc("11.8.89"))
            .link("/etc/nvcc.profile", "usr/lib/nvidia-cuda-toolkit/bin/nvcc.profile");
        tree.put("etc/nvcc.profile", "PATH += /usr/lib/nvidia-cuda-toolkit/bin:\nLIBRARIES =+ $(_SPACE_) -L/usr/lib/x86_64-linux-gnu\n");
        tree.put("usr/lib/nvidia-cuda-toolkit/bin/cicc", nvcc("11.8.89")).put("usr/bin/ptxas", nvcc("11.8.89"));
        tree.put("usr/include/cuda.h", "#define CUDA_VERSION 11080\n").put("usr/lib/x86_64-linux-gnu/libcudart.so.11.8.89", "x");
        tree.put("v/lib/python3.11/site-packages/nvidia/cuda_runtime/include/cuda_runtime_api.h", "#define CUDART_VERSION 12040\n");
        let found = tree.collect(&[("PATH", "/usr/bin"), ("VIRTUAL_ENV", "/v")]);
        let usr = at(&found, "/usr");
        assert_eq!(usr.layout, Layout::Distribution);
        assert_eq!(usr.nvcc.value().unwrap().kind, NvccKind::DistributionScript);
        assert_eq!(usr.release().unwrap().to_string(), "11.8");
        assert_eq!(usr.part("cicc").unwrap().path, Some("/usr/lib/nvidia-cuda-toolkit/bin/cicc".into()));
        assert_eq!(usr.part("ptxas").unwrap().path, Some("/usr/bin/ptxas".into()));
        assert!(usr.includes.iter().any(|folder| folder.searched_by_torch && folder.searched_by_nvcc && folder.headers == ["cuda.h"]));
        assert!(usr.libs.iter().any(|folder| folder.kind == LibFolderKind::Distribution && folder.files == ["libcudart.so.11.8.89"]));
        let runtime = at(&found, "/v/lib/python3.11/site-packages/nvidia/cuda_runtime");
        assert_eq!((runtime.layout, runtime.nvcc.is_absent(), runtime.parts.len()), (Layout::Pip, true, 0));
        assert_eq!(runtime.release().unwrap().to_string(), "12.4");
        assert!(runtime.host_limits.is_absent());
    }

    #[test]
    fn conda_keeps_headers_and_libraries_under_targets() {
        let tree = Tree::new();
        tree.put("env/conda-meta/history", "").put("env/bin/nvcc", nvcc("12.4.131"));
        tree.put("env/bin/nvcc.profile", "TOP = $(_HERE_)/..\nINCLUDES += \"-I$(TOP)/$(_TARGET_DIR_)/include\"\n");
        tree.put("env/targets/x86_64-linux/include/cuda.h", "#define CUDA_VERSION 12040\n").put("usr/include/nccl.h", "");
        tree.put("env/targets/x86_64-linux/lib/libcudart.so", "x").put("env/lib/libfoo.so", "x");
        let found = tree.collect(&[("CONDA_PREFIX", "/env")]);
        let conda = at(&found, "/env");
        assert_eq!(conda.layout, Layout::Conda);
        let include = &conda.includes[0];
        assert_eq!(&*include.path, Path::new("/env/targets/x86_64-linux/include"));
        assert!(!include.searched_by_torch && include.searched_by_nvcc);
        assert_eq!(conda.includes.len(), 1, "conda's compilers do not search /usr/include");
        let kinds: Vec<_> = conda.libs.iter().map(|folder| (folder.kind, folder.files.len())).collect();
        assert_eq!(kinds, [(LibFolderKind::Lib, 0), (LibFolderKind::Targets, 1)]);
    }

    #[test]
    fn damaged_files_are_noted() {
        let tree = Tree::new();
        tree.toolkit("opt/cuda", "12.4.131").put("opt/cuda/version.json", "{\"cuda\": ").put("opt/cuda/include/cuda.h", "");
        let host = Rooted::new(tree.0.path(), Environment::new()).unwrap();
        let mut notes = Notes::new();
        let found = collect(&host, &roots(&host, None, None), &mut notes);
        let stated: Vec<_> = found.value().unwrap()[0].stated.iter().map(|stated| stated.what).collect();
        assert!(!stated.contains(&StatedBy::VersionJson) && !stated.contains(&StatedBy::CudaHeader), "{stated:?}");
        assert_eq!(notes, ["`/opt/cuda/include/cuda.h` states no release", "`/opt/cuda/version.json` states no release"]);
    }

    #[test]
    fn a_machine_without_any() {
        let tree = Tree::new();
        let host = Rooted::new(tree.0.path(), Environment::new()).unwrap();
        assert!(collect(&host, &roots(&host, None, None), &mut Notes::new()).is_absent());
    }
}
