//! Where toolkits are: every folder that could be a `CUDA_HOME`, with every way it was found.

use crate::collect::search::{self, absolute, entries, variable};
use crate::facts::env::unwrapped;
use crate::facts::source::Source;
use crate::host::{Entry, Host, Kind};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Variables that name a toolkit's root, whoever reads them.
const ROOT_VARIABLES: &[&str] = &[
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDAHOME",
    "CUDA_DIR",
    "CUDA_INSTALL_PATH",
    "CUDA_TOOLKIT_PATH",
    "CUDA_TOOLKIT_ROOT_DIR",
    "CUDATOOLKIT_HOME",
    "CUDAToolkit_ROOT",
    "CUDA_BIN_PATH",
    "EBROOTCUDA",
    "NVHPC_CUDA_HOME",
];

/// Variables that name an nvcc program.
const NVCC_VARIABLES: &[&str] = &["PYTORCH_NVCC", "NVCC", "CUDACXX"];

/// Library paths that often name the `lib64` of a toolkit that nothing else names.
const LIBRARY_VARIABLES: &[&str] = &["LD_LIBRARY_PATH", "LIBRARY_PATH"];

/// A folder of more entries is no collection of installed programs.
const MOST_ENTRIES: usize = 400;

/// A folder that could be a `CUDA_HOME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// As found, links not resolved.
    pub path: PathBuf,
    pub sources: Vec<Source>,
}

/// Every toolkit, in order of how directly it is named. Only folders that hold some part of a toolkit. `named`: one that the command line
/// speaks of.
pub fn roots(host: &dyn Host, python: Option<&Path>, named: Option<&Path>) -> Vec<Root> {
    let mut find = Find { host, roots: Vec::new() };
    if let Some(named) = named {
        find.add(named, Source::Option { name: "--overlay".to_owned() });
    }
    find.variables();
    find.path();
    find.libraries();
    find.usual();
    find.environments(python);
    find.hpc_sdk();
    find.opt();
    find.roots
}

/// Those of them that the search of torch's `_find_cuda_home` can come to, with whatever torch.
pub fn roots_of_torch(host: &dyn Host) -> Vec<Root> {
    let mut find = Find { host, roots: Vec::new() };
    let set = |name: &str| host.var(name).filter(|value| !value.is_empty());
    // CUDA_PATH counts also when it is empty: then it means the current folder.
    let named = set("CUDA_HOME").map(|value| ("CUDA_HOME", value)).or_else(|| Some(("CUDA_PATH", host.var("CUDA_PATH")?)));
    match named {
        Some((name, value)) => {
            if let Some(path) = absolute(host, Path::new(value)) {
                find.add(&path, Source::variable(name));
            }
        }
        None => {
            find.path();
            find.add(Path::new("/usr/local/cuda"), Source::UsualPlace);
            // What PATH means where it is unset.
            find.add(Path::new("/usr"), Source::Distribution);
        }
    }
    find.roots
}

struct Find<'a> {
    host: &'a dyn Host,
    roots: Vec<Root>,
}

