//! A DeepSpeed wheel against what it was planned for: its ops, their archs, and the machine that it is meant for.

use super::Case;
use super::device_code::{driver_level, targets};
use super::gpu::{kinds, name};
use crate::facts::inspect::{Binary, Wheel};
use crate::facts::torch::InstalledOps;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::schema::deepspeed::AcceleratorKind;
use crate::knowledge::schema::ops::{Op, OpBuild};
use crate::model::arch_list::{Format, Item, filter, print};
use crate::model::device_code::{Reason, Runs, lacking, runs_on};
use crate::model::inspect::fits_python;
use crate::model::symbols::{Owner, cxx11_abi, owner, shown as shown_symbol};
use crate::text::join;
use crate::version::Dotted;

/// What the wheel must be.
pub struct Expected<'a> {
    pub version: &'a Dotted,
    pub accelerator: AcceleratorKind,
    pub ops: &'a [&'a Op],
    /// What CUDA code is compiled for; `None`: no op that is asked for has any.
    pub archs: &'a [Item],
}

/// What of it does not hold.
pub fn findings(wheel: &Wheel, built: &InstalledOps, expected: &Expected<'_>, target: &Case<'_>, build: Option<&Case<'_>>) -> Vec<Finding> {
    let mut found = Vec::new();
    let know = target.know;
    for op in expected.ops {
        let module = op.module.replace('.', "/");
        let binary = wheel.binaries.iter().find(|binary| binary.member.as_deref().is_some_and(|member| is_module(member, &module)));
        let noted = built.ops.get(op.op.as_ref()) == Some(&true);
        match binary {
            Some(binary) if noted => {
                let short = archs(op, know.op_build(op, expected.version), binary, expected, know);
                // Without a target this machine is it, and the GPUs that are asked for may be others'.
                if short.is_none() && build.is_some() {
                    found.extend(gpus(op, binary, target));
                }
                found.extend(short);
            }
            _ => found.push(lacks(wheel, op, noted, &module)),
        }
    }
    found.extend(fits(wheel, built, expected, target));
    if let Some(build) = build {
        found.extend(processor(expected, build, target));
    }
    found
}

/// `deepspeed/ops/adam/fused_adam_op.cpython-311-x86_64-linux-gnu.so`
fn is_module(member: &str, module: &str) -> bool {
    let below = member.split_once(".data/").and_then(|(_, rest)| rest.split_once('/')).map_or(member, |(_, rest)| rest);
    below.strip_prefix(module).is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".so"))
}

fn lacks(wheel: &Wheel, op: &Op, noted: bool, module: &str) -> Finding {
    let title = if noted {
        format!("the wheel says that it has {}, and holds no `{module}.*.so`", op.op)
    } else {
        format!("the wheel has no {}", op.op)
    };
    let holds: Vec<String> = wheel.binaries.iter().filter_map(|binary| binary.member.clone()).collect();
    Finding::error("wheel-lacks-op", title)
        .about(op.op.to_string())
        .seen(Evidence::new("installed_ops", format!("{}: {noted}", op.op)).at(&wheel.path).said_by("git_version_info_installed.py"))
        .seen(Evidence::new("modules", if holds.is_empty() { "none".to_owned() } else { holds.join(" ") }).at(&wheel.path))
        .then("the op is compiled at first use on every machine, or fails where there is no compiler")
        .fix(Fix::advice(format!("build again with `{}=1`; `ds-doctor ops` says whether it can be built there", op.variable)))
}

