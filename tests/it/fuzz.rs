//! The fuzzers' targets over the files that are kept of them: what once went wrong, and what reaches most of each reader.

#[path = "../../fuzz/src/targets.rs"]
mod targets;

use crate::util::trial;
use libtest_mimic::Trial;
use std::path::Path;
use std::time::{Duration, Instant};

/// For one file, in a build for tests on a busy machine.
const MOST: Duration = Duration::from_secs(10);
/// Bytes of all files: small enough for a repository.
const ALL: u64 = 500 << 10;

pub fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = targets::ALL
        .into_iter()
        .map(|(name, target)| trial(&format!("fuzz::{name}_over_its_corpus"), move || replay(name, target)))
        .collect();
    trials.push(trial("fuzz::the_corpus_is_small_and_whole", corpus));
    trials
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus")
}

fn replay(name: &str, target: fn(&[u8])) {
    let mut seen = 0;
    for entry in folder().join(name).read_dir().unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        println!("{}", path.display());
        // As it is, and cut in the middle: what is whole can hide what is not.
        for bytes in [&bytes[..], &bytes[..bytes.len() / 2]] {
            let start = Instant::now();
            target(bytes);
            assert!(start.elapsed() < MOST, "{} took {:?}", path.display(), start.elapsed());
        }
        seen += 1;
    }
    assert!(seen >= 3, "{name}: {seen} files");
}

fn corpus() {
    let mut sum = 0;
    for entry in folder().read_dir().unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        assert!(targets::ALL.iter().any(|(known, _)| *known == name), "no target reads `{name}`");
        // What a fuzzer has found and nobody has looked at is not kept.
        let kept = |path: &std::path::PathBuf| path.file_name().is_some_and(|name| name.len() != 40);
        let files = entry.path().read_dir().unwrap().map(|entry| entry.unwrap().path()).filter(kept);
        sum += files.map(|path| path.metadata().unwrap().len()).sum::<u64>();
    }
    assert!(sum < ALL, "{sum} bytes");
}
