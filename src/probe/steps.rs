//! The probe's own build: the kernels and their host half, linked and loaded.

use super::cache::{self, Key};
use super::remember::Memory;
use super::trial::{Bench, environment, failure, not_reached};
use super::{KERNELS, execute, ops, trial};
use crate::facts::kernel::{Execution, Fault};
use crate::facts::observed::Observed;
use crate::facts::probe::{End, Failure, OpTrial, Outcome, Probe, Step, StepName};
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::Torch;
use crate::gpu::client::Client;
use crate::host::{Host, Scratch, Store, System};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::model::build::{self, Accelerator};
use crate::model::build_flags::{self, Choice, Toolchain};
use crate::model::cuda_home::{CudaHome, cuda_home};
use crate::model::loader::Process;
use crate::model::{python, visible};
use crate::version::Capability;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How the probe goes about it.
pub struct Options<'a> {
    /// For each program that is run.
    pub limit: Duration,
    /// Where builds that passed are kept; `None`: nothing is taken from there or put there.
    pub store: Option<Store>,
    /// The work folder stays.
    pub keep: bool,
    /// Which ops of DeepSpeed are tried too; `None`: none.
    pub ops: Option<ops::Which>,
    /// With torch's own headers.
    pub with_torch: bool,
    /// The kernels are run, where something shows a driver.
    pub run: bool,
    /// Told what begins.
    pub progress: &'a (dyn Fn(Phase) + Sync),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Compiling,
    Linking,
    Loading,
    Running,
    Ops,
    Done,
}

const CUDA_HALF: (&str, &str) = ("probe.cu", "probe.o");
const HOST_HALF: (&str, &str) = ("host.cpp", "host.o");

/// Builds, links and loads with what the models pick from the facts. Skipped where there is nothing to build with; a static check says why.
pub fn probe(host: &dyn Host, facts: &Snapshot, know: &Knowledge, options: &Options<'_>) -> Observed<Probe> {
    let Some(system) = host.system() else { return Observed::skipped("a file tree: nothing in it is run") };
    let interpreter = python::chosen(facts).interpreter;
    let torch = interpreter.and_then(|python| python.torch.value());
    let deepspeed = interpreter.and_then(|python| python.deepspeed.value());
    let home = cuda_home(facts, know, torch);
    let named = facts.env.filled("PYTORCH_NVCC").is_some();
    if !named && home.toolkit.is_none_or(|kit| kit.nvcc.value().is_none()) {
        return Observed::skipped(match &home.value {
            Some(value) => format!("there is no nvcc in `{value}`, where torch looks"),
            None => "torch finds no CUDA toolkit".to_owned(),
        });
    }
    let gpus = gpus(facts);
    let Some(chain) = build_flags::toolchain(&Choice { facts, know, home: &home, torch, deepspeed, gpus: &gpus }) else {
        return Observed::skipped("torch finds no CUDA toolkit");
    };
    let run = Run { host, system, facts, know, options, home: &home, torch, chain: &chain };
    let mut probe = run.whole();
    if let Some(which) = options.ops {
        probe.ops = if probe.steps.iter().all(|step| step.name == StepName::Load || step.outcome == Outcome::Passed) {
            run.ops(which, !gpus.is_empty())
        } else {
            Observed::skipped("what every op needs fails already")
        };
        (options.progress)(Phase::Done);
    }
    if probe.steps.iter().filter_map(Step::failure).any(Failure::is_undecided) || probe.undecided_ops() > 0 {
        probe.load = load_average(host);
    }
    Observed::seen(probe)
}

/// Of the last minute.
fn load_average(host: &dyn Host) -> Option<f64> {
    host.read_text(Path::new("/proc/loadavg")).ok()?.split_whitespace().next()?.parse().ok()
}

