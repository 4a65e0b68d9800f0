//! The GPUs and what torch and the toolkit can do for them.

use super::remedy::{best_toolkit, pip_install, usable, use_toolkit};
use super::torch::shown;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::gpu::Device;
use crate::facts::observed::Missing;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::deepspeed::DeepSpeedTrait;
use crate::model::arch_list::{self, Format, Item, Reader};
use crate::model::arch_plan::{self, Limits, Wish};
use crate::model::visible::{self, Problem};
use crate::text::{count, join};
use crate::version::{Capability, CudaVersion, Dotted, Target};
use std::collections::BTreeMap;

pub const CHECKS: &[Check] = &[
    Check { id: "cuda-visible-devices-mask", run: mask },
    Check { id: "no-gpu", run: no_gpu },
    Check { id: "nvcc-too-old-for-gpu", run: nvcc_too_old },
    Check { id: "gpu-too-new-for-torch", run: too_new_for_torch },
    Check { id: "gpu-too-old-for-software", run: too_old },
    Check { id: "jetson-aarch64", run: jetson },
    Check { id: "mig", run: mig },
    Check { id: "mixed-gpus", run: mixed },
];

/// As the driver names it.
pub(super) fn name(device: &Device) -> String {
    device.name.clone().unwrap_or_else(|| format!("GPU {}", device.index))
}

/// One device for each capability that a program would see.
pub(super) fn kinds<'a>(case: &Case<'a>) -> Result<BTreeMap<Capability, &'a Device>, Missing> {
    let mut kinds = BTreeMap::new();
    for device in case.gpus()? {
        if let Some(capability) = device.capability {
            kinds.entry(capability).or_insert(device);
        }
    }
    Ok(kinds)
}

const MASK: &str = "CUDA_VISIBLE_DEVICES";

fn mask(case: &Case<'_>) -> Judgement {
    let Some(value) = case.facts.env.get(MASK) else { return Ok(Verdict::not_applicable("CUDA_VISIBLE_DEVICES is unset")) };
    let Some(all) = case.facts.gpu.devices.get("gpu")? else { return Ok(Verdict::not_applicable("no driver")) };
    if all.is_empty() {
        return Ok(Verdict::not_applicable("no GPU"));
    }
    let seen = visible::visible(all, Some(value), case.facts.env.get("CUDA_DEVICE_ORDER"));
    let shown = value.to_string_lossy().into_owned();
    let start = |title: String| {
        Finding::warning("cuda-visible-devices-mask", title).seen(Evidence::new(MASK, shown.clone()).said_by("environment"))
    };
    let words: Vec<String> = seen.problems.iter().map(|problem| trouble(problem, all.len())).collect();
    if seen.picks.is_empty() {
        let why = if words.is_empty() { String::new() } else { format!(": {}", join(&words)) };
        let finding = start(format!("`{MASK}` hides every GPU{why}"))
            .seen(Evidence::new("GPUs", count(all.len(), "device")))
            .then("torch sees no GPU, and builds that ask the GPUs find none")
            .fix(Fix::unset(MASK, "all GPUs are seen then").review());
        return Ok(Verdict::found(finding));
    }
    if !words.is_empty() {
        let finding = start(format!("`{MASK}` is read otherwise than it is written: {}", join(&words)))
            .seen(Evidence::new("visible", count(seen.picks.len(), "device")))
            .then("programs see fewer GPUs than were named")
            .fix(Fix::advice("name GPUs that exist, by numbers from 0, with commas and nothing else"));
        return Ok(Verdict::found(finding));
    }
    if !seen.deepspeed_reads && case.deepspeed()?.is_some() {
        let finding = start(format!("`{MASK}` names GPUs by UUID, which DeepSpeed does not read"))
            .then("the launcher and DeepSpeed's memory query stop with `ValueError: invalid literal for int()`")
            .fix(Fix::advice(format!("name them by number: `{MASK}={}`", numbers(&seen.picks))));
        return Ok(Verdict::found(finding));
    }
    Ok(Verdict::Pass)
}

fn numbers(picks: &[visible::Pick]) -> String {
    picks.iter().map(|pick| pick.device.to_string()).collect::<Vec<_>>().join(",")
}

