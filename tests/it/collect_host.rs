//! The machine as collected, against the tools that people ask.

use crate::util::{trial, trial_with};
use ds_doctor::collect::host::collect;
use ds_doctor::facts::host::FolderPurpose;
use ds_doctor::facts::observed::Observed;
use ds_doctor::host::{Environment, Live, Rooted};
use libtest_mimic::Trial;
use std::path::Path;
use std::process::Command;

fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output().map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if output.status.success() { Ok(text) } else { Err(format!("{program} does not run here")) }
}

/// The text of `/proc` and the programs that read it.
fn machine() {
    let facts = collect(&Live::new());
    assert_eq!(facts.kernel.value().cloned(), output("uname", &["-r"]).ok());
    assert_eq!(facts.machine.value().cloned(), output("uname", &["-m"]).ok());
    assert_eq!(facts.root.value().copied(), output("id", &["-u"]).ok().map(|uid| uid == "0"));
    let cpu = facts.cpu.value().unwrap();
    assert_eq!(Ok(cpu.count.to_string()), output("nproc", &[]));
    if cfg!(target_arch = "x86_64") {
        assert_eq!(cpu.flags.iter().any(|flag| flag == "avx2"), std::arch::is_x86_feature_detected!("avx2"));
    }
    let memory = facts.memory.value().unwrap();
    assert!(memory.available <= memory.total && memory.total > 1 << 28, "{memory:?}");
    if let (Some(limit), Ok(own)) = (memory.limit, std::fs::read_to_string("/sys/fs/cgroup/memory.max")) {
        assert!(own.trim().parse().map_or(true, |own: u64| limit <= own));
    }
    let booted = *facts.booted.value().unwrap();
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap();
    let uptime: f64 = uptime.split(' ').next().unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - uptime - booted as f64).abs() < 5.0, "{booted} {uptime}");
}

fn folders() {
    let facts = collect(&Live::new());
    for purpose in [FolderPurpose::Temporary, FolderPurpose::Cache, FolderPurpose::SharedMemory] {
        let folder = facts.folder(purpose).unwrap();
        let nearest = folder.nearest.as_ref().unwrap();
        let truth = output("stat", &["-c", "%d", nearest.to_str().unwrap()]).unwrap();
        assert_eq!(folder.device.map(|device| device.to_string()), Some(truth), "{nearest}");
        let df = output("df", &["-B1", "--output=size,avail,fstype", nearest.to_str().unwrap()]).unwrap();
        let fields: Vec<&str> = df.lines().last().unwrap().split_whitespace().collect();
        assert_eq!(folder.size.map(|size| size.to_string()).as_deref(), Some(fields[0]));
        assert_eq!(folder.filesystem.as_deref(), Some(fields[2]));
        // Others write meanwhile.
        let avail: u64 = fields[1].parse().unwrap();
        assert!(folder.free.unwrap().abs_diff(avail) < 1 << 30, "{:?} {avail}", folder.free);
        assert!(folder.options.iter().any(|option| option == "rw"), "{:?}", folder.options);
    }
}

/// A tree tells its own system and nothing of the machine it is looked at from.
fn tree() {
    let live = collect(&Live::new());
    let host = Rooted::new(Path::new("/usr"), Environment::new()).unwrap();
    let facts = collect(&host);
    assert!(matches!(facts.kernel, Observed::Skipped { .. }) && matches!(facts.memory, Observed::Skipped { .. }));
    assert!(matches!(facts.root, Observed::Skipped { .. }) && matches!(facts.booted, Observed::Skipped { .. }));
    assert_eq!(facts.container, None);
    assert!(facts.folders.iter().all(|folder| folder.free.is_none() && folder.writable.is_none() && folder.filesystem.is_none()));
    // `/usr` seen as a root has `lib/x86_64-linux-gnu`, `bin/sh` and `lib/os-release`, but at other places.
    assert_eq!(facts.glibc.value().map(|version| &version.text), live.glibc.value().map(|version| &version.text));
    assert_eq!(facts.machine.value(), live.machine.value());
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial("collect_host::the_machine_is_as_the_tools_say", machine),
        trial_with("collect_host::folders_are_as_df_says", output("df", &["--version"]), |_| folders()),
        trial_with("collect_host::glibc_is_what_getconf_says", output("getconf", &["GNU_LIBC_VERSION"]), |truth| {
            let facts = collect(&Live::new());
            assert_eq!(facts.glibc.value().map(|version| format!("glibc {}", version.text)), Some(truth));
        }),
        trial("collect_host::a_tree_tells_its_own_system_only", tree),
    ]
}
