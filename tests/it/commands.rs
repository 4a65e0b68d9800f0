//! Each command as a user meets it: what it prints, where, and how it exits. Machines with faults are in `machines`.

use crate::util::{Doctor, Output, program, trial, trial_with};
use libtest_mimic::Trial;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

pub fn trials() -> Vec<Trial> {
    vec![
        trial("commands::nothing_to_judge_is_said_and_exits_2", nothing),
        trial("commands::a_machine_that_is_to_run_needs_a_gpu", no_gpu),
        trial("commands::the_json_envelope", envelope),
        trial("commands::every_format_prints_something_whole", formats),
        trial("commands::wrong_use_exits_2", wrong_use),
        trial("commands::snapshots_that_cannot_be_read", unreadable_snapshots),
        trial("commands::a_rules_row_with_a_wrong_key_names_the_place", rules_dir),
        trial("commands::rules_of_a_cluster_are_used", rules_used),
        trial("commands::output_goes_to_the_file", output_file),
        trial("commands::colour_only_where_it_is_wanted", colour),
        trial("commands::a_closed_pipe_is_no_failure", closed_pipe),
        trial("commands::explain_by_id_alias_and_words", explain),
        trial("commands::list_names_every_problem", list),
        trial("commands::waivers_silence_with_a_reason_until_a_day", waivers),
        trial_with("commands::a_current_folder_of_another_user", nobody(), |setpriv| closed_folder(&setpriv)),
        trial("commands::assumed_software_is_judged", assumed),
        trial("commands::environments_from_a_file", env_file),
        trial("commands::arch_list_of_named_gpus", arch_list_gpus),
        trial("commands::arch_list_formats", arch_list_formats),
        trial("commands::arch_list_never_guesses", arch_list_unknown),
        trial("commands::arch_list_of_several_snapshots", arch_list_cluster),
        trial("commands::arch_list_validates", arch_list_validate),
        trial("commands::fix_prints_exports_only_on_stdout", fix_exports),
        trial("commands::a_redacted_snapshot_explains_and_exports_nothing", redacted),
        trial("commands::secrets_never_enter_a_snapshot", secrets),
        trial("commands::completions_and_version", small_commands),
        trial("commands::help_is_short_and_long", help),
    ]
}

fn nobody() -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() { program("setpriv") } else { Err("not root, so nobody else can be played".to_owned()) }
}

/// As `sudo -u build` leaves it: the folder that one is in cannot be read.
fn closed_folder(setpriv: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let (closed, doctor) = (folder.path().join("closed"), folder.path().join("doctor"));
    std::fs::copy(env!("CARGO_BIN_EXE_ds-doctor"), &doctor).unwrap();
    std::fs::create_dir(&closed).unwrap();
    std::fs::write(closed.join("ds-doctor.toml"), "not for you").unwrap();
    for (path, mode) in [(folder.path(), 0o755), (&closed, 0o700)] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let run = |args: &[&str]| {
        let nobody = Doctor::new([]).program(setpriv).args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(&doctor);
        nobody.args(args).cwd(&closed).run()
    };
    for command in ["check", "fix"] {
        let out = run(&[command, "--assume", "torch=2.6.0+cu124,cuda=13.0", "--for", "build"]);
        assert!(matches!(out.code, Some(0 | 1)) && !out.stdout.is_empty(), "{command}: {out:?}");
        assert!(out.stderr.contains("the current folder is closed to this user"), "{command}: {}", out.stderr);
        assert!(!out.stderr.contains("Permission denied"), "{command}: {}", out.stderr);
    }
    // A file that is there and is kept from one is another thing: what it waives is not known.
    std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(closed.join("ds-doctor.toml"), PermissionsExt::from_mode(0o600)).unwrap();
    let out = run(&["check", "--assume", "torch=2.6.0+cu124", "--for", "build"]);
    assert!(out.code == Some(2) && out.stderr.contains("ds-doctor.toml"), "{out:?}");
}

/// A tree with nothing of ours in it.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("usr/bin")).unwrap();
    dir
}

fn check(root: &Path) -> Doctor {
    Doctor::new(["check", "--root"]).arg(root)
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}\n{}", output.stdout, output.stderr))
}

