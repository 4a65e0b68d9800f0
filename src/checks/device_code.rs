//! The code in built extensions against the GPUs: DeepSpeed's pre-built ops, and what lies in torch's extension cache.

use super::cache::cache;
use super::gpu::{kinds, name, torch_code};
use super::{Case, Check, Judgement, Verdict, driver_release};
use crate::facts::cache::CachedOp;
use crate::facts::device_code::DeviceCode;
use crate::facts::gpu::Device;
use crate::facts::observed::{Missing, Observed};
use crate::facts::raw::HostPath;
use crate::facts::torch::PrebuiltOp;
use crate::finding::{Evidence, Finding, Fix, ProblemId};
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::model::arch_list::{self, Reader, Reading};
use crate::model::device_code::{Reason, Runs, runs_on};
use crate::version::{Capability, CudaVersion};
use std::collections::BTreeMap;

pub const CHECKS: &[Check] = &[Check { id: NO_IMAGE, run: no_image }, Check { id: PTX, run: ptx_too_new }];

const NO_IMAGE: ProblemId = "no-kernel-image";
const PTX: ProblemId = "ptx-newer-than-driver";
const LIST: &str = "TORCH_CUDA_ARCH_LIST";

/// A built extension that a process will load as it is.
struct Built<'a> {
    /// `DeepSpeed's pre-built fused_adam_op`
    what: String,
    path: HostPath,
    code: &'a DeviceCode,
    /// Its folder in the extension cache; `None` for what came with a package.
    cached: Option<&'a CachedOp>,
}

/// Those with device code, and why others are not known.
#[derive(Default)]
struct All<'a> {
    built: Vec<Built<'a>>,
    doubt: Option<Missing>,
}

impl<'a> All<'a> {
    fn add_prebuilt(&mut self, op: &'a PrebuiltOp) {
        self.add(&op.device, format!("DeepSpeed's pre-built `{}`", op.module), op.path.clone(), None);
    }

    fn add(&mut self, device: &'a Observed<DeviceCode>, what: String, path: HostPath, cached: Option<&'a CachedOp>) {
        match device.get("device code") {
            Ok(Some(code)) => self.built.push(Built { what, path, code, cached }),
            Ok(None) => {}
            Err(missing) => {
                let why = format!("`{path}`: {}", missing.why);
                self.doubt.get_or_insert(Missing { why, ..missing });
            }
        }
    }
}

fn all<'a>(case: &Case<'a>, gpus: &[Capability]) -> Result<All<'a>, Missing> {
    let mut all = All::default();
    if let Some(deepspeed) = case.deepspeed()? {
        let built = deepspeed.built.value();
        for op in &deepspeed.binaries {
            // What is not noted as built is never imported, and built anew at first use.
            let noted = op.module.strip_suffix("_op").unwrap_or(&op.module);
            if built.and_then(|built| built.ops.get(noted)) != Some(&false) {
                all.add_prebuilt(op);
            }
        }
    }
    if let Ok(cache) = cache(case)? {
        for op in cache.ops().filter(|op| op.torch_path.as_ref() == Some(&cache.torch.path)) {
            if let Some(library) = op.library().filter(|_| gpus.iter().any(|gpu| is_kept(case, *gpu))) {
                all.add(&library.device, format!("`{}` in the extension cache", op.name), op.path.join(&library.name), Some(op));
            }
        }
    }
    Ok(all)
}

/// Whether the next load takes what lies in the cache although it does not serve this GPU. Without a list the GPUs are asked: another one
/// changes the command line, and ninja builds anew. A list that covers the GPU does so too, since what was built for it would serve.
fn is_kept(case: &Case<'_>, gpu: Capability) -> bool {
    let Some(text) = case.facts.env.text(LIST) else { return false };
    let deepspeed = case.deepspeed().ok().flatten();
    if deepspeed.is_some_and(|d| case.know.deepspeed_does(DeepSpeedTrait::JitReadsArchList, &d.version) != Some(true)) {
        return false;
    }
    let version = case.torch().ok().flatten().map(|torch| &torch.version);
    match arch_list::read(case.know, &Reader::Torch(version), Some(&text)) {
        Ok(Reading::List(items)) => !arch_list::cover(case.know, &items, gpu, None),
        _ => false,
    }
}

