//! What all ranks together show: who fell out first, who did not arrive, and which values are wrong.

use super::super::Case;
use super::rank::{explained, fallen};
use super::{HANG, WRONG, name, setting, step};
use crate::facts::nccl::{End, Member, Nccl, Op, Run, Stage, Step, result_name, size};
use crate::finding::{Evidence, Finding, Fix};
use crate::text::{count, join};

/// Ranks that fell out. What only tells that a peer has gone follows from the peer's end.
pub fn ranks(case: &Case<'_>, nccl: &Nccl, run: &Run) -> Option<Finding> {
    let remote =
        |member: &&Member| matches!(&member.end, End::Failed(failure) if result_name(failure.code.unwrap_or(0)) == "ncclRemoteError");
    let out = || run.ranks.iter().filter(|member| !matches!(member.end, End::Done | End::Stopped));
    let crashed = out().find(|member| matches!(member.end, End::Crashed { .. } | End::Ended { .. }));
    let first = crashed.or_else(|| out().find(|member| !remote(member))).or_else(|| out().next())?;
    let mut finding = fallen(case, nccl, first)?;
    for other in out().filter(|member| member.rank != first.rank) {
        let how = match &other.end {
            End::Failed(failure) => failure.to_string(),
            End::Crashed { signal, .. } => format!("signal {signal} in {}", step(other)),
            _ => format!("ended in {}", step(other)),
        };
        finding = finding.seen(Evidence::new(name(other), how));
    }
    Some(finding)
}

/// Nothing moved any more: who arrived at the furthest step, and who did not.
pub fn hang(case: &Case<'_>, nccl: &Nccl, run: &Run) -> Option<Finding> {
    let waited = run.hung?;
    // What one rank's crash or error makes of the others is no hang of its own.
    if run.ranks.iter().any(|member| !matches!(member.end, End::Done | End::Stopped)) {
        return None;
    }
    let furthest = run.ranks.iter().filter_map(|member| member.last).max()?;
    // Writing the values is before the step.
    let arrived = |member: &&Member| member.last.is_some_and(|last| last >= begin(furthest));
    let names = |members: Vec<&Member>| -> Option<String> {
        let all: Vec<String> = members.into_iter().map(name).collect();
        (!all.is_empty()).then(|| join(&all))
    };
    let stopped = || run.ranks.iter().filter(|member| member.end == End::Stopped);
    let missing = stopped().filter(|member| !arrived(member)).collect::<Vec<_>>();
    let in_call = stopped().filter(|member| arrived(member) && matches!(member.last, Some(Step::Collective { stage: Stage::Call, .. })));
    let in_call: Vec<&Member> = in_call.collect();
    let waiting = stopped().filter(|member| arrived(member)).count();
    let title = if let Some(names) = names(missing.clone()) {
        format!("{furthest} did not finish within {waited} s: {names} did not arrive")
    } else if !in_call.is_empty() && in_call.len() < waiting {
        let names = names(in_call).unwrap_or_default();
        format!("{furthest} did not finish within {waited} s: {names} did not come back from the call, and the others wait")
    } else if let [alone] = run.ranks.as_slice() {
        format!("{furthest} did not finish within {waited} s on {}", name(alone))
    } else {
        format!("{furthest} did not finish within {waited} s, though all {} arrived", count(run.ranks.len(), "rank"))
    };
    let mut finding =
        Finding::error(HANG, title).then("training stops moving at its first collective, until torch's time limit of 10 minutes or more");
    for member in stopped() {
        finding = finding.seen(Evidence::new(name(member), format!("last at {}", stage(member))));
    }
    for member in run.ranks.iter().filter(|member| !member.warnings.is_empty()) {
        finding = explained(case, nccl, member, finding);
    }
    if run.ranks.len() > 1 {
        for (variable, means) in [
            (
                "NCCL_P2P_DISABLE",
                "where this passes, the direct path between the GPUs is the cause: PCIe ACS or an IOMMU, or a faulty link",
            ),
            ("NCCL_SHM_DISABLE", "where this passes, /dev/shm is"),
        ] {
            if setting(nccl, variable).is_none() {
                finding = finding.fix(Fix::run(["env", &format!("{variable}=1"), "ds-doctor", "nccl"], means));
            }
        }
    }
    Some(finding)
}

/// The stage of a step from which a rank counts as having arrived.
fn begin(step: Step) -> Step {
    match step {
        Step::Collective { op, bytes, .. } => Step::Collective { op, bytes, stage: Stage::Call },
        step => step,
    }
}

fn stage(member: &Member) -> String {
    let words = match member.last {
        Some(Step::Collective { stage: Stage::Fill, .. }) => "writing the values for ",
        Some(Step::Collective { stage: Stage::Call, .. }) => "in the call for ",
        Some(Step::Collective { stage: Stage::Wait, .. }) => "waiting for the GPU in ",
        Some(Step::Collective { stage: Stage::Measure, .. }) => "repeating ",
        Some(Step::Collective { stage: Stage::Compare, .. }) => "comparing the values of ",
        _ => "",
    };
    format!("{words}{}", step(member))
}

pub fn wrong(nccl: &Nccl, run: &Run) -> Option<Finding> {
    let bad: Vec<_> = run.rows.iter().filter(|row| !row.wrong.is_empty()).collect();
    let first = bad.first()?;
    let ops: Vec<&str> = Op::ALL.into_iter().filter(|op| bad.iter().any(|row| row.op == *op)).map(Op::name).collect();
    let total: u64 = bad.iter().flat_map(|row| &row.wrong).map(|wrong| wrong.elements).sum();
    let title = format!(
        "{} gave wrong values without an error: {} in {}",
        join(&ops),
        count(usize::try_from(total).unwrap_or(usize::MAX), "element"),
        count(bad.len(), "operation")
    );
    let mut finding = Finding::error(WRONG, title).then("gradients are corrupted silently: NaN, a loss that jumps, ranks that drift apart");
    for wrong in &first.wrong {
        let what = format!("{} of {} on rank {}", first.op.name(), size(first.bytes), wrong.rank);
        let value = format!("element {} is {} instead of {}, {} wrong in all", wrong.first, wrong.got, wrong.expected, wrong.elements);
        finding = finding.seen(Evidence::new(what, value));
    }
    if run.ranks.len() > 1 && setting(nccl, "NCCL_P2P_DISABLE").is_none() {
        finding = finding.fix(Fix::run(
            ["env", "NCCL_P2P_DISABLE=1", "ds-doctor", "nccl"],
            "where this is right, the path between the GPUs corrupts data: PCIe ACS, an IOMMU, or a faulty link",
        ));
    }
    Some(finding.fix(Fix::advice(
        "find the pair with `ds-doctor nccl --devices 0,1` and so on, and look for Xid and AER lines: `sudo dmesg | grep -iE 'xid|aer'`",
    )))
}