impl Find<'_> {
    fn add(&mut self, path: &Path, source: Source) {
        let path = search::tidy(path);
        match self.roots.iter_mut().find(|root| root.path == path) {
            Some(root) if root.sources.contains(&source) => {}
            Some(root) => root.sources.push(source),
            None if is_toolkit(self.host, &path) => self.roots.push(Root { path, sources: vec![source] }),
            None => {}
        }
    }

    fn known(&self, path: &Path) -> bool {
        self.roots.iter().any(|root| root.path == path)
    }

    fn variables(&mut self) {
        for name in ROOT_VARIABLES {
            let Some(value) = self.host.var(name).filter(|value| !value.is_empty()) else { continue };
            let path = absolute(self.host, Path::new(value));
            if let Some(path) = &path {
                self.add(path, Source::variable(*name));
                if self.known(path) {
                    continue;
                }
            }
            // A value that is no toolkit: `…/bin`, `…/lib64/stubs`, a list, one with quotes or a blank around it, the folder above. What it
            // was meant to name is a candidate all the same.
            if let Some(inner) = unwrapped(value).and_then(|inner| absolute(self.host, Path::new(inner))) {
                self.add(&inner, Source::variable(*name));
            }
            if value.as_bytes().contains(&b':') {
                for entry in entries(self.host, name) {
                    self.add(&entry.path, Source::entry(*name, entry.index));
                }
            }
            if let Some(path) = path {
                self.below(&path);
                self.above(&path, &Source::Beside { path: path.clone().into() });
            }
        }
        for name in NVCC_VARIABLES {
            if let Some(nvcc) = variable(self.host, name)
                && let Some(root) = nvcc.parent().and_then(Path::parent)
            {
                self.add(root, Source::variable(*name));
            }
        }
    }

    /// The toolkit that a folder of a toolkit belongs to.
    fn above(&mut self, folder: &Path, source: &Source) {
        let shared = |path: &Path| [Path::new("/"), Path::new("/usr"), Path::new("/usr/local")].contains(&path);
        let found = folder.ancestors().skip(1).take(4).take_while(|path| !shared(path)).find(|path| is_toolkit(self.host, path));
        if let Some(root) = found {
            self.add(root, source.clone());
        }
    }

    /// The toolkits directly in a folder.
    fn below(&mut self, folder: &Path) {
        for entry in self.folders(folder) {
            let root = folder.join(&entry.name);
            if self.host.link_metadata(&root.join("bin/nvcc")).is_ok() {
                self.add(&root, Source::Beside { path: folder.into() });
            }
        }
    }

    fn path(&mut self) {
        for entry in entries(self.host, "PATH") {
            let nvcc = entry.path.join("nvcc");
            if self.host.link_metadata(&nvcc).is_err() {
                continue;
            }
            if let Some(root) = entry.path.parent() {
                self.add(root, Source::entry("PATH", entry.index));
            }
            self.behind(&nvcc);
        }
    }

    /// The toolkit of the file that an nvcc link leads to.
    fn behind(&mut self, nvcc: &Path) {
        let Ok(real) = self.host.real_path(nvcc) else { return };
        if real != nvcc
            && real.file_name() == Some(OsStr::new("nvcc"))
            && let Some(root) = real.parent().filter(|folder| folder.ends_with("bin")).and_then(Path::parent)
        {
            self.add(root, Source::Beside { path: nvcc.into() });
        }
    }

    fn libraries(&mut self) {
        for name in LIBRARY_VARIABLES {
            for entry in entries(self.host, name) {
                self.above(&entry.path, &Source::entry(*name, entry.index));
            }
        }
    }

    fn usual(&mut self) {
        for folder in ["/usr/local", "/opt"] {
            for entry in self.folders(Path::new(folder)) {
                if entry.name.as_bytes().starts_with(b"cuda") {
                    self.add(&Path::new(folder).join(&entry.name), Source::UsualPlace);
                }
            }
        }
        if self.host.link_metadata(Path::new("/usr/bin/nvcc")).is_ok() {
            self.add(Path::new("/usr"), Source::Distribution);
            self.behind(Path::new("/usr/bin/nvcc"));
        }
        for root in ["/usr/lib/nvidia-cuda-toolkit", "/usr/lib/cuda"] {
            self.add(Path::new(root), Source::Distribution);
        }
        if let Some(home) = variable(self.host, "HOME") {
            self.add(&home.join("cuda"), Source::UsualPlace);
        }
    }

    /// conda environments, and NVIDIA's packages in the site folders of Pythons.
    fn environments(&mut self, python: Option<&Path>) {
        for (prefix, _) in search::prefixes(self.host, python) {
            if self.host.is_folder(&prefix.join("conda-meta")) {
                self.add(&prefix, Source::Conda { prefix: prefix.clone().into() });
            }
        }
        for site in search::sites(self.host, python) {
            let nvidia = site.join("nvidia");
            for entry in self.folders(&nvidia) {
                let name = entry.name.to_string_lossy();
                let whole = name.strip_prefix("cu").is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
                if whole || name == "cuda_nvcc" || name == "cuda_runtime" {
                    self.add(&nvidia.join(&*name), Source::Pip { site: site.clone().into() });
                }
            }
        }
    }

    /// `Linux_x86_64/24.3/{compilers,cuda,cuda/12.3}` below the SDK's folder.
    fn hpc_sdk(&mut self) {
        let mut releases: Vec<PathBuf> = variable(self.host, "NVHPC_ROOT").into_iter().collect();
        let sdks = variable(self.host, "NVHPC").into_iter().chain([PathBuf::from("/opt/nvidia/hpc_sdk")]);
        for sdk in sdks {
            for system in self.folders(&sdk).iter().filter(|entry| entry.name.as_bytes().starts_with(b"Linux_")) {
                let system = sdk.join(&system.name);
                releases.extend(self.folders(&system).iter().map(|release| system.join(&release.name)));
            }
        }
        for release in releases {
            let source = Source::HpcSdk { root: release.clone().into() };
            let cuda = release.join("cuda");
            for version in self.folders(&cuda).iter().filter(|entry| entry.name.as_bytes().first().is_some_and(u8::is_ascii_digit)) {
                self.add(&cuda.join(&version.name), source.clone());
            }
            self.add(&cuda, source.clone());
            self.add(&release.join("compilers"), source);
        }
    }

    /// `/opt/*` and `/opt/*/*`; a third level only below names that speak of CUDA.
    fn opt(&mut self) {
        let opt = Path::new("/opt");
        for first in self.folders(opt) {
            let at = opt.join(&first.name);
            self.with_nvcc(&at);
            for second in self.folders(&at) {
                let below = at.join(&second.name);
                self.with_nvcc(&below);
                if speaks_of_cuda(&first.name) || speaks_of_cuda(&second.name) {
                    for third in self.folders(&below) {
                        self.with_nvcc(&below.join(&third.name));
                    }
                }
            }
        }
    }

    fn with_nvcc(&mut self, root: &Path) {
        if self.host.link_metadata(&root.join("bin/nvcc")).is_ok() {
            self.add(root, Source::UsualPlace);
        }
    }

    /// The folders, and links that may lead to some, in a folder of reasonable size.
    fn folders(&self, path: &Path) -> Vec<Entry> {
        let mut entries = self.host.list(path).unwrap_or_default();
        entries.retain(|entry| matches!(entry.kind, Kind::Folder | Kind::Link));
        if entries.len() > MOST_ENTRIES { Vec::new() } else { entries }
    }
}