/// The CUDA level of the driver, where it is known.
pub(super) fn driver_level(case: &Case<'_>) -> Option<CudaVersion> {
    driver_release::level(case, case.facts.gpu.driver.value()?).1
}

fn judge(case: &Case<'_>, id: ProblemId) -> Judgement {
    let kinds = kinds(case)?;
    if kinds.is_empty() {
        return Ok(Verdict::not_applicable("no GPU"));
    }
    let gpus: Vec<Capability> = kinds.keys().copied().collect();
    let All { built, mut doubt } = all(case, &gpus)?;
    let mut findings = against(case, &built, &kinds, id);
    if id == PTX {
        match torch_by_ptx(case, driver_level(case), &kinds) {
            Ok(found) => findings.extend(found),
            Err(missing) => doubt = doubt.or(Some(missing)),
        }
    }
    match doubt {
        Some(missing) if findings.is_empty() => Err(missing),
        _ => Ok(Verdict::of(findings)),
    }
}

/// Why an op that came with DeepSpeed has no code that a GPU of this machine runs; nothing where there is no GPU.
///
/// # Errors
/// When the GPUs or the code in the op are not known.
pub(super) fn unserved(case: &Case<'_>, op: &PrebuiltOp) -> Result<Vec<Finding>, Missing> {
    let kinds = kinds(case)?;
    if kinds.is_empty() {
        return Ok(Vec::new());
    }
    let mut all = All::default();
    all.add_prebuilt(op);
    match all.doubt {
        Some(missing) => Err(missing),
        None => Ok([NO_IMAGE, PTX].iter().flat_map(|id| against(case, &all.built, &kinds, id)).collect()),
    }
}

/// Each extension against each kind of GPU.
fn against(case: &Case<'_>, built: &[Built<'_>], kinds: &BTreeMap<Capability, &Device>, id: ProblemId) -> Vec<Finding> {
    let level = driver_level(case);
    let mut findings = Vec::new();
    for one in built {
        for (capability, device) in kinds {
            if one.cached.is_some() && !is_kept(case, *capability) {
                continue;
            }
            match runs_on(case.know, one.code, *capability, level) {
                Runs::No(Reason::NoCode) if id == NO_IMAGE => findings.push(lacks(one, *capability, device)),
                Runs::No(Reason::PtxTooNew(isa)) if id == PTX => {
                    let made_by = case.know.cuda_of_ptx(isa);
                    let code = Evidence::new("code", targets(one.code)).at(&one.path);
                    findings.push(too_new(case, &one.what, &isa.to_string(), made_by, level, (*capability, device), code));
                }
                _ => {}
            }
        }
    }
    findings
}

fn no_image(case: &Case<'_>) -> Judgement {
    judge(case, NO_IMAGE)
}

fn ptx_too_new(case: &Case<'_>) -> Judgement {
    judge(case, PTX)
}

/// `sm_80 sm_90 compute_90 (PTX 8.4)`
pub(super) fn targets(code: &DeviceCode) -> String {
    let words: Vec<String> = code.targets.iter().filter(|(_, held)| held.containers > 0).map(|(target, _)| target.to_string()).collect();
    let isa = code.isa().map(|isa| format!(" (PTX {isa})")).unwrap_or_default();
    format!("{}{isa}", words.join(" "))
}

fn lacks(one: &Built<'_>, capability: Capability, device: &Device) -> Finding {
    let about = format!("{} {capability}", one.path);
    let finding = Finding::error(NO_IMAGE, format!("{} has no code for {} ({capability})", one.what, name(device)))
        .about(about.clone())
        .seen(Evidence::new("GPU", format!("{}, {capability}", name(device))))
        .seen(Evidence::new("code", targets(one.code)).at(&one.path))
        .then("it loads, and its first kernel stops with `no kernel image is available for execution on the device`");
    match one.cached {
        Some(op) => finding.fix(Fix::advice(format!("name {capability} in `{LIST}`; the next load builds `{}` anew", op.name)).curing(NO_IMAGE)),
        None => finding.fix(
            Fix::advice(format!(
                "install DeepSpeed again with the same `DS_BUILD_…` and `{LIST}` that names {capability}, with `--no-cache-dir --force-reinstall --no-deps`"
            ))
            .curing(NO_IMAGE),
        ),
    }
}

