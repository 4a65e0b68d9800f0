//! What `fix --print-exports` prints, read by the real shells: any byte must survive.

use crate::util::{program, trial, trial_with};
use ds_doctor::facts::env::EnvFacts;
use ds_doctor::facts::raw::{HostPath, Raw};
use ds_doctor::finding::Change;
use ds_doctor::render::exports::{Target, render};
use libtest_mimic::Trial;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![trial("exports::every_statement_ends_so_that_an_unquoted_eval_reads_it", statements)];
    for (shell, target) in [("sh", Target::Sh), ("bash", Target::Sh), ("zsh", Target::Sh), ("fish", Target::Fish)] {
        let name = format!("exports::{shell}_takes_any_byte");
        trials.push(trial_with(&name, program(shell), move |path| any_byte(&path, shell, target)));
        let name = format!("exports::{shell}_prepends_by_reference");
        trials.push(trial_with(&name, program(shell), move |path| prepends(&path, shell, target)));
    }
    trials.push(trial_with("exports::bash_unquoted_eval", program("bash"), |path| unquoted(&path)));
    trials.push(trial_with("exports::csh_within_what_is_promised", program("tcsh"), |path| csh(&path)));
    trials.push(trial_with("exports::csh_prepends_by_reference", program("tcsh"), |path| prepends(&path, "tcsh", Target::Csh)));
    trials
}

fn runner(cases: u32) -> TestRunner {
    TestRunner::new_with_rng(
        Config { cases, failure_persistence: None, ..Config::default() },
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    )
}

fn raw(bytes: &[u8]) -> Raw {
    Raw(OsString::from_vec(bytes.to_vec()))
}

/// The words that shells trip over, then anything.
fn values() -> impl Strategy<Value = Vec<u8>> {
    let hard = prop::sample::select(vec![
        &b"it's"[..],
        b"a\"b",
        b"$(reboot)",
        b"`id`",
        b"$HOME",
        b"${PATH:-x}",
        b"!!",
        b"!x",
        b"a;b",
        b"a&&b",
        b"*",
        b"?[a]",
        b"~",
        b"~root",
        b"{a,b}",
        b"=ls",
        b"%1",
        b"#x",
        b"-n",
        b"\\",
        b"\\\\'",
        b"end\\",
        b"a\nb",
        b"a\n",
        b"\n",
        b" lead",
        b"tail ",
        b"a  b",
        b"\t",
        b"\xff\xfe",
        b"\x80",
        b"\xc3\xa9",
        b"\x1b[2J",
        b"\x01\x02\x7f",
        b"^x",
        b"a|b",
        b"<x>",
        b"()",
        b"\xe2\x80\xae",
    ])
    .prop_map(<[u8]>::to_vec);
    prop_oneof![hard, prop::collection::vec(1..=255_u8, 0..40)]
}

