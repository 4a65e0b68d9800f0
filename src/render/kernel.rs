//! What running the kernels showed: lines for people, and a part of the `result` of the envelope, version 1.

use crate::facts::kernel::{CallFailed, DeviceRun, Execution, Fault, Gpu, KernelResult, KernelVerdict, Listing, Outcome, Ran, WayRun};
use crate::facts::observed::Observed;
use crate::text::{clean, count};
use serde::Serialize;

#[derive(Debug, Serialize)]
pub struct JsonExecution {
    /// Of the random input.
    pub seed: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub library: Option<String>,
    /// The CUDA release that the driver serves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// Why the driver could not be asked for its GPUs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub gpus: Vec<JsonGpu>,
}

#[derive(Debug, Serialize)]
pub struct JsonGpu {
    pub ordinal: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capability: Option<String>,
    pub proven: bool,
    /// GB/s that the memory is made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_gbps: Option<f64>,
    pub ways: Vec<JsonWay>,
}

#[derive(Debug, Serialize)]
pub struct JsonWay {
    /// `runtime`, `cubin`, `ptx`
    pub way: String,
    /// `passed`, `failed`, `busy`, `skipped`
    pub outcome: &'static str,
    /// Why it did not pass.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub line: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loaded: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// GB/s of the copy, read and written together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<JsonKernel>,
}

#[derive(Debug, Serialize)]
pub struct JsonKernel {
    pub name: String,
    /// `passed`, `wrong`, `failed`, `skipped`
    pub outcome: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub line: String,
}

pub fn json(execution: &Observed<Execution>) -> Option<JsonExecution> {
    let execution = execution.value()?;
    let (library, cuda) = match &execution.listing {
        Listing::Listed { library, cuda } | Listing::Failed { library, cuda, .. } => (library.path.as_ref(), *cuda),
        Listing::Fault(_) => (None, None),
    };
    Some(JsonExecution {
        seed: execution.seed,
        library: library.map(ToString::to_string),
        cuda: cuda.map(|cuda| cuda.to_string()),
        failure: unlisted(&execution.listing),
        gpus: execution.devices.iter().map(gpu_json).collect(),
    })
}

fn gpu_json(run: &DeviceRun) -> JsonGpu {
    let Gpu { ordinal, name, uuid, capability, bandwidth } = run.gpu.clone();
    let ways = run.ways.iter().map(way_json).collect();
    JsonGpu { ordinal, name, uuid, capability: capability.map(|c| c.to_string()), proven: run.proven(), memory_gbps: bandwidth, ways }
}

fn way_json(run: &WayRun) -> JsonWay {
    let (outcome, line) = way(&run.outcome);
    let ran = match &run.outcome {
        Outcome::Ran(ran) => Some(ran),
        _ => None,
    };
    JsonWay {
        way: run.way.to_string().to_lowercase(),
        outcome,
        line,
        loaded: ran.and_then(|ran| ran.loaded.as_ref()).map(ToString::to_string),
        runtime: ran.and_then(|ran| ran.runtime).map(|runtime| runtime.to_string()),
        copy_gbps: ran.and_then(|ran| ran.bandwidth),
        kernels: ran.map(|ran| ran.kernels.iter().map(kernel_json).collect()).unwrap_or_default(),
    }
}

fn kernel_json(kernel: &KernelResult) -> JsonKernel {
    let (outcome, line) = verdict(&kernel.verdict);
    JsonKernel { name: kernel.name.clone(), outcome, line }
}

/// A line for each way on each GPU; with `all` each kernel too.
pub fn table(execution: &Observed<Execution>, all: bool) -> Vec<String> {
    let execution = match execution {
        Observed::Seen { value } => value,
        Observed::Skipped { why } | Observed::Failed { why } if all => return vec![row("run", "not run", why)],
        _ => return Vec::new(),
    };
    let mut lines: Vec<String> = unlisted(&execution.listing).map(|why| row("driver", "failed", &why)).into_iter().collect();
    for run in &execution.devices {
        lines.push(row(&format!("GPU {}", run.gpu.ordinal), "", &about(&run.gpu)));
        for way_run in &run.ways {
            let (word, why) = way(&way_run.outcome);
            let word = if word == "passed" { "ok" } else { word };
            let text = match &way_run.outcome {
                Outcome::Ran(ran) => {
                    [why, proven(ran, &run.gpu)].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("; ")
                }
                _ => why,
            };
            lines.push(row(&format!("  {}", way_run.way), word, &text));
            let Outcome::Ran(ran) = &way_run.outcome else { continue };
            for kernel in ran.kernels.iter().filter(|kernel| all || matches!(kernel.verdict, KernelVerdict::Wrong { .. })) {
                let (word, why) = verdict(&kernel.verdict);
                lines.push(row(&format!("    {}", kernel.name), if word == "passed" { "ok" } else { word }, &why));
            }
        }
    }
    lines
}

/// The columns of a trial's steps, without a time.
fn row(name: &str, word: &str, text: &str) -> String {
    format!("{name:<13} {word:<11} {:>7}  {}", "", clean(text)).trim_end().to_owned()
}

fn about(gpu: &Gpu) -> String {
    let name = gpu.name.clone().unwrap_or_else(|| "of unknown name".to_owned());
    match gpu.capability {
        Some(capability) => format!("{name} ({capability})"),
        None => name,
    }
}

