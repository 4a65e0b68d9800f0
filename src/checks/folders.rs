//! Folders that builds write to: the temporary folder, and the room that is left.

use super::cache::cache;
use super::lookup::NOT_ASKED;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::env::PlaceState;
use crate::facts::host::{FolderPurpose, WorkFolder};
use crate::facts::observed::Missing;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Subject;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::text::bytes;
use std::path::Path;

pub const CHECKS: &[Check] = &[Check { id: "tmpdir-broken", run: broken }, Check { id: "disk-full-tmp", run: full }];

const MIB: u64 = 1 << 20;

/// TMPDIR, else `/tmp`.
fn temporary<'a>(case: &Case<'a>) -> Option<&'a WorkFolder> {
    let path = case.facts.env.path("TMPDIR").unwrap_or(Path::new("/tmp"));
    case.facts.host.folders.iter().find(|folder| folder.purpose == FolderPurpose::Temporary && *folder.path == *path)
}

/// nvcc alone insists on TMPDIR: gcc and Python fall back to `/tmp`.
fn broken(case: &Case<'_>) -> Judgement {
    const ID: &str = "tmpdir-broken";
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    let Some(value) = case.facts.env.get("TMPDIR") else { return Ok(Verdict::not_applicable("TMPDIR is unset")) };
    if case.nvcc()?.is_none() {
        return Ok(Verdict::not_applicable("no nvcc in the toolkit that torch finds"));
    }
    let shown = HostPath::new(value);
    let folder = temporary(case);
    let what = if value.is_empty() {
        // Run with nvcc 13.0 and 13.5.
        "is empty, and the parts of nvcc do not agree on what that means"
    } else {
        match case.facts.env.state(&shown) {
            Some(PlaceState::Missing | PlaceState::Dangling { .. }) => "names a folder that is not there",
            Some(PlaceState::File) => "names a file",
            Some(PlaceState::Unreadable { .. }) => "names a folder that cannot be entered",
            _ if folder.is_some_and(|folder| folder.exists() && folder.writable == Some(false)) => {
                "names a folder that this user cannot write"
            }
            Some(PlaceState::Folder) => return Ok(Verdict::Pass),
            None => {
                let why = format!("what `{shown}` is was not looked at");
                return Err(Missing { topic: "environment", why, failed: false });
            }
        }
    };
    // An image's folder may be mounted when it runs.
    if matches!(case.facts.subject, Subject::Tree { .. }) && !value.is_empty() {
        let why = format!("`TMPDIR` {what} in this tree; when it runs, one may be mounted there");
        return Err(Missing { topic: "temporary folder", why, failed: false });
    }
    let then = if value.is_empty() {
        "every `.cu` file stops with `fatal error: /tmpxft_…cudafe1.cpp: No such file or directory`".to_owned()
    } else {
        format!("every `.cu` file stops with `nvcc fatal : Could not open output file '{shown}/tmpxft_…'`; `.cpp` files compile")
    };
    let mut finding = Finding::error(ID, format!("`TMPDIR` {what}"))
        .seen(Evidence::new("TMPDIR", shown.to_string()).said_by("environment"))
        .then(then)
        .fix(Fix::unset("TMPDIR", "`/tmp` is taken then"));
    // Where a file has the name, no folder can be made.
    if !value.is_empty() && !matches!(case.facts.env.state(&shown), Some(PlaceState::File)) {
        finding = finding.fix(Fix::run(["mkdir", "-p", &shown.to_string()], "where this is the folder that is meant").curing(ID).or(1));
    }
    Ok(Verdict::found(finding))
}

/// One `.cu` file that includes torch's headers took 57 MiB of TMPDIR for one architecture, with nvcc 13.0 and torch 2.11.
const NOTHING_FITS: u64 = 60 * MIB;
/// Several at once, for several architectures.
const SCARCE: u64 = 300 * MIB;

fn full(case: &Case<'_>) -> Judgement {
    const ID: &str = "disk-full-tmp";
    let cache = match cache(case)? {
        Ok(cache) => cache,
        Err(verdict) => return Ok(verdict),
    };
    let temporary = temporary(case);
    let places: Vec<(&WorkFolder, &str)> = [(temporary, "temporary folder"), (cache.place(case), "extension cache")]
        .into_iter()
        .filter_map(|(place, name)| Some((place?, name)))
        .collect();
    if places.iter().all(|(place, _)| place.free.is_none()) {
        return Err(Missing { topic: "free space", why: "only a running machine tells".to_owned(), failed: false });
    }
    let mut findings: Vec<Finding> = Vec::new();
    for (place, name) in places {
        // A file system that reports no size at all does not report free space either.
        let (Some(free), Some(1..)) = (place.free, place.size) else { continue };
        if free >= SCARCE
            || findings.iter().any(|_| place.device.is_some() && place.device == temporary.and_then(|temporary| temporary.device))
        {
            continue;
        }
        let severity = if free < NOTHING_FITS { Severity::Error } else { Severity::Warning };
        let mut finding = Finding::new(ID, severity, format!("the file system of the {name} `{}` has {} left", place.path, bytes(free)))
            .likely()
            .about(place.path.to_string())
            .seen(Evidence::new("free", format!("{} of {}", bytes(free), bytes(place.size.unwrap_or_default()))).at(&place.path))
            .then("one `.cu` file takes about 60 MiB there for each architecture: nvcc stops with `No space left on device`, and a library that was cut short says `file too short`");
        finding = match roomier(case, place) {
            Some(other) if place.purpose == FolderPurpose::Temporary => {
                finding.fix(Fix::set("TMPDIR", other.path.0.clone(), format!("{} are left there", bytes(other.free.unwrap_or_default()))))
            }
            Some(other) if place.purpose == FolderPurpose::Cache => finding.fix(
                Fix::set(
                    "TORCH_EXTENSIONS_DIR",
                    other.path.join("torch_extensions").0,
                    format!("{} are left there", bytes(other.free.unwrap_or_default())),
                )
                .review(),
            ),
            _ => finding.fix(
                Fix::advice(format!("make room, or move to a larger disk: `{}`", place.purpose.variable()))
                    .curing_of(ID, place.path.to_string()),
            ),
        };
        findings.push(finding);
    }
    Ok(Verdict::of(findings))
}

