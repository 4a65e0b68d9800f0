//! The tables of `gpus.toml`.

use super::{Fault, List, PciDevice, Str};
use crate::version::{Capability, CudaVersion, Target};

record! {
    /// A product, by the name that the driver prints.
    pub struct Gpu {
        pub name: Str,
        pub cc: Capability,
        /// Capabilities of other products sold under the same name.
        #[serde(default)]
        pub also: List<Capability>,
        /// One PCI device id of the product; it may have others.
        pub pci: Option<PciDevice>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Gpu, (Capability, String), |g| (g.cc, g.name.to_lowercase()), g.name.to_string(), {
    if g.name.trim() != g.name || g.name.is_empty() { Err(Fault::new("name", "is empty or has blanks around it")) } else { Ok(()) }
});

record! {
    /// What people type for a product or a group of products with one capability.
    pub struct Alias {
        /// In lower case, without maker and brand.
        pub alias: Str,
        pub cc: Capability,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Alias, (Capability, Str), |a| (a.cc, a.alias.clone()), a.alias.to_string(), lower_case(&a.alias, "alias"));

record! {
    /// What people type for products of different capabilities.
    pub struct Ambiguous {
        pub text: Str,
        pub ccs: List<Capability>,
        /// What the name can mean; a clause for a sentence.
        pub note: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Ambiguous, Str, |a| a.text.clone(), a.text.to_string(), {
    if a.ccs.len() < 2 { Err(Fault::new("ccs", "has not two capabilities: make it an alias")) } else { lower_case(&a.text, "text") }
});

record! {
    /// The first word of a virtual GPU's name, as the driver prints it: `GRID A100-40C` begins with `A100`.
    pub struct VirtualGpu {
        pub base: Str,
        pub cc: Capability,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(VirtualGpu, (Capability, Str), |v| (v.cc, v.base.clone()), v.base.to_string());

record! {
    /// A range of PCI device ids in which every id in the tables has one capability. An id in it that is not in the tables has it probably.
    pub struct PciRange {
        pub from: PciDevice,
        pub to: PciDevice,
        pub cc: Capability,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(PciRange, PciDevice, |p| p.from, p.from.to_string(), {
    if p.from > p.to { Err(Fault::new("to", "lies before `from`")) } else { Ok(()) }
});

record! {
    /// A compute capability.
    pub struct Arch {
        pub cc: Capability,
        /// The generation: `Ampere`.
        pub name: Str,
        /// The first toolkit that can target it, older than the tables' toolkits perhaps.
        pub first_cuda: CudaVersion,
        /// The last toolkit that can; none where the newest still does.
        pub last_cuda: Option<CudaVersion>,
        /// The last driver branch that runs it; none where the newest still does, or where it has no desktop driver.
        pub last_driver_branch: Option<u32>,
        /// The capability by which later toolkits and drivers call the same chip.
        pub renamed_to: Option<Capability>,
        /// A chip with the CPU on it (Jetson, Drive, Spark), for which desktop binaries are not made.
        #[serde(default)]
        pub integrated: bool,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Arch, Capability, |a| a.cc, a.cc.to_string());

record! {
    /// An exception from the rule that SASS for X.Y runs on X.Z with Z at least Y.
    pub struct RunsOn {
        /// What the code was compiled for.
        pub code: Capability,
        /// It runs on these and no others.
        #[serde(default)]
        pub only: List<Capability>,
        /// It runs by the rule, but not on these.
        #[serde(default)]
        pub not: List<Capability>,
        /// The CUDA release whose compiler makes code without the exception.
        pub lifted_in: Option<CudaVersion>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(RunsOn, Capability, |r| r.code, r.code.to_string(), {
    if r.only.is_empty() == r.not.is_empty() { Err(Fault::new("only", "or `not`: one of the two must be there")) } else { Ok(()) }
});

record! {
    /// The capabilities on which code for a family target runs.
    pub struct TargetFamily {
        pub target: Target,
        pub runs_on: List<Capability>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(TargetFamily, Target, |f| f.target, f.target.to_string());

tables! {
    /// What is known of GPUs.
    GpuTables in "gpus.toml" {
        arch: Arch,
        runs_on: RunsOn,
        family: TargetFamily,
        alias: Alias,
        ambiguous: Ambiguous,
        virtual_gpu: VirtualGpu,
        pci_range: PciRange,
        gpu: Gpu,
    }
    whole: |t| {
        for gpu in t.gpu.iter() {
            if !t.arch.iter().any(|arch| arch.cc == gpu.cc) {
                return Err(Fault::new("arch", format!("has no row for {}, which `{}` has", gpu.cc, gpu.name)));
            }
            let outside = |range: &&PciRange| gpu.pci.is_some_and(|id| range.from <= id && id <= range.to) && range.cc != gpu.cc;
            if let Some(range) = t.pci_range.iter().find(outside) {
                return Err(Fault::new("pci_range", format!("says {} from {} on, but `{}` has {}", range.cc, range.from, gpu.name, gpu.cc)));
            }
        }
        if let Some([a, _]) = t.pci_range.windows(2).find(|pair| matches!(pair, [a, b] if a.to >= b.from)) {
            return Err(Fault::new("pci_range", format!("has ranges that overlap, after {}", a.from)));
        }
        if let Some(twice) = t.alias.iter().find(|a| t.ambiguous.iter().any(|b| b.text == a.alias)) {
            return Err(Fault::new("alias", format!("`{}` is ambiguous too", twice.alias)));
        }
        match t.alias.iter().find(|a| t.alias.iter().any(|b| b.alias == a.alias && b.cc != a.cc)) {
            Some(twice) => Err(Fault::new("alias", format!("`{}` stands for two capabilities: make it ambiguous", twice.alias))),
            None => Ok(()),
        }
    }
}

fn lower_case(text: &str, key: &'static str) -> Result<(), Fault> {
    if text.is_empty() || text.to_lowercase() != text { Err(Fault::new(key, "is not in lower case")) } else { Ok(()) }
}