fn ids(json: &serde_json::Value) -> Vec<String> {
    json["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

fn nothing() {
    let dir = tree();
    let out = check(dir.path()).run();
    assert_eq!(out.code, Some(2), "{}", out.stderr);
    assert!(out.stdout.contains("unknown: nothing to judge") && out.stdout.contains("--python PATH"), "{}", out.stdout);
    assert!(!out.stdout.contains("error["), "{}", out.stdout);
    // The same without a command.
    let bare = Doctor::new(["--root"]).arg(dir.path()).run();
    assert_eq!((bare.code, bare.stdout), (out.code, out.stdout));
    assert_eq!(check(dir.path()).arg("--exit-zero").run().code, Some(0));
}

fn no_gpu() {
    let dir = tree();
    let out = check(dir.path()).args(["--for", "run", "--format", "json"]).run();
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    assert_eq!(ids(&json(&out)), ["no-gpu"]);
    let build = check(dir.path()).args(["--for", "build", "--require", "gpu", "--format", "json"]).run();
    assert_eq!(ids(&json(&build)), ["no-gpu"], "{}", build.stdout);
    let required = check(dir.path()).args(["--require", "torch,nvcc", "--format", "json"]).run();
    assert_eq!(required.code, Some(1));
    let mut found = ids(&json(&required));
    found.sort();
    assert_eq!(found, ["no-nvcc", "torch-not-found"]);
}

fn envelope() {
    let dir = tree();
    let out = check(dir.path()).args(["--for", "run", "--format", "json"]).run();
    let json = json(&out);
    assert_eq!(json["schema_version"], 1);
    assert_eq!(json["tool"]["name"], "ds-doctor");
    assert_eq!(json["command"], "check");
    assert_eq!(json["verdict"], "broken");
    assert_eq!(json["counts"]["error"], 1);
    let finding = &json["findings"][0];
    for field in ["id", "severity", "confidence", "title", "caused_by", "evidence", "consequence", "fixes", "page"] {
        assert!(!finding[field].is_null(), "{field}: {finding}");
    }
    assert_eq!(finding["page"], "ds-doctor explain no-gpu");
    assert!(json["undecided"].is_array() && json["result"].is_object());
}

fn formats() {
    let dir = tree();
    for (format, start) in
        [("human", "judged"), ("json", "{"), ("markdown", "### ds-doctor"), ("github", "::error title=no-gpu"), ("sarif", "{")]
    {
        let out = check(dir.path()).args(["--for", "run", "--format", format]).run();
        assert_eq!(out.code, Some(1), "{format}: {}", out.stderr);
        assert!(out.stdout.starts_with(start), "{format}: {}", out.stdout);
        assert!(out.stdout.ends_with('\n'), "{format}");
    }
    let out = check(dir.path()).args(["--for", "run", "--format", "sarif"]).run();
    let sarif = json(&out);
    assert_eq!(sarif["version"], "2.1.0");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "no-gpu");
    // No annotation where nothing is wrong.
    let quiet = check(dir.path()).args(["--format", "github"]).run();
    assert_eq!(quiet.stdout, "");
}

fn wrong_use() {
    for args in [
        &["check", "--no-such-flag"][..],
        &["chek"],
        &["check", "--only", "no-such-id"],
        &["check", "--root", "/no/such/folder"],
        &["check", "--timeout", "0"],
        &["check", "--env", "NOVALUE"],
        &["check", "--from", "/none.json"],
        &["check", "--assume", "jax=1.0"],
        &["check", "--gpu", "no such card"],
        &["check", "--quiet", "--verbose"],
        &["check", "--python", "/no/such/python"],
        &["check", "--python", "no-such-python"],
        &["explain"],
        &["explain", "zzzzqqq"],
        &["list", "no-such-topic"],
        &["fix", "--print-exports", "--format", "dotenv"],
        &["arch-list", "--reader", "torch", "--reader", "nvcc", "--gpu", "h100"],
    ] {
        let out = Doctor::new([]).args(args).run();
        assert_eq!(out.code, Some(2), "{args:?}: {}{}", out.stdout, out.stderr);
        assert_eq!(out.stdout, "", "{args:?}");
        assert!(out.stderr.len() > 10, "{args:?}");
    }
}

fn unreadable_snapshots() {
    let dir = tree();
    let file = dir.path().join("snapshot.json");
    let whole = Doctor::new(["snapshot", "--root"]).arg(dir.path()).run();
    assert_eq!(whole.code, Some(0), "{}", whole.stderr);
    for (text, says) in [
        (whole.stdout[..whole.stdout.len() / 2].to_owned(), "not a snapshot"),
        (String::new(), "not a snapshot"),
        ("[]".to_owned(), "not a snapshot"),
        (whole.stdout.replacen("\"schema\": 1", "\"schema\": 7", 1), "update ds-doctor"),
    ] {
        std::fs::write(&file, text).unwrap();
        let out = Doctor::new(["check", "--from"]).arg(&file).run();
        assert_eq!((out.code, out.stdout.as_str()), (Some(2), ""));
        assert!(out.stderr.contains(says), "{}", out.stderr);
    }
    // By standard input, whole.
    let out = Doctor::new(["check", "--for", "run", "--format", "json", "--from", "-"]).stdin(whole.stdout).run();
    assert_eq!(ids(&json(&out)), ["no-gpu"]);
    // Fields of a newer minor shape are passed over.
    let newer = Doctor::new(["check", "--from", "-"])
        .stdin("{\"schema\": 1, \"tool\": \"x\", \"taken\": 0, \"subject\": {\"kind\": \"machine\"}, \"later\": {\"a\": 1}}")
        .run();
    assert_eq!(newer.code, Some(2), "{}", newer.stderr);
    assert!(newer.stdout.contains("unknown") || newer.stdout.contains("error"), "{}", newer.stdout);
}

fn rules_dir() {
    let dir = tree();
    std::fs::write(
        dir.path().join("cuda.toml"),
        "meta = { source = \"site\", checked = \"2026-11\" }\ntoolkit = [\n  { cuda = \"12.4\", max_gcc = 13, colour = 1 },\n]\n",
    )
    .unwrap();
    let out = check(dir.path()).arg("--rules-dir").arg(dir.path()).run();
    assert_eq!(out.code, Some(2));
    for word in ["cuda.toml", "3", "colour"] {
        assert!(out.stderr.contains(word), "{word}: {}", out.stderr);
    }
}

fn rules_used() {
    let dir = tree();
    let rules = dir.path().join("rules");
    std::fs::create_dir(&rules).unwrap();
    std::fs::write(
        rules.join("gpus.toml"),
        "meta = { source = \"our cluster\", checked = \"2026-11\" }\nalias = [\n  { alias = \"bigcard\", cc = \"9.0\" },\n]\n",
    )
    .unwrap();
    let out = Doctor::new(["arch-list", "--gpu", "bigcard", "--rules-dir"]).arg(&rules).arg("--root").arg(dir.path()).run();
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), "9.0\n"), "{}", out.stderr);
}

