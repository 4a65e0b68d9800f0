//! `ds-doctor overlay`

use super::output;
use super::overlay_draft::{Draft, draft, facts_with};
use super::subject::Subject;
use crate::checks::{Case, Plan, Purpose, Step, after, judge};
use crate::cli::{ListingFormat, OverlayAction, OverlayArgs, OverlayCreateArgs, OverlayDirArgs, TalkArgs};
use crate::collect;
use crate::exit::Exit;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::finding::{Action, Finding, Fix, Severity};
use crate::host::{Host, Live};
use crate::knowledge::Knowledge;
use crate::model::overlay::Gcc;
use crate::model::search;
use crate::render::json::Envelope;
use crate::render::shell::word;
use crate::repair::manifest::{Manifest, Why};
use crate::repair::overlay::{Done, Fault, Place, look, make, remove};
use crate::text::{clean, count};
use anyhow::{Context as _, bail};
use serde_json::json;
use std::io::Write;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// # Errors
/// Wherever nothing was changed, with the reason.
pub fn run(args: &OverlayArgs) -> anyhow::Result<Exit> {
    match &args.action {
        OverlayAction::Create(args) => create(args),
        OverlayAction::Show(args) => show(args),
        OverlayAction::Remove(args) => take_away(args),
    }
}

/// The folder named, else the usual one. Absolute, since a later build runs in another folder.
///
/// # Errors
/// Where neither it nor the home folder is known, or no build could use it.
pub fn folder(named: Option<&Path>, host: &dyn Host) -> anyhow::Result<PathBuf> {
    let dir = match named {
        Some(dir) => collect::search::absolute(host, dir).context("the current folder is not known")?,
        None => {
            let absolute = |name: &str| host.var(name).map(PathBuf::from).filter(|path| path.is_absolute());
            let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
            data.context("neither XDG_DATA_HOME nor HOME is set: name the folder of the overlay")?.join("ds-doctor/overlay")
        }
    };
    let dir = collect::search::tidy(&dir);
    // `../cuda` is named by where it leads, for a variable that is read in other folders and by other programs.
    let climbs = dir.components().any(|part| part == Component::ParentDir);
    let real = dir.parent().filter(|_| climbs).and_then(|parent| host.real_path(parent).ok());
    Ok(real.zip(dir.file_name()).map_or_else(|| dir.clone(), |(parent, name)| parent.join(name)))
}

/// The overlay in this folder, with every link as it was made.
///
/// # Errors
/// When it is none, or something in it is not as it was made.
pub fn whole(named: &Path) -> anyhow::Result<PathBuf> {
    let dir = folder(Some(named), &Live::new())?;
    let Place::Overlay(overlay) = look(&dir)? else {
        bail!("there is no overlay in `{}`: `ds-doctor overlay create` makes one", dir.display())
    };
    let faults = overlay.faults().with_context(|| format!("`{}` cannot be read", dir.display()))?;
    if let Some(fault) = faults.first() {
        bail!("the overlay `{}` is not whole: {fault}; `ds-doctor overlay create {0}` makes it anew", dir.display());
    }
    Ok(dir)
}

/// The usual overlay, where a plan asks for one and it is there.
pub fn usual_for(plan: &Plan) -> Option<PathBuf> {
    let asks = |step: &Step| matches!(&step.fix.action, Action::Run { argv, .. } if *argv == ["ds-doctor", "overlay", "create"]);
    let dir = folder(None, &Live::new()).ok().filter(|_| plan.steps.iter().any(asks))?;
    whole(&dir).ok()
}

/// The steps that put an overlay in force: for torch, and for a person or a CMake that takes the `nvcc` of PATH.
pub fn steps(facts: &Snapshot, dir: &Path) -> Vec<Step> {
    let step = |fix: Fix| Step { id: "overlay", title: "the overlay in place of its toolkit".to_owned(), fix };
    let mut steps = vec![step(Fix::set("CUDA_HOME", dir, "CUDA_HOME leads to the overlay instead of its toolkit"))];
    let bin = HostPath::new(dir.join("bin"));
    if search::which(facts, "nvcc").is_none_or(|hit| hit.program.path != bin.join("nvcc")) {
        steps.push(step(Fix::prepend("PATH", &bin, "PATH leads to the same `nvcc`")));
    }
    steps
}

/// # Errors
/// When the steps leave a fault of the overlay that no variable cures: nothing is to point to it then.
pub fn healthy(subject: &Subject, steps: &[Step], dir: &Path) -> anyhow::Result<()> {
    let facts = after(steps, &subject.facts);
    let judged = judge(&Case::new(&facts, &subject.know, Purpose::Build, &[]), &|_| true);
    let about = dir.display().to_string();
    let by_variable = |finding: &Finding| {
        let mut first = finding.fixes.iter().filter(|fix| fix.choice == 0).peekable();
        first.peek().is_some() && first.all(Fix::is_env)
    };
    let fault = |finding: &&Finding| finding.subject == about && finding.weight() == Severity::Error && !by_variable(finding);
    match judged.findings.iter().find(fault) {
        Some(finding) => {
            bail!("the overlay `{about}` is not healthy, so nothing is made to point to it: {}: {}", finding.id, finding.title)
        }
        None => Ok(()),
    }
}