/// Runs a script of this shell in an empty environment, and gives what it wrote to `out`.
fn shell(path: &Path, folder: &Path, script: &str) -> Vec<u8> {
    let flags: &[&str] = match path.file_name().and_then(|name| name.to_str()) {
        Some("tcsh") => &["-f", "-c"],
        Some("zsh") => &["-f", "-c"],
        Some("fish") => &["--no-config", "-c"],
        _ => &["-c"],
    };
    let output = Command::new(path)
        .args(flags)
        .arg(script)
        .current_dir(folder)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("HOME", folder)
        .env("LC_ALL", "C.UTF-8")
        .env("LIST", "/usr/lib/x:/opt/a b")
        .output()
        .expect("the shell starts");
    assert!(output.status.success(), "{}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr), script);
    std::fs::read(folder.join("out")).unwrap_or_default()
}

/// Prints variables NUL-separated, through a child that gets them by its environment: what counts is what programs will see.
fn dump(names: &[String]) -> String {
    let names = names.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
    format!(
        "import os\nout = open('out', 'wb')\nfor name in [{names}]:\n    out.write(os.environb.get(name.encode(), b'(unset)') + b'\\0')\n"
    )
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn any_byte(path: &Path, shell_name: &str, target: Target) {
    let strategy = prop::collection::vec(values(), 30);
    runner(25)
        .run(&strategy, |values| {
            let changes: BTreeMap<String, Change> =
                values.iter().enumerate().map(|(n, value)| (format!("V{n:02}"), Change::Set(raw(value)))).collect();
            let exports = render(&changes, &EnvFacts::default(), target);
            prop_assert!(exports.left_out.is_empty());
            let got = evaluated(path, shell_name, &exports.text, &changes);
            for ((name, value), got) in changes.keys().zip(&values).zip(&got) {
                prop_assert_eq!(got, value, "{} in {}", name, shell_name);
            }
            Ok(())
        })
        .unwrap();
}

/// `eval "$(…)"` as the README has it; fish reads by `| source`, and by eval too.
fn evaluated(path: &Path, shell_name: &str, text: &[u8], changes: &BTreeMap<String, Change>) -> Vec<Vec<u8>> {
    let dir = folder();
    std::fs::write(dir.path().join("exports"), text).unwrap();
    let names: Vec<String> = changes.keys().cloned().collect();
    std::fs::write(dir.path().join("dump.py"), dump(&names)).unwrap();
    let read = match shell_name {
        "fish" => "cat exports | source; python3 dump.py",
        "tcsh" => "eval `cat exports`; python3 dump.py",
        _ => "eval \"$(cat exports)\"; python3 dump.py",
    };
    let out = shell(path, dir.path(), read);
    let mut values: Vec<Vec<u8>> = out.split(|b| *b == 0).map(<[u8]>::to_vec).collect();
    values.pop();
    assert_eq!(values.len(), names.len(), "{}", String::from_utf8_lossy(text));
    values
}

fn prepends(path: &Path, shell_name: &str, target: Target) {
    let mut env = EnvFacts::default();
    env.set("LIST", "/usr/lib/x:/opt/a b");
    let front = |dir: &str| Change::Prepend(vec![HostPath::new(dir)]);
    let changes: BTreeMap<String, Change> = [("LIST_PATH".to_owned(), front("/new dir")), ("LIST".to_owned(), front("/front"))]
        .into_iter()
        .filter(|(name, _)| target != Target::Fish || name.ends_with("PATH"))
        .collect();
    let exports = render(&changes, &env, target);
    let got = evaluated(path, shell_name, &exports.text, &changes);
    let want: Vec<&[u8]> =
        changes.keys().map(|name| if name == "LIST" { &b"/front:/usr/lib/x:/opt/a b"[..] } else { b"/new dir" }).collect();
    assert_eq!(got, want);
}

/// Values without runs of blanks, newlines and globs come through an eval without quotes too.
fn unquoted(path: &Path) {
    let values = [&b"/usr/local/cuda-12.4"[..], b"8.0;9.0+PTX", b"it's", b"a b", b"$(id)", b"x\"y"];
    let changes: BTreeMap<String, Change> =
        values.iter().enumerate().map(|(n, value)| (format!("V{n}"), Change::Set(raw(value)))).collect();
    let text = render(&changes, &EnvFacts::default(), Target::Sh).text;
    let dir = folder();
    std::fs::write(dir.path().join("exports"), &text).unwrap();
    let names: Vec<String> = changes.keys().cloned().collect();
    std::fs::write(dir.path().join("dump.py"), dump(&names)).unwrap();
    let out = shell(path, dir.path(), "eval $(cat exports); python3 dump.py");
    let got: Vec<&[u8]> = out.split(|b| *b == 0).take(values.len()).collect();
    assert_eq!(got, values);
}

/// What csh cannot carry is left out and named; what it gets, it reads right.
fn csh(path: &Path) {
    let strategy = prop::collection::vec(values(), 30);
    let (carried, left_out) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    runner(25)
        .run(&strategy, |values| {
            let all: BTreeMap<String, Change> =
                values.iter().enumerate().map(|(n, value)| (format!("V{n:02}"), Change::Set(raw(value)))).collect();
            let exports = render(&all, &EnvFacts::default(), Target::Csh);
            let kept: BTreeMap<String, Change> = all
                .iter()
                .filter(|(name, _)| !exports.left_out.iter().any(|(out, _)| out == *name))
                .map(|(n, c)| (n.clone(), c.clone()))
                .collect();
            carried.set(carried.get() + kept.len());
            left_out.set(left_out.get() + exports.left_out.len());
            let got = evaluated(path, "tcsh", &exports.text, &kept);
            for ((name, change), got) in kept.iter().zip(&got) {
                let want = change.apply(None).unwrap();
                prop_assert_eq!(got, &want.bytes().to_vec(), "{}", name);
            }
            Ok(())
        })
        .unwrap();
    let (carried, left_out) = (carried.get(), left_out.get());
    assert!(carried > 50 && left_out > 50, "{carried} carried, {left_out} left out: the test must see both");
}

fn statements() {
    let changes: BTreeMap<String, Change> = [
        ("A".to_owned(), Change::Set("x".into())),
        ("B".to_owned(), Change::Unset),
        ("PATH".to_owned(), Change::Prepend(vec!["/a".into(), "/b".into()])),
    ]
    .into();
    for target in [Target::Sh, Target::Fish, Target::Csh] {
        let text = String::from_utf8(render(&changes, &EnvFacts::default(), target).text).unwrap();
        assert!(text.lines().all(|line| line.ends_with(';') && !line.contains('#')), "{text}");
        assert_eq!(text.lines().count(), 3);
    }
    for target in [Target::GithubEnv, Target::Dockerfile, Target::Dotenv] {
        let text = String::from_utf8(render(&changes, &EnvFacts::default(), target).text).unwrap();
        assert!(text.lines().all(|line| !line.ends_with(';')), "{text}");
    }
}
