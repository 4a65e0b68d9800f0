//! The NCCL test as a fact: which library, in which environment, on which GPUs.
#![expect(clippy::disallowed_methods, reason = "reads NCCL's configuration files and the library that is tested")]

use crate::binary::FileAt;
use crate::binary::nccl::nccl_release;
use crate::checks::Case;
use crate::facts::gpu::{ComputeMode, Device};
use crate::facts::nccl::{CudaDevice, End, Nccl, Setting, Step, Tested};
use crate::facts::observed::Observed;
use crate::gpu::client::Client;
use crate::gpu::nccl::client::{Plan, Watch};
use crate::knowledge::schema::signatures::Tool;
use crate::logs::Reader;
use crate::model::loader::{Answer, Via};
use crate::text::join;
use anyhow::bail;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIBRARY: &str = "libnccl.so.2";
const LIBCUDA: &str = "libcuda.so.1";
/// 8 B to 256 MiB.
pub const SIZES: [u64; 6] = [8, 256, 8 << 10, 256 << 10, 8 << 20, 256 << 20];
/// The largest size of the short test.
pub const SHORT: u64 = 8 << 20;
/// The longest that a step may take: a machine of eight GPUs without persistence mode needs 20 s for its first context.
const PATIENCE: Duration = Duration::from_secs(60);
/// What context and communicator take beside the two arrays.
const OVERHEAD: u64 = 1 << 30;
/// Of a configuration file.
const MOST_TEXT: u64 = 64 << 10;

pub enum Gpus<'a> {
    /// All that CUDA shows.
    All,
    /// Those that nobody uses.
    Idle,
    /// These, by CUDA's numbers.
    These(&'a [u32]),
}

pub struct Options<'a> {
    pub gpus: Gpus<'a>,
    /// The largest size in bytes.
    pub most: u64,
    /// The longest time without a step.
    pub patience: Duration,
}

/// As the command line says it, in seconds.
pub fn patience(timeout: Option<f64>) -> Duration {
    timeout.map_or(PATIENCE, Duration::from_secs_f64)
}

/// The short form, for `check`: small sizes, and nothing is opened or asked unless torch would use NCCL here on a GPU that is idle.
pub fn short(case: &Case<'_>, patience: Duration, watch: Watch<'_>) -> Observed<Nccl> {
    if !case.purpose.runs() || !case.facts.gpu.driver_seen() {
        return Observed::skipped("nothing runs here on a GPU");
    }
    if case.torch().ok().flatten().is_none_or(|torch| torch.cuda.is_none()) {
        return Observed::skipped("no torch that is built for CUDA");
    }
    if !case.facts.gpu.devices.value().is_some_and(|devices| devices.iter().any(idle)) {
        return Observed::skipped("no GPU is idle");
    }
    let options = Options { gpus: Gpus::Idle, most: SHORT, patience };
    test(case, &options, watch).unwrap_or_else(|error| Observed::failed(format!("{error:#}")))
}

