//! `triage` as a user meets it: logs in every wrapping, bad input, formats, logs and facts together, and silence on what went well.

use crate::util::{BINARY, Doctor, Output, program, pty, trial, trial_with};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use libtest_mimic::Trial;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        trial("triage::the_cause_in_a_real_log_of_2228_lines", real_log),
        trial("triage::every_wrapping_is_taken_off", wrappings),
        trial("triage::formats", formats),
        trial("triage::exit_codes", exit_codes),
        trial("triage::bad_input_is_told", bad_input),
        trial("triage::an_unknown_log_shows_the_innermost_error", unknown),
        trial("triage::a_line_without_end_is_read_in_pieces", long_line),
        trial("triage::a_file_that_grows_is_judged_as_it_is", grows),
        trial("triage::progress_is_for_terminals", progress),
        trial_with("triage::a_log_that_may_not_be_read", program("setpriv"), |setpriv| not_permitted(&setpriv)),
        trial("triage::ctrl_c_gives_the_verdict_so_far", ctrl_c),
        trial("triage::control_characters_stay_out_of_the_terminal", control_characters),
        trial("triage::log_and_facts_are_judged_together", with_facts),
        trial("triage::several_logs_are_one_verdict", several),
        trial("triage::quiet_logs_of_twenty_builds_and_runs", || assert!(quiet_logs().len() >= 20)),
        trial("triage::a_pasted_line_is_explained", explained),
    ];
    for path in quiet_logs() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        trials.push(trial(&format!("triage::quiet::{name}"), move || quiet(&path)));
    }
    trials
}

fn logs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/logs")
}

fn quiet_logs() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(logs().join("quiet")).into_iter().flatten();
    let mut all: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    all.sort();
    all
}

fn real() -> PathBuf {
    logs().join("deepspeed-0.19.8-pip-toolkit.log.gz")
}

fn unpacked(path: &Path) -> Vec<u8> {
    let mut text = Vec::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut text).unwrap();
    text
}

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text).unwrap();
    encoder.finish().unwrap()
}

fn triage(bytes: &[u8]) -> Output {
    Doctor::new(["triage", "-", "--format", "json"]).stdin(bytes).run()
}

fn json(out: &Output) -> serde_json::Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", out.stdout, out.stderr))
}

/// Id and line of the first finding.
fn first(out: &Output) -> (String, u64) {
    let json = json(out);
    let finding = &json["findings"][0];
    (finding["id"].as_str().unwrap_or_default().to_owned(), finding["location"]["line"].as_u64().unwrap_or(0))
}

fn known(id: &str, line: u64) -> (String, u64) {
    (id.to_owned(), line)
}

const LINKER: &str = "linker-cannot-find-cuda-lib";
const LINE: &str = "/usr/bin/ld: cannot find -lcudart: No such file or directory";

fn real_log() {
    let out = Doctor::new(["triage", "--format", "json"]).arg(real()).run();
    assert_eq!((out.code, first(&out)), (Some(0), known(LINKER, 168)), "{}", out.stdout);
    let shown = Doctor::new(["triage"]).arg(real()).run().stdout;
    assert!(shown.contains("2228 lines") && shown.contains(LINE) && shown.contains("line 168"), "{shown}");
    assert!(shown.lines().count() < 30, "{shown}");
}

fn wrappings() {
    let plain = format!("fine\n{LINE}\ncollect2: error: ld returned 1 exit status\n");
    let wide = |big: bool| -> Vec<u8> {
        let unit = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        "\u{feff}".encode_utf16().chain(plain.encode_utf16()).flat_map(unit).collect()
    };
    let with = |prefix: &str| plain.lines().map(|line| format!("{prefix}{line}\n")).collect::<String>().into_bytes();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("plain", plain.clone().into_bytes()),
        ("windows", plain.replace('\n', "\r\n").into_bytes()),
        ("gzip", gzip(plain.as_bytes())),
        ("gzip twice over", [gzip(b"fine\n"), gzip(plain.as_bytes().strip_prefix(b"fine\n").unwrap())].concat()),
        ("zstd", ruzstd::encoding::compress_to_vec(plain.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)),
        ("utf-16", wide(false)),
        ("utf-16 big", wide(true)),
        ("docker", with("#12 3.456 ")),
        ("actions", with("2026-11-29T14:43:51.1234567Z ")),
        ("actions, group", with("2026-11-29T14:43:51.1234567Z ##[error]")),
        ("torchrun", with("[rank0]: ")),
        ("slurm", with("0: ")),
        ("pip", with("      ")),
        ("uv", with("      \u{2502} ")),
        ("progress", with("  10% |###   |\r 100% |######|\r")),
        ("colours", with("\u{1b}[01;31m\u{1b}[K")),
        ("latin-1", [&b"fine\n"[..], &b"/usr/bin/ld: cannot find -lcudart: Datei oder Verzeichnis nicht gefunden \xe4\xff\n"[..]].concat()),
    ];
    for (name, bytes) in cases {
        assert_eq!(first(&triage(&bytes)), known(LINKER, 2), "{name}");
    }
}

