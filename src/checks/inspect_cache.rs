//! Libraries of the extension cache that are looked into: whose they are, and what the next load makes of them.

use super::Case;
use super::cache::{Cache, cache};
use crate::facts::cache::CachedOp;
use crate::facts::inspect::Binary;
use crate::facts::raw::HostPath;
use crate::finding::{Evidence, Finding, Fix, ProblemId, Severity};

/// What is said of a library that another torch, or another Python, was there for.
const OF_ANOTHER: [ProblemId; 3] = ["undefined-symbol-torch-version", "cxx11-abi-mismatch", "prebuilt-binary-torch-mismatch"];

/// The folder in which a library lies and the one in which this torch builds, where they differ: a load never meets it.
pub fn of_others(case: &Case<'_>, path: &HostPath) -> Option<String> {
    let cache = cache(case).ok()?.ok()?;
    let tag = op_at(case, path)?.tag.as_ref()?;
    let own = cache.folder.tag.as_ref().filter(|own| *own != tag)?;
    Some(format!("it is in the extension cache of `{tag}`, and this torch builds in `{own}`"))
}

fn op_at<'a>(case: &Case<'a>, path: &HostPath) -> Option<&'a CachedOp> {
    let folder = path.parent()?;
    let roots = &case.facts.cache.value()?.roots;
    roots.iter().flat_map(|root| &root.ops).find(|op| op.path == HostPath::new(folder))
}

/// Puts the cache in front of what is wrong with one of its libraries: where ninja keeps the library, the cache is the cause; where ninja
/// builds it anew, nothing comes of it.
pub fn with_cause(case: &Case<'_>, binary: &Binary, mut found: Vec<Finding>) -> Vec<Finding> {
    let wrong = |finding: &Finding| OF_ANOTHER.contains(&finding.id) && finding.severity == Severity::Error;
    if binary.member.is_some() || !found.iter().any(wrong) {
        return found;
    }
    let Ok(Ok(cache)) = cache(case) else { return found };
    // Only the first of an op's libraries is loaded by the next process.
    let is_loaded = |op: &&CachedOp| op.library().is_some_and(|library| op.path.join(&library.name) == binary.path);
    let Some(op) = cache.ops().find(is_loaded) else { return found };
    match next_load(&cache, op) {
        Next::BuildsAnew(why) => found.iter_mut().filter(|finding| wrong(finding)).for_each(|finding| {
            finding.severity = Severity::Info;
            finding.consequence = format!("the next load builds `{}` anew, since {why}", op.name);
            finding.fixes.clear();
        }),
        Next::Keeps => found.insert(0, stale(&cache, op)),
        Next::Unknown => {}
    }
    found
}

/// What ninja does with an op when it is loaded the next time.
enum Next {
    BuildsAnew(String),
    Keeps,
    /// Its file for ninja is not there.
    Unknown,
}

fn next_load(cache: &Cache<'_>, op: &CachedOp) -> Next {
    let Some(torch) = &op.torch_path else { return Next::Unknown };
    if *torch != cache.torch.path {
        return Next::BuildsAnew(format!("it was built with the torch of `{torch}`"));
    }
    if op.objects.iter().any(|object| object.outdated) {
        return Next::BuildsAnew("a source of its is newer".to_owned());
    }
    Next::Keeps
}

fn stale(cache: &Cache<'_>, op: &CachedOp) -> Finding {
    const ID: &str = "stale-jit-cache";
    Finding::error(ID, format!("`{}` in the extension cache was built against another torch than this one, and ninja keeps it", op.name))
        .seen(super::torch::shown(cache.torch))
        .seen(Evidence::new("built with", "the torch in the same place").at(&op.path).said_by("build.ninja"))
        .then("ninja compares the op's sources, not torch's headers, and loads what is there")
        .fix(Fix::run(["rm".to_owned(), "-r".to_owned(), op.path.to_string()], "the next load builds anew").curing(ID))
}
