//! What one process of the test shows that did not come to its end.

use super::super::Case;
use super::super::probe::says;
use super::{COLLECTIVE, COMM_ID, CRASHED, HANG, IFNAME, INIT, NO_INTERFACE, NOT_FOUND, name, setting, step};
use crate::facts::nccl::{End, Member, Nccl, Setting, Step, size};
use crate::finding::{Evidence, Finding, Fix};

/// What one process that did not come to its end shows.
pub fn fallen(case: &Case<'_>, nccl: &Nccl, member: &Member) -> Option<Finding> {
    let alone = member.device.is_none();
    let finding = match &member.end {
        End::Done | End::NotStarted { .. } | End::Garbage { .. } => return None,
        // Told for all ranks at once.
        End::Stopped if !alone => return None,
        End::Stopped => {
            let title = format!("NCCL did not come back from {} within {} s", step(member), nccl.patience);
            Finding::error(HANG, title).then("programs that use it wait for ever at the same place")
        }
        End::Crashed { signal, words } => {
            let title = format!("{} died in {} (signal {signal}{})", name(member), step(member), signal_name(*signal));
            spoken(Finding::error(CRASHED, title), words).then("training dies in the same call, and the other ranks wait for it")
        }
        End::Ended { code, words } => {
            let code = code.map(|code| format!(" (exit code {code})")).unwrap_or_default();
            let title = format!("{} ended inside {}{code}", name(member), step(member));
            spoken(Finding::error(CRASHED, title), words).then("training ends in the same call, and the other ranks wait for it")
        }
        End::Failed(failure) => match member.last {
            Some(Step::Open) | None => {
                let title = format!("`{}` cannot be loaded", nccl.library.path);
                Finding::error(NOT_FOUND, title)
                    .seen(Evidence::new("loader", failure.why.clone()))
                    .then("`import torch` stops with the loader's message, or training does where it first calls NCCL")
                    .fix(Fix::advice("install torch's own NCCL anew: `python -m pip install --force-reinstall --no-deps` with the `nvidia-nccl` package that `python -m pip show torch` names"))
            }
            // No device is no fault of NCCL's.
            Some(Step::Driver) if failure.code == Some(100) && alone => return None,
            Some(Step::Driver | Step::Context | Step::Memory) => {
                let what =
                    if alone { "no GPU can be used".to_owned() } else { format!("GPU {} cannot be used", member.device.unwrap_or(0)) };
                let finding = Finding::error(INIT, format!("{what}: {failure}")).then("no communicator comes about without it");
                if failure.code == Some(2) {
                    finding.fix(Fix::advice("the GPU's memory is full: `nvidia-smi` shows by whom; wait, or name others with `--devices`"))
                } else {
                    finding.fix(Fix::advice("`ds-doctor check --for run` says what keeps the driver from answering"))
                }
            }
            Some(Step::Collective { op, bytes, .. }) => {
                let title = format!("{} of {} fails on {}: {failure}", op.name(), size(bytes), name(member));
                Finding::error(COLLECTIVE, title).then("training stops with the same error where ranks first exchange gradients")
            }
            Some(Step::Close) => Finding::error(COLLECTIVE, format!("closing the communicator fails on {}: {failure}", name(member))),
            Some(Step::Version | Step::UniqueId | Step::Init) => set_up(nccl, member, &failure.to_string()),
        },
    };
    Some(explained(case, nccl, member, finding))
}

fn spoken(finding: Finding, words: &str) -> Finding {
    if words.is_empty() { finding } else { finding.seen(Evidence::new("last words", words)) }
}

/// Signals that say something. Source: signal(7).
fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => ", SIGILL",
        6 => ", SIGABRT",
        7 => ", SIGBUS: as a rule a full /dev/shm",
        9 => ", SIGKILL: as a rule for want of memory",
        11 => ", SIGSEGV",
        _ => "",
    }
}