fn formats() {
    let run = |format: &str| Doctor::new(["triage", "-", "--format", format]).stdin(LINE).run().stdout;
    assert!(run("github").starts_with("::error title=linker-cannot-find-cuda-lib,file=-,line=1::"), "{}", run("github"));
    assert!(run("markdown").contains("| error | `linker-cannot-find-cuda-lib` |"), "{}", run("markdown"));
    let human = run("human");
    assert!(human.contains("error[linker-cannot-find-cuda-lib]: the linker finds no "), "{human}");
    assert!(human.contains("fix   ") && human.contains("more  ds-doctor explain linker-cannot-find-cuda-lib"), "{human}");
    let json: serde_json::Value = serde_json::from_str(&run("json")).unwrap();
    assert_eq!(json["result"]["logs"][0]["sightings"][0]["line"], 1);
    assert_eq!(json["command"], "triage");
}

fn exit_codes() {
    let code = |args: &[&str], text: &str| Doctor::new(["triage", "-"]).args(args).stdin(text).run().code;
    assert_eq!(code(&[], LINE), Some(0));
    assert_eq!(code(&["--fail-on", "error"], LINE), Some(1));
    assert_eq!(code(&["--fail-on", "error"], "all is well\n"), Some(0));
    assert_eq!(Doctor::new(["triage"]).run().code, Some(2));
    assert_eq!(Doctor::new(["triage", "/nonexistent/log"]).run().code, Some(2));
}

fn bad_input() {
    let folder = tempfile::tempdir().unwrap();
    let told = |name: &str, bytes: Option<&[u8]>, words: &str| {
        let path = folder.path().join(name);
        match bytes {
            Some(bytes) => std::fs::write(&path, bytes).unwrap(),
            None => std::fs::create_dir_all(&path).unwrap(),
        }
        let out = Doctor::new(["triage"]).arg(&path).run();
        assert!(out.code == Some(2) && out.stderr.contains(words), "{name}: {:?} {}", out.code, out.stderr);
    };
    told("folder", None, "is a folder");
    told("program", Some(b"\x7fELF\x02\x01\x01\0\0"), "inspect");
    told("zeros", Some(&[0; 9000]), "no text");
    for (name, head, words) in [
        ("archive.zip", &b"PK\x03\x04aaaaaaa"[..], "`unzip`"),
        ("log.xz", b"\xfd7zXZ\0\0\x04", "`xz -d`"),
        ("log.bz2", b"BZh91AY&SY", "`bunzip2`"),
        ("log.7z", b"7z\xbc\xaf\x27\x1c", "`7z x`"),
        ("broken.gz", b"\x1f\x8b\x08\x00garbage", "cannot read"),
        ("broken.zst", b"\x28\xb5\x2f\xfdgarbage", "cannot read"),
    ] {
        told(name, Some(head), words);
    }
    let mut cut = gzip(&[LINE.as_bytes(), b"\n", &noise(200_000)].concat());
    cut.truncate(cut.len() / 2);
    let path = folder.path().join("cut.gz");
    std::fs::write(&path, &cut).unwrap();
    let out = Doctor::new(["triage"]).arg(&path).run();
    assert!(out.code == Some(2) && out.stderr.contains("beyond line") && out.stdout.contains(LINKER), "{} {}", out.stdout, out.stderr);
    let empty = Doctor::new(["triage", "-"]).run();
    assert!(empty.code == Some(0) && empty.stdout.contains("the log is empty"), "{}", empty.stdout);
    // One that can be read beside one that cannot.
    let both = Doctor::new(["triage", "/nonexistent/log"]).arg(real()).run();
    assert!(both.code == Some(2) && both.stdout.contains(LINKER) && both.stderr.contains("/nonexistent/log"), "{}", both.stderr);
}

