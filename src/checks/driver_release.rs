//! Releases that must fit: the driver's libraries the kernel module, a cuda-compat library both, the driver torch's CUDA.

use super::driver::{at_work, release, ubuntu};
use super::driver_libs::{LIBCUDA, NVML, is_compat, is_stub, libcuda_answer, library_at, loaded, source, taken_out};
use super::remedy::{as_root, pip_install};
use super::torch::shown;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::gpu::{self, DriverFacts, DriverKind};
use crate::facts::loader::Library;
use crate::facts::observed::{Missing, Observed};
use crate::facts::raw::HostPath;
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::gpu::PciMatch;
use crate::model::loader::{Answer, Via};
use crate::text::join;
use crate::version::{CudaVersion, Dotted};

pub const CHECKS: &[Check] = &[
    Check { id: "cuda-compat-wrong", run: compat },
    Check { id: "nvml-driver-library-mismatch", run: mismatch },
    Check { id: "driver-too-old", run: too_old },
];

/// A cuda-compat libcuda in front where the facts show that it cannot work.
fn compat(case: &Case<'_>) -> Judgement {
    const ID: &str = "cuda-compat-wrong";
    let driver = match at_work(case)? {
        Ok(driver) => driver,
        Err(verdict) => return Ok(verdict),
    };
    if driver.kind != DriverKind::Native {
        return Ok(Verdict::not_applicable("no driver of this system's own"));
    }
    let answer = libcuda_answer(case)?;
    let (Some(library), Answer::Found { via, .. }) = (answer.path().and_then(|path| library_at(case, path)), &answer) else {
        return Ok(Verdict::not_applicable("no libcuda"));
    };
    if !is_compat(library) {
        return Ok(Verdict::Pass);
    }
    let unknown = |why: &str| Missing { topic: "cuda-compat", why: why.to_owned(), failed: false };
    let module = &driver.kernel.get("kernel module")?.ok_or_else(|| unknown("no kernel module tells its release"))?.version;
    let own = library.release.as_ref().ok_or_else(|| unknown("the release of the cuda-compat library is not known"))?;
    let (title, then) = if own == module {
        return Ok(Verdict::Pass);
    } else if own < module {
        (
            format!("the cuda-compat `libcuda.so.1` is of driver `{own}`, and the driver is newer: `{module}`"),
            "the first CUDA call answers 803, `system has unsupported display driver / cuda driver combination`: forward compatibility does not go backwards",
        )
    } else {
        let names = names(case, driver);
        if names.is_empty() {
            return Err(unknown("which GPUs there are is not known"));
        }
        let consumer = |name: &String| ["GeForce", "TITAN"].iter().any(|brand| name.contains(brand));
        if !names.iter().all(consumer) {
            // Data-centre GPUs and some workstation ones; which pairs of branches fit is in no table.
            return Ok(Verdict::Pass);
        }
        (
            format!("the cuda-compat `libcuda.so.1` of driver `{own}` is loaded on {}, which it does not serve", join(&names)),
            "the first CUDA call answers 804, `forward compatibility was attempted on non supported HW`",
        )
    };
    let mut finding = Finding::error(ID, title)
        .seen(Evidence::new("libcuda", own.to_string()).at(&library.path).from(&source(case, &library.path)))
        .seen(Evidence::new("kernel module", module.to_string()).said_by("/proc/driver/nvidia/version"))
        .then(then);
    finding = finding.fix(taken_out(case, library, via, ID));
    Ok(Verdict::found(finding))
}

/// Models of the GPUs, each once: by NVML, by the kernel module, by their device ids.
fn names(case: &Case<'_>, driver: &DriverFacts) -> Vec<String> {
    let gpu = &case.facts.gpu;
    let mut names: Vec<String> = gpu.devices.value().into_iter().flatten().filter_map(|device| device.name.clone()).collect();
    if names.is_empty() {
        names = driver.listed.iter().filter_map(|gpu| gpu.name.clone()).collect();
    }
    if names.is_empty() {
        let product = |device: u16| match case.know.gpu_by_pci(device) {
            Some(PciMatch::Product(product)) => Some(product.name.to_string()),
            _ => None,
        };
        names = gpu.pci.value().into_iter().flatten().filter_map(|gpu| product(gpu.device)).collect();
    }
    names.sort();
    names.dedup();
    names
}

/// Whether what a library answered when it was asked is of the very file that would be loaded: a changed environment may load another.
fn of_same_file<'a, T>(answer: &'a Observed<T>, library: impl Fn(&T) -> &gpu::Library, real: Option<&HostPath>) -> Option<&'a T> {
    answer.value().filter(|value| library(value).path.as_ref().is_some_and(|path| Some(path) == real))
}

