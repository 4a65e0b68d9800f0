//! The driver libraries of a distribution on a machine without a device, and a toolkit's stubs.
//!
//! In a user namespace, where nobody may make a device node: as root `nvmlInit` leaves /dev/nvidiactl behind.

use super::{CUDA, NVML, client, no_driver, program, seen};
use crate::util::{BINARY, Doctor, lab, trial_with};
use libtest_mimic::Trial;
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    let wrapper = || program(&format!("exec unshare -r -- {BINARY} \"$@\""));
    let fenced = move |folder: &Path| {
        let (keep, path) = wrapper();
        (keep, client(folder).with_program(path))
    };
    let below = |part: &str, name: &'static str| {
        let root = lab(part)?;
        let found = walkdir::WalkDir::new(&root).into_iter().flatten().find(|e| e.file_name() == name && e.path().exists());
        found.map(|e| e.path().to_owned()).ok_or(format!("no {name} below {}", root.display()))
    };
    let namespaces = || {
        let tried = Doctor::new(["-r", "true"]).program("unshare");
        if tried.run().code == Some(0) { Ok(()) } else { Err("user namespaces are forbidden".to_owned()) }
    };
    let able = no_driver().and_then(|()| crate::util::program("unshare")).and_then(|_| namespaces());
    let driver = able.clone().and_then(|()| below("deb-driver", NVML)).map(|p| p.parent().unwrap().to_owned());
    let stub = |name| able.clone().and_then(|()| below("deb-cuda118", name)).map(|path| path.display().to_string());
    vec![
        trial_with("gpu::real_nvml_without_a_device", driver.clone(), move |folder| {
            let answer = seen(fenced(&folder).1.nvml(NVML));
            assert_eq!(answer.init.to_string(), "NVML_ERROR_DRIVER_NOT_LOADED (9)");
            assert!(answer.library.version.is_some(), "{answer:?}");
        }),
        trial_with("gpu::real_libcuda_without_a_device", driver, move |folder| {
            let answer = seen(fenced(&folder).1.driver(CUDA, true));
            assert!(answer.status.ok() && answer.cuda.is_some() && answer.library.version.is_some(), "{answer:?}");
            assert_eq!(answer.init.unwrap().to_string(), "CUDA_ERROR_NO_DEVICE (100)");
        }),
        trial_with("gpu::real_nvml_stub_of_a_toolkit_prints_its_warning_and_answers", stub("libnvidia-ml.so"), move |library| {
            let answer = seen(fenced(Path::new("/none")).1.nvml(&library));
            assert_eq!((answer.init.code, answer.library.version), (9, None));
        }),
        trial_with("gpu::real_libcuda_stub_of_a_toolkit", stub("libcuda.so"), move |library| {
            let answer = seen(fenced(Path::new("/none")).1.driver(&library, true));
            assert_eq!((answer.status.code, answer.init.unwrap().code, answer.cuda), (34, 34, None));
        }),
    ]
}