fn archs(
    op: &Op,
    build: Option<&OpBuild>,
    binary: &Binary,
    expected: &Expected<'_>,
    know: &crate::knowledge::Knowledge,
) -> Option<Finding> {
    if build.is_none_or(|build| build.cu == 0) {
        return None;
    }
    let least = know.op_gate(op, expected.version).and_then(|gate| gate.keeps).unwrap_or(0);
    let wanted = filter(expected.archs, least);
    let member = binary.member.clone().unwrap_or_default();
    let none = |title: String| {
        Finding::error("binary-lacks-device-code", title)
            .about(op.op.to_string())
            .seen(Evidence::new("module", member.clone()).at(&binary.path))
            .then("its kernels are missing: it was built without nvcc, or the file is damaged")
    };
    let code = match binary.device_code.get("device code") {
        Ok(Some(code)) => code,
        Ok(None) => return Some(none(format!("{} of the wheel holds no device code", op.op))),
        Err(missing) => return Some(none(format!("the device code of {} of the wheel cannot be read: {}", op.op, missing.why))),
    };
    let short = lacking(code, &wanted);
    if short.is_empty() {
        return None;
    }
    let words: Vec<String> = short.iter().map(|one| one.target.to_string()).collect();
    let holds: Vec<String> = code.listed().map(|(target, _)| target.to_string()).collect();
    Some(
        Finding::error("binary-lacks-arch", format!("{} of the wheel lacks {}", op.op, join(&words)))
            .about(op.op.to_string())
            .seen(Evidence::new("holds", holds.join(" ")).at(&binary.path).said_by(member.clone()))
            .seen(Evidence::new("expected", print(&wanted, Format::Sm)))
            .then("on a GPU that only the missing target serves, its kernels stop with `no kernel image is available for execution on the device`")
            .fix(Fix::advice(format!("build again with TORCH_CUDA_ARCH_LIST=\"{}\"", print(expected.archs, Format::List)))),
    )
}

/// The GPUs of the target.
fn gpus(op: &Op, binary: &Binary, target: &Case<'_>) -> Vec<Finding> {
    let (Ok(kinds), Some(code)) = (kinds(target), binary.device_code.value()) else { return Vec::new() };
    let level = driver_level(target);
    let mut found = Vec::new();
    for (capability, device) in kinds {
        let Runs::No(reason) = runs_on(target.know, code, capability, level) else { continue };
        let (id, what, then) = match reason {
            Reason::PtxTooNew(isa) => {
                ("ptx-newer-than-driver", format!("has only PTX {isa} for"), "the provided PTX was compiled with an unsupported toolchain")
            }
            Reason::NoCode => ("no-kernel-image", "has no code for".to_owned(), "no kernel image is available for execution on the device"),
        };
        let gpu = name(device);
        found.push(
            Finding::error(id, format!("{} of the wheel {what} the target's {gpu} ({capability})", op.op))
                .about(format!("{} {capability}", op.op))
                .seen(Evidence::new("holds", targets(code)).at(&binary.path).said_by(binary.member.clone().unwrap_or_default()))
                .seen(Evidence::new("GPU", format!("{gpu}, {capability}")))
                .then(format!("its first kernel stops there with `{then}`"))
                .fix(Fix::advice(format!("build again with {capability} in TORCH_CUDA_ARCH_LIST"))),
        );
    }
    found
}

/// The C++ ABI that the wheel's modules want of torch, by the first symbol that shows one.
fn abi(wheel: &Wheel) -> Option<(bool, &Binary, String)> {
    wheel.binaries.iter().find_map(|binary| {
        let wanted = binary.imports.value()?.iter().filter(|symbol| owner(&symbol.name) == Owner::Torch);
        wanted.filter_map(|symbol| Some((cxx11_abi(&symbol.name)?, binary, shown_symbol(&symbol.name)))).next()
    })
}