fn mismatch(case: &Case<'_>) -> Judgement {
    const ID: &str = "nvml-driver-library-mismatch";
    /// What nvmlInit answers then.
    const LIB_RM_VERSION_MISMATCH: u32 = 18;
    let driver = match at_work(case)? {
        Ok(driver) => driver,
        Err(verdict) => return Ok(verdict),
    };
    if driver.kind != DriverKind::Native {
        return Ok(Verdict::not_applicable("no driver of this system's own"));
    }
    let module = &match driver.kernel.get("kernel module")? {
        Some(module) => module,
        None => return Ok(Verdict::not_applicable("no kernel module tells its release")),
    }
    .version;
    let (management, cuda) = (loaded(case, NVML)?, loaded(case, LIBCUDA)?.filter(|library| !is_compat(library) && !is_stub(library)));
    let answered = of_same_file(&driver.nvml, |nvml| &nvml.library, management.map(|library| &library.real)).map(|nvml| &nvml.init);
    let mut wrong: Vec<(&str, &Library)> = Vec::new();
    for (name, library) in [(NVML, management), (LIBCUDA, cuda)] {
        let Some(library) = library else { continue };
        // What NVML answers when it is asked outranks the names of files.
        let apart = match (name, answered) {
            (NVML, Some(init)) if init.code == LIB_RM_VERSION_MISMATCH => true,
            (NVML, Some(init)) if init.ok() => false,
            _ => library.release.as_ref().is_some_and(|own| own != module),
        };
        if apart {
            wrong.push((name, library));
        }
    }
    let Some((name, first)) = wrong.first() else {
        let known = [management, cuda].into_iter().flatten().all(|library| library.release.is_some());
        if !known && answered.is_none() {
            return Err(Missing { topic: "driver's libraries", why: "their release could not be read".to_owned(), failed: false });
        }
        return Ok(Verdict::Pass);
    };
    let of = |library: &Library| library.release.as_ref().map_or("another release".to_owned(), |release| format!("`{release}`"));
    let mut finding = Finding::error(ID, format!("the loaded kernel module is of driver `{module}`, and `{name}` is of {}", of(first)))
        .seen(Evidence::new("kernel module", module.to_string()).said_by("/proc/driver/nvidia/version"))
        .then("`nvidia-smi` stops with `Failed to initialize NVML: Driver/library version mismatch`, and CUDA answers 803, `system has unsupported display driver / cuda driver combination`");
    for (name, library) in &wrong {
        let evidence = Evidence::new(*name, library.release.as_ref().map(ToString::to_string).unwrap_or_default()).at(&library.path);
        finding = finding.seen(evidence.from(&source(case, &library.path)));
    }
    if let Some(init) = answered.filter(|init| !init.ok()) {
        finding = finding.seen(Evidence::new("nvmlInit_v2", init.to_string()).said_by("NVML"));
    }
    let fitting = |library: &Library| {
        case.facts.loader.value().is_some_and(|loader| {
            loader.of(&library.family).any(|other| other.name == library.name && other.release.as_ref() == Some(module))
        })
    };
    if let Answer::Found { via: via @ Via::LibraryPath { .. }, .. } = case.process()?.extension_gets(name)
        && fitting(first)
    {
        return Ok(Verdict::found(finding.fix(taken_out(case, first, &via, ID))));
    }
    if let Some(kind) = case.facts.host.container.as_deref() {
        let advice = "remove the driver's packages (`libnvidia-*`, `nvidia-driver-*`, `cuda-drivers`) from the image: the runtime brings the host's libraries";
        return Ok(Verdict::found(finding.seen(Evidence::new("container", kind.to_owned())).fix(Fix::advice(advice).curing(ID))));
    }
    let newer = first.release.as_ref().is_none_or(|release| release > module);
    let reload = "rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia; modprobe nvidia";
    Ok(Verdict::found(if newer {
        finding
            .fix(as_root(case, ["reboot"], "loads the module that was installed with the libraries").curing(ID))
            .fix(as_root(case, ["sh", "-c", reload], "without a restart, once nothing uses the GPUs").curing(ID).or(1))
    } else {
        let advice = "remove the older driver's files (`nvidia-uninstall` for one that came as a runfile) and install the libraries of the module's release again";
        finding.fix(Fix::advice(advice).curing(ID))
    }))
}

