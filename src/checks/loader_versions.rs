//! Libraries of the system that are older than what torch, an op in the extension cache, or one that came with DeepSpeed was built against.

use super::driver_libs::{library_at, source, taken_out};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::cache::CachedOp;
use crate::facts::elf::ElfFacts;
use crate::facts::observed::Missing;
use crate::facts::observed::Observed;
use crate::facts::python::EnvironmentKind;
use crate::facts::raw::HostPath;
use crate::facts::torch::{PrebuiltOp, Torch};
use crate::finding::{Evidence, Finding, Fix};
use crate::model::loader::{Answer, Via};
use crate::text::join;
use crate::version::Dotted;

pub const CHECKS: &[Check] = &[Check { id: "glibcxx-not-found", run: glibcxx }, Check { id: "glibc-not-found", run: glibc }];

/// What one library needs: the highest of a family of versions.
struct Need<'a> {
    whose: Whose<'a>,
    path: HostPath,
    family: &'static str,
    version: Dotted,
}

#[derive(Clone, Copy)]
enum Whose<'a> {
    Torch,
    /// In the extension cache.
    Cached(&'a CachedOp),
    /// Built with DeepSpeed's wheel.
    Prebuilt(&'a PrebuiltOp),
}

impl<'a> Whose<'a> {
    const fn cached(self) -> Option<&'a CachedOp> {
        match self {
            Self::Cached(op) => Some(op),
            Self::Torch | Self::Prebuilt(_) => None,
        }
    }
}

/// The highest versions of these families that torch's libraries need.
fn of_torch<'a>(torch: &'a Torch, families: &[&'static str]) -> Vec<Need<'a>> {
    let highest = |family: &'static str| {
        let needs = torch.libs.iter().filter_map(|(name, elf): (&String, &ElfFacts)| Some((name, elf.highest_need(family)?)));
        let (name, version) = needs.max_by(|(_, one), (_, other)| one.cmp(other))?;
        Some(Need { whose: Whose::Torch, path: torch.path.join("lib").join(name), family, version })
    };
    families.iter().filter_map(|family| highest(family)).collect()
}

/// The same of each op that the next load takes from the cache as it is: built against this very torch, nothing newer than its objects.
fn of_cache<'a>(case: &Case<'a>, families: &[&'static str]) -> Result<Vec<Need<'a>>, Missing> {
    let Ok(cache) = super::cache::cache(case)? else { return Ok(Vec::new()) };
    let kept = |op: &&CachedOp| op.torch_path.as_ref() == Some(&cache.torch.path) && op.objects.iter().all(|object| !object.outdated);
    let mut needs = Vec::new();
    for op in cache.ops().filter(kept) {
        let Some(library) = op.library() else { continue };
        let path = op.path.join(&library.name);
        let elf = match &library.elf {
            Observed::Failed { why } => return Err(Missing { topic: "cache", why: format!("`{path}`: {why}"), failed: false }),
            elf => elf.value(),
        };
        needs.extend(of_library(Whose::Cached(op), &path, elf, families));
    }
    Ok(needs)
}

fn of_library<'a>(
    whose: Whose<'a>,
    path: &HostPath,
    elf: Option<&'a ElfFacts>,
    families: &[&'static str],
) -> impl Iterator<Item = Need<'a>> {
    families.iter().filter_map(move |family| Some(Need { whose, path: path.clone(), family, version: elf?.highest_need(family)? }))
}

