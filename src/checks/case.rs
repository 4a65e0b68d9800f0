//! One machine, looked at for a purpose, with the models' answers computed once.

use crate::facts::gpu::Device;
use crate::facts::observed::Missing;
use crate::facts::python::Interpreter;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::source::Source;
use crate::facts::toolkit::{Nvcc, Toolkit};
use crate::facts::torch::{DeepSpeed, Torch};
use crate::knowledge::Knowledge;
use crate::model::loader::Process;
use crate::model::ops::{OpState, Scene, states};
use crate::model::{self, visible};
use std::cell::OnceCell;

/// What the machine is for: absent GPUs matter to a run, absent compilers to a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    Build,
    Run,
    Both,
}

impl Purpose {
    pub const fn builds(self) -> bool {
        matches!(self, Self::Build | Self::Both)
    }

    pub const fn runs(self) -> bool {
        matches!(self, Self::Run | Self::Both)
    }
}

pub struct Case<'a> {
    pub facts: &'a Snapshot,
    pub know: &'a Knowledge,
    pub purpose: Purpose,
    /// Things that were asked for by name (`--require`): their absence is a finding.
    pub required: &'a [String],
    python_choice: OnceCell<model::python::Choice<'a>>,
    cuda_home: OnceCell<model::cuda_home::CudaHome<'a>>,
    process: OnceCell<Result<Process<'a>, Missing>>,
    ops: OnceCell<Result<Option<OpsOf<'a>>, Missing>>,
}

/// What DeepSpeed meets here, and what becomes of each of its ops.
pub type OpsOf<'a> = (Scene<'a>, Vec<OpState<'a>>);

impl<'a> Case<'a> {
    pub fn new(facts: &'a Snapshot, know: &'a Knowledge, purpose: Purpose, required: &'a [String]) -> Self {
        Self {
            facts,
            know,
            purpose,
            required,
            python_choice: OnceCell::new(),
            cuda_home: OnceCell::new(),
            process: OnceCell::new(),
            ops: OnceCell::new(),
        }
    }

    pub fn requires(&self, what: &str) -> bool {
        self.required.iter().any(|name| name == what)
    }

