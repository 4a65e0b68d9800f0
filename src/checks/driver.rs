//! The NVIDIA driver: its kernel module, and the GPUs that it serves.

use super::remedy::{as_root, system};
use super::{Case, Check, Judgement, Verdict};
use crate::facts::gpu::{Device, DriverFacts, DriverKind, PciGpu};
use crate::facts::observed::Missing;
use crate::finding::{Evidence, Finding, Fix, Severity};
use crate::knowledge::gpu::PciMatch;
use crate::knowledge::schema::host::Family;
use crate::text::count;
use crate::version::Capability;

pub const CHECKS: &[Check] =
    &[Check { id: "nvidia-module-not-loaded", run: module_not_loaded }, Check { id: "gpu-dropped-by-driver", run: dropped }];

pub const NOT_RUN: &str = "running is not asked for";

/// Running CUDA programs matters here.
pub fn runs(case: &Case<'_>) -> bool {
    case.purpose.runs() || case.requires("gpu")
}

/// The driver that is at work, on a machine that is to run CUDA programs.
///
/// # Errors
/// When it is not known whether there is one.
pub fn at_work<'a>(case: &Case<'a>) -> Result<Result<&'a DriverFacts, Verdict>, Missing> {
    if !runs(case) {
        return Ok(Err(Verdict::not_applicable(NOT_RUN)));
    }
    let driver = case.facts.gpu.driver.get("driver")?;
    Ok(driver.ok_or_else(|| Verdict::not_applicable("nothing shows a driver at work")))
}

/// How to start a container so that it gets its GPUs.
pub fn start_with_gpus(kind: &str) -> String {
    match kind {
        "kubernetes" => "ask for a GPU in the pod (`nvidia.com/gpu: 1`), on a node with NVIDIA's device plugin".to_owned(),
        "apptainer" => "start the container with `apptainer exec --nv …`".to_owned(),
        "podman" => "start the container with `podman run --device nvidia.com/gpu=all …`, after `nvidia-ctk cdi generate` on the host".to_owned(),
        "lxc" => "give the container its GPUs: `lxc config device add NAME gpu gpu`, `lxc config set NAME nvidia.runtime=true`".to_owned(),
        _ => "start the container with `docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility …`, with NVIDIA's container toolkit on the host".to_owned(),
    }
}

/// A GPU on the bus as evidence: its name where the tables know it.
fn on_bus(case: &Case<'_>, gpu: &PciGpu) -> Evidence {
    let name = match case.know.gpu_by_pci(gpu.device) {
        Some(PciMatch::Product(product)) => product.name.to_string(),
        Some(PciMatch::Chip(capability)) => format!("capability {capability}, device 10de:{:04x}", gpu.device),
        None => format!("device 10de:{:04x}", gpu.device),
    };
    let held = gpu.held_by.as_deref().map_or("no kernel driver holds it".to_owned(), |holder| format!("held by {holder}"));
    Evidence::new("GPU", format!("{name}, {held}")).said_by(format!("/sys/bus/pci/devices/{}", gpu.address))
}

fn module_not_loaded(case: &Case<'_>) -> Judgement {
    const ID: &str = "nvidia-module-not-loaded";
    let gpu = &case.facts.gpu;
    let Some(pci) = gpu.pci.get("PCI bus")?.filter(|gpus| !gpus.is_empty()) else {
        return Ok(Verdict::not_applicable("no NVIDIA GPU on the PCI bus"));
    };
    if gpu.driver.get("driver")?.is_some() {
        return Ok(Verdict::Pass);
    }
    let set_apart = pci.iter().all(|gpu| gpu.held_by.as_deref().is_some_and(|holder| holder.starts_with("vfio")));
    // What nobody wants to run on needs no driver.
    let concerned = runs(case) || case.torch().ok().flatten().is_some_and(|torch| torch.cuda.is_some()) && !set_apart;
    if !concerned {
        return Ok(Verdict::not_applicable("nothing here runs on the GPU"));
    }
    let holders: Vec<&str> = pci.iter().filter_map(|gpu| gpu.held_by.as_deref()).filter(|holder| *holder != "nvidia").collect();
    let because =
        holders.first().map(|holder| format!(": `{holder}` holds {}", if pci.len() == 1 { "it" } else { "them" })).unwrap_or_default();
    let title = format!("{} on the PCI bus, and NVIDIA's kernel module is not loaded{because}", there_are(pci.len()));
    let severity = if runs(case) { Severity::Error } else { Severity::Warning };
    let mut finding = pci.iter().fold(Finding::new(ID, severity, title), |finding, gpu| finding.seen(on_bus(case, gpu)));
    finding = finding
        .seen(Evidence::new("looked", "/proc/driver/nvidia/version, which is not there"))
        .then("there is no driver: `torch.cuda.is_available()` is False, and `nvidia-smi` says that it `couldn't communicate with the NVIDIA driver`");
    if let Some(kind) = case.facts.host.container.as_deref() {
        finding = finding.seen(Evidence::new("container", kind.to_owned()));
        return Ok(Verdict::found(
            finding.fix(Fix::advice("load the driver on the host: nothing can be loaded from inside a container").curing(ID)),
        ));
    }
    if holders.contains(&"nouveau") {
        let script = "echo 'blacklist nouveau' > /etc/modprobe.d/blacklist-nouveau.conf && update-initramfs -u";
        return Ok(Verdict::found(match system(case) {
            Some(Family::Debian) => {
                finding.fix(as_root(case, ["sh", "-c", script], "then restart; NVIDIA's driver must be installed").curing(ID)).fix(
                    Fix::advice("install the driver, whose packages do that themselves (Ubuntu: `ubuntu-drivers install`), and restart")
                        .or(1),
                )
            }
            _ => finding.fix(
                Fix::advice("blacklist `nouveau` in /etc/modprobe.d, rebuild the initramfs, install NVIDIA's driver, restart").curing(ID),
            ),
        }));
    }
    if holders.iter().any(|holder| holder.starts_with("vfio")) {
        let advice = "the GPUs are set apart for virtual machines: take their ids out of the options of `vfio-pci` and restart, or use them from the virtual machine";
        return Ok(Verdict::found(finding.fix(Fix::advice(advice).curing(ID))));
    }
    let finding = finding
        .fix(as_root(case, ["modprobe", "nvidia"], "what it answers says which of the other cures is needed").curing(ID))
        .fix(Fix::advice("not built for this kernel: install its headers, then `dkms autoinstall` and `modprobe nvidia`").or(1))
        .fix(
            Fix::advice("refused by Secure Boot (`Key was rejected by service`): enrol the key with `mokutil --import`, or switch it off")
                .or(2),
        )
        .fix(Fix::advice("not installed: take the distribution's package of the driver, or NVIDIA's").or(3));
    Ok(Verdict::found(finding))
}

