//! What the loader would do with a file that was looked into: on its own, in this Python, or after `import torch`.

use super::loader::{Opening, Process, Via};
use crate::facts::elf::{ElfFacts, Machine};
use crate::facts::inspect::{Binary, Form, Wheel};
use crate::facts::loader::Library;
use crate::facts::observed::{Missing, Observed};
use crate::facts::python::Interpreter;
use crate::facts::raw::HostPath;
use crate::facts::snapshot::Snapshot;
use crate::facts::torch::Torch;

/// The process that a file is judged in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// A program of its own, or any program.
    Alone,
    Python,
    AfterTorch,
}

/// What comes of loading one file.
#[derive(Debug, Clone)]
pub struct Load {
    pub within: Within,
    pub opening: Opening,
    /// Where symbols are looked for before the file's own libraries: the program and its libraries, what was preloaded, and what torch
    /// loads for everybody.
    pub global: Vec<HostPath>,
}

impl Load {
    /// All files that can have a symbol for it, in the loader's order.
    pub fn scope(&self) -> Vec<HostPath> {
        self.global.iter().chain(&self.opening.scope).cloned().collect()
    }
}

/// Why a file is not judged on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotHere {
    /// Nothing that the loader takes: an object, an archive, device code.
    NotLoaded,
    Machine {
        file: Machine,
        here: Machine,
    },
    /// The tags of the file or the wheel name other Pythons.
    Python {
        wants: String,
        here: String,
    },
    Unknown(Missing),
}

