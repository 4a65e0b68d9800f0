//! The whole way through the real command, in a mount namespace of its own: /proc/driver/nvidia/version says that there is a driver, and
//! fake libraries on LD_LIBRARY_PATH answer the worker.

use crate::fake::{compiler, driver};
use crate::util::{BINARY, Doctor, Output, program, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

pub const RELEASE: &str = "550.144.03";

const TWO_GPUS: &str = "count 2\ndriver 550.144.03\ncuda 12040\n0.name NVIDIA H100 80GB HBM3\n0.capability 90\n0.total 85520809984\n\
                        1.name NVIDIA H100 80GB HBM3\n1.capability 90\n1.minor 1\n1.bus 00000000:2A:00.0\n";

/// Makes the driver's sign and its device nodes in file systems that only the command sees, then runs the command.
pub const SHOW_DRIVER: &str = r#"
set -e
mount -t tmpfs none /proc/driver
mkdir /proc/driver/nvidia
printf 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Mon Jan 13 01:46:43 UTC 2025\n' "$1" > /proc/driver/nvidia/version
shift
mount -t tmpfs none "$HOME"
for node in null urandom nvidiactl nvidia-uvm nvidia0 nvidia1; do
    case $node in nvidia*) of=null;; *) of=$node;; esac
    : > "$HOME/$node"
    mount --bind "/dev/$of" "$HOME/$node"
done
mount --rbind "$HOME" /dev
exec "$@"
"#;

/// A namespace can be made, and no driver of this machine is in the way.
pub fn namespace() -> Result<(), String> {
    compiler()?;
    program("unshare")?;
    for shows in ["/proc/driver/nvidia/version", "/dev/dxg", "/dev/nvhost-gpu"] {
        if Path::new(shows).exists() {
            return Err(format!("this machine has a driver: {shows}"));
        }
    }
    let tried = Doctor::new([]).program("unshare").args(["-rm", "sh", "-c", SHOW_DRIVER, "sh", RELEASE, "true"]).run();
    if tried.code == Some(0) { Ok(()) } else { Err(format!("no mount namespace: {}", tried.stderr.trim())) }
}

/// Runs the command where a kernel module of this release shows, with these folders on LD_LIBRARY_PATH.
pub fn under_driver(module: &str, library_path: &str, args: &[&str]) -> Output {
    let start = ["-rm", "sh", "-c", SHOW_DRIVER, "sh", module, BINARY];
    let doctor = Doctor::new([]).program("unshare").args(start).args(args);
    let doctor = if library_path.is_empty() { doctor } else { doctor.env("LD_LIBRARY_PATH", library_path) };
    doctor.run()
}

fn json(out: &Output) -> Value {
    serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: exit {:?}\n{}{}", out.code, out.stdout, out.stderr))
}

const CHECK: [&str; 6] = ["check", "--static", "--for", "run", "--format", "json"];

/// Ids of all findings, roots and folded.
fn ids(report: &Value) -> Vec<String> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

fn of_driver(report: &Value) -> Vec<String> {
    let topic = ["driver", "libcuda", "libnvidia-ml", "nvml", "cuda-compat", "gpu-", "no-gpu", "nvidia-module", "cuda-visible"];
    ids(report).into_iter().filter(|id| topic.iter().any(|start| id.starts_with(start))).collect()
}

/// An id is among the findings, with its title.
fn title(report: &Value, id: &str) -> String {
    let all = report["findings"].as_array().unwrap();
    let found = all.iter().find(|finding| finding["id"] == id).unwrap_or_else(|| panic!("no {id}: {report:#}"));
    found["title"].as_str().unwrap().to_owned()
}

pub fn trials() -> Vec<Trial> {
    // Asked once, for all of them.
    let need = namespace();
    let all: [(&str, fn()); 9] = [
        ("gpu_e2e::snapshot_holds_what_the_libraries_answer", snapshot),
        ("gpu_e2e::a_whole_driver_is_quiet", whole),
        ("gpu_e2e::nvml_of_another_release", mismatch),
        ("gpu_e2e::cuda_compat_older_than_the_driver", compat),
        ("gpu_e2e::no_libraries", absent),
        ("gpu_e2e::a_library_that_crashes_is_a_fact", crash),
        ("gpu_e2e::a_library_that_hangs_is_a_fact", hang),
        ("gpu_e2e::an_interrupted_question_leaves_nothing", interrupted),
        ("gpu_e2e::libraries_that_are_no_libraries", junk),
    ];
    all.into_iter().map(|(name, run)| trial_with(name, need.clone(), move |()| run())).collect()
}

fn snapshot() {
    let fake = driver(RELEASE, TWO_GPUS, "version 12040\n");
    let out = under_driver(RELEASE, fake.path().to_str().unwrap(), &["snapshot", "--no-redact"]);
    let facts = json(&out);
    let gpu = &facts["gpu"];
    let driver = &gpu["driver"]["value"];
    assert_eq!((driver["kind"].as_str(), driver["shown-by"].as_str()), (Some("native"), Some("/proc/driver/nvidia/version")));
    assert_eq!(driver["kernel"]["value"]["version"], RELEASE);
    let own = |stem: &str| Value::from(fake.path().join(format!("{stem}.{RELEASE}")).to_str().unwrap());
    let (nvml, libcuda) = (&driver["nvml"]["value"], &driver["libcuda"]["value"]);
    assert_eq!((&nvml["library"]["path"], &libcuda["library"]["path"]), (&own("libnvidia-ml.so"), &own("libcuda.so")));
    assert_eq!((&nvml["driver"], &nvml["cuda"], &libcuda["cuda"]), (&RELEASE.into(), &"12.4".into(), &"12.4".into()));
    assert_eq!(libcuda["init"], Value::Null, "cuInit is not asked for");
    let devices = gpu["devices"]["value"].as_array().unwrap();
    let said: Vec<_> = devices.iter().map(|device| (device["name"].as_str().unwrap(), device["capability"].as_str().unwrap())).collect();
    assert_eq!(said, [("NVIDIA H100 80GB HBM3", "9.0"); 2]);
    assert_eq!(devices[1]["bus"], "00000000:2a:00.0");
}