/// The CUDA release that the driver serves, and the release that says so: what was answered, else by the table.
pub(super) fn level(case: &Case<'_>, driver: &DriverFacts) -> (Option<Dotted>, Option<CudaVersion>) {
    let library = loaded(case, LIBCUDA).ok().flatten();
    let answered =
        of_same_file(&driver.libcuda, |libcuda| &libcuda.library, library.map(|library| &library.real)).and_then(|libcuda| libcuda.cuda);
    // The user's library decides, also one of cuda-compat.
    let of_library = library.filter(|library| !is_stub(library)).and_then(|library| library.release.clone());
    let release = of_library.or_else(|| release(driver).cloned());
    let by_nvml = || driver.nvml.value().and_then(|nvml| nvml.cuda);
    let cuda = answered.or_else(|| release.as_ref().and_then(|release| case.know.driver_cuda(release))).or_else(by_nvml);
    (release, cuda)
}

fn too_old(case: &Case<'_>) -> Judgement {
    const ID: &str = "driver-too-old";
    let driver = match at_work(case)? {
        Ok(driver) => driver,
        Err(verdict) => return Ok(verdict),
    };
    if driver.kind == DriverKind::Tegra {
        return Ok(Verdict::not_applicable("a Jetson's driver comes with its system"));
    }
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some(wanted) = torch.cuda else { return Ok(Verdict::not_applicable("this torch is not built for CUDA")) };
    let (release, served) = level(case, driver);
    let oldest = case.know.oldest_driver(wanted);
    let too_old = match (&release, &oldest, served) {
        (Some(release), Some(oldest), _) if driver.kind == DriverKind::Native => release < oldest,
        (.., Some(served)) => served.major < wanted.major,
        _ => {
            let why =
                format!("which CUDA the driver {} serves is in no table", release.map(|release| release.to_string()).unwrap_or_default());
            return Err(Missing { topic: "driver", why, failed: false });
        }
    };
    let name = release.as_ref().map_or("the driver".to_owned(), |release| format!("driver `{release}`"));
    let serves = served.map_or("an older CUDA".to_owned(), |served| format!("CUDA {served}"));
    let evidence = |finding: Finding| {
        let mut evidence = Evidence::new("driver", release.as_ref().map(ToString::to_string).unwrap_or_default()).at(&driver.shown_by);
        if let Some(served) = served {
            evidence.value = format!("{}, CUDA {served}", evidence.value);
        }
        finding.seen(evidence)
    };
    if !too_old {
        return Ok(newer_toolkit(case, served).map_or(Verdict::Pass, |finding| Verdict::found(evidence(finding))));
    }
    let needs = oldest.map(|oldest| format!(", which needs `{oldest}` or newer")).unwrap_or_default();
    let number = served.map(|served| format!(" (found version {}{:02}0)", served.major, served.minor)).unwrap_or_default();
    let finding = Finding::error(ID, format!("{name} serves {serves}, and torch {} is built for CUDA {wanted}{needs}", torch.version))
        .seen(shown(torch))
        .then(format!("`torch.cuda.is_available()` is False: `The NVIDIA driver on your system is too old{number}`"));
    let fixes = torch_or_driver(case, driver, torch, release.as_ref(), served, ID);
    Ok(Verdict::found(fixes.into_iter().fold(evidence(finding), Finding::fix)))
}

/// A torch of the same release for an older CUDA, then the driver.
fn torch_or_driver(
    case: &Case<'_>,
    driver: &DriverFacts,
    torch: &Torch,
    release: Option<&Dotted>,
    served: Option<CudaVersion>,
    id: &'static str,
) -> Vec<Fix> {
    /// The long-lived branch that serves every CUDA from 11 to 13.0 and the last for Maxwell, Pascal and Volta.
    const BRANCH: u32 = 580;
    let runs = |build: &CudaVersion| {
        served.is_some_and(|served| build.major <= served.major)
            && release.zip(case.know.oldest_driver(*build)).is_none_or(|(release, oldest)| *release >= oldest)
    };
    let builds = case.know.torch_release(&torch.version).map(|row| row.cuda_builds.iter().copied().filter(runs).max());
    let mut fixes = Vec::new();
    if let Some(build) = builds.flatten() {
        let semver = torch.version.semver();
        let package = format!("torch=={}.{}.{}+{}", semver.major, semver.minor, semver.patch, build.tag());
        let index = format!("https://download.pytorch.org/whl/{}", build.tag());
        let title = format!("the same torch for CUDA {build}, which this driver serves; ops are to be built again then");
        fixes.push(pip_install(case, [package, "--index-url".to_owned(), index], title).curing(id));
    }
    let next = u8::from(!fixes.is_empty());
    fixes.push(match case.facts.host.container.as_deref() {
        _ if driver.kind == DriverKind::Wsl => Fix::advice("update NVIDIA's driver for Windows").curing(id).or(next),
        Some(_) => Fix::advice("update the driver on the host").curing(id).or(next),
        None if ubuntu(case) => {
            as_root(case, ["apt-get", "install", "-y", &format!("nvidia-driver-{BRANCH}")], "then restart").curing(id).or(next)
        }
        None => Fix::advice(format!("update the driver, to branch {BRANCH} for instance, and restart")).curing(id).or(next),
    });
    fixes
}

