//! The GPU worker and its client against fake driver libraries.

mod process;
mod real;

use crate::fake::{Fake, compile, compiler};
use crate::util::{BINARY, Doctor, trial, trial_with};
use ds_doctor::facts::gpu::{ComputeMode, Device, Memory};
use ds_doctor::facts::observed::Observed;
use ds_doctor::gpu::client::Client;
use ds_doctor::gpu::protocol::{DriverAnswer, NvmlAnswer, Request};
use ds_doctor::host::Live;
use ds_doctor::version::{Capability, CudaVersion};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const NVML: &str = "libnvidia-ml.so.1";
const CUDA: &str = "libcuda.so.1";

fn client(folder: &Path) -> Client {
    Client::new(Some(folder.as_os_str()), Duration::from_secs(30)).with_program(BINARY)
}

fn ask_nvml(script: &str, without: &[&str]) -> Observed<NvmlAnswer> {
    let fake = Fake::nvml(script, without);
    let (name, value) = fake.script();
    client(fake.path()).with_env(name, value).nvml(NVML)
}

fn ask_cuda(script: &str, without: &[&str], init: bool) -> Observed<DriverAnswer> {
    let fake = Fake::cuda(script, without);
    let (name, value) = fake.script();
    client(fake.path()).with_env(name, value).driver(CUDA, init)
}

fn seen<T: std::fmt::Debug>(observed: Observed<T>) -> T {
    match observed {
        Observed::Seen { value } => value,
        other => panic!("{other:?}"),
    }
}

fn why<T: std::fmt::Debug>(observed: Observed<T>) -> String {
    match observed {
        Observed::Failed { why } => why,
        other => panic!("{other:?}"),
    }
}

fn devices(answer: &NvmlAnswer) -> &[Device] {
    answer.devices.as_deref().unwrap()
}

/// Calls and codes that went wrong for one device.
fn errors(device: &Device) -> Vec<(&str, Option<u32>)> {
    device.errors.iter().map(|e| (e.call.as_str(), e.code)).collect()
}

/// A trial that needs a C compiler.
fn faked(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    trial_with(name, compiler(), move |()| run())
}

pub fn trials() -> Vec<Trial> {
    [nvml(), nvml_trouble(), driver(), vec![gate()], process::trials(), real::trials()].into_iter().flatten().collect()
}

