//! What an overlay is to hold: chosen from the facts, before anything is made.

use crate::checks::{Case, Purpose, best_toolkit};
use crate::cli::OverlayCreateArgs;
use crate::collect;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::toolkit::{LibFolderKind, Toolkit};
use crate::host::{Environment, Host, Live};
use crate::knowledge::Knowledge;
use crate::model::overlay::{self as model, Gcc};
use crate::repair::manifest::Manifest;
use crate::repair::overlay::{Place, look};
use crate::repair::plan::{self, HostGcc, Order};
use anyhow::{Context as _, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The facts of this machine, with this variable on top.
pub fn facts_with(python: Option<&Path>, cuda_home: Option<&Path>) -> Snapshot {
    let mut env: Environment = Live::new().env().clone();
    if let Some(home) = cuda_home {
        env.insert(OsString::from("CUDA_HOME"), home.into());
    }
    let options = collect::Options {
        timeout: Duration::from_secs(5),
        python: python.map(Path::to_owned),
        ask_gpu: false,
        ..collect::Options::default()
    };
    collect::snapshot(&Live::with_env(env), &options)
}

/// What is to be made, and what is said about it.
pub struct Draft {
    pub manifest: Manifest,
    pub gcc: Gcc,
    /// The toolkit as found, for people.
    pub toolkit: HostPath,
}

/// For the toolkit that is named or found.
///
/// # Errors
/// Where no overlay can be made of it, with the reason.
pub fn draft(args: &OverlayCreateArgs, dir: &Path, know: &Knowledge) -> anyhow::Result<Draft> {
    let host = Live::new();
    let named = args.toolkit.as_deref().map(|path| collect::search::absolute(&host, path).context("the current folder is not known"));
    let mut facts = facts_with(args.python.as_deref(), named.transpose()?.as_deref());
    // Where an overlay is in use, the toolkit behind it is meant.
    for _ in 0..2 {
        let Some(behind) = picked(args, &Case::new(&facts, know, Purpose::Build, &[]))?.and_then(|toolkit| behind(&toolkit.real)) else {
            break;
        };
        facts = facts_with(args.python.as_deref(), Some(&behind));
    }
    let case = Case::new(&facts, know, Purpose::Build, &[]);
    let toolkit = picked(args, &case)?
        .context("no CUDA toolkit with an nvcc is seen on this machine: name one with --toolkit, or see `ds-doctor check`")?;
    if let Some(why) = plan::refusal(toolkit) {
        bail!("{why}");
    }
    if dir.starts_with(&toolkit.real) || toolkit.real.starts_with(dir) {
        bail!("`{}` and the toolkit `{}` would lie in one another", dir.display(), toolkit.real);
    }
    let torch = case.torch().ok().flatten();
    let gcc = model::gcc(&facts, know, torch, toolkit, dir);
    let compiler = match &gcc {
        Gcc::Taken { gcc, gxx, .. } => Some(HostGcc { gcc: gcc.clone(), gxx: gxx.clone() }),
        _ => None,
    };
    let order = Order { toolkit, packages: packages(&host, &case, toolkit), compiler, driver: driver(&facts, toolkit) };
    Ok(Draft { manifest: plan::manifest(&host, &order), gcc, toolkit: toolkit.root.clone() })
}

/// The toolkit that torch finds, else the one that fits it best.
fn picked<'a>(args: &OverlayCreateArgs, case: &Case<'a>) -> anyhow::Result<Option<&'a Toolkit>> {
    let found = case.toolkit().map_err(|missing| anyhow::anyhow!("the toolkits could not be looked at: {}", missing.why))?;
    match &args.toolkit {
        Some(named) if found.is_none() => bail!("`{}` is no CUDA toolkit", named.display()),
        _ => Ok(found.or_else(|| best_toolkit(case, true))),
    }
}

/// The toolkit behind an overlay; `None` where this is none.
fn behind(root: &Path) -> Option<PathBuf> {
    match look(root) {
        Ok(Place::Overlay(overlay)) => Some(overlay.manifest.toolkit.0),
        _ => None,
    }
}

/// The driver's libcuda, for where the toolkit has no stub of it.
fn driver(facts: &Snapshot, toolkit: &Toolkit) -> Option<HostPath> {
    let stubs = toolkit.libs.iter().filter(|folder| folder.kind == LibFolderKind::Stubs);
    let has = stubs.flat_map(|folder| &folder.files).any(|file| file == "libcuda.so");
    model::driver(facts).filter(|_| !has).cloned()
}

/// Folders of NVIDIA's Python packages, those of the toolkit's release and the libraries that go with them.
fn packages(host: &dyn Host, case: &Case<'_>, toolkit: &Toolkit) -> Vec<PathBuf> {
    let Some(python) = case.python().ok().flatten() else { return Vec::new() };
    let anchors = model::packages(case.facts, python, toolkit);
    let mut folders: Vec<PathBuf> = anchors.iter().map(|anchor| anchor.real.0.clone()).collect();
    let itself = Some(&toolkit.real).filter(|real| python.site.iter().any(|site| real.starts_with(site)));
    for anchor in anchors.iter().map(|anchor| &anchor.real).chain(itself) {
        let Some(nvidia) = anchor.parent().filter(|folder| folder.ends_with("nvidia")) else { continue };
        let whole = anchor.file_name().and_then(|name| name.to_str()).is_some_and(|name| !name.starts_with("cuda_"));
        let beside = if whole { model::BESIDE_WHOLE } else { model::COMPONENTS };
        folders.extend(beside.iter().map(|name| nvidia.join(name)).filter(|folder| host.is_folder(folder)));
    }
    let mut seen = std::collections::BTreeSet::new();
    folders.retain(|folder| seen.insert(folder.clone()));
    folders
}
