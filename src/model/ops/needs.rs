//! The toolkit, headers and libraries that the build of an op needs.

use super::gate::{flagged, in_one_of, in_toolkits};
use super::{NvccFound, Obstacle, Scene, Stage};
use crate::facts::observed::Missing;
use crate::facts::ops;
use crate::facts::raw::HostPath;
use crate::facts::toolkit::{HEADERS, LibFolderKind};
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::knowledge::schema::ops::{Extension, Op, OpBuild};
use crate::model::build::{self, BuildPath, Pair, VersionCheck};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Whether there is an nvcc, where the op cannot be built without.
pub fn toolkit(scene: &Scene<'_>, build: &OpBuild, path: BuildPath) -> Result<Option<Obstacle>, Missing> {
    let found = scene.nvcc()?;
    if matches!(found, NvccFound::Release(_)) {
        return Ok(None);
    }
    let links_aio = build.link.iter().any(|flag| flag == "-laio");
    let says = match (found, path) {
        _ if build.cu > 0 => "torch finds no nvcc to compile its CUDA code with",
        (_, BuildPath::Jit) if scene.gpu() => "DeepSpeed asks nvcc for its release where there is a GPU, and torch finds none",
        (_, BuildPath::Jit) => return Ok(None),
        (NvccFound::NoNvcc, _) if scene.does(DeepSpeedTrait::ImportNeedsNvcc) => {
            "DeepSpeed runs `nvcc -V` of torch's CUDA_HOME, and there is none"
        }
        // Built for the CPU alone it is not linked with libaio, and so is never loaded.
        _ if links_aio => "without nvcc it is built without its libraries, and cannot be loaded",
        _ => return Ok(None),
    };
    let id = match scene.torch {
        Some(torch) if torch.hip.is_some() => "rocm-torch",
        Some(torch) if torch.cuda.is_none() => "cpu-only-torch",
        _ => scene.no_nvcc_id(),
    };
    Ok(Some(Obstacle::new(id, Stage::Dies, says)))
}

/// The releases of nvcc and torch, as DeepSpeed and torch compare them.
pub fn versions(scene: &Scene<'_>, build: &OpBuild, path: BuildPath) -> Vec<Obstacle> {
    let (Some(torch), Ok(NvccFound::Release(nvcc))) = (scene.torch, scene.nvcc()) else { return Vec::new() };
    let pair = Pair { deepspeed: &scene.deepspeed.version, torch, nvcc };
    let host_op = build.cxx.as_deref() == Some("host");
    let own = build::deepspeed_check(&pair, scene.know, path, scene.facts, host_op);
    let torchs = if path == BuildPath::Prebuild && build.cu > 0 { build::torch_check(path, torch, nvcc) } else { VersionCheck::NotChecked };
    let major = torch.cuda.is_some_and(|cuda| cuda.major != nvcc.major);
    let id = if major { "torch-nvcc-mismatch-major" } else { "torch-nvcc-mismatch-minor" };
    let mut found: Vec<Obstacle> = [own, torchs]
        .into_iter()
        .filter_map(|check| match check {
            VersionCheck::Stops { message, .. } => Some(Obstacle::new(id, Stage::Dies, message)),
            _ => None,
        })
        .collect();
    found.truncate(1);
    if found.is_empty() && major && path == BuildPath::Jit && scene.gpu() {
        let says = format!("nvcc is CUDA {nvcc}, and torch was built for another major: it compiles, and the library does not load");
        found.push(Obstacle::new(id, Stage::Dies, says));
    }
    found
}

/// Headers and libraries from outside DeepSpeed and torch.
pub fn outside(scene: &Scene<'_>, op: &Op, build: &OpBuild, path: BuildPath) -> Vec<Result<Option<Obstacle>, Missing>> {
    let mut found = Vec::new();
    let cuda = build.extension == Extension::Cuda;
    // Without a toolkit that is the obstacle, and not each of its parts.
    if cuda && !matches!(scene.nvcc(), Ok(NvccFound::Release(_))) {
        return found;
    }
    for (id, names) in missing_headers(scene, build, &mut found) {
        let listed = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let mut obstacle = Obstacle::new(id, Stage::Dies, format!("{} includes {listed}, which no compiler finds here", op.op));
        let place = names.iter().find_map(|name| scene.facts.ops.value()?.header(name).next().map(|header| header.folder.clone()));
        if let Some(folder) = place {
            obstacle = obstacle.seen("there", listed, Some(&folder), "on no include path");
            obstacle.helps = Some(("CPATH", folder));
        } else {
            obstacle = obstacle.seen("looked for", names.join(" "), None, "include path");
        }
        found.push(Ok(Some(obstacle)));
    }
    // Without a GPU an op without CUDA code is built for the CPU alone.
    if path == BuildPath::Jit && cuda && build.cu == 0 && !scene.gpu() {
        return found;
    }
    let link = match path {
        BuildPath::Jit => build.jit_link.as_ref().unwrap_or(&build.link),
        _ => &build.link,
    };
    let mut libraries: BTreeSet<&str> = link.iter().filter_map(|flag| flag.strip_prefix("-l")).collect();
    if cuda {
        libraries.insert("cudart");
    }
    for library in libraries {
        found.push(library_found(scene, op, library, path));
    }
    if path == BuildPath::Jit {
        let unset = scene.know.op_gate(op, &scene.deepspeed.version).into_iter().flat_map(|gate| gate.variables.iter());
        for variable in unset.filter(|variable| scene.facts.env.filled(variable).is_none()) {
            let says = format!("`{variable}` is not set, and the builder of {} stops without it", op.op);
            found.push(Ok(Some(Obstacle::new("ds-op-incompatible", Stage::Dies, says))));
        }
    }
    found
}