/// Another temporary folder with room for a build.
fn roomier<'a>(case: &Case<'a>, place: &WorkFolder) -> Option<&'a WorkFolder> {
    const ENOUGH: u64 = 4096 * MIB;
    case.facts.host.folders.iter().find(|other| {
        other.purpose == FolderPurpose::Temporary
            && other.device != place.device
            && other.exists()
            && other.writable == Some(true)
            && (place.purpose == FolderPurpose::Temporary || !other.has_option("noexec"))
            && other.free.is_some_and(|free| free >= ENOUGH)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, findings, healthy, judged, place, silent};
    use super::*;
    use crate::facts::env::NamedPlace;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
        }
    }

    /// With a toolkit, and TMPDIR as said.
    fn machine(value: &str, state: Option<PlaceState>) -> Snapshot {
        let mut facts = healthy();
        crate::model::assume::software(&mut facts, &crate::knowledge::Knowledge::embedded(), &["cuda=12.4".to_owned()]).unwrap();
        facts.env.set("TMPDIR", value);
        facts.env.places.extend(state.map(|state| NamedPlace { path: value.into(), state }));
        facts
    }

    #[test]
    fn temporary_folders_that_nvcc_refuses() {
        for (value, state, stops) in [
            ("/scratch/1", PlaceState::Missing, true),
            ("/scratch/1", PlaceState::File, true),
            ("/scratch/1", PlaceState::Dangling { target: "/x".into() }, true),
            ("/scratch/1", PlaceState::Folder, false),
        ] {
            let facts = machine(value, Some(state.clone()));
            assert_eq!(findings(&facts, "tmpdir-broken").len(), usize::from(stops), "{state:?}");
        }
        let facts = machine("/scratch/1", Some(PlaceState::Missing));
        assert!(cured(&facts, "tmpdir-broken").env.get("TMPDIR").is_none());
        let cures = |state| finding(&machine("/dev/null", Some(state)), "tmpdir-broken").fixes.len();
        assert_eq!((cures(PlaceState::Missing), cures(PlaceState::File)), (2, 1), "no folder is made over a file");
        assert!(finding(&machine("", None), "tmpdir-broken").title.contains("empty"));
        assert_eq!(judged(&machine("/unknown", None), Purpose::Build, "tmpdir-broken").undecided.len(), 1);
        assert!(judged(&facts, Purpose::Run, "tmpdir-broken").findings.is_empty());
    }

    #[test]
    fn a_folder_may_be_mounted_into_an_image() {
        let mut facts = machine("/scratch/1", Some(PlaceState::Missing));
        facts.subject = Subject::Tree { root: "/image".into() };
        let judged = judged(&facts, Purpose::Build, "tmpdir-broken");
        assert!(judged.findings.is_empty() && judged.undecided.len() == 1);
    }

    #[test]
    fn a_temporary_folder_of_somebody_else() {
        let mut facts = machine("/scratch/1", Some(PlaceState::Folder));
        let mut scratch = place(&mut facts, FolderPurpose::Temporary).clone();
        scratch.path = "/scratch/1".into();
        scratch.nearest = Some("/scratch/1".into());
        scratch.writable = Some(false);
        facts.host.folders.insert(0, scratch);
        assert!(finding(&facts, "tmpdir-broken").title.contains("cannot write"));
    }

    #[test]
    fn room() {
        for (free, severity) in [(20, Some(Severity::Error)), (200, Some(Severity::Warning)), (2000, None)] {
            let mut facts = healthy();
            place(&mut facts, FolderPurpose::Temporary).free = Some(free * MIB);
            let found = findings(&facts, "disk-full-tmp");
            assert_eq!(found.first().map(|one| one.severity), severity, "{free} MiB");
        }
        let mut facts = healthy();
        place(&mut facts, FolderPurpose::Cache).free = Some(0);
        place(&mut facts, FolderPurpose::Temporary).free = Some(0);
        assert_eq!(findings(&facts, "disk-full-tmp").len(), 1, "one file system, one finding");
        place(&mut facts, FolderPurpose::Cache).device = Some(7);
        assert_eq!(findings(&facts, "disk-full-tmp").len(), 2);
        for folder in &mut facts.host.folders {
            folder.size = Some(0);
        }
        silent(&facts, CHECKS, Purpose::Build);
    }

    #[test]
    fn a_disk_with_more_room() {
        let mut facts = healthy();
        let mut small = place(&mut facts, FolderPurpose::Temporary).clone();
        small.path = "/ram".into();
        small.nearest = Some("/ram".into());
        small.device = Some(9);
        small.free = Some(MIB);
        facts.host.folders.insert(0, small);
        facts.env.set("TMPDIR", "/ram");
        facts.env.places.push(NamedPlace { path: "/ram".into(), state: PlaceState::Folder });
        assert_eq!(cured(&facts, "disk-full-tmp").env.text("TMPDIR").as_deref(), Some("/tmp"));
        facts.cache = Observed::failed("unreadable");
        assert!(judged(&facts, Purpose::Build, "disk-full-tmp").undecided[0].failed);
    }
}
