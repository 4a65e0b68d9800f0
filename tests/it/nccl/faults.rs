//! Libraries that lack functions, crash, hang, refuse and compute wrong: each a clear answer, and nothing left.

use super::{Fake, SIZES, built, ends, faked, member, other, row};
use crate::fake::compiler;
use crate::util::{trial, trial_with};
use ds_doctor::facts::nccl::{End, Failure, Op, Stage, Step, Wrong};
use ds_doctor::facts::raw::HostPath;
use ds_doctor::gpu::client::Client;
use ds_doctor::gpu::nccl::client::Plan;
use libtest_mimic::Trial;
use std::path::Path;
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(1500);

fn failed(end: &End) -> &Failure {
    match end {
        End::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

const fn at(op: Op, bytes: u64, stage: Stage) -> Step {
    Step::Collective { op, bytes, stage }
}

pub fn trials() -> Vec<Trial> {
    let mut trials = opening();
    trials.extend(running());
    trials.extend(processes());
    trials
}

fn opening() -> Vec<Trial> {
    vec![
        faked("no_such_file", || {
            let opened = Fake::new("", "").open(Path::new("/none/libnccl.so.2"), None);
            let failure = failed(&opened.member.end);
            assert_eq!((failure.call.as_str(), opened.member.last), ("dlopen", Some(Step::Open)));
            assert!(failure.why.contains("cannot open shared object file"), "{failure:?}");
        }),
        faked("a_file_that_is_no_library", || {
            let folder = tempfile::tempdir().unwrap();
            let junk = folder.path().join("libnccl.so.2");
            std::fs::write(&junk, "junk").unwrap();
            let opened = Fake::new("", "").open(&junk, None);
            assert!(failed(&opened.member.end).why.contains("file too short"), "{opened:?}");
        }),
        faked("a_library_without_a_function_is_told_before_any_call", || {
            let (_keep, library) = other(&["-DWITHOUT_ncclAllReduce"]);
            let opened = Fake::new("ncclGetVersion.act crash", "").open(&library, None);
            assert!(failed(&opened.member.end).why.ends_with("libnccl.so.2 has no function ncclAllReduce"), "{opened:?}");
        }),
        faked("a_crash_at_load", || {
            let (_keep, library) = other(&["-DCRASH_AT_LOAD"]);
            let opened = Fake::new("", "").open(&library, None);
            assert!(matches!(opened.member.end, End::Crashed { signal: 11, .. }), "{opened:?}");
            assert_eq!(opened.member.last, Some(Step::Open));
        }),
        faked("a_crash_at_call", || {
            let opened = Fake::new("ncclGetUniqueId.act crash", "").open(&built().join("libnccl.so.2"), None);
            assert!(matches!(opened.member.end, End::Crashed { signal: 11, .. }), "{opened:?}");
            assert_eq!((opened.member.last, opened.version.unwrap().text.as_str()), (Some(Step::UniqueId), "2.28.9"));
        }),
        faked("a_hang_at_call_ends_in_time", || {
            let begin = Instant::now();
            let opened = Fake::new("ncclGetUniqueId.act hang", "").limit(SHORT).open(&built().join("libnccl.so.2"), None);
            assert_eq!((opened.member.end, opened.member.last), (End::Stopped, Some(Step::UniqueId)));
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        }),
        faked("an_exit_inside_the_library", || {
            let opened = Fake::new("ncclGetVersion.act exit", "").open(&built().join("libnccl.so.2"), None);
            assert!(matches!(opened.member.end, End::Ended { code: Some(3), .. }), "{opened:?}");
        }),
        faked("every_code_of_the_unique_id", || {
            let expect = [
                (1, "ncclUnhandledCudaError (1)"),
                (2, "ncclSystemError (2)"),
                (3, "ncclInternalError (3)"),
                (4, "ncclInvalidArgument (4)"),
                (5, "ncclInvalidUsage (5)"),
                (6, "ncclRemoteError (6)"),
                (8, "ncclTimeout (8)"),
                (77, "code 77"),
            ];
            for (code, name) in expect {
                let script = format!("ncclGetUniqueId {code}\nwarn.ncclGetUniqueId Bootstrap : no socket interface found");
                let opened = Fake::new(&script, "").open(&built().join("libnccl.so.2"), None);
                let failure = failed(&opened.member.end);
                assert_eq!((failure.call.as_str(), failure.code, failure.why.as_str()), ("ncclGetUniqueId", Some(code), name));
                assert_eq!(failure.last_error, "Bootstrap : no socket interface found");
                assert_eq!(opened.member.warnings, ["Bootstrap : no socket interface found"]);
            }
        }),
        faked("codes_of_the_driver", || {
            let names = [
                (34, "CUDA_ERROR_STUB_LIBRARY (34)"),
                (35, "code 35"),
                (100, "CUDA_ERROR_NO_DEVICE (100)"),
                (802, "CUDA_ERROR_SYSTEM_NOT_READY (802)"),
                (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)"),
                (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)"),
                (999, "CUDA_ERROR_UNKNOWN (999)"),
            ];
            for (code, name) in names {
                let opened = Fake::new("", &format!("cuInit {code}")).open(&built().join("libnccl.so.2"), Some("libcuda.so.1"));
                let failure = failed(&opened.member.end);
                assert_eq!((failure.call.as_str(), failure.code, failure.why.as_str()), ("cuInit", Some(code), name));
                assert_eq!((opened.member.last, opened.devices), (Some(Step::Driver), None));
            }
        }),
    ]
}

fn running() -> Vec<Trial> {
    vec![
        faked("a_rank_that_hangs_before_a_step_has_not_arrived", || {
            // Two more operations than the first size needs: the warm-up, the meeting and twenty repeats.
            let fake = Fake::new("1.act ncclAllReduce hang\nafter 22", "").limit(SHORT);
            let begin = Instant::now();
            let run = fake.run(3, &SIZES);
            assert_eq!(run.hung, Some(SHORT.as_secs_f64()), "{run:#?}");
            assert!(ends(&run).iter().all(|end| **end == End::Stopped), "{run:#?}");
            assert_eq!(member(&run, 1).last, Some(at(Op::AllReduce, 256, Stage::Call)));
            for rank in [0, 2] {
                assert_eq!(member(&run, rank).last, Some(at(Op::AllReduce, 256, Stage::Wait)));
            }
            assert_eq!(run.rows.len(), 1, "the first size is through");
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        }),
        faked("a_rank_that_hangs_in_the_set_up", || {
            let run = Fake::new("1.act ncclCommInitRank hang", "").limit(SHORT).run(2, &SIZES);
            assert!(run.hung.is_some() && run.rows.is_empty());
            assert_eq!(run.ranks.iter().map(|member| member.last).collect::<Vec<_>>(), [Some(Step::Init); 2]);
        }),
        faked("a_rank_that_hangs_in_the_driver_has_not_come_to_the_set_up", || {
            let run = Fake::new("", "1.cuStreamCreate.act hang").limit(SHORT).run(2, &SIZES);
            assert!(run.hung.is_some() && run.rows.is_empty());
            assert_eq!((member(&run, 0).last, member(&run, 1).last), (Some(Step::Init), Some(Step::Context)));
        }),
        faked("a_rank_that_crashes_ends_all", || {
            let begin = Instant::now();
            let run = Fake::new("1.act ncclBroadcast crash", "").run(3, &SIZES);
            assert!(begin.elapsed() < Duration::from_secs(20), "not the whole time limit: {:?}", begin.elapsed());
            assert!(matches!(member(&run, 1).end, End::Crashed { signal: 11, .. }), "{run:#?}");
            assert_eq!(member(&run, 1).last, Some(at(Op::Broadcast, 8, Stage::Call)));
            assert_eq!((&member(&run, 0).end, &member(&run, 2).end, run.hung), (&End::Stopped, &End::Stopped, None));
            assert_eq!(run.rows.len(), SIZES.len(), "all-reduce is through");
        }),
        faked("a_rank_that_exits_ends_all", || {
            let run = Fake::new("0.act ncclReduceScatter exit", "").run(2, &[8]);
            assert!(matches!(member(&run, 0).end, End::Ended { code: Some(3), .. }), "{run:#?}");
        }),
        faked("an_error_of_the_set_up_with_its_warning", || {
            let text = "Error: failed to extend /dev/shm/nccl-xyz to 4194660 bytes, error: No space left on device (28)";
            let run = Fake::new(&format!("1.ncclCommInitRank 2\nwarn.ncclCommInitRank {text}"), "").run(2, &[8]);
            let failure = failed(&member(&run, 1).end);
            assert_eq!((failure.call.as_str(), failure.why.as_str()), ("ncclCommInitRank", "ncclSystemError (2)"));
            assert_eq!(member(&run, 1).warnings, [text]);
        }),
        faked("an_error_that_comes_behind_the_call", || {
            let run = Fake::new("1.async ncclAllGather 6", "").run(2, &[8]);
            let failure = failed(&member(&run, 1).end);
            assert_eq!((failure.call.as_str(), failure.why.as_str()), ("ncclAllGather", "ncclRemoteError (6)"));
            assert_eq!(member(&run, 1).last, Some(at(Op::AllGather, 8, Stage::Wait)));
        }),
        faked("a_gpu_without_memory_is_told_before_nccl_starts", || {
            let run = Fake::new("", "1.cuMemAlloc_v2 2").run(2, &[8]);
            let failure = failed(&member(&run, 1).end);
            assert_eq!((failure.call.as_str(), failure.why.as_str()), ("cuMemAlloc", "CUDA_ERROR_OUT_OF_MEMORY (2)"));
            assert_eq!(member(&run, 1).last, Some(Step::Memory));
        }),
        faked("a_wrong_sum_is_told_by_rank_and_place", || {
            let run = Fake::new("wrong ncclAllReduce 1", "").run(2, &SIZES);
            assert!(ends(&run).iter().all(|end| **end == End::Done), "{run:#?}");
            let wrong: Vec<(Op, u64)> = run.rows.iter().filter(|row| !row.wrong.is_empty()).map(|row| (row.op, row.bytes)).collect();
            assert_eq!(wrong, SIZES.map(|size| (Op::AllReduce, size)));
            let [Wrong { rank: 1, elements: 1, first, expected, got }] = &row(&run, Op::AllReduce, 8192).wrong[..] else {
                panic!("{run:#?}")
            };
            assert_eq!((*first, got.as_str()), (2047, (expected + 1.0).to_string().as_str()));
        }),
        faked("a_rank_left_out_is_wrong_on_all_others", || {
            let calls = [
                (Op::AllReduce, "ncclAllReduce"),
                (Op::Broadcast, "ncclBroadcast"),
                (Op::AllGather, "ncclAllGather"),
                (Op::ReduceScatter, "ncclReduceScatter"),
                (Op::SendReceive, "ncclSend"),
            ];
            for (op, call) in calls {
                let run = Fake::new(&format!("drops {call} 0"), "").run(3, &[240]);
                let ranks: Vec<u32> = row(&run, op, 240).wrong.iter().map(|wrong| wrong.rank).collect();
                let mut ranks_in_order = ranks.clone();
                ranks_in_order.sort_unstable();
                let expected: &[u32] = if op == Op::SendReceive { &[1] } else { &[1, 2] };
                assert_eq!(ranks_in_order, expected, "{op:?}");
                assert_eq!(run.rows.iter().filter(|row| !row.wrong.is_empty()).count(), 1, "only {op:?}");
            }
        }),
    ]
}

/// Processes in the ranks' place, to see what the doctor makes of them.
fn processes() -> Vec<Trial> {
    let run = |script: &str, limit: Duration| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("worker");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let library = HostPath::new("/none");
        let plan = Plan { library: &library, driver: "none", devices: &[0], sizes: &[8], limit };
        let begin = Instant::now();
        let run = Client::new(None, limit).with_program(&path).nccl_run(&plan, &mut |_| ());
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
        run.ranks.into_iter().next().unwrap().end
    };
    vec![
        trial("nccl::garbage_in_a_ranks_place", move || {
            assert_eq!(run("echo hello; sleep 60", Duration::from_secs(30)), End::Garbage { begin: "hello".to_owned() });
            assert!(matches!(run("yes | tr -d '\\n'", Duration::from_secs(30)), End::Garbage { .. }));
        }),
        trial("nccl::a_flood_of_words_does_not_outlast_the_limit", move || {
            assert_eq!(run("yes >&2", SHORT), End::Stopped);
        }),
        trial("nccl::steps_without_end_are_no_progress", move || {
            let step = r#"{"event":"at","step":"open"}"#;
            assert_eq!(run(&format!("while :; do echo '{step}'; sleep 0.05; done"), Duration::from_millis(300)), End::Stopped);
        }),
        trial("nccl::a_doctor_that_is_killed_takes_the_ranks_with_it", killed_doctor),
        faked("shared_memory_of_a_killed_rank_is_taken_away", shared_memory),
        trial_with("nccl::shared_memory_of_a_crashed_rank_is_taken_away", all_processes(), |()| crashed_with_shared_memory()),
        trial("nccl::the_last_words_are_kept", move || {
            let end = run("echo one >&2; echo 'symbol lookup error: x' >&2; exit 127", Duration::from_secs(30));
            assert_eq!(end, End::Ended { code: Some(127), words: "symbol lookup error: x".to_owned() });
        }),
        trial("nccl::a_program_that_is_not_there", || {
            let library = HostPath::new("/none");
            let plan = Plan { library: &library, driver: "none", devices: &[0, 1], sizes: &[8], limit: SHORT };
            let run = Client::new(None, SHORT).with_program("/none/ds-doctor").nccl_run(&plan, &mut |_| ());
            assert!(matches!(&run.ranks[..], [one] if matches!(one.end, End::NotStarted { .. })), "{run:?}");
        }),
        trial("nccl::a_child_of_a_rank_goes_with_it", move || {
            let folder = tempfile::tempdir().unwrap();
            let noted = folder.path().join("pid");
            run(&format!("sleep 1000 & echo $! > {}; wait", noted.display()), SHORT);
            let pid = std::fs::read_to_string(&noted).unwrap();
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
            assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
        }),
    ]
}

/// The worker itself hangs here, with the doctor's process as its parent.
fn killed_doctor() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("libnccl.so.2");
    // Opening a FIFO that nobody writes to waits for ever.
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let request = format!(r#"{{"ask":"nccl","library":"{}","driver":null,"part":null}}"#, fifo.display());
    let script = format!("{} __worker '{request}' > {1}/out & echo $! > {1}/pid; sleep 60", crate::util::BINARY, folder.path().display());
    let mut parent = std::process::Command::new("/bin/sh").args(["-c", &script]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let said = || std::fs::read_to_string(folder.path().join("out")).unwrap_or_default();
    while !said().contains("open") && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(said().contains(r#""step":"open""#), "{}", said());
    parent.kill().unwrap();
    parent.wait().unwrap();
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap();
    let alive = || std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).is_ok_and(|stat| !stat.contains(") Z "));
    while alive() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!alive(), "the worker outlived its parent");
}

/// As a rank that is killed in the middle leaves its segment, which NCCL removes only when all have it open.
fn shared_memory() {
    let name = format!("/dev/shm/nccl-test{}", std::process::id());
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("hold.c");
    let text = format!(
        "#include <fcntl.h>\n#include <sys/mman.h>\n#include <unistd.h>\nint main(void) {{ int f = open(\"{name}\", O_RDWR | O_CREAT, 0600); \
         if (ftruncate(f, 4096)) return 1; mmap(0, 4096, PROT_READ, MAP_SHARED, f, 0); pause(); }}\n"
    );
    std::fs::write(&source, text).unwrap();
    let program = folder.path().join("hold");
    let compiled = std::process::Command::new("cc").arg(&source).arg("-o").arg(&program).status().unwrap();
    assert!(compiled.success());
    let library = HostPath::new("/none");
    let plan = Plan { library: &library, driver: "none", devices: &[0], sizes: &[8], limit: SHORT };
    let mut seen = false;
    let run = Client::new(None, SHORT).with_program(&program).nccl_run(&plan, &mut |_| seen |= Path::new(&name).exists());
    assert_eq!((&run.ranks[0].end, seen), (&End::Stopped, true));
    assert!(!Path::new(&name).exists());
}

/// From here every process of the machine is seen, so that it is certain what is open nowhere.
fn all_processes() -> Result<(), String> {
    compiler()?;
    let own = std::fs::read_link("/proc/self/ns/pid").map_err(|e| e.to_string())?;
    if own == Path::new("pid:[4026531836]") { Ok(()) } else { Err("a container: other processes are not seen".to_owned()) }
}

/// Each rank has made its segment when rank 1 crashes: its own name is known to nobody but the dead.
fn crashed_with_shared_memory() {
    let name = format!("crash{}", std::process::id());
    let segment = |what: &str| format!("/dev/shm/nccl-{name}{what}");
    // Somebody else's, which are open: one that was there before, and one that is made meanwhile. (Left open nowhere, they may fall to
    // another test that runs beside this one.)
    let (before, open) = (segment("before"), segment("open"));
    let _held = std::fs::File::create(&before).unwrap();
    let fake = Fake::new(&format!("segment {name}\n1.act ncclCommInitRank crash"), "");
    let mut held = None;
    let run = fake.watched(3, &SIZES, &mut |_| {
        held.get_or_insert_with(|| std::fs::File::create(&open).unwrap());
    });
    assert!(matches!(member(&run, 1).end, End::Crashed { .. }), "{run:#?}");
    let left: Vec<u32> = (0..3).filter(|rank| Path::new(&segment(&format!("-{rank}"))).exists()).collect();
    let others = [&before, &open].map(|path| std::fs::remove_file(path).is_ok());
    assert_eq!((left, others), (Vec::new(), [true, true]));
    // With all joined the names are gone before anybody ends.
    let run = Fake::new(&format!("segment {name}"), "").run(2, &[8]);
    assert!(ends(&run).iter().all(|end| **end == End::Done), "{run:#?}");
    assert!(!Path::new(&segment("-0")).exists());
}