    /// Which interpreter is judged and why, and which environments the variables name.
    pub fn python_choice(&self) -> &model::python::Choice<'a> {
        self.python_choice.get_or_init(|| model::python::chosen(self.facts))
    }

    /// The interpreter pip would use.
    ///
    /// # Errors
    /// When the interpreters could not be looked at.
    pub fn python(&self) -> Result<Option<&'a Interpreter>, Missing> {
        self.facts.pythons.get("python")?;
        Ok(self.python_choice().interpreter)
    }

    /// # Errors
    /// When torch could not be looked at; `None` when it is not installed in the chosen interpreter.
    pub fn torch(&self) -> Result<Option<&'a Torch>, Missing> {
        match self.python()? {
            Some(python) => python.torch.get("torch"),
            None => Ok(None),
        }
    }

    /// A torch that is only assumed, where nothing tells which environment will get it: the one that is judged has none, and neither an
    /// activation nor `--python` names it. What such an environment lacks says nothing; what the machine lacks does.
    ///
    /// # Errors
    /// As [`Case::torch`]; and, with such a torch, that `what` is not known yet.
    pub fn environment_of_torch(&self, what: &'static str) -> Result<(), Missing> {
        let Some((python, torch)) = self.python()?.zip(self.torch()?) else { return Ok(()) };
        let choice = self.python_choice();
        let said = matches!(choice.by, Some(Source::Option { .. })) || choice.named.iter().any(|named| named.chosen);
        if said || !model::assume::is_assumed(&torch.path) || python.package("torch").is_some() {
            return Ok(());
        }
        let why = "torch is assumed, and which Python will get it is not said (`--python` says it)".to_owned();
        Err(Missing { topic: what, why, failed: false })
    }

    /// # Errors
    /// When DeepSpeed could not be looked at; `None` when it is not installed in the chosen interpreter.
    pub fn deepspeed(&self) -> Result<Option<&'a DeepSpeed>, Missing> {
        match self.python()? {
            Some(python) => python.deepspeed.get("deepspeed"),
            None => Ok(None),
        }
    }

    /// The ops of the DeepSpeed that is judged; `None` without one.
    ///
    /// # Errors
    /// When DeepSpeed or torch could not be looked at, or the accelerator is none whose ops are known.
    pub fn ops(&self) -> Result<Option<&OpsOf<'a>>, Missing> {
        let made = self.ops.get_or_init(|| {
            let Some(deepspeed) = self.deepspeed()? else { return Ok(None) };
            let scene = Scene::new(self.facts, self.know, deepspeed)?;
            let states = states(&scene);
            Ok(Some((scene, states)))
        });
        made.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// What torch's lookup gives, also when it is nonsense or nothing.
    pub fn cuda_home(&self) -> &model::cuda_home::CudaHome<'a> {
        self.cuda_home.get_or_init(|| model::cuda_home::cuda_home(self.facts, self.know, self.torch().ok().flatten()))
    }

    /// The toolkit that torch's lookup gives.
    ///
    /// # Errors
    /// When the toolkits could not be looked at.
    pub fn toolkit(&self) -> Result<Option<&'a Toolkit>, Missing> {
        self.facts.toolkits.get("toolkit")?;
        Ok(self.cuda_home().toolkit)
    }

    /// That toolkit's nvcc.
    ///
    /// # Errors
    /// When toolkits or nvcc could not be looked at.
    pub fn nvcc(&self) -> Result<Option<&'a Nvcc>, Missing> {
        match self.toolkit()? {
            Some(toolkit) => toolkit.nvcc.get("nvcc"),
            None => Ok(None),
        }
    }

    /// A process in which the chosen Python has imported torch; before any import where torch is absent or its libraries are not known, and
    /// any program where there is no Python.
    ///
    /// # Errors
    /// When the libraries of this machine could not be looked at.
    pub fn process(&self) -> Result<&Process<'a>, Missing> {
        let made = self.process.get_or_init(|| {
            let torch = self.torch().ok().flatten().filter(|torch| !torch.libs.is_empty());
            let made = match (self.python().ok().flatten(), torch) {
                (Some(python), Some(torch)) => Process::importing(self.facts, python, torch)?,
                (Some(python), None) => Process::started(self.facts, python, None)?,
                (None, _) => Process::of_program(self.facts, &HostPath::new("/usr/bin/env"), None, None)?,
            };
            made.ok_or_else(|| Missing { topic: "libraries", why: "the loader's folders were not found".to_owned(), failed: true })
        });
        made.as_ref().map_err(Clone::clone)
    }

    /// The GPUs that a program would see, CUDA_VISIBLE_DEVICES applied; none where nothing shows a driver.
    ///
    /// # Errors
    /// When there is a driver and its devices are not known.
    pub fn gpus(&self) -> Result<Vec<&'a Device>, Missing> {
        let Some(all) = self.facts.gpu.devices.get("gpu")? else { return Ok(Vec::new()) };
        let env = &self.facts.env;
        let seen = visible::visible(all, env.get("CUDA_VISIBLE_DEVICES"), env.get("CUDA_DEVICE_ORDER"));
        if !seen.certain {
            let why = "the GPUs differ, and CUDA_VISIBLE_DEVICES numbers them in an order that only the driver knows".to_owned();
            return Err(Missing { topic: "gpu", why, failed: false });
        }
        Ok(seen.picks.iter().filter_map(|pick| all.get(pick.device)).collect())
    }

    /// Variables `DS_BUILD_*` that ask for ops.
    pub fn asked_ops(&self) -> Vec<&'a str> {
        let vars = &self.facts.env.vars;
        let on = |value: &str| !value.is_empty() && value != "0";
        let wanted = vars.iter().filter(|(name, _)| name.starts_with("DS_BUILD_") && *name != "DS_BUILD_STRING");
        wanted.filter(|(_, value)| on(&value.to_string_lossy())).map(|(name, _)| name.as_str()).collect()
    }

    /// Every toolkit seen, in the order of their sources.
    pub fn toolkits(&self) -> &'a [Toolkit] {
        self.facts.toolkits.value().map_or(&[], Vec::as_slice)
    }
}