fn trouble(problem: &Problem, devices: usize) -> String {
    match problem {
        Problem::Empty => "it is set to nothing".to_owned(),
        Problem::NoDevFiles => "`NoDevFiles` is a scheduler's mark for a job without GPUs".to_owned(),
        Problem::Negative(item) => format!("`{item}` hides it and all after it"),
        Problem::OutOfRange { item, .. } => {
            format!("there is no GPU `{item}` among {}, which hides it and all after it", count(devices, "device"))
        }
        Problem::Unreadable(item) => format!("`{item}` is no GPU, which hides it and all after it"),
        Problem::Trailing { item, number } => format!("`{item}` is read as {number}"),
        Problem::NoSuchUuid(item) => format!("no GPU has the UUID `{item}`"),
        Problem::AmbiguousUuid(item) => format!("several GPUs have a UUID that begins with `{item}`"),
        Problem::Repeated(item) => format!("`{item}` stands twice, which hides all"),
        Problem::OneInstanceOnly { hidden } => format!("a program gets one MIG instance, and {hidden} more were named"),
        Problem::NoInstance { device } => format!("GPU {device} is in MIG mode and has no instance"),
    }
}

/// For a machine that is to run CUDA programs.
fn no_gpu(case: &Case<'_>) -> Judgement {
    if !case.purpose.runs() && !case.requires("gpu") {
        return Ok(Verdict::not_applicable("running is not asked for"));
    }
    let gpu = &case.facts.gpu;
    let devices = gpu.devices.get("gpu")?;
    if devices.is_some_and(|devices| !devices.is_empty()) {
        return Ok(Verdict::Pass);
    }
    // A GPU on the bus without a driver has an id of its own.
    if gpu.pci.value().is_some_and(|gpus| !gpus.is_empty()) {
        return Ok(Verdict::not_applicable("there is a GPU on the bus"));
    }
    let container = case.facts.host.container.as_deref();
    let mut finding = Finding::error("no-gpu", "there is no NVIDIA GPU on this machine")
        .seen(Evidence::new("looked", "/proc/driver/nvidia, /dev/dxg, Tegra nodes, the PCI bus"))
        .then("torch runs on the CPU, and `torch.cuda.is_available()` is False");
    finding = match container {
        Some(kind) => finding.seen(Evidence::new("container", kind.to_owned())).fix(Fix::advice(
            "start the container with its GPUs: `docker run --gpus all …`, `apptainer exec --nv …`, or a GPU request in the pod",
        )),
        None => finding.fix(Fix::advice("run it on a machine with a GPU; for a builder say `--for build`")),
    };
    Ok(Verdict::found(finding))
}

/// The exact capability is what JIT builds ask nvcc for while no list is set.
fn nvcc_too_old(case: &Case<'_>) -> Judgement {
    const ID: &str = "nvcc-too-old-for-gpu";
    if !case.purpose.builds() {
        return Ok(Verdict::not_applicable(super::lookup::NOT_ASKED));
    }
    if case.torch()?.is_none_or(|torch| torch.cuda.is_none()) {
        return Ok(Verdict::not_applicable("no torch for CUDA"));
    }
    let Some(toolkit) = case.toolkit()? else { return Ok(Verdict::not_applicable("torch finds no toolkit")) };
    let Some(nvcc) = case.nvcc()? else { return Ok(Verdict::not_applicable("no nvcc")) };
    let cuda = toolkit.release();
    let plain: Vec<Capability> = nvcc.targets.iter().filter(|target| target.suffix.is_none()).map(|target| target.capability).collect();
    let Some(newest) = plain.iter().max() else {
        return Err(Missing { topic: "nvcc", why: "its targets could not be read".to_owned(), failed: false });
    };
    let oldest = plain.iter().min().unwrap_or(newest);
    let mut findings = Vec::new();
    for (capability, device) in kinds(case)? {
        let own = cuda.map_or(capability, |cuda| case.know.capability_for(capability, cuda));
        if plain.contains(&own) || own < *oldest {
            continue;
        }
        let serves = plain.iter().copied().filter(|target| case.know.runs_on(Target::plain(*target), own, cuda)).max();
        let ignored = deepspeed_ignores_list(case)?;
        let asked = match &ignored {
            Some(_) => true,
            None if case.facts.env.text(LIST).is_some() => serves.is_none(),
            None => case.deepspeed()?.is_some() || torch_asks_beyond(case, own, &plain)?,
        };
        if !asked {
            continue;
        }
        let release = cuda.map(|cuda| format!(" {cuda}")).unwrap_or_default();
        let mut finding =
            Finding::error(ID, format!("nvcc{release} cannot build for {} ({capability}): its newest target is {newest}", name(device)))
                .about(capability.to_string())
                .seen(Evidence::new("GPU", format!("{}, {capability}", name(device))))
                .seen(Evidence::new("nvcc", nvcc.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&nvcc.path))
                .then(format!("builds for this GPU stop with `nvcc fatal : Unsupported gpu architecture 'compute_{}'`", own.sm()));
        let other = case.toolkits().iter().find(|other| {
            usable(other)
                && other.nvcc.value().is_some_and(|nvcc| nvcc.targets.contains(&Target::plain(own)))
                && fits_torch(case, other.release())
        });
        let needed = || match case.know.toolkits_for(capability) {
            Some((first, _)) => format!("CUDA {first} or newer"),
            None => "a newer CUDA".to_owned(),
        };
        finding = match (other, serves, ignored) {
            (Some(other), ..) => use_toolkit(case, other).into_iter().fold(finding, Finding::fix),
            (None, Some(_), None) => {
                let list = list_for(case, &plain, cuda)?;
                finding.fix(Fix::set(LIST, list, "code that this nvcc can build and that runs on the GPU"))
            }
            (None, Some(_), Some(version)) => finding.fix(
                Fix::advice(format!(
                    "install {}: the JIT of DeepSpeed {version} asks for the GPU's own number, whatever `{LIST}` says",
                    needed()
                ))
                .curing(ID),
            ),
            (None, None, _) => finding.fix(Fix::advice(format!("install {} and a torch that is built for it", needed())).curing(ID)),
        };
        findings.push(finding);
    }
    Ok(Verdict::of(findings))
}

