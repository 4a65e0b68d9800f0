//! The first and the last line of a report: what was judged, and what no finding proves.

use super::driver_libs::{is_compat, is_stub, library_at};
use super::{Case, Judged};
use crate::facts::gpu::{Device, GpuFacts};
use crate::facts::observed::Missing;
use crate::text::{count, join};

/// Interpreter, torch, DeepSpeed, the toolkit that torch picks, GPUs: one item each.
pub fn subject(case: &Case<'_>) -> Vec<String> {
    let mut parts = Vec::new();
    match case.python() {
        Ok(Some(python)) => {
            let version = python.version.as_ref().map(|version| format!(" {version}")).unwrap_or_default();
            parts.push(format!("python{version} ({})", python.path));
        }
        Ok(None) => parts.push("no python on PATH".to_owned()),
        Err(missing) => parts.push(format!("python unknown ({})", missing.why)),
    }
    match case.torch() {
        Ok(Some(torch)) => {
            let build = match (torch.cuda, &torch.hip) {
                (Some(cuda), _) if torch.version.local().is_none() => format!(" (CUDA {cuda})"),
                (None, Some(hip)) => format!(" (HIP {hip})"),
                (None, None) => " (no CUDA)".to_owned(),
                _ => String::new(),
            };
            parts.push(format!("torch {}{build}", torch.version));
        }
        Ok(None) => parts.push("no torch".to_owned()),
        Err(missing) => parts.push(format!("torch unknown ({})", missing.why)),
    }
    if let Ok(Some(deepspeed)) = case.deepspeed() {
        parts.push(format!("deepspeed {}", deepspeed.version));
    }
    parts.push(toolkit(case));
    parts.push(gpus(case));
    parts
}

fn toolkit(case: &Case<'_>) -> String {
    match case.toolkit() {
        Ok(Some(toolkit)) => {
            let release = toolkit.release().map_or("of unknown release".to_owned(), |release| release.to_string());
            let by = case.cuda_home().by.source().map(|source| format!(", {source}")).unwrap_or_default();
            format!("CUDA {release} ({}{by})", toolkit.root)
        }
        Ok(None) => match case.toolkits().iter().filter(|toolkit| toolkit.nvcc.value().is_some()).count() {
            0 => "no CUDA toolkit".to_owned(),
            number => format!("{} that torch does not find", count(number, "CUDA toolkit")),
        },
        Err(missing) => format!("toolkits unknown ({})", missing.why),
    }
}

/// `2 x NVIDIA H100 80GB HBM3 (9.0), driver 550.54.15`
fn gpus(case: &Case<'_>) -> String {
    let facts = &case.facts.gpu;
    let mut kinds: Vec<(String, usize)> = Vec::new();
    for device in facts.devices.value().map_or(&[][..], Vec::as_slice) {
        let name = name(device);
        match kinds.iter_mut().find(|(known, _)| *known == name) {
            Some((_, number)) => *number += 1,
            None => kinds.push((name, 1)),
        }
    }
    let names: Vec<String> =
        kinds.into_iter().map(|(name, number)| if number == 1 { name } else { format!("{number} x {name}") }).collect();
    let driver = match driver(facts) {
        Some(driver) => format!(", driver {driver}"),
        None if facts.driver.is_absent() && names.is_empty() => libraries(case).unwrap_or_default(),
        None => String::new(),
    };
    if names.is_empty() { format!("no GPU seen{driver}") } else { format!("{}{driver}", join(&names)) }
}

fn name(device: &Device) -> String {
    let name = device.name.clone().unwrap_or_else(|| "GPU of unknown name".to_owned());
    match device.capability {
        Some(capability) => format!("{name} ({capability})"),
        None => name,
    }
}

/// `, driver libraries 535.261.03 without a device`: what a distribution's packages leave on a machine that has no GPU, and no fault.
fn libraries(case: &Case<'_>) -> Option<String> {
    let path = case.process().ok()?.extension_gets("libcuda.so.1").path().cloned()?;
    let library = library_at(case, &path).filter(|library| !is_stub(library) && !is_compat(library))?;
    let release = library.release.as_ref().map(|release| format!(" {release}")).unwrap_or_default();
    Some(format!(", driver libraries{release} without a device"))
}