/// Text that does not pack well.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        b'a' + u8::try_from(state >> 24).unwrap_or(0) % 26
    };
    (0..length).map(|at| if at % 80 == 79 { b'\n' } else { next() }).collect()
}

fn unknown() {
    let text = "building\nfoo.cpp:3:1: error: expected ';' before '}' token\nninja: build stopped: subcommand failed.\nERROR: Failed building wheel for foo\n";
    let out = Doctor::new(["triage", "-"]).stdin(text).run();
    assert_eq!(out.code, Some(0));
    assert!(out.stdout.contains("line 2: foo.cpp:3:1: error: expected"), "{}", out.stdout);
    assert!(!out.stdout.contains("error["), "{}", out.stdout);
    let json = json(&triage(text.as_bytes()));
    assert_eq!(json["verdict"], "unknown");
    assert_eq!(json["result"]["logs"][0]["first_error"]["tool"], "compiler");
    let fine = Doctor::new(["triage", "-"]).stdin("all is well\n").run();
    assert!(fine.stdout.contains("no finding"), "{}", fine.stdout);
}

/// 24 MB without a newline: found at its end, with memory for a part of it.
fn long_line() {
    let mut bytes = vec![b'x'; 24 << 20];
    bytes.extend_from_slice(b" /usr/bin/ld: cannot find -lcudart\n");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("long.log");
    std::fs::write(&path, &bytes).unwrap();
    let out = Doctor::new(["triage", "--format", "json"]).arg(&path).run();
    assert_eq!(first(&out), known(LINKER, 1), "{}", out.stdout);
    let limited = Doctor::new([]).program("/bin/sh").args(["-c", "ulimit -v 200000; exec \"$0\" triage --format json \"$1\"", BINARY]);
    let out = limited.arg(&path).run();
    assert_eq!(first(&out), known(LINKER, 1), "{}", out.stderr);
}

/// Somebody writes faster than it is read, and it ends all the same.
fn grows() {
    let script = format!(
        "echo '{LINE}' > log; (while :; do echo 'one more line of a build that goes on'; done >> log) & p=$!; sleep 0.2; \"$0\" triage log; code=$?; kill $p; exit $code"
    );
    let folder = tempfile::tempdir().unwrap();
    let run = Doctor::new([]).program("/bin/bash").args(["-c", &script, BINARY]).cwd(folder.path());
    let out = run.timeout(std::time::Duration::from_secs(60)).run();
    assert!(out.code == Some(0) && out.stdout.contains(LINKER), "{:?} {} {}", out.code, out.stdout, out.stderr);
}

/// Other users' logs are no crash. Root may read everything, so it is nobody who asks.
fn not_permitted(setpriv: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret.log");
    std::fs::write(&path, LINE).unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o000)).unwrap();
    let asked = if rustix::process::geteuid().is_root() {
        Doctor::new([]).program(setpriv).args(["--reuid=65534", "--clear-groups", BINARY, "triage"])
    } else {
        Doctor::new(["triage"])
    };
    let out = asked.arg(&path).run();
    assert!(out.code == Some(2) && out.stderr.contains("Permission denied") && out.stderr.contains("secret.log"), "{}", out.stderr);
}

/// One line that is written over, and gone at the end; nothing of it where standard error is no terminal.
fn progress() {
    let script = format!("(for n in 1 2 3 4 5 6 7 8; do echo 'building {LINE}'; sleep 0.6; done) | \"$0\" triage -");
    let quiet = Doctor::new([]).program("/bin/bash").args(["-c", &script, BINARY]).run();
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    let (ours, childs) = pty();
    let mut shell = std::process::Command::new("/bin/bash");
    shell.args(["-c", &script, BINARY]).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).stderr(childs);
    let out = shell.spawn().unwrap().wait_with_output().unwrap();
    // Ours holds the other end too.
    drop(shell);
    let mut shown = Vec::new();
    let _ = std::fs::File::from(ours).read_to_end(&mut shown);
    let shown = String::from_utf8_lossy(&shown);
    assert!(shown.contains("\r\u{1b}[Kds-doctor: reading standard input, ") && shown.ends_with("\r\u{1b}[K"), "{shown:?}");
    assert!(String::from_utf8_lossy(&out.stdout).contains(LINKER));
}