/// torch, CUDA, Python, accelerator, glibc.
fn fits(wheel: &Wheel, built: &InstalledOps, expected: &Expected<'_>, target: &Case<'_>) -> Vec<Finding> {
    const ID: &str = "wheel-torch-mismatch";
    let mut found = Vec::new();
    let noted = |what: &str, value: &str| Evidence::new(what, value).at(&wheel.path).said_by("git_version_info_installed.py");
    let wanted = match expected.accelerator {
        AcceleratorKind::Cuda => "cuda",
        AcceleratorKind::Cpu => "cpu",
    };
    if let Some(accelerator) = built.accelerator.as_deref().filter(|accelerator| *accelerator != wanted) {
        found.push(
            Finding::error(ID, format!("the wheel was built for the accelerator {accelerator}, and the target takes {wanted}"))
                .about("accelerator")
                .seen(noted("accelerator_name", accelerator))
                .then("DeepSpeed passes every pre-built op over and compiles it at first use")
                .fix(Fix::advice("build again as `ds-doctor plan` says: with `DS_ACCELERATOR=cuda` where no GPU is seen")),
        );
    }
    if let Ok(Some(torch)) = target.torch() {
        let now = torch.version.major_minor();
        if let Some(then) = built.torch.as_deref().filter(|then| *then != now) {
            found.push(
                Finding::error(ID, format!("the wheel was built for torch {then}, and the target has {}", torch.version))
                    .about("torch")
                    .seen(noted("torch_info", then))
                    .seen(super::torch::shown(torch))
                    .then("loading an op stops with `PyTorch version mismatch!`"),
            );
        }
        let cuda = torch.cuda.map(|cuda| cuda.to_string()).unwrap_or_else(|| "none".to_owned());
        if let Some(then) = built.cuda.as_deref().filter(|then| **then != *cuda && expected.accelerator == AcceleratorKind::Cuda) {
            found.push(
                Finding::error(ID, format!("the wheel was built for CUDA {then}, and the target's torch for {cuda}"))
                    .about("cuda")
                    .seen(noted("torch_info", then))
                    .seen(super::torch::shown(torch))
                    .then("loading an op stops with `CUDA version mismatch!`"),
            );
        }
    }
    if let (Ok(Some(torch)), Some((theirs, binary, symbol))) = (target.torch(), abi(wheel))
        && let Some(own) = torch.cxx11_abi.value().filter(|own| **own != theirs)
    {
        let word = |new: bool| if new { "the C++11 ABI" } else { "the older C++ ABI" };
        found.push(
            Finding::error(
                "cxx11-abi-mismatch",
                format!("the wheel was built with {}, and the target's torch has {}", word(theirs), word(*own)),
            )
            .about("abi")
            .seen(Evidence::new("wants", symbol).at(&binary.path).said_by(binary.member.clone().unwrap_or_default()))
            .seen(super::torch::shown(torch))
            .then("loading an op stops with `undefined symbol`")
            .fix(Fix::advice("build beside a torch of the same source as the target's (PyPI, conda, a container)")),
        );
    }
    if let Ok(Some(python)) = target.python()
        && fits_python(wheel, python) == Some(false)
    {
        let version = python.version.as_ref().map(ToString::to_string).unwrap_or_default();
        found.push(
            Finding::error(ID, format!("the wheel is for another Python than the target's {version}"))
                .about("python")
                .seen(Evidence::new("wheel", wheel.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()))
                .seen(Evidence::new("python", version).at(&python.path))
                .then("pip refuses it: `is not a supported wheel on this platform`"),
        );
    }
    let needs =
        wheel.binaries.iter().filter_map(|binary| Some((binary.elf.value()?.highest_need("GLIBC")?, binary))).max_by(|a, b| a.0.cmp(&b.0));
    if let (Some((needed, binary)), Some(glibc)) = (needs, target.facts.host.glibc.value())
        && needed > *glibc
    {
        found.push(
            Finding::error("binary-glibc-too-new", format!("the wheel needs glibc {needed}, and the target has {glibc}"))
                .seen(Evidence::new("needs", format!("GLIBC_{needed}")).at(&binary.path).said_by(binary.member.clone().unwrap_or_default()))
                .then(format!("loading stops with `version 'GLIBC_{needed}' not found`"))
                .fix(Fix::advice("build on a system as old as the oldest target")),
        );
    }
    found
}

