//! The driver's libraries: whether the loader finds them.

use super::driver::{at_work, release, start_with_gpus, ubuntu};
use super::remedy::as_root;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::gpu::{DriverFacts, DriverKind};
use crate::facts::loader::Library;
use crate::facts::observed::{Missing, Observed};
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Subject;
use crate::facts::source::Source;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::loader::{Answer, Via};
use crate::text::join;
use crate::version::Dotted;
use std::path::Path;

pub const CHECKS: &[Check] = &[Check { id: "libcuda-not-found", run: libcuda }, Check { id: "libnvidia-ml-not-found", run: nvml }];

pub const LIBCUDA: &str = "libcuda.so.1";
pub const NVML: &str = "libnvidia-ml.so.1";

/// Where WSL puts Windows' driver.
const WSL: &str = "/usr/lib/wsl/lib";

/// What a CUDA program gets that opens `libcuda.so.1`.
///
/// # Errors
/// When the libraries of this machine are not known.
pub fn libcuda_answer(case: &Case<'_>) -> Result<Answer, Missing> {
    Ok(case.process()?.extension_gets(LIBCUDA))
}

/// The known file at a path.
pub fn library_at<'a>(case: &Case<'a>, path: &Path) -> Option<&'a Library> {
    case.facts.loader.value()?.libraries.iter().find(|library| *library.path == *path)
}

/// The file that would be loaded under a name.
pub fn loaded<'a>(case: &Case<'a>, name: &str) -> Result<Option<&'a Library>, Missing> {
    let answer = case.process()?.extension_gets(name);
    Ok(answer.path().and_then(|path| library_at(case, path)))
}

pub fn in_folder(path: &Path, name: &str) -> bool {
    path.components().any(|component| component.as_os_str() == name)
}

/// A toolkit's stub, which serves the linker only.
pub fn is_stub(library: &Library) -> bool {
    in_folder(&library.path, "stubs") || in_folder(&library.real, "stubs")
}

/// Of a cuda-compat package: a newer libcuda for an older kernel module.
pub fn is_compat(library: &Library) -> bool {
    let compat =
        |path: &Path| in_folder(path, "compat") || path.components().any(|c| c.as_os_str().to_string_lossy().starts_with("cuda-compat"));
    compat(&library.path) || compat(&library.real)
}

/// What a library of the driver is for.
struct Role {
    id: &'static str,
    name: &'static str,
    family: &'static str,
    /// What must be in NVIDIA_DRIVER_CAPABILITIES for it.
    capability: &'static str,
    /// Debian's package.
    package: &'static str,
    then: &'static str,
}

fn libcuda(case: &Case<'_>) -> Judgement {
    absent(
        case,
        &Role {
            id: "libcuda-not-found",
            name: LIBCUDA,
            family: "cuda",
            capability: "compute",
            package: "libcuda1",
            then: "torch finds no driver (`Found no NVIDIA driver on your system`), and what is linked with it stops with `libcuda.so.1: cannot open shared object file`",
        },
        |driver| driver.libcuda.value().map(|answer| &answer.library),
    )
}

fn nvml(case: &Case<'_>) -> Judgement {
    absent(
        case,
        &Role {
            id: "libnvidia-ml-not-found",
            name: NVML,
            family: "nvidia-ml",
            capability: "utility",
            package: "libnvidia-ml1",
            then: "`nvidia-smi`, monitoring and checks of torch, DeepSpeed and NCCL stop or warn: `NVML Shared Library Not Found`, `Can't initialize NVML`",
        },
        |driver| driver.nvml.value().map(|answer| &answer.library),
    )
}

