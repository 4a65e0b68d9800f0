//! The device nodes through which programs reach the driver.

use super::driver::{at_work, start_with_gpus};
use super::driver_libs::libcuda_answer;
use super::remedy::as_root;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::gpu::{DeviceNode, DriverKind};
use crate::facts::observed::Missing;
use crate::finding::{Evidence, Finding, Fix};
use crate::model::loader::Answer;
use crate::text::join;

pub const CHECKS: &[Check] = &[Check { id: "gpu-device-nodes", run: nodes }];

/// What NVML answers when it may not open a node.
const NO_PERMISSION: u32 = 4;
/// What it answers when the container lost the right to use its devices.
const UNKNOWN: u32 = 999;

fn nodes(case: &Case<'_>) -> Judgement {
    const ID: &str = "gpu-device-nodes";
    let driver = match at_work(case)? {
        Ok(driver) => driver,
        Err(verdict) => return Ok(verdict),
    };
    if driver.kind != DriverKind::Native {
        return Ok(Verdict::not_applicable("no driver of this system's own"));
    }
    // Without the libraries nobody could open a node, nor make it.
    if !matches!(libcuda_answer(case)?, Answer::Found { .. }) {
        return Ok(Verdict::not_applicable("the driver's libraries are missing"));
    }
    let all = &case.facts.gpu.nodes;
    let at = |name: &str| all.iter().find(|node| node.path.as_os_str() == format!("/dev/{name}").as_str());
    let answered = driver.nvml.value().map(|nvml| nvml.init.code);
    let container = case.facts.host.container.as_deref();
    let finding = |title: String| {
        let finding = Finding::error(ID, title)
            .seen(
                Evidence::new("driver", driver.kernel.value().map(|module| module.version.to_string()).unwrap_or_default())
                    .at(&driver.shown_by),
            )
            .then("CUDA finds no device: `RuntimeError: No CUDA GPUs are available`, `no CUDA-capable device is detected` (100)");
        match container {
            Some(kind) => finding.seen(Evidence::new("container", kind.to_owned())),
            None => finding,
        }
    };
    let gpus: Vec<&DeviceNode> = all.iter().filter(|node| number(node).is_some()).collect();
    if let Some(plain) = all.iter().filter(|node| is_needed(node)).find(|node| !node.device) {
        let finding =
            finding(format!("`{}` is a plain file, not a device", plain.path)).seen(Evidence::new("node", "a file").at(&plain.path));
        return Ok(Verdict::found(finding.fix(remade(case, ID))));
    }
    let mut missing: Vec<&str> = ["nvidiactl", "nvidia-uvm"].into_iter().filter(|name| at(name).is_none()).collect();
    if gpus.is_empty() && !driver.listed.is_empty() {
        missing.push("nvidia0");
    }
    if !missing.is_empty() {
        // On a host the first program that asks has them made, and the library has answered that it could.
        let of_host = container.is_none() && driver.node_policy.as_ref().is_none_or(|policy| policy.made_by_driver);
        match (of_host, answered) {
            (true, Some(0)) => return Ok(Verdict::Pass),
            (true, None) => {
                let why = "the first program that asks may have the missing nodes made".to_owned();
                return Err(Missing { topic: "device nodes", why, failed: false });
            }
            _ => {}
        }
        let names: Vec<String> = missing.iter().map(|name| format!("`/dev/{name}`")).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let mut finding = finding(format!("the driver is loaded, but {} {verb} not there", join(&names))).seen(have(all));
        // NVML works: a privileged container could still make what is missing.
        if answered == Some(0) {
            finding = finding.likely();
        }
        return Ok(Verdict::found(finding.fix(remade(case, ID))));
    }
    if answered == Some(NO_PERMISSION) {
        let node = all.iter().filter(|node| is_needed(node)).find(|node| node.mode & 0o006 != 0o006);
        let mut finding = finding("this user may not open the driver's device nodes".to_owned())
            .seen(Evidence::new("nvmlInit_v2", "NVML_ERROR_NO_PERMISSION (4)").said_by("NVML"));
        if let Some(node) = node {
            finding = finding.seen(mode(node));
        }
        return Ok(Verdict::found(finding.fix(permitted())));
    }
    if let (Some(UNKNOWN), Some(_)) = (answered, container) {
        let finding = finding("the driver's device nodes are there, and the container may not use them".to_owned())
            .likely()
            .seen(Evidence::new("nvmlInit_v2", "NVML_ERROR_UNKNOWN (999)").said_by("NVML"));
        return Ok(Verdict::found(
            finding.fix(
                Fix::advice("start the container again; `systemctl daemon-reload` on the host takes the devices away from running ones")
                    .curing(ID),
            ),
        ));
    }
    let narrow: Vec<&DeviceNode> = all.iter().filter(|node| is_needed(node) && node.mode & 0o006 != 0o006).collect();
    match (narrow.first(), answered, case.facts.host.root.value()) {
        (None, ..) | (_, Some(0), _) | (_, _, Some(true)) => Ok(Verdict::Pass),
        (Some(node), _, Some(false)) if node.mode & 0o060 != 0o060 && node.uid == 0 => {
            let finding = finding(format!("`{}` is for its owner alone", node.path)).seen(mode(node));
            Ok(Verdict::found(finding.fix(permitted())))
        }
        (Some(node), ..) => {
            let why = format!("whether this user is of the group that may open `{}` is not known", node.path);
            Err(Missing { topic: "device nodes", why, failed: false })
        }
    }
}