fn output_file() {
    let dir = tree();
    let file = dir.path().join("report.json");
    let out = check(dir.path()).args(["--for", "run", "--format", "json", "--output"]).arg(&file).run();
    assert_eq!((out.code, out.stdout.as_str()), (Some(1), ""));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("\"no-gpu\""));
    let missing = check(dir.path()).args(["--output", "/no/such/folder/x"]).run();
    assert_eq!(missing.code, Some(2));
}

fn colour() {
    let dir = tree();
    let with = |doctor: Doctor| doctor.run().stdout.contains('\x1b');
    assert!(!with(check(dir.path()).args(["--for", "run"])), "no terminal, no colour");
    assert!(with(check(dir.path()).args(["--for", "run", "--color", "always"])));
    assert!(with(check(dir.path()).args(["--for", "run"]).env("CLICOLOR_FORCE", "1")));
    assert!(!with(check(dir.path()).args(["--for", "run", "--color", "never"]).env("CLICOLOR_FORCE", "1")));
}

fn closed_pipe() {
    let binary = env!("CARGO_BIN_EXE_ds-doctor");
    let out = Doctor::new([]).program("/bin/sh").args(["-c", &format!("{binary} list | true; {binary} explain no-gpu | head -n 1")]).run();
    assert_eq!(out.stderr, "");
    assert_eq!(out.stdout, "# no-gpu\n");
    // More than a pipe holds, written by the serializer as by hand.
    let tree = tree();
    for (command, first) in
        [("list --format json", "["), ("list", "toolkit"), ("snapshot --root \"$1\" --no-redact", "{"), ("completions bash", "_ds")]
    {
        let script = format!("set -o pipefail; \"$0\" {command} | (read -r line; exec 0<&-; echo \"$line\"); echo $?");
        let out = Doctor::new([]).program("/bin/bash").args(["-c", &script, binary]).arg(tree.path()).run();
        assert_eq!(out.stderr, "", "{command}");
        assert!(out.stdout.starts_with(first) && out.stdout.ends_with("\n0\n"), "{command}: {}", out.stdout);
    }
}