fn speaks_of_cuda(name: &OsStr) -> bool {
    let name = name.to_string_lossy().to_ascii_lowercase();
    name.contains("cuda") || name.contains("nvidia")
}

/// Whether the folder holds any part of a toolkit. Folders shared with other software count only for an nvcc of their own.
fn is_toolkit(host: &dyn Host, root: &Path) -> bool {
    const PARTS: &[&str] = &[
        "include/cuda_runtime_api.h",
        "include/cuda.h",
        "lib64/libcudart.so",
        "version.json",
        "nvvm/bin/cicc",
        "lib/libcudart.so",
        "targets/x86_64-linux/include/cuda.h",
        "targets/sbsa-linux/include/cuda.h",
        "targets/aarch64-linux/include/cuda.h",
        "lib64/libcudart.so.12",
        "lib64/libcudart.so.13",
        "lib64/libcudart.so.11.0",
        "lib/libcudart.so.13",
        "lib/libcudart.so.12",
        "lib/libcudart.so.11.0",
    ];
    if host.link_metadata(&root.join("bin/nvcc")).is_ok() {
        return true;
    }
    let shared = [Path::new("/"), Path::new("/usr"), Path::new("/usr/local")].contains(&root);
    !shared && host.is_folder(root) && PARTS.iter().any(|part| host.is_file(&root.join(part)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use crate::host::{Environment, Rooted};
    use std::fs;
    use std::os::unix::fs::symlink;

    fn put(root: &Path, files: &[&str]) {
        for file in files {
            let at = root.join(file);
            fs::create_dir_all(at.parent().unwrap()).unwrap();
            fs::write(at, "x").unwrap();
        }
    }

    fn find(root: &Path, env: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
        let env: Environment = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let host = Rooted::new(root, env).unwrap();
        let words = |root: Root| (root.path.display().to_string(), root.sources.iter().map(ToString::to_string).collect());
        roots(&host, None, None).into_iter().map(words).collect()
    }

    fn has(found: &[(String, Vec<String>)], path: &str, sources: &[&str]) {
        let root = found.iter().find(|(root, _)| root == path);
        assert_eq!(root.map(|(_, sources)| sources.iter().map(String::as_str).collect()), Some(sources.to_vec()), "{path} in {found:#?}");
    }

    #[test]
    fn every_way_is_kept_and_every_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        put(root, &["usr/local/cuda-12.4/bin/nvcc", "usr/local/cuda-11.8/bin/nvcc", "usr/local/cuda-docs/readme", "opt/other/bin/nvcc"]);
        put(root, &["opt/apps/cuda/12.1/bin/nvcc", "opt/tools/x/y/bin/nvcc", "opt/lib/cuda-9/include/cuda.h", "home/me/bin/x"]);
        fs::create_dir_all(root.join("opt/lib/cuda-9/lib64")).unwrap();
        symlink("/usr/local/cuda-12.4", root.join("usr/local/cuda")).unwrap();
        symlink("/usr/local/cuda-7", root.join("usr/local/cuda-old")).unwrap();
        symlink("/usr/local/cuda-11.8/bin/nvcc", root.join("home/me/bin/nvcc")).unwrap();
        let found = find(
            root,
            &[
                ("CUDA_HOME", "/usr/local/cuda/"),
                ("CUDA_ROOT", "/usr/local/cuda-11.8/bin"),
                ("PATH", "/home/me/bin:/usr/local/cuda/bin"),
                ("LD_LIBRARY_PATH", "/opt/lib/cuda-9/lib64:/lib"),
            ],
        );
        has(&found, "/usr/local/cuda", &["CUDA_HOME", "2nd entry of PATH", "usual place"]);
        has(&found, "/usr/local/cuda-12.4", &["beside /usr/local/cuda/bin/nvcc", "usual place"]);
        has(&found, "/usr/local/cuda-11.8", &["beside /usr/local/cuda-11.8/bin", "beside /home/me/bin/nvcc", "usual place"]);
        has(&found, "/home/me", &["1st entry of PATH"]);
        has(&found, "/opt/lib/cuda-9", &["1st entry of LD_LIBRARY_PATH"]);
        has(&found, "/opt/other", &["usual place"]);
        has(&found, "/opt/apps/cuda/12.1", &["usual place"]);
        assert_eq!(found.len(), 7, "{found:#?}");
    }

    #[test]
    fn lists_and_stub_folders_in_cuda_home() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &["a/cuda/bin/nvcc", "b/cuda/bin/nvcc", "b/cuda/lib64/stubs/libcuda.so"]);
        let found = find(dir.path(), &[("CUDA_HOME", "/none:/a/cuda"), ("CUDA_PATH", "/b/cuda/lib64/stubs")]);
        has(&found, "/a/cuda", &["2nd entry of CUDA_HOME"]);
        has(&found, "/b/cuda", &["beside /b/cuda/lib64/stubs"]);
        assert_eq!(find(dir.path(), &[("CUDA_HOME", "/")]), []);
        for value in ["/a/cuda ", " /a/cuda", "/a/cuda\r", "/a/cuda\n", "\"/a/cuda\"", "'/a/cuda/'\r\n"] {
            has(&find(dir.path(), &[("CUDA_HOME", value)]), "/a/cuda", &["CUDA_HOME"]);
        }
        has(&find(dir.path(), &[("CUDA_PATH", "/a")]), "/a/cuda", &["beside /a"]);
    }

    #[test]
    fn distribution_conda_pip_and_hpc_sdk() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), &["usr/bin/nvcc", "usr/lib/nvidia-cuda-toolkit/bin/nvcc", "usr/include/cuda.h", "opt/conda/conda-meta/history"]);
        put(dir.path(), &["opt/conda/bin/nvcc", "venv/lib/python3.11/site-packages/nvidia/cu13/include/cuda.h"]);
        put(dir.path(), &["venv/lib/python3.11/site-packages/nvidia/cuda_runtime/lib/libcudart.so.12"]);
        put(dir.path(), &["venv/lib/python3.11/site-packages/nvidia/cublas/lib/libcublas.so.12"]);
        let sdk = "opt/nvidia/hpc_sdk/Linux_x86_64/24.3";
        put(dir.path(), &[&format!("{sdk}/cuda/12.3/bin/nvcc"), &format!("{sdk}/compilers/bin/nvcc"), &format!("{sdk}/cuda/bin/nvcc")]);
        let found = find(dir.path(), &[("CONDA_PREFIX", "/opt/conda"), ("VIRTUAL_ENV", "/venv"), ("PATH", "/usr/bin")]);
        has(&found, "/usr", &["1st entry of PATH", "distribution package"]);
        has(&found, "/usr/lib/nvidia-cuda-toolkit", &["distribution package"]);
        has(&found, "/opt/conda", &["conda environment", "usual place"]);
        has(&found, "/venv/lib/python3.11/site-packages/nvidia/cu13", &["Python package"]);
        has(&found, "/venv/lib/python3.11/site-packages/nvidia/cuda_runtime", &["Python package"]);
        for below in ["cuda", "cuda/12.3", "compilers"] {
            has(&found, &format!("/{sdk}/{below}"), &["NVIDIA HPC SDK"]);
        }
        assert_eq!(found.len(), 8, "{found:#?}");
    }

    #[test]
    fn an_empty_machine_has_none() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(find(dir.path(), &[("PATH", "/usr/bin:/none"), ("CUDA_HOME", "/usr/local/cuda")]), []);
    }
}