/// `8 kernels, copy 2890 of 3352 GB/s`
fn proven(ran: &Ran, gpu: &Gpu) -> String {
    let passed = ran.kernels.iter().filter(|kernel| kernel.verdict == KernelVerdict::Passed).count();
    let skipped = ran.kernels.iter().filter(|kernel| matches!(kernel.verdict, KernelVerdict::Skipped { .. })).count();
    let mut parts = vec![format!("{} right", count(passed, "kernel"))];
    if skipped > 0 {
        parts.push(format!("{skipped} not run"));
    }
    if let Some(speed) = ran.bandwidth {
        parts.push(match gpu.bandwidth {
            Some(figure) => format!("copy {speed:.0} of {figure:.0} GB/s"),
            None => format!("copy {speed:.0} GB/s"),
        });
    }
    parts.join(", ")
}

fn way(outcome: &Outcome) -> (&'static str, String) {
    match outcome {
        Outcome::Ran(ran) if ran.passed() => ("passed", String::new()),
        Outcome::Ran(ran) => {
            let bad = |kernel: &&KernelResult| matches!(kernel.verdict, KernelVerdict::Wrong { .. } | KernelVerdict::Failed { .. });
            let first = ran.kernels.iter().find(bad);
            (
                "failed",
                first.map_or_else(|| "no kernel was run".to_owned(), |kernel| format!("{}: {}", kernel.name, verdict(&kernel.verdict).1)),
            )
        }
        Outcome::Failed { failed } => ("failed", call(failed)),
        Outcome::Busy { why } => ("busy", why.clone()),
        Outcome::Skipped { why } => ("skipped", why.clone()),
        Outcome::Fault(fault) => ("failed", of_fault(fault)),
    }
}

fn verdict(verdict: &KernelVerdict) -> (&'static str, String) {
    match verdict {
        KernelVerdict::Passed => ("passed", String::new()),
        KernelVerdict::Wrong { wrong, of, index, expected, got } => {
            ("wrong", format!("{wrong} of {of} values wrong, the first at {index}: {got}, expected {expected}"))
        }
        KernelVerdict::Failed { failed } => ("failed", call(failed)),
        KernelVerdict::Skipped { why } => ("skipped", why.clone()),
    }
}

fn unlisted(listing: &Listing) -> Option<String> {
    match listing {
        Listing::Listed { .. } => None,
        Listing::Failed { failed, .. } => Some(call(failed)),
        Listing::Fault(fault) => Some(of_fault(fault)),
    }
}

fn call(failed: &CallFailed) -> String {
    match &failed.words {
        Some(words) => format!("{failed}: {words}"),
        None => failed.to_string(),
    }
}

fn of_fault(fault: &Fault) -> String {
    let doing = |at: &Option<String>| at.as_deref().map(|at| format!(" at {at}")).unwrap_or_default();
    match fault {
        Fault::NotLoaded { words } => words.clone(),
        Fault::Crashed { signal, at, .. } => format!("crashed{} (signal {signal})", doing(at)),
        Fault::TimedOut { seconds, at, .. } => format!("not done after {seconds} s{}", doing(at)),
        Fault::Unanswered { why } => why.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu::{Library, Status};
    use crate::facts::kernel::Way;
    use crate::version::Capability;

    #[test]
    fn a_table_of_a_good_and_a_bad_gpu() {
        let kernel = |name: &str, verdict| KernelResult { name: name.to_owned(), verdict };
        let wrong = KernelVerdict::Wrong { wrong: 1, of: 256, index: 3, expected: "7".to_owned(), got: "6".to_owned() };
        let fine = Ran { kernels: vec![kernel("reduce", KernelVerdict::Passed)], bandwidth: Some(2890.4), ..Ran::default() };
        let bad = Ran { kernels: vec![kernel("reduce", KernelVerdict::Passed), kernel("tensor", wrong)], ..Ran::default() };
        let refused = CallFailed {
            call: "cuModuleLoadDataEx".to_owned(),
            status: Status { code: 222, name: "CUDA_ERROR_UNSUPPORTED_PTX_VERSION".to_owned() },
            words: None,
        };
        let gpu = Gpu {
            ordinal: 0,
            name: Some("NVIDIA H100".to_owned()),
            capability: Some(Capability::new(9, 0)),
            bandwidth: Some(3352.3),
            ..Gpu::default()
        };
        let way = |way, outcome| WayRun { way, outcome };
        let devices = vec![
            DeviceRun {
                gpu: gpu.clone(),
                ways: vec![way(Way::Runtime, Outcome::Ran(fine)), way(Way::Ptx, Outcome::Failed { failed: refused })],
            },
            DeviceRun { gpu: Gpu { ordinal: 1, ..gpu }, ways: vec![way(Way::Runtime, Outcome::Ran(bad))] },
        ];
        let library = Library { asked: "libcuda.so.1".to_owned(), path: None, version: None };
        let execution = Observed::seen(Execution { seed: 1, listing: Listing::Listed { library, cuda: None }, devices });
        assert_eq!(
            table(&execution, false),
            [
                "GPU 0                              NVIDIA H100 (9.0)",
                "  runtime     ok                   1 kernel right, copy 2890 of 3352 GB/s",
                "  PTX         failed               cuModuleLoadDataEx answered CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)",
                "GPU 1                              NVIDIA H100 (9.0)",
                "  runtime     failed               tensor: 1 of 256 values wrong, the first at 3: 6, expected 7; 1 kernel right",
                "    tensor    wrong                1 of 256 values wrong, the first at 3: 6, expected 7",
            ]
        );
        let json = serde_json::to_value(json(&execution)).unwrap_or_default();
        assert_eq!(json["gpus"][0]["ways"][0]["outcome"], "passed");
        assert_eq!(json["gpus"][1]["ways"][0]["kernels"][1]["outcome"], "wrong");
        assert_eq!((&json["gpus"][0]["proven"], &json["gpus"][1]["proven"]), (&true.into(), &false.into()));
    }
}
