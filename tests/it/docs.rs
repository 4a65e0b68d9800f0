//! Pages of `docs` that are made from tables: what is there is what the tables give. `DS_DOCTOR_BLESS=1` writes them anew.

use crate::util::trial;
use ds_doctor::collect::env::{Shape, VARIABLES, row_of};
use libtest_mimic::Trial;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    vec![trial("docs::environment_is_what_the_tables_say", environment), trial("docs::each_variable_has_a_reader_and_an_effect", readers)]
}

#[derive(Deserialize)]
struct Table {
    variable: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    read_by: Vec<String>,
    torch: Option<String>,
    deepspeed: Option<String>,
    mistaken_for: Option<String>,
    effect: String,
}

fn at(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn known() -> BTreeMap<String, Row> {
    let table: Table = toml::from_str(&std::fs::read_to_string(at("rules/environment.toml")).unwrap()).unwrap();
    table.variable.into_iter().map(|row| (row.name.clone(), row)).collect()
}

fn reader(row: &Row) -> String {
    let with = |who: &String| match (who.as_str(), &row.torch, &row.deepspeed) {
        ("torch", Some(range), _) => format!("torch {}", range.replace(">=", "from ") + " on"),
        ("torch", None, _) => "torch".to_owned(),
        ("deepspeed", _, Some(range)) => format!("DeepSpeed {}", range.replace(">=", "from ") + " on"),
        ("deepspeed", _, None) => "DeepSpeed".to_owned(),
        ("cuda", ..) => "the CUDA driver".to_owned(),
        ("compiler", ..) => "gcc, clang".to_owned(),
        ("loader", ..) => "the loader".to_owned(),
        ("cmake", ..) => "CMake".to_owned(),
        ("python", ..) => "distutils".to_owned(),
        (other, ..) => other.to_owned(),
    };
    row.read_by.iter().map(with).collect::<Vec<_>>().join(", ")
}

const fn shape(shape: Shape) -> &'static str {
    match shape {
        Shape::Paths => "folders, separated by colons",
        Shape::Libraries => "libraries, separated by colons or blanks",
        Shape::Path => "a folder or a file",
        Shape::Program => "a program or a command line",
        Shape::Text => "text",
    }
}

fn page() -> String {
    let known = known();
    let names: BTreeSet<&str> = VARIABLES.iter().map(|row| row.name).chain(known.keys().map(String::as_str)).collect();
    let mut out = String::from(
        "# Environment variables\n\n\
         What the doctor reads of the environment, who else reads it, and what it does there. Only these enter a snapshot; the value of one\n\
         whose name or content looks like a secret is left out. A name that ends in `*` stands for every variable that begins so and has no\n\
         row of its own. Folders, files and programs that a value names are looked up.\n\n\
         This page is made from `src/collect/env/table.rs` and `rules/environment.toml`; `DS_DOCTOR_BLESS=1 cargo test --test it -- docs`\n\
         writes it anew.\n\n\
         | variable | value | read by | what it does |\n|---|---|---|---|\n",
    );
    for name in names {
        let row = known.get(name);
        let table = VARIABLES.iter().find(|row| row.name == name).or_else(|| row_of(name));
        let by = match row {
            Some(row) if row.read_by.is_empty() => "no program of a build".to_owned(),
            Some(row) => reader(row),
            None => table.map(|row| row.reader.to_owned()).unwrap_or_default(),
        };
        let mut does = row.map_or_else(|| table.map(|row| row.effect.to_owned()).unwrap_or_default(), |row| row.effect.clone());
        if let Some(meant) = row.and_then(|row| row.mistaken_for.as_ref()) {
            let _ = write!(does, "; not `{meant}`, which it is mistaken for");
        }
        let value = table.map_or("", |row| shape(row.shape));
        let _ = writeln!(out, "| `{name}` | {value} | {by} | {} |", does.replace('|', "\\|"));
    }
    out
}

fn environment() {
    let file = at("docs/environment.md");
    let page = page();
    if std::env::var_os("DS_DOCTOR_BLESS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    let first = there.lines().zip(page.lines()).find(|(there, page)| there != page);
    assert!(there == page, "docs/environment.md is not what the tables give ({first:?}): DS_DOCTOR_BLESS=1 writes it anew");
}

/// A variable that a table speaks of is one that is collected, and it is told who reads it and what it does there, once.
fn readers() {
    for name in known().keys() {
        let row = row_of(name).unwrap_or_else(|| panic!("`{name}` of rules/environment.toml is not collected"));
        assert!(row.name != name || row.effect.is_empty(), "`{name}` is told of twice");
    }
    for line in page().lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        assert!(cells.len() == 4 && cells[1..].iter().all(|cell| !cell.is_empty()), "{line}");
    }
}
