//! How often the right problem is named first: on the quoted messages of public reports, on the same messages changed, and on the logs of
//! builds that were broken on purpose. `docs/triage-score.md` holds what these trials print.

use crate::util::trial;
use ds_doctor::knowledge::Knowledge;
use ds_doctor::knowledge::schema::signatures::Kind;
use ds_doctor::logs::{Reader, text};
use libtest_mimic::Trial;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

mod mutate;

pub fn trials() -> Vec<Trial> {
    vec![
        trial("triage_score::the_cases", the_cases),
        trial("triage_score::the_later_cases", the_later_cases),
        trial("triage_score::the_cases_changed", the_cases_changed),
        trial("triage_score::the_logs", the_logs),
        trial("triage_score::the_page_holds_what_is_printed", the_page),
    ]
}

/// What somebody met, in the words of the tools, and the problems that these words show.
struct Case {
    name: String,
    text: String,
    /// The first is what was behind it; the others fit the text as well, for the reason that stands in the file.
    ids: Vec<String>,
}

fn file(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn cases() -> Vec<Case> {
    let all = std::fs::read_to_string(file("cases/build_logs.jsonl")).unwrap();
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    let case = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let ids: Vec<String> = row["ids"].as_array().unwrap().iter().map(words).collect();
        assert_eq!(ids.len() > 1, row["why"].is_string(), "{row}: several ids need a reason, and only they");
        Case { name: words(&row["case"]), text: words(&row["text"]), ids }
    };
    let cases: Vec<Case> = all.lines().map(case).collect();
    assert!(cases.iter().filter(|case| case.ids.len() > 1).count() <= 12, "too many cases with several ids");
    cases
}

/// What was met after the signatures stood, with every problem that the words fit; `none`: no problem that has a name.
fn later_cases() -> Vec<Case> {
    let all = std::fs::read_to_string(file("cases/build_logs_later.jsonl")).unwrap();
    let words = |value: &Value| value.as_str().unwrap().to_owned();
    let case = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap();
        let ids = row["ids"].as_array().unwrap().iter().map(words).collect();
        Case { name: words(&row["case"]), text: words(&row["text"]), ids }
    };
    all.lines().map(case).collect()
}

/// The problem that is named first, and its line. Where there is no cause, a consequence speaks.
fn first(reader: &Reader<'_>, log: &[u8]) -> Option<(String, usize)> {
    let consequence = || reader.read(log).matches.into_iter().find(|one| one.signature.kind() == Kind::Consequence);
    reader.cause(log).or_else(consequence).map(|one| (one.signature.id.to_string(), one.number))
}

/// Right and all, by id.
#[derive(Default)]
struct Score {
    by_id: BTreeMap<String, (usize, usize)>,
    wrong: Vec<String>,
}

impl Score {
    fn add(&mut self, name: &str, ids: &[String], got: Option<&str>) {
        let right = got.is_some_and(|got| ids.iter().any(|id| id == got));
        let (good, all) = self.by_id.entry(ids[0].clone()).or_default();
        *good += usize::from(right);
        *all += 1;
        if !right {
            self.wrong.push(format!("{name}: {} and not {}", got.unwrap_or("nothing"), ids.join(" or ")));
        }
    }

    fn sum(&self) -> (usize, usize) {
        self.by_id.values().fold((0, 0), |(good, all), (right, of)| (good + right, all + of))
    }

    fn line(&self, what: &str) -> String {
        let (good, all) = self.sum();
        format!("{what}: {good} of {all} right first ({:.1} %)", percent(good, all))
    }
}

fn percent(good: usize, all: usize) -> f64 {
    100.0 * good as f64 / all as f64
}

fn score(reader: &Reader<'_>) -> Score {
    let mut score = Score::default();
    for case in cases() {
        let got = first(reader, case.text.as_bytes());
        score.add(&case.name, &case.ids, got.as_ref().map(|(id, _)| id.as_str()));
    }
    score
}

fn the_cases() {
    let know = Knowledge::embedded();
    let score = score(&Reader::new(&know));
    println!("{}", score.line("cases"));
    for (id, (good, all)) in &score.by_id {
        println!("  {good}/{all} {id}");
    }
    let (good, all) = score.sum();
    assert!(percent(good, all) >= 95.0, "{}\n{}", score.line("cases"), score.wrong.join("\n"));
}

