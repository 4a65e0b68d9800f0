//! One source compiled, and linked where it names libraries. The probe's own build, and what each op needs, are made of these.

use crate::facts::probe::{Command, End, Failure, Outcome, Step, StepName};
use crate::facts::raw::{HostPath, Raw};
use crate::facts::snapshot::Snapshot;
use crate::host::{self, Ended, Host, Invocation, Scratch, System};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::signatures::Tool;
use crate::logs;
use crate::model::build_flags::Toolchain;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes kept of each stream of a program: the first error of a build stands early, but can follow a hundred kilobytes of warnings.
const KEPT: usize = 512 << 10;
/// Bytes of the output that go into the facts.
const SHOWN: usize = 8 << 10;

/// A folder to work in, with what is needed to run programs there.
pub struct Bench<'a> {
    pub host: &'a dyn Host,
    pub system: &'a dyn System,
    pub know: &'a Knowledge,
    pub chain: &'a Toolchain,
    pub folder: &'a Scratch,
    /// For each program.
    pub limit: Duration,
    /// On top of the environment that is judged: [`environment`].
    pub env: &'a [(OsString, OsString)],
}

/// What compiles a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The toolchain's nvcc, with its flags.
    Nvcc,
    /// The toolchain's C++ compiler, with its flags.
    Cxx,
    /// Another compiler and its flags, as words: DeepSpeed's test for libaio runs the C compiler of distutils.
    Other(Vec<OsString>),
}

/// How objects become a shared object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Compiling is enough.
    None,
    /// As torch links: these words in front of the toolkit's folder and `-lcudart`.
    AsTorch(Vec<OsString>),
    /// A command of its own, in which `{}` stands for the object: DeepSpeed's tests for libaio and cuFile.
    Other(Vec<OsString>),
}

/// Something to be tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// A file name without ending, of its own among the trials of a folder: `fused_adam`.
    pub name: String,
    pub source: String,
    pub program: Program,
    /// Behind the flags of every build.
    pub flags: Vec<OsString>,
    pub link: Link,
}

impl Trial {
    fn file(&self) -> String {
        let ending = match self.program {
            Program::Nvcc => "cu",
            Program::Cxx => "cpp",
            Program::Other(_) => "c",
        };
        format!("{}.{ending}", self.name)
    }

    /// Those that the source includes in angle brackets.
    pub fn headers(&self) -> impl Iterator<Item = &str> {
        self.source.lines().filter_map(|line| line.strip_prefix("#include <")?.strip_suffix('>'))
    }

    fn step(&self) -> StepName {
        if self.program == Program::Nvcc { StepName::Compile } else { StepName::HostCompile }
    }
}

/// A step that was not done.
pub fn not_reached(name: StepName, why: impl Into<String>) -> Step {
    Step { name, command: None, outcome: Outcome::NotReached { why: why.into() }, millis: 0 }
}

/// Messages in English, and the compilers' own temporary files in the folder, so that none stays when one is killed. Where TMPDIR names
/// another place than the folder lies in, it is left as it is: nvcc does not get on with it, and that is to be seen.
pub fn environment(facts: &Snapshot, folder: &Scratch) -> Vec<(OsString, OsString)> {
    let mut env = vec![("LC_ALL".into(), "C".into())];
    if facts.env.get("TMPDIR").is_none_or(|named| folder.path().parent() == Some(Path::new(named))) {
        env.push(("TMPDIR".into(), folder.path().into()));
    }
    env
}