/// `-march=native`: the ops on the CPU use what the building machine has.
fn processor(expected: &Expected<'_>, build: &Case<'_>, target: &Case<'_>) -> Vec<Finding> {
    let native = |op: &&&Op| {
        let know = target.know;
        let build = know.op_build(op, expected.version);
        let set = build.and_then(|build| know.op_flags(build.cxx.as_deref()?, expected.version)).unwrap_or_default();
        set.iter().chain(build.into_iter().flat_map(|build| build.cxx_own.iter())).any(|flag| flag == "{march}")
    };
    let ops: Vec<String> = expected.ops.iter().filter(native).map(|op| op.op.to_string()).collect();
    let mut found = Vec::new();
    let host = |case: &Case<'_>| (case.facts.host.machine.value().cloned(), case.facts.host.cpu.value().cloned());
    let ((built_on, built_cpu), (runs_on, runs_cpu)) = (host(build), host(target));
    if let (Some(built_on), Some(runs_on)) = (&built_on, &runs_on)
        && built_on != runs_on
    {
        found.push(
            Finding::error("wheel-torch-mismatch", format!("the wheel is built on {built_on}, and the target is {runs_on}"))
                .about("machine")
                .then("none of its modules loads there"),
        );
        return found;
    }
    let (Some(built_cpu), Some(runs_cpu), false) = (built_cpu, runs_cpu, ops.is_empty()) else { return found };
    let missing: Vec<String> = built_cpu.flags.iter().filter(|flag| !runs_cpu.flags.contains(flag)).cloned().collect();
    if !missing.is_empty() {
        found.push(
            Finding::error(
                "illegal-instruction-march-native",
                format!(
                    "{} {} compiled for the building machine's processor, and the target's lacks {}",
                    join(&ops),
                    if ops.len() == 1 { "is" } else { "are" },
                    join(&missing)
                ),
            )
            .seen(Evidence::new("built on", built_cpu.model))
            .seen(Evidence::new("target", runs_cpu.model))
            .then("it dies of SIGILL there, as soon as such an instruction is met")
            .fix(Fix::advice("build on a processor that has no more than the oldest target's")),
        );
    }
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::{healthy, python};
    use super::*;
    use crate::checks::Purpose;
    use crate::facts::device_code::{ContainerGroup, DeviceCode, Role};
    use crate::facts::gpu::Device;
    use crate::facts::host::Cpu;
    use crate::facts::inspect::{Wanted, WheelName};
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;
    use crate::knowledge::Knowledge;

    fn names(found: &[Finding]) -> Vec<&str> {
        found.iter().map(|finding| finding.id).collect()
    }

    fn verify(built: &str, members: &[&str], ops: &[&str], flags: [&[&str]; 2]) -> Vec<Finding> {
        let know = Knowledge::embedded();
        let version: Dotted = "0.19.8".parse().unwrap();
        let all: Vec<&Op> = know.deepspeed_ops(&version, AcceleratorKind::Cuda).collect();
        let chosen: Vec<&Op> = ops.iter().map(|name| *all.iter().find(|op| op.op == *name).unwrap()).collect();
        let wheel = Wheel {
            name: WheelName::parse("deepspeed-0.19.8-cp311-cp311-linux_x86_64.whl"),
            binaries: members.iter().map(|member| Binary { member: Some((*member).to_owned()), ..binary() }).collect(),
            ..Wheel::default()
        };
        let built = InstalledOps {
            ops: built.split(' ').map(|op| (op.to_owned(), true)).collect(),
            accelerator: Some("cuda".to_owned()),
            ..InstalledOps::default()
        };
        let machine = |flags: &[&str]| {
            let mut facts = Snapshot::default();
            let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
            facts.host.machine = Observed::seen("x86_64".to_owned());
            facts.host.cpu = Observed::seen(Cpu { flags, ..Cpu::default() });
            facts
        };
        let [here, there] = flags.map(machine);
        let case = |facts| Case::new(facts, &know, Purpose::Build, &[]);
        let expected = Expected { version: &version, accelerator: AcceleratorKind::Cuda, ops: &chosen, archs: &[Item::plain(8, 0)] };
        findings(&wheel, &built, &expected, &case(&there), Some(&case(&here)))
    }

    fn binary() -> Binary {
        serde_json::from_value(serde_json::json!({ "path": "/w.whl", "size": 1, "form": "library", "device_code": { "state": "absent" } }))
            .unwrap()
    }

    /// A wheel with fused_adam for 8.0 that was built for this ABI, against a target.
    fn on_target(target: &str, change: &dyn Fn(&mut Snapshot)) -> Vec<Finding> {
        let know = Knowledge::embedded();
        let version: Dotted = "0.19.8".parse().unwrap();
        let op = know.deepspeed_ops(&version, AcceleratorKind::Cuda).find(|op| op.op == "fused_adam").unwrap();
        let mut code = DeviceCode::default();
        let targets = target.split(' ').map(|word| word.parse().unwrap()).collect();
        code.add_groups([ContainerGroup { role: Role::Whole, targets, isa: Some("8.7".parse().unwrap()), containers: 1 }]);
        let symbol = "_ZN3c106detail14torchCheckFailEPKcS2_jRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE".to_owned();
        let wheel = Wheel {
            binaries: vec![Binary {
                member: Some("deepspeed/ops/adam/fused_adam_op.cpython-311-x86_64-linux-gnu.so".to_owned()),
                device_code: Observed::seen(code),
                imports: Observed::seen(vec![Wanted { name: symbol, weak: false }]),
                ..binary()
            }],
            ..Wheel::default()
        };
        let built = InstalledOps { ops: [("fused_adam".to_owned(), true)].into(), ..InstalledOps::default() };
        let mut facts = healthy();
        change(&mut facts);
        let case = Case::new(&facts, &know, Purpose::Run, &[]);
        let expected = Expected { version: &version, accelerator: AcceleratorKind::Cuda, ops: &[op], archs: &[Item::plain(8, 0)] };
        findings(&wheel, &built, &expected, &case, Some(&case))
    }

    #[test]
    fn the_gpus_and_the_abi_of_the_target() {
        let with = |capability: &str| {
            let capability = capability.parse().unwrap();
            move |facts: &mut Snapshot| {
                facts.gpu.devices = Observed::seen(vec![Device { capability: Some(capability), ..Device::default() }]);
                python(facts).torch.value_mut().unwrap().cxx11_abi = Observed::seen(true);
            }
        };
        assert_eq!(names(&on_target("sm_80", &with("8.0"))), [""; 0]);
        assert_eq!(names(&on_target("sm_80", &with("8.6"))), [""; 0], "the same major capability");
        assert_eq!(names(&on_target("sm_80", &with("9.0"))), ["no-kernel-image"]);
        assert_eq!(names(&on_target("sm_80 compute_80", &with("9.0"))), [""; 0], "the driver's level is not known");
        let old = |facts: &mut Snapshot| {
            with("8.0")(facts);
            python(facts).torch.value_mut().unwrap().cxx11_abi = Observed::seen(false);
        };
        assert_eq!(names(&on_target("sm_80", &old)), ["cxx11-abi-mismatch"]);
    }

    #[test]
    fn what_a_wheel_lacks() {
        const ADAM: &str = "deepspeed/ops/adam/cpu_adam_op.cpython-311-x86_64-linux-gnu.so";
        let same: [&[&str]; 2] = [&["avx2"], &["avx2", "avx512f"]];
        assert_eq!(names(&verify("cpu_adam", &[ADAM], &["cpu_adam"], same)), [""; 0]);
        assert_eq!(names(&verify("cpu_adam", &[], &["cpu_adam"], same)), ["wheel-lacks-op"], "noted, and not there");
        assert_eq!(names(&verify("utils", &[ADAM], &["cpu_adam"], same)), ["wheel-lacks-op"], "there, and not noted");
        let other = "deepspeed/ops/adam/cpu_adam_op_old.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(names(&verify("cpu_adam", &[other], &["cpu_adam"], same)), ["wheel-lacks-op"]);
        assert_eq!(
            names(&verify("cpu_adam", &[ADAM], &["cpu_adam"], [&["avx2", "avx512f"], &["avx2"]])),
            ["illegal-instruction-march-native"]
        );
        let fused = "deepspeed/ops/adam/fused_adam_op.cpython-311-x86_64-linux-gnu.so";
        assert_eq!(names(&verify("fused_adam", &[fused], &["fused_adam"], same)), ["binary-lacks-device-code"]);
    }
}
