//! `ds-doctor list`

use super::output;
use crate::checks::CHECKS;
use crate::cli::{ListArgs, ListingFormat};
use crate::exit::Exit;
use crate::knowledge::Knowledge;
use crate::knowledge::problems::Problem;
use anyhow::bail;
use serde::Serialize;
use std::io::Write as _;

#[derive(Serialize)]
struct Row {
    id: &'static str,
    topic: &'static str,
    severity: &'static str,
    seen_in: &'static [&'static str],
    summary: &'static str,
    aliases: &'static [&'static str],
    /// `ds-doctor check` looks for it.
    checked: bool,
}

/// # Errors
/// A topic that does not exist.
pub fn run(args: &ListArgs) -> anyhow::Result<Exit> {
    let know = Knowledge::embedded();
    let problems: Vec<&Problem> =
        know.problems().iter().filter(|problem| args.topic.as_deref().is_none_or(|topic| topic == problem.topic)).collect();
    if problems.is_empty() {
        let mut topics: Vec<&str> = know.problems().iter().map(|problem| problem.topic).collect();
        topics.sort_unstable();
        topics.dedup();
        bail!("no topic `{}`; topics are {}", args.topic.as_deref().unwrap_or_default(), topics.join(", "));
    }
    let mut out = output::result(&args.talk)?;
    let checked = |id: &str| CHECKS.iter().flat_map(|topic| topic.iter()).any(|check| check.id == id);
    match args.format {
        ListingFormat::Json => {
            let rows: Vec<Row> = problems
                .iter()
                .map(|problem| {
                    let Problem { id, topic, severity, seen_in, summary, aliases, .. } = **problem;
                    Row { id, topic, severity, seen_in, summary, aliases, checked: checked(id) }
                })
                .collect();
            serde_json::to_writer_pretty(&mut out, &rows)?;
            writeln!(out)?;
        }
        ListingFormat::Human => {
            let width = problems.iter().map(|problem| problem.id.len()).max().unwrap_or(0);
            let mut topic = "";
            for problem in problems {
                if problem.topic != topic {
                    writeln!(out, "{}{}", if topic.is_empty() { "" } else { "\n" }, problem.topic)?;
                    topic = problem.topic;
                }
                writeln!(out, "  {:<width$}  {:<7}  {}", problem.id, problem.severity, problem.summary)?;
            }
        }
    }
    out.flush()?;
    Ok(Exit::Fine)
}
