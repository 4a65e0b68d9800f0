//! What each op of DeepSpeed needs, tried: the headers that it includes compile, the libraries that it names link.
//!
//! One tiny source an op, without DeepSpeed's own and, unless asked for, without torch's: what torch's headers include in their turn is in
//! the table. Ops that need the same share a trial. Where DeepSpeed itself tests a library before it builds, its test is run too.

use super::cutlass;
use super::remember::{self, Memory};
use super::trial::{Bench, Link, Program, Trial};
use crate::facts::probe::{End, Failure, Meaning, OpTrial, Outcome, Step, StepName};
use crate::facts::python::Interpreter;
use crate::facts::snapshot::Snapshot;
use crate::knowledge::schema::Str;
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::knowledge::schema::ops::{Extension, Op, OpBuild};
use crate::model::host_compiler::shell_words;
use crate::version::Dotted;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Bytes of memory that a compiler is given: headers alone, for one target.
const MEMORY_EACH: u64 = 768 << 20;

/// Whose ops, and what is known of the machine.
pub struct Ask<'a> {
    pub facts: &'a Snapshot,
    pub python: Option<&'a Interpreter>,
    pub deepspeed: &'a Dotted,
    pub accelerator: AcceleratorKind,
    pub which: Which,
    /// Torch's own headers are compiled too. Slow.
    pub with_torch: bool,
}

/// Which ops are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that the environment asks for by name: `DS_BUILD_AIO=1`.
    Asked,
    All,
}

/// Whether the environment asks for this very op.
pub fn is_asked(facts: &Snapshot, op: &Op) -> bool {
    facts.env.text(&op.variable).is_some_and(|value| value.trim() != "0")
}

/// How many compilers run side by side on this machine.
pub fn at_once(facts: &Snapshot) -> usize {
    let cpus = facts.host.cpu.value().map_or(1, |cpu| cpu.count.max(1));
    let free = facts.host.memory.value().map(|memory| memory.limit.map_or(memory.available, |limit| limit.min(memory.available)));
    let memory = free.map_or(1, |free| free / MEMORY_EACH);
    cpus.min(usize::try_from(memory).unwrap_or(usize::MAX)).max(1)
}

/// Tries every op of the release, in alphabetical order.
pub fn run(bench: &Bench<'_>, ask: &Ask<'_>, memory: Option<&Memory<'_>>) -> Vec<OpTrial> {
    let one_target = bench.chain.for_one_target();
    let bench = &Bench { chain: &one_target, ..*bench };
    let maker = Maker { bench, ask };
    let mut trials: Vec<Trial> = Vec::new();
    let mut planned = Vec::new();
    for op in bench.know.deepspeed_ops(ask.deepspeed, ask.accelerator) {
        if ask.which == Which::Asked && !is_asked(ask.facts, op) {
            continue;
        }
        let Some(build) = bench.know.op_build(op, ask.deepspeed).filter(|build| build.cpp + build.cu > 0) else { continue };
        let (wanted, refused) = match maker.trials(op, build) {
            Ok(wanted) => (wanted, None),
            Err(step) => (Vec::new(), Some(*step)),
        };
        let shared: Vec<usize> = wanted.into_iter().map(|trial| share(&mut trials, trial)).collect();
        planned.push((op, shared, refused));
    }
    let done = remember::run(bench, &trials, ask.facts, at_once(ask.facts), memory);
    let trial = |(op, shared, refused): (&Op, Vec<usize>, Option<Step>)| {
        let steps = shared.iter().filter_map(|at| done.get(*at)).flatten().cloned().chain(refused).collect();
        OpTrial { op: op.op.to_string(), steps }
    };
    planned.into_iter().map(trial).collect()
}

/// The place of a trial in the list, in which it is put unless one that differs in its name alone is there.
fn share(trials: &mut Vec<Trial>, trial: Trial) -> usize {
    let alike = |other: &Trial| Trial { name: other.name.clone(), ..trial.clone() } == *other;
    match trials.iter().position(alike) {
        Some(at) => at,
        None => {
            trials.push(trial);
            trials.len() - 1
        }
    }
}

struct Maker<'a> {
    bench: &'a Bench<'a>,
    ask: &'a Ask<'a>,
}

/// Why nothing was run.
type Refused = Box<Step>;

fn refused(id: &str, why: impl Into<String>) -> Refused {
    let why = why.into();
    let meaning = Meaning { id: id.to_owned(), ..Meaning::default() };
    let failure = Failure { ended: End::NotStarted { why: why.clone() }, line: why, output: String::new(), meaning: Some(meaning) };
    Box::new(Step { name: StepName::Compile, command: None, outcome: Outcome::Failed(Box::new(failure)), millis: 0 })
}