/// Standard input that never ends.
fn ctrl_c() {
    let script = format!(
        "set -m; mkfifo f; (echo '{LINE}'; exec sleep 30) > f & p=$!; \"$0\" triage - < f & d=$!; until grep -q 'SigCgt:.*[2367abef]$' /proc/$d/status; do sleep 0.1; done; sleep 1; kill -INT $d; wait $d; kill $p"
    );
    let start = std::time::Instant::now();
    let out = Doctor::new([]).program("/bin/bash").args(["-c", &script, BINARY]).run();
    assert!(out.stdout.contains(LINKER) && out.stdout.contains("interrupted"), "{} {}", out.stdout, out.stderr);
    assert!(start.elapsed().as_secs() < 25);
}

fn control_characters() {
    let text =
        "\u{1b}]0;title\u{7}/usr/bin/ld: cannot find -lcudart\u{1b}[2J\u{202e}\u{8}\n\u{1b}[31mfoo.c:1:2: error: \u{9b}31mx\u{1b}c\n";
    for args in
        [&["triage", "-"][..], &["triage", "-", "-v"], &["triage", "-", "--format", "markdown"], &["triage", "-", "--format", "github"]]
    {
        let out = Doctor::new([]).args(args).stdin(text).run();
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!out.stdout.contains(bad) && !out.stderr.contains(bad), "{:?} {:?}", args, out.stdout);
    }
}

/// The log names an architecture that its nvcc does not know; the machine has another toolkit, and the cure names it.
fn with_facts() {
    let text = "nvcc fatal   : Unsupported gpu architecture 'compute_89'\n";
    let alone = json(&triage(text.as_bytes()));
    assert_eq!(alone["findings"][0]["id"], "nvcc-too-old-for-gpu", "{alone}");
    let dropped = json(&triage(b"nvcc fatal   : Unsupported gpu architecture 'compute_37'\n"));
    assert_eq!(dropped["findings"][0]["id"], "nvcc-dropped-arch", "{dropped}");
    let out = Doctor::new(["triage", "-", "--format", "json", "--assume", "torch=2.6.0+cu124,cuda=11.7"]).stdin(text).run();
    let found = json(&out);
    let all: Vec<&str> = found["findings"].as_array().unwrap().iter().filter_map(|one| one["id"].as_str()).collect();
    assert!(all.contains(&"nvcc-too-old-for-gpu"), "{}", out.stdout);
}

fn several() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let one = write("rank0.log", &format!("{LINE}\n"));
    let two = write("rank1.log", &format!("x\n{LINE}\nfatal error: Python.h: No such file or directory\n"));
    let out = Doctor::new(["triage", "--format", "json"]).arg(&one).arg(&two).run();
    let json = json(&out);
    let ids: Vec<&str> = json["findings"].as_array().unwrap().iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, [LINKER, "missing-python-h"], "{}", out.stdout);
    assert_eq!(json["findings"][0]["evidence"].as_array().unwrap().len(), 2, "{}", out.stdout);
}

fn explained() {
    let out = Doctor::new(["explain", LINE]).run();
    assert_eq!(out.code, Some(0));
    let (first, page) = out.stdout.split_once("\n\n").unwrap();
    assert!(first.starts_with("linker-cannot-find-cuda-lib: the linker finds no "), "{first}");
    assert!(page.starts_with("# linker-cannot-find-cuda-lib\n"), "{page}");
}

/// What was built and run well gives no finding, and no word of an error that is not there.
fn quiet(path: &Path) {
    let out = Doctor::new(["triage", "--format", "json"]).arg(path).run();
    let json = json(&out);
    assert_eq!(json["findings"].as_array().unwrap().iter().filter(|one| one["severity"] != "info").count(), 0, "{}", out.stdout);
    assert_eq!(json["verdict"], "healthy", "{}", out.stdout);
    assert!(!unpacked(path).is_empty());
}
