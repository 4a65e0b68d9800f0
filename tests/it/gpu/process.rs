//! The worker and the client as processes, without any GPU library.

use super::{NVML, program, why};
use crate::util::{BINARY, Doctor, trial, trial_with};
use ds_doctor::gpu::client::{Client, Reply};
use ds_doctor::gpu::protocol::{Answer, Request, Trouble};
use libtest_mimic::Trial;
use std::time::{Duration, Instant};

pub fn trials() -> Vec<Trial> {
    let ask = move |text: &str, limit: u64| {
        let (_folder, path) = program(text);
        let begin = Instant::now();
        let reply = Client::new(None, Duration::from_millis(limit)).with_program(path).ask(&Request::Nvml { library: NVML.to_owned() });
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
        reply
    };
    vec![
        trial("gpu::worker_answers_in_one_line_of_json", || {
            let request = r#"{"ask":"nvml","library":"libnvidia-ml-of-no-driver.so.1"}"#;
            let out = Doctor::new(["__worker", request]).run();
            assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""));
            let answer: Answer = serde_json::from_str(out.stdout.strip_suffix('\n').unwrap()).unwrap();
            assert!(
                matches!(answer, Answer::Trouble(Trouble::NotFound(why)) if why.starts_with("libnvidia-ml-of-no-driver.so.1: cannot open"))
            );
        }),
        trial("gpu::worker_refuses_what_it_does_not_know", || {
            let out = Doctor::new(["__worker", r#"{"ask":"something-new"}"#]).run();
            assert!(matches!(serde_json::from_str(&out.stdout), Ok(Answer::Trouble(Trouble::Refused(_)))), "{out:?}");
            let out = Doctor::new(["__worker"]).run();
            assert_eq!((out.code, out.stdout.as_str()), (Some(2), ""));
            assert_eq!(out.stderr, "__worker is for the doctor's own use: no request\n");
        }),
        trial_with("gpu::worker_refuses_a_terminal", crate::util::program("script"), |_| {
            let out = Doctor::new([]).program("script").args(["-qec", &format!("{BINARY} __worker '{{}}'"), "/dev/null"]).run();
            assert_eq!(out.code, Some(2), "{out:?}");
            assert!(out.stdout.contains("__worker is for the doctor's own use: it asks GPU libraries"), "{out:?}");
        }),
        trial("gpu::client_gives_the_worker_no_environment_of_ours", move || {
            let folder = tempfile::tempdir().unwrap();
            let seen = folder.path().join("seen");
            ask(&format!("env > {}", seen.display()), 10_000);
            let mut names: Vec<String> = std::fs::read_to_string(&seen)
                .unwrap()
                .lines()
                .filter_map(|l| l.split_once('=').map(|(name, _)| name.to_owned()))
                .collect();
            names.retain(|n| !["PWD", "SHLVL", "_", "OLDPWD"].contains(&n.as_str()));
            names.sort();
            assert_eq!(names, ["CUDA_CACHE_DISABLE", "LC_ALL"]);
        }),
        trial("gpu::client_survives_garbage", move || {
            for text in ["echo hello", "echo '{\"answer\":\"nvml\"}'", "printf '\\377\\376\\n'", "echo; sleep 60"] {
                assert!(matches!(ask(text, 10_000), Reply::Garbage { .. }), "{text}");
            }
        }),
        trial("gpu::client_survives_a_flood", move || {
            assert!(matches!(ask("yes", 10_000), Reply::Garbage { begin } if begin.starts_with("y\ny")));
            assert!(matches!(ask("yes | tr -d '\\n'", 10_000), Reply::Garbage { .. }), "no end of line");
            assert!(matches!(ask("yes >&2", 500), Reply::TimedOut { .. }));
        }),
        trial("gpu::client_survives_an_end_without_answer", move || {
            assert_eq!(ask("echo one >&2; echo two >&2; exit 5", 10_000), Reply::Ended { code: Some(5), stderr: "one\ntwo".to_owned() });
            assert_eq!(ask("exit 0", 10_000), Reply::Ended { code: Some(0), stderr: String::new() });
            assert_eq!(ask("kill -BUS $$", 10_000), Reply::Died { signal: 7, stderr: String::new() });
            assert_eq!(ask("exec >&-; exec 2>&-; sleep 60", 10_000), Reply::Ended { code: None, stderr: String::new() });
            assert_eq!(ask("sleep 60 & exit 6", 400), Reply::TimedOut { limit: Duration::from_millis(400), stderr: String::new() });
        }),
        trial("gpu::client_takes_the_first_whole_line_and_ends_the_worker", move || {
            let begin = Instant::now();
            let answered = ask("echo '{\"answer\":\"trouble\",\"trouble\":\"not-found\",\"why\":\"w\"}'; sleep 60", 10_000);
            assert_eq!(answered, Reply::Answered(Answer::Trouble(Trouble::NotFound("w".to_owned()))));
            assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
        }),
        trial("gpu::client_names_a_worker_that_cannot_start", || {
            let reply = Client::new(None, Duration::from_secs(1)).with_program("/none/ds-doctor").nvml(NVML);
            assert!(why(reply).starts_with("the process to ask libnvidia-ml.so.1 could not be started: No such file"));
        }),
    ]
}
