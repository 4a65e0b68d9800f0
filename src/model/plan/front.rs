//! What makes the wheel: pip, or PyPA's build where the environment has no pip.
//!
//! DeepSpeed has a setup.py and no pyproject.toml. Every pip that a Python of today can run knows `--no-build-isolation`, `--no-deps` and
//! `--no-cache-dir`; `--global-option`, which 25.3 removed, and `--build-option` are asked for by none of these plans.
//! Source: a project with a setup.py alone, made into a wheel without isolation by pip 19.3.1, 22.3.1, 23.0.1, 24.0, 25.3 and 26.3 beside
//! setuptools 69.5.1 and 70.1.0, with the package wheel and without.

use super::Ask;
use crate::model::assume::is_assumed;
use crate::model::ops::Scene;
use crate::model::search;

/// The program that makes the wheel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Front {
    Pip,
    /// `python -m build`, for source trees; what it makes is installed by uv.
    Build,
}

/// What is missing for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    Pip,
    /// setuptools before 70.1 leaves `bdist_wheel` to the package wheel.
    Wheel {
        setuptools: String,
    },
}

/// setuptools makes wheels by itself from here on. Source: its changelog, and run.
const OWN_WHEEL: [u32; 2] = [70, 1];

/// # Errors
/// What the environment lacks.
pub fn front(scene: &Scene<'_>, ask: &Ask) -> Result<Front, Lack> {
    // Of an environment that is only assumed nothing is known.
    let Some(python) = scene.python.filter(|python| !python.packages.is_empty()) else { return Ok(Front::Pip) };
    let front = if python.package("pip").is_some() {
        Front::Pip
    } else if ask.source.is_some() && python.package("build").is_some() && (ask.wheel || search::which(scene.facts, "uv").is_some()) {
        Front::Build
    } else {
        return Err(Lack::Pip);
    };
    match python.package("setuptools") {
        Some(setuptools) if !setuptools.version.at_least(&OWN_WHEEL) && python.package("wheel").is_none() => {
            Err(Lack::Wheel { setuptools: setuptools.version.to_string() })
        }
        _ => Ok(front),
    }
}

/// The interpreter of the commands; where it is only assumed, whatever the shell finds.
pub fn interpreter(scene: &Scene<'_>) -> String {
    match scene.python {
        Some(python) if !is_assumed(&python.path) => python.path.to_string(),
        _ => "python3".to_owned(),
    }
}