fn explain() {
    let page = |args: &[&str]| {
        let out = Doctor::new(["explain"]).args(args).run();
        assert_eq!(out.code, Some(0), "{args:?}: {}", out.stderr);
        out.stdout
    };
    assert!(page(&["gcc-too-new-for-nvcc"]).starts_with("# gcc-too-new-for-nvcc\n"));
    assert!(page(&["runtime-image-no-nvcc"]).starts_with("# no-nvcc\n"), "by another name");
    for (words, id) in [
        ("unsupported GNU version! gcc versions later than", "gcc-too-new-for-nvcc"),
        ("unsupported GNU version", "gcc-too-new-for-nvcc"),
        ("cannot find -lcudart", "linker-cannot-find-cuda-lib"),
        ("The detected CUDA version (13.0) mismatches the version that was used to compile", "torch-nvcc-mismatch-major"),
        ("/bin/sh: 1: c++: not found", "missing-cxx-compiler"),
    ] {
        let text = page(&[words]);
        let first = text.lines().take(3).collect::<Vec<_>>().join(" ");
        assert!(first.contains(id), "{words}: {first}");
    }
    assert!(page(&["unsupported GNU version"]).starts_with("# gcc-too-new-for-nvcc\n"), "one page, no choice");
}

fn list() {
    let out = Doctor::new(["list", "--format", "json"]).run();
    let rows: serde_json::Value = serde_json::from_str(&out.stdout).unwrap();
    let rows = rows.as_array().unwrap();
    assert!(rows.len() > 120);
    assert!(rows.iter().any(|row| row["id"] == "no-nvcc" && row["checked"] == true));
    let one = Doctor::new(["list", "arch"]).run().stdout;
    assert!(one.contains("arch-list-malformed") && !one.contains("no-nvcc"), "{one}");
    let none = Doctor::new(["list", "nope"]).run();
    let named: Vec<&str> = none.stderr.trim().rsplit_once("topics are ").unwrap().1.split(", ").collect();
    let once: std::collections::BTreeSet<&&str> = named.iter().collect();
    assert_eq!((none.code, once.len()), (Some(2), named.len()), "{}", none.stderr);
}

fn waivers() {
    let dir = tree();
    let waive = |text: &str| {
        std::fs::write(dir.path().join("ds-doctor.toml"), text).unwrap();
        check(dir.path()).args(["--for", "run", "--format", "json"]).cwd(dir.path()).run()
    };
    let out = waive("[[waiver]]\nid = \"no-gpu\"\nreason = \"a login node\"\nuntil = \"2099-01-01\"\n");
    assert_eq!(out.code, Some(2), "nothing else is there to judge");
    let json = json(&out);
    assert_eq!(json["findings"], serde_json::json!([]));
    assert_eq!(json["waived"][0]["reason"], "a login node");
    let expired = waive("[[waiver]]\nid = \"no-gpu\"\nreason = \"x\"\nuntil = \"2020-01-01\"\n");
    assert_eq!(expired.code, Some(1));
    assert!(expired.stderr.contains("2020-01-01"), "{}", expired.stderr);
    for (text, word) in [
        ("[[waiver]]\nid = \"no-such\"\nreason = \"x\"\n", "no-such"),
        ("[[waiver]]\nid = \"no-gpu\"\nreason = \" \"\n", "no reason"),
        ("[[waiver]]\nid = \"no-gpu\"\nreason = \"x\"\nuntil = \"soon\"\n", "soon"),
        ("[[waiver]]\nid = \"no-gpu\"\n", "reason"),
    ] {
        let out = waive(text);
        assert_eq!(out.code, Some(2), "{text}");
        assert!(out.stderr.contains(word), "{}", out.stderr);
    }
    std::fs::remove_file(dir.path().join("ds-doctor.toml")).unwrap();
    std::fs::write(dir.path().join("pyproject.toml"), "[tool.ds-doctor]\nwaiver = [{ id = \"no-gpu\", reason = \"ci\" }]\n").unwrap();
    assert_eq!(check(dir.path()).args(["--for", "run"]).cwd(dir.path()).run().code, Some(2));
}