/// The processes of one machine, made once.
pub struct Loads<'a> {
    facts: &'a Snapshot,
    python: Option<&'a Interpreter>,
    torch: Option<&'a Torch>,
    /// There is a torch, and its libraries are not known: it is assumed, or from a snapshot without them.
    torch_unknown: bool,
    alone: Option<Process<'a>>,
    started: Option<(Process<'a>, Vec<HostPath>)>,
    after_torch: Option<(Process<'a>, Vec<HostPath>)>,
}

const ANY_PROGRAM: &str = "/usr/bin/env";

impl<'a> Loads<'a> {
    /// # Errors
    /// When the libraries of the machine are not known.
    pub fn new(facts: &'a Snapshot, python: Option<&'a Interpreter>, torch: Option<&'a Torch>) -> Result<Self, Missing> {
        let torch_unknown = torch.is_some_and(|torch| torch.libs.is_empty());
        let torch = torch.filter(|torch| !torch.libs.is_empty());
        let alone = Process::of_program(facts, &HostPath::new(ANY_PROGRAM), None, None)?;
        let (mut started, mut after_torch) = (None, None);
        if let Some(python) = python {
            let program = python.elf.value();
            let global = |process: &Process<'a>| -> Vec<HostPath> {
                let own = program.map(|elf| process.starting(elf).scope).unwrap_or_default();
                let preloaded = process.loaded().filter(|(_, via)| **via == Via::Preloaded).map(|(path, _)| path.clone());
                own.into_iter().chain(preloaded).collect()
            };
            let start = |torch| Process::of_program(facts, &python.real, program.cloned(), torch);
            if let Some(process) = start(None)? {
                let global = global(&process);
                started = Some((process, global));
            }
            if let Some(torch) = torch
                && let Some(mut process) = start(Some(torch))?
            {
                process.import(&python.site, torch);
                let mut scope = global(&process);
                let deps = "libtorch_global_deps.so";
                if let Some(elf) = torch.libs.get(deps) {
                    scope.extend(process.offering(&torch.path.join("lib").join(deps), elf));
                }
                after_torch = Some((process, scope));
            }
        }
        Ok(Self { facts, python, torch, torch_unknown, alone, started, after_torch })
    }

    /// Loads a file that lies at `path` (of a member: where it would be installed).
    ///
    /// # Errors
    /// Why it is not judged here.
    pub fn load(&self, binary: &'a Binary, path: &HostPath) -> Result<Load, NotHere> {
        let elf = match (&binary.elf, binary.is_loaded()) {
            (_, false) => return Err(NotHere::NotLoaded),
            (Observed::Seen { value }, true) => value,
            (other, true) => return Err(NotHere::Unknown(Missing { topic: "file", why: why(other), failed: true })),
        };
        let known =
            self.alone.as_ref().and_then(Process::machine).or_else(|| self.after_torch.as_ref().and_then(|(process, _)| process.machine()));
        if let Some((here, _)) = known.filter(|here| *here != (elf.machine, elf.class_bits)) {
            return Err(NotHere::Machine { file: elf.machine, here });
        }
        if let Some((wants, here)) = self.other_python(binary) {
            return Err(NotHere::Python { wants, here });
        }
        if self.torch_unknown && needs_torch(elf) {
            return Err(NotHere::Unknown(Missing {
                topic: "torch",
                why: "what this torch's libraries hold is not known".to_owned(),
                failed: false,
            }));
        }
        if binary.form == Form::Executable {
            let process = Process::of_program(self.facts, path, Some(elf.clone()), None).map_err(NotHere::Unknown)?;
            let opening = process.map(|process| process.starting(elf)).unwrap_or_default();
            return Ok(Load { within: Within::Alone, opening, global: Vec::new() });
        }
        // A library that finds everything by itself needs no Python around it.
        let mut ways = Vec::new();
        if !needs_torch(elf) {
            if !binary.module {
                ways.extend(self.alone.as_ref().map(|process| (Within::Alone, process, &[][..])));
            }
            ways.extend(self.started.as_ref().map(|(process, global)| (Within::Python, process, global.as_slice())));
        }
        ways.extend(self.after_torch.as_ref().map(|(process, global)| (Within::AfterTorch, process, global.as_slice())));
        if ways.is_empty() {
            ways.extend(self.started.as_ref().map(|(process, global)| (Within::Python, process, global.as_slice())));
            ways.extend(self.alone.as_ref().map(|process| (Within::Alone, process, &[][..])));
        }
        let mut last = None;
        for (within, process, global) in ways {
            let opening = process.opening(path, elf);
            let missing = opening.first_missing().is_some();
            let load = Load { within, opening, global: global.to_vec() };
            if !missing {
                return Ok(load);
            }
            last = Some(load);
        }
        last.ok_or_else(|| {
            NotHere::Unknown(Missing { topic: "libraries", why: "the loader's folders were not found".to_owned(), failed: true })
        })
    }

    /// The tag in the file's name, and this Python's, where they differ.
    fn other_python(&self, binary: &Binary) -> Option<(String, String)> {
        let wants = binary.python.as_deref()?.strip_prefix("cpython-")?.split('-').next()?;
        let here = self.python?.tag()?;
        (wants != here).then(|| (format!("CPython {wants}"), format!("CPython {here}")))
    }

    pub const fn torch(&self) -> Option<&'a Torch> {
        self.torch
    }

    pub const fn python(&self) -> Option<&'a Interpreter> {
        self.python
    }

    /// What the file at this path says of itself.
    pub fn elf_at(&self, path: &HostPath) -> Option<&'a ElfFacts> {
        let processes = [self.after_torch.as_ref().map(|(process, _)| process), self.alone.as_ref()];
        processes.into_iter().flatten().find_map(|process| process.elf_at(path))
    }
}

fn why<T>(observed: &Observed<T>) -> String {
    match observed {
        Observed::Failed { why } | Observed::Skipped { why } => why.clone(),
        _ => "it is no ELF file".to_owned(),
    }
}

/// Whether torch's own libraries are among its needs.
pub fn needs_torch(elf: &ElfFacts) -> bool {
    elf.needed.iter().any(|name| is_torchs(name))
}

/// The name of a library of torch's own.
pub fn is_torchs(name: &str) -> bool {
    ["libtorch.", "libtorch_", "libc10.", "libc10_", "libcaffe2", "libshm."].iter().any(|start| name.starts_with(start))
}

