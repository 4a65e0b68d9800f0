//! Snapshots that somebody saved once are judged for ever as they were.
//!
//! `tests/old_snapshots` holds one for each schema, made from `machine.toml` there and redacted, and never changed after it was added. A
//! new schema gets its file by a run of these trials with `DS_DOCTOR_BLESS=1`, which writes a file that is missing and no other.

use crate::machines;
use crate::util::{Doctor, trial};
use ds_doctor::facts::snapshot::{SCHEMA, Snapshot};
use libtest_mimic::Trial;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// What is wrong with that machine.
const ROOTS: [&str; 2] = ["torch-nvcc-mismatch-major", "stale-jit-lock"];

pub fn trials() -> Vec<Trial> {
    vec![
        trial("old_snapshots::this_schema_has_its_file", this_schema),
        trial("old_snapshots::each_is_judged_as_ever", as_ever),
        trial("old_snapshots::fields_of_later_releases_are_passed_over", extra_fields),
        trial("old_snapshots::no_name_is_in_them", no_name),
    ]
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/old_snapshots")
}

fn files() -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    assert!(!files.is_empty());
    files
}

fn this_schema() {
    let file = folder().join(format!("schema-{SCHEMA}.json"));
    if !file.exists() && std::env::var_os("DS_DOCTOR_BLESS").is_some() {
        std::fs::write(&file, machines::snapshot(&folder().join("machine.toml"))).unwrap();
    }
    let text = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}; DS_DOCTOR_BLESS=1 makes it", file.display()));
    let facts: Snapshot = serde_json::from_slice(&text).unwrap();
    assert!(facts.redacted && facts.schema == SCHEMA);
    // It shows something of every topic.
    let torch = facts.pythons.value().unwrap().iter().find_map(|python| python.torch.value()).unwrap();
    assert!(!torch.libs.is_empty() && torch.arch_list.value().is_some());
    assert!(facts.toolkits.value().unwrap().len() > 1 && !facts.compilers.value().unwrap().is_empty());
    assert!(!facts.loader.value().unwrap().libraries.is_empty() && !facts.gpu.devices.value().unwrap().is_empty());
    assert!(facts.gpu.driver.value().is_some() && facts.host.glibc.value().is_some());
    assert!(facts.cache.value().unwrap().roots.iter().any(|root| root.ops.len() == 2));
}

fn judged(file: &Path) -> (Vec<String>, Value) {
    let out = Doctor::new(["check", "--for", "both", "--format", "json", "--from"]).arg(file).run();
    assert_eq!(out.code, Some(1), "{}: {}", file.display(), out.stderr);
    let json: Value = serde_json::from_str(&out.stdout).unwrap();
    let roots = json["findings"].as_array().unwrap().iter().filter(|one| one["caused_by"].as_array().unwrap().is_empty());
    (roots.filter(|one| one["severity"] != "info").map(|one| one["id"].as_str().unwrap().to_owned()).collect(), json)
}

fn as_ever() {
    for file in files() {
        let (roots, json) = judged(&file);
        assert_eq!(roots, ROOTS, "{}", file.display());
        assert_eq!(json["complete"], true, "{}", file.display());
    }
}

/// Keys of maps, whose fields are data.
const MAPS: [&str; 4] = ["vars", "libs", "broken", "ops"];

fn extended(value: &mut Value, in_map: bool) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| extended(item, false)),
        Value::Object(fields) => {
            for (key, value) in fields.iter_mut() {
                let is_map = MAPS.contains(&key.as_str()) && value.is_object();
                extended(value, is_map);
            }
            if !in_map {
                fields.insert("added_later".to_owned(), json!({ "a": [1, null, "x"], "b": { "c": -1.5 } }));
            }
        }
        _ => {}
    }
}

fn extra_fields() {
    let dir = tempfile::tempdir().unwrap();
    for file in files() {
        let mut json: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        extended(&mut json, false);
        let text = json.to_string();
        assert!(text.matches("added_later").count() > 100);
        let changed = dir.path().join(file.file_name().unwrap());
        std::fs::write(&changed, text).unwrap();
        assert_eq!(judged(&changed).1, judged(&file).1, "{}", file.display());
    }
}

fn no_name() {
    for file in files() {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!text.contains("/home/ann") && text.contains("/home/user"), "{}", file.display());
    }
}