fn nvml() -> Vec<Trial> {
    vec![
        faked("gpu::nvml_tells_every_device", || {
            let answer = seen(ask_nvml(
                "count 2\ndriver 550.144.03\ncuda 12040\n0.name NVIDIA H100 80GB HBM3\n0.capability 90\n0.total 85520809984\n0.free 85000000000\n\
                 1.name NVIDIA GeForce RTX 3090\n1.capability 86\n1.compute-mode 3\n1.persistence 0\n1.minor 7\n1.bus 00000000:C1:00.0\n",
                &[],
            ));
            assert!(answer.init.ok() && answer.errors.is_empty(), "{answer:?}");
            assert_eq!(answer.driver.as_ref().unwrap().text, "550.144.03");
            assert_eq!(answer.nvml.as_ref().unwrap().text, "12.550.144.03");
            assert_eq!(answer.cuda, Some(CudaVersion::new(12, 4)));
            let [first, second] = devices(&answer) else { panic!("{answer:?}") };
            assert_eq!(first.name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
            assert_eq!(first.capability, Some(Capability::new(9, 0)));
            assert_eq!(first.memory, Some(Memory { total: 85_520_809_984, free: 85_000_000_000 }));
            assert_eq!(first.uuid.as_deref(), Some("GPU-00000000-0000-0000-0000-000000000000"));
            assert_eq!((first.compute_mode, first.persistence, &first.mig), (Some(ComputeMode::Default), Some(true), &None));
            assert_eq!((second.index, second.capability), (1, Some(Capability::new(8, 6))));
            assert_eq!((second.compute_mode, second.persistence), (Some(ComputeMode::ExclusiveProcess), Some(false)));
            assert_eq!((second.minor, second.bus.as_deref()), (Some(7), Some("00000000:c1:00.0")));
            assert!(answer.devices.unwrap().iter().all(|d| d.errors.is_empty()));
        }),
        faked("gpu::nvml_without_devices_is_an_empty_list", || {
            let answer = seen(ask_nvml("count 0\n", &[]));
            assert_eq!(answer.devices, Some(Vec::new()));
        }),
        faked("gpu::nvml_lists_mig_instances_and_skips_empty_places", || {
            let answer = seen(ask_nvml(
                "count 2\n0.mig 1\n0.0.uuid MIG-aaaa\n0.0.name NVIDIA H100 MIG 1g.10gb\n0.0.total 10\n0.4.uuid MIG-bbbb\n1.mig 0\n1.pending 1\n",
                &[],
            ));
            let [first, second] = devices(&answer) else { panic!("{answer:?}") };
            let mig = first.mig.as_ref().unwrap();
            assert!(mig.enabled && first.errors.is_empty(), "{first:?}");
            let found: Vec<_> = mig.instances.iter().map(|i| (i.index, i.uuid.as_deref().unwrap())).collect();
            assert_eq!(found, [(0, "MIG-aaaa"), (4, "MIG-bbbb")]);
            assert_eq!(mig.instances[0].name.as_deref(), Some("NVIDIA H100 MIG 1g.10gb"));
            assert_eq!(mig.instances[0].memory.unwrap().total, 10);
            let mig = second.mig.as_ref().unwrap();
            assert_eq!((mig.enabled, mig.pending, mig.instances.len()), (false, true, 0));
        }),
        faked("gpu::nvml_device_errors_do_not_hide_other_devices", || {
            let answer = seen(ask_nvml(
                "count 4\n0.nvmlDeviceGetHandleByIndex_v2 15\n1.name NVIDIA A100\n2.nvmlDeviceGetMemoryInfo_v2 15\n2.nvmlDeviceGetName 999\n\
                 3.nvmlDeviceGetHandleByIndex_v2 4\n",
                &[],
            ));
            let [lost, fine, half, forbidden] = devices(&answer) else { panic!("{answer:?}") };
            assert_eq!(errors(lost), [("nvmlDeviceGetHandleByIndex_v2", Some(15))]);
            assert_eq!(lost.errors[0].why, "NVML_ERROR_GPU_IS_LOST (15)");
            assert_eq!((lost.index, &lost.name), (0, &None));
            assert_eq!((fine.name.as_deref(), fine.errors.len()), (Some("NVIDIA A100"), 0));
            assert_eq!(errors(half), [("nvmlDeviceGetName", Some(999)), ("nvmlDeviceGetMemoryInfo_v2", Some(15))]);
            assert!(half.capability.is_some() && half.uuid.is_some());
            assert_eq!(errors(forbidden), [("nvmlDeviceGetHandleByIndex_v2", Some(4))]);
        }),
        faked("gpu::nvml_of_an_old_driver_lacks_functions", || {
            let without =
                ["nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetPciInfo_v3", "nvmlSystemGetCudaDriverVersion_v2"];
            let answer = seen(ask_nvml("count 1\n0.total 42\n0.free 41\n", &without));
            let [device] = devices(&answer) else { panic!("{answer:?}") };
            assert_eq!(device.memory, Some(Memory { total: 42, free: 41 }), "the older form of the call is used");
            assert_eq!(errors(device), [("nvmlDeviceGetPciInfo_v3", None), ("nvmlDeviceGetMigMode", None)]);
            assert_eq!(device.errors[0].why, "the library has no function nvmlDeviceGetPciInfo_v3");
            assert_eq!((answer.cuda, answer.errors.len()), (None, 1));
        }),
    ]
}

fn nvml_trouble() -> Vec<Trial> {
    let mut trials: Vec<Trial> =
        [(9, "DRIVER_NOT_LOADED"), (18, "LIB_RM_VERSION_MISMATCH"), (4, "NO_PERMISSION"), (999, "UNKNOWN"), (12, "LIBRARY_NOT_FOUND")]
            .into_iter()
            .map(|(code, name)| {
                faked(&format!("gpu::nvml_init_answers_{code}"), move || {
                    let answer = seen(ask_nvml(&format!("nvmlInit_v2 {code}\ncount 1\n"), &[]));
                    assert_eq!(answer.init.to_string(), format!("NVML_ERROR_{name} ({code})"));
                    assert_eq!((&answer.devices, &answer.driver), (&None, &None));
                    assert!(answer.library.path.is_some_and(|p| p.ends_with(NVML)));
                })
            })
            .collect();
    trials.extend([
        faked("gpu::nvml_init_answers_a_code_of_the_future", || {
            let answer = seen(ask_nvml("nvmlInit_v2 4711\n", &[]));
            assert_eq!(answer.init.to_string(), "code 4711");
        }),
        faked("gpu::nvml_cannot_count", || {
            let answer = seen(ask_nvml("nvmlDeviceGetCount_v2 999\ncount 3\n", &[]));
            assert_eq!((answer.devices, answer.errors[0].code), (None, Some(999)));
        }),
        faked("gpu::nvml_counts_rubbish", || {
            let answer = seen(ask_nvml("count 4000000000\n", &[]));
            assert!(devices(&answer).len() <= 1024 && devices(&answer).iter().skip(16).all(|d| !d.errors.is_empty()));
        }),
        faked("gpu::nvml_without_init", || {
            let why = why(ask_nvml("", &["nvmlInit_v2"]));
            assert!(why.ends_with("libnvidia-ml.so.1 has no function nvmlInit_v2"), "{why}");
        }),
        faked("gpu::nvml_crashes", || {
            assert_eq!(why(ask_nvml("nvmlInit_v2.act crash\n", &[])), "libnvidia-ml.so.1 crashed when asked (signal 11)");
            assert_eq!(why(ask_nvml("count 1\nnvmlDeviceGetName.act abort\n", &[])), "libnvidia-ml.so.1 crashed when asked (signal 6)");
        }),
        faked("gpu::nvml_ends_the_process", || {
            assert_eq!(why(ask_nvml("nvmlInit_v2.act exit\n", &[])), "libnvidia-ml.so.1 ended the process that asked (exit code 3)");
        }),
        faked("gpu::nvml_hangs_or_floods", || {
            for act in ["hang", "flood"] {
                let fake = Fake::nvml(&format!("nvmlInit_v2.act {act}\n"), &[]);
                let (name, value) = fake.script();
                let begin = Instant::now();
                let limited =
                    Client::new(Some(fake.path().as_os_str()), Duration::from_millis(400)).with_program(BINARY).with_env(name, value);
                let why = why(limited.nvml(NVML));
                assert!(why.starts_with("libnvidia-ml.so.1 gave no answer within 0.4 s"), "{act}: {why}");
                assert!(begin.elapsed() < Duration::from_secs(5), "{act}: {:?}", begin.elapsed());
            }
        }),
        faked("gpu::nvml_prints_on_stdout_and_still_answers", || {
            let answer = seen(ask_nvml("count 1\nnvmlInit_v2.act print {\"answer\":\"not-found\",\"why\":\"no\"}\n", &[]));
            assert_eq!(devices(&answer).len(), 1);
        }),
        trial("gpu::nvml_is_absent", || {
            let folder = tempfile::tempdir().unwrap();
            match client(folder.path()).nvml("libnvidia-ml-of-no-driver.so.1") {
                Observed::Absent { looked } => assert_eq!(looked, ["libnvidia-ml-of-no-driver.so.1"]),
                other => panic!("{other:?}"),
            }
        }),
        trial("gpu::nvml_is_junk", || {
            for (content, words) in [(&b"junk"[..], "file too short"), (&[b'x'; 4096][..], "invalid ELF header"), (b"", "file too short")] {
                let folder = tempfile::tempdir().unwrap();
                std::fs::write(folder.path().join(NVML), content).unwrap();
                let why = why(client(folder.path()).nvml(NVML));
                assert!(why.contains(words) && why.contains(NVML), "{why}");
            }
        }),
        faked("gpu::nvml_lacks_a_library_of_its_own", || {
            // The file is there: not absent, and the words name what is missing.
            let folder = tempfile::tempdir().unwrap();
            let needed = folder.path().join("libneeded.so.1");
            compile("cuda.c", &needed, &[]);
            let script =
                format!("cc -shared -o {0}/{NVML} -Wl,--no-as-needed {1} -Wl,-rpath,/none", folder.path().display(), needed.display());
            let linked = Doctor::new([]).program("/bin/sh").args(["-c", &script]).run();
            assert_eq!(linked.code, Some(0), "{}", linked.stderr);
            std::fs::remove_file(&needed).unwrap();
            let why = why(client(folder.path()).nvml(NVML));
            assert!(why.starts_with("libneeded.so.1: cannot open shared object file"), "{why}");
        }),
    ]);
    trials
}

fn driver() -> Vec<Trial> {
    vec![
        faked("gpu::driver_tells_its_level_without_init", || {
            let answer = seen(ask_cuda("version 12080\ncuInit.act crash\n", &[], false));
            assert_eq!((answer.cuda, answer.init), (Some(CudaVersion::new(12, 8)), None));
            assert!(answer.status.ok() && answer.library.path.is_some_and(|p| p.ends_with(CUDA)));
        }),
        faked("gpu::driver_release_is_read_from_the_name_of_the_real_file", || {
            let fake = Fake::cuda("", &[]);
            std::fs::rename(fake.path().join(CUDA), fake.path().join("libcuda.so.570.86.15")).unwrap();
            std::os::unix::fs::symlink("libcuda.so.570.86.15", fake.path().join(CUDA)).unwrap();
            let (name, value) = fake.script();
            let answer = seen(client(fake.path()).with_env(name, value).driver(CUDA, false));
            assert_eq!(answer.library.version.unwrap().text, "570.86.15");
            assert_eq!(answer.library.path.unwrap().as_os_str(), fake.path().join("libcuda.so.570.86.15").as_os_str());
        }),
        faked("gpu::driver_init_codes", || {
            for (code, shown) in [
                (0, "CUDA_SUCCESS (0)"),
                (100, "CUDA_ERROR_NO_DEVICE (100)"),
                (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
                (31337, "code 31337"),
            ] {
                let answer = seen(ask_cuda(&format!("cuInit {code}\n"), &[], true));
                assert_eq!(answer.init.unwrap().to_string(), shown);
            }
        }),
        faked("gpu::driver_is_a_stub", || {
            let answer = seen(ask_cuda("cuDriverGetVersion 34\ncuInit 34\n", &[], true));
            assert_eq!((answer.cuda, answer.status.to_string()), (None, "CUDA_ERROR_STUB_LIBRARY (34)".to_owned()));
            assert_eq!(answer.init.unwrap().code, 34);
        }),
        faked("gpu::driver_is_the_file_that_cuda_programs_load_not_a_stub_beside_it", || {
            // cudarc would take the unversioned name first.
            let fake = Fake::cuda("version 12040\n", &[]);
            compile("cuda.c", &fake.path().join("libcuda.so"), &["cuDriverGetVersion"]);
            let (name, value) = fake.script();
            let answer = seen(client(fake.path()).with_env(name, value).driver(CUDA, false));
            assert_eq!(answer.cuda, Some(CudaVersion::new(12, 4)));
        }),
        faked("gpu::driver_lacks_functions", || {
            let told = why(ask_cuda("", &["cuDriverGetVersion"], false));
            assert!(told.ends_with("has no function cuDriverGetVersion"), "{told}");
            let told = why(ask_cuda("", &["cuInit"], true));
            assert!(told.ends_with("has no function cuInit"), "{told}");
        }),
        faked("gpu::driver_crashes_and_hangs", || {
            assert_eq!(why(ask_cuda("cuInit.act crash\n", &[], true)), "libcuda.so.1 crashed when asked (signal 11)");
            let fake = Fake::cuda("cuInit.act hang\n", &[]);
            let (name, value) = fake.script();
            let limited = Client::new(Some(fake.path().as_os_str()), Duration::from_millis(300)).with_program(BINARY).with_env(name, value);
            assert_eq!(why(limited.driver(CUDA, true)), "libcuda.so.1 gave no answer within 0.3 s");
        }),
        trial("gpu::driver_is_absent", || {
            let folder = tempfile::tempdir().unwrap();
            assert!(client(folder.path()).driver("libcuda-of-no-driver.so.1", false).is_absent());
        }),
        faked("gpu::driver_leaves_nothing_behind", || {
            let temp = tempfile::tempdir().unwrap();
            let fake = Fake::cuda("cuInit.act crash\n", &[]);
            let (name, value) = fake.script();
            let links = temp.path().join("links");
            std::fs::create_dir(&links).unwrap();
            let request = Request::Driver { library: CUDA.to_owned(), links: Some(links.into()), init: true };
            let path = format!("{}:{}", temp.path().join("links").display(), fake.path().display());
            // Core files allowed, as on a developer's machine.
            let out = Doctor::new([])
                .program("/bin/sh")
                .args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh", BINARY, "__worker"])
                .arg(serde_json::to_string(&request).unwrap())
                .env("LD_LIBRARY_PATH", path)
                .env(name, value)
                .cwd(temp.path())
                .run();
            assert_eq!((out.signal, out.stdout.as_str()), (Some(11), ""));
            let left: Vec<_> = std::fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(left, ["links"], "no core file");
        }),
    ]
}

/// Where no driver shows, nothing is loaded, whatever libraries lie about.
fn gate() -> Trial {
    let need = compiler().and_then(|()| no_driver());
    trial_with("gpu::libraries_without_a_driver_are_not_asked", need, |()| {
        let fake = Fake::nvml("count 1\n", &[]);
        let env = [("LD_LIBRARY_PATH".into(), fake.path().into())].into();
        let facts = ds_doctor::collect::gpu::gpu(&Live::with_env(env), Duration::from_secs(10));
        // The worker's program would be this test binary, whose answer could only be a failure.
        assert!(facts.devices.is_absent() && facts.driver.is_absent(), "{facts:?}");
    })
}

pub fn no_driver() -> Result<(), String> {
    let shows = ["/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-gpu"].into_iter().find(|p| Path::new(p).exists());
    shows.map_or(Ok(()), |path| Err(format!("this machine has a driver: {path}")))
}

/// An executable shell script. Written by a child: an open handle of ours, inherited by another test's child, would make it busy.
fn program(text: &str) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("worker");
    let script = "cat > \"$1\" && chmod +x \"$1\"";
    let written = Doctor::new([]).program("/bin/sh").args(["-c", script, "sh"]).arg(&path).stdin(format!("#!/bin/sh\n{text}\n")).run();
    assert_eq!(written.code, Some(0), "{written:?}");
    (folder, path)
}
