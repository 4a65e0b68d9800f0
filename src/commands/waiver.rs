//! Waivers: findings a project has decided to live with, each with a reason and an optional end.
#![expect(clippy::disallowed_methods, reason = "reads the waiver file of the current folder")]

use super::output;
use crate::checks::Judged;
use crate::cli::TalkArgs;
use crate::knowledge::Knowledge;
use crate::render::Waived;
use anyhow::{Context as _, bail};
use serde::Deserialize;
use std::io::ErrorKind;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    #[serde(default)]
    waiver: Vec<Waiver>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Waiver {
    pub id: String,
    pub reason: String,
    /// The last day it holds, `2027-01-31`.
    #[serde(default)]
    pub until: Option<String>,
}

/// From `ds-doctor.toml`, else `[tool.ds-doctor]` of `pyproject.toml`, in the current folder.
///
/// # Errors
/// A file that cannot be understood: a waiver that silently does not hold would surprise.
pub fn load(know: &Knowledge, talk: &TalkArgs) -> anyhow::Result<Vec<Waiver>> {
    if is_closed(".") {
        output::note(talk, "the current folder is closed to this user, so no waivers are looked for in it");
        return Ok(Vec::new());
    }
    let Some((name, settings)) = settings()? else { return Ok(Vec::new()) };
    for waiver in &settings.waiver {
        if know.problem(&waiver.id).is_none() {
            bail!("`{name}`: waiver of `{}`, which is no problem id; `ds-doctor list` names them", waiver.id);
        }
        if waiver.reason.trim().is_empty() {
            bail!("`{name}`: the waiver of `{}` has no reason", waiver.id);
        }
        if let Some(until) = &waiver.until {
            days(until).with_context(|| format!("`{name}`: until = \"{until}\" is no date like 2027-01-31"))?;
        }
    }
    Ok(settings.waiver)
}

fn settings() -> anyhow::Result<Option<(&'static str, Settings)>> {
    if let Some(text) = read("ds-doctor.toml")? {
        return Ok(Some(("ds-doctor.toml", toml::from_str(&text).context("`ds-doctor.toml` cannot be understood")?)));
    }
    // A pyproject.toml is somebody else's file: one that is no TOML is not our concern.
    let Some(text) = read("pyproject.toml")? else { return Ok(None) };
    let Ok(table) = text.parse::<toml::Table>() else { return Ok(None) };
    let Some(ours) = table.get("tool").and_then(|tool| tool.get("ds-doctor")) else { return Ok(None) };
    let settings = ours.clone().try_into().context("`[tool.ds-doctor]` of `pyproject.toml` cannot be understood")?;
    Ok(Some(("pyproject.toml", settings)))
}

/// Whether nothing in the folder can be reached: `sudo -u build` keeps a current folder that is another's.
fn is_closed(folder: &str) -> bool {
    let inside = std::path::Path::new(folder).join("ds-doctor.toml");
    std::fs::symlink_metadata(inside).is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

fn read(name: &str) -> anyhow::Result<Option<String>> {
    match std::fs::read_to_string(name) {
        Ok(text) => Ok(Some(text)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::IsADirectory | ErrorKind::InvalidData) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read `{name}`")),
    }
}

/// Days since 1970 of a date like 2027-01-31. The formula counts years from March, so that the leap day is last.
fn days(date: &str) -> Option<i64> {
    let mut parts = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    Some(year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1 - 719_468)
}

/// Takes waived findings out of what was judged. `now` is in seconds since 1970; the texts of expired waivers come back as notes.
pub fn apply(judged: &mut Judged, waivers: &[Waiver], now: i64) -> (Vec<Waived>, Vec<String>) {
    let (mut waived, mut expired) = (Vec::new(), Vec::new());
    for waiver in waivers {
        if waiver.until.as_deref().and_then(days).is_some_and(|last| now.div_euclid(86_400) > last) {
            expired.push(format!("the waiver of {} ended on {}", waiver.id, waiver.until.as_deref().unwrap_or("")));
            continue;
        }
        let (silenced, rest) = std::mem::take(&mut judged.findings).into_iter().partition(|finding| finding.id == waiver.id);
        judged.findings = rest;
        for mut finding in silenced {
            waived.push(Waived { id: finding.id.to_owned(), title: finding.title.clone(), reason: waiver.reason.clone() });
            // What followed from it was not waived.
            judged.findings.append(&mut finding.folded);
        }
    }
    (waived, expired)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(days("1970-01-01"), Some(0));
        assert_eq!(days("2000-03-01"), Some(11_017));
        assert_eq!(days("2026-11-29"), Some(20_786));
        assert_eq!(days("2026-13-01"), None);
        assert_eq!(days("soon"), None);
    }
}
