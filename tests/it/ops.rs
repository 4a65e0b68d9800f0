//! What each op of DeepSpeed needs, tried with the lab's real toolkits: everything that can compile does, and what is missing has its id.

use crate::util::{Doctor, Output, lab, program, trial_with};
use ds_doctor::collect;
use ds_doctor::facts::probe::{OpTrial, StepName};
use ds_doctor::facts::snapshot::Snapshot;
use ds_doctor::host::{Environment, Host as _, Live, Scratch};
use ds_doctor::knowledge::Knowledge;
use ds_doctor::knowledge::schema::deepspeed::AcceleratorKind;
use ds_doctor::model::build_flags::{self, Choice};
use ds_doctor::model::cuda_home::cuda_home;
use ds_doctor::model::python;
use ds_doctor::probe::trial::environment;
use ds_doctor::probe::{Bench, ops};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

pub fn trials() -> Vec<Trial> {
    let toolkit = |part: &str| lab(&format!("{part}/nvidia/cu13")).and_then(|home| Ok((home, lab("torch-venv")?, program("c++")?)));
    let mut trials = vec![
        trial_with("ops::a_whole_toolkit_serves_all_that_needs_only_it", toolkit("full-cu130"), |(home, venv, _)| whole(&home, &venv)),
        trial_with("ops::the_bare_toolkit_of_pip", toolkit("pip-cu130"), |(home, venv, _)| bare(&home, &venv)),
        trial_with("ops::the_command_proves_what_it_says", toolkit("full-cu130"), |(home, venv, _)| {
            let rows = proved(&|| Doctor::new([]).env("CUDA_HOME", &home), &venv, "cpu");
            assert!(["cpu_adam", "fused_adam", "pin_memory"].iter().all(|op| passed(&rows).contains(op)), "{rows:#?}");
        }),
    ];
    let long = match std::env::var_os("DS_DOCTOR_LONG") {
        Some(_) => toolkit("pip-cu130"),
        None => Err("compiles for every op, a minute; DS_DOCTOR_LONG=1 runs it".to_owned()),
    };
    trials
        .push(trial_with("ops_plan::long_the_trial_proves_the_ops_of_pips_toolkit", long, |(home, venv, _)| through_overlay(&home, &venv)));
    trials
}

struct Tried(BTreeMap<String, OpTrial>);

impl Tried {
    fn by(home: &Path, venv: &Path, deepspeed: &str, kind: AcceleratorKind, more: &[(&str, &str)]) -> Self {
        let path = format!("{}:/usr/bin:/bin", venv.join("bin").display());
        let home = home.to_str().unwrap();
        let env = [("PATH", path.as_str()), ("CUDA_HOME", home), ("TORCH_CUDA_ARCH_LIST", "8.0;9.0")];
        let env: Environment = env.iter().chain(more).map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let host = Live::with_env(env);
        let facts: Snapshot = collect::snapshot(&host, &collect::Options::default());
        let know = Knowledge::embedded();
        let interpreter = python::chosen(&facts).interpreter;
        let torch = interpreter.and_then(|python| python.torch.value());
        let home = cuda_home(&facts, &know, torch);
        let chain = build_flags::toolchain(&Choice { facts: &facts, know: &know, home: &home, torch, deepspeed: None, gpus: &[] }).unwrap();
        let folder = Scratch::new(&std::env::temp_dir()).unwrap();
        let system = host.system().unwrap();
        let env = environment(&facts, &folder);
        let bench = Bench { host: &host, system, know: &know, chain: &chain, folder: &folder, limit: Duration::from_secs(120), env: &env };
        let deepspeed = deepspeed.parse().unwrap();
        let ask = ops::Ask {
            facts: &facts,
            python: interpreter,
            deepspeed: &deepspeed,
            accelerator: kind,
            which: ops::Which::All,
            with_torch: false,
        };
        Self(ops::run(&bench, &ask, None).into_iter().map(|tried| (tried.op.clone(), tried)).collect())
    }

    /// `passed`, or the id of the failure and the step.
    fn outcome(&self, op: &str) -> String {
        let tried = &self.0[op];
        match tried.steps.iter().find_map(|step| Some((step, step.failure()?))) {
            None if tried.passed() => "passed".to_owned(),
            None => panic!("{tried:?}"),
            Some((step, failure)) => match &failure.meaning {
                Some(meaning) => format!("{} ({})", meaning.id, step.name),
                None => panic!("nobody knows this failure: {failure:?}"),
            },
        }
    }
}

