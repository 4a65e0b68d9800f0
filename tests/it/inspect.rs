//! `inspect`: real libraries against readelf and ldd, extensions that load and that do not against a real Python, wheels whole and
//! broken, and the release gate.

mod extensions;
mod gate;
mod truth;
mod wheels;

use crate::util::{Doctor, Output};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    let mut trials = truth::trials();
    trials.extend(extensions::trials());
    trials.extend(gate::trials());
    trials.extend(wheels::trials());
    trials
}

/// The report of one run, which must have ended with this code.
fn json(doctor: Doctor, code: i32) -> Value {
    let out = doctor.args(["--format", "json"]).run();
    assert_eq!(out.code, Some(code), "{}\n{}", out.stdout, out.stderr);
    serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}", out.stdout))
}

fn ids(report: &Value) -> Vec<String> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

fn inspect(path: &Path) -> Doctor {
    Doctor::new(["inspect"]).arg(path)
}

/// Ended with this code and said these words on standard error or output.
fn says(out: &Output, code: i32, words: &str) {
    assert_eq!(out.code, Some(code), "{}\n{}", out.stdout, out.stderr);
    assert!(out.stdout.contains(words) || out.stderr.contains(words), "{words}:\n{}\n{}", out.stdout, out.stderr);
}