/// Where the members of a wheel would lie in this Python.
pub fn installed_at(python: Option<&Interpreter>, member: &str) -> HostPath {
    let site = python.and_then(|python| python.site.first()).cloned().unwrap_or_else(|| HostPath::new("/site-packages"));
    // `NAME.data/purelib/…` goes to the same folder.
    let below = member.split_once(".data/").and_then(|(_, rest)| rest.strip_prefix("purelib/").or_else(|| rest.strip_prefix("platlib/")));
    site.join(below.unwrap_or(member))
}

/// The libraries of a wheel as they would lie there: what its other members find.
pub fn planned(wheel: &Wheel, python: Option<&Interpreter>) -> Vec<Library> {
    let libraries = wheel.binaries.iter().filter(|binary| binary.form == Form::Library);
    libraries
        .filter_map(|binary| {
            let path = installed_at(python, binary.member.as_deref()?);
            Some(Library {
                family: String::new(),
                name: binary.file_name(),
                real: path.clone(),
                path,
                sources: Vec::new(),
                size: binary.size,
                elf: binary.elf.clone(),
                release: None,
                release_from: String::new(),
            })
        })
        .collect()
}

/// Whether pip would put this wheel into this Python, as far as its tags for Python and ABI tell. `None`: no tags, or no Python.
///
/// Source: PyPA, platform compatibility tags.
pub fn fits_python(wheel: &Wheel, python: &Interpreter) -> Option<bool> {
    let name = wheel.name.as_ref()?;
    let tag = python.tag()?;
    let digits = tag.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u32 = digits.get(1..)?.parse().ok()?;
    let minor_of = |tag: &str| tag.strip_prefix("cp3").and_then(|minor| minor.parse::<u32>().ok());
    let python_fits = |wanted: &String| match wanted.as_str() {
        "py3" => true,
        other if other == format!("cp{tag}") || other == format!("cp{digits}") => true,
        other if other.starts_with("py3") => other.strip_prefix("py3").and_then(|m| m.parse::<u32>().ok()).is_some_and(|m| m <= number),
        // With the stable ABI an older one fits too.
        other => name.abi.iter().any(|abi| abi == "abi3") && minor_of(other).is_some_and(|minor| minor <= number),
    };
    let abi_fits = |abi: &String| abi == "none" || abi == "abi3" || *abi == format!("cp{tag}");
    Some(name.python.iter().any(python_fits) && name.abi.iter().any(abi_fits))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::facts::inspect::WheelName;

    fn wheel(name: &str) -> Wheel {
        Wheel { name: WheelName::parse(name), ..Wheel::default() }
    }

    #[test]
    fn wheels_for_pythons() {
        let python = Interpreter { version: Some("3.11.2".parse().unwrap()), ..Interpreter::default() };
        let fits = |name: &str| fits_python(&wheel(name), &python);
        for yes in
            ["a-1-cp311-cp311-linux_x86_64.whl", "a-1-py3-none-any.whl", "a-1-cp38-abi3-manylinux1_x86_64.whl", "a-1-py2.py3-none-any.whl"]
        {
            assert_eq!(fits(yes), Some(true), "{yes}");
        }
        for no in ["a-1-cp310-cp310-linux_x86_64.whl", "a-1-cp312-abi3-linux_x86_64.whl", "a-1-cp311-cp311t-linux_x86_64.whl"] {
            assert_eq!(fits(no), Some(false), "{no}");
        }
        assert_eq!(fits("deepspeed.whl"), None);
    }

    #[test]
    fn places_of_members() {
        let python = Interpreter { site: vec!["/v/site-packages".into()], ..Interpreter::default() };
        assert_eq!(installed_at(Some(&python), "x/_C.so"), HostPath::new("/v/site-packages/x/_C.so"));
        assert_eq!(installed_at(Some(&python), "x-1.data/platlib/x/_C.so"), HostPath::new("/v/site-packages/x/_C.so"));
    }
}
