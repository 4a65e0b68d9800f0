//! On which GPUs device code runs, and what list of architectures it amounts to.

use super::arch_list::Item;
use crate::facts::device_code::{CodeTarget, ContainerGroup, DeviceCode, Kind, Role};
use crate::knowledge::Knowledge;
use crate::version::{Capability, CudaVersion, Isa, Target};

/// Whether the device code of a binary runs on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// As machine code.
    Sass(CodeTarget),
    /// As PTX that the driver compiles when it is loaded.
    Ptx(CodeTarget),
    /// Only `served` of `of` containers have code for it: some kernels run, others do not.
    Partly {
        served: u64,
        of: u64,
    },
    No(Reason),
}

impl Runs {
    /// Every kernel runs.
    pub fn wholly(self) -> bool {
        matches!(self, Self::Sass(_) | Self::Ptx(_))
    }
}

/// Why nothing of a binary runs on a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There is code, and none of it is for this GPU.
    NoCode,
    /// There is PTX for it in a version that the driver is too old for: the lowest such version.
    PtxTooNew(Isa),
}

/// What the driver must compile with: its CUDA level, `None` where it is not known. PTX then counts as far as the GPU goes.
pub type DriverLevel = Option<CudaVersion>;

/// Whether the code runs on a GPU of this capability. With several containers each must have something for it, as a kernel lies in one of
/// them; which of several targets is named is that in the most containers, the highest of them.
pub fn runs_on(know: &Knowledge, code: &DeviceCode, device: Capability, driver: DriverLevel) -> Runs {
    let prelinked_serves =
        code.groups.iter().filter(|group| group.role == Role::Prelinked).all(|group| serving(know, group, device, driver).next().is_some());
    let has_prelinked = code.groups.iter().any(|group| group.role == Role::Prelinked);
    let (mut served, mut of) = (0, 0);
    let mut best: Vec<(CodeTarget, u64)> = Vec::new();
    let mut count = |target: CodeTarget, containers: u64| match best.iter_mut().find(|(known, _)| *known == target) {
        Some((_, sum)) => *sum += containers,
        None => best.push((target, containers)),
    };
    for group in code.groups.iter().filter(|group| group.role != Role::Prelinked) {
        of += group.containers;
        let mut found: Vec<CodeTarget> = serving(know, group, device, driver).collect();
        if found.is_empty() && group.role == Role::Linked && has_prelinked && prelinked_serves {
            // The driver links anew, from what the link was made from.
            let behind = code.groups.iter().filter(|group| group.role == Role::Prelinked);
            found.extend(behind.flat_map(|group| serving(know, group, device, driver)));
            found.sort_unstable();
            found.dedup();
        }
        if !found.is_empty() {
            served += group.containers;
        }
        for target in found {
            count(target, group.containers);
        }
    }
    match best.into_iter().max_by_key(|(target, containers)| (*containers, target.kind == Kind::Sass, target.target)) {
        Some((target, _)) if served == of => match target.kind {
            Kind::Sass => Runs::Sass(target),
            _ => Runs::Ptx(target),
        },
        Some(_) => Runs::Partly { served, of },
        None => Runs::No(reason(know, code, device, driver)),
    }
}

fn reason(know: &Knowledge, code: &DeviceCode, device: Capability, driver: DriverLevel) -> Reason {
    if driver.is_none() || matches!(runs_on(know, code, device, None), Runs::No(_)) {
        return Reason::NoCode;
    }
    let by_another_driver = code.groups.iter().filter(|group| serving(know, group, device, None).next().is_some());
    by_another_driver.filter_map(|group| group.isa).min().map_or(Reason::NoCode, Reason::PtxTooNew)
}