/// Runs the test. Absent: there is no libnccl. Skipped: there is nothing that could be tested, and why.
///
/// # Errors
/// GPUs were named that are not there.
pub fn test(case: &Case<'_>, options: &Options<'_>, watch: Watch<'_>) -> anyhow::Result<Observed<Nccl>> {
    let library = match library(case) {
        Observed::Seen { value } => value,
        Observed::Absent { looked } => return Ok(Observed::Absent { looked }),
        Observed::Failed { why } => return Ok(Observed::Failed { why }),
        Observed::Skipped { why } => return Ok(Observed::Skipped { why }),
    };
    let settings = settings(case);
    let client = client(case, &settings, options.patience);
    let driver = case.facts.gpu.driver_seen().then_some(LIBCUDA);
    let opened = client.nccl_open(&library.path, driver, options.patience, watch);
    let devices = match (opened.devices, &opened.member.end, opened.member.last) {
        (Some(devices), ..) => Observed::seen(devices),
        (None, ..) if driver.is_none() => Observed::absent(["signs of a driver"]),
        (None, End::Failed(failure), Some(Step::Driver)) if failure.code == Some(100) => Observed::seen(Vec::new()),
        (None, End::Failed(failure), Some(Step::Driver)) => Observed::failed(failure.to_string()),
        _ => Observed::skipped("the library did not come so far"),
    };
    let mut nccl = Nccl {
        library,
        patience: options.patience.as_secs_f64(),
        settings,
        opening: opened.member,
        version: opened.version,
        devices,
        run: Observed::skipped("no GPU"),
    };
    let chosen = chosen(case, &nccl, &options.gpus)?;
    let sizes = sizes(case, &nccl, &chosen, options.most);
    if !chosen.is_empty() && nccl.opening.end == End::Done {
        let plan = Plan { library: &nccl.library.path, driver: LIBCUDA, devices: &chosen, sizes: &sizes, limit: options.patience };
        nccl.run = Observed::seen(client.nccl_run(&plan, watch));
    } else if nccl.devices.value().is_some_and(|devices| !devices.is_empty()) {
        nccl.run = Observed::skipped("no GPU is idle");
    }
    explain(case, &mut nccl);
    Ok(Observed::seen(nccl))
}

/// The file that torch loads; without torch, the one that any program gets.
fn library(case: &Case<'_>) -> Observed<Tested> {
    let torch = match case.torch() {
        Ok(torch) => torch,
        Err(missing) => return Observed::failed(format!("torch could not be read: {}", missing.why)),
    };
    let process = match case.process() {
        Ok(process) => process,
        Err(missing) => return Observed::failed(missing.why),
    };
    let needs = |torch: &crate::facts::torch::Torch| {
        torch.libs.is_empty() || torch.libs.values().flat_map(|elf| &elf.needed).any(|name| name.starts_with("libnccl.so"))
    };
    if let Some(torch) = torch {
        if torch.cuda.is_none() {
            return Observed::skipped(format!("torch {} is not built for CUDA", torch.version));
        }
        if !needs(torch) {
            return Observed::skipped(format!(
                "torch {} holds its NCCL inside its own libraries, where no other program can call it",
                torch.version
            ));
        }
    }
    let answer = if torch.is_some() { process.torch_gets(LIBRARY) } else { process.extension_gets(LIBRARY) };
    let who = if torch.is_some() { "torch" } else { "a program" };
    let (path, why) = match answer {
        Answer::Found { path, via } | Answer::Refused { path, via, .. } => (path, format!("{who} {}", words(&via))),
        Answer::Unknown { why } => return Observed::failed(why),
        Answer::NotFound { .. } => {
            // Where the import of torch stops before, its own copy is the one it is meant to have.
            let site = torch.and_then(|torch| torch.path.parent());
            let own = site.and_then(|site| case.facts.loader.value()?.of("nccl").find(|library| library.path.starts_with(site)));
            match own {
                Some(library) => (library.path.clone(), "the copy beside torch, whose import fails".to_owned()),
                None => return Observed::absent([format!("{LIBRARY} on the search of {who}")]),
            }
        }
    };
    let known = case.facts.loader.value().and_then(|loader| loader.of("nccl").find(|library| library.path == path));
    let read = File::open(&path).ok().and_then(|file| {
        let length = file.metadata().ok()?.len();
        nccl_release(&FileAt::new(file, length)).ok().flatten()
    });
    let release = read.as_ref().map(|read| read.version.clone()).or_else(|| known.and_then(|library| library.release.clone()));
    Observed::seen(Tested { path, why, release, cuda: read.and_then(|read| read.cuda) })
}

fn words(via: &Via) -> String {
    match via {
        Via::Rpath { of } => format!("finds it by the RPATH of `{of}`"),
        Via::Runpath { of } => format!("finds it by the RUNPATH of `{of}`"),
        Via::LibraryPath { entry } => format!("finds it in entry {entry} of LD_LIBRARY_PATH"),
        Via::Cache => "finds it in the loader's cache".to_owned(),
        Via::DefaultFolder => "finds it in a default folder".to_owned(),
        Via::Preloaded => "gets it by LD_PRELOAD".to_owned(),
        Via::ByPath => "opens it by its path".to_owned(),
    }
}

