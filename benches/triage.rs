//! `cargo bench --bench triage`: a large coloured log, read by triage; and its first megabyte, read by `grep -E` and ripgrep looking for
//! the same patterns.
//!
//! The log repeats what real builds printed (tests/logs), each line as gcc and ninja colour it. GB: its size, 2 by default.
#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::disallowed_methods, reason = "a benchmark stops at what goes wrong and prints")]

use ds_doctor::knowledge::Knowledge;
use ds_doctor::logs::{Reader, text};
use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const DOCTOR: &str = env!("CARGO_BIN_EXE_ds-doctor");

fn main() {
    let gigabytes: f64 = std::env::var("GB").ok().and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let folder = std::env::temp_dir();
    let log = folder.join("ds-doctor-bench.log");
    let size = make(&log, (gigabytes * 1e9) as u64);
    // The others are too slow for all of it.
    let sample = folder.join("ds-doctor-bench-sample.log");
    let small = make(&sample, 1);
    let know = Knowledge::embedded();
    let start = Instant::now();
    let reader = Reader::new(&know);
    println!("{} signatures ready in {:.1} ms", know.signatures.signature.len(), start.elapsed().as_secs_f64() * 1e3);
    drop(reader);
    let patterns = folder.join("ds-doctor-bench.patterns");
    let all = nameless(&know);
    println!("log of {:.2} GB, {} patterns", size as f64 / 1e9, all.len());
    let (path, start) = (log.to_str().unwrap(), sample.to_str().unwrap());
    let file = patterns.to_str().unwrap();
    time("cat", size, Path::new("cat"), &[path]);
    time("ds-doctor triage", size, Path::new(DOCTOR), &["triage", "-q", path]);
    if let Some(grep) = program("grep") {
        std::fs::write(&patterns, all.iter().map(|pattern| posix(pattern) + "\n").collect::<String>()).unwrap();
        time("grep -acE -f (LC_ALL=C)", small, &grep, &["-a", "-c", "-E", "-f", file, start]);
    }
    if let Some(ripgrep) = program("rg") {
        std::fs::write(&patterns, all.join("\n") + "\n").unwrap();
        time("rg -ac -j1 -f", small, &ripgrep, &["--regex-size-limit", "1G", "-a", "-c", "-j1", "-f", file, start]);
    }
    let _ = std::fs::remove_file(&log);
    let _ = std::fs::remove_file(&sample);
    let _ = std::fs::remove_file(&patterns);
}

/// Repeats the lines of the logs in tests/logs/quiet, coloured, and puts one failure near the end.
fn make(path: &Path, size: u64) -> u64 {
    let logs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs/quiet");
    let mut files: Vec<PathBuf> = std::fs::read_dir(logs).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut once = Vec::new();
    for file in files {
        let mut bytes = Vec::new();
        text(File::open(file).unwrap()).unwrap().read_to_end(&mut bytes).unwrap();
        for line in bytes.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            match line.split_once(' ') {
                Some((first, rest)) => writeln!(once, "\x1b[01m\x1b[K{first}\x1b[m\x1b[K {rest}").unwrap(),
                None => writeln!(once, "{line}").unwrap(),
            }
        }
    }
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).unwrap());
    let mut written = 0;
    while written < size {
        out.write_all(&once).unwrap();
        written += once.len() as u64;
    }
    let last = b"/usr/bin/ld: cannot find -lcudart: No such file or directory\n";
    out.write_all(last).unwrap();
    out.flush().unwrap();
    written + last.len() as u64
}

/// All patterns as ripgrep takes them together: without the names of groups, which repeat.
fn nameless(know: &Knowledge) -> Vec<String> {
    let all = know.signatures.signature.iter().flat_map(|signature| signature.patterns.iter());
    let without_names = |pattern: &str| {
        // Older releases of ripgrep know no such escape.
        let mut text = pattern.replace(r"\'", "'");
        while let Some(at) = text.find("(?<") {
            let end = text[at..].find('>').map_or(text.len(), |end| at + end + 1);
            text.replace_range(at..end, "(?:");
        }
        text
    };
    all.map(|pattern| without_names(pattern)).collect()
}

/// In the words of POSIX: no groups that capture nothing, nothing lazy (which lines match is the same), no escapes in brackets.
fn posix(pattern: &str) -> String {
    let (mut out, mut rest, mut bracket) = (String::new(), pattern.replace("(?:", "("), false);
    while let Some(first) = rest.chars().next() {
        let after = rest[first.len_utf8()..].to_owned();
        let next = after.chars().next().unwrap_or(' ');
        rest = match first {
            '\\' => {
                out += &match (bracket, next) {
                    (_, 'd') => if bracket { "0-9" } else { "[0-9]" }.to_owned(),
                    (true, 's') => "[:space:]".to_owned(),
                    (true, 'w') => "[:alnum:]_".to_owned(),
                    (true, other) => other.to_string(),
                    (false, other) => format!("\\{other}"),
                };
                after[next.len_utf8()..].to_owned()
            }
            '*' | '+' | '?' | '}' if !bracket && next == '?' => {
                out.push(first);
                after[1..].to_owned()
            }
            _ => {
                bracket = match first {
                    '[' => true,
                    ']' => false,
                    _ => bracket,
                };
                out.push(first);
                after
            }
        };
    }
    out
}

fn program(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// One run to warm the page cache, then the best of three.
fn time(name: &str, size: u64, program: &Path, args: &[&str]) {
    let once = || {
        let start = Instant::now();
        let time = ["-f", "%M %U"];
        let mut command = Command::new("/usr/bin/time");
        let child = command.args(time).arg(program).args(args).env("LC_ALL", "C").stdout(Stdio::null()).stderr(Stdio::piped());
        let output = child.output().unwrap();
        // 1 is an answer of all of them.
        assert!(output.status.code().is_some_and(|code| code < 2), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned();
        (start.elapsed().as_secs_f64(), text)
    };
    let first = once();
    // What takes long is not the slower for a cold cache.
    let runs = if first.0 > 5.0 { vec![first] } else { (0..3).map(|_| once()).collect() };
    let best = runs.iter().min_by(|one, other| one.0.total_cmp(&other.0)).unwrap();
    let kib: u64 = best.1.split(' ').next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
    println!("{name:<24} {:>6.2} s  {:>9.5} GB/s  {:>5} MiB", best.0, size as f64 / 1e9 / best.0, kib / 1024);
}