/// Minor releases of one major fit each other, but for PTX.
fn newer_toolkit(case: &Case<'_>, served: Option<CudaVersion>) -> Option<Finding> {
    let (toolkit, served) = (case.toolkit().ok()??, served?);
    let release = toolkit.release().filter(|release| release.major == served.major && *release > served)?;
    let finding = Finding::info("driver-too-old", format!("nvcc is CUDA {release}, and the driver serves CUDA {served}"))
        .about("PTX")
        .seen(Evidence::new("toolkit", release.to_string()).at(&toolkit.root))
        .then("code for the GPU itself runs; a binary that holds only PTX stops with `the provided PTX was compiled with an unsupported toolchain` (222)");
    Some(finding)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::{SYSTEM_LIB, add, ask, cache, driver, listed, loader, machine, one, quiet, with_driver, with_torch};
    use super::*;
    use crate::facts::gpu::{NvmlFacts, Status};
    use crate::facts::snapshot::Snapshot;
    use crate::facts::source::Source;
    use crate::finding::{Action, Severity};

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

    fn with_compat(module: &str, own: &str) -> Snapshot {
        let mut facts = with_driver(module);
        let path = "/usr/local/cuda-12.4/compat/libcuda.so.1";
        add(&mut facts, path, Source::entry("LD_LIBRARY_PATH", 1)).release = Some(own.parse().unwrap());
        facts.env.set("LD_LIBRARY_PATH", "/usr/local/cuda-12.4/compat:/other");
        facts
    }

    #[test]
    fn compat_libraries() {
        let older = one(ask(compat, &with_compat("580.65.06", "550.54.15")));
        assert!(older.consequence.contains("803"), "{}", older.consequence);
        assert!(matches!(&older.fixes[0].action, Action::RemovePath { dir, .. } if dir.ends_with("compat")));
        assert!(quiet(&ask(compat, &with_compat("535.54.03", "550.54.15"))), "newer, on a data-centre GPU");
        assert!(quiet(&ask(compat, &with_compat("550.54.15", "550.54.15"))));
        let mut consumer = with_compat("535.54.03", "550.54.15");
        driver(&mut consumer).listed = vec![listed("0000:18:00.0", "NVIDIA GeForce RTX 3090")];
        assert!(one(ask(compat, &consumer)).consequence.contains("804"));
        consumer.env.unset("LD_LIBRARY_PATH");
        assert!(quiet(&ask(compat, &consumer)), "it lies there and is not loaded");
        let mut conf = with_compat("580.65.06", "550.54.15");
        conf.env.unset("LD_LIBRARY_PATH");
        cache(&mut conf, "/usr/local/cuda-12.4/compat/libcuda.so.1");
        let fix = &one(ask(compat, &conf)).fixes[0];
        assert!(matches!(&fix.action, Action::Run { argv, .. } if argv[2].contains("|^/usr/local/cuda-12.4/compat/*$|d")), "{fix:?}");
    }

    #[test]
    fn compat_is_no_mismatch() {
        assert!(quiet(&ask(mismatch, &with_compat("535.54.03", "550.54.15"))));
    }

    fn of_release(facts: &mut Snapshot, release: &str) {
        for library in &mut loader(facts).libraries {
            library.release = Some(release.parse().unwrap());
        }
    }

    #[test]
    fn module_and_libraries_of_two_releases() {
        let mut facts = with_driver("550.54.15");
        of_release(&mut facts, "550.90.07");
        let finding = one(ask(mismatch, &facts));
        assert!(finding.title.contains("`550.54.15`") && finding.title.contains("`550.90.07`"), "{}", finding.title);
        assert!(matches!(&finding.fixes[0].action, Action::Run { argv, .. } if argv == &["reboot"]));
        facts.host.container = Some("docker".to_owned());
        assert!(matches!(&one(ask(mismatch, &facts)).fixes[0].action, Action::Advice { text } if text.contains("from the image")));
        facts.host.container = None;
        of_release(&mut facts, "535.54.03");
        assert!(matches!(&one(ask(mismatch, &facts)).fixes[0].action, Action::Advice { .. }), "no restart helps");
    }

    #[test]
    fn what_nvml_answers_outranks_names() {
        let mut facts = with_driver("550.54.15");
        let answer = |code, path: &str| {
            let library = gpu::Library { asked: NVML.to_owned(), path: Some(path.into()), version: None };
            let init = Status { code, name: "NAME".to_owned() };
            Observed::seen(NvmlFacts { library, init, driver: None, cuda: None, nvml: None, errors: Vec::new() })
        };
        let own = format!("{SYSTEM_LIB}/libnvidia-ml.so.1");
        driver(&mut facts).nvml = answer(18, &own);
        assert!(one(ask(mismatch, &facts)).evidence.iter().any(|evidence| evidence.value == "NAME (18)"));
        driver(&mut facts).nvml = answer(18, "/elsewhere/libnvidia-ml.so.1");
        assert!(quiet(&ask(mismatch, &facts)), "another environment was asked");
        driver(&mut facts).nvml = answer(0, &own);
        loader(&mut facts).libraries.retain(|library| library.family == "nvidia-ml");
        of_release(&mut facts, "550.90.07");
        assert!(quiet(&ask(mismatch, &facts)));
    }

    #[test]
    fn a_library_path_in_front_of_the_right_copy() {
        let mut facts = with_driver("550.54.15");
        add(&mut facts, "/opt/old/libcuda.so.1", Source::entry("LD_LIBRARY_PATH", 1)).release = Some("470.86".parse().unwrap());
        facts.env.set("LD_LIBRARY_PATH", "/opt/old/");
        loader(&mut facts).libraries[2].path = "/opt/old/libcuda.so.1".into();
        let fix = &one(ask(mismatch, &facts)).fixes[0];
        assert!(matches!(&fix.action, Action::RemovePath { dir, .. } if dir.to_string() == "/opt/old/"), "{fix:?}");
    }

    #[test]
    fn drivers_and_torch() {
        let on = |driver: &str, torch: &str, cuda: &str| {
            let mut facts = with_driver(driver);
            with_torch(&mut facts, torch, cuda, &[]);
            ask(too_old, &facts)
        };
        let finding = one(on("470.86", "2.2.2+cu121", "12.1"));
        assert!(finding.title.contains("serves CUDA 11.4") && finding.title.contains("`525.60.13` or newer"), "{}", finding.title);
        assert!(finding.consequence.ends_with("(found version 11040)`"), "{}", finding.consequence);
        let Action::Run { argv, .. } = &finding.fixes[0].action else { unreachable!("{:?}", finding.fixes) };
        assert!(argv.contains(&"torch==2.2.2+cu118".to_owned()), "{argv:?}");
        assert!(one(on("575.57.08", "2.11.0+cu130", "13.0")).title.contains("580.65.06"));
        assert!(one(on("525.53", "2.2.2+cu121", "12.1")).title.contains("serves CUDA 12.0"), "of the branch, and too early");
        for (driver, torch, cuda) in [
            ("535.183.06", "2.7.1+cu128", "12.8"),
            ("525.60.13", "2.7.1+cu128", "12.8"),
            ("580.65.06", "2.11.0+cu130", "13.0"),
            ("700.1", "2.11.0+cu130", "13.0"),
            ("450.80.02", "1.13.1+cu117", "11.7"),
        ] {
            assert!(quiet(&on(driver, torch, cuda)), "{driver} {torch}");
        }
        assert!(one(on("580.65.06", "3.0.0+cu140", "14.0")).title.contains("built for CUDA 14.0"), "no table knows it, and 13.0 is not 14");
        assert!(on("700.1", "3.0.0+cu140", "14.0").is_err());
    }

    #[test]
    fn compat_raises_what_the_driver_serves() {
        let mut facts = with_compat("470.86", "550.54.15");
        with_torch(&mut facts, "2.2.2+cu121", "12.1", &[]);
        assert!(quiet(&ask(too_old, &facts)));
    }

    #[test]
    fn a_newer_toolkit_is_a_state() {
        let mut facts = with_driver("535.183.06");
        with_torch(&mut facts, "2.7.1+cu128", "12.8", &[]);
        crate::model::assume::software(&mut facts, &crate::knowledge::Knowledge::embedded(), &["cuda=12.8".to_owned()]).unwrap();
        let finding = one(ask(too_old, &facts));
        assert_eq!((finding.severity, finding.subject.as_str()), (Severity::Info, "PTX"));
    }
}
