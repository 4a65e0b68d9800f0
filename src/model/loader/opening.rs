//! What comes of opening one file: each of its needs, those of its libraries, and where the loader then looks for symbols.

use super::{Answer, Object, PROGRAM, Process, Via};
use crate::facts::elf::ElfFacts;
use crate::facts::raw::HostPath;
use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};

/// One name that a file needs, and what the loader answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    pub name: String,
    pub by: HostPath,
    pub answer: Answer,
}

/// The result of opening a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opening {
    /// In the loader's order; each name that is asked for by a file once.
    pub needs: Vec<Need>,
    /// The file, then its libraries in breadth: where a symbol is looked for.
    pub scope: Vec<HostPath>,
}

impl Opening {
    /// The first that is not found or refused: its name is in the error.
    pub fn first_missing(&self) -> Option<&Need> {
        self.needs.iter().find(|need| matches!(need.answer, Answer::NotFound { .. } | Answer::Refused { .. }))
    }

    /// Every need was found: the scope is whole.
    pub fn is_whole(&self) -> bool {
        self.needs.iter().all(|need| need.answer.path().is_some())
    }
}

impl<'a> Process<'a> {
    /// Opens a file by its path, as Python does with a module. Nothing of it stays in this process.
    pub fn opening(&self, path: &HostPath, elf: &'a ElfFacts) -> Opening {
        let (mut process, start, known) = self.with(path, elf);
        let mut opening = process.closure(start);
        if known {
            // It came with another file, whose libraries it sees too.
            let all = process.objects.iter().skip(1).map(|object| &object.path);
            let more: Vec<HostPath> = all.filter(|path| !opening.scope.contains(path)).cloned().collect();
            opening.scope.extend(more);
        }
        opening
    }

    /// The file and its libraries alone: what they offer to everybody where the file is opened with `RTLD_GLOBAL`.
    pub fn offering(&self, path: &HostPath, elf: &'a ElfFacts) -> Vec<HostPath> {
        let (mut process, start, _) = self.with(path, elf);
        process.closure(start).scope
    }

    /// This process with the file in it, and the place of that; true where it was there before: a file is loaded once.
    fn with(&self, path: &HostPath, elf: &'a ElfFacts) -> (Self, usize, bool) {
        let mut process = self.clone();
        let real = process.real_of(path);
        if let Some(at) = process.objects.iter().skip(1).position(|object| object.real == real) {
            return (process, at + 1, true);
        }
        let elf = Some(Cow::Borrowed(elf));
        process.objects.push(Object { path: path.clone(), real, names: Vec::new(), elf, loader: Some(PROGRAM), via: Via::ByPath });
        let at = process.objects.len() - 1;
        (process, at, false)
    }

    /// The program's own libraries, as it starts. Nothing of it stays in this process.
    pub fn starting(&self, elf: &'a ElfFacts) -> Opening {
        let mut process = self.clone();
        if let Some(program) = process.objects.get_mut(PROGRAM) {
            program.elf = Some(Cow::Borrowed(elf));
        }
        process.closure(PROGRAM)
    }

    /// What the file at this path says, where it is known.
    pub fn elf_at(&self, path: &HostPath) -> Option<&'a ElfFacts> {
        self.files.get(&super::path::tidy(path)).and_then(|file| file.elf.ok())
    }

    fn real_of(&self, path: &HostPath) -> HostPath {
        self.files.get(&super::path::tidy(path)).map_or_else(|| path.clone(), |file| file.real.clone())
    }

    fn closure(&mut self, start: usize) -> Opening {
        let mut opening = Opening::default();
        let mut queue = VecDeque::from([start]);
        let mut seen = BTreeSet::from([start]);
        while let Some(at) = queue.pop_front() {
            let Some(object) = self.objects.get(at) else { break };
            let by = object.path.clone();
            opening.scope.push(by.clone());
            let needed = object.elf.as_ref().map(|elf| elf.needed.clone()).unwrap_or_default();
            for name in needed {
                let answer = self.answer(&name, at);
                if answer.path().is_some()
                    && let Some(next) = self.map(&name, at, None)
                    && seen.insert(next)
                {
                    queue.push_back(next);
                }
                opening.needs.push(Need { name, by: by.clone(), answer });
            }
        }
        opening
    }
}
