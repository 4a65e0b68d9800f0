//! Where evoformer_attn finds CUTLASS. From `EvoformerAttnBuilder` of DeepSpeed 0.11 to 0.19.8.

use super::{Obstacle, Scene, Stage};
use crate::facts::observed::Missing;
use crate::facts::ops::{CUTLASS_INCLUDES, CUTLASS_PLACES, CUTLASS_PREFIXES, CutlassPlace, OpsFacts};
use crate::facts::python::Interpreter;
use crate::knowledge::schema::ops::CutlassGate;
use crate::model::search;
use std::path::PathBuf;

const IGNORE: &str = "DS_IGNORE_CUTLASS_DETECTION";
const BINDINGS: &str = "DS_USE_CUTLASS_PYTHON_BINDINGS";
const ID: &str = "cutlass-missing";

/// The folders of its headers, none where the user says that the compiler finds them by itself; or what is in the way.
///
/// # Errors
/// When the places could not be looked at.
pub fn find(scene: &Scene<'_>, way: CutlassGate) -> Result<Result<Vec<PathBuf>, Obstacle>, Missing> {
    let Some(ops) = scene.facts.ops.get("ops")? else { return Ok(Ok(Vec::new())) };
    let named = scene.facts.env.text("CUTLASS_PATH");
    let shown = named.clone().unwrap_or_default();
    let refused = |says: String| {
        let obstacle = Obstacle::new(ID, Stage::Refused, says);
        Ok(Err(if shown.is_empty() { obstacle } else { obstacle.seen("CUTLASS_PATH", shown.clone(), None, "environment") }))
    };
    if matches!(way, CutlassGate::Log | CutlassGate::Path) {
        return Ok(by_log(scene, ops, way, named.as_deref()));
    }
    let places: Vec<PathBuf> = match named.as_deref() {
        Some(IGNORE) => return Ok(Ok(Vec::new())),
        Some(path) if way == CutlassGate::Word => {
            let says = format!(
                "evoformer_attn of DeepSpeed {} dies of `CUTLASS_PATH={path}`: only `{IGNORE}` goes through",
                scene.deepspeed.version
            );
            let obstacle = Obstacle::new(ID, Stage::Dies, says).seen("CUTLASS_PATH", path, None, "environment");
            return Ok(Err(obstacle));
        }
        Some(BINDINGS) => match scene.python.and_then(bindings) {
            Some(places) => places,
            None => return refused("`CUTLASS_PATH` asks for the Python package nvidia-cutlass, which is not installed".to_owned()),
        },
        Some(path) => search::absolute(scene.facts, path.as_ref()).into_iter().collect(),
        None if way == CutlassGate::Search => searched(scene),
        None => return refused("evoformer_attn needs CUTLASS, and `CUTLASS_PATH` is not set".to_owned()),
    };
    let found = places.iter().filter_map(|place| ops.cutlass(place)).find_map(|place| Some((place, folders(place, way)?)));
    let Some((place, folders)) = found else {
        return refused(match named {
            Some(path) => format!("there are no CUTLASS headers in `{path}`, which `CUTLASS_PATH` names"),
            None => "evoformer_attn needs CUTLASS, and none is found where DeepSpeed searches".to_owned(),
        });
    };
    // Its test of the version: the text must be somewhere in the file, where there is one.
    if place.log_names_3_1_0 == Some(false) {
        return refused(format!("`{}` is older than CUTLASS 3.1.0", place.path));
    }
    Ok(Ok(folders))
}

