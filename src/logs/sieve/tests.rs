#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "the logs are files of this project")]
use super::*;
use crate::knowledge::Knowledge;
use crate::logs::{Reader, text};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[test]
fn words_are_found_at_every_place() {
    let sieve = Sieve::new(["-lcudart", "rror:", "Killed", "crt/"], &Common::new());
    for before in 0..200 {
        for word in ["-lcudart", "rror:", "Killed", "crt/"] {
            let text = format!("{}{word}{}\n", "x".repeat(before), "y".repeat(before % 7));
            assert_eq!(sieve.find(text.as_bytes(), 0), Some((before, before + word.len())), "{before} {word}");
        }
    }
    assert_eq!(sieve.find(b"rror", 0), None);
    assert_eq!(sieve.find(b"", 0), None);
}

proptest! {
    #[test]
    fn as_a_plain_search(text in "[a-d]{0,300}", words in proptest::collection::vec("[a-d]{4,7}", 1..6)) {
        let text = format!("{text}\n");
        let sieve = Sieve::new(words.iter().map(String::as_str), &Common::new());
        let plain = words.iter().any(|word| text.contains(word.as_str()));
        prop_assert_eq!(sieve.find(text.as_bytes(), 0).is_some(), plain);
    }

    /// The end of the text included.
    #[test]
    fn each_word_that_is_there(text in "[a-c]{0,60}", words in proptest::collection::vec("[a-c]{4,6}", 1..12)) {
        let mut found = Vec::new();
        Sieve::new(words.iter().map(String::as_str), &Common::new()).each(text.as_bytes(), |word| found.push(word));
        found.sort_unstable();
        found.dedup();
        let plain: Vec<usize> = (0..words.len()).filter(|at| text.contains(words[*at].as_str())).collect();
        prop_assert_eq!(found, plain);
    }
}

fn logs(folder: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.is_file()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        std::io::Read::read_to_end(&mut text(std::fs::File::open(file).unwrap()).unwrap(), &mut all).unwrap();
    }
    all
}

/// What a good build prints seldom looks like a word: the reading of logs is as fast as this is rare.
#[test]
fn good_logs_seldom_stop_the_search() {
    if std::env::var_os("DS_DOCTOR_BLESS").is_some() {
        std::fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/logs/sieve/common.txt"), count()).unwrap();
    }
    let know = Knowledge::embedded();
    let reader = Reader::new(&know);
    let log = logs("tests/logs/quiet");
    let known = |four: &[u8]| reader.triggers.places.binary_search_by_key(&gram(four, 0).unwrap(), |place| place.gram).is_ok();
    let stops = log.windows(4).filter(|four| known(four)).count();
    assert!(stops * 30 < log.len(), "{stops} in {} bytes; DS_DOCTOR_BLESS=1 counts anew what is common", log.len());
}

/// `common.txt`, from the logs of good and of failed builds alike.
fn count() -> String {
    const MOST: usize = 4000;
    let mut rates: BTreeMap<&[u8], f64> = BTreeMap::new();
    let all = [logs("tests/logs/quiet"), logs("tests/logs")];
    for log in &all {
        for four in log.windows(4).filter(|four| !four.contains(&b'\n')) {
            *rates.entry(four).or_default() += f64::from(1 << 20) / log.len() as f64 / all.len() as f64;
        }
    }
    let mut rates: Vec<(&[u8], f64)> = rates.into_iter().collect();
    rates.sort_by(|one, other| other.1.total_cmp(&one.1));
    let mut rows: BTreeMap<std::cmp::Reverse<u32>, Vec<String>> = BTreeMap::new();
    for (four, rate) in rates.into_iter().take(MOST) {
        let number = 1u32 << rate.log2() as u32;
        let plain = |byte: &u8| byte.is_ascii_graphic() && *byte != b'\\';
        let text: String =
            four.iter().map(|byte| if plain(byte) { char::from(*byte).to_string() } else { format!("\\x{byte:02x}") }).collect();
        rows.entry(std::cmp::Reverse(number)).or_default().push(text);
    }
    let mut page =
        "# Four bytes in a row that builds print most, of which no word is known by: before the colon how often in a MiB, at least.\n\
        # Counted in tests/logs, those of good and those of failed builds alike; `DS_DOCTOR_BLESS=1 cargo test --lib sieve` counts anew.\n"
            .to_owned();
    for (number, mut grams) in rows {
        grams.sort();
        for line in grams.chunks(24) {
            writeln!(page, "{}: {}", number.0, line.join(" ")).unwrap();
        }
    }
    page
}