fn absent(case: &Case<'_>, role: &Role, asked: fn(&DriverFacts) -> Option<&crate::facts::gpu::Library>) -> Judgement {
    let driver = match at_work(case)? {
        Ok(driver) => driver,
        Err(verdict) => return Ok(verdict),
    };
    // Jetson has no NVML of its own before JetPack 7.
    if driver.kind == DriverKind::Tegra && role.name == NVML {
        return Ok(Verdict::not_applicable("a Jetson needs none"));
    }
    let answer = case.process()?.extension_gets(role.name);
    let all: Vec<&Library> = case.facts.loader.value().into_iter().flat_map(|loader| loader.of(role.family)).collect();
    let copies: Vec<&Library> = all
        .iter()
        .copied()
        .filter(|library| library.name == role.name && library.elf.value().is_some() && !is_stub(library) && !is_compat(library))
        .collect();
    let (title, seen) = match &answer {
        Answer::Found { .. } => return Ok(Verdict::Pass),
        Answer::Unknown { why } => return Err(Missing { topic: "libraries", why: why.clone(), failed: false }),
        Answer::Refused { path, why, .. } => (
            format!("the first `{}` that the loader meets is no library: {why}", role.name),
            vec![Evidence::new(role.name, why.clone()).at(path).from(&source(case, path))],
        ),
        Answer::NotFound { no_cache } => {
            // The worker found it where the facts do not look.
            if asked(driver).and_then(|library| library.path.as_ref()).is_some_and(|path| !all.iter().any(|known| known.real == *path)) {
                return Ok(Verdict::Pass);
            }
            if *no_cache && !copies.is_empty() && case.facts.subject != Subject::Machine {
                let why = "there is no `/etc/ld.so.cache` in this tree, and a folder that it may list has the library".to_owned();
                return Err(Missing { topic: "loader's cache", why, failed: false });
            }
            let dangling = all.iter().filter(|library| library.name == role.name).find_map(|library| match &library.elf {
                Observed::Absent { looked } => {
                    Some(Evidence::new(role.name, format!("a link to `{}`, which is not there", join(looked))).at(&library.path))
                }
                _ => None,
            });
            let elsewhere = copies.first().map(|copy| Evidence::new(role.name, "in a folder that is not searched").at(&copy.path));
            (format!("the loader finds no `{}`, and a driver is at work", role.name), dangling.into_iter().chain(elsewhere).collect())
        }
    };
    let mut finding = Finding::error(role.id, title)
        .seen(Evidence::new("driver", release(driver).map(ToString::to_string).unwrap_or_default()).at(&driver.shown_by))
        .then(role.then);
    for evidence in seen {
        finding = finding.seen(evidence);
    }
    if !case.facts.gpu.nodes.iter().any(|node| node.path.to_string().starts_with("/dev/nvidia")) && driver.kind == DriverKind::Native {
        finding = finding.seen(Evidence::new("device nodes", "none").said_by("/dev/nvidia*"));
    }
    Ok(Verdict::found(cures(case, driver, role, &answer, &copies, finding)))
}

/// How the library came to be looked at.
pub fn source(case: &Case<'_>, path: &Path) -> Source {
    library_at(case, path).and_then(|library| library.sources.first()).cloned().unwrap_or(Source::DefaultFolder)
}