/// By the problem that they are.
fn missing_headers<'k>(
    scene: &Scene<'k>,
    build: &'k OpBuild,
    unknown: &mut Vec<Result<Option<Obstacle>, Missing>>,
) -> Vec<(&'static str, Vec<&'k str>)> {
    let know = scene.know;
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    for header in build.headers.iter() {
        match know.ops.torch_header.iter().find(|row| row.header == *header) {
            _ if know.op_header(header).is_some() => {
                wanted.insert(header);
            }
            Some(row) if build.extension == Extension::Cuda => {
                wanted.extend(row.needs.iter().map(AsRef::as_ref));
                wanted.extend(row.cuda_needs.iter().filter(|_| build.cu > 0).map(AsRef::as_ref));
            }
            _ => {}
        }
    }
    let mut missing: Vec<(&'static str, Vec<&str>)> = Vec::new();
    for header in wanted {
        // CUTLASS has a search of its own.
        if header.starts_with("cutlass/") {
            continue;
        }
        match reachable(scene, header, build.cu > 0) {
            Ok(true) => {}
            Ok(false) => {
                let problem = know.op_header(header).and_then(|(_, part)| part.header_problem.as_deref());
                let Some(problem) = problem.and_then(|id| know.problem(id)) else { continue };
                match missing.iter_mut().find(|(id, _)| *id == problem.id) {
                    Some((_, names)) => names.push(header),
                    None => missing.push((problem.id, vec![header])),
                }
            }
            Err(why) => unknown.push(Err(why)),
        }
    }
    missing
}

fn reachable(scene: &Scene<'_>, header: &str, by_nvcc: bool) -> Result<bool, Missing> {
    let facts = scene.facts;
    // One file stands for all of CCCL.
    let header = if header.starts_with("thrust/") { "thrust/version.h" } else { header };
    let named = |folder: &HostPath| {
        let lists = ["CPATH", "CPLUS_INCLUDE_PATH"].iter().flat_map(|name| facts.env.entries(name));
        let flags = ["CFLAGS", "CPPFLAGS"].iter().flat_map(|name| flagged(facts.env.get(name), "-I"));
        lists.chain(flags).any(|entry| *entry == *folder.0)
    };
    if HEADERS.contains(&header) {
        let Some(toolkit) = scene.home.toolkit else { return Ok(false) };
        let all = facts.toolkits.get("toolkit")?.map_or(&[][..], Vec::as_slice);
        let own = toolkit.includes.iter().filter(|folder| folder.searched_by_torch || (by_nvcc && folder.searched_by_nvcc));
        let other = all.iter().flat_map(|toolkit| &toolkit.includes).filter(|folder| named(&folder.path));
        if own.chain(other).any(|folder| folder.headers.iter().any(|name| name == header)) {
            return Ok(true);
        }
    }
    if !ops::HEADERS.contains(&header) {
        return Ok(!HEADERS.contains(&header));
    }
    let Some(facts) = facts.ops.get("ops")? else { return Ok(false) };
    Ok(facts.header(header).any(|place| facts.default_includes.contains(&place.folder) || named(&place.folder)))
}

fn library_found(scene: &Scene<'_>, op: &Op, library: &str, path: BuildPath) -> Result<Option<Obstacle>, Missing> {
    // What comes with a package of its own is asked for there.
    let Some((row, part)) = scene.know.op_library(library) else { return Ok(None) };
    if matches!(row.part.as_ref(), "kernels" | "ccl") {
        return Ok(None);
    }
    let Some(problem) = part.library_problem.as_deref().and_then(|id| scene.know.problem(id)) else { return Ok(None) };
    let facts = scene.facts;
    let ops = facts.ops.get("ops")?;
    let mut folders: Vec<PathBuf> = scene.home.lib_folders(facts).into_iter().map(|folder| folder.0).collect();
    let own = scene.know.op_build(op, &scene.deepspeed.version).is_some_and(|build| build.link.iter().any(|flag| flag == "-L{cuda}/lib64"));
    if own {
        folders.extend(["", "lib64"].iter().filter_map(|below| scene.home.join(below)).map(|folder| folder.0));
    }
    folders.extend(facts.env.entries("LIBRARY_PATH"));
    if path == BuildPath::Prebuild {
        folders.extend(flagged(facts.env.get("LDFLAGS"), "-L"));
    }
    folders.extend(ops.into_iter().flat_map(|ops| &ops.default_libs).map(|folder| folder.0.clone()));
    let names = [format!("lib{library}.so"), format!("lib{library}.a")];
    let by_loader = || {
        let loader = facts.loader.value();
        names.iter().any(|name| loader.is_some_and(|loader| folders.iter().any(|folder| loader.at(folder, name).is_some())))
    };
    let by_ops = || ops.is_some_and(|ops| ops.library(library).any(|name| name.linkable && in_one_of(&name.path, &folders)));
    if names.iter().any(|name| in_toolkits(scene, name, &folders)) || by_ops() || by_loader() {
        return Ok(None);
    }
    facts.loader.get("libraries")?;
    let mut obstacle =
        Obstacle::new(problem.id, Stage::Dies, format!("{} links `-l{library}`, and the linker finds no `lib{library}.so`", op.op));
    let stub = scene.home.toolkit.into_iter().flat_map(|toolkit| &toolkit.libs).find(|lib| {
        (library == "cuda" || lib.kind != LibFolderKind::Stubs) && lib.files.iter().any(|file| *file == format!("lib{library}.so"))
    });
    if let Some(lib) = stub {
        obstacle = obstacle.seen("there", format!("lib{library}.so"), Some(&lib.path), "where the linker does not look");
        obstacle.helps = Some(("LIBRARY_PATH", lib.path.clone()));
    }
    Ok(Some(obstacle))
}