/// The targets of a container that run on the GPU.
fn serving(know: &Knowledge, group: &ContainerGroup, device: Capability, driver: DriverLevel) -> impl Iterator<Item = CodeTarget> {
    // Some code of one generation came to run on its integrated chips with a later toolkit.
    let made_by = group.isa.and_then(|isa| know.cuda_of_ptx(isa));
    group.targets.iter().copied().filter(move |code| match code.kind {
        Kind::Sass => know.runs_on(code.target, device, made_by),
        Kind::Ptx => know.ptx_serves(code.target, device) && compiles(know, group.isa, driver),
        Kind::Lto | Kind::Other(_) => false,
    })
}

/// Whether a driver of this level knows this version of PTX. One that is newer than the tables knows all that they know of.
fn compiles(know: &Knowledge, isa: Option<Isa>, driver: DriverLevel) -> bool {
    match (isa, driver.and_then(|level| know.newest_ptx(level))) {
        (Some(isa), Some(newest)) => isa <= newest,
        _ => true,
    }
}

/// The targets that every container has, as a list of architectures: for `TORCH_CUDA_ARCH_LIST` and its like.
pub fn arch_list(code: &DeviceCode) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    for (code, _) in code.listed() {
        let (sass, ptx) = (code.kind == Kind::Sass, code.kind == Kind::Ptx);
        if !sass && !ptx {
            continue;
        }
        match items.iter_mut().find(|item| item.target == code.target) {
            Some(item) => {
                item.sass |= sass;
                item.ptx |= ptx;
            }
            None => items.push(Item { target: code.target, sass, ptx }),
        }
    }
    items.sort_unstable();
    items
}

/// An expected target that is not in every container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lacking {
    pub target: CodeTarget,
    /// The containers that have it.
    pub containers: u64,
    /// The containers that should.
    pub of: u64,
}

/// What an expected list asks for and the code lacks: each target by its very name, in every container.
pub fn lacking(code: &DeviceCode, expected: &[Item]) -> Vec<Lacking> {
    let wanted = expected.iter().flat_map(|item| {
        let Item { target, sass, ptx } = *item;
        [sass.then_some(CodeTarget::sass(target)), ptx.then_some(CodeTarget::ptx(target))].into_iter().flatten()
    });
    let lacks = |target: CodeTarget| {
        let containers = code.targets.get(&target).map_or(0, |held| held.containers);
        (!code.is_listed(target)).then(|| Lacking { target, containers, of: code.containers_for(target.kind) })
    };
    wanted.filter_map(lacks).collect()
}