fn later_score(reader: &Reader<'_>) -> Score {
    let mut score = Score::default();
    for case in later_cases() {
        let got = first(reader, case.text.as_bytes()).map_or_else(|| "none".to_owned(), |(id, _)| id);
        score.add(&case.name, &case.ids, Some(&got));
    }
    score
}

fn the_later_cases() {
    let know = Knowledge::embedded();
    let score = later_score(&Reader::new(&know));
    println!("{}", score.line("later cases"));
    let (good, all) = score.sum();
    assert!(percent(good, all) >= 95.0, "{}\n{}", score.line("later cases"), score.wrong.join("\n"));
}

/// Each kind of change on each case, by a generator that always makes the same ones.
fn changed(reader: &Reader<'_>) -> Vec<(&'static str, Score)> {
    let cases = cases();
    let kind = |(number, (name, change)): (usize, &(&'static str, mutate::Change))| {
        let mut score = Score::default();
        for (at, case) in cases.iter().enumerate() {
            let text = change(&case.text, &mut mutate::Dice::new(number as u64 * 1000 + at as u64));
            let got = first(reader, &text);
            score.add(&case.name, &case.ids, got.as_ref().map(|(id, _)| id.as_str()));
        }
        (*name, score)
    };
    mutate::CHANGES.iter().enumerate().map(kind).collect()
}

fn the_cases_changed() {
    let know = Knowledge::embedded();
    let reader = Reader::new(&know);
    let unchanged = score(&reader).sum();
    for (name, score) in changed(&reader) {
        println!("{}", score.line(name));
        let (good, all) = score.sum();
        assert!(good + 2 >= unchanged.0 && all == unchanged.1, "{}\n{}", score.line(name), score.wrong.join("\n"));
    }
}

/// A log of `tests/logs/index.tsv`, with the problem and the line that it shows.
struct Log {
    name: String,
    ids: Vec<String>,
    line: usize,
    bytes: Vec<u8>,
}

fn logs() -> Vec<Log> {
    let index = std::fs::read_to_string(file("logs/index.tsv")).unwrap();
    let rows = index.lines().filter(|line| !line.starts_with('#'));
    let log = |row: &str| {
        let [name, ids, line] = row.split('\t').collect::<Vec<_>>()[..] else { panic!("{row}: three columns") };
        let mut bytes = Vec::new();
        let packed = std::fs::File::open(file("logs").join(format!("{name}.log.gz"))).unwrap();
        text(packed).unwrap().read_to_end(&mut bytes).unwrap();
        Log { name: name.to_owned(), ids: ids.split(' ').map(ToOwned::to_owned).collect(), line: line.parse().unwrap(), bytes }
    };
    rows.map(log).collect()
}

fn the_logs() {
    let know = Knowledge::embedded();
    let reader = Reader::new(&know);
    let logs = logs();
    assert!(logs.len() >= 40, "{} logs", logs.len());
    let mut score = Score::default();
    let mut lines = Vec::new();
    for log in &logs {
        let got = first(&reader, &log.bytes);
        score.add(&log.name, &log.ids, got.as_ref().map(|(id, _)| id.as_str()));
        if got.as_ref().is_none_or(|(_, line)| *line != log.line) {
            lines.push(format!("{}: line {:?}, not {}", log.name, got.map(|(_, line)| line), log.line));
        }
    }
    println!("{}", score.line("logs"));
    println!("logs: the decisive line of {} of {} found", logs.len() - lines.len(), logs.len());
    assert!(score.wrong.is_empty() && lines.is_empty(), "{}\n{}", score.wrong.join("\n"), lines.join("\n"));
}

fn the_page() {
    let know = Knowledge::embedded();
    let reader = Reader::new(&know);
    let page = std::fs::read_to_string(file("../docs/triage-score.md")).unwrap();
    let mut lines = vec![score(&reader).line("cases"), later_score(&reader).line("later cases")];
    lines.extend(changed(&reader).iter().map(|(name, score)| score.line(name)));
    let missing: Vec<String> = lines.into_iter().filter(|line| !page.lines().any(|held| held == line)).collect();
    assert!(missing.is_empty(), "docs/triage-score.md does not say:\n{}", missing.join("\n"));
}