fn there_are(number: usize) -> String {
    if number == 1 { "a GPU is".to_owned() } else { format!("{} are", count(number, "GPU")) }
}

/// The open kernel modules drive Turing and newer. Source: NVIDIA open-gpu-kernel-modules, README.
const FIRST_OPEN: Capability = Capability::new(7, 5);

/// GPUs that the loaded module leaves alone, by what the tables know of its branch.
fn dropped(case: &Case<'_>) -> Judgement {
    const ID: &str = "gpu-dropped-by-driver";
    let driver = match at_work(case)? {
        Ok(driver) => driver,
        Err(verdict) => return Ok(verdict),
    };
    if driver.kind != DriverKind::Native {
        return Ok(Verdict::not_applicable("no driver of this system's own"));
    }
    let Some(pci) = case.facts.gpu.pci.get("PCI bus")? else { return Ok(Verdict::not_applicable("no PCI bus")) };
    let Some(module) = driver.kernel.get("kernel module")? else { return Ok(Verdict::not_applicable("no kernel module")) };
    let listed = |address: &str| {
        driver.listed.iter().any(|gpu| gpu.bus == address)
            || case.facts.gpu.devices.value().into_iter().flatten().any(|device| same_bus(device, address))
    };
    // A GPU that another driver holds is not meant for this one.
    let left = pci.iter().filter(|gpu| gpu.held_by.as_deref().is_none_or(|holder| holder == "nvidia") && !listed(&gpu.address));
    let branch = module.version.major();
    let mut findings = Vec::new();
    for gpu in left {
        let Some(known) = case.know.gpu_by_pci(gpu.device) else { continue };
        let capability = known.capability();
        let last = case.know.arch(capability).and_then(|arch| arch.last_driver_branch).filter(|last| *last < branch);
        let what = match last {
            Some(last) => format!("driver `{}` no longer drives it: branch {last} was the last", module.version),
            None if module.open && capability < FIRST_OPEN => {
                format!("the open kernel module `{}` drives GPUs from {FIRST_OPEN} on", module.version)
            }
            None => continue,
        };
        // Beside GPUs that work, an old one that only shows a picture does no harm.
        let severity = if driver.listed.is_empty() { Severity::Error } else { Severity::Warning };
        let mut finding = Finding::new(ID, severity, format!("the GPU at {} has capability {capability}, and {what}", gpu.address))
            .about(gpu.address.clone())
            .seen(on_bus(case, gpu))
            .seen(Evidence::new("kernel module", module.version.to_string()).said_by("/proc/driver/nvidia/version"))
            .then("the module ignores the GPU: `nvidia-smi` says `No devices were found`, and torch sees none");
        if !matches!(known, PciMatch::Product(_)) {
            finding = finding.likely();
        }
        findings.push(match last {
            Some(last) if ubuntu(case) => finding.fix(
                as_root(case, ["apt-get", "install", "-y", &format!("nvidia-driver-{last}")], "then restart, and hold the package")
                    .curing(ID),
            ),
            Some(last) => {
                finding.fix(Fix::advice(format!("install a driver of branch {last}, restart, and hold it against upgrades")).curing(ID))
            }
            None => finding.fix(
                Fix::advice("install the driver with its closed kernel modules (no `-open` in the package's name), and restart").curing(ID),
            ),
        });
    }
    Ok(Verdict::of(findings))
}

