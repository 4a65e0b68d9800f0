//! The folder of torch's extension cache: whether it can be written, loaded from, and is one host's own.

use super::cache::{Cache, cache};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::host::{FolderPurpose, WorkFolder, is_local, is_network};
use crate::facts::observed::Missing;
use crate::finding::{Evidence, Finding, Fix, Severity};

pub const CHECKS: &[Check] = &[
    Check { id: "cache-permission", run: permission },
    Check { id: "tmp-noexec", run: noexec },
    Check { id: "shared-nfs-jit-race", run: shared },
];

/// A folder for the cache that is this user's own and not in the way of others.
fn elsewhere(case: &Case<'_>, id: &'static str) -> Fix {
    let usable = |folder: &&WorkFolder| {
        folder.writable == Some(true) && !folder.has_option("noexec") && folder.filesystem.as_deref().is_some_and(is_local)
    };
    let of = |purpose| case.facts.host.folders.iter().filter(move |folder| folder.purpose == purpose);
    let temporary = of(FolderPurpose::Temporary).filter(|folder| folder.exists()).find(usable);
    // Torch makes it where it is not there yet.
    let home = case.facts.env.path("HOME").map(|home| home.join(".cache/torch_extensions"));
    let variables = ["TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"].map(|name| case.facts.env.get(name).is_some());
    let own = of(FolderPurpose::Cache).filter(|folder| home.as_ref().is_some_and(|home| folder.path.0 == *home)).find(usable);
    let own = own.filter(|_| variables == [true, false]);
    match (own, temporary) {
        (Some(_), _) => Fix::unset("TORCH_EXTENSIONS_DIR", "the cache in the home folder can be used"),
        // A name that somebody else may have taken before: a person should look.
        (None, Some(folder)) => {
            let name = case
                .facts
                .env
                .path("HOME")
                .and_then(|home| home.file_name())
                .map_or("user".to_owned(), |name| name.to_string_lossy().into_owned());
            Fix::set("TORCH_EXTENSIONS_DIR", folder.path.join(format!("torch_extensions_{name}")).0, "a folder of your own on this host")
                .review()
        }
        (None, None) => Fix::advice("set `TORCH_EXTENSIONS_DIR` to a folder of your own on a local disk").curing(id),
    }
}

fn permission(case: &Case<'_>) -> Judgement {
    const ID: &str = "cache-permission";
    let cache = match cache(case)? {
        Ok(cache) => cache,
        Err(verdict) => return Ok(verdict),
    };
    let Some(root) = cache.folder.facts else {
        return Err(Missing { topic: "cache", why: format!("`{}` was not looked at", cache.folder.root), failed: false });
    };
    let closed = match root.writable.get("cache")? {
        Some(false) => Some(root.path.clone()),
        // Below it only what this torch would use.
        _ => {
            let tag = cache.folder.tag.as_ref().map(|tag| root.path.join(tag));
            tag.into_iter().chain(cache.ops().map(|op| op.path.clone())).find(|folder| root.closed.contains(folder))
        }
    };
    let Some(closed) = closed else { return Ok(Verdict::Pass) };
    let place = cache.place(case);
    let nearest = place.and_then(|place| place.nearest.as_ref()).filter(|_| closed == root.path && !root.exists).unwrap_or(&closed);
    let read_only = place.is_some_and(|place| place.has_option("ro"));
    let (why, message) = if read_only {
        ("its file system is read-only", format!("OSError: [Errno 30] Read-only file system: '{}'", cache.folder.root))
    } else {
        ("this user may not write there", format!("PermissionError: [Errno 13] Permission denied: '{closed}'"))
    };
    let finding = Finding::error(ID, format!("torch builds ops in `{closed}`, and {why}"))
        .about(root.path.to_string())
        .seen(Evidence::new("not writable", why).at(nearest).from(&cache.folder.source))
        .then(format!("the first use of an op that is not pre-built stops with `{message}`"))
        .fix(elsewhere(case, ID));
    Ok(Verdict::found(finding))
}