const LIST: &str = "TORCH_CUDA_ARCH_LIST";

/// The DeepSpeed whose JIT takes the GPUs it sees, whatever the list says.
fn deepspeed_ignores_list<'a>(case: &Case<'a>) -> Result<Option<&'a Dotted>, Missing> {
    let reads = |version: &Dotted| case.know.deepspeed_does(DeepSpeedTrait::JitReadsArchList, version).unwrap_or(true);
    Ok(case.deepspeed()?.map(|deepspeed| &deepspeed.version).filter(|version| !reads(version)))
}

/// Whether torch, without a list, asks nvcc for something it does not know: for the GPU's number, but none above torch's own newest.
fn torch_asks_beyond(case: &Case<'_>, own: Capability, known: &[Capability]) -> Result<bool, Missing> {
    let Some(torch) = case.torch()? else { return Ok(false) };
    let Some(archs) = torch.arch_list.value() else { return Ok(true) };
    let asked = arch_list::for_gpus(case.know, &Reader::Torch(Some(&torch.version)), &[own], archs);
    Ok(asked.is_ok_and(|items| items.iter().any(|item| !known.contains(&item.target.capability))))
}

fn fits_torch(case: &Case<'_>, release: Option<CudaVersion>) -> bool {
    let cuda = case.torch().ok().flatten().and_then(|torch| torch.cuda);
    cuda.zip(release).is_none_or(|(cuda, release)| cuda.major == release.major)
}

/// The list for all GPUs seen, in what nvcc can build.
fn list_for(case: &Case<'_>, plain: &[Capability], cuda: Option<CudaVersion>) -> Result<String, Missing> {
    let wishes: Vec<Wish> = kinds(case)?.into_keys().map(|capability| Wish { capability, from: String::new() }).collect();
    let plan = arch_plan::plan(&wishes, &Limits { compiler: Some(plain.to_vec()), cuda, reader: None }, arch_plan::Ptx::None, case.know);
    let items: Vec<Item> =
        plan.items.iter().map(|item| Item { target: Target::plain(item.capability), sass: true, ptx: item.ptx }).collect();
    Ok(arch_list::print(&items, Format::List))
}

/// torch's own code.
pub(super) struct Code {
    pub(super) sass: Vec<Target>,
    pub(super) ptx: Vec<Target>,
}

impl Code {
    fn serves(&self, case: &Case<'_>, capability: Capability, cuda: Option<CudaVersion>) -> bool {
        self.sass.iter().any(|target| case.know.runs_on(*target, capability, cuda))
            || self.ptx.iter().any(|target| case.know.ptx_serves(*target, capability))
    }
}

