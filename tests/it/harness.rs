//! The harness itself: a test helper that cannot fail would make every other test worthless.

use crate::util::{Doctor, Output, lab, skipped, trial, trial_with};
use libtest_mimic::Trial;
use std::time::{Duration, Instant};

/// A shell in place of the doctor, to see what the builder passes on.
fn shell(script: &str) -> Doctor {
    Doctor::new([]).program("/bin/sh").args(["-c", script])
}

fn panics(run: impl FnOnce() -> Output + std::panic::UnwindSafe) -> String {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let caught = std::panic::catch_unwind(run);
    std::panic::set_hook(hook);
    match caught {
        Ok(_) => panic!("should have failed"),
        Err(payload) => payload.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial("harness::environment_is_scrubbed", || {
            let out = shell("env | cut -d= -f1 | sort | grep -vE '^(PWD|SHLVL|_|OLDPWD)$' | tr '\\n' ' '").env("EXTRA", "1").run();
            assert_eq!(out.stdout, "EXTRA HOME LC_ALL PATH ");
        }),
        trial("harness::both_streams_and_the_exit_code_come_back", || {
            let out = shell("cat; echo talk >&2; exit 7").stdin("result").run();
            assert_eq!((out.stdout.as_str(), out.stderr.as_str(), out.code), ("result", "talk\n", Some(7)));
        }),
        trial("harness::home_and_folder_are_of_this_run", || {
            let doctor = shell("cd && pwd && pwd -P && kill -9 $$");
            let home = doctor.home().canonicalize().unwrap();
            let out = doctor.cwd("/").arg("unused").run();
            assert_eq!(out.stdout, format!("{0}\n{0}\n", home.display()));
            assert_eq!((out.code, out.signal), (None, Some(9)));
        }),
        trial("harness::a_program_that_hangs_fails_the_test_and_dies", || {
            assert!(shell("sleep 0.1").run().wall >= Duration::from_millis(100));
            let begin = Instant::now();
            let why = panics(|| shell("echo before; sleep 60 & wait").timeout(Duration::from_millis(300)).run());
            assert!(why.contains("did not end within 300ms") && why.contains("before"), "{why}");
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        }),
        trial("harness::a_skipped_trial_names_its_reason_and_fails_when_forced", || {
            let trial = trial_with("subject::case", lab("no-such-part"), |_| ());
            assert_eq!(trial.name(), "subject::case (skipped: lab part `no-such-part` is missing)");
            let trial = skipped("subject::case", "no such thing here");
            assert!(trial.has_ignored_flag());
            assert_eq!(trial.name(), "subject::case (skipped: no such thing here)");
            let forced = libtest_mimic::Arguments {
                include_ignored: true,
                quiet: true,
                logfile: Some("/dev/null".to_owned()),
                ..Default::default()
            };
            assert!(libtest_mimic::run(&forced, vec![trial]).has_failed());
        }),
    ]
}