fn assumed() {
    let dir = tree();
    let judged = |args: &[&str]| {
        let out = check(dir.path()).args(["--format", "json", "--only", "torch,arch", "--assume"]).args(args).run();
        json(&out)
    };
    let mismatch = judged(&["torch=2.6.0+cu124,cuda=13.0", "--gpu", "h100"]);
    assert_eq!(ids(&mismatch), ["torch-nvcc-mismatch-major"]);
    let fine = judged(&["torch=2.6.0+cu124,cuda=12.4", "--gpu", "h100"]);
    assert_eq!(ids(&fine), [] as [&str; 0], "{fine:#}");
    assert_eq!(fine["verdict"], "healthy");
    let cpu = judged(&["torch=2.6.0+cpu,cuda=12.4"]);
    assert_eq!(ids(&cpu)[0], "cpu-only-torch");
    // What has no files is not shown as if it had.
    let seen = mismatch["findings"][0]["evidence"].as_array().unwrap();
    let torch = seen.iter().find(|one| one["what"] == "torch").unwrap();
    assert_eq!((&torch["source"], torch["path"].is_null()), (&serde_json::json!("--assume"), true), "{torch:#}");
    // And a folder that is not there is exported to nobody.
    let exports = Doctor::new(["fix", "--print-exports", "--assume", "torch=2.6.0+cu124,cuda=12.4", "--root"]).arg(dir.path()).run();
    assert_eq!((exports.code, exports.stdout.as_str()), (Some(2), ""), "{}", exports.stderr);
}

fn env_file() {
    let dir = tree();
    let file = dir.path().join("env");
    for text in [&b"CUDA_HOME=/no/such\nA=b\n"[..], b"CUDA_HOME=/no/such\0A=b\0", br#"[{"Config": {"Env": ["CUDA_HOME=/no/such"]}}]"#] {
        std::fs::write(&file, text).unwrap();
        let out = check(dir.path()).args(["--format", "json", "--env-file"]).arg(&file).run();
        assert_eq!(ids(&json(&out)), ["cuda-home-wrong"], "{}", out.stdout);
        // --env comes after it.
        let over = check(dir.path()).args(["--env", "CUDA_HOME=", "--env-file"]).arg(&file).run();
        assert_eq!(over.code, Some(2), "{}", over.stdout);
    }
}

fn arch_list(args: &[&str]) -> Output {
    let dir = tree();
    Doctor::new(["arch-list", "--root"]).arg(dir.path()).args(args).run()
}

fn arch_list_gpus() {
    for (args, line) in [
        (&["--gpu", "3090"][..], "8.6"),
        (&["--gpu", "GTX 1080", "--gpu", "RTX 3090"], "6.1;8.6"),
        (&["--gpu", "a100", "--gpu", "h100*8", "--ptx", "last"], "8.0;9.0+PTX"),
        (&["--gpu", "9.0", "--gpu", "sm_80"], "8.0;9.0"),
        (&["--gpu", "b200", "--gpu", "5090", "--gpu", "h100"], "9.0;10.0;12.0"),
        (&["--gpu", "NVIDIA GeForce RTX 4090", "--ptx", "all"], "8.9+PTX"),
    ] {
        let out = arch_list(args);
        assert_eq!((out.code, out.stdout.trim_end()), (Some(0), line), "{args:?}: {}", out.stderr);
    }
    let unknown = arch_list(&["--gpu", "h1000"]);
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""));
    assert!(unknown.stderr.to_lowercase().contains("h100"), "{}", unknown.stderr);
    let why = arch_list(&["--gpu", "a100", "--why"]);
    assert!(why.stderr.contains("8.0: ") && why.stdout == "8.0\n", "{}", why.stderr);
}