/// Up to 0.18.4: the value is a path whatever it says, and nothing but its CHANGELOG.md is looked at.
fn by_log(scene: &Scene<'_>, ops: &OpsFacts, way: CutlassGate, named: Option<&str>) -> Result<Vec<PathBuf>, Obstacle> {
    let Some(named) = named else {
        return Err(Obstacle::new(ID, Stage::Refused, "evoformer_attn needs CUTLASS, and `CUTLASS_PATH` is not set"));
    };
    let seen = |stage, says: String| Obstacle::new(ID, stage, says).seen("CUTLASS_PATH", named, None, "environment");
    let path = search::absolute(scene.facts, named.as_ref()).unwrap_or_else(|| PathBuf::from(named));
    let place = ops.cutlass(&path);
    match place.and_then(|place| place.log_names_3_1_0) {
        Some(true) => {}
        Some(false) => return Err(seen(Stage::Refused, format!("`{named}` is older than CUTLASS 3.1.0"))),
        None if way == CutlassGate::Log => {
            let says = format!("DeepSpeed {} reads `{named}/CHANGELOG.md`, which is not there, and dies of it", scene.deepspeed.version);
            return Err(seen(Stage::Raises, says));
        }
        None => {
            // Its comparison wants 1 or more of the minor too, so that 4.0 is refused.
            let package = scene.python.and_then(|python| python.package("nvidia-cutlass"));
            if !package.is_some_and(|package| package.version.major() >= 3 && package.version.minor() >= 1) {
                let says = format!(
                    "`{named}` has no CHANGELOG.md, and the Python package nvidia-cutlass of 3.1 or newer is not there to be asked instead"
                );
                return Err(seen(Stage::Refused, says));
            }
        }
    }
    match place {
        Some(place) if place.include => Ok(folders(place, way).unwrap_or_default()),
        _ => Err(seen(Stage::Dies, format!("there are no CUTLASS headers in `{named}`, which `CUTLASS_PATH` names"))),
    }
}

fn bindings(python: &Interpreter) -> Option<Vec<PathBuf>> {
    let site = &python.package("nvidia-cutlass")?.site;
    let folder = site.join("cutlass_library").0;
    Some(vec![folder.join("source"), site.0.clone(), folder])
}

fn searched(scene: &Scene<'_>) -> Vec<PathBuf> {
    let env = &scene.facts.env;
    let of = |names: &[&'static str]| {
        let entries = names.iter().flat_map(|name| env.entries(name)).filter(|path| !path.as_os_str().is_empty());
        entries.filter_map(|path| search::absolute(scene.facts, &path)).collect::<Vec<_>>()
    };
    let prefixes = scene.python.into_iter().flat_map(|python| [python.prefix.0.clone(), python.base_prefix.0.clone()]);
    let here = env.cwd.iter().map(|folder| folder.join("cutlass").0);
    // In a package the builders lie in deepspeed/ops, in a source tree beside deepspeed.
    let package = &scene.deepspeed.path;
    let root = scene.facts.ops.value().and_then(|ops| ops.builders(package)).and_then(|builders| builders.folder.parent());
    let root = root.map_or_else(|| package.join("ops").0, PathBuf::from);
    let beside = [Some(root.join("cutlass")), root.parent().map(|parent| parent.join("cutlass"))].into_iter().flatten();
    let own = scene.python.and_then(bindings).into_iter().flatten();
    let usual = CUTLASS_PLACES.iter().map(PathBuf::from);
    own.chain(of(CUTLASS_PREFIXES)).chain(prefixes).chain(of(CUTLASS_INCLUDES)).chain(here).chain(beside).chain(usual).collect()
}

fn folders(place: &CutlassPlace, way: CutlassGate) -> Option<Vec<PathBuf>> {
    let path = &place.path.0;
    let (include, utilities) = match way {
        // The header itself is looked for only since the search.
        CutlassGate::Log | CutlassGate::Path | CutlassGate::PathOrWord | CutlassGate::Word => {
            (place.include.then(|| path.join("include")), place.utilities.then(|| path.join("tools/util/include")))
        }
        CutlassGate::Search if place.header_in_include => {
            (Some(path.join("include")), place.utilities.then(|| path.join("tools/util/include")))
        }
        CutlassGate::Search if place.header => {
            let beside = path.parent().filter(|_| place.utilities_beside).map(|parent| parent.join("tools/util/include"));
            (Some(path.clone()), beside)
        }
        CutlassGate::Search => return None,
    };
    let found: Vec<PathBuf> = include.into_iter().chain(utilities).collect();
    if found.is_empty() { None } else { Some(found) }
}