/// The number in `/dev/nvidia0`.
fn number(node: &DeviceNode) -> Option<u32> {
    node.path.file_name()?.to_str()?.strip_prefix("nvidia")?.parse().ok()
}

fn is_needed(node: &DeviceNode) -> bool {
    number(node).is_some() || ["/dev/nvidiactl", "/dev/nvidia-uvm"].iter().any(|path| node.path.as_os_str() == *path)
}

fn mode(node: &DeviceNode) -> Evidence {
    Evidence::new("mode", format!("{:04o}, owner {}", node.mode, node.uid)).at(&node.path)
}

fn have(nodes: &[DeviceNode]) -> Evidence {
    let names: Vec<String> = nodes.iter().map(|node| node.path.to_string()).collect();
    Evidence::new("nodes", if names.is_empty() { "none".to_owned() } else { join(&names) }).said_by("/dev")
}

fn remade(case: &Case<'_>, id: &'static str) -> Fix {
    match case.facts.host.container.as_deref() {
        Some(kind) => Fix::advice(start_with_gpus(kind)).curing(id),
        None => as_root(case, ["nvidia-modprobe", "-c", "0", "-u"], "makes the nodes; `nvidia-persistenced` keeps them").curing(id),
    }
}

fn permitted() -> Fix {
    let advice = "add this user to the group that `ls -l /dev/nvidiactl` shows (`usermod -aG GROUP NAME`, then log in again), or set the module's option `NVreg_DeviceFileMode=0666`; under SLURM ask for a GPU (`--gres=gpu:1`)";
    Fix::advice(advice).curing("gpu-device-nodes")
}

#[cfg(test)]
mod tests {
    use super::super::sample::{ask, driver, loader, machine, node, one, quiet, with_driver};
    use super::*;
    use crate::facts::gpu::{Library, NvmlFacts, Status};
    use crate::facts::observed::Observed;
    use crate::facts::snapshot::Snapshot;

    #[test]
    fn whole_machines_are_quiet() {
        for facts in [machine(), with_driver("550.54.15")] {
            assert!(quiet(&ask(nodes, &facts)));
        }
    }

    fn answered(facts: &mut Snapshot, code: u32) {
        let library = Library { asked: "libnvidia-ml.so.1".to_owned(), path: None, version: None };
        let init = Status { code, name: String::new() };
        driver(facts).nvml = Observed::seen(NvmlFacts { library, init, driver: None, cuda: None, nvml: None, errors: Vec::new() });
    }

    #[test]
    fn nodes_that_are_missing() {
        let mut facts = with_driver("550.54.15");
        facts.gpu.nodes.clear();
        assert!(ask(nodes, &facts).is_err(), "they may be made by the first who asks");
        answered(&mut facts, 0);
        assert!(quiet(&ask(nodes, &facts)));
        answered(&mut facts, 9);
        assert!(one(ask(nodes, &facts)).title.contains("`/dev/nvidiactl`, `/dev/nvidia-uvm` and `/dev/nvidia0` are not there"));
        facts.host.container = Some("docker".to_owned());
        facts.gpu.nodes = ["nvidia3", "nvidiactl"].map(node).into();
        answered(&mut facts, 0);
        let finding = one(ask(nodes, &facts));
        assert!(finding.title.ends_with("`/dev/nvidia-uvm` is not there"), "{}", finding.title);
        facts.gpu.nodes.push(node("nvidia-uvm"));
        assert!(quiet(&ask(nodes, &facts)), "one GPU of several is given to the container");
        loader(&mut facts).libraries.clear();
        facts.gpu.nodes.clear();
        assert!(quiet(&ask(nodes, &facts)), "libcuda-not-found says it");
    }

    #[test]
    fn nodes_that_may_not_be_opened() {
        let mut facts = with_driver("550.54.15");
        facts.gpu.nodes[2].mode = 0o660;
        assert!(ask(nodes, &facts).is_err(), "the user's groups are not known");
        facts.host.root = Observed::seen(true);
        assert!(quiet(&ask(nodes, &facts)));
        facts.host.root = Observed::seen(false);
        answered(&mut facts, 0);
        assert!(quiet(&ask(nodes, &facts)));
        answered(&mut facts, NO_PERMISSION);
        assert!(one(ask(nodes, &facts)).evidence.iter().any(|evidence| evidence.value.starts_with("0660")));
        driver(&mut facts).nvml = Observed::skipped("a tree");
        facts.gpu.nodes[2].mode = 0o600;
        assert!(one(ask(nodes, &facts)).title.contains("its owner alone"));
        facts.gpu.nodes[2].device = false;
        assert!(one(ask(nodes, &facts)).title.contains("a plain file"));
    }

    #[test]
    fn a_container_that_lost_its_devices() {
        let mut facts = with_driver("550.54.15");
        answered(&mut facts, UNKNOWN);
        assert!(quiet(&ask(nodes, &facts)), "outside a container it says nothing of nodes");
        facts.host.container = Some("docker".to_owned());
        assert!(one(ask(nodes, &facts)).title.contains("may not use them"));
    }
}