/// Makes the usual overlay, or with `dry_run` only says where it would be.
///
/// # Errors
/// As `overlay create`.
pub fn make_usual(python: Option<&Path>, dry_run: bool) -> anyhow::Result<(PathBuf, Option<Done>)> {
    let dir = folder(None, &Live::new())?;
    usable_name(&dir)?;
    let args = OverlayCreateArgs {
        dir: None,
        toolkit: None,
        python: python.map(Path::to_owned),
        dry_run,
        format: ListingFormat::Human,
        talk: TalkArgs::default(),
    };
    let draft = draft(&args, &dir, &Knowledge::embedded())?;
    let done = if dry_run { None } else { Some(make(&dir, &draft.manifest)?) };
    Ok((dir, done))
}

/// # Errors
/// For a folder that nvcc, torch or ninja would take apart.
fn usable_name(dir: &Path) -> anyhow::Result<()> {
    if let Some(byte) = dir.as_os_str().as_bytes().iter().find(|byte| byte.is_ascii_whitespace() || b":'\"\\$".contains(byte)) {
        bail!(
            "`{}` holds `{}`, which builds do not take in CUDA_HOME: name another folder",
            dir.display(),
            char::from(*byte).escape_default()
        );
    }
    Ok(())
}

fn create(args: &OverlayCreateArgs) -> anyhow::Result<Exit> {
    let know = Knowledge::embedded();
    let dir = folder(args.dir.as_deref(), &Live::new())?;
    usable_name(&dir)?;
    let draft = draft(args, &dir, &know)?;
    let done = if args.dry_run { None } else { Some(make(&dir, &draft.manifest)?) };
    let left = if args.dry_run { Vec::new() } else { judged(args, &dir, &know) };
    let mut out = output::result(&args.talk)?;
    match args.format {
        ListingFormat::Human => told(&mut out, &draft, &dir, done, args.talk.verbose)?,
        ListingFormat::Json => {
            let done = match done {
                Some(Done::Made) => "made",
                Some(Done::Renewed) => "renewed",
                Some(Done::Unchanged) => "unchanged",
                None => "dry-run",
            };
            let result = json!({ "folder": HostPath::new(&dir), "done": done, "manifest": draft.manifest });
            out.write_all(Envelope::bare("overlay", result).text().as_bytes())?;
        }
    }
    out.flush()?;
    for finding in left {
        output::note(&args.talk, &format!("with this overlay there is still {}: {}", finding.id, finding.title));
    }
    Ok(Exit::Fine)
}

/// What is found of this toolkit when the overlay is in force.
fn judged(args: &OverlayCreateArgs, dir: &Path, know: &Knowledge) -> Vec<Finding> {
    let facts = facts_with(args.python.as_deref(), Some(dir));
    let judged = judge(&Case::new(&facts, know, Purpose::Build, &[]), &|_| true);
    let about = dir.display().to_string();
    judged.findings.into_iter().filter(|finding| finding.subject == about).collect()
}

fn told(out: &mut dyn Write, draft: &Draft, dir: &Path, done: Option<Done>, verbose: bool) -> anyhow::Result<()> {
    let manifest = &draft.manifest;
    let release = manifest.release.map_or("an unknown release".to_owned(), |release| format!("CUDA {release}"));
    let what = match done {
        Some(Done::Made) => "made",
        Some(Done::Renewed) => "renewed",
        Some(Done::Unchanged) => "nothing to change in",
        None => "would make",
    };
    writeln!(out, "{what} `{}`: {release}, links to `{}`", clean(&dir.display().to_string()), clean(&draft.toolkit.to_string()))?;
    summary(out, manifest)?;
    match &draft.gcc {
        Gcc::Fine(version) => writeln!(out, "  gcc          none needed: nvcc takes the gcc {version} that it finds")?,
        Gcc::Taken { gcc, version, why, .. } => writeln!(
            out,
            "  gcc          `{}`{}, in `nvvm/bin`, where only nvcc looks: {why}",
            clean(&gcc.to_string()),
            version.as_ref().map(|version| format!(" ({version})")).unwrap_or_default()
        )?,
        Gcc::None { why } => writeln!(out, "  gcc          none: {why}, and there is no other here that it takes")?,
        Gcc::Unknown => writeln!(out, "  gcc          not known what nvcc finds; left as it is")?,
    }
    if verbose {
        links(out, manifest)?;
    }
    if done.is_some() {
        writeln!(out, "use it: eval \"$(ds-doctor fix --print-exports --overlay {})\"", clean(&word(dir.as_os_str().as_bytes())))?;
    }
    Ok(())
}