/// Of the GPUs that a program would see.
fn gpus(facts: &Snapshot) -> Vec<Capability> {
    let all = facts.gpu.devices.value().map_or(&[][..], Vec::as_slice);
    let seen = visible::visible(all, facts.env.get("CUDA_VISIBLE_DEVICES"), facts.env.get("CUDA_DEVICE_ORDER"));
    seen.picks.iter().filter_map(|pick| all.get(pick.device)?.capability).collect()
}

struct Run<'a> {
    host: &'a dyn Host,
    system: &'a dyn System,
    facts: &'a Snapshot,
    know: &'a Knowledge,
    options: &'a Options<'a>,
    home: &'a CudaHome<'a>,
    torch: Option<&'a Torch>,
    chain: &'a Toolchain,
}

impl Run<'_> {
    fn whole(&self) -> Probe {
        let mut probe = Probe { toolkit: self.chain.home.clone(), targets: self.chain.targets.clone(), ..Probe::default() };
        let key = Key::new(self.host, self.facts, self.home, self.chain, &execute::flags(self.facts), KERNELS);
        if !self.options.keep
            && let Some((steps, library)) = self.options.store.as_ref().and_then(|store| cache::load(store, &key))
            && self.host.is_file(&library)
        {
            probe.cached = true;
            probe.steps = steps;
            let (load, first) = self.load(&library, &mut probe.notes);
            probe.steps.push(load);
            let images = library.parent().map(|folder| execute::images(self.host, folder)).unwrap_or_default();
            probe.execution = self.execute(&probe, &library, &first, &images);
            (self.options.progress)(Phase::Done);
            return probe;
        }
        let mut folder = match self.folder() {
            Ok(folder) => folder,
            Err((place, error)) => {
                probe.steps = self.no_folder(&place, &error);
                return probe;
            }
        };
        if self.options.keep {
            folder.keep();
            probe.folder = Some(HostPath::new(folder.path()));
        }
        probe.steps = self.build(&folder);
        if probe.proven() {
            let made = trial::place(&folder, cache::LIBRARY);
            let images = execute::images(self.host, &trial::place(&folder, execute::IMAGES));
            let kept = self.options.store.as_ref().and_then(|store| cache::save(store, &key, &probe.steps, &made, &images));
            let mut library = made;
            let (mut load, mut first) = self.load(&library, &mut probe.notes);
            // What torch builds is loaded from its cache, not from the temporary folder.
            if let (Some(kept), true) = (kept, is_noexec(&load)) {
                let (again, of_again) = self.load(&kept, &mut probe.notes);
                if again.outcome == Outcome::Passed {
                    probe.notes.push(format!(
                        "nothing can be loaded from `{}` (noexec); torch loads from its cache, as was done here",
                        folder.path().display()
                    ));
                    (load, first, library) = (again, of_again, kept);
                }
            }
            probe.steps.push(load);
            probe.execution = self.execute(&probe, &library, &first, &images);
        } else {
            probe.steps.push(not_reached(StepName::Load, "there is nothing to load"));
            probe.execution = Observed::skipped("there is nothing to run");
        }
        (self.options.progress)(Phase::Done);
        probe
    }

    /// On the GPUs, where the library could be loaded.
    fn execute(&self, probe: &Probe, library: &Path, first: &[PathBuf], images: &[PathBuf]) -> Observed<Execution> {
        if !probe.proven() {
            return Observed::skipped("the library does not load");
        }
        if !self.options.run {
            return Observed::skipped("not asked for");
        }
        if execute::wanted(self.facts) {
            (self.options.progress)(Phase::Running);
        }
        execute::execute(self.host, self.facts, self.options.limit, library, first, images)
    }

    /// Those of the CUDA set, also on a builder without GPU, unless the environment or this torch says that the machine is none of CUDA.
    fn ops(&self, which: ops::Which, gpu: bool) -> Observed<Vec<OpTrial>> {
        let python = python::chosen(self.facts).interpreter;
        let Some(deepspeed) = python.and_then(|python| python.deepspeed.value()) else {
            return Observed::skipped("DeepSpeed is not installed, and no release is named");
        };
        let accelerator = match build::accelerator(self.facts, self.know, &deepspeed.version, self.torch, gpu) {
            Some((Accelerator::Other, _)) => return Observed::skipped("`DS_ACCELERATOR` names another kind of accelerator"),
            Some((Accelerator::Cpu, true)) => AcceleratorKind::Cpu,
            _ if self.torch.is_some_and(|torch| torch.cuda.is_none()) => AcceleratorKind::Cpu,
            _ => AcceleratorKind::Cuda,
        };
        let asked = || self.know.deepspeed_ops(&deepspeed.version, accelerator).any(|op| ops::is_asked(self.facts, op));
        if which == ops::Which::Asked && !asked() {
            return Observed::skipped("no `DS_BUILD_*` asks for an op by name");
        }
        (self.options.progress)(Phase::Ops);
        let folder = match self.folder() {
            Ok(folder) => folder,
            Err((place, error)) => return Observed::failed(format!("no folder can be made in {}: {error}", place.display())),
        };
        let env = environment(self.facts, &folder);
        let bench = self.bench(&folder, &env);
        let ask =
            ops::Ask { facts: self.facts, python, deepspeed: &deepspeed.version, accelerator, which, with_torch: self.options.with_torch };
        let memory = self.options.store.as_ref().map(|store| Memory { store, home: self.home });
        Observed::seen(ops::run(&bench, &ask, memory.as_ref()))
    }

    /// Below TMPDIR, else below `/tmp`, as gcc and Python do.
    fn folder(&self) -> Result<Scratch, (PathBuf, io::Error)> {
        let tmp = Path::new("/tmp");
        let named = self.facts.env.path("TMPDIR").filter(|path| path.is_absolute());
        match named.map(Scratch::new) {
            Some(Ok(folder)) => Ok(folder),
            Some(Err(error)) if error.kind() == io::ErrorKind::StorageFull => Err((named.unwrap_or(tmp).to_owned(), error)),
            _ => Scratch::new(tmp).map_err(|error| (tmp.to_owned(), error)),
        }
    }

    fn no_folder(&self, place: &Path, error: &io::Error) -> Vec<Step> {
        let words = format!("no folder can be made in {}: {error}", place.display());
        let failed = failure(self.know, End::NotStarted { why: words.clone() }, words.as_bytes());
        let first = Step { name: StepName::Compile, command: None, outcome: Outcome::Failed(Box::new(failed)), millis: 0 };
        let rest = [StepName::HostCompile, StepName::Link, StepName::Load];
        [first].into_iter().chain(rest.map(|name| not_reached(name, "there is no folder to work in"))).collect()
    }

    fn bench<'a>(&'a self, folder: &'a Scratch, env: &'a [(OsString, OsString)]) -> Bench<'a> {
        let Self { host, system, know, chain, .. } = *self;
        Bench { host, system, know, chain, folder, limit: self.options.limit, env }
    }

    fn build(&self, folder: &Scratch) -> Vec<Step> {
        let env = environment(self.facts, folder);
        let bench = self.bench(folder, &env);
        (self.options.progress)(Phase::Compiling);
        for (name, bytes) in KERNELS {
            if let Err(error) = folder.write(name, bytes) {
                return self.no_folder(folder.path(), &error).into_iter().take(3).collect();
            }
        }
        let flags = execute::flags(self.facts);
        if !flags.is_empty()
            && let Err(error) = folder.write(Path::new(execute::IMAGES).join("README"), b"what nvcc makes on its way\n")
        {
            return self.no_folder(folder.path(), &error).into_iter().take(3).collect();
        }
        let cuda = || bench.command(StepName::Compile, self.chain.nvcc_command(CUDA_HALF.0, CUDA_HALF.1, &flags), CUDA_HALF.1);
        let host = || bench.command(StepName::HostCompile, self.chain.cxx_command(HOST_HALF.0, HOST_HALF.1, &[]), HOST_HALF.1);
        let (cuda, host) = std::thread::scope(|scope| {
            let beside = scope.spawn(host);
            let cuda = cuda();
            (cuda, beside.join())
        });
        let host = host.unwrap_or_else(|_| not_reached(StepName::HostCompile, "the thread that ran it crashed"));
        let passed = [&cuda, &host].iter().all(|step| step.outcome == Outcome::Passed);
        let link = if passed {
            (self.options.progress)(Phase::Linking);
            let argv = self.chain.link_command(&[HOST_HALF.1, CUDA_HALF.1], cache::LIBRARY, &[]);
            bench.command(StepName::Link, argv, cache::LIBRARY)
        } else {
            not_reached(StepName::Link, "not everything compiled")
        };
        vec![cuda, host, link]
    }

    /// In a child, with the loader's environment of a run and what torch has loaded by then; that is handed back too.
    fn load(&self, library: &Path, notes: &mut Vec<String>) -> (Step, Vec<PathBuf>) {
        (self.options.progress)(Phase::Loading);
        let begin = Instant::now();
        let client = Client::new(self.facts.env.get("LD_LIBRARY_PATH"), self.options.limit);
        let mut first = self.loaded_by_torch();
        let mut answer = client.load(library, &first);
        // Without torch there is nobody who would bring the runtime: the toolkit's own serves, where the loader alone finds none. A wrong one
        // that it finds is a fault, which another in its place would hide.
        if matches!(&answer, Err(Fault::NotLoaded { words }) if words.starts_with("libcudart.so.") && words.contains("No such file"))
            && self.torch.is_none()
            && let Some(own) = self.own_runtime()
            && let Ok(loaded) = client.load(library, std::slice::from_ref(&own))
        {
            notes.push(format!("there is no torch to bring libcudart: `{}` was loaded first", own.display()));
            answer = Ok(loaded);
            first = vec![own];
        }
        let millis = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let outcome = match answer {
            Ok(_) => Outcome::Passed,
            Err(fault) => Outcome::Failed(Box::new(self.fault(fault))),
        };
        (Step { name: StepName::Load, command: None, outcome, millis }, first)
    }

    fn fault(&self, fault: Fault) -> Failure {
        let (ended, words) = match fault {
            Fault::NotLoaded { words } => (End::NoResult, words),
            Fault::Crashed { signal, stderr, .. } => (End::Signal { signal }, stderr),
            Fault::TimedOut { seconds, stderr, .. } => (End::TimedOut { limit: seconds.into() }, stderr),
            Fault::Unanswered { why } => (End::NotStarted { why: why.clone() }, why),
        };
        failure(self.know, ended, words.as_bytes())
    }

    /// The CUDA runtime that torch's import leaves in the process.
    fn loaded_by_torch(&self) -> Vec<PathBuf> {
        let python = python::chosen(self.facts).interpreter;
        let (Some(python), Some(torch)) = (python, self.torch) else { return Vec::new() };
        let Ok(Some(process)) = Process::importing(self.facts, python, torch) else { return Vec::new() };
        let runtime = |path: &&HostPath| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"libcudart.so"));
        process.loaded().map(|(path, _)| path).filter(runtime).map(|path| path.0.clone()).collect()
    }

    /// The libcudart in the folder that is linked against.
    fn own_runtime(&self) -> Option<PathBuf> {
        let named = self.facts.env.entries("LIBRARY_PATH");
        let folders = self.chain.libs.iter().map(|folder| folder.0.clone()).chain(named);
        folders.map(|folder| folder.join("libcudart.so")).find(|path| self.host.is_file(path))
    }
}

fn is_noexec(step: &Step) -> bool {
    step.failure().and_then(|failure| failure.meaning.as_ref()).is_some_and(|meaning| meaning.id == "tmp-noexec")
}