fn whole() {
    let fake = driver(RELEASE, TWO_GPUS, "version 12040\n");
    let out = under_driver(RELEASE, fake.path().to_str().unwrap(), &CHECK);
    let report = json(&out);
    assert_eq!(of_driver(&report), [""; 0], "{report:#}");
    let human = under_driver(RELEASE, fake.path().to_str().unwrap(), &["check", "--static", "--for", "run", "--color", "never"]);
    assert!(human.stdout.contains("2 x NVIDIA H100 80GB HBM3 (9.0), driver 550.144.03"), "{}", human.stdout);
}

fn mismatch() {
    let fake = driver("550.163.01", "nvmlInit_v2 18\n", "version 12040\n");
    let out = under_driver(RELEASE, fake.path().to_str().unwrap(), &CHECK);
    let report = json(&out);
    assert_eq!(of_driver(&report), ["nvml-driver-library-mismatch"], "{report:#}");
    let title = title(&report, "nvml-driver-library-mismatch");
    assert!(title.contains("`550.144.03`") && title.contains("`550.163.01`"), "{title}");
    assert_eq!(out.code, Some(1));
}

fn compat() {
    let (own, older) = (driver(RELEASE, TWO_GPUS, "version 12040\n"), driver("535.54.03", TWO_GPUS, "version 12020\n"));
    let compat = own.path().join("compat");
    std::fs::create_dir(&compat).unwrap();
    std::fs::copy(older.path().join("libcuda.so.535.54.03"), compat.join("libcuda.so.535.54.03")).unwrap();
    std::os::unix::fs::symlink("libcuda.so.535.54.03", compat.join("libcuda.so.1")).unwrap();
    let path = format!("{}:{}", compat.display(), own.path().display());
    let report = json(&under_driver(RELEASE, &path, &CHECK));
    assert_eq!(of_driver(&report), ["cuda-compat-wrong"], "{report:#}");
    let fix = json(&under_driver(RELEASE, &path, &["fix", "--for", "run", "--format", "json"]));
    let steps = fix["result"]["steps"].as_array().unwrap();
    assert!(steps.iter().any(|step| step["fix"]["action"] == "remove-path"), "{fix:#}");
    assert_eq!(fix["result"]["remaining"], serde_json::json!([]), "without the folder the driver's own library is found");
}

fn absent() {
    let report = json(&under_driver(RELEASE, "", &CHECK));
    assert_eq!(of_driver(&report), ["libcuda-not-found", "libnvidia-ml-not-found"], "{report:#}");
}

fn crash() {
    let fake = driver(RELEASE, "nvmlInit_v2.act crash\n", "version 12040\n");
    let out = under_driver(RELEASE, fake.path().to_str().unwrap(), &CHECK);
    let report = json(&out);
    assert!(
        out.signal.is_none() && report["undecided"].to_string().contains("libnvidia-ml.so.1 crashed when asked (signal 11)"),
        "{report:#}"
    );
}

fn hang() {
    let fake = driver(RELEASE, "nvmlInit_v2.act hang\n", "cuDriverGetVersion.act hang\n");
    let out = under_driver(RELEASE, fake.path().to_str().unwrap(), &[&CHECK[..], &["--timeout", "0.5"]].concat());
    assert!(json(&out)["undecided"].to_string().contains("libnvidia-ml.so.1 gave no answer within 0.5 s"), "{}", out.stdout);
    assert!(out.wall < Duration::from_secs(20), "{:?}", out.wall);
}

fn interrupted() {
    let fake = driver(RELEASE, TWO_GPUS, "cuDriverGetVersion.act hang\n");
    let folder = tempfile::tempdir().unwrap();
    let start = ["-rm", "sh", "-c", SHOW_DRIVER, "sh", RELEASE, "timeout", "--signal=INT", "1", BINARY];
    let doctor = Doctor::new([]).program("unshare").args(start).args(CHECK).args(["--timeout", "20"]);
    let out = doctor.env("LD_LIBRARY_PATH", fake.path().to_str().unwrap()).env("TMPDIR", folder.path().to_str().unwrap()).run();
    assert_eq!((out.code, out.stdout.as_str()), (Some(124), ""), "{}", out.stderr);
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}

fn junk() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.1", "libnvidia-ml.so.1"] {
        std::fs::write(folder.path().join(name), "").unwrap();
    }
    let report = json(&under_driver(RELEASE, folder.path().to_str().unwrap(), &CHECK));
    assert_eq!(of_driver(&report), ["libcuda-not-found", "libnvidia-ml-not-found"], "{report:#}");
    assert!(title(&report, "libcuda-not-found").contains("is no library"), "{report:#}");
}