fn arch_list_formats() {
    let gpus = ["--gpu", "a100", "--gpu", "h100", "--ptx", "last"];
    for (format, line) in [
        ("list", "8.0;9.0+PTX"),
        ("cmake", "80-real;90"),
        ("sm", "sm_80 sm_90 compute_90"),
        ("gencode", "-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90 -gencode=arch=compute_90,code=compute_90"),
    ] {
        let out = arch_list(&[&gpus[..], &["--format", format]].concat());
        assert_eq!((out.code, out.stdout.trim_end()), (Some(0), line), "{}", out.stderr);
    }
    assert_eq!(arch_list(&[&gpus[..], &["--reader", "cmake"]].concat()).stdout, "80-real;90\n");
    let json = json(&arch_list(&[&gpus[..], &["--format", "json"]].concat()));
    assert_eq!(json["result"][1]["sm"], "90");
    assert_eq!(json["result"][1]["ptx"], true);
    assert_eq!(json["command"], "arch-list");
}

fn arch_list_unknown() {
    let out = arch_list(&[]);
    assert_eq!((out.code, out.stdout.as_str()), (Some(1), ""));
    assert!(out.stderr.contains("--gpu"), "{}", out.stderr);
    // The way the README has it stops a script.
    let dir = tree();
    let script = format!(
        "TORCH_CUDA_ARCH_LIST=\"$({} arch-list --root {})\" || exit 7; export TORCH_CUDA_ARCH_LIST",
        env!("CARGO_BIN_EXE_ds-doctor"),
        dir.path().display()
    );
    assert_eq!(Doctor::new([]).program("/bin/sh").args(["-c", &script]).run().code, Some(7));
}

fn arch_list_cluster() {
    let dir = tree();
    let mut doctor = Doctor::new(["arch-list"]);
    for gpu in ["a100", "h100"] {
        let out = Doctor::new(["snapshot", "--no-redact", "--gpu", gpu, "--root"]).arg(dir.path()).run();
        let file = dir.path().join(gpu);
        std::fs::write(&file, out.stdout).unwrap();
        doctor = doctor.arg("--from").arg(&file);
    }
    let out = doctor.run();
    assert_eq!((out.code, out.stdout.as_str()), (Some(0), "8.0;9.0\n"), "{}", out.stderr);
}

fn arch_list_validate() {
    let validate = |list: &str, more: &[&str]| arch_list(&[&["--validate", list][..], more].concat());
    assert_eq!(validate("8.0;9.0+PTX", &["--reader", "deepspeed", "--gpu", "h100"]).code, Some(0));
    let name = validate("Ampere", &["--reader", "deepspeed"]);
    assert_eq!(name.code, Some(1));
    assert!(name.stdout.contains("Ampere"), "{}", name.stdout);
    assert_eq!(validate("Ampere", &["--reader", "torch"]).code, Some(0));
    let short = validate("8.0", &["--reader", "torch", "--gpu", "h100"]);
    assert_eq!(short.code, Some(1));
    assert!(short.stdout.contains("9.0"), "{}", short.stdout);
    assert_eq!(validate("8.0;", &["--reader", "torch"]).code, Some(1));
    assert_eq!(validate("80-real;90", &["--reader", "cmake"]).code, Some(0));
    let judged = validate("8.0", &["--reader", "torch", "--gpu", "h100", "--format", "json"]);
    let result = &json(&judged)["result"];
    assert_eq!((judged.code, &result["list"], &result["fine"]), (Some(1), &"8.0".into(), &false.into()), "{}", judged.stdout);
    assert_eq!((&result["judged"][0]["fine"], &result["judged"][1]["fine"]), (&true.into(), &false.into()), "{}", judged.stdout);
    let shaped = validate("8.0", &["--reader", "torch", "--format", "cmake"]);
    assert_eq!((shaped.code, shaped.stdout.as_str()), (Some(2), ""), "{}", shaped.stderr);
}