/// The variables of NCCL in force: the environment's, then those of the files, which replace nothing. Source: NCCL's src/misc/param.cc.
fn settings(case: &Case<'_>) -> Vec<Setting> {
    let env = &case.facts.env;
    let named = env.vars.iter().filter(|(name, _)| is_nccls(name));
    let mut all: Vec<Setting> = named
        .map(|(name, value)| Setting { name: name.clone(), value: value.to_string_lossy().into_owned(), source: "environment".to_owned() })
        .collect();
    let of_user = env.path("NCCL_CONF_FILE").map(PathBuf::from).or_else(|| env.path("HOME").map(|home| home.join(".nccl.conf")));
    for file in of_user.into_iter().chain([PathBuf::from("/etc/nccl.conf")]) {
        for (name, value) in read_settings(&file) {
            if !all.iter().any(|known| known.name == name) {
                all.push(Setting { name, value, source: file.display().to_string() });
            }
        }
    }
    all
}

/// Not those that build scripts read.
fn is_nccls(name: &str) -> bool {
    name.starts_with("NCCL_") && !["NCCL_HOME", "NCCL_ROOT", "NCCL_INCLUDE_DIR", "NCCL_LIB_DIR", "NCCL_VERSION"].contains(&name)
}

fn read_settings(file: &Path) -> Vec<(String, String)> {
    let mut text = String::new();
    let regular = std::fs::metadata(file).is_ok_and(|meta| meta.is_file());
    if !regular || File::open(file).and_then(|file| file.take(MOST_TEXT).read_to_string(&mut text)).is_err() {
        return Vec::new();
    }
    parse_settings(&text)
}

/// `KEY=VALUE` lines; `#` begins a comment.
fn parse_settings(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once('=')).map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
}

/// The processes get what NCCL and CUDA read of the environment that is judged, and nothing else.
fn client(case: &Case<'_>, settings: &[Setting], patience: Duration) -> Client {
    let env = &case.facts.env;
    let mut client = Client::new(env.get("LD_LIBRARY_PATH"), patience);
    let passed = |name: &str| name == "HOME" || is_nccls(name) || (name.starts_with("CUDA_") && !name.starts_with("CUDA_CACHE"));
    // The warnings must come where they are read.
    let not = ["NCCL_DEBUG", "NCCL_DEBUG_FILE"];
    for (name, value) in env.vars.iter().filter(|(name, _)| passed(name) && !not.contains(&name.as_str())) {
        client = client.with_env(name, value.0.clone());
    }
    client.with_env("NCCL_DEBUG", if talks(settings) { "INFO" } else { "WARN" })
}

/// The user asked NCCL for its log.
pub fn wants_log(case: &Case<'_>) -> bool {
    talks(&settings(case))
}

fn talks(settings: &[Setting]) -> bool {
    let level = settings.iter().find(|setting| setting.name == "NCCL_DEBUG").map(|setting| setting.value.to_ascii_uppercase());
    level.is_some_and(|level| level == "INFO" || level == "TRACE")
}

/// CUDA's numbers of the GPUs to be tested.
fn chosen(case: &Case<'_>, nccl: &Nccl, gpus: &Gpus<'_>) -> anyhow::Result<Vec<u32>> {
    let all = nccl.devices.value().map(Vec::as_slice).unwrap_or_default();
    let numbers: Vec<u32> = all.iter().map(|device| device.ordinal).collect();
    Ok(match gpus {
        Gpus::All => numbers,
        Gpus::Idle => all.iter().filter(|device| nvml(case, device).is_some_and(idle)).map(|device| device.ordinal).collect(),
        Gpus::These(named) => {
            if let Some(twice) = named.iter().enumerate().find(|(at, number)| named.iter().take(*at).any(|before| before == *number)) {
                bail!("--devices names GPU {} twice, and NCCL takes one rank a GPU", twice.1);
            }
            let unknown: Vec<String> = named.iter().filter(|number| !numbers.contains(number)).map(ToString::to_string).collect();
            if !unknown.is_empty() && nccl.opening.end == End::Done {
                let seen = match numbers.len() {
                    0 => "no GPU".to_owned(),
                    1 => "one GPU, number 0".to_owned(),
                    count => format!("{count} GPUs, numbers 0 to {}", count - 1),
                };
                bail!("--devices {}: CUDA shows {seen}", join(&unknown));
            }
            named.to_vec()
        }
    })
}