fn too_new(
    case: &Case<'_>,
    what: &str,
    isa: &str,
    made_by: Option<CudaVersion>,
    level: Option<CudaVersion>,
    (capability, device): (Capability, &Device),
    code: Evidence,
) -> Finding {
    let level = level.map(|level| level.to_string()).unwrap_or_default();
    let made = made_by.map(|cuda| format!(" of CUDA {cuda}")).unwrap_or_default();
    let title =
        format!("{what} has only PTX {isa}{made} for {} ({capability}), and the driver compiles that of CUDA {level}", name(device));
    let driver = made_by.and_then(|cuda| case.know.own_driver(cuda)).map(|driver| format!("a driver {driver} or newer"));
    Finding::error(PTX, title)
        .about(format!("{what} {capability}"))
        .seen(Evidence::new("GPU", format!("{}, {capability}", name(device))))
        .seen(Evidence::new("driver", format!("CUDA {level}")))
        .seen(code)
        .then("its first kernel stops with `the provided PTX was compiled with an unsupported toolchain`")
        .fix(Fix::advice(format!("install {}", driver.unwrap_or_else(|| "a newer driver".to_owned()))).curing(PTX))
        .fix(Fix::advice(format!("or take a build that has machine code for {capability}")).curing(PTX).or(1))
}

