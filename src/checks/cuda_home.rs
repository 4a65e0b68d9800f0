//! Whether the variable that torch takes for the toolkit, CUDA_HOME or CUDA_PATH, names one.

use super::lookup::{NOT_ASKED, deciding_variable, towards_a_toolkit};
use super::remedy::best_toolkit;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::env::{PlaceState, unwrapped};
use crate::facts::raw::HostPath;
use crate::facts::source::Source;
use crate::facts::toolkit::{Layout, Toolkit};
use crate::finding::{Evidence, Finding, Fix};
use crate::model::cuda_home::{FoundBy, toolkit_at};
use crate::model::search;
use crate::text::count;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

pub const CHECKS: &[Check] = &[Check { id: "cuda-home-dangling", run: dangling }, Check { id: "cuda-home-wrong", run: wrong }];

fn consequence(case: &Case<'_>, nvcc: &str, denied: bool) -> String {
    // torch 2.8 and later look first; before, the system's own words come through.
    let setup = match (case.torch().ok().flatten().map(|torch| torch.version.at_least(&[2, 8])), denied) {
        (Some(false), false) => format!("`No such file or directory: '{nvcc}'`"),
        (Some(false), true) => format!("`Permission denied: '{nvcc}'`"),
        _ => format!("`nvcc not found at '{nvcc}'`"),
    };
    let jit = if denied { "Permission denied" } else { "not found" };
    format!("setup builds stop with {setup}, JIT builds with `/bin/sh: 1: {nvcc}: {jit}`")
}

fn dangling(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    if case.cuda_home().gate.is_some() {
        return Ok(Verdict::not_applicable("this torch does not look for CUDA"));
    }
    // The usual place counts as well: a dangling /usr/local/cuda is passed over in silence, and the toolkit beside it is not found.
    let (source, path) = match deciding_variable(case) {
        Some((name, path)) => (Source::variable(name), path.to_owned()),
        None if case.cuda_home().by == FoundBy::Nothing => (Source::UsualPlace, "/usr/local/cuda".into()),
        None => return Ok(Verdict::Pass),
    };
    let Some(PlaceState::Dangling { target }) = case.facts.env.state(&path) else { return Ok(Verdict::Pass) };
    let shown = HostPath::new(&path);
    let finding = Finding::error("cuda-home-dangling", format!("`{shown}` is a symbolic link to `{target}`, which is not there"))
        .about(source.to_string())
        .seen(Evidence::new("link", format!("to {target}")).at(&shown).from(&source))
        .then(consequence(case, &format!("{shown}/bin/nvcc"), false));
    let finding = towards_a_toolkit(case, "cuda-home-dangling").into_iter().fold(finding, Finding::fix);
    Ok(Verdict::found(finding))
}

fn wrong(case: &Case<'_>) -> Judgement {
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(NOT_ASKED));
    }
    if case.cuda_home().gate.is_some() {
        return Ok(Verdict::not_applicable("this torch does not look for CUDA"));
    }
    let Some((name, path)) = deciding_variable(case) else {
        return Ok(Verdict::not_applicable("neither CUDA_HOME nor CUDA_PATH is set"));
    };
    case.facts.toolkits.get("toolkit")?;
    let Some(what) = what_is_wrong(case, path) else { return Ok(Verdict::Pass) };
    let closed = match case.facts.env.state(path) {
        Some(PlaceState::Unreadable { why }) => Some(why),
        _ => None,
    };
    let shown = HostPath::new(path);
    // A blank at an end is seen only between quotes.
    let value = if unwrapped(path.as_os_str()).is_some() { format!("'{shown}'") } else { shown.to_string() };
    let nvcc = format!("{}/bin/nvcc", shown.to_string().trim_end_matches('/'));
    let finding = Finding::error("cuda-home-wrong", format!("`{name}` is `{shown}`, {what}"))
        .about(name)
        .seen(Evidence::new(name, value).said_by("environment"))
        .then(consequence(case, &nvcc, closed.is_some_and(|why| why.starts_with("permission denied"))));
    let fixes = match closed {
        // What lies in there may be the right toolkit, so none is to be installed.
        Some(why) if best_toolkit(case, true).is_none() => {
            vec![Fix::advice(format!("let this user into that folder ({why}), or set `{name}` to a toolkit that can be read"))]
        }
        _ => towards_a_toolkit(case, "cuda-home-wrong"),
    };
    Ok(Verdict::found(fixes.into_iter().fold(finding, Finding::fix)))
}

/// `None` where the value names a toolkit, or a part of one on a machine that has no nvcc anywhere (that is `no-nvcc`).
fn what_is_wrong(case: &Case<'_>, path: &Path) -> Option<String> {
    let bytes = path.as_os_str().as_bytes();
    let toolkit = case.cuda_home().toolkit;
    if toolkit.is_some_and(|toolkit| !toolkit.nvcc.is_absent()) {
        return None;
    }
    if bytes.is_empty() {
        return Some("which torch takes for the current folder".to_owned());
    }
    if let Some(around) = around(case, path.as_os_str()) {
        return Some(around.to_owned());
    }
    if bytes.contains(&b':') {
        return Some("a list with colons, where one folder must stand".to_owned());
    }
    if path.file_name().is_some_and(|name| name == "bin") && case.toolkits().iter().any(|toolkit| Some(&*toolkit.root) == path.parent()) {
        return Some("the `bin` folder of a toolkit, not the toolkit".to_owned());
    }
    match case.facts.env.state(path) {
        Some(PlaceState::Missing) => return Some("which is not there".to_owned()),
        Some(PlaceState::File) => return Some("a file, not a folder".to_owned()),
        Some(PlaceState::Unreadable { why }) => return Some(format!("which cannot be read ({why})")),
        // cuda-home-dangling says it.
        Some(PlaceState::Dangling { .. }) => return None,
        Some(PlaceState::Folder) | None => {}
    }
    if let Some(below) = below(case, path) {
        return Some(below);
    }
    let elsewhere = case.toolkits().iter().any(|toolkit| toolkit.nvcc.value().is_some());
    match toolkit {
        Some(toolkit) if toolkit.layout != Layout::Unknown && !elsewhere => None,
        Some(_) => Some("a folder with parts of CUDA but no `bin/nvcc`".to_owned()),
        None => Some("a folder without `bin/nvcc`".to_owned()),
    }
}