/// The same of each op that came with DeepSpeed and that it does not turn down before it is loaded.
fn of_wheel<'a>(case: &Case<'a>, torch: &Torch, families: &[&'static str]) -> Result<Vec<Need<'a>>, Missing> {
    let Some(deepspeed) = case.deepspeed()? else { return Ok(Vec::new()) };
    let Some(built) = deepspeed.built.value() else { return Ok(Vec::new()) };
    if built.torch.as_ref().is_some_and(|then| *then != torch.version.major_minor()) {
        return Ok(Vec::new());
    }
    let mut needs = Vec::new();
    for op in &deepspeed.binaries {
        let elf = match &op.elf {
            Observed::Failed { why } => return Err(Missing { topic: "deepspeed", why: format!("`{}`: {why}", op.path), failed: false }),
            elf => elf.value(),
        };
        needs.extend(of_library(Whose::Prebuilt(op), &op.path, elf, families));
    }
    Ok(needs)
}

/// Of all ops that a process takes as they are.
fn of_ops<'a>(case: &Case<'a>, torch: &Torch, families: &[&'static str]) -> Result<Vec<Need<'a>>, Missing> {
    let mut needs = of_cache(case, families)?;
    needs.extend(of_wheel(case, torch, families)?);
    Ok(needs)
}

/// What was built on a system of a newer libc is told by `glibc-not-found`: one cause.
fn without_those_of_a_newer_libc<'a>(case: &Case<'a>, torch: &Torch, mut needs: Vec<Need<'a>>) -> Vec<Need<'a>> {
    let libc = of_ops(case, torch, &["GLIBC"]).unwrap_or_default();
    let too_new = |need: &Need<'_>| case.facts.host.glibc.value().is_some_and(|have| *have < need.version);
    needs.retain(|need| !libc.iter().any(|other| too_new(other) && other.path == need.path));
    needs
}

/// What is wrong for torch, else for the ops: where torch itself does not start, no op comes into it.
fn unmet<'n, 'a>(torch: &'n [Need<'a>], ops: &'n [Need<'a>], fits: impl Fn(&Need<'a>) -> bool) -> Vec<&'n Need<'a>> {
    let first = torch.iter().find(|need| !fits(need));
    first.map_or_else(|| ops.iter().filter(|need| !fits(need)).collect(), |first| vec![first])
}

/// `torch 2.7.1 needs`, `cpu_adam and fused_adam in the extension cache need` or `fused_adam_op, which came with DeepSpeed, needs`.
fn who(torch: &Torch, unmet: &[&Need<'_>]) -> String {
    let mut cached: Vec<String> = unmet.iter().filter_map(|need| need.whose.cached()).map(|op| format!("`{}`", op.name)).collect();
    cached.dedup();
    let mut prebuilt: Vec<String> = unmet
        .iter()
        .filter_map(|need| match need.whose {
            Whose::Prebuilt(op) => Some(format!("`{}`", op.module)),
            Whose::Torch | Whose::Cached(_) => None,
        })
        .collect();
    prebuilt.dedup();
    let verb = if cached.len() + prebuilt.len() > 1 { "need" } else { "needs" };
    match (cached.is_empty(), prebuilt.is_empty()) {
        (true, true) => format!("torch {} needs", torch.version),
        (false, true) => format!("{} in the extension cache {verb}", join(&cached)),
        (true, false) => format!("{}, built with DeepSpeed's wheel, {verb}", join(&prebuilt)),
        (false, false) => format!("{} in the extension cache and {}, built with DeepSpeed's wheel, {verb}", join(&cached), join(&prebuilt)),
    }
}

fn stops(need: &Need<'_>) -> String {
    match need.whose {
        Whose::Torch => "`import torch` stops".to_owned(),
        Whose::Cached(op) => format!("the load of `{}` stops", op.name),
        Whose::Prebuilt(op) => format!("the load of `{}` stops", op.module),
    }
}

/// Objects that were compiled on another system: built here they fit.
fn built_anew(unmet: &[&Need<'_>], id: &'static str) -> Option<Fix> {
    let mut folders: Vec<String> = unmet.iter().filter_map(|need| need.whose.cached()).map(|op| op.path.to_string()).collect();
    folders.dedup();
    if unmet.iter().any(|need| matches!(need.whose, Whose::Prebuilt(_))) {
        let wheel = "build DeepSpeed's wheel on this system or an older one (`ds-doctor plan --wheel`), or install it without ops: they are then built when they are used";
        return Some(Fix::advice(wheel).curing(id));
    }
    let words = ["rm", "-r"].map(str::to_owned).into_iter();
    (!folders.is_empty()).then(|| Fix::run(words.chain(folders), "the next load builds anew, with this system's compiler").curing(id))
}

/// The gcc that brought a version of libstdc++. Source: GCC libstdc++ manual, ABI policy.
const GCC: &[(u32, u32)] = &[(21, 5), (22, 6), (24, 7), (25, 8), (28, 9), (29, 11), (30, 12), (32, 13), (33, 14), (34, 15)];

fn glibcxx(case: &Case<'_>) -> Judgement {
    const ID: &str = "glibcxx-not-found";
    const LIBRARY: &str = "libstdc++.so.6";
    const FAMILIES: [&str; 2] = ["GLIBCXX", "CXXABI"];
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let own = of_torch(torch, &FAMILIES);
    let ops = of_ops(case, torch, &FAMILIES).map(|needs| without_those_of_a_newer_libc(case, torch, needs));
    if own.is_empty() && ops.as_ref().is_ok_and(Vec::is_empty) {
        return Ok(Verdict::not_applicable("torch's libraries need no version of libstdc++"));
    }
    let (path, via) = match case.process()?.torch_gets(LIBRARY) {
        Answer::Found { path, via } => (path, via),
        Answer::Unknown { why } => return Err(Missing { topic: "libraries", why, failed: false }),
        Answer::Refused { .. } | Answer::NotFound { .. } => {
            return Err(Missing { topic: "libraries", why: format!("the loader finds no {LIBRARY}"), failed: false });
        }
    };
    let library = library_at(case, &path);
    let elf = library.and_then(|library| library.elf.value());
    let Some((library, elf)) = library.zip(elf) else {
        return Err(Missing { topic: "libraries", why: format!("`{path}` could not be read"), failed: false });
    };
    let [Some(glibcxx), Some(cxxabi)] = FAMILIES.map(|family| elf.highest_definition(family)) else {
        return Err(Missing { topic: "libraries", why: format!("`{path}` says nothing of its versions"), failed: false });
    };
    let offered = |family: &str| if family == "GLIBCXX" { &glibcxx } else { &cxxabi };
    let unmet = unmet(&own, ops.as_deref().unwrap_or_default(), |need| *offered(need.family) >= need.version);
    let Some(highest) = unmet.iter().max_by(|one, other| (one.family, &one.version).cmp(&(other.family, &other.version))) else {
        return ops.map(|_| Verdict::Pass);
    };
    let (family, needed, offered) = (highest.family, &highest.version, offered(highest.family));
    let finding = Finding::error(
        ID,
        format!("{} `{family}_{needed}`, and the {LIBRARY} that loads has `{family}_{offered}` at most", who(torch, &unmet)),
    )
    .seen(Evidence::new("needed", format!("{family}_{needed}")).at(&highest.path))
    .seen(Evidence::new(LIBRARY, format!("{family}_{offered}")).at(&path).from(&source(case, &path)))
    .then(format!("{} with ``{path}: version `{family}_{needed}' not found``", stops(highest)));
    let gcc = GCC.iter().find(|(number, _)| family == "GLIBCXX" && *number >= needed.part(2)).map(|(_, gcc)| gcc);
    let conda = case.python()?.is_some_and(|python| python.kind == EnvironmentKind::Conda && path.starts_with(&python.prefix));
    let fix = match via {
        Via::LibraryPath { .. } | Via::Preloaded => taken_out(case, library, &via, ID),
        // What the system's compiler builds would need as much again.
        _ if conda => {
            let package = gcc.map_or("libstdcxx-ng".to_owned(), |gcc| format!("libstdcxx-ng>={gcc}"));
            Fix::run(["conda", "install", "-y", "-c", "conda-forge", &package], "into this environment").curing(ID)
        }
        _ => built_anew(&unmet, ID)
            .unwrap_or_else(|| Fix::advice("use a newer system or container, or a torch that was built for this one").curing(ID)),
    };
    Ok(Verdict::found(finding.fix(fix)))
}

fn glibc(case: &Case<'_>) -> Judgement {
    const ID: &str = "glibc-not-found";
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let own = of_torch(torch, &["GLIBC"]);
    let ops = of_ops(case, torch, &["GLIBC"]);
    if own.is_empty() && ops.as_ref().is_ok_and(Vec::is_empty) {
        return Ok(Verdict::not_applicable("torch's libraries need no version of glibc"));
    }
    let Some(have) = case.facts.host.glibc.get("glibc")? else { return Ok(Verdict::not_applicable("this system has no glibc")) };
    let unmet = unmet(&own, ops.as_deref().unwrap_or_default(), |need| *have >= need.version);
    let Some(highest) = unmet.iter().max_by(|one, other| one.version.cmp(&other.version)) else { return ops.map(|_| Verdict::Pass) };
    let needed = &highest.version;
    let advice = "use a container of a newer distribution (the host's driver stays as it is), or a torch that was built for this one; never replace the system's libc";
    let finding = Finding::error(ID, format!("{} glibc {needed}, and this system has {have}", who(torch, &unmet)))
        .seen(Evidence::new("needed", format!("GLIBC_{needed}")).at(&highest.path))
        .seen(Evidence::new("glibc", have.to_string()))
        .then(format!("{} with ``version `GLIBC_{needed}' not found``", stops(highest)))
        .fix(built_anew(&unmet, ID).unwrap_or_else(|| Fix::advice(advice).curing(ID)));
    Ok(Verdict::found(finding))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::{SITE, SYSTEM_LIB, add, ask, elf, machine, one, op, python, quiet, root, with_torch};
    use super::*;
    use crate::facts::cache::{CacheFacts, CacheRoot, CachedLibrary};
    use crate::facts::elf::VersionNeed;
    use crate::facts::snapshot::Snapshot;
    use crate::facts::source::Source;
    use crate::facts::torch::{DeepSpeed, InstalledOps};
    use crate::finding::Action;

    fn with_needs(library: &str, versions: &[&str]) -> Snapshot {
        let mut facts = machine();
        let torch = with_torch(&mut facts, "2.7.1+cu128", "12.8", &[]);
        let versions = versions.iter().map(|version| (*version).to_owned()).collect();
        let lib = torch.libs.get_mut("libtorch_cuda.so").unwrap();
        lib.version_needs = vec![VersionNeed { library: library.to_owned(), versions, weak: Vec::new() }];
        lib.needed.push(library.to_owned());
        facts
    }

    fn with_libstdcxx(folder: &str, source: Source, offered: &str) -> Snapshot {
        let mut facts = with_needs("libstdc++.so.6", &["GLIBCXX_3.4.21", "GLIBCXX_3.4.29"]);
        let library = add(&mut facts, &format!("{folder}/libstdc++.so.6"), source);
        library.elf.value_mut().unwrap().version_definitions = ["GLIBCXX_3.4", offered, "CXXABI_1.3"].map(str::to_owned).into();
        facts
    }

    #[test]
    fn an_old_libstdcxx() {
        assert!(quiet(&ask(glibcxx, &with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "GLIBCXX_3.4.30"))));
        let finding = one(ask(glibcxx, &with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "GLIBCXX_3.4.28")));
        assert!(finding.title.contains("`GLIBCXX_3.4.29`") && finding.title.contains("`GLIBCXX_3.4.28` at most"), "{}", finding.title);
        let mut facts = with_libstdcxx("/opt/matlab", Source::entry("LD_LIBRARY_PATH", 1), "GLIBCXX_3.4.22");
        facts.env.set("LD_LIBRARY_PATH", "/opt/matlab");
        assert!(matches!(&one(ask(glibcxx, &facts)).fixes[0].action, Action::RemovePath { dir, .. } if dir.to_string() == "/opt/matlab"));
    }

    #[test]
    fn the_libstdcxx_of_conda() {
        let mut facts = with_libstdcxx("/opt/conda/lib", Source::Conda { prefix: "/opt/conda".into() }, "GLIBCXX_3.4.26");
        let python = &mut facts.pythons.value_mut().unwrap()[0];
        python.kind = EnvironmentKind::Conda;
        python.real = "/opt/conda/bin/python3.11".into();
        (python.prefix, python.base_prefix) = ("/opt/conda".into(), "/opt/conda".into());
        let fix = &one(ask(glibcxx, &facts)).fixes[0];
        assert!(matches!(&fix.action, Action::Run { argv, .. } if argv.last().unwrap() == "libstdcxx-ng>=11"), "{fix:?}");
    }

    #[test]
    fn a_libstdcxx_that_says_nothing() {
        assert!(ask(glibcxx, &with_needs("libstdc++.so.6", &["GLIBCXX_3.4.29"])).is_err(), "there is none");
        assert!(ask(glibcxx, &with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "OTHER_1")).is_err() || quiet(&ask(glibcxx, &machine())));
    }

    #[test]
    fn an_old_glibc() {
        let mut facts = with_needs("libc.so.6", &["GLIBC_2.17", "GLIBC_2.28", "GLIBC_PRIVATE"]);
        assert!(quiet(&ask(glibc, &facts)));
        facts.host.glibc = Observed::seen("2.27".parse().unwrap());
        let finding = one(ask(glibc, &facts));
        assert!(finding.title.ends_with("needs glibc 2.28, and this system has 2.27"), "{}", finding.title);
        facts.host.glibc = Observed::failed("unreadable");
        assert!(ask(glibc, &facts).is_err());
    }

    const ROOT: &str = "/root/.cache/torch_extensions";

    /// A machine whose torch fits, and in its cache an op that needs these.
    fn with_op(needs: &[(&str, &str)]) -> Snapshot {
        let mut facts = with_libstdcxx(SYSTEM_LIB, Source::DefaultFolder, "GLIBCXX_3.4.30");
        let mut library = elf("", &["libstdc++.so.6", "libc.so.6"]);
        library.version_needs = needs
            .iter()
            .map(|(library, node)| VersionNeed { library: (*library).to_owned(), versions: vec![(*node).to_owned()], weak: Vec::new() })
            .collect();
        let op = CachedOp {
            tag: Some("py311_cu128".to_owned()),
            path: format!("{ROOT}/py311_cu128/cpu_adam").into(),
            torch_path: Some(format!("{SITE}/torch").into()),
            libraries: vec![CachedLibrary { name: "cpu_adam.so".to_owned(), elf: Observed::seen(library), device: Observed::default() }],
            ..op("cpu_adam")
        };
        let root = CacheRoot {
            path: ROOT.into(),
            source: Source::UsualPlace,
            exists: true,
            writable: Observed::seen(true),
            closed: Vec::new(),
            ops: vec![op],
        };
        facts.cache = Observed::seen(CacheFacts { roots: vec![root] });
        facts
    }

    fn of(facts: &mut Snapshot) -> &mut CachedOp {
        &mut root(facts).ops[0]
    }

    #[test]
    fn an_op_that_was_built_elsewhere() {
        const LIBC: (&str, &str) = ("libc.so.6", "GLIBC_2.38");
        const STDCXX: (&str, &str) = ("libstdc++.so.6", "GLIBCXX_3.4.32");
        let facts = with_op(&[STDCXX]);
        let finding = one(ask(glibcxx, &facts));
        assert!(
            finding.title.starts_with("`cpu_adam` in the extension cache needs `GLIBCXX_3.4.32`, and the libstdc++"),
            "{}",
            finding.title
        );
        let removed = |finding: &Finding| matches!(&finding.fixes[0].action, Action::Run { argv, .. } if argv[0] == "rm" && argv[2].ends_with("/cpu_adam"));
        assert!(removed(&finding), "{finding:?}");
        assert!(quiet(&ask(glibc, &facts)));
        // Another system altogether: one cause, told once.
        let facts = with_op(&[STDCXX, LIBC]);
        assert!(removed(&one(ask(glibc, &facts))) && quiet(&ask(glibcxx, &facts)));
        // What the loader takes from elsewhere has to go from there.
        let mut facts = with_op(&[("libstdc++.so.6", "GLIBCXX_3.4.30")]);
        let library = add(&mut facts, "/opt/app/libstdc++.so.6", Source::entry("LD_LIBRARY_PATH", 1));
        library.elf.value_mut().unwrap().version_definitions = ["GLIBCXX_3.4.29", "CXXABI_1.3"].map(str::to_owned).into();
        assert!(quiet(&ask(glibcxx, &facts)));
        facts.env.set("LD_LIBRARY_PATH", "/opt/app");
        assert!(matches!(&one(ask(glibcxx, &facts)).fixes[0].action, Action::RemovePath { .. }));
    }

    #[test]
    fn an_op_that_came_with_deepspeed() {
        let with = |torch: &str, needs: &[(&str, &str)]| {
            let mut facts = with_op(needs);
            let library = root(&mut facts).ops.remove(0).libraries.remove(0);
            let binaries = vec![PrebuiltOp {
                module: "fused_adam_op".to_owned(),
                path: format!("{SITE}/deepspeed/ops/adam/fused_adam_op.so").into(),
                elf: library.elf,
                device: Observed::default(),
            }];
            let built =
                InstalledOps { ops: [("fused_adam".to_owned(), true)].into(), torch: Some(torch.to_owned()), ..InstalledOps::default() };
            python(&mut facts).deepspeed = Observed::seen(DeepSpeed {
                path: format!("{SITE}/deepspeed").into(),
                version: "0.16.9".parse().unwrap(),
                built: Observed::seen(built),
                editable: false,
                binaries,
            });
            facts
        };
        let finding = one(ask(glibc, &with("2.7", &[("libc.so.6", "GLIBC_2.38")])));
        assert!(finding.title.starts_with("`fused_adam_op`, built with DeepSpeed's wheel, needs glibc 2.38"), "{}", finding.title);
        assert!(matches!(finding.fixes[0].action, Action::Advice { .. }), "{finding:?}");
        assert!(!quiet(&ask(glibcxx, &with("2.7", &[("libstdc++.so.6", "GLIBCXX_3.4.32")]))));
        assert!(quiet(&ask(glibc, &with("2.7", &[("libc.so.6", "GLIBC_2.17")]))));
        // DeepSpeed turns it down before the loader sees it.
        assert!(quiet(&ask(glibc, &with("2.6", &[("libc.so.6", "GLIBC_2.38")]))));
    }

    #[test]
    fn an_op_that_is_built_anew_or_not_loaded() {
        let with = |change: fn(&mut CachedOp)| {
            let mut facts = with_op(&[("libstdc++.so.6", "GLIBCXX_3.4.32")]);
            change(of(&mut facts));
            facts
        };
        assert!(!quiet(&ask(glibcxx, &with(|_| {}))));
        assert!(quiet(&ask(glibcxx, &with(|op| op.torch_path = Some("/other/torch".into())))));
        assert!(quiet(&ask(glibcxx, &with(|op| op.tag = Some("py312_cu128".to_owned())))));
        assert!(quiet(&ask(glibcxx, &with(|op| op.objects[0].outdated = true))));
        assert!(quiet(&ask(glibcxx, &with(|op| op.libraries[0].name = "cpu_adam_v1.so".to_owned()))));
        let unreadable = with(|op| op.libraries[0].elf = Observed::failed("cut short"));
        assert!(ask(glibcxx, &unreadable).is_err() && ask(glibc, &unreadable).is_err());
    }
}
