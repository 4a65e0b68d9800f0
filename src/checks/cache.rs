//! torch's extension cache: locks that nobody holds, objects of another torch.

use super::lookup::NOT_ASKED;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::cache::{CachedOp, Lock};
use crate::facts::host::{FolderPurpose, WorkFolder, is_local};
use crate::facts::observed::{Missing, Observed};
use crate::facts::raw::HostPath;
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::torch::TorchTrait;
use crate::model::torch_cache::{self, CacheFolder};
use crate::text::count;

pub const CHECKS: &[Check] = &[Check { id: "stale-jit-lock", run: stale_lock }, Check { id: "stale-jit-cache", run: stale_objects }];

/// The cache of the torch that is judged.
pub struct Cache<'a> {
    pub torch: &'a Torch,
    pub folder: CacheFolder<'a>,
}

/// Where ops are built at first use: a build is asked for, or DeepSpeed is there, whose ops are.
pub fn cache<'a>(case: &Case<'a>) -> Result<Result<Cache<'a>, Verdict>, Missing> {
    let Some(torch) = case.torch()? else { return Ok(Err(Verdict::not_applicable("no torch"))) };
    let Some(python) = case.python()? else { return Ok(Err(Verdict::not_applicable("no Python on PATH"))) };
    if !case.purpose.builds() && case.deepspeed()?.is_none() {
        return Ok(Err(Verdict::not_applicable(NOT_ASKED)));
    }
    case.facts.cache.get("cache")?;
    let Some(folder) = torch_cache::folder(case.facts, case.know, python, torch) else {
        return Err(Missing { topic: "cache", why: "the folder that this torch builds in is not known".to_owned(), failed: false });
    };
    Ok(Ok(Cache { torch, folder }))
}

impl<'a> Cache<'a> {
    /// What is built in the folder of this torch and this Python.
    pub fn ops(&self) -> impl Iterator<Item = &'a CachedOp> {
        let ops = self.folder.facts.map_or(&[][..], |root| root.ops.as_slice());
        ops.iter().filter(|op| op.tag == self.folder.tag)
    }

    /// Locks that wait for nobody, and how that is known. None for a torch whose locks are no files that must go.
    pub fn stale_locks(&self, case: &Case<'a>) -> Vec<(&'a CachedOp, &'a Lock, String)> {
        if case.know.torch_does(TorchTrait::LockIsFlock, &self.torch.version) {
            return Vec::new();
        }
        let place = self.place(case);
        self.ops().filter_map(|op| op.lock.as_ref().and_then(|lock| Some((op, lock, proof(case, lock, place)?)))).collect()
    }

    /// Ops built against the torch that stood in this one's place before it.
    pub fn stale_ops(&self) -> Vec<&'a CachedOp> {
        let Some(installed) = self.torch.installed else { return Vec::new() };
        let of_this = |op: &&CachedOp| op.torch_path.as_ref() == Some(&self.torch.path);
        self.ops().filter(of_this).filter(|op| kept(op).is_some_and(|made| made < installed)).collect()
    }

    /// The file system that it lies on.
    pub fn place(&self, case: &Case<'a>) -> Option<&'a WorkFolder> {
        case.facts.host.folders.iter().find(|folder| folder.purpose == FolderPurpose::Cache && folder.path == self.folder.root)
    }
}

/// How it is known that nobody holds a lock.
fn proof(case: &Case<'_>, lock: &Lock, place: Option<&WorkFolder>) -> Option<String> {
    let local = place.and_then(|place| place.filesystem.as_deref()).is_some_and(is_local);
    match (&lock.in_use, case.facts.host.booted.value()) {
        (Observed::Seen { value: true }, _) => None,
        (Observed::Seen { value: false }, _) => Some("no process has it open or works in its folder".to_owned()),
        // What held it did not survive the start of the machine.
        (_, Some(booted)) if local && lock.modified < *booted => Some("older than the start of this machine".to_owned()),
        _ => None,
    }
}