/// NVML writes the domain with eight digits, /sys with four.
fn same_bus(device: &Device, address: &str) -> bool {
    device.bus.as_deref().is_some_and(|bus| bus.ends_with(address))
}

pub fn ubuntu(case: &Case<'_>) -> bool {
    case.facts.host.os.value().is_some_and(|os| os.id == "ubuntu" || os.id_like.iter().any(|like| like == "ubuntu"))
}

/// The release that the kernel module or, where there is none to read, NVML tells.
pub fn release(driver: &DriverFacts) -> Option<&crate::version::Dotted> {
    let of_module = driver.kernel.value().map(|module| &module.version);
    of_module.or_else(|| driver.nvml.value().and_then(|nvml| nvml.driver.as_ref()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::Purpose;
    use super::super::sample::{ask, ask_for, driver, found, listed, machine, on_bus, one, quiet, with_driver, with_torch};
    use super::*;
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;

    #[test]
    fn whole_machines_are_quiet() {
        for facts in [machine(), with_driver("550.54.15")] {
            for check in CHECKS {
                assert!(quiet(&ask(check.run, &facts)), "{}", check.id);
            }
        }
    }

    fn without_module(held_by: Option<&str>) -> Snapshot {
        let mut facts = machine();
        facts.gpu.pci = Observed::seen(vec![on_bus(0x2330, held_by)]);
        facts
    }

    #[test]
    fn a_gpu_that_nobody_drives() {
        let nouveau = one(ask(module_not_loaded, &without_module(Some("nouveau"))));
        assert!(nouveau.title.contains("`nouveau` holds it"), "{}", nouveau.title);
        assert!(nouveau.evidence[0].value.starts_with("NVIDIA H100"), "{:?}", nouveau.evidence);
        let mut facts = without_module(None);
        assert!(found(ask(module_not_loaded, &facts))[0].fixes.len() > 2);
        // Who only builds wants to know it, if torch is for CUDA.
        assert!(quiet(&ask_for(module_not_loaded, &facts, Purpose::Build)));
        with_torch(&mut facts, "2.6.0+cu124", "12.4", &[]);
        assert_eq!(one(ask_for(module_not_loaded, &facts, Purpose::Build)).severity, Severity::Warning);
        facts.gpu.pci = Observed::seen(vec![on_bus(0x2330, Some("vfio-pci"))]);
        assert!(quiet(&ask_for(module_not_loaded, &facts, Purpose::Build)), "set apart on purpose");
        assert_eq!(one(ask(module_not_loaded, &facts)).severity, Severity::Error);
    }

    #[test]
    fn the_bus_alone_decides_about_the_module() {
        let mut facts = machine();
        facts.gpu.pci = Observed::absent(["/sys/bus/pci/devices"]);
        assert!(quiet(&ask(module_not_loaded, &facts)));
        facts.gpu.pci = Observed::failed("forbidden");
        assert!(ask(module_not_loaded, &facts).is_err());
        assert!(quiet(&ask(module_not_loaded, &with_driver("550.54.15"))));
    }

    #[test]
    fn gpus_that_a_branch_dropped() {
        let on = |release: &str, device: u16, open: bool| {
            let mut facts = with_driver(release);
            facts.gpu.pci = Observed::seen(vec![on_bus(device, None)]);
            driver(&mut facts).listed.clear();
            driver(&mut facts).kernel.value_mut().unwrap().open = open;
            ask(dropped, &facts)
        };
        // GP102 of the GeForce GTX 1080 Ti; 580 was the last branch.
        let pascal = one(on("590.44.01", 0x1b06, false));
        assert!(pascal.title.contains("branch 580 was the last"), "{}", pascal.title);
        assert!(quiet(&on("580.65.06", 0x1b06, false)));
        assert!(one(on("580.65.06", 0x1b06, true)).title.contains("open kernel module"));
        assert!(quiet(&on("590.44.01", 0x2330, true)));
        assert!(quiet(&on("590.44.01", 0xffff, true)), "a device that no table knows");
    }

    #[test]
    fn a_gpu_that_the_driver_lists_is_not_dropped() {
        let mut facts = with_driver("590.44.01");
        facts.gpu.pci = Observed::seen(vec![on_bus(0x1b06, Some("nvidia"))]);
        assert!(quiet(&ask(dropped, &facts)));
        driver(&mut facts).listed = vec![listed("0000:41:00.0", "NVIDIA H100 80GB HBM3")];
        assert_eq!(one(ask(dropped, &facts)).severity, Severity::Warning, "another GPU works");
        facts.gpu.pci = Observed::seen(vec![on_bus(0x1b06, Some("nouveau"))]);
        assert!(quiet(&ask(dropped, &facts)), "not meant for this driver");
    }
}