impl Bench<'_> {
    /// Compiles, and links where asked.
    pub fn run(&self, trial: &Trial) -> Vec<Step> {
        let (file, object) = (trial.file(), format!("{}.o", trial.name));
        let argv = match &trial.program {
            Program::Nvcc => self.chain.nvcc_command(&file, &object, &trial.flags),
            Program::Cxx => self.chain.cxx_command(&file, &object, &trial.flags),
            Program::Other(words) => {
                let tail = ["-c", &file, "-o", &object].map(OsString::from);
                words.iter().chain(&trial.flags).cloned().chain(tail).collect()
            }
        };
        let step = trial.step();
        if let Err(error) = self.folder.write(&file, trial.source.as_bytes()) {
            return vec![self.unwritten(step, &error)];
        }
        let compiled = self.command(step, argv, &object);
        let passed = compiled.outcome == Outcome::Passed;
        let mut steps = vec![compiled];
        let library = format!("{}.so", trial.name);
        let argv = match &trial.link {
            Link::None => return steps,
            Link::AsTorch(words) => self.chain.link_command(&[&object], &library, words),
            Link::Other(words) => words.iter().map(|word| if word == "{}" { object.as_str().into() } else { word.clone() }).collect(),
        };
        let made = if matches!(trial.link, Link::AsTorch(_)) { library.as_str() } else { "" };
        steps.push(if passed { self.command(StepName::Link, argv, made) } else { not_reached(StepName::Link, "it did not compile") });
        steps
    }

    /// Several trials, `at_once` side by side; the answers in their order.
    pub fn run_all(&self, trials: &[Trial], at_once: usize) -> Vec<Vec<Step>> {
        side_by_side(trials, at_once, |trial| self.run(trial))
    }

    /// One command in the folder. It passes when it ends well and `made` (unless empty) is there afterwards.
    pub fn command(&self, name: StepName, argv: Vec<OsString>, made: &str) -> Step {
        let begin = Instant::now();
        let command = Command {
            argv: argv.iter().cloned().map(Raw).collect(),
            cwd: HostPath::new(self.folder.path()),
            env: self.env.iter().map(|(name, value)| (name.to_string_lossy().into_owned(), Raw(value.clone()))).collect(),
        };
        let outcome = self.start(argv);
        let millis = u64::try_from(begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        let is_made = || made.is_empty() || self.host.metadata(&self.folder.path().join(made)).is_ok_and(|meta| meta.len > 0);
        let ended = match outcome.ended {
            Ended::Exit(0) if is_made() => return Step { name, command: Some(command), outcome: Outcome::Passed, millis },
            Ended::Exit(0) => End::NoResult,
            Ended::Exit(code) => End::Exit { code },
            Ended::Signal(signal) => End::Signal { signal },
            Ended::TimedOut => End::TimedOut { limit: self.limit.as_secs_f64() },
            Ended::NotStarted(why) => End::NotStarted { why },
        };
        let mut output = outcome.stderr;
        if !output.is_empty() && !output.ends_with(b"\n") {
            output.push(b'\n');
        }
        output.extend(outcome.stdout);
        Step { name, command: Some(command), outcome: Outcome::Failed(Box::new(self.failure(ended, &output))), millis }
    }

    /// All that a command says, whatever it does.
    pub fn said(&self, argv: Vec<OsString>) -> String {
        let outcome = self.start(argv);
        String::from_utf8_lossy(&[outcome.stderr, outcome.stdout].join(&b'\n')).into_owned()
    }

    fn start(&self, argv: Vec<OsString>) -> host::Outcome {
        let mut words = argv.into_iter();
        self.system.run(&Invocation {
            program: words.next().unwrap_or_default().into(),
            args: words.collect(),
            env: self.env.to_vec(),
            cwd: Some(self.folder.path().to_owned()),
            limit: self.limit,
            keep: KEPT,
        })
    }

    /// A failure with its meaning, where a signature knows it.
    pub fn failure(&self, ended: End, output: &[u8]) -> Failure {
        failure(self.know, ended, output)
    }

    fn unwritten(&self, name: StepName, error: &io::Error) -> Step {
        let words = format!("cannot write into {}: {error}", self.folder.path().display());
        let ended = End::NotStarted { why: words.clone() };
        Step { name, command: None, outcome: Outcome::Failed(Box::new(self.failure(ended, words.as_bytes()))), millis: 0 }
    }
}

/// As [`Bench::failure`].
pub fn failure(know: &Knowledge, ended: End, output: &[u8]) -> Failure {
    let cause = logs::Reader::of(know, of_a_trial).cause(output);
    let line = cause.as_ref().map_or_else(|| logs::first_error(output), |cause| cause.line.clone());
    let shown = output.get(..output.len().min(SHOWN)).unwrap_or_default();
    Failure { ended, line, output: String::from_utf8_lossy(shown).into_owned(), meaning: cause.map(|cause| cause.meaning()) }
}

/// Works on all of them, `at_once` at a time; the answers in their order.
pub fn side_by_side<T: Sync, R: Send>(all: &[T], at_once: usize, work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..at_once.clamp(1, all.len().max(1)) {
            scope.spawn(|| {
                while let at = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(one) = all.get(at)
                {
                    let answer = work(one);
                    done.lock().unwrap_or_else(PoisonError::into_inner).insert(at, answer);
                }
            });
        }
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

/// Whose words a trial prints.
fn of_a_trial(tool: Tool) -> bool {
    matches!(tool, Tool::Nvcc | Tool::Compiler | Tool::Linker | Tool::Loader | Tool::System)
}

/// The path of a file in the folder.
pub fn place(folder: &Scratch, name: &str) -> std::path::PathBuf {
    Path::new(folder.path()).join(name)
}