fn stale_lock(case: &Case<'_>) -> Judgement {
    const ID: &str = "stale-jit-lock";
    let cache = match cache(case)? {
        Ok(cache) => cache,
        Err(verdict) => return Ok(verdict),
    };
    if case.know.torch_does(TorchTrait::LockIsFlock, &cache.torch.version) {
        return Ok(Verdict::not_applicable("this torch leaves its lock files behind, and they say nothing"));
    }
    let (mut findings, mut doubt) = (Vec::new(), None);
    for op in cache.ops() {
        let Some(lock) = op.lock.as_ref().filter(|lock| !matches!(lock.in_use, Observed::Seen { .. })) else { continue };
        if proof(case, lock, cache.place(case)).is_none() {
            doubt = doubt.or(lock.in_use.get("lock").err().map(|missing| (op, missing)));
        }
    }
    for (op, lock, proof) in cache.stale_locks(case) {
        let log = case.know.torch_does(TorchTrait::LogsThroughLogger, &cache.torch.version);
        let then = if log {
            "every load of the op waits for this file to go, for ever and without a word".to_owned()
        } else {
            format!(
                "every load of the op waits for this file to go, for ever; the last line is `Using {} as PyTorch extensions root...`",
                op.path.parent().unwrap_or(&op.path).display()
            )
        };
        let finding = Finding::error(ID, format!("`{}` was left by a build of {} that is over", lock.path, op.name))
            .about(lock.path.to_string())
            .seen(Evidence::new("lock", proof).at(&lock.path))
            .seen(super::torch::shown(cache.torch))
            .then(then)
            .fix(Fix::run(["rm", &lock.path.to_string()], "when no build of it runs").curing_of(ID, lock.path.to_string()));
        findings.push(finding);
    }
    match doubt {
        Some((op, missing)) if findings.is_empty() => {
            let lock = op.path.join("lock");
            Err(Missing { topic: "lock", why: format!("whether somebody holds `{lock}`: {}", missing.why), failed: false })
        }
        _ => Ok(Verdict::of(findings)),
    }
}

/// When the oldest thing was made that a build would keep: the library where nothing is known of its objects.
fn kept(op: &CachedOp) -> Option<i64> {
    if op.objects.is_empty() {
        return op.built;
    }
    op.objects.iter().filter(|object| !object.outdated).map(|object| object.made).min()
}

/// Objects of the C++ compiler that are older than torch, built against a torch in the same place: ninja sees no difference. Against a
/// torch in another place the command line differs, and ninja builds anew (run with ninja 1.13).
fn stale_objects(case: &Case<'_>) -> Judgement {
    const ID: &str = "stale-jit-cache";
    let cache = match cache(case)? {
        Ok(cache) => cache,
        Err(verdict) => return Ok(verdict),
    };
    let Some(installed) = cache.torch.installed else { return Ok(Verdict::not_applicable("when torch was installed is not known")) };
    let stale = cache.stale_ops();
    let Some(first) = stale.first() else { return Ok(Verdict::Pass) };
    let folder = HostPath::new(first.path.parent().unwrap_or(&first.path));
    let names: Vec<String> = stale.iter().map(|op| format!("`{}`", op.name)).collect();
    let (hold, them) = if stale.len() == 1 { ("holds", "an object") } else { ("hold", "objects") };
    let mut finding = Finding::warning(
        ID,
        format!("{} in the extension cache {hold} {them} older than this torch, and ninja keeps what it has", crate::text::join(&names)),
    )
    .likely()
    .about(folder.to_string())
    .seen(super::torch::shown(cache.torch));
    for op in stale.iter().take(4) {
        let age = kept(op).map(|made| installed.saturating_sub(made)).unwrap_or_default();
        finding = finding.seen(Evidence::new(op.name.clone(), format!("{} older than torch", duration(age))).at(&op.path));
    }
    let finding = finding
        .then("where torch's release has changed, the op stops at import with `undefined symbol`, or computes with another layout than torch's")
        .fix(
            Fix::run(
                ["rm", "-r"].into_iter().map(ToOwned::to_owned).chain(stale.iter().map(|op| op.path.to_string())),
                "the next load builds anew",
            )
            .curing_of(ID, folder.to_string()),
        );
    Ok(Verdict::found(finding))
}