fn whole(home: &Path, venv: &Path) {
    let tried = Tried::by(home, venv, "0.19.8", AcceleratorKind::Cuda, &[]);
    assert_eq!(tried.0.len(), 23);
    let has = |header: &str| Path::new("/usr/include").join(header).exists();
    for op in tried.0.keys() {
        let expected = match op.as_str() {
            "cutlass_ops" | "ragged_device_ops" => "ds-kernels-missing (compile)",
            "evoformer_attn" => "cutlass-missing (compile)",
            "fp_quantizer" => "ds-op-source-broken (compile)",
            "dc" if !has("nccl.h") => "nccl-header-missing (host compile)",
            // DeepSpeed's own test comes first, and links.
            "async_io" if !has("libaio.h") => "libaio-missing (link)",
            "gds" if !has("libaio.h") => "libaio-missing (link)",
            "async_io" | "gds" | "dc" => continue,
            _ => "passed",
        };
        assert_eq!(tried.outcome(op), expected, "{op}: {:#?}", tried.0[op]);
    }
    // Every step that passed was really run, and the libraries of the row were named.
    let linked = |op: &str| {
        let link = tried.0[op].steps.iter().find(|step| step.name == StepName::Link).unwrap();
        link.command.as_ref().unwrap().argv.iter().map(|word| word.0.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    assert!(linked("transformer").contains(&"-lcurand".to_owned()));
    assert!(!linked("fused_adam").contains(&"-lcurand".to_owned()));
}

fn bare(home: &Path, venv: &Path) {
    let tried = Tried::by(home, venv, "0.18.9", AcceleratorKind::Cuda, &[]);
    for (op, expected) in [
        ("transformer", "missing-cuda-headers (compile)"),
        ("fused_adam", "missing-cuda-headers (compile)"),
        ("ragged_ops", "linker-cannot-find-cuda-lib (link)"),
        ("cpu_adam", "linker-cannot-find-cuda-lib (link)"),
        ("utils", "passed"),
    ] {
        assert_eq!(tried.outcome(op), expected, "{op}: {:#?}", tried.0[op]);
    }
}

/// What is foretold of each op is what its trial meets.
fn proved(args: &dyn Fn() -> Doctor, venv: &Path, accelerator: &str) -> Vec<Value> {
    let path = format!("{}:/usr/bin:/bin", venv.join("bin").display());
    let out: Output = args()
        .args(["ops", "--probe", "--timeout", "300", "--format", "json", "--deepspeed", "0.19.8"])
        .env("PATH", path)
        .env("DS_ACCELERATOR", accelerator)
        .env("TORCH_CUDA_ARCH_LIST", "9.0")
        .timeout(Duration::from_secs(900))
        .run();
    assert_eq!(out.code, Some(0), "{}{}", out.stdout, out.stderr);
    let said: Value = serde_json::from_str(&out.stdout).unwrap();
    assert_eq!(said["result"]["accelerator"], accelerator);
    let rows = said["result"]["ops"].as_array().unwrap().clone();
    for row in &rows {
        let tried = &row["tried"];
        // A placeholder has nothing to try.
        if tried.is_null() {
            assert_eq!(row["op"], "deepspeed_not_implemented");
            continue;
        }
        let ids: Vec<&str> = row["jit"]["why"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap()).collect();
        assert_eq!(tried["passed"], row["jit"]["can"] == "yes", "{row:#}");
        assert_eq!(tried["passed"], row["prebuild"]["can"] == "yes", "{row:#}");
        let id = tried["id"].as_str();
        assert!(tried["passed"] == true || id.is_none_or(|id| ids.contains(&id)), "{row:#}");
    }
    rows
}

fn passed(rows: &[Value]) -> Vec<&str> {
    rows.iter().filter(|row| row["tried"]["passed"] == true).map(|row| row["op"].as_str().unwrap()).collect()
}

/// An overlay of PyPI's bare toolkit, with what torch's own packages have.
fn through_overlay(home: &Path, venv: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let overlay = folder.path().join("cuda");
    let path = format!("{}:/usr/bin:/bin", venv.join("bin").display());
    let made = Doctor::new(["overlay", "create"]).arg(&overlay).env("PATH", path).env("CUDA_HOME", home).run();
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let rows = proved(&|| Doctor::new([]).env("CUDA_HOME", &overlay), venv, "cuda");
    let done = passed(&rows);
    for op in ["cpu_adam", "fused_adam", "fused_lamb", "inference_core_ops", "quantizer", "ragged_ops", "utils"] {
        assert!(done.contains(&op), "{op}: {done:?}");
    }
    // No package of torch's has cuda_profiler_api.h.
    assert!(!done.contains(&"random_ltd") && !done.contains(&"transformer"), "{done:?}");
}