/// A unique id or a communicator that did not come about: by which of the known reasons.
fn set_up(nccl: &Nccl, member: &Member, failure: &str) -> Finding {
    let known = member.meaning.as_ref().map(|meaning| meaning.id.as_str());
    let comm_id = setting(nccl, "NCCL_COMM_ID");
    if let Some(setting) = comm_id.filter(|_| known == Some(COMM_ID)) {
        let title = format!("`NCCL_COMM_ID` is `{}`, where NCCL cannot meet: {failure}", setting.value);
        return Finding::error(COMM_ID, title)
            .seen(Evidence::new("NCCL_COMM_ID", setting.value.clone()).said_by(setting.source.clone()))
            .then("every communicator fails so; torch hands its own address round and needs none")
            .fix(without(setting, COMM_ID));
    }
    if known == Some(NO_INTERFACE) {
        if let Some(setting) = setting(nccl, "NCCL_SOCKET_IFNAME").filter(|setting| setting.value.len() > 1) {
            let title = format!("`NCCL_SOCKET_IFNAME` is `{}`, and no network interface matches it: {failure}", setting.value);
            return Finding::error(IFNAME, title)
                .seen(Evidence::new("NCCL_SOCKET_IFNAME", setting.value.clone()).said_by(setting.source.clone()))
                .then("no communicator comes about: torch stops with `ncclInvalidUsage` or `ncclSystemError` and `Bootstrap : no socket interface found`")
                .fix(without(setting, IFNAME))
                .fix(Fix::advice("name one that is there (`ip -br addr`): an entry is the beginning of a name, `=` before it makes it the whole name, `^` excludes").or(1));
        }
        return Finding::error(NO_INTERFACE, format!("NCCL finds no network interface that is up and has an address: {failure}"))
            .then("no communicator comes about, not even between GPUs of one machine: torch stops with `Bootstrap : no socket interface found`")
            .fix(Fix::run_as_root(["ip", "link", "set", "lo", "up"], "enough for one machine").curing(NO_INTERFACE))
            .fix(Fix::advice("start the container with a network: `--network=host` rather than `--network=none`").or(1));
    }
    let what = if member.device.is_none() {
        "NCCL makes no unique id".to_owned()
    } else {
        format!("NCCL makes no communicator on {}", name(member))
    };
    Finding::error(INIT, format!("{what}: {failure}")).then("torch stops with the same error at its first collective")
}

/// Takes a setting away where it was made.
pub fn without(setting: &Setting, id: &'static str) -> Fix {
    if setting.source == "environment" {
        return Fix::unset(&setting.name, "NCCL finds the way by itself").curing(id);
    }
    Fix::edit(&setting.source.as_str().into(), format!("remove the line `{}=…`", setting.name), "no `env` shows this file").curing(id)
}

/// NCCL's own warning, what it means, and what to do about it.
pub fn explained(case: &Case<'_>, nccl: &Nccl, member: &Member, mut finding: Finding) -> Finding {
    let last_error = match &member.end {
        End::Failed(failure) => Some(&failure.last_error).filter(|text| !text.is_empty()),
        _ => None,
    };
    if let Some(said) = member.warnings.first().or(last_error) {
        finding = finding.seen(Evidence::new("NCCL says", said.clone()).said_by(name(member)));
    }
    let Some(meaning) = &member.meaning else { return finding };
    // The id is the meaning already.
    if [IFNAME, COMM_ID, NO_INTERFACE].contains(&finding.id) {
        return finding;
    }
    if let Some(says) = says(case, meaning) {
        finding = finding.seen(Evidence::new("which means", says));
    }
    match meaning.signature.as_str() {
        "nccl-shm-full" | "nccl-shm-create" => finding
            .fix(Fix::run_as_root(["mount", "-o", "remount,size=8G", "/dev/shm"], "ranks of one machine exchange data through it"))
            .fix(Fix::advice("in a container: `docker run --shm-size=8g`, or `--ipc=host`").or(1))
            .fix(Fix::set("NCCL_SHM_DISABLE", "1", "slower, and needs no /dev/shm").review().or(2)),
        "nccl-p2p-nvlink" => finding.fix(Fix::advice("look for Xid lines (`sudo dmesg | grep -i xid`) and at `nvidia-smi nvlink -s`; on NVSwitch machines fabric manager and driver must be of one release")),
        "nccl-memlock" => finding.fix(Fix::advice("raise the limit of locked memory: `docker run --ulimit memlock=-1`, or `* - memlock unlimited` in /etc/security/limits.conf")),
        "nccl-duplicate-gpu" => finding.fix(Fix::advice("one rank for each GPU: see which device each process selects")),
        "nccl-version-mismatch" => finding.fix(Fix::advice("the same NCCL for all ranks: compare LD_LIBRARY_PATH and LD_PRELOAD of the processes")),
        "nccl-cuda-memory" => finding.fix(Fix::advice("the GPU's memory is full: `nvidia-smi` shows by whom; wait, or name others with `--devices`")),
        "nccl-driver-too-old" => {
            let cuda = nccl.library.cuda.map(|cuda| format!(" (it is built for CUDA {cuda})")).unwrap_or_default();
            finding.fix(Fix::advice(format!("this NCCL needs a newer driver{cuda}: `ds-doctor explain driver-too-old`")))
        }
        _ => finding.fix(Fix::advice(format!("`ds-doctor explain {}`", meaning.id))),
    }
}