fn cures(case: &Case<'_>, driver: &DriverFacts, role: &Role, answer: &Answer, copies: &[&Library], mut finding: Finding) -> Finding {
    // A copy that fits, in a folder that is not searched.
    let module = driver.kernel.value().map(|module| &module.version);
    let fits = |library: &&&Library| module.is_none() || library.release.as_ref().is_none_or(|release| Some(release) == module);
    let copy = copies.iter().find(fits).and_then(|library| library.path.parent());
    if let Answer::Refused { path, via, .. } = answer {
        if let (Via::LibraryPath { entry }, Some(_)) = (via, copy)
            && let Some(dir) = entry.checked_sub(1).and_then(|at| case.facts.env.entries("LD_LIBRARY_PATH").get(at).cloned())
        {
            return finding.fix(Fix::remove("LD_LIBRARY_PATH", &HostPath::new(dir), "another copy is found without it"));
        }
        let title = "left by another driver; the container's runtime or the driver's packages bring the right one";
        return finding.fix(as_root(case, ["rm", &path.to_string()], title).curing(role.id));
    }
    if let (Answer::NotFound { .. }, Some(folder)) = (answer, copy) {
        finding = finding.fix(Fix::prepend("LD_LIBRARY_PATH", &HostPath::new(folder), "the folder that holds the driver's libraries"));
        let file = if driver.kind == DriverKind::Wsl { "wsl" } else { "nvidia-driver" };
        let script = format!("echo '{}' > /etc/ld.so.conf.d/{file}.conf && ldconfig", folder.display());
        return finding.fix(as_root(case, ["sh", "-c", &script], "for every program, for good").curing(role.id).or(1));
    }
    if driver.kind == DriverKind::Wsl {
        let advice = format!(
            "update NVIDIA's driver for Windows, then `wsl --update` and `wsl --shutdown`: WSL puts the library into `{WSL}`; install no Linux driver"
        );
        return finding.fix(Fix::advice(advice).curing(role.id));
    }
    if let Some(kind) = case.facts.host.container.as_deref() {
        finding = finding.seen(Evidence::new("container", kind.to_owned()));
        let capabilities = case
            .facts
            .env
            .text("NVIDIA_DRIVER_CAPABILITIES")
            .filter(|text| !text.split(',').any(|word| word == role.capability || word == "all"));
        let advice = match &capabilities {
            Some(words) => {
                format!("add `{}` to NVIDIA_DRIVER_CAPABILITIES, which is `{words}`, and start the container again", role.capability)
            }
            None => start_with_gpus(kind),
        };
        if let Some(words) = capabilities {
            finding = finding.seen(Evidence::new("NVIDIA_DRIVER_CAPABILITIES", words).said_by("environment"));
        }
        return finding.fix(Fix::advice(advice).curing(role.id));
    }
    let branch = module.map(Dotted::major);
    let debian = case.facts.host.os.value().is_some_and(|os| os.id == "debian");
    finding.fix(match branch {
        Some(branch) if ubuntu(case) => as_root(
            case,
            ["apt-get", "install", "-y", "--reinstall", &format!("libnvidia-compute-{branch}")],
            "the libraries of the module's branch",
        )
        .curing(role.id),
        Some(_) if debian => {
            as_root(case, ["apt-get", "install", "-y", "--reinstall", role.package], "must be of the kernel module's release")
                .curing(role.id)
        }
        _ => Fix::advice(
            "install the driver's libraries, of the kernel module's very release, from where the driver came; then run `ldconfig`",
        )
        .curing(role.id),
    })
}

