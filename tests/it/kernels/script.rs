//! `tests/gpu/run.sh`, the script for machines with a GPU: whole, with a real toolkit and fake GPUs, and without a GPU.

use crate::fake::{build, compiler, driver};
use crate::gpu_e2e::{RELEASE, SHOW_DRIVER, namespace};
use crate::util::{BINARY, Doctor, lab, program, trial_with};
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/gpu/run.sh");
const RUNTIME_MAP: &str = concat!("-Wl,--version-script=", env!("CARGO_MANIFEST_DIR"), "/tests/fake/cudart.map");

/// Little is free, so that little is copied and NCCL takes small sizes; the driver API counts in megabytes.
const GPUS: &str = "count 2\nversion 13000\n0.name NVIDIA H100\n1.name NVIDIA H100\n0.free 600\n1.free 600\n0.bus 0000:1a:00.0\n1.bus 0000:2a:00.0\nasks 1\n";
const NVML: &str = "count 2\ncuda 13000\n0.name NVIDIA H100\n1.name NVIDIA H100\n0.total 2147483648\n1.total 2147483648\n0.free 1074790400\n\
                    1.free 1074790400\n1.minor 1\n1.bus 00000000:2A:00.0\n";

pub fn trials() -> Vec<Trial> {
    let need = compiler().and_then(|()| namespace()).and_then(|()| program("bash")).and_then(|_| lab("full-cu130/nvidia/cu13"));
    vec![
        trial_with("kernels::script_for_machines_with_a_gpu", need, |home| whole(&home)),
        trial_with("kernels::script_without_a_gpu_says_so", namespace(), |()| {
            let out = Doctor::new([SCRIPT, BINARY]).program("bash").run();
            assert_eq!((out.code, out.stderr.as_str()), (Some(2), "no GPU: not run\n"), "{out:?}");
        }),
    ]
}

fn whole(home: &Path) {
    let fakes = driver(RELEASE, &format!("driver {RELEASE}\n{NVML}"), GPUS);
    let at = |name: &str| fakes.path().join(name);
    let shared = format!("{GPUS}shared {}\n", fakes.path().display());
    for (source, name, script, more) in
        [("cudart.c", "libcudart.so.13", GPUS, Some(RUNTIME_MAP)), ("nccl.c", "libnccl.so.2", shared.as_str(), None)]
    {
        let file = at(&format!("{name}.script"));
        fs::write(&file, script).unwrap();
        let path = format!("-DSCRIPT_PATH=\"{}\"", file.display());
        build(source, &at(name), &[path.as_str()].into_iter().chain(more).collect::<Vec<_>>());
    }
    fs::write(at("nvidia-smi"), "#!/bin/sh\ncase $* in *compute_cap*) echo 9.0;; *) echo 'GPU 0: fake';; esac\n").unwrap();
    fs::set_permissions(at("nvidia-smi"), fs::Permissions::from_mode(0o755)).unwrap();
    let doctor = Doctor::new(["-rm", "sh", "-c", SHOW_DRIVER, "sh", RELEASE, "bash", SCRIPT, BINARY]).program("unshare");
    let doctor = doctor.env("PATH", format!("{}:/usr/bin:/bin", fakes.path().display())).env("CUDA_HOME", home);
    let out = doctor.env("LD_LIBRARY_PATH", fakes.path()).timeout(Duration::from_secs(600)).run();
    let rows: Vec<&str> = out.stdout.lines().skip_while(|line| !line.starts_with("row ")).skip(1).collect();
    assert_eq!(out.code, Some(0), "{rows:#?}\n{}", out.stdout);
    // What was skipped, for want of a torch that sees the GPUs.
    let skipped: Vec<_> = rows.iter().filter(|row| row.contains(" skipped ")).map(|row| row.split("  ").next().unwrap()).collect();
    assert_eq!((skipped, rows.iter().filter(|row| row.contains(" ok ")).count()), (vec!["arch-list against torch"], 11), "{rows:#?}");
}
