//! The release gate: what a file or a wheel is expected to hold, and does not.

use crate::facts::device_code::{DeviceCode, Kind};
use crate::facts::elf::ElfFacts;
use crate::facts::inspect::{Binary, Inspected};
use crate::facts::raw::HostPath;
use crate::finding::{Evidence, Finding, Fix};
use crate::knowledge::Knowledge;
use crate::model::arch_list::{Format, Item, print};
use crate::model::device_code::{Lacking, Reason, Runs, arch_list, lacking, runs_on};
use crate::model::gate::{depth, flag, outside};
use crate::text::{count, join};
use crate::version::{Capability, CudaVersion, Dotted};

/// What is asked of every file.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    /// Targets by name.
    pub expect: Vec<Item>,
    /// Where that list comes from: `--expect`, `torch 2.11.0`.
    pub expect_from: String,
    /// GPUs that it must run on, as they were named.
    pub runs: Vec<(String, Capability)>,
    pub max_glibc: Option<Dotted>,
    pub no_rpath_outside: bool,
}

impl Gate {
    pub fn is_open(&self) -> bool {
        !self.asks_for_code() && self.max_glibc.is_none() && !self.no_rpath_outside
    }

    pub fn asks_for_code(&self) -> bool {
        !self.expect.is_empty() || !self.runs.is_empty()
    }
}

/// What falls short in one file, or in the files of one wheel.
pub fn findings(gate: &Gate, know: &Knowledge, inspected: &Inspected) -> Vec<Finding> {
    let mut found = Vec::new();
    if gate.asks_for_code()
        && !inspected.binaries().iter().any(|binary| binary.device_code.value().is_some() || binary.device_code.is_failed())
    {
        found.push(no_code(gate, inspected));
    }
    for binary in inspected.binaries() {
        if let Some(code) = binary.device_code.value() {
            found.extend(lacks(gate, binary, code));
            found.extend(runs(gate, know, binary, code));
        }
        if let Some(elf) = binary.elf.value() {
            found.extend(glibc(gate, binary, elf));
            found.extend(rpath(gate, binary, elf));
        }
    }
    found
}

fn located(finding: Finding, binary: &Binary) -> Finding {
    Finding { location: Some(crate::finding::Location { file: binary.path.clone(), line: None }), ..finding.about(binary.name()) }
}

/// `x.so of deepspeed.whl`, or the path.
fn who(binary: &Binary) -> String {
    match &binary.member {
        Some(member) => format!("`{member}` of `{}`", file_name(&binary.path)),
        None => format!("`{}`", binary.path),
    }
}

fn file_name(path: &HostPath) -> String {
    path.file_name().map_or_else(|| path.to_string(), |name| name.to_string_lossy().into_owned())
}

fn no_code(gate: &Gate, inspected: &Inspected) -> Finding {
    let path = inspected.path();
    let what = match inspected {
        Inspected::Wheel(wheel) => {
            format!("`{}` holds no device code in any of its {}", file_name(path), count(wheel.binaries.len(), "binary file"))
        }
        Inspected::Binary(_) => format!("`{path}` holds no device code"),
    };
    let asked = if gate.expect.is_empty() {
        join(&gate.runs.iter().map(|(name, _)| name).collect::<Vec<_>>())
    } else {
        print(&gate.expect, Format::Sm)
    };
    let finding = Finding::error("binary-lacks-device-code", format!("{what}, and {asked} was expected"))
        .seen(Evidence::new("device code", "none").at(path))
        .then("every CUDA kernel of it is missing: the ops are built when they are first used, or fail")
        .fix(Fix::advice(
            "build the ops into it: for DeepSpeed `DS_BUILD_OPS=1` or `DS_BUILD_<OP>=1` with nvcc found, else no `.cu` file was compiled",
        ))
        .about(path.to_string());
    Finding { location: Some(crate::finding::Location { file: path.clone(), line: None }), ..finding }
}

fn lacks(gate: &Gate, binary: &Binary, code: &DeviceCode) -> Option<Finding> {
    let short = lacking(code, &gate.expect);
    if short.is_empty() {
        return None;
    }
    let words: Vec<String> = short.iter().map(one_lacking).collect();
    let holds: Vec<String> = code.listed().map(|(target, _)| target.to_string()).collect();
    let holds = if holds.is_empty() { "no target in every container".to_owned() } else { holds.join(" ") };
    let flags: Vec<String> = short.iter().map(|one| flag(one.target.target, one.target.kind == Kind::Sass)).collect();
    // The list that has both, in the words of torch's builds.
    let mut all = arch_list(code);
    for item in &gate.expect {
        match all.iter_mut().find(|known| known.target == item.target) {
            Some(known) => {
                known.sass |= item.sass;
                known.ptx |= item.ptx;
            }
            None => all.push(*item),
        }
    }
    all.sort_unstable();
    let finding = Finding::error("binary-lacks-arch", format!("{} has {}", who(binary), join(&words)))
        .seen(Evidence::new("holds", holds).at(&binary.path))
        .seen(Evidence::new("expected", print(&gate.expect, Format::Sm)).said_by(gate.expect_from.clone()))
        .then("on a GPU that only the missing target serves, its kernels stop with `no kernel image is available for execution on the device`")
        .fix(Fix::advice(format!(
            "build all of it again with TORCH_CUDA_ARCH_LIST=\"{}\", or add {} to nvcc's flags for this file",
            print(&all, Format::List),
            flags.join(" ")
        )));
    Some(located(finding, binary))
}