/// The step that takes a library's folder off the loader's search.
pub fn taken_out(case: &Case<'_>, library: &Library, via: &Via, id: &'static str) -> Fix {
    let folder = library.path.parent().unwrap_or(&library.path);
    match via {
        Via::LibraryPath { entry } => {
            let entry = entry.checked_sub(1).and_then(|at| case.facts.env.entries("LD_LIBRARY_PATH").get(at).cloned());
            Fix::remove("LD_LIBRARY_PATH", &HostPath::new(entry.unwrap_or_else(|| folder.to_owned())), "torch needs no folder there")
        }
        Via::Cache => {
            let script = format!("sed -i '\\|^{}/*$|d' /etc/ld.so.conf /etc/ld.so.conf.d/*.conf && ldconfig", folder.display());
            as_root(case, ["sh", "-c", &script], "takes the folder out of the loader's configuration").curing(id)
        }
        Via::Preloaded => Fix::advice(format!("take `{}` out of LD_PRELOAD or /etc/ld.so.preload", library.path)).curing(id),
        Via::Rpath { .. } | Via::Runpath { .. } | Via::DefaultFolder | Via::ByPath => {
            Fix::advice(format!("remove the package that put `{}` there", library.path)).curing(id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{SYSTEM_LIB, add, ask, ask_for, cache, driver, found, loader, machine, one, quiet, with_driver, with_torch};
    use super::*;
    use crate::facts::gpu::{self, NvmlFacts, Status};
    use crate::facts::snapshot::Snapshot;
    use crate::finding::Action;

    #[test]
    fn whole_machines_are_quiet() {
        let mut torch = with_driver("550.54.15");
        with_torch(&mut torch, "2.6.0+cu124", "12.4", &[]);
        for facts in [machine(), with_driver("550.54.15"), torch] {
            for check in CHECKS {
                assert!(quiet(&ask(check.run, &facts)), "{}", check.id);
            }
        }
    }

    fn without_libraries() -> Snapshot {
        let mut facts = with_driver("550.54.15");
        loader(&mut facts).libraries.clear();
        facts
    }

    #[test]
    fn libraries_that_are_nowhere() {
        let facts = without_libraries();
        let finding = one(ask(libcuda, &facts));
        assert!(matches!(&finding.fixes[0].action, Action::Run { argv, .. } if argv.contains(&"libnvidia-compute-550".to_owned())));
        assert_eq!(one(ask(nvml, &facts)).id, "libnvidia-ml-not-found");
        assert!(quiet(&ask_for(libcuda, &facts, Purpose::Build)));
    }

    #[test]
    fn a_container_without_its_capabilities() {
        let mut facts = without_libraries();
        facts.host.container = Some("docker".to_owned());
        let advice = |facts: &Snapshot| match &one(ask(libcuda, facts)).fixes[0].action {
            Action::Advice { text } => text.clone(),
            other => format!("{other:?}"),
        };
        assert!(advice(&facts).contains("--gpus all"));
        facts.env.set("NVIDIA_DRIVER_CAPABILITIES", "utility,video");
        assert!(advice(&facts).starts_with("add `compute` to NVIDIA_DRIVER_CAPABILITIES, which is `utility,video`"), "{}", advice(&facts));
        facts.env.set("NVIDIA_DRIVER_CAPABILITIES", "all");
        assert!(advice(&facts).contains("--gpus all"));
    }

    #[test]
    fn a_copy_that_is_not_searched() {
        let mut facts = without_libraries();
        let driver = driver(&mut facts);
        driver.kind = DriverKind::Wsl;
        driver.kernel = Observed::absent(["/proc/driver/nvidia/version"]);
        add(&mut facts, "/usr/lib/wsl/lib/libcuda.so.1", Source::UsualPlace);
        let finding = one(ask(libcuda, &facts));
        assert_eq!(finding.fixes[0], Fix::prepend("LD_LIBRARY_PATH", &WSL.into(), "the folder that holds the driver's libraries"));
        facts.env.set("LD_LIBRARY_PATH", WSL);
        assert!(quiet(&ask(libcuda, &facts)));
        facts.env.unset("LD_LIBRARY_PATH");
        cache(&mut facts, "/usr/lib/wsl/lib/libcuda.so.1");
        assert!(quiet(&ask(libcuda, &facts)));
        loader(&mut facts).cache = Observed::absent(["/etc/ld.so.cache"]);
        facts.subject = Subject::Tree { root: "/x".into() };
        assert!(ask(libcuda, &facts).is_err(), "a cache made later may list it");
    }

    #[test]
    fn an_empty_file_of_another_driver() {
        let mut facts = without_libraries();
        add(&mut facts, &format!("{SYSTEM_LIB}/libcuda.so.1"), Source::DefaultFolder).elf = Observed::failed("an empty file");
        let finding = one(ask(libcuda, &facts));
        assert!(finding.title.ends_with("is no library: an empty file"), "{}", finding.title);
        loader(&mut facts).libraries[0].elf = Observed::absent(["libcuda.so.535.54.03"]);
        assert!(one(ask(libcuda, &facts)).evidence.iter().any(|evidence| evidence.value.contains("a link to `libcuda.so.535.54.03`")));
    }

    #[test]
    fn what_the_worker_found_elsewhere_counts() {
        let mut facts = without_libraries();
        let library = gpu::Library { asked: NVML.to_owned(), path: Some("/gnu/store/x/libnvidia-ml.so.1".into()), version: None };
        let init = Status { code: 0, name: String::new() };
        driver(&mut facts).nvml = Observed::seen(NvmlFacts { library, init, driver: None, cuda: None, nvml: None, errors: Vec::new() });
        assert!(quiet(&ask(nvml, &facts)));
        assert_eq!(found(ask(libcuda, &facts)).len(), 1);
    }

    #[test]
    fn jetson_needs_no_nvml() {
        let mut facts = without_libraries();
        driver(&mut facts).kind = DriverKind::Tegra;
        assert!(quiet(&ask(nvml, &facts)));
    }
}