pub(super) fn torch_code(case: &Case<'_>) -> Result<Option<Code>, Missing> {
    let Some(torch) = case.torch()?.filter(|torch| torch.cuda.is_some()) else { return Ok(None) };
    let Some(list) = torch.arch_list.get("torch's arch list")? else { return Ok(None) };
    let of = |start: &str| list.iter().filter(|target| target.starts_with(start)).filter_map(|target| target.parse().ok()).collect();
    Ok(Some(Code { sass: of("sm_"), ptx: of("compute_") }))
}

/// The GPUs for which torch has no code, and the ends of what it has.
struct Bare<'a> {
    gpus: Vec<(Capability, &'a Device)>,
    lowest: Capability,
    highest: Capability,
}

fn uncovered<'a>(case: &Case<'a>) -> Result<Option<Bare<'a>>, Missing> {
    let Some(code) = torch_code(case)? else { return Ok(None) };
    let cuda = case.torch()?.and_then(|torch| torch.cuda);
    let all = || code.sass.iter().chain(&code.ptx).map(|target| target.capability);
    let (Some(lowest), Some(highest)) = (all().min(), all().max()) else { return Ok(None) };
    let gpus = kinds(case)?.into_iter().filter(|(capability, _)| !code.serves(case, *capability, cuda)).collect();
    Ok(Some(Bare { gpus, lowest, highest }))
}

fn too_new_for_torch(case: &Case<'_>) -> Judgement {
    const ID: &str = "gpu-too-new-for-torch";
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some(Bare { gpus, lowest, highest }) = uncovered(case)? else { return Ok(Verdict::not_applicable("no code for CUDA in torch")) };
    let mut findings = Vec::new();
    for (capability, device) in gpus.into_iter().filter(|(capability, _)| *capability >= lowest) {
        let list = torch.arch_list.value().map(|list| list.join(" ")).unwrap_or_default();
        let finding = Finding::error(ID, format!("torch {} has no code for {} ({capability}): its newest is {highest}", torch.version, name(device)))
            .about(capability.to_string())
            .seen(Evidence::new("GPU", format!("{}, {capability}", name(device))))
            .seen(shown(torch))
            .seen(Evidence::new("code for", list).said_by("torch/lib/libtorch_python.so"))
            .then("`torch.cuda.is_available()` is True, and the first kernel stops with `no kernel image is available for execution on the device`");
        let needed = case
            .know
            .toolkits_for(capability)
            .map(|(first, _)| format!("built for CUDA {first} or newer"))
            .unwrap_or_else(|| "of a newer release".to_owned());
        findings.push(
            finding.fix(
                pip_install(case, ["--upgrade", "torch"], format!("a torch {needed}; ops are to be built again then"))
                    .curing_of(ID, capability.to_string()),
            ),
        );
    }
    Ok(Verdict::of(findings))
}

fn too_old(case: &Case<'_>) -> Judgement {
    const ID: &str = "gpu-too-old-for-software";
    let mut findings = Vec::new();
    let torch = case.torch()?;
    if let (Some(torch), Some(Bare { gpus, lowest, .. })) = (torch, uncovered(case)?) {
        for (capability, device) in gpus.into_iter().filter(|(capability, _)| *capability < lowest) {
            let finding = Finding::error(
                ID,
                format!("torch {} has no code for {} ({capability}): its oldest is {lowest}", torch.version, name(device)),
            )
            .about(format!("torch {capability}"))
            .seen(Evidence::new("GPU", format!("{}, {capability}", name(device))))
            .seen(shown(torch))
            .then("the first kernel stops with `no kernel image is available for execution on the device`");
            let cuda = case
                .know
                .toolkits_for(capability)
                .and_then(|(_, last)| last)
                .map(|last| format!(" for CUDA {last} or older"))
                .unwrap_or_default();
            findings.push(
                finding.fix(Fix::advice(format!("install an older torch, built{cuda}, that still has {capability}, or use another GPU"))),
            );
        }
    }
    if case.purpose.builds()
        && let (Some(nvcc), Some(_)) = (case.nvcc()?, torch)
        && let Some(oldest) = nvcc.targets.iter().map(|target| target.capability).min()
    {
        for (capability, device) in kinds(case)?.into_iter().filter(|(capability, _)| *capability < oldest) {
            if findings.iter().any(|finding: &Finding| finding.subject == format!("torch {capability}")) {
                continue;
            }
            findings.push(
                Finding::error(ID, format!("nvcc cannot build for {} ({capability}): its oldest target is {oldest}", name(device)))
                    .about(format!("nvcc {capability}"))
                    .seen(Evidence::new("GPU", format!("{}, {capability}", name(device))))
                    .seen(Evidence::new("nvcc", nvcc.version.as_ref().map(ToString::to_string).unwrap_or_default()).at(&nvcc.path))
                    .then("builds for this GPU stop with `Unsupported gpu architecture`")
                    .fix(
                        match best_toolkit(case, true)
                            .filter(|other| other.nvcc.value().is_some_and(|nvcc| nvcc.targets.contains(&Target::plain(capability))))
                        {
                            Some(other) => Fix::set("CUDA_HOME", other.root.0.clone(), "a toolkit that still has it"),
                            None => Fix::advice(format!("build with a toolkit that still has {capability}, and a torch for it")),
                        },
                    ),
            );
        }
    }
    Ok(Verdict::of(findings))
}

