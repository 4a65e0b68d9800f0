//! What an op meets on a machine: the interpreter, torch, the toolkit, the GPUs and the accelerator that DeepSpeed takes.

use crate::facts::gpu::Device;
use crate::facts::observed::Missing;
use crate::facts::python::Interpreter;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::{DeepSpeed, Torch};
use crate::knowledge::Knowledge;
use crate::knowledge::schema::deepspeed::{AcceleratorKind, DeepSpeedTrait};
use crate::model::build::{self, Accelerator};
use crate::model::cuda_home::{CudaHome, cuda_home};
use crate::model::{python, visible};
use crate::version::CudaVersion;

pub struct Scene<'a> {
    pub facts: &'a Snapshot,
    pub know: &'a Knowledge,
    pub python: Option<&'a Interpreter>,
    pub torch: Option<&'a Torch>,
    pub deepspeed: &'a DeepSpeed,
    pub home: CudaHome<'a>,
    /// Those that a program sees.
    pub gpus: Result<Vec<&'a Device>, Missing>,
    /// Whose ops are looked at.
    pub accelerator: AcceleratorKind,
    /// `DS_ACCELERATOR` names it.
    pub said: bool,
}

/// What DeepSpeed meets when it asks nvcc for its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NvccFound {
    Release(CudaVersion),
    /// torch's CUDA_HOME is None.
    NoHome,
    /// There is no nvcc in it, or none that tells its release.
    NoNvcc,
}

impl<'a> Scene<'a> {
    /// # Errors
    /// Why the accelerator is none whose ops are known, or what is missing.
    pub fn new(facts: &'a Snapshot, know: &'a Knowledge, deepspeed: &'a DeepSpeed) -> Result<Self, Missing> {
        let interpreter = python::chosen(facts).interpreter;
        let torch = match interpreter {
            Some(interpreter) => interpreter.torch.get("torch")?,
            None => None,
        };
        let gpus = gpus(facts);
        let gpu = gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty());
        let why = |why: &str| Missing { topic: "deepspeed", why: why.to_owned(), failed: false };
        let (accelerator, said) = match build::accelerator(facts, know, &deepspeed.version, torch, gpu) {
            Some((Accelerator::Cuda, said)) => (AcceleratorKind::Cuda, said),
            Some((Accelerator::Cpu, said)) => (AcceleratorKind::Cpu, said),
            Some((Accelerator::Other, _)) => return Err(why("`DS_ACCELERATOR` names neither cuda nor cpu, whose ops alone are known")),
            None => return Err(why("how this release picks its accelerator is not known")),
        };
        Ok(Self { facts, know, python: interpreter, torch, deepspeed, home: cuda_home(facts, know, torch), gpus, accelerator, said })
    }

    pub fn does(&self, what: DeepSpeedTrait) -> bool {
        self.know.deepspeed_does(what, &self.deepspeed.version).unwrap_or(false)
    }

    /// A GPU that torch can use is there.
    pub fn gpu(&self) -> bool {
        self.gpus.as_ref().is_ok_and(|gpus| !gpus.is_empty()) && self.torch.is_some_and(|torch| torch.cuda.is_some() || torch.hip.is_some())
    }

    /// # Errors
    /// When the toolkits could not be looked at.
    pub fn nvcc(&self) -> Result<NvccFound, Missing> {
        self.facts.toolkits.get("toolkit")?;
        if self.home.value.is_none() {
            return Ok(NvccFound::NoHome);
        }
        let Some(toolkit) = self.home.toolkit else { return Ok(NvccFound::NoNvcc) };
        let nvcc = toolkit.nvcc.get("nvcc")?;
        Ok(match nvcc.and_then(|nvcc| nvcc.version.as_ref()) {
            Some(version) => NvccFound::Release(CudaVersion::new(version.major(), version.minor())),
            None => NvccFound::NoNvcc,
        })
    }

    /// Which problem it is that torch finds no nvcc.
    pub fn no_nvcc_id(&self) -> &'static str {
        let some = self.facts.toolkits.value().is_some_and(|all| all.iter().any(|toolkit| toolkit.nvcc.value().is_some()));
        match (self.home.value.is_some(), some) {
            (false, true) => "cuda-home-unset",
            (true, true) => "cuda-home-wrong",
            (_, false) => "no-nvcc",
        }
    }
}

fn gpus(facts: &Snapshot) -> Result<Vec<&Device>, Missing> {
    let Some(all) = facts.gpu.devices.get("gpu")? else { return Ok(Vec::new()) };
    let seen = visible::visible(all, facts.env.get("CUDA_VISIBLE_DEVICES"), facts.env.get("CUDA_DEVICE_ORDER"));
    if !seen.certain {
        let why = "the GPUs differ, and CUDA_VISIBLE_DEVICES numbers them in an order that only the driver knows".to_owned();
        return Err(Missing { topic: "gpu", why, failed: false });
    }
    Ok(seen.picks.iter().filter_map(|pick| all.get(pick.device)).collect())
}