fn one_lacking(one: &Lacking) -> String {
    if one.containers == 0 {
        format!("no `{}`", one.target)
    } else {
        format!("`{}` in {} of {}", one.target, one.containers, count(usize::try_from(one.of).unwrap_or(usize::MAX), "container"))
    }
}

fn runs(gate: &Gate, know: &Knowledge, binary: &Binary, code: &DeviceCode) -> Option<Finding> {
    let without: Vec<(&String, Capability, Runs)> = gate
        .runs
        .iter()
        .map(|(name, capability)| (name, *capability, runs_on(know, code, *capability, None)))
        .filter(|(.., runs)| !runs.wholly())
        .collect();
    let first = without.first()?;
    let names: Vec<String> = without.iter().map(|(name, capability, runs)| on(name, *capability, *runs)).collect();
    let holds: Vec<String> = code.listed().map(|(target, _)| target.to_string()).collect();
    let finding = Finding::error("no-kernel-image", format!("{} does not run on {}", who(binary), join(&names)))
        .seen(Evidence::new("holds", holds.join(" ")).at(&binary.path))
        .then("its kernels stop there with `no kernel image is available for execution on the device`")
        .fix(Fix::advice(format!(
            "add {} to TORCH_CUDA_ARCH_LIST, or {} to nvcc's flags",
            first.1,
            flag(crate::version::Target::plain(first.1), true)
        )));
    Some(located(finding, binary))
}

fn on(name: &str, capability: Capability, runs: Runs) -> String {
    let named = if name == capability.to_string() { name.to_owned() } else { format!("{name} ({capability})") };
    match runs {
        Runs::Partly { served, of } => format!("{named}, where {served} of {of} containers have code"),
        Runs::No(Reason::PtxTooNew(isa)) => format!("{named}, whose driver is too old for PTX ISA {isa}"),
        _ => named,
    }
}

/// A GPU that was asked about, or is in this machine, and does not run the file.
pub fn on_gpu(know: &Knowledge, binary: &Binary, name: &str, capability: Capability, driver: Option<CudaVersion>) -> Option<Finding> {
    let code = binary.device_code.value()?;
    let runs = runs_on(know, code, capability, driver);
    if runs.wholly() {
        return None;
    }
    let holds: Vec<String> = code.listed().map(|(target, _)| target.to_string()).collect();
    let (id, then) = match runs {
        Runs::No(Reason::PtxTooNew(_)) => {
            ("ptx-newer-than-driver", "the driver stops with `the provided PTX was compiled with an unsupported toolchain` (222)")
        }
        _ => ("no-kernel-image", "its kernels stop with `no kernel image is available for execution on the device`"),
    };
    let finding = Finding::error(id, format!("{} does not run on {}", who(binary), on(name, capability, runs)))
        .seen(Evidence::new("holds", holds.join(" ")).at(&binary.path))
        .then(then)
        .fix(Fix::advice(format!("take a build with code for {capability}, or build it with TORCH_CUDA_ARCH_LIST={capability}")));
    Some(located(finding, binary))
}

fn glibc(gate: &Gate, binary: &Binary, elf: &ElfFacts) -> Option<Finding> {
    let most = gate.max_glibc.as_ref()?;
    let needs = elf.highest_need("GLIBC").filter(|needs| needs > most)?;
    let finding =
        Finding::error("binary-glibc-too-new", format!("{} needs glibc {needs}, and {most} is the most that was allowed", who(binary)))
            .seen(Evidence::new("needed", format!("GLIBC_{needs}")).at(&binary.path))
            .seen(Evidence::new("allowed", most.to_string()).said_by("--max-glibc"))
            .then(format!("on a system of glibc {most} loading stops with ``version `GLIBC_{needs}' not found``"))
            .fix(Fix::advice(format!("build it in a container with glibc {most}: `manylinux_{}`", most.major_minor().replace('.', "_"))));
    Some(located(finding, binary))
}

fn rpath(gate: &Gate, binary: &Binary, elf: &ElfFacts) -> Option<Finding> {
    if !gate.no_rpath_outside {
        return None;
    }
    let outside = outside(elf, depth(binary));
    let first = outside.first()?;
    let kind = if elf.runpath.is_some() { "RUNPATH" } else { "RPATH" };
    let shown: Vec<String> =
        outside.iter().map(|entry| if entry.is_empty() { "an empty entry".to_owned() } else { format!("`{entry}`") }).collect();
    let finding = Finding::error("binary-rpath-outside", format!("{} searches libraries in {}", who(binary), join(&shown)))
        .seen(Evidence::new(kind, (*first).to_owned()).at(&binary.path))
        .then("on another machine that folder is not there, or holds other libraries")
        .fix(Fix::advice(format!("patchelf --set-rpath '$ORIGIN' {}", binary.file_name())));
    Some(located(finding, binary))
}