/// The same device as NVML lists it. Its PCI domain has eight digits, CUDA's four; which case the digits have is not promised.
fn nvml<'a>(case: &Case<'a>, device: &CudaDevice) -> Option<&'a Device> {
    let short = |bus: &str| bus.get(bus.len().saturating_sub(12)..).unwrap_or(bus).to_ascii_lowercase();
    let bus = short(device.bus.as_deref()?);
    case.facts.gpu.devices.value()?.iter().find(|known| known.bus.as_deref().map(short).as_ref() == Some(&bus))
}

/// Nobody else computes on it, by the memory in use: a driver alone keeps some hundred megabytes.
fn idle(device: &Device) -> bool {
    let open = matches!(device.compute_mode, None | Some(ComputeMode::Default));
    let mig = device.mig.as_ref().is_some_and(|mig| mig.enabled);
    open && !mig && device.memory.is_some_and(|memory| memory.total - memory.free.min(memory.total) <= (memory.total / 20).max(1 << 30))
}

/// Those that fit into every GPU.
fn sizes(case: &Case<'_>, nccl: &Nccl, chosen: &[u32], most: u64) -> Vec<u64> {
    let all = nccl.devices.value().map(Vec::as_slice).unwrap_or_default();
    let used = all.iter().filter(|device| chosen.contains(&device.ordinal));
    let free = used.filter_map(|device| Some(nvml(case, device)?.memory?.free)).min();
    let fits = |size: &u64| free.is_none_or(|free| 2 * size + OVERHEAD <= free) || *size <= SIZES[2];
    SIZES.into_iter().filter(|size| *size <= most).filter(fits).collect()
}

/// What NCCL's warnings mean, by the signatures.
fn explain(case: &Case<'_>, nccl: &mut Nccl) {
    let ranks = nccl.run.value_mut().into_iter().flat_map(|run| run.ranks.iter_mut());
    let mut members: Vec<_> = std::iter::once(&mut nccl.opening).chain(ranks).filter(|member| member.end != End::Done).collect();
    if members.is_empty() {
        return;
    }
    let reader = Reader::of(case.know, |tool| tool == Tool::Nccl);
    for member in &mut members {
        let mut text = member.warnings.join("\n");
        if let End::Failed(failure) = &member.end {
            text = format!("{text}\n{}", failure.last_error);
        }
        member.meaning = reader.cause(text.as_bytes()).map(|found| found.meaning());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::gpu::Memory;

    #[test]
    fn configuration_files() {
        let text = "# note\nNCCL_SOCKET_IFNAME = eth0\n\n NCCL_DEBUG=WARN\nrubbish\n#NCCL_NET=x\n";
        let all = parse_settings(text);
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(all, [pair("NCCL_SOCKET_IFNAME", "eth0"), pair("NCCL_DEBUG", "WARN")]);
    }

    #[test]
    fn an_idle_gpu() {
        let gpu = |used: u64, total: u64| Device { memory: Some(Memory { total, free: total - used }), ..Device::default() };
        assert!(idle(&gpu(700 << 20, 80 << 30)) && idle(&gpu(600 << 20, 8 << 30)));
        assert!(!idle(&gpu(5 << 30, 80 << 30)) && !idle(&gpu(2 << 30, 8 << 30)));
        assert!(!idle(&Device::default()), "unknown is not idle");
        assert!(!idle(&Device { compute_mode: Some(ComputeMode::ExclusiveProcess), ..gpu(0, 80 << 30) }));
    }
}
