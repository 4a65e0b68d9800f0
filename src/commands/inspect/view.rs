//! What the models say of one file, in words for the renderers.

use crate::checks::Case;
use crate::checks::inspect::Symbol;
use crate::collect::inspect::Symbols;
use crate::facts::inspect::Binary;
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::knowledge::Knowledge;
use crate::model::device_code::{Reason, Runs, runs_on};
use crate::model::inspect::{Load, Loads, Within};
use crate::model::loader::{Answer, Need, Via};
use crate::model::symbols::{Owner, cxx11_abi, owner};
use crate::render::inspect as shown;
use crate::version::{Capability, CudaVersion};
use std::collections::BTreeSet;

/// The GPUs that a file is held against.
pub struct Gpus {
    pub all: Vec<(String, Capability)>,
    /// They were named, or are in this machine; else they are the usual ones, shown for orientation.
    pub asked: bool,
    /// The CUDA level of this machine's driver.
    pub driver: Option<CudaVersion>,
}

/// One GPU of each capability that desktop and data centre cards have, from Volta on, by the name that people know.
const USUAL: [(&str, u32, u32); 9] = [
    ("V100", 7, 0),
    ("T4", 7, 5),
    ("A100", 8, 0),
    ("A10", 8, 6),
    ("L4", 8, 9),
    ("H100", 9, 0),
    ("B200", 10, 0),
    ("B300", 10, 3),
    ("RTX 5090", 12, 0),
];

/// Those of `--gpu` or of this machine.
pub fn gpus(case: &Case<'_>, named: bool) -> Gpus {
    let devices = if named { case.facts.gpu.devices.value().map(|all| all.iter().collect()) } else { case.gpus().ok() };
    let mut all: Vec<(String, Capability)> = Vec::new();
    for device in devices.unwrap_or_default() {
        let Some(capability) = device.capability else { continue };
        let name = device.name.clone().unwrap_or_else(|| capability.to_string());
        if !all.iter().any(|(known, _)| *known == name) {
            all.push((name, capability));
        }
    }
    if !all.is_empty() {
        let driver = case.facts.gpu.driver.value().filter(|_| !named);
        let driver = driver.and_then(|driver| {
            let nvml = driver.nvml.value().and_then(|nvml| nvml.cuda);
            let libcuda = driver.libcuda.value().and_then(|libcuda| libcuda.cuda);
            let kernel = driver.kernel.value().and_then(|module| case.know.driver_cuda(&module.version));
            libcuda.or(nvml).or(kernel)
        });
        return Gpus { all, asked: true, driver };
    }
    let all = USUAL.iter().map(|(name, major, minor)| ((*name).to_owned(), Capability::new(*major, *minor))).collect();
    Gpus { all, asked: false, driver: None }
}

/// The symbols that nothing in the file's scope has, and which of torch's libraries would have them.
///
/// # Errors
/// A file of the scope that cannot be asked.
pub fn missing(symbols: &mut Symbols<'_>, loads: &Loads<'_>, binary: &Binary, load: &Load) -> Result<Vec<Symbol>, String> {
    let imports = match &binary.imports {
        Observed::Seen { value } => value,
        Observed::Failed { why } | Observed::Skipped { why } => return Err(why.clone()),
        Observed::Absent { .. } => return Ok(Vec::new()),
    };
    // Where a library is not there, what it would bring is not known: only torch's own names are asked for.
    let whole = load.opening.is_whole();
    let strong = imports.iter().filter(|import| !import.weak && (whole || owner(&import.name) == Owner::Torch));
    let left = symbols.missing(strong.map(|import| import.name.as_str()), &load.scope())?;
    let torch = loads.torch();
    let libraries: Vec<HostPath> = torch.iter().flat_map(|torch| torch.libs.keys().map(|name| torch.path.join("lib").join(name))).collect();
    let mut found = Vec::new();
    for name in left {
        let mut in_torch = None;
        if owner(name) == Owner::Torch {
            for library in &libraries {
                if symbols.missing([name], std::slice::from_ref(library))?.is_empty() {
                    in_torch = Some(library.clone());
                    break;
                }
            }
        }
        found.push(Symbol { name: name.to_owned(), in_torch });
    }
    Ok(found)
}