/// What stands round the path of a toolkit that would else be right: files of variables and `docker --env-file` keep what shells drop.
fn around(case: &Case<'_>, value: &OsStr) -> Option<&'static str> {
    toolkit_at(case.facts, unwrapped(value)?)?;
    let bytes = value.as_bytes();
    Some(match (bytes.trim_ascii().first(), bytes.last(), bytes.first()) {
        (Some(b'"' | b'\''), ..) => "with quotes around it, which belong to the value here",
        (_, Some(b'\r'), _) => "with a carriage return at its end, as files with line ends of Windows leave it",
        (_, Some(b'\n'), _) => "with a newline at its end",
        (_, Some(last), _) if last.is_ascii_whitespace() => "with a blank at its end",
        _ => "with a blank in front of it",
    })
}

/// A folder above toolkits.
fn below(case: &Case<'_>, path: &Path) -> Option<String> {
    let folder = search::absolute(case.facts, path)?;
    let inside: Vec<&Toolkit> = case
        .toolkits()
        .iter()
        .filter(|toolkit| toolkit.nvcc.value().is_some() && toolkit.root.parent().is_some_and(|above| *above == folder))
        .collect();
    match inside.as_slice() {
        [] => None,
        [one] => Some(format!("the folder above the toolkit `{}`", one.root)),
        more => Some(format!("the folder above {}", count(more.len(), "toolkit"))),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::*;
    use super::*;
    use crate::checks::Purpose;
    use crate::facts::env::NamedPlace;
    use crate::facts::snapshot::Snapshot;

    /// With a toolkit, and CUDA_HOME as said.
    fn machine(value: &str, state: PlaceState) -> Snapshot {
        let mut facts = with_toolkit();
        facts.env.set("CUDA_HOME", value);
        facts.env.places.push(NamedPlace { path: value.into(), state });
        facts
    }

    fn with_toolkit() -> Snapshot {
        let mut facts = healthy();
        crate::model::assume::software(
            &mut facts,
            &crate::knowledge::Knowledge::embedded(),
            &["torch=2.6.0+cu124", "cuda=12.4"].map(str::to_owned),
        )
        .unwrap();
        facts
    }

    fn root() -> String {
        with_toolkit().env.text("CUDA_HOME").unwrap()
    }

    #[test]
    fn what_stands_around_a_path_is_named_and_shown() {
        let root = root();
        for (value, says) in [
            (format!("{root} "), "a blank at its end"),
            (format!(" {root}"), "a blank in front of it"),
            (format!("{root}\r"), "a carriage return"),
            (format!("{root}\n"), "a newline"),
            (format!("\"{root}\""), "quotes around it"),
            (format!("'{root}/'\r"), "quotes around it"),
        ] {
            let facts = machine(&value, PlaceState::Missing);
            let finding = finding(&facts, "cuda-home-wrong");
            assert!(finding.title.contains(says), "{}", finding.title);
            assert_eq!(finding.evidence[0].value, format!("'{value}'"));
            assert_eq!(cured(&facts, "cuda-home-wrong").env.text("CUDA_HOME"), Some(root.clone()));
        }
        let nowhere = machine("/none ", PlaceState::Missing);
        assert!(finding(&nowhere, "cuda-home-wrong").title.ends_with("which is not there"));
    }

    #[test]
    fn one_folder_too_high() {
        let root = root();
        let above = Path::new(&root).parent().unwrap().display().to_string();
        let facts = machine(&above, PlaceState::Folder);
        let title = finding(&facts, "cuda-home-wrong").title;
        assert!(title.contains(&format!("the folder above the toolkit `{root}`")), "{title}");
    }

    #[test]
    fn into_a_closed_folder_nothing_is_installed() {
        let mut facts =
            machine("/closed/cuda", PlaceState::Unreadable { why: "permission denied: `/closed` is closed to this user".to_owned() });
        facts.toolkits = crate::facts::observed::Observed::absent(["CUDA_HOME"]);
        facts.programs.retain(|program| program.name != "nvcc");
        let finding = finding(&facts, "cuda-home-wrong");
        assert!(finding.title.contains("`/closed` is closed"), "{}", finding.title);
        assert!(finding.consequence.contains("/closed/cuda/bin/nvcc: Permission denied"), "{finding:#?}");
        assert_eq!(finding.fixes.len(), 1, "{finding:#?}");
        let judged = judged(&facts, Purpose::Build, "no-nvcc");
        assert_eq!((judged.findings.len(), judged.undecided.len()), (0, 1));
    }
}
