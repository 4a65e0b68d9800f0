//! `ds-doctor nccl` as a user runs it: with the real NCCL of a torch, and with fakes in a namespace that shows a driver.

use super::fake_machine::Machine;
use crate::util::{BINARY, Doctor, Output, lab, program, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

pub fn trials() -> Vec<Trial> {
    let mut trials = real();
    trials.extend(machines());
    trials
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: exit {:?}\n{}{}", out.code, out.stdout, out.stderr))
}

fn ids(report: &Value) -> Vec<String> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

/// A torch with its own NCCL, on a machine without a driver.
fn torch() -> Result<PathBuf, String> {
    crate::gpu::no_driver()?;
    let python = lab("torch-venv")?.join("bin/python");
    if python.exists() { Ok(python) } else { Err("the lab's torch has no python".to_owned()) }
}

fn real_run(python: &std::path::Path, env: &[(&str, &str)]) -> Output {
    let doctor = Doctor::new(["nccl", "--format", "json", "--python", python.to_str().unwrap()]);
    env.iter().fold(doctor, |doctor, (name, value)| doctor.env(name, value)).run()
}

fn real() -> Vec<Trial> {
    let namespace = || {
        let python = torch()?;
        program("unshare")?;
        let tried = Doctor::new([]).program("unshare").args(["-rn", "true"]).run();
        if tried.code == Some(0) { Ok(python) } else { Err(format!("no network namespace: {}", tried.stderr.trim())) }
    };
    let in_namespace = |python: &std::path::Path, before: &str| {
        let script = format!("{before} exec {BINARY} nccl --format json --python {}", python.display());
        json(&Doctor::new([]).program("unshare").args(["-rn", "sh", "-c", &script]).run())
    };
    vec![
        trial_with("nccl::real_library_answers_without_a_gpu", torch(), |python| {
            let out = real_run(&python, &[]);
            let report = json(&out);
            assert_eq!((out.code, report["verdict"].as_str()), (Some(0), Some("healthy")), "{report:#}");
            let result = &report["result"];
            // The package's own metadata is the independent truth.
            let site = python.parent().unwrap().parent().unwrap().join("lib/python3.11/site-packages");
            let pattern = std::fs::read_dir(&site).unwrap().flatten().map(|e| e.file_name().into_string().unwrap());
            let installed =
                pattern.filter_map(|n| Some(n.strip_prefix("nvidia_nccl_cu13-")?.strip_suffix(".dist-info")?.to_owned())).next().unwrap();
            assert_eq!((result["version"].as_str(), result["unique_id"].as_bool()), (Some(installed.as_str()), Some(true)));
            assert_eq!(result["library"]["cuda"], "13.0");
            assert!(result["library"]["path"].as_str().unwrap().ends_with("nvidia/nccl/lib/libnccl.so.2"), "{result:#}");
            assert_eq!((result["ranks"].as_array().unwrap().len(), result["bandwidths"].as_array().unwrap().len()), (0, 0));
            let human = Doctor::new(["nccl", "--python", python.to_str().unwrap()]).run();
            assert!(human.stdout.contains("found and answers; no GPU: communication not proven"), "{}", human.stdout);
        }),
        trial_with("nccl::real_ifname_that_matches_nothing", torch(), |python| {
            let out = real_run(&python, &[("NCCL_SOCKET_IFNAME", "nosuch0")]);
            let report = json(&out);
            assert_eq!((out.code, ids(&report)), (Some(1), vec!["nccl-ifname-no-match".to_owned()]), "{report:#}");
            let finding = &report["findings"][0];
            assert!(finding["title"].as_str().unwrap().contains("ncclInvalidUsage (5)"), "{finding:#}");
            assert_eq!(
                (finding["fixes"][0]["action"].as_str(), finding["fixes"][0]["name"].as_str()),
                (Some("unset-env"), Some("NCCL_SOCKET_IFNAME"))
            );
            assert!(finding["evidence"].to_string().contains("Bootstrap : no socket interface found"), "{finding:#}");
        }),
        trial_with("nccl::real_ifname_from_a_file_is_named", torch(), |python| {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("nccl.conf");
            std::fs::write(&file, "# cluster\nNCCL_SOCKET_IFNAME=nosuch0\n").unwrap();
            let report = json(&real_run(&python, &[("NCCL_CONF_FILE", file.to_str().unwrap())]));
            assert_eq!(ids(&report), ["nccl-ifname-no-match"], "{report:#}");
            let fix = &report["findings"][0]["fixes"][0];
            assert_eq!((fix["action"].as_str(), fix["file"].as_str()), (Some("edit"), file.to_str()));
        }),
        trial_with("nccl::real_comm_id_malformed_and_out_of_reach", torch(), |python| {
            for (value, code) in [("nonsense", "ncclInvalidArgument (4)"), ("203.0.113.9:4000", "ncclSystemError (2)")] {
                let report = json(&real_run(&python, &[("NCCL_COMM_ID", value)]));
                assert_eq!(ids(&report), ["nccl-comm-id-set"], "{value}: {report:#}");
                assert!(report["findings"][0]["title"].as_str().unwrap().contains(code), "{report:#}");
            }
        }),
        trial_with("nccl::real_comm_id_that_serves_is_worth_knowing", torch(), |python| {
            let out = real_run(&python, &[("NCCL_COMM_ID", "127.0.0.1:4000")]);
            let report = json(&out);
            assert_eq!((out.code, report["verdict"].as_str()), (Some(0), Some("healthy")));
            assert_eq!(
                (report["findings"][0]["id"].as_str(), report["findings"][0]["severity"].as_str()),
                (Some("nccl-comm-id-set"), Some("info"))
            );
        }),
        trial_with("nccl::real_namespace_without_an_interface", namespace(), move |python| {
            let report = in_namespace(&python, "");
            assert_eq!(ids(&report), ["nccl-no-interface"], "{report:#}");
            assert_eq!(report["findings"][0]["fixes"][0]["argv"], serde_json::json!(["ip", "link", "set", "lo", "up"]));
        }),
        trial_with(
            "nccl::real_namespace_cured_by_the_printed_command",
            namespace().and_then(|python| program("ip").map(|_| python)),
            move |python| {
                let report = in_namespace(&python, "ip link set lo up;");
                assert_eq!((ids(&report), report["verdict"].as_str()), (Vec::new(), Some("healthy")), "{report:#}");
            },
        ),
    ]
}

fn machines() -> Vec<Trial> {
    let need = Machine::possible();
    let all: [(&str, fn()); 9] = [
        ("two_gpus_are_right", two),
        ("one_gpu_proves_nothing_between_gpus", one),
        ("devices_are_chosen", devices),
        ("a_wrong_sum", wrong),
        ("a_hang_names_the_rank", hang),
        ("a_crash_names_the_rank", crash),
        ("shared_memory_that_is_full_is_explained", shm),
        ("a_library_that_cannot_be_loaded", junk),
        ("a_driver_that_refuses", refused),
    ];
    all.into_iter().map(|(name, run)| trial_with(&format!("nccl::command_{name}"), need.clone(), move |()| run())).collect()
}

fn two() {
    let out = Machine::new(2, "", "").run(&["--format", "json"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report)), (Some(0), Vec::new()), "{report:#}");
    let result = &report["result"];
    let rows = result["bandwidths"].as_array().unwrap();
    // Five operations; the sizes that fit into a GPU with 300 MiB free.
    assert_eq!(rows.len(), 5 * 3, "{result:#}");
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        let algorithm = number("bytes") / 1e3 / number("time_us");
        // Two ranks: 2(n-1)/n is 1, (n-1)/n is a half.
        let factor = match row["operation"].as_str().unwrap() {
            "all-gather" | "reduce-scatter" => 0.5,
            _ => 1.0,
        };
        assert!((number("algbw_gbs") - algorithm).abs() < 1e-9 && (number("busbw_gbs") - algorithm * factor).abs() < 1e-9, "{row:#}");
        assert_eq!(row["wrong"], serde_json::json!([]));
    }
    let ranks: Vec<_> = result["ranks"].as_array().unwrap().iter().map(|rank| (rank["gpu"].as_u64(), rank["end"].as_str())).collect();
    assert_eq!(ranks, [(Some(0), Some("done")), (Some(1), Some("done"))]);
    let machine = Machine::new(2, "", "");
    let human = machine.run(&["--color", "never"]);
    assert!(
        human.stdout.contains("operation           size   time (us)  algbw (GB/s)  busbw (GB/s)     wrong\nall-reduce           8 B"),
        "{}",
        human.stdout
    );
    assert!(human.stdout.contains("communication between 2 GPUs: 15 operations right"), "{}", human.stdout);
    let markdown = machine.run(&["--format", "markdown"]);
    assert!(markdown.stdout.contains("```text\nNCCL      2.28.9"), "{}", markdown.stdout);
}