/// The GPUs that torch serves by PTX alone, in a version that the driver does not know.
fn torch_by_ptx(case: &Case<'_>, level: Option<CudaVersion>, kinds: &BTreeMap<Capability, &Device>) -> Result<Vec<Finding>, Missing> {
    let Some(torch) = case.torch()? else { return Ok(Vec::new()) };
    let (Some(cuda), Some(level)) = (torch.cuda, level) else { return Ok(Vec::new()) };
    let (Some(made), Some(known)) = (case.know.newest_ptx(cuda), case.know.newest_ptx(level)) else { return Ok(Vec::new()) };
    if made <= known {
        return Ok(Vec::new());
    }
    let Some(code) = torch_code(case)? else { return Ok(Vec::new()) };
    let by_ptx = |capability: &Capability| {
        let sass = code.sass.iter().any(|target| case.know.runs_on(*target, *capability, Some(cuda)));
        !sass && code.ptx.iter().any(|target| case.know.ptx_serves(*target, *capability))
    };
    let found = kinds.iter().filter(|(capability, _)| by_ptx(capability)).map(|(capability, device)| {
        let list = torch.arch_list.value().map(|list| list.join(" ")).unwrap_or_default();
        let seen = Evidence::new("code", list).at(&torch.path);
        too_new(case, &format!("torch {}", torch.version), &made.to_string(), Some(cuda), Some(level), (*capability, device), seen)
    });
    Ok(found.collect())
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{findings, healthy, judged, op, python, root, silent};
    use super::*;
    use crate::facts::cache::CachedLibrary;
    use crate::facts::device_code::{ContainerGroup, Role};
    use crate::facts::gpu::{DriverFacts, DriverKind};
    use crate::facts::snapshot::Snapshot;
    use crate::facts::torch::{InstalledOps, PrebuiltOp};

    fn code(text: &str) -> DeviceCode {
        let (text, isa) = text.split_once('@').map_or((text, None), |(text, isa)| (text, Some(isa.parse().unwrap())));
        let mut code = DeviceCode::default();
        let targets = text.split(' ').map(|word| word.parse().unwrap()).collect();
        code.add_groups([ContainerGroup { role: Role::Whole, targets, isa, containers: 1 }]);
        code
    }

    fn with_gpu(facts: &mut Snapshot, capability: &str) {
        let device = Device { name: Some("a GPU".to_owned()), capability: Some(capability.parse().unwrap()), ..Device::default() };
        facts.gpu.devices = Observed::seen(vec![device]);
    }

    fn prebuilt(device: Observed<DeviceCode>, noted: bool) -> Snapshot {
        let mut facts = healthy();
        with_gpu(&mut facts, "9.0");
        let deepspeed = python(&mut facts).deepspeed.value_mut().unwrap();
        deepspeed.built = Observed::seen(InstalledOps { ops: [("fused_adam".to_owned(), noted)].into(), ..InstalledOps::default() });
        deepspeed.binaries =
            vec![PrebuiltOp { module: "fused_adam_op".to_owned(), path: "/x/fused_adam_op.so".into(), elf: Observed::default(), device }];
        facts
    }

    fn with_driver(facts: &mut Snapshot, release: &str) {
        let module = format!(r#"{{"version": "{release}", "open": false}}"#);
        facts.gpu.driver = Observed::seen(DriverFacts {
            kind: DriverKind::Native,
            shown_by: "/proc/driver/nvidia/version".into(),
            kernel: Observed::seen(serde_json::from_str(&module).unwrap()),
            nvml: Observed::default(),
            libcuda: Observed::default(),
            listed: Vec::new(),
            node_policy: None,
        });
    }

    #[test]
    fn pre_built_ops() {
        for (text, found) in [("sm_80", 1), ("sm_80 sm_90", 0), ("sm_90a", 0), ("sm_80 compute_80@8.4", 0), ("sm_100", 1)] {
            let facts = prebuilt(Observed::seen(code(text)), true);
            assert_eq!(findings(&facts, NO_IMAGE).len(), found, "{text}");
            assert_eq!(findings(&facts, PTX).len(), 0, "{text}");
        }
        assert_eq!(findings(&prebuilt(Observed::seen(code("sm_80")), false), NO_IMAGE).len(), 0, "it is never imported");
        silent(&prebuilt(Observed::absent(["x"]), true), CHECKS, Purpose::Both);
        silent(&healthy(), CHECKS, Purpose::Both);
    }

    #[test]
    fn what_cannot_be_read_is_not_fine() {
        let judged = judged(&prebuilt(Observed::failed("damaged"), true), Purpose::Run, NO_IMAGE);
        assert!(judged.findings.is_empty() && judged.undecided.iter().any(|one| one.failed), "{judged:?}");
    }

    #[test]
    fn ptx_of_a_newer_cuda_than_the_drivers() {
        let mut facts = prebuilt(Observed::seen(code("sm_80 compute_80@8.7")), true);
        for (driver, found) in [("550.54.15", 1), ("570.26", 0), ("580.65.06", 0)] {
            with_driver(&mut facts, driver);
            assert_eq!(findings(&facts, PTX).len(), found, "{driver}");
            assert_eq!(findings(&facts, NO_IMAGE).len(), 0, "{driver}");
        }
    }

    #[test]
    fn torch_itself_by_ptx() {
        let mut facts = healthy();
        with_gpu(&mut facts, "12.0");
        python(&mut facts).torch.value_mut().unwrap().arch_list = Observed::seen(["sm_80", "compute_90"].map(str::to_owned).into());
        for (driver, found) in [("535.54.03", 1), ("550.54.15", 0)] {
            with_driver(&mut facts, driver);
            assert_eq!(findings(&facts, PTX).len(), found, "{driver}");
        }
    }

    #[test]
    fn cached_ops_that_a_list_keeps() {
        let mut facts = healthy();
        with_gpu(&mut facts, "9.0");
        // This release's JIT would not look at the list.
        python(&mut facts).deepspeed = Observed::absent(["nothing"]);
        let mut one = op("fused_adam");
        one.libraries =
            vec![CachedLibrary { name: "fused_adam.so".to_owned(), elf: Observed::default(), device: Observed::seen(code("sm_80")) }];
        root(&mut facts).ops = vec![one];
        for (list, found) in [(None, 0), (Some("8.0"), 1), (Some("8.0;9.0"), 0), (Some("8.0+PTX"), 0)] {
            match list {
                Some(list) => facts.env.set("TORCH_CUDA_ARCH_LIST", list),
                None => facts.env.unset("TORCH_CUDA_ARCH_LIST"),
            }
            assert_eq!(findings(&facts, NO_IMAGE).len(), found, "{list:?}");
        }
    }
}
