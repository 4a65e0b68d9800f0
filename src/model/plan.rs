//! The commands that build DeepSpeed on a machine: which variables, which options of pip, in which order, and why each.
//!
//! What is asked for is put into a copy of the facts and judged again, so that a plan is never printed for a build that would stop.

mod front;
mod jobs;

pub use front::{Front, Lack, front, interpreter};
pub use jobs::{Jobs, jobs};

use super::arch_list::{self, Format, Item};
use super::assume;
use super::ops::{Can, OpState, Scene, Wish};
use super::search;
use crate::facts::raw::{HostPath, Raw};
use crate::facts::snapshot::Snapshot;
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::knowledge::schema::ops::Op;
use std::path::Path;

/// What the user wants built.
#[derive(Debug, Clone, Default)]
pub struct Ask {
    /// By name; `None`: those that can be built.
    pub ops: Option<Vec<String>>,
    /// `--ops all`
    pub all: bool,
    /// A wheel, rather than an install.
    pub wheel: bool,
    pub source: Option<HostPath>,
}

/// A line of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub what: What,
    pub why: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    Set {
        name: String,
        value: Raw,
    },
    Unset {
        name: String,
    },
    /// In front of a list of folders.
    Prepend {
        name: String,
        folder: HostPath,
    },
    /// Behind all others.
    Append {
        name: String,
        folder: HostPath,
    },
    Run {
        argv: Vec<Word>,
    },
}

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    Plain(String),
    /// Left to the shell: a pattern of files.
    Pattern(String),
}

impl Line {
    fn new(what: What, why: impl Into<String>) -> Self {
        Self { what, why: why.into() }
    }

    pub fn set(name: &str, value: impl Into<Raw>, why: impl Into<String>) -> Self {
        Self::new(What::Set { name: name.to_owned(), value: value.into() }, why)
    }
}

/// Changes a snapshot as the line changes the environment.
pub fn apply(facts: &mut Snapshot, line: &Line) {
    match &line.what {
        What::Set { name, value } => facts.env.set(name, value.clone()),
        What::Unset { name } => facts.env.unset(name),
        What::Prepend { name, folder } => {
            let mut value = folder.0.clone().into_os_string();
            if let Some(rest) = facts.env.filled(name) {
                value.push(":");
                value.push(rest);
            }
            facts.env.set(name, value);
        }
        What::Append { name, folder } => {
            let mut value = facts.env.filled(name).map(ToOwned::to_owned).unwrap_or_default();
            if !value.is_empty() {
                value.push(":");
            }
            value.push(&folder.0);
            facts.env.set(name, value);
        }
        What::Run { .. } => {}
    }
}

/// Whether the plan has to say `DS_ACCELERATOR=cuda`: CUDA ops are meant, and DeepSpeed would take its CPU set.
pub fn accelerator(scene: &Scene<'_>) -> Option<Line> {
    let cuda = scene.torch.is_some_and(|torch| torch.cuda.is_some());
    let takes_cpu = scene.accelerator == AcceleratorKind::Cpu && !scene.said;
    // The releases that recurse in their search for an accelerator when the variable names it take cuda without it.
    (cuda && takes_cpu).then(|| Line::set("DS_ACCELERATOR", "cuda", "no GPU is seen, and DeepSpeed would build its CPU op set"))
}

/// `DS_ACCELERATOR=cuda` kills the import of this release here: it asks a GPU through triton, and there is none.
pub fn accelerator_kills(scene: &Scene<'_>) -> bool {
    let triton = scene.python.is_some_and(|python| python.package("triton").is_some());
    scene.does(DeepSpeedTrait::ImportNeedsGpu) && triton && !scene.gpu()
}