/// What shows that this host is one of several, which use the cache at once.
fn several_hosts(case: &Case<'_>) -> Option<(&'static str, String)> {
    let number = |name: &str| case.facts.env.text(name)?.parse::<u64>().ok();
    if let Some(nodes) = number("SLURM_JOB_NUM_NODES") {
        return (nodes > 1).then(|| ("SLURM_JOB_NUM_NODES", nodes.to_string()));
    }
    if let (Some(world), Some(local)) = (number("WORLD_SIZE"), number("LOCAL_WORLD_SIZE")) {
        return (world > local).then(|| ("WORLD_SIZE", format!("{world}, {local} of them here")));
    }
    (case.facts.host.container.as_deref() == Some("kubernetes")).then(|| ("container", "kubernetes".to_owned()))
}

fn shared(case: &Case<'_>) -> Judgement {
    const ID: &str = "shared-nfs-jit-race";
    let cache = match cache(case)? {
        Ok(cache) => cache,
        Err(verdict) => return Ok(verdict),
    };
    let Some(place) = cache.place(case) else {
        return Err(Missing { topic: "file systems", why: format!("`{}` was not looked at", cache.folder.root), failed: false });
    };
    let Some(filesystem) = place.filesystem.as_deref() else {
        return Err(Missing { topic: "file systems", why: "only a running machine tells".to_owned(), failed: false });
    };
    if !is_network(filesystem) {
        return Ok(Verdict::Pass);
    }
    // On one host at a time it works.
    let several = several_hosts(case);
    let severity = if several.is_some() { Severity::Warning } else { Severity::Info };
    let mut finding = Finding::new(
        ID,
        severity,
        format!("the extension cache `{}` lies on `{filesystem}`, which several hosts may share", cache.folder.root),
    )
    .about(cache.folder.root.to_string())
    .seen(Evidence::new("cache", filesystem).at(&cache.folder.root).from(&cache.folder.source));
    if let Some((what, value)) = several {
        finding = finding.likely().seen(Evidence::new(what, value).said_by("more than one host"));
    }
    let finding = finding
        .then("where hosts build at once, one loads what another has half written: `file too short`, `Stale file handle`, or a wait without end")
        .fix(elsewhere(case, ID));
    Ok(Verdict::found(finding))
}

/// Where the built library is loaded from: a `noexec` TMPDIR does no harm.
fn noexec(case: &Case<'_>) -> Judgement {
    const ID: &str = "tmp-noexec";
    let cache = match cache(case)? {
        Ok(cache) => cache,
        Err(verdict) => return Ok(verdict),
    };
    let place = known(case, &cache)?;
    if !place.has_option("noexec") {
        return Ok(Verdict::Pass);
    }
    let root = &cache.folder.root;
    let finding = Finding::error(ID, format!("torch loads what it builds from `{root}`, which is mounted `noexec`"))
        .about(root.to_string())
        .seen(
            Evidence::new("mount", format!("{} noexec", place.filesystem.as_deref().unwrap_or_default()))
                .at(root)
                .from(&cache.folder.source),
        )
        .then("ops compile, and then stop with `failed to map segment from shared object`")
        .fix(elsewhere(case, ID));
    Ok(Verdict::found(finding))
}