pub fn view<'b>(
    know: &Knowledge,
    binary: &'b Binary,
    load: Result<&Load, &String>,
    missing: Option<Result<Vec<Symbol>, String>>,
    gpus: &Gpus,
) -> shown::View<'b> {
    let torch: Vec<&str> = binary
        .imports
        .value()
        .into_iter()
        .flatten()
        .map(|import| import.name.as_str())
        .filter(|name| owner(name) == Owner::Torch)
        .collect();
    shown::View {
        runs: binary
            .device_code
            .value()
            .map(|code| {
                gpus.all.iter().map(|(name, capability)| row(name, *capability, runs_on(know, code, *capability, gpus.driver))).collect()
            })
            .unwrap_or_default(),
        libraries: load.map(|load| libraries(binary, load)).unwrap_or_default(),
        judged: load.map(|load| within(load.within)).map_err(Clone::clone),
        undefined: match missing {
            Some(Ok(symbols)) => Observed::seen(symbols.into_iter().map(|symbol| symbol.name).collect()),
            Some(Err(why)) => Observed::failed(why),
            None => Observed::skipped("not judged"),
        },
        torch_symbols: torch.len(),
        cxx11_abi: torch.iter().find_map(|name| cxx11_abi(name)),
        binary,
    }
}

const fn within(within: Within) -> &'static str {
    match within {
        Within::Alone => "alone",
        Within::Python => "python",
        Within::AfterTorch => "after-torch",
    }
}

fn row(name: &str, capability: Capability, runs: Runs) -> shown::Runs {
    let by = match runs {
        Runs::Sass(target) | Runs::Ptx(target) => target.to_string(),
        Runs::Partly { served, of } => format!("{served} of {of} containers have code for it"),
        Runs::No(Reason::NoCode) => String::new(),
        Runs::No(Reason::PtxTooNew(isa)) => format!("the driver is too old for PTX ISA {isa}"),
    };
    shown::Runs { gpu: name.to_owned(), capability: capability.to_string(), runs: runs.wholly(), by }
}

/// Each name once, as it is first asked for.
fn libraries(binary: &Binary, load: &Load) -> Vec<shown::Library> {
    let own = load.opening.scope.first();
    let mut seen = BTreeSet::new();
    let needs = load.opening.needs.iter().filter(|need| seen.insert(need.name.as_str()));
    needs.map(|need| library(need, own.filter(|_| !binary.name().is_empty()))).collect()
}

fn library(need: &Need, own: Option<&HostPath>) -> shown::Library {
    let (answer, path, how) = match &need.answer {
        Answer::Found { path, via } => ("found", Some(path.clone()), how(via)),
        Answer::Refused { path, why, .. } => ("refused", Some(path.clone()), why.clone()),
        Answer::NotFound { no_cache: true } => {
            ("missing", None, "nowhere on the loader's search, and there is no /etc/ld.so.cache".to_owned())
        }
        Answer::NotFound { .. } => ("missing", None, "nowhere on the loader's search".to_owned()),
        Answer::Unknown { why } => ("unknown", None, why.clone()),
    };
    shown::Library { name: need.name.clone(), answer, path, how, by: (own != Some(&need.by)).then(|| need.by.clone()) }
}

fn how(via: &Via) -> String {
    match via {
        Via::Rpath { .. } => "RPATH".to_owned(),
        Via::Runpath { .. } => "RUNPATH".to_owned(),
        Via::LibraryPath { entry } => format!("LD_LIBRARY_PATH, entry {entry}"),
        Via::Cache => "/etc/ld.so.cache".to_owned(),
        Via::DefaultFolder => "default folder".to_owned(),
        Via::Preloaded => "preloaded".to_owned(),
        Via::ByPath => "by its path".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knowledge::gpu::GpuMatch;

    #[test]
    fn the_usual_gpus_are_what_the_tables_say() {
        let know = Knowledge::embedded();
        for (name, major, minor) in USUAL {
            let found = know.gpu(name);
            assert!(
                matches!(&found, GpuMatch::One { capability, .. } if *capability == Capability::new(major, minor)),
                "{name}: {found:?}"
            );
        }
    }
}
