//! Which links an overlay is planned with, by made-up toolkits.

use ds_doctor::collect::{Notes, toolkit};
use ds_doctor::facts::toolkit::Toolkit;
use ds_doctor::host::{Environment, Rooted};
use ds_doctor::repair::manifest::{Manifest, Why};
use ds_doctor::repair::plan::{HostGcc, Order, manifest, refusal};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

struct Tree {
    dir: tempfile::TempDir,
    home: &'static str,
}

impl Tree {
    fn new(home: &'static str, files: &[&str]) -> Self {
        let tree = Self { dir: tempfile::tempdir().unwrap(), home };
        for file in files {
            tree.put(&format!("{home}/{file}"), b"x");
        }
        tree
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        let path = self.dir.path().join(file.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn host(&self) -> Rooted {
        let env: Environment = [("CUDA_HOME".into(), self.home.into())].into();
        Rooted::new(self.dir.path(), env).unwrap()
    }

    fn toolkit(&self) -> Toolkit {
        let host = self.host();
        let all = toolkit::collect(&host, &toolkit::roots(&host, None, None), &mut Notes::new());
        let all = all.value().cloned().unwrap_or_default();
        all.into_iter().find(|toolkit| *toolkit.root == *Path::new(self.home)).expect("a toolkit")
    }

    fn plan(&self, change: impl FnOnce(&mut Order<'_>)) -> Manifest {
        let toolkit = self.toolkit();
        let mut order = Order { toolkit: &toolkit, packages: Vec::new(), compiler: None, driver: None };
        change(&mut order);
        manifest(&self.host(), &order)
    }
}

/// An ELF program that holds this text.
fn elf(text: &str) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
    bytes[20] = 1;
    bytes[52] = 64;
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes
}

fn to(manifest: &Manifest, at: &str) -> Option<(String, Why)> {
    manifest.links.iter().find(|link| *link.at == *Path::new(at)).map(|link| (link.to.to_string(), link.why))
}

/// What is where, and from where: the toolkit's own before a package's, a library that opens before one that is empty.
pub fn places() {
    let tree = Tree::new(
        "/opt/cuda",
        &[
            "bin/nvcc",
            "bin/gcc",
            "bin/x86_64-linux-gnu-g++-9",
            "include/cuda.h",
            "targets/x86_64-linux/include/cublas_v2.h",
            "version.json",
        ],
    );
    for file in ["lib/libcudart.so.12", "lib/libcudart.so.12.4.127", "lib/libcurand.so.10.3.5", "nvvm/bin/cicc", "nvvm/libdevice/x.bc"] {
        tree.put(&format!("/opt/cuda/{file}"), b"x");
    }
    tree.put("/opt/cuda/lib/libcublas.so.12", b"");
    tree.put("/opt/cuda/bin/nvcc", &elf("Cuda compilation tools, release 12.4, V12.4.131"));
    for file in ["include/cuda.h", "include/curand.h", "lib/libcublas.so.12", "lib/libcudart.so.13"] {
        tree.put(&format!("/site/nvidia/x/{file}"), b"x");
    }
    let plan = tree.plan(|order| {
        order.packages = vec![PathBuf::from("/site/nvidia/x")];
        order.compiler = Some(HostGcc { gcc: "/usr/bin/gcc-12".into(), gxx: "/usr/bin/g++-12".into() });
        order.driver = Some("/usr/lib/libcuda.so.1".into());
    });
    let is = |at: &str, target: &str, why: Why| assert_eq!(to(&plan, at), Some((target.to_owned(), why)), "{at}");
    is("bin/nvcc", "/opt/cuda/bin/nvcc", Why::Toolkit);
    is("include/cuda.h", "/opt/cuda/include/cuda.h", Why::Toolkit);
    is("include/cublas_v2.h", "/opt/cuda/targets/x86_64-linux/include/cublas_v2.h", Why::Toolkit);
    is("include/curand.h", "/site/nvidia/x/include/curand.h", Why::Package);
    is("lib64/libcublas.so.12", "/site/nvidia/x/lib/libcublas.so.12", Why::Package);
    is("lib64/libcublas.so", "libcublas.so.12", Why::Name);
    is("lib64/libcurand.so", "libcurand.so.10.3.5", Why::Name);
    is("lib64/stubs/libcuda.so", "/usr/lib/libcuda.so.1", Why::Driver);
    is("lib", "lib64", Why::Alias);
    is("nvvm/bin/cicc", "/opt/cuda/nvvm/bin/cicc", Why::Toolkit);
    is("nvvm/libdevice", "/opt/cuda/nvvm/libdevice", Why::Toolkit);
    is("nvvm/bin/gcc", "/usr/bin/gcc-12", Why::Compiler);
    is("nvvm/bin/g++", "/usr/bin/g++-12", Why::Compiler);
    is("version.json", "/opt/cuda/version.json", Why::Toolkit);
    for absent in ["bin/gcc", "bin/x86_64-linux-gnu-g++-9", "targets", "lib64/stubs"] {
        assert_eq!(to(&plan, absent), None, "{absent}");
    }
    // Of the toolkit's own major, though a package has a higher one, and by the name that outlives an update.
    is("lib64/libcudart.so", "libcudart.so.12", Why::Name);
}

/// The toolkit's stub comes before the driver's library, and what has a name already keeps it.
pub fn kept_names() {
    let tree = Tree::new("/opt/cuda", &["bin/nvcc", "lib64/libcudart.so", "lib64/libcudart.so.12", "lib64/stubs/libcuda.so"]);
    let plan = tree.plan(|order| order.driver = Some("/usr/lib/libcuda.so.1".into()));
    assert_eq!(to(&plan, "lib64/libcudart.so"), Some(("/opt/cuda/lib64/libcudart.so".to_owned(), Why::Toolkit)));
    assert_eq!(to(&plan, "lib64/stubs/libcuda.so"), Some(("/opt/cuda/lib64/stubs/libcuda.so".to_owned(), Why::Toolkit)));
    assert_eq!(plan.count(Why::Name), 0);
}

/// A distribution's toolkit has nothing to repair, and a script in nvcc's place is no compiler.
pub fn refusals() {
    let nvcc = elf("Cuda compilation tools, release 11.8, V11.8.89");
    let debian = Tree::new("/usr", &[]);
    debian.put("/bin/sh", &elf(""));
    debian.put("/usr/bin/nvcc", b"#!/bin/sh\nexec /usr/lib/nvidia-cuda-toolkit/bin/nvcc \"$@\"\n");
    debian.put("/usr/lib/nvidia-cuda-toolkit/bin/nvcc", &nvcc);
    let why = refusal(&debian.toolkit()).expect("refused");
    assert!(why.contains("CUDA_HOME=/usr"), "{why}");
    let wrapper = Tree::new("/opt/cuda", &["include/cuda.h"]);
    wrapper.put("/bin/sh", &elf(""));
    wrapper.put("/opt/cuda/bin/nvcc", b"#!/bin/sh\nexec /opt/other/bin/nvcc \"$@\"\n");
    wrapper.put("/opt/other/bin/nvcc", &nvcc);
    let why = refusal(&wrapper.toolkit()).expect("refused");
    assert!(why.contains("/opt/other/bin/nvcc") && why.contains("--toolkit"), "{why}");
    let bare = Tree::new("/opt/cuda", &["include/cuda.h"]);
    assert!(refusal(&bare.toolkit()).expect("refused").contains("no nvcc"));
}