/// What is known of the cache's file system; nothing in a tree without a mount table.
fn known<'a>(case: &Case<'a>, cache: &Cache<'a>) -> Result<&'a WorkFolder, Missing> {
    let place = cache.place(case).filter(|place| place.filesystem.is_some());
    place.ok_or_else(|| Missing {
        topic: "file systems",
        why: format!("nothing is known of that of `{}`", cache.folder.root),
        failed: false,
    })
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{cured, finding, healthy, judged, op, place, python, root, silent};
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Safety;

    #[test]
    fn a_healthy_machine_is_silent() {
        for purpose in [Purpose::Build, Purpose::Run, Purpose::Both] {
            silent(&healthy(), CHECKS, purpose);
        }
    }

    #[test]
    fn folders_that_cannot_be_written() {
        let mut facts = healthy();
        root(&mut facts).ops = vec![op("fused_adam")];
        root(&mut facts).closed = vec!["/root/.cache/torch_extensions/py39_cpu".into()];
        silent(&facts, CHECKS, Purpose::Both);
        root(&mut facts).closed.push(op("fused_adam").path);
        assert!(finding(&facts, "cache-permission").title.contains("fused_adam"));
        root(&mut facts).writable = Observed::seen(false);
        let found = finding(&facts, "cache-permission");
        assert!(found.consequence.contains("Errno 13"), "{}", found.consequence);
        place(&mut facts, FolderPurpose::Cache).options.push("ro".to_owned());
        assert!(finding(&facts, "cache-permission").consequence.contains("Errno 30"));
        root(&mut facts).writable = Observed::skipped("a tree");
        assert_eq!(judged(&facts, Purpose::Build, "cache-permission").undecided.len(), 1);
    }

    #[test]
    fn who_uses_the_cache() {
        let mut facts = healthy();
        root(&mut facts).writable = Observed::seen(false);
        python(&mut facts).deepspeed = Observed::absent(["nowhere"]);
        assert!(judged(&facts, Purpose::Run, "cache-permission").findings.is_empty(), "nothing is built at run time");
        assert_eq!(judged(&facts, Purpose::Build, "cache-permission").findings.len(), 1);
    }

    #[test]
    fn caches_of_several_hosts() {
        let mut facts = healthy();
        place(&mut facts, FolderPurpose::Cache).filesystem = Some("nfs4".to_owned());
        let severity = |facts: &Snapshot| finding(facts, "shared-nfs-jit-race").severity;
        assert_eq!(severity(&facts), Severity::Info, "a home on a network file system works for one host");
        facts.env.set("SLURM_JOB_NUM_NODES", "1");
        assert_eq!(severity(&facts), Severity::Info);
        facts.env.set("SLURM_JOB_NUM_NODES", "4");
        assert_eq!(severity(&facts), Severity::Warning);
        facts.env.unset("SLURM_JOB_NUM_NODES");
        for (local, expected) in [("8", Severity::Info), ("4", Severity::Warning)] {
            facts.env.set("WORLD_SIZE", "8");
            facts.env.set("LOCAL_WORLD_SIZE", local);
            assert_eq!(severity(&facts), expected);
        }
        place(&mut facts, FolderPurpose::Cache).filesystem = Some("xfs".to_owned());
        silent(&facts, CHECKS, Purpose::Both);
    }

    #[test]
    fn what_is_loaded_needs_exec() {
        let mut facts = healthy();
        place(&mut facts, FolderPurpose::Temporary).options.push("noexec".to_owned());
        silent(&facts, CHECKS, Purpose::Both);
        place(&mut facts, FolderPurpose::Cache).options.push("noexec".to_owned());
        assert_eq!(finding(&facts, "tmp-noexec").fixes[0].safety, Safety::Review, "no other folder is known to do");
        // A cache elsewhere is at fault, and the usual one is not.
        let mut usual = place(&mut facts, FolderPurpose::Cache).clone();
        usual.options.clear();
        place(&mut facts, FolderPurpose::Cache).path = "/ext".into();
        facts.host.folders.push(usual);
        facts.env.set("TORCH_EXTENSIONS_DIR", "/ext");
        silent(&cured(&facts, "tmp-noexec"), CHECKS, Purpose::Run);
    }

    #[test]
    fn without_a_mount_table_it_is_not_known() {
        let mut facts = healthy();
        place(&mut facts, FolderPurpose::Cache).filesystem = None;
        let judged = judged(&facts, Purpose::Build, "tmp-noexec");
        assert!(judged.findings.is_empty() && judged.undecided.iter().all(|one| !one.failed));
    }
}
