//! What becomes of each op of a DeepSpeed on a machine: installed, pre-built, built at first use, or why not.
//!
//! Source of the rules: setup.py and op_builder/ of DeepSpeed 0.9 to 0.19.8, by the tables of `rules/ops.toml` and `rules/deepspeed.toml`.

mod archs;
pub mod cutlass;
mod flags;
mod gate;
mod installed;
mod needs;
mod scene;
mod wish;

pub use archs::{Archs, prebuild_list};
pub use flags::Flags;
pub use installed::{Installed, installed};
pub use scene::{NvccFound, Scene};
pub use wish::{Wish, WishFault, ignored, wish};

use crate::facts::observed::Missing;
use crate::facts::raw::HostPath;
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::knowledge::schema::ops::{Extension, Op, OpBuild};
use crate::model::build::BuildPath;

/// Something that keeps an op from being built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// Of the problem table.
    pub id: &'static str,
    /// The facts that clash, as one sentence.
    pub says: String,
    pub stage: Stage,
    pub seen: Vec<Seen>,
    /// A folder that would help on a search path: the variable and the folder.
    pub helps: Option<(&'static str, HostPath)>,
}

/// Where it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// `is_compatible` answers no.
    Refused,
    /// `is_compatible` itself fails.
    Raises,
    /// The builder or a compiler stops.
    Dies,
}

/// A fact that speaks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    pub what: String,
    pub value: String,
    pub path: Option<HostPath>,
    pub source: String,
}

impl Obstacle {
    fn new(id: &'static str, stage: Stage, says: impl Into<String>) -> Self {
        Self { id, says: says.into(), stage, seen: Vec::new(), helps: None }
    }

    fn seen(mut self, what: impl Into<String>, value: impl Into<String>, path: Option<&HostPath>, source: impl Into<String>) -> Self {
        self.seen.push(Seen { what: what.into(), value: value.into(), path: path.cloned(), source: source.into() });
        self
    }
}

/// What is known of one way to build an op.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    pub obstacles: Vec<Obstacle>,
    /// What could not be judged.
    pub unknown: Vec<Missing>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Can {
    Yes,
    No,
    Unknown,
}

impl Decision {
    pub fn can(&self) -> Can {
        match (self.obstacles.is_empty(), self.unknown.is_empty()) {
            (false, _) => Can::No,
            (true, false) => Can::Unknown,
            (true, true) => Can::Yes,
        }
    }

    fn add(&mut self, found: Result<Option<Obstacle>, Missing>) {
        match found {
            Ok(found) => self.obstacles.extend(found),
            Err(missing) if !self.unknown.contains(&missing) => self.unknown.push(missing),
            Err(_) => {}
        }
    }
}

/// What `is_compatible` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compatible {
    Yes,
    No,
    /// It fails with an exception.
    Raises,
    Unknown,
}

/// One op on this machine.
#[derive(Debug, Clone)]
pub struct OpState<'a> {
    pub op: &'a Op,
    pub build: Option<&'a OpBuild>,
    pub wish: Wish,
    pub installed: Installed,
    pub compatible: Compatible,
    pub prebuild: Decision,
    pub jit: Decision,
    /// What a pre-build compiles for.
    pub archs: Archs,
    /// The flags of a pre-build.
    pub flags: Flags,
}

/// Every op of the release for this accelerator, in alphabetical order.
pub fn states<'a>(scene: &Scene<'a>) -> Vec<OpState<'a>> {
    let ops: Vec<&Op> = scene.know.deepspeed_ops(&scene.deepspeed.version, scene.accelerator).collect();
    // Those that take part in one pre-build, for what one does to the next.
    let gates: Vec<Decision> = ops.iter().map(|op| gate::gate(scene, op)).collect();
    let wishes = wish::wishes(scene, &ops, &gates);
    let lists = archs::prebuild(scene, &ops, &gates, &wishes);
    let rows = ops.iter().zip(gates).zip(wishes).zip(lists);
    rows.map(|(((op, gate), wish), archs)| {
        let build = scene.know.op_build(op, &scene.deepspeed.version);
        OpState {
            wish,
            installed: installed::installed(scene, op, build),
            compatible: compatible(&gate),
            prebuild: decision(scene, op, build, BuildPath::Prebuild, &gate, &archs),
            jit: decision(scene, op, build, BuildPath::Jit, &gate, &archs),
            flags: flags::flags(scene, op, build, &archs),
            archs,
            op,
            build,
        }
    })
    .collect()
}

fn compatible(gate: &Decision) -> Compatible {
    let with = |stage| gate.obstacles.iter().any(|obstacle| obstacle.stage == stage);
    match () {
        () if with(Stage::Raises) => Compatible::Raises,
        () if with(Stage::Refused) => Compatible::No,
        () if !gate.unknown.is_empty() => Compatible::Unknown,
        () => Compatible::Yes,
    }
}

fn decision(scene: &Scene<'_>, op: &Op, build: Option<&OpBuild>, path: BuildPath, gate: &Decision, archs: &Archs) -> Decision {
    let mut all = gate.clone();
    let Some(build) = build.filter(|build| build.cpp + build.cu > 0) else {
        all.obstacles.push(Obstacle::new("ds-op-incompatible", Stage::Dies, "a placeholder without sources: nothing is built of it"));
        return all;
    };
    if scene.torch.is_none() {
        return all;
    }
    if let Some(broken) = scene.know.deepspeed_broken_op(&op.op, &scene.deepspeed.version) {
        let says = format!("DeepSpeed {}'s own source of {} compiles with no nvcc: `{}`", scene.deepspeed.version, op.op, broken.error);
        all.obstacles.push(Obstacle::new("ds-op-source-broken", Stage::Dies, says));
    }
    if build.extension == Extension::Cuda && scene.accelerator == AcceleratorKind::Cuda {
        all.add(needs::toolkit(scene, build, path));
        for found in needs::versions(scene, build, path) {
            all.obstacles.push(found);
        }
        for found in archs::obstacles(scene, op, build, path, archs) {
            all.add(found);
        }
    }
    for found in needs::outside(scene, op, build, path) {
        all.add(found);
    }
    let mut kept: Vec<Obstacle> = Vec::new();
    for obstacle in all.obstacles {
        if !kept.iter().any(|known| known.id == obstacle.id && known.says == obstacle.says) {
            kept.push(obstacle);
        }
    }
    all.obstacles = kept;
    all
}