/// A tree whose CUDA_HOME names a folder that is not there, with a toolkit beside it.
fn fixable() -> tempfile::TempDir {
    let dir = tree();
    let bin = dir.path().join("usr/local/cuda-12.4/bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join("nvcc"), "#!/bin/sh\nexec /opt/real/nvcc \"$@\"\n").unwrap();
    dir
}

fn fix_exports() {
    let dir = fixable();
    let out = Doctor::new(["fix", "--print-exports", "--env", "CUDA_HOME=/none", "--root"]).arg(dir.path()).run();
    assert_eq!(out.code, Some(1), "{}", out.stderr);
    assert!(out.stdout.lines().all(|line| line.ends_with(';')), "{}", out.stdout);
    assert!(!out.stderr.is_empty());
    let shell = Doctor::new(["fix", "--shell", "fish", "--root"]).arg(dir.path()).run();
    assert_eq!((shell.code, shell.stdout.as_str()), (Some(2), ""), "{}", shell.stderr);
    assert!(shell.stderr.contains("--print-exports"), "{}", shell.stderr);
    let nothing = Doctor::new(["fix", "--print-exports", "--root"]).arg(tree().path()).run();
    assert_eq!((nothing.code, nothing.stdout.as_str()), (Some(2), ""), "{}", nothing.stderr);
}

fn redacted() {
    let dir = fixable();
    let snapshot = |more: &[&str]| {
        let out = Doctor::new(["snapshot", "--env", "CUDA_HOME=/home/ann/none", "--root"]).arg(dir.path()).args(more).run();
        let file = dir.path().join("s.json");
        std::fs::write(&file, out.stdout).unwrap();
        file
    };
    let file = snapshot(&[]);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("ann") && text.contains("/home/user/none"), "{text}");
    let explained = Doctor::new(["fix", "--from"]).arg(&file).run();
    assert!(explained.stdout.contains("cuda-home-wrong"), "{}{}", explained.stdout, explained.stderr);
    for args in [&["--print-exports"][..], &["--format", "dotenv"]] {
        let refused = Doctor::new(["fix", "--from"]).arg(&file).args(args).run();
        assert_eq!((refused.code, refused.stdout.as_str()), (Some(2), ""));
        assert!(refused.stderr.contains("--no-redact"), "{}", refused.stderr);
    }
    let whole = Doctor::new(["fix", "--print-exports", "--from"]).arg(snapshot(&["--no-redact"])).run();
    assert_ne!(whole.code, Some(2), "{}", whole.stderr);
}

fn secrets() {
    let dir = tree();
    for more in [&[][..], &["--no-redact"]] {
        let out = Doctor::new(["snapshot", "--root"])
            .arg(dir.path())
            .args(more)
            .args(["--env", "HF_TOKEN=hf_secretsecretsecret", "--env", "DS_API_KEY=swordfish1", "--env", "NCCL_PASSWORD=swordfish2"])
            .args(["--env", "TORCH_HUB_URL=https://ann:swordfish3@example.org/x", "--env", "AWS_SECRET_ACCESS_KEY=swordfish4"])
            .run();
        for secret in ["secretsecret", "swordfish"] {
            assert!(!out.stdout.contains(secret) && !out.stderr.contains(secret), "{}{}", out.stdout, out.stderr);
        }
    }
}

fn small_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let out = Doctor::new(["completions", shell]).run();
        assert!(out.code == Some(0) && out.stdout.contains("arch-list"), "{}", out.stderr);
    }
    let version = Doctor::new(["--version"]).run().stdout;
    assert!(
        version.starts_with(&format!("ds-doctor {}\n", env!("CARGO_PKG_VERSION"))) && version.contains("CUDA") && version.contains("torch"),
        "{version}"
    );
}

fn help() {
    let lines = |args: &[&str]| {
        let out = Doctor::new([]).args(args).run();
        assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{args:?}");
        out.stdout
    };
    let (short, long) = (lines(&["-h"]), lines(&["--help"]));
    assert!(short.lines().count() < 40 && long.len() > short.len() && long.contains("Examples:"), "{short}");
    for command in ["check", "arch-list", "fix", "explain", "list", "snapshot", "completions"] {
        assert!(short.contains(command), "{command}");
        assert!(lines(&[command, "--help"]).contains("Usage:"));
    }
}