fn one() {
    let out = Machine::new(1, "", "").run(&["--color", "never"]);
    assert_eq!(out.code, Some(0), "{out:?}");
    assert!(out.stdout.contains("on one GPU: 15 operations right; between GPUs: not proven, only one was used"), "{}", out.stdout);
}

fn devices() {
    let machine = Machine::new(3, "", "");
    let report = json(&machine.run(&["--devices", "2,0", "--format", "json"]));
    let ranks: Vec<_> = report["result"]["ranks"].as_array().unwrap().iter().map(|rank| rank["gpu"].as_u64().unwrap()).collect();
    assert_eq!(ranks, [2, 0]);
    for (named, words) in [("1,5", "--devices 5: CUDA shows 3 GPUs, numbers 0 to 2"), ("1,1", "names GPU 1 twice")] {
        let out = machine.run(&["--devices", named]);
        assert_eq!((out.code, out.stdout.as_str()), (Some(2), ""), "{out:?}");
        assert!(out.stderr.contains(words), "{}", out.stderr);
    }
}

fn wrong() {
    let out = Machine::new(2, "wrong ncclReduceScatter 1", "").run(&["--format", "json"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report)), (Some(1), vec!["nccl-wrong-result".to_owned()]), "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!(finding["title"], "reduce-scatter gave wrong values without an error: 3 elements in 3 operations");
    assert!(finding["evidence"][0]["what"].as_str().unwrap().ends_with("of 8 B on rank 1"), "{finding:#}");
}