/// Tegra GPUs are apart: code for the desktop chips of their family does not run there.
fn jetson(case: &Case<'_>) -> Judgement {
    let Some(model) = &case.facts.host.tegra else { return Ok(Verdict::not_applicable("no Jetson")) };
    let Some(code) = torch_code(case)? else { return Ok(Verdict::not_applicable("no torch for CUDA")) };
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let chips: [(&str, Capability); 5] = [
        ("Thor", Capability::new(11, 0)),
        ("Orin", Capability::new(8, 7)),
        ("Xavier", Capability::new(7, 2)),
        ("TX2", Capability::new(6, 2)),
        ("Nano", Capability::new(5, 3)),
    ];
    let Some((chip, capability)) = chips.into_iter().find(|(chip, _)| model.contains(chip)) else {
        return Ok(Verdict::not_applicable("an unknown Jetson"));
    };
    if code.serves(case, capability, torch.cuda) {
        return Ok(Verdict::Pass);
    }
    let finding = Finding::warning(
        "jetson-aarch64",
        format!("torch {} is a desktop build and has no code for the {chip} of this Jetson ({capability})", torch.version),
    )
    .seen(Evidence::new("Jetson", model.clone()))
    .seen(shown(torch))
    .then("import works, and the first kernel stops with `no kernel image is available`")
    .fix(Fix::advice("install NVIDIA's torch wheel for this JetPack, or its container for Jetson"));
    Ok(Verdict::found(finding))
}

fn mig(case: &Case<'_>) -> Judgement {
    let Some(devices) = case.facts.gpu.devices.get("gpu")? else { return Ok(Verdict::not_applicable("no driver")) };
    let sliced: Vec<&Device> = devices.iter().filter(|device| device.mig.as_ref().is_some_and(|mig| mig.enabled)).collect();
    let Some(first) = sliced.first() else { return Ok(Verdict::Pass) };
    let instances: usize = sliced.iter().filter_map(|device| device.mig.as_ref()).map(|mig| mig.instances.len()).sum();
    let finding = Finding::info(
        "mig",
        format!(
            "{} in MIG mode, with {}",
            if sliced.len() == 1 { format!("{} is", name(first)) } else { format!("{} are", count(sliced.len(), "GPU")) },
            count(instances, "instance")
        ),
    )
    .then("a CUDA program sees one instance only, named by its UUID in CUDA_VISIBLE_DEVICES; NCCL does not join instances");
    Ok(Verdict::found(sliced.iter().flat_map(|device| device.mig.iter().flat_map(|mig| &mig.instances)).fold(
        finding,
        |finding, instance| {
            finding.seen(Evidence::new("MIG", instance.name.clone().unwrap_or_default()).said_by(instance.uuid.clone().unwrap_or_default()))
        },
    )))
}

fn mixed(case: &Case<'_>) -> Judgement {
    let kinds = kinds(case)?;
    if kinds.len() < 2 {
        return Ok(Verdict::Pass);
    }
    let words: Vec<String> = kinds.iter().map(|(capability, device)| format!("{} ({capability})", name(device))).collect();
    let finding = Finding::info("mixed-gpus", format!("the GPUs are of {}: {}", count(kinds.len(), "architecture"), join(&words)))
        .then("ops must be built for all of them; `ds-doctor arch-list` gives the list");
    Ok(Verdict::found(finding))
}
