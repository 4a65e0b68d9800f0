//! What to do about an op that cannot be built.

use super::Case;
use super::headers::packages;
use super::remedy::{as_root, pip_install, system};
use crate::facts::python::EnvironmentKind;
use crate::finding::Fix;
use crate::knowledge::schema::host::Family;
use crate::knowledge::schema::ops::Op;
use crate::model::ops::{Obstacle, Scene};

/// For the ids that are about a single op; those about the whole machine have their cures in the findings of `check`.
pub fn fixes(case: &Case<'_>, scene: &Scene<'_>, op: &Op, obstacle: &Obstacle) -> Vec<Fix> {
    let id = obstacle.id;
    let subject = op.op.to_string();
    let mut fixes = match (id, &obstacle.helps) {
        (_, Some((variable, folder))) => vec![Fix::prepend(variable, folder, "the build looks there then")],
        ("libaio-missing" | "libaio-too-old", None) => vec![libaio(case)],
        ("libaio-not-detected", None) => vec![Fix::unset("CC", "Python's own C compiler is taken then").review()],
        ("cufile-missing", None) if obstacle.seen.iter().any(|seen| seen.what == "CC") => {
            vec![Fix::unset("CC", "Python's own C compiler is taken then").review()]
        }
        ("cufile-missing", None) => vec![cufile(case)],
        ("cutlass-missing", None) => cutlass(case),
        ("ds-kernels-missing", None) => vec![pip_install(case, ["deepspeed-kernels"], "the libraries that the op links")],
        ("nccl-header-missing", None) => vec![nccl(case)],
        ("libcuda-not-found-at-link", None) => vec![libcuda(case)],
        ("missing-cuda-headers", None) => headers(case, obstacle),
        ("triton-version", None) => triton(case, scene, op),
        ("ds-op-source-broken", None) => vec![Fix::advice("take a release whose sources compile, or go without the op")],
        _ => Vec::new(),
    };
    for fix in &mut fixes {
        let cured = fix.clone().curing_of(id, subject.clone());
        // What is a variable is judged again; all else is believed.
        if !fix.is_env() {
            *fix = cured;
        }
    }
    let choice = u8::try_from(fixes.len().min(9)).unwrap_or(9);
    let off = Fix::set(&op.variable, "0", format!("leave {} out", op.op)).review();
    fixes.push(if fixes.is_empty() { off } else { off.or(choice) });
    fixes
}

fn libaio(case: &Case<'_>) -> Fix {
    let conda = case.python().ok().flatten().is_some_and(|python| python.kind == EnvironmentKind::Conda);
    match system(case) {
        Some(Family::Debian) => as_root(case, ["apt-get", "install", "-y", "libaio-dev"], "library and header"),
        Some(Family::Rhel | Family::Fedora) => as_root(case, ["dnf", "install", "-y", "libaio-devel"], "library and header"),
        Some(Family::Suse) => as_root(case, ["zypper", "install", "-y", "libaio-devel"], "library and header"),
        _ if conda => Fix::run(["conda", "install", "-y", "-c", "conda-forge", "libaio"], "library and header"),
        _ => Fix::advice("install the development package of libaio"),
    }
}

fn cufile(case: &Case<'_>) -> Fix {
    let release = case.toolkit().ok().flatten().and_then(crate::facts::toolkit::Toolkit::release);
    match (system(case), release) {
        (Some(Family::Debian), Some(release)) => {
            let package = format!("libcufile-dev-{}-{}", release.major, release.minor);
            as_root(case, ["apt-get", "install", "-y", &package], "from NVIDIA's repository")
        }
        (Some(Family::Rhel | Family::Fedora), Some(release)) => {
            let package = format!("libcufile-devel-{}-{}", release.major, release.minor);
            as_root(case, ["dnf", "install", "-y", &package], "from NVIDIA's repository")
        }
        _ => Fix::advice("install cuFile (GPUDirect Storage) of the toolkit's release"),
    }
}

fn cutlass(case: &Case<'_>) -> Vec<Fix> {
    let clone = "git clone --depth 1 --branch v3.9.2 https://github.com/NVIDIA/cutlass /opt/cutlass";
    let mut fixes = vec![Fix::run(clone.split(' '), "its headers are all that is needed")];
    if case.facts.env.path("CUTLASS_PATH") != Some(std::path::Path::new("/opt/cutlass")) {
        fixes.push(Fix::set("CUTLASS_PATH", "/opt/cutlass", "where evoformer_attn looks"));
    }
    fixes
}

/// NVIDIA's Python packages bring no stub.
fn libcuda(case: &Case<'_>) -> Fix {
    match (system(case), case.facts.host.os.value().map(|os| os.id.as_str())) {
        (Some(Family::Debian), Some("debian")) => {
            as_root(case, ["apt-get", "install", "-y", "libcuda1"], "the driver's library (non-free), for linking alone")
        }
        _ => Fix::advice("install the toolkit's driver stubs (`cuda-driver-dev`) and put their folder on LIBRARY_PATH"),
    }
}

fn nccl(case: &Case<'_>) -> Fix {
    match system(case) {
        Some(Family::Debian) => as_root(case, ["apt-get", "install", "-y", "libnccl-dev"], "from NVIDIA's repository"),
        Some(Family::Rhel | Family::Fedora) => as_root(case, ["dnf", "install", "-y", "libnccl-devel"], "from NVIDIA's repository"),
        _ => Fix::advice("put the folder of `nccl.h` of the NCCL that torch brings on CPATH"),
    }
}

/// Those that an op includes and torch does not.
fn headers(case: &Case<'_>, obstacle: &Obstacle) -> Vec<Fix> {
    let Some(toolkit) = case.toolkit().ok().flatten() else { return Vec::new() };
    let names: Vec<&str> = obstacle.seen.iter().filter(|seen| seen.what == "looked for").flat_map(|seen| seen.value.split(' ')).collect();
    packages(case, toolkit, &names)
}

/// triton belongs to torch, so another one is no cure; another DeepSpeed is.
fn triton(case: &Case<'_>, scene: &Scene<'_>, op: &Op) -> Vec<Fix> {
    let newest = case.know.deepspeed_covered().map(|(_, newest)| newest);
    let free = newest.as_ref().filter(|newest| {
        let gate = case.know.op_gate(op, newest);
        gate.is_none_or(|gate| gate.triton.is_empty()) && case.know.deepspeed_broken_op(&op.op, newest).is_none()
    });
    match free {
        Some(newest) => vec![Fix::advice(format!("DeepSpeed {newest} takes every triton"))],
        None => vec![Fix::advice(format!(
            "triton comes with torch: take a torch whose triton DeepSpeed {} knows, or go without the op",
            scene.deepspeed.version
        ))],
    }
}