/// The expected GPUs on which the code does not run wholly, each with what happens there.
pub fn not_running(know: &Knowledge, code: &DeviceCode, expected: &[Target], driver: DriverLevel) -> Vec<(Capability, Runs)> {
    let judged = expected.iter().map(|target| (target.capability, runs_on(know, code, target.capability, driver)));
    judged.filter(|(_, runs)| !runs.wholly()).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::arch_list::{Format, print};

    /// Groups as `3*sm_80 sm_90 compute_90@8.4`, one a line; `linked:` and `prelinked:` in front.
    fn code(text: &str) -> DeviceCode {
        let mut code = DeviceCode::default();
        code.add_groups(text.lines().map(|line| {
            let (role, line) = match line.trim().split_once(": ") {
                Some(("linked", rest)) => (Role::Linked, rest),
                Some((_, rest)) => (Role::Prelinked, rest),
                None => (Role::Whole, line.trim()),
            };
            let (containers, line) = line.split_once('*').unwrap_or(("1", line));
            let (line, isa) = line.split_once('@').map_or((line, None), |(line, isa)| (line, Some(isa.parse().unwrap())));
            let targets = line.split(' ').map(|word| word.parse().unwrap()).collect();
            ContainerGroup { role, targets, isa, containers: containers.parse().unwrap() }
        }));
        code
    }

    fn verdict(text: &str, device: &str, driver: &str) -> String {
        let level = driver.parse().ok();
        match runs_on(&Knowledge::embedded(), &code(text), device.parse().unwrap(), level) {
            Runs::Sass(target) | Runs::Ptx(target) => target.to_string(),
            Runs::Partly { served, of } => format!("{served} of {of}"),
            Runs::No(Reason::NoCode) => "no code".to_owned(),
            Runs::No(Reason::PtxTooNew(isa)) => format!("PTX {isa} too new"),
        }
    }

    #[test]
    fn compatibility() {
        for (text, device, driver, expected) in [
            ("sm_80 sm_90", "8.0", "", "sm_80"),
            ("sm_80 sm_86", "8.9", "", "sm_86"),
            ("sm_86", "8.0", "", "no code"),
            ("sm_80", "9.0", "", "no code"),
            ("sm_80", "8.7", "", "no code"),
            ("sm_80 compute_80@9.2", "8.7", "13.2", "sm_80"),
            ("sm_90a", "9.0", "", "sm_90a"),
            ("sm_100a", "10.3", "", "no code"),
            ("sm_100f", "10.3", "", "sm_100f"),
            ("sm_100f", "12.0", "", "no code"),
            ("sm_103f", "10.0", "", "no code"),
            ("compute_80@8.4", "12.0", "", "compute_80"),
            ("compute_80@8.4", "12.0", "12.8", "compute_80"),
            ("compute_80@8.4", "12.0", "12.3", "PTX 8.4 too new"),
            ("compute_80@9.9", "12.0", "14.1", "compute_80"),
            ("compute_90a@8.4", "10.0", "", "no code"),
            ("compute_90a@8.4", "9.0", "", "compute_90a"),
            ("compute_90@8.4", "8.0", "", "no code"),
            ("sm_80 compute_80@9.0", "8.6", "12.0", "sm_80"),
            ("lto_90", "9.0", "", "no code"),
        ] {
            assert_eq!(verdict(text, device, driver), expected, "{text} on {device}, driver {driver}");
        }
    }

    #[test]
    fn every_container_counts() {
        let special = "440*sm_80 sm_90\n4*sm_80 sm_90 sm_103f";
        assert_eq!(verdict(special, "9.0", ""), "sm_90");
        assert_eq!(verdict(special, "10.3", ""), "4 of 444");
        assert_eq!(verdict("2*sm_80 compute_80@8.4\nsm_86 sm_90", "8.6", ""), "sm_80", "the one that most have");
        assert_eq!(verdict("2*sm_80\nsm_90a", "8.0", ""), "2 of 3");
    }

    #[test]
    fn a_link_is_made_anew_where_its_result_lacks_the_gpu() {
        let linked = "linked: sm_80\n2*sm_80\nprelinked: 3*sm_80 compute_80@8.4";
        assert_eq!(verdict(linked, "8.0", ""), "sm_80");
        assert_eq!(verdict("linked: sm_80\nprelinked: 3*sm_80 compute_80@8.4", "9.0", ""), "compute_80");
        assert_eq!(verdict(linked, "9.0", ""), "1 of 3");
        assert_eq!(verdict("linked: sm_80\nprelinked: sm_80 compute_80@8.4\nprelinked: sm_80", "9.0", ""), "no code");
    }

    #[test]
    fn lists() {
        let all = code("9*sm_80 sm_90 sm_90a compute_90@8.4\nsm_80 sm_90 sm_90a sm_103f compute_90@8.4");
        assert_eq!(print(&arch_list(&all), Format::List), "8.0;9.0+PTX;9.0a");
        let items = |text: &str| -> Vec<Item> {
            text.split(';')
                .map(|word| {
                    word.strip_suffix("+PTX").map_or_else(|| Item::sass(word.parse().unwrap()), |w| Item::with_ptx(w.parse().unwrap()))
                })
                .collect()
        };
        let short = |text: &str| -> Vec<String> {
            lacking(&all, &items(text)).iter().map(|l| format!("{} {}/{}", l.target, l.containers, l.of)).collect()
        };
        assert_eq!(short("8.0;9.0+PTX;9.0a"), [""; 0]);
        assert_eq!(short("8.0+PTX;10.3f;12.0"), ["compute_80 0/10", "sm_103f 1/10", "sm_120 0/10"]);
        assert_eq!(lacking(&DeviceCode::default(), &items("8.0")).len(), 1);
    }
}
