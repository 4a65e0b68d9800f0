//! The house's own rules: who may import whom, and that no step of "how to add" was forgotten.

use crate::util::trial;
use ds_doctor::checks::{CHECKS, RULES};
use ds_doctor::knowledge::Knowledge;
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("house::modules_import_only_what_they_may", imports),
        trial("house::every_check_has_its_problem", registered),
        trial("house::every_id_of_the_precedence_table_is_a_problem", precedence),
        trial("house::unsafe_code_only_beside_the_gpu", unsafe_code),
        trial("house::no_id_is_checked_twice", twice),
    ]
}

/// Modules of the crate that each may use. `commands` and `main` may use everything.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("version", &[]),
    ("text", &[]),
    ("exit", &[]),
    ("cli", &[]),
    ("facts", &["version"]),
    ("knowledge", &["version"]),
    ("binary", &["facts", "version"]),
    ("model", &["facts", "knowledge", "version"]),
    ("finding", &["facts", "version"]),
    ("checks", &["facts", "model", "knowledge", "finding", "version", "text"]),
    ("render", &["finding", "facts", "text", "checks", "knowledge", "model", "version"]),
    ("host", &["version"]),
    ("gpu", &["facts", "host", "version"]),
    ("collect", &["host", "gpu", "binary", "facts", "version"]),
    ("repair", &["facts", "model", "finding", "host", "version"]),
    ("logs", &["knowledge", "facts", "text"]),
    ("probe", &["host", "gpu", "model", "facts", "knowledge", "logs", "version"]),
];

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(sources(&path));
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The module a file belongs to: `src/checks/gpu.rs` is `checks`.
fn room(path: &Path) -> String {
    let below = path.strip_prefix(src()).unwrap();
    let first = below.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

/// Names after `crate::` outside tests and comments.
fn imported(text: &str) -> BTreeSet<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut names = BTreeSet::new();
    for line in code.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for after in line.split("crate::").skip(1) {
            let name: String = after.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !name.is_empty() {
                names.insert(name);
            }
        }
    }
    names
}

fn imports() {
    let mut wrong = Vec::new();
    for path in sources(&src()) {
        let room = room(&path);
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == room) else { continue };
        let text = std::fs::read_to_string(&path).unwrap();
        for name in imported(&text) {
            let known = MAY_IMPORT.iter().any(|(room, _)| *room == name) || name == "commands";
            if known && name != room && !allowed.contains(&name.as_str()) {
                wrong.push(format!("{} uses crate::{name}", path.strip_prefix(src()).unwrap().display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn ids() -> Vec<&'static str> {
    CHECKS.iter().flat_map(|topic| topic.iter()).map(|check| check.id).collect()
}

fn registered() {
    let know = Knowledge::embedded();
    for id in ids() {
        let problem = know.problem(id).unwrap_or_else(|| panic!("{id} is not in rules/problems.toml"));
        assert_eq!(problem.id, id, "a check goes by the id, not by an alias");
        let shown = ["environment", "probe"].iter().any(|place| problem.seen_in.contains(place));
        assert!(shown, "{id} is checked, and its row says neither `environment` nor `probe`");
        assert!(!problem.page.is_empty(), "{id} has no page");
    }
}

fn precedence() {
    let know = Knowledge::embedded();
    for (causes, consequences) in RULES {
        for id in causes.iter().chain(*consequences) {
            assert!(know.problem(id).is_some_and(|problem| problem.id == *id), "{id}");
        }
    }
}

fn twice() {
    let all = ids();
    let once: BTreeSet<&str> = all.iter().copied().collect();
    assert_eq!(all.len(), once.len());
}

fn unsafe_code() {
    for path in sources(&src()) {
        let text = std::fs::read_to_string(&path).unwrap();
        let code: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        let found = code.iter().any(|line| line.contains("unsafe {") || line.contains("unsafe extern") || line.contains("unsafe fn"));
        assert!(!found || room(&path) == "gpu", "{}", path.display());
    }
}