fn hang() {
    let machine = Machine::new(2, "1.act ncclBroadcast hang", "");
    let out = machine.run(&["--format", "json", "--timeout", "3"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report)), (Some(1), vec!["nccl-hang".to_owned()]), "{report:#}");
    let title = "broadcast of 8 B did not finish within 3 s: rank 1 (GPU 1) did not come back from the call, and the others wait";
    assert_eq!(report["findings"][0]["title"], title);
    assert!(out.wall < Duration::from_secs(40), "{:?}", out.wall);
    let machine = Machine::new(2, "", "1.cuStreamCreate.act hang");
    let report = json(&machine.run(&["--format", "json", "--timeout", "2"]));
    let title = "`ncclCommInitRank` did not finish within 2 s: rank 1 (GPU 1) did not arrive";
    assert_eq!((ids(&report), report["findings"][0]["title"].as_str()), (vec!["nccl-hang".to_owned()], Some(title)), "{report:#}");
}

fn crash() {
    let out = Machine::new(3, "1.act ncclAllGather crash", "").run(&["--format", "json"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report)), (Some(1), vec!["nccl-crashed".to_owned()]), "{report:#}");
    assert_eq!(report["findings"][0]["title"], "rank 1 (GPU 1) died in all-gather of 8 B (signal 11, SIGSEGV)");
}

fn shm() {
    let text = "Error: failed to extend /dev/shm/nccl-AbCdEf to 4194660 bytes, error: No space left on device (28)";
    let out = Machine::new(2, &format!("1.ncclCommInitRank 2\nwarn.ncclCommInitRank {text}"), "").run(&["--format", "json"]);
    let report = json(&out);
    assert_eq!(ids(&report), ["nccl-init-failed"], "{report:#}");
    let finding = &report["findings"][0];
    assert_eq!(finding["title"], "NCCL makes no communicator on rank 1 (GPU 1): ncclCommInitRank answers ncclSystemError (2)");
    assert!(finding["evidence"].to_string().contains(text) && finding["evidence"].to_string().contains("/dev/shm is full"), "{finding:#}");
    assert_eq!(finding["fixes"][0]["argv"][0], "mount");
}

fn junk() {
    let machine = Machine::new(1, "", "");
    std::fs::write(machine.folder().join("libnccl.so.2"), "junk").unwrap();
    let out = machine.run(&["--format", "json"]);
    let report = json(&out);
    assert_eq!((out.code, ids(&report)), (Some(1), vec!["nccl-not-found".to_owned()]), "{report:#}");
    assert!(report["findings"][0]["evidence"].to_string().contains("file too short"), "{report:#}");
}

fn refused() {
    let out = Machine::new(1, "", "cuInit 802").run(&["--format", "json"]);
    let report = json(&out);
    assert_eq!(ids(&report), ["nccl-init-failed"], "{report:#}");
    assert_eq!(report["findings"][0]["title"], "no GPU can be used: cuInit answers CUDA_ERROR_SYSTEM_NOT_READY (802)");
    let none = Machine::new(1, "", "cuInit 100").run(&["--color", "never"]);
    assert!(none.stdout.contains("no GPU: communication not proven"), "{}", none.stdout);
}