/// Which ops are built, and which of them the user did not name.
///
/// # Errors
/// A name that is no op of this release for this accelerator, with what is near it.
pub fn choose<'a>(scene: &Scene<'a>, states: &[OpState<'a>], ask: &Ask, can: &dyn Fn(&OpState<'a>) -> Can) -> Result<Vec<&'a Op>, String> {
    let real = |state: &&OpState<'a>| state.build.is_some_and(|build| build.cpp + build.cu > 0);
    let Some(names) = &ask.ops else {
        let chosen = states.iter().filter(real).filter(|state| ask.all || can(state) == Can::Yes);
        return Ok(chosen.map(|state| state.op).collect());
    };
    let mut chosen: Vec<&Op> = Vec::new();
    for name in names {
        let Some(state) = states.iter().filter(real).find(|state| state.op.op == **name) else {
            return Err(unknown(scene, name));
        };
        if !chosen.iter().any(|op| op.op == state.op.op) {
            chosen.push(state.op);
        }
    }
    Ok(chosen)
}

/// Whether an op is named that only the CUDA set has, whatever the accelerator here.
///
/// # Errors
/// As [`choose`], for a name that neither set has.
pub fn cuda_only(scene: &Scene<'_>, names: &[String]) -> Result<bool, String> {
    let has = |kind, name: &str| scene.know.deepspeed_ops(&scene.deepspeed.version, kind).any(|op| op.op == name);
    let mut only = false;
    for name in names.iter().filter(|name| *name != "all") {
        let (cuda, cpu) = (has(AcceleratorKind::Cuda, name), has(AcceleratorKind::Cpu, name));
        if !cuda && !cpu {
            return Err(unknown(scene, name));
        }
        // An accelerator that is named is meant, and `choose` says that its set has no such op.
        only |= cuda && !cpu && !(scene.said && scene.accelerator == AcceleratorKind::Cpu);
    }
    Ok(only)
}

fn unknown(scene: &Scene<'_>, name: &str) -> String {
    let version = &scene.deepspeed.version;
    let set = match scene.accelerator {
        AcceleratorKind::Cuda => "CUDA",
        AcceleratorKind::Cpu => "CPU",
    };
    if scene.know.op_names().contains(name) {
        return format!("--ops: DeepSpeed {version} has no op `{name}` in its {set} op set");
    }
    match scene.know.near_op(name) {
        Some(near) => format!("--ops: there is no op `{name}`; near it: {near}"),
        None => format!("--ops: there is no op `{name}`; `ds-doctor ops` lists them"),
    }
}

/// `DS_BUILD_*` for these ops and no others.
pub fn wishes(know: &Knowledge, scene: &Scene<'_>, chosen: &[&Op]) -> Vec<Line> {
    let mut lines = vec![Line::set("DS_BUILD_OPS", "0", "only what is named below")];
    let on = |variable: &str| chosen.iter().any(|op| op.variable == variable);
    for op in chosen {
        lines.push(Line::set(&op.variable, "1", format!("builds {}", op.op)));
    }
    for (name, value) in &scene.facts.env.vars {
        let asks =
            name.starts_with("DS_BUILD_") && name != "DS_BUILD_OPS" && name != "DS_BUILD_STRING" && *value.0 != *"0" && !value.is_empty();
        if asks && !on(name) {
            let why = if know.deepspeed_op_by_variable(name, None).is_some() {
                "set here, and not part of this plan"
            } else {
                "no op goes by it"
            };
            lines.push(Line::set(name, "0", why));
        }
    }
    lines
}

/// What helps on a search path of compilers or linkers, for the ops that are wanted.
pub fn helps(states: &[OpState<'_>]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for state in states.iter().filter(|state| state.wish != Wish::No) {
        for obstacle in &state.prebuild.obstacles {
            let Some((name, folder)) = &obstacle.helps else { continue };
            let why = if folder.ends_with("stubs") {
                "the linker finds `libcuda.so` there; a stub, for linking alone".to_owned()
            } else {
                format!("for {}: {}", state.op.op, obstacle.id)
            };
            let line = Line::new(What::Prepend { name: (*name).to_owned(), folder: folder.clone() }, why);
            if !lines.iter().any(|known| known.what == line.what) {
                lines.push(line);
            }
        }
    }
    lines
}

/// The list in the form that this release reads.
pub fn list(items: &[Item]) -> Line {
    Line::set("TORCH_CUDA_ARCH_LIST", arch_list::print(items, Format::List), "what the ops are compiled for")
}

