//! `ds-doctor probe` from nvcc to the GPU: a real toolkit, a fake driver and a fake runtime for what nvcc made.

use crate::fake::{build, compiler, driver};
use crate::gpu_e2e::{RELEASE, namespace, under_driver};
use crate::util::{lab, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// With little free memory, so that little is copied.
const TWO: &str = "count 2\n0.name NVIDIA H100\n1.name NVIDIA H100\n0.free 600\n1.free 600\nversion 13000\n";

/// What came of a run: the report, the exit code, and what was left in the folder for temporary files.
struct Run {
    report: Value,
    code: Option<i32>,
    left: Vec<String>,
}

/// With a libcudart that computes (`runtime`), or with the toolkit's own.
fn probe(home: &Path, script: &str, runtime: bool) -> Run {
    let nvml = format!(
        "driver {RELEASE}\ncuda 13000\n0.capability 90\n0.free 85000000000\n1.free 85000000000\n1.capability 90\n1.minor 1\n1.bus 00000000:2A:00.0\n{script}"
    );
    let fakes = driver(RELEASE, &nvml, script);
    if runtime {
        std::fs::write(fakes.path().join("cudart.script"), script).unwrap();
        let options = [
            format!("-DSCRIPT_PATH=\"{}\"", fakes.path().join("cudart.script").display()),
            format!("-Wl,--version-script={}", concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fake/cudart.map")),
        ];
        build("cudart.c", &fakes.path().join("libcudart.so.13"), &options.each_ref().map(String::as_str));
    }
    let tmp = tempfile::tempdir().unwrap();
    let env =
        [format!("CUDA_HOME={}", home.display()), format!("TMPDIR={}", tmp.path().display()), "TORCH_CUDA_ARCH_LIST=8.0 9.0".to_owned()];
    let env = env.iter().flat_map(|pair| ["--env", pair]);
    let args: Vec<&str> = ["probe", "--no-cache", "--format", "json"].into_iter().chain(env).collect();
    let out = under_driver(RELEASE, fakes.path().to_str().unwrap(), &args);
    let report = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {}{}", out.stdout, out.stderr));
    let left = std::fs::read_dir(tmp.path()).unwrap().map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    Run { report, code: out.code, left }
}

fn ids(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().filter_map(|finding| finding["id"].as_str()).collect()
}

fn outcomes(gpu: &Value) -> Vec<&str> {
    gpu["ways"].as_array().unwrap().iter().filter_map(|way| way["outcome"].as_str()).collect()
}

/// A trial of what the command says, given the toolkit.
type Told = (&'static str, fn(PathBuf));

pub fn trials() -> Vec<Trial> {
    let need = compiler().and_then(|()| namespace()).and_then(|()| lab("full-cu130/nvidia/cu13"));
    let all: [Told; 5] = [
        ("kernels::probe_proves_toolchain_and_execution", |home| {
            let Run { report, code, left } = probe(&home, TWO, true);
            let result = &report["result"];
            assert_eq!((&result["toolchain"], &result["execution"]), (&"proven".into(), &"proven".into()), "{report:#}");
            assert_eq!(result["summary"], "toolchain proven, execution proven on all 2 GPUs");
            for gpu in result["gpus"]["gpus"].as_array().unwrap() {
                assert_eq!(outcomes(gpu), ["passed"; 3], "{gpu:#}");
                for way in gpu["ways"].as_array().unwrap() {
                    assert_eq!(way["kernels"].as_array().unwrap().len(), 8);
                    let loaded = way["loaded"].as_str().unwrap();
                    match way["way"].as_str().unwrap() {
                        "runtime" => assert!(loaded.ends_with("/libcudart.so.13"), "{loaded}"),
                        "cubin" => assert!(loaded.contains("90") && loaded.ends_with(".cubin"), "{loaded}"),
                        _ => assert!(loaded.contains("90") && loaded.ends_with(".ptx"), "{loaded}"),
                    }
                }
            }
            assert_eq!((code, ids(&report), left), (Some(0), vec![], vec![]), "{report:#}");
        }),
        ("kernels::probe_names_the_gpu_that_computes_wrongly", |home| {
            let Run { report, code, left } = probe(&home, &format!("{TWO}1.ds_tensor.wrong 9\n"), true);
            assert_eq!((code, ids(&report)), (Some(1), vec!["kernel-wrong-result"]), "{report:#}");
            assert_eq!(report["findings"][0]["title"], "the kernel `tensor` gives wrong values on GPU 1 (NVIDIA H100)");
            assert_eq!((&report["result"]["execution"], left), (&"failed".into(), vec![]));
            assert_eq!(outcomes(&report["result"]["gpus"]["gpus"][0]), ["passed"; 3]);
        }),
        ("kernels::probe_with_a_driver_too_old_for_the_ptx_alone", |home| {
            let Run { report, code, .. } = probe(&home, &format!("{TWO}ptx 83\n"), true);
            // The GPU's own code runs.
            assert_eq!((code, &report["verdict"]), (Some(0), &"healthy".into()), "{report:#}");
            assert_eq!((ids(&report), &report["findings"][0]["severity"]), (vec!["ptx-newer-than-driver"], &"info".into()));
            assert_eq!(report["result"]["execution"], "proven");
            assert_eq!(outcomes(&report["result"]["gpus"]["gpus"][0]), ["passed", "passed", "failed"]);
        }),
        ("kernels::probe_survives_a_driver_that_crashes", |home| {
            let Run { report, code, left } = probe(&home, &format!("{TWO}ds_reduce.act crash\n"), true);
            assert_eq!((code, ids(&report), left), (Some(1), vec!["probe-crashed"], vec![]), "{report:#}");
        }),
        ("kernels::the_real_runtime_refuses_a_driver_that_is_too_old", |home| {
            let old = TWO.replace("13000", "12040");
            let Run { report, code, .. } = probe(&home, &old, false);
            assert_eq!((code, ids(&report)), (Some(1), vec!["driver-too-old"]), "{report:#}");
            let way = &report["result"]["gpus"]["gpus"][0]["ways"][0];
            assert!(way["line"].as_str().unwrap().contains("cudaErrorInsufficientDriver (35)"), "{way:#}");
        }),
    ];
    all.into_iter().map(|(name, run)| trial_with(name, need.clone(), run)).collect()
}