/// One line for each folder: how many links, and of what.
fn summary(out: &mut dyn Write, manifest: &Manifest) -> anyhow::Result<()> {
    for (place, of_toolkit) in [
        ("bin", "nvcc and its programs"),
        ("nvvm", "what nvcc compiles with"),
        ("include", "the toolkit's headers"),
        ("lib64", "the toolkit's libraries"),
        ("lib64/stubs", "for linking only: on LIBRARY_PATH, never on LD_LIBRARY_PATH"),
    ] {
        let inside = |path: &Path| match place {
            "nvvm" => path.starts_with("nvvm"),
            place => path.parent() == Some(Path::new(place)),
        };
        let here: Vec<_> = manifest.links.iter().filter(|link| inside(&link.at)).collect();
        let number = |why| here.iter().filter(|link| link.why == why).count();
        let mut words = Vec::new();
        if number(Why::Toolkit) > 0 {
            words.push(format!("{} {of_toolkit}", number(Why::Toolkit)));
        }
        if number(Why::Package) > 0 {
            words.push(format!("{} of Python packages of the same release", number(Why::Package)));
        }
        if number(Why::Name) > 0 {
            let cudart = here.iter().any(|link| link.why == Why::Name && link.at.ends_with("libcudart.so"));
            words.push(format!(
                "{} for the linker{}",
                count(number(Why::Name), "name"),
                if cudart { ", `libcudart.so` among them" } else { "" }
            ));
        }
        if number(Why::Driver) > 0 {
            words.push("the driver's libcuda in place of a stub, for linking only: on LIBRARY_PATH, never on LD_LIBRARY_PATH".to_owned());
        }
        if number(Why::Compiler) > 0 {
            words.push("a gcc and its g++".to_owned());
        }
        if !words.is_empty() {
            writeln!(out, "  {place:<12} {}", words.join("; "))?;
        }
    }
    Ok(())
}

fn links(out: &mut dyn Write, manifest: &Manifest) -> anyhow::Result<()> {
    for link in &manifest.links {
        writeln!(out, "    {} -> {}", clean(&link.at.to_string()), clean(&link.to.to_string()))?;
    }
    Ok(())
}

fn show(args: &OverlayDirArgs) -> anyhow::Result<Exit> {
    let dir = folder(args.dir.as_deref(), &Live::new())?;
    let overlay = match look(&dir)? {
        Place::Overlay(overlay) => overlay,
        Place::Absent | Place::EmptyFolder => bail!("there is no overlay in `{}`", dir.display()),
    };
    let faults = overlay.faults().with_context(|| format!("`{}` cannot be read", dir.display()))?;
    let manifest = &overlay.manifest;
    let mut out = output::result(&args.talk)?;
    match args.format {
        ListingFormat::Human => {
            let release = manifest.release.map_or("an unknown release".to_owned(), |release| format!("CUDA {release}"));
            let typed = word(dir.as_os_str().as_bytes());
            let (dir, toolkit) = (clean(&dir.display().to_string()).into_owned(), clean(&manifest.toolkit.to_string()).into_owned());
            writeln!(out, "`{dir}`: {release}, {} to `{toolkit}`", count(manifest.links.len(), "link"))?;
            summary(&mut out, manifest)?;
            if args.talk.verbose {
                links(&mut out, manifest)?;
            }
            for fault in &faults {
                writeln!(out, "  {}", clean(&fault.to_string()))?;
            }
            if faults.iter().any(|fault| matches!(fault, Fault::Missing(_) | Fault::Dangling(_))) {
                writeln!(out, "made right by: ds-doctor overlay create {typed}")?;
            }
        }
        ListingFormat::Json => {
            let told: Vec<String> = faults.iter().map(ToString::to_string).collect();
            let result = json!({ "folder": HostPath::new(&dir), "faults": told, "manifest": manifest });
            out.write_all(Envelope::bare("overlay", result).broken_if(!faults.is_empty()).text().as_bytes())?;
        }
    }
    out.flush()?;
    Ok(if faults.is_empty() { Exit::Fine } else { Exit::Findings })
}

fn take_away(args: &OverlayDirArgs) -> anyhow::Result<Exit> {
    let dir = folder(args.dir.as_deref(), &Live::new())?;
    let number = remove(&dir)?;
    let mut out = output::result(&args.talk)?;
    match args.format {
        ListingFormat::Human => {
            writeln!(out, "removed `{}` with {}; the toolkit is as it was", clean(&dir.display().to_string()), count(number, "link"))?;
        }
        ListingFormat::Json => {
            let result = json!({ "folder": HostPath::new(&dir), "removed": number });
            out.write_all(Envelope::bare("overlay", result).text().as_bytes())?;
        }
    }
    out.flush()?;
    Ok(Exit::Fine)
}