/// ninja where it is here, behind everything else: the plan may run in another shell, and without it one file is compiled after another.
pub fn ninja(facts: &Snapshot) -> Option<Line> {
    let hit = search::starts(facts, "ninja")?;
    let folder = HostPath::new(hit.program.path.parent()?);
    let usual = ["/usr/bin", "/bin", "/usr/local/bin"].iter().any(|usual| *folder.0 == *Path::new(usual));
    (!usual && folder.is_absolute()).then(|| Line::new(What::Append { name: "PATH".to_owned(), folder }, "ninja is there"))
}

/// The commands, once the environment is set.
pub fn commands(scene: &Scene<'_>, ask: &Ask, front: Front) -> Vec<Line> {
    let version = &scene.deepspeed.version;
    let python = interpreter(scene);
    let plain = |words: &[&str]| words.iter().map(|word| Word::Plain((*word).to_owned())).collect::<Vec<_>>();
    let what = match &ask.source {
        Some(folder) => folder.to_string(),
        None => format!("deepspeed=={version}"),
    };
    let mut lines = Vec::new();
    if front == Front::Build {
        let argv = plain(&[&python, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", &what]);
        lines.push(Line::new(What::Run { argv }, "without isolation, so that setup.py finds torch"));
    } else {
        let mut argv = plain(&[&python, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-cache-dir"]);
        if ask.source.is_none() {
            argv.extend(plain(&["--no-binary", "deepspeed"]));
        }
        argv.extend(plain(&["--wheel-dir", "dist", &what]));
        let why = "without isolation, so that setup.py finds torch; without pip's cache, which keeps wheels of other settings";
        lines.push(Line::new(What::Run { argv }, why));
    }
    if !ask.wheel {
        let there = scene.python.is_some_and(|python| python.package("deepspeed").is_some());
        let mut argv = match front {
            Front::Pip => plain(&[&python, "-m", "pip", "install"]),
            Front::Build => plain(&["uv", "pip", "install", "--python", &python]),
        };
        if there {
            argv.extend(plain(&["--no-deps", if front == Front::Pip { "--force-reinstall" } else { "--reinstall" }]));
        }
        // A release's text may hold anything where a source tree says it, and a pattern cannot be quoted.
        let number: String = version.text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '.').collect();
        argv.push(Word::Pattern(format!("dist/deepspeed-{number}*.whl")));
        let why =
            if there { "in the place of the DeepSpeed that is installed; its dependencies are there" } else { "with its dependencies" };
        lines.push(Line::new(What::Run { argv }, why));
    }
    lines
}

/// Variables of compilers, linkers and searches as they are set here: the plan may run in another shell.
pub fn surroundings(scene: &Scene<'_>) -> Vec<Line> {
    const NAMES: &[&str] = &["CC", "CXX", "CFLAGS", "LDFLAGS", "CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "CUTLASS_PATH", "NVCC_CCBIN"];
    let env = &scene.facts.env;
    let mut lines: Vec<Line> =
        NAMES.iter().filter_map(|name| Some(Line::set(name, env.filled(name)?.to_owned(), "as it is set here"))).collect();
    // Before 0.14.1 cuda is taken without it, and 0.12.6 recurses without end when the variable names it.
    if env.filled("DS_ACCELERATOR").is_some_and(|value| value == "cuda") && !scene.deepspeed.version.at_least(&[0, 14, 1]) {
        let why = format!("DeepSpeed {} takes cuda by itself, and 0.12.6 dies of the variable", scene.deepspeed.version);
        lines.push(Line::new(What::Unset { name: "DS_ACCELERATOR".to_owned() }, why));
    }
    lines
}

/// The toolkit that torch picks, said outright: a later shell may pick another.
pub fn cuda_home(scene: &Scene<'_>) -> Option<Line> {
    let home = scene.home.value.as_ref().filter(|value| !value.is_empty())?;
    if assume::is_assumed(Path::new(&home.0)) {
        return None;
    }
    let release = scene.home.toolkit.and_then(crate::facts::toolkit::Toolkit::release);
    let release = release.map(|release| format!(" {release}")).unwrap_or_default();
    Some(Line::set("CUDA_HOME", home.clone(), format!("the toolkit of CUDA{release} that torch picks here")))
}
