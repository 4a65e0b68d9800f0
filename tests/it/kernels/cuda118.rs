//! The kernels are built by the oldest toolkit of the lab: Debian's CUDA 11.8, whose wrapper has nvcc take g++ 11.

use crate::util::{BINARY, Doctor, lab, program, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// This system with Debian's packages laid over it, as the lab's builds have it.
const MACHINE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/builds/machine.sh");

const IN_DEBIAN: &str = r#"
set -eu
mount -t tmpfs room "$ROOM"
. "$MACHINE"
debian
cp "$DOCTOR" "$ROOM/root/usr/bin/ds-doctor"
cd "$ROOM"
exec chroot root /usr/bin/env -i PATH=/usr/bin:/bin HOME=/root LC_ALL=C CUDA_HOME=/usr "TORCH_CUDA_ARCH_LIST=7.0;8.0;9.0+PTX" "$@"
"#;

pub fn trials() -> Vec<Trial> {
    vec![trial_with("kernels::probe_builds_with_cuda_11_8", machine(), |lab| built(&lab))]
}

fn room(lab: &Path, args: &[&str]) -> crate::util::Output {
    let room = tempfile::tempdir().unwrap();
    let doctor = Doctor::new(["-rm", "sh", "-c", IN_DEBIAN, "sh"]).program("unshare").args(args);
    let path = "/usr/sbin:/usr/bin:/sbin:/bin";
    let env =
        [("LAB", lab.to_str().unwrap()), ("ROOM", room.path().to_str().unwrap()), ("MACHINE", MACHINE), ("DOCTOR", BINARY), ("PATH", path)];
    env.into_iter().fold(doctor, |doctor, (name, value)| doctor.env(name, value)).timeout(Duration::from_secs(300)).run()
}

fn machine() -> Result<PathBuf, String> {
    let part = lab("deb-cuda118")?;
    let lab = part.parent().unwrap().to_owned();
    program("unshare")?;
    let tried = room(&lab, &["nvcc", "--version"]);
    if tried.stdout.contains("release 11.8") { Ok(lab) } else { Err(format!("no such machine can be made: {}", tried.stderr.trim())) }
}

fn built(lab: &Path) {
    let out = room(lab, &["ds-doctor", "probe", "--no-cache", "--format", "json"]);
    let report: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|e| panic!("{e}: {out:?}"));
    assert_eq!((out.code, &report["result"]["toolchain"]), (Some(0), &"proven".into()), "{report:#}");
    let steps = report["result"]["steps"].as_array().unwrap();
    let told: Vec<_> = steps.iter().map(|step| (step["name"].as_str().unwrap(), step["outcome"].as_str().unwrap())).collect();
    assert_eq!(told, ["compile", "host-compile", "link", "load"].map(|name| (name, "passed")), "{report:#}");
    assert_eq!(report["result"]["targets"], serde_json::json!(["sm_70", "sm_80", "sm_90", "compute_90"]));
}