/// The release of the driver at work.
fn driver(facts: &GpuFacts) -> Option<String> {
    let driver = facts.driver.value()?;
    let of_module = driver.kernel.value().map(|module| &module.version);
    let of_nvml = driver.nvml.value().and_then(|nvml| nvml.driver.as_ref());
    of_module.or(of_nvml).map(ToString::to_string)
}

/// Whether there was anything to judge: torch, DeepSpeed, a toolkit, or a driver.
pub fn anything(case: &Case<'_>) -> bool {
    // What could not be read gives nothing to judge.
    let seen = |answer: Result<bool, Missing>| answer.unwrap_or(false);
    seen(case.torch().map(|torch| torch.is_some()))
        || seen(case.deepspeed().map(|deepspeed| deepspeed.is_some()))
        || !case.toolkits().is_empty()
        || case.facts.gpu.driver_seen()
        || case.facts.gpu.devices.value().is_some_and(|devices| !devices.is_empty())
}

/// What a machine without findings has been shown to be able to do, and what was not tested.
pub fn proves(case: &Case<'_>, judged: &Judged) -> String {
    let mut parts = Vec::new();
    let torch = case.torch().ok().flatten();
    let nvcc = case.nvcc().ok().flatten();
    let unread = case.torch().is_err();
    let failed = judged.undecided.iter().any(|one| one.failed);
    let tried = case.facts.probe.value().is_some_and(crate::facts::probe::Probe::proven);
    parts.push(match (case.purpose.builds(), torch, nvcc) {
        (false, ..) => "build: not asked".to_owned(),
        (true, None, Some(_)) if tried && !unread => "build: no torch; the toolkit compiles, links and loads".to_owned(),
        (true, Some(_), Some(_)) if tried => "setup build and JIT: ok, a trial was compiled, linked and loaded".to_owned(),
        (true, None, _) if unread => "build: not judged, torch could not be read".to_owned(),
        (true, None, _) => "build: not judged, no torch".to_owned(),
        (true, Some(_), None) => "build: not judged, no nvcc".to_owned(),
        (true, Some(_), Some(_)) if failed => "setup build and JIT: nothing against it in what could be read".to_owned(),
        (true, Some(_), Some(_)) => "setup build and JIT: ok by the facts, nothing was compiled".to_owned(),
    });
    let devices = case.facts.gpu.devices.value().map_or(0, Vec::len);
    let run = case.facts.probe.value().and_then(|probe| probe.execution.value());
    let nccl = case.facts.nccl.value().and_then(|nccl| nccl.run.value());
    parts.push(match (case.purpose.runs(), devices) {
        (false, 0) => "run: not tested, no GPU".to_owned(),
        (false, _) => "run: not asked".to_owned(),
        (true, 0) => "run: not judged, no GPU seen".to_owned(),
        (true, _) if run.is_some_and(|execution| !execution.devices.is_empty()) => {
            format!("run: {}", run.map(super::kernel::proves).unwrap_or_default())
        }
        (true, _) if torch.is_none() => "run: not judged, no torch".to_owned(),
        (true, _) if nccl.is_some() => "run: ok by the facts, no kernel was run".to_owned(),
        (true, _) => "run: ok by the facts, nothing was run".to_owned(),
    });
    if let Some(nccl) = nccl.filter(|nccl| !nccl.rows.is_empty()) {
        parts.push(format!("NCCL: right on {}", count(nccl.ranks.len(), "GPU")));
    }
    parts.join("; ")
}

/// What to do where there is nothing to judge.
pub fn point_at_something(case: &Case<'_>) -> String {
    let python = match (case.python(), case.torch()) {
        (Ok(Some(_)), Err(missing)) => format!("torch could not be read ({})", missing.why),
        (Ok(Some(python)), _) => format!("`{}` has neither torch nor DeepSpeed", python.path),
        (Err(missing), _) => format!("Python could not be looked at ({})", missing.why),
        (Ok(None), _) => "no Python on PATH".to_owned(),
    };
    format!(
        "nothing to judge: {python}, there is no CUDA toolkit and no NVIDIA driver; activate the environment or name it with `--python PATH`, set `CUDA_HOME`, or judge another machine with `--root DIR` or `--from FILE`"
    )
}
