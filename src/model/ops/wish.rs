//! Which ops a pre-build is asked for: `DS_BUILD_*`, as setup.py reads it.

use super::{Decision, Scene, Stage};
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::knowledge::schema::ops::Op;

/// Whether, and by what, an op is asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Wish {
    #[default]
    No,
    /// Its own variable.
    Own,
    /// `DS_BUILD_OPS`.
    All,
    /// Another op that needs it at run time.
    For(String),
}

impl Wish {
    pub fn is_wanted(&self) -> bool {
        *self != Self::No
    }
}

/// `int(os.environ.get(…))` of setup.py. `None`: not a number, of which it dies.
fn number(scene: &Scene<'_>, variable: &str, default: i64) -> Option<i64> {
    let empty_is_unset = scene.does(DeepSpeedTrait::EmptyIsUnset);
    match scene.facts.env.get(variable).map(|value| value.to_string_lossy()) {
        None => Some(default),
        Some(value) if value.is_empty() && empty_is_unset => Some(default),
        Some(value) => value.trim().replace('_', "").parse().ok(),
    }
}

/// What the environment says of one op.
pub fn wish(scene: &Scene<'_>, op: &Op) -> Wish {
    let all = number(scene, "DS_BUILD_OPS", 0).unwrap_or(0);
    match number(scene, &op.variable, all) {
        Some(0) | None => Wish::No,
        Some(_) if scene.facts.env.filled(&op.variable).is_some() => Wish::Own,
        Some(_) => Wish::All,
    }
}

/// The same of all, with what one op asks for another: since 0.19.5 async_io and gds take pin_memory with them.
pub(super) fn wishes(scene: &Scene<'_>, ops: &[&Op], gates: &[Decision]) -> Vec<Wish> {
    let mut wishes: Vec<Wish> = ops.iter().map(|op| wish(scene, op)).collect();
    let built = |name: &str| {
        let at = ops.iter().position(|op| op.op == name)?;
        let fits = gates.get(at).is_some_and(|gate| !gate.obstacles.iter().any(|obstacle| obstacle.stage != Stage::Dies));
        wishes.get(at).filter(|wish| wish.is_wanted() && fits).map(|_| name.to_owned())
    };
    let needs = built("async_io").or_else(|| built("gds"));
    if let (Some(at), Some(by)) = (ops.iter().position(|op| op.op == "pin_memory"), needs)
        && let Some(wish) = wishes.get_mut(at).filter(|wish| !wish.is_wanted())
    {
        *wish = Wish::For(by);
    }
    wishes
}

/// A `DS_BUILD_*` variable that does not do what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WishFault {
    /// No op of any release goes by that name; the nearest variable.
    Unknown { near: Option<String> },
    /// Another release has the op.
    OtherRelease { op: String },
    /// The op belongs to the other accelerator's set.
    OtherAccelerator { op: String },
    /// setup.py dies of it: no number.
    NotANumber,
}

/// Variables that ask for something and are passed over.
pub fn ignored<'a>(scene: &Scene<'a>) -> Vec<(&'a str, WishFault)> {
    const OTHER: &[&str] = &["DS_BUILD_OPS", "DS_BUILD_STRING"];
    let mut found = Vec::new();
    let version = &scene.deepspeed.version;
    let known = |variable: &str, kind| scene.know.deepspeed_ops(version, kind).any(|op| op.variable == variable);
    for (name, value) in scene.facts.env.vars.iter().filter(|(name, _)| name.starts_with("DS_BUILD_")) {
        let asks = !value.is_empty() && *value.0 != *"0";
        if name == "DS_BUILD_STRING" || !asks {
            continue;
        }
        let other = match scene.accelerator {
            AcceleratorKind::Cuda => AcceleratorKind::Cpu,
            AcceleratorKind::Cpu => AcceleratorKind::Cuda,
        };
        if OTHER.contains(&name.as_str()) || known(name, scene.accelerator) {
            if number(scene, name, 0).is_none() {
                found.push((name.as_str(), WishFault::NotANumber));
            }
        } else if let Some(op) = scene.know.deepspeed_ops(version, other).find(|op| op.variable == *name) {
            found.push((name.as_str(), WishFault::OtherAccelerator { op: op.op.to_string() }));
        } else if let Some(op) = scene.know.deepspeed_op_by_variable(name, None) {
            found.push((name.as_str(), WishFault::OtherRelease { op: op.op.to_string() }));
        } else {
            let near = name.strip_prefix("DS_BUILD_").and_then(|rest| scene.know.near_op_variable(rest));
            found.push((name.as_str(), WishFault::Unknown { near: near.map(ToOwned::to_owned) }));
        }
    }
    found
}