/// Seconds as people say them.
fn duration(seconds: i64) -> String {
    let seconds = usize::try_from(seconds).unwrap_or(0);
    match seconds {
        0..120 => count(seconds, "second"),
        120..7200 => count(seconds / 60, "minute"),
        7200..172_800 => count(seconds / 3600, "hour"),
        _ => count(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{BOOT, INSTALLED, cured, finding, findings, healthy, judged, lock, op, place, root, silent, torch};
    use super::*;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;

    fn with(ops: Vec<CachedOp>) -> Snapshot {
        let mut facts = healthy();
        root(&mut facts).ops = ops;
        facts
    }

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
            silent(&with(vec![op("fused_adam"), lock("cpu_adam", BOOT + 10, Observed::seen(true))]), CHECKS, purpose);
        }
    }

    #[test]
    fn locks_that_nobody_holds() {
        let unknown = || Observed::skipped("another host may hold it");
        for (modified, in_use, stale) in [
            (BOOT + 10, Observed::seen(false), Some(true)),
            (BOOT + 10, Observed::seen(true), Some(false)),
            (BOOT - 10, Observed::seen(true), Some(false)),
            (BOOT - 10, unknown(), Some(true)),
            (BOOT + 10, unknown(), None),
            (BOOT + 10, Observed::failed("no"), None),
        ] {
            let facts = with(vec![lock("fused_adam", modified, in_use.clone())]);
            let judged = judged(&facts, Purpose::Run, "stale-jit-lock");
            let found = judged.undecided.is_empty().then_some(!judged.findings.is_empty());
            assert_eq!(found, stale, "{modified} {in_use:?}");
            assert!(judged.undecided.iter().all(|one| !one.failed), "a doubt is no failure");
        }
    }

    #[test]
    fn a_lock_on_a_file_system_of_others_is_never_stale_by_its_age() {
        let mut facts = with(vec![lock("fused_adam", BOOT - 10, Observed::skipped("on `nfs4` another host may hold it"))]);
        for (filesystem, found) in [(Some("nfs4"), 0), (Some("fuse.x"), 0), (None, 0), (Some("xfs"), 1)] {
            place(&mut facts, FolderPurpose::Cache).filesystem = filesystem.map(str::to_owned);
            assert_eq!(judged(&facts, Purpose::Build, "stale-jit-lock").findings.len(), found, "{filesystem:?}");
        }
    }

    #[test]
    fn only_this_lock_is_removed() {
        let facts = with(vec![lock("a b", 0, Observed::seen(false)), lock("c", 0, Observed::seen(false)), op("d")]);
        let found = findings(&facts, "stale-jit-lock");
        assert_eq!(found.len(), 2);
        let argv = |finding: &Finding| match &finding.fixes[0].action {
            Action::Run { argv, .. } => argv.clone(),
            _ => Vec::new(),
        };
        assert_eq!(argv(&found[0]), ["rm", "/root/.cache/torch_extensions/py311_cu124/a b/lock"]);
        cured(&facts, "stale-jit-lock");
    }

    #[test]
    fn locks_of_others_do_not_matter() {
        let mut other = lock("fused_adam", 0, Observed::seen(false));
        other.tag = Some("py310_cu118".to_owned());
        silent(&with(vec![other]), CHECKS, Purpose::Both);
        let mut facts = with(vec![lock("fused_adam", 0, Observed::seen(false))]);
        assert!(finding(&facts, "stale-jit-lock").consequence.contains("Using"));
        torch(&mut facts, "2.13.0+cu124");
        assert!(!finding(&facts, "stale-jit-lock").consequence.contains("Using"));
        torch(&mut facts, "2.14.0+cu124");
        silent(&facts, CHECKS, Purpose::Both);
    }

    #[test]
    fn objects_older_than_torch() {
        let stale = |change: fn(&mut CachedOp)| {
            let mut one = op("fused_adam");
            change(&mut one);
            findings(&with(vec![one]), "stale-jit-cache").len()
        };
        assert_eq!(stale(|op| op.objects[0].made = INSTALLED - 5), 1);
        assert_eq!(stale(|op| op.objects[0].made = INSTALLED + 5), 0);
        let outdated: fn(&mut CachedOp) = |op| {
            op.objects[0].made = INSTALLED - 5;
            op.objects[0].outdated = true;
        };
        assert_eq!(stale(outdated), 0, "built anew anyway");
        let other_torch: fn(&mut CachedOp) = |op| {
            op.objects[0].made = INSTALLED - 5;
            op.torch_path = Some("/other/torch".into());
        };
        assert_eq!(stale(other_torch), 0, "the command line differs");
        let library_alone: fn(&mut CachedOp) = |op| {
            op.objects.clear();
            op.built = Some(INSTALLED - 5);
        };
        assert_eq!(stale(library_alone), 1);
    }

    #[test]
    fn ages() {
        assert_eq!([1, 600, 10_000, 900_000].map(duration), ["1 second", "10 minutes", "2 hours", "10 days"]);
    }
}