impl Maker<'_> {
    fn trials(&self, op: &Op, build: &OpBuild) -> Result<Vec<Trial>, Refused> {
        let know = self.bench.know;
        if let Some(broken) = know.deepspeed_broken_op(&op.op, self.ask.deepspeed) {
            return Err(refused("ds-op-source-broken", broken.error.to_string()));
        }
        let gate = know.op_gate(op, self.ask.deepspeed);
        let mut trials: Vec<Trial> =
            gate.into_iter().flat_map(|gate| gate.functions.iter()).filter_map(|function| self.function(op, function)).collect();
        let cuda = build.cu > 0;
        let (set, own) = if cuda { (&build.nvcc, &build.nvcc_own) } else { (&build.cxx, &build.cxx_own) };
        let shared = set.as_deref().and_then(|set| know.op_flags(set, self.ask.deepspeed)).unwrap_or_default();
        let mut flags = self.words(shared.iter().chain(own.iter()))?;
        // nvcc says something when it reads an option twice.
        if cuda {
            flags.retain(|flag| !self.bench.chain.nvcc_flags.contains(flag));
        }
        if let Some(way) = gate.and_then(|gate| gate.cutlass) {
            let found =
                cutlass::includes(self.bench.host, self.ask.facts, self.ask.python, way).map_err(|why| refused("cutlass-missing", why))?;
            flags.extend(found.into_iter().map(|folder| with("-I", folder.as_os_str())));
        }
        let torch = self.torch_folders();
        flags.extend(torch.iter().flatten().flat_map(|folder| [OsString::from("-isystem"), folder.clone().into_os_string()]));
        if torch.is_some() {
            flags.extend(["-DTORCH_API_INCLUDE_EXTENSION_H".into(), format!("-DTORCH_EXTENSION_NAME={}", op.op).into()]);
        }
        let link = self.words(build.jit_link.as_ref().unwrap_or(&build.link).iter())?;
        let source = self.source(build, cuda, torch.is_some());
        let link = match build.extension {
            Extension::Cuda => Link::AsTorch(link),
            Extension::Cpp => {
                let cxx = self.bench.chain.cxx.iter().cloned();
                let tail = ["-o".into(), OsString::from(format!("{}.so", op.op))];
                Link::Other(cxx.chain(["{}".into(), "-shared".into()]).chain(link).chain(tail).collect())
            }
        };
        let program = if cuda { Program::Nvcc } else { Program::Cxx };
        trials.push(Trial { name: op.op.to_string(), source, program, flags, link });
        Ok(trials)
    }

    /// What the op includes from outside, and a use of each library that it links.
    fn source(&self, build: &OpBuild, cuda: bool, with_torch: bool) -> String {
        let know = self.bench.know;
        let mut headers: BTreeSet<&str> = BTreeSet::new();
        let mut torch: Vec<&str> = Vec::new();
        for header in build.headers.iter() {
            match know.ops.torch_header.iter().find(|row| row.header == *header) {
                _ if know.op_header(header).is_some() => {
                    headers.insert(header);
                }
                row => {
                    torch.push(header);
                    let needs = row.into_iter().flat_map(|row| row.needs.iter().chain(row.cuda_needs.iter().filter(|_| cuda)));
                    headers.extend(needs.map(AsRef::as_ref));
                }
            }
        }
        let mut source = String::new();
        let torch = torch.into_iter().filter(|_| with_torch);
        for header in torch.chain(headers) {
            let _ = writeln!(source, "#include <{header}>");
        }
        let link = build.jit_link.as_ref().unwrap_or(&build.link);
        let symbols =
            link.iter().filter_map(|flag| know.op_library(flag.strip_prefix("-l")?)).filter_map(|(library, _)| library.symbol.as_deref());
        let names: Vec<String> = symbols
            .enumerate()
            .map(|(n, symbol)| {
                // Under a name of its own: the headers declare it with its true type.
                let _ = writeln!(source, "extern \"C\" void needed_{n}(void) __asm__(\"{symbol}\");");
                format!("reinterpret_cast<void *>(&needed_{n})")
            })
            .collect();
        if names.is_empty() {
            source.push_str("extern \"C\" int needed(void) { return 0; }\n");
        } else {
            let _ = writeln!(source, "extern void *needed[];\nvoid *needed[] = {{{}}};", names.join(", "));
        }
        source
    }

    /// DeepSpeed's own test of a library, `aio:io_submit`: an executable by the C compiler that built Python.
    fn function(&self, op: &Op, function: &str) -> Option<Trial> {
        let (library, name) = function.split_once(':')?;
        let env = &self.ask.facts.env;
        let given = |variable: &str| env.get(variable).map(shell_words).unwrap_or_default();
        let cc = Some(given("CC")).filter(|words| !words.is_empty()).or_else(|| self.python_cc()).unwrap_or_else(|| vec!["cc".into()]);
        let compile = cc.iter().cloned().chain(given("CFLAGS")).chain(given("CPPFLAGS")).collect();
        // Only cuFile's test is given folders, and `lib64` alone: an environment's `lib` is not searched.
        let home = &self.bench.chain.home.0;
        let folders = [home.clone(), home.join("lib64")].into_iter().filter(|_| library == "cufile");
        let link = cc
            .into_iter()
            .chain(given("LDFLAGS"))
            .chain(["{}".into()])
            .chain(folders.map(|folder| with("-L", folder.as_os_str())))
            .chain([format!("-l{library}").into(), "-o".into(), format!("{}.{name}.out", op.op).into()])
            .collect();
        Some(Trial {
            name: format!("{}.{name}", op.op),
            source: format!("void {name}(void); int main(int argc, char** argv) {{ {name}(); return 0; }}\n"),
            program: Program::Other(compile),
            flags: Vec::new(),
            link: Link::Other(link),
        })
    }

    /// `CC` of the interpreter's own build, which distutils uses.
    fn python_cc(&self) -> Option<Vec<OsString>> {
        let python = self.ask.python?;
        let version = python.version.as_ref()?;
        let folder = python.base_prefix.0.join(format!("lib/python{}.{}", version.parts.first()?, version.parts.get(1)?));
        let mut names = self.bench.host.list(&folder).ok()?.into_iter().map(|entry| entry.name);
        let name = names.find(|name| name.to_string_lossy().starts_with("_sysconfigdata_"))?;
        let text = self.bench.host.read_text(&folder.join(name)).ok()?;
        let (_, rest) = text.split_once("'CC': '")?;
        Some(shell_words(OsStr::new(rest.split('\'').next()?))).filter(|words| !words.is_empty())
    }

    /// Flags of the table with the machine's own in the place of the words in braces. What the toolchain's flags hold already is left out.
    fn words<'f>(&self, flags: impl Iterator<Item = &'f Str>) -> Result<Vec<OsString>, Refused> {
        let mut words = Vec::new();
        for flag in flags {
            match flag.as_ref() {
                "{std}" | "{arch}" | "{threads}" | "{bf16}" | "{simd}" => {}
                "{march}" => words.extend(self.march()),
                flag if flag.contains("{gpu}") => {}
                flag => {
                    let mut word = flag.to_owned();
                    if word.contains("{kernels}") {
                        word = word.replace("{kernels}", &self.kernels()?.to_string_lossy());
                    }
                    if word.contains("{ccl}") {
                        let root = self.ask.facts.env.filled("CCL_ROOT");
                        let root = root
                            .ok_or_else(|| refused("ds-op-incompatible", "`CCL_ROOT` is not set, and the op's builder stops without it"))?;
                        word = word.replace("{ccl}", &root.to_string_lossy());
                    }
                    words.push(match word.strip_prefix("-L{cuda}") {
                        Some(rest) => {
                            let mut folder = with("-L", self.bench.chain.home.0.as_os_str());
                            folder.push(rest);
                            folder
                        }
                        None => word.into(),
                    });
                }
            }
        }
        Ok(words)
    }

    fn march(&self) -> Option<OsString> {
        let flag = match self.ask.facts.host.machine.value().map_or("", String::as_str) {
            machine if machine.starts_with("ppc") => "-mcpu=native",
            "riscv64" => "-march=rv64gc",
            _ => "-march=native",
        };
        Some(flag.into())
    }

    /// Where the package deepspeed-kernels keeps its libraries.
    fn kernels(&self) -> Result<PathBuf, Refused> {
        let package = self.ask.python.and_then(|python| python.package("deepspeed-kernels"));
        let missing = || refused("ds-kernels-missing", "the Python package deepspeed-kernels is not installed");
        package.map(|package| package.site.0.join("dskernels")).ok_or_else(missing)
    }

    /// The folders of torch's headers and Python's, where they are asked for and known.
    fn torch_folders(&self) -> Option<Vec<PathBuf>> {
        let python = self.ask.python.filter(|_| self.ask.with_torch)?;
        let torch = python.torch.value()?.path.0.join("include");
        let header = python.header.value().and_then(|header| header.0.parent().map(Path::to_owned));
        Some([torch.clone(), torch.join("torch/csrc/api/include")].into_iter().chain(header).collect())
    }
}

fn with(flag: &str, path: &OsStr) -> OsString {
    let mut word = OsString::from(flag);
    word.push(path);
    word
}
