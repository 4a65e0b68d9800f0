//! What a file is that has the name of a program.

use crate::binary::elf::{Elf, ElfError};
use crate::binary::read::read_up_to;
use crate::collect::env::reason;
use crate::collect::{open, search};
use crate::facts::elf::Machine;
use crate::facts::program::ProgramKind;
use crate::host::{Host, Kind};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The longest first line that Linux reads.
const FIRST_LINE: u64 = 256;

/// Tells kinds of files apart; knows the machine that programs here are for.
pub struct Inspector<'a> {
    host: &'a dyn Host,
    machine: OnceLock<Option<Machine>>,
    /// What first lines and PT_INTERP name, and whether it is there: few names, asked for by many programs.
    found: Mutex<BTreeMap<String, bool>>,
}

impl<'a> Inspector<'a> {
    pub fn new(host: &'a dyn Host) -> Self {
        Self { host, machine: OnceLock::new(), found: Mutex::default() }
    }

    /// The machine of this file system's own programs; `None` where none of them could be read.
    pub fn machine(&self) -> Option<Machine> {
        const OWN: [&str; 4] = ["/bin/sh", "/usr/bin/env", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"];
        let of = |path: &&str| Some(Elf::open(&open(self.host, Path::new(path)).ok()?).ok()?.machine());
        *self.machine.get_or_init(|| OWN.iter().find_map(of))
    }

    /// What the file is, links followed.
    pub fn kind(&self, path: &Path) -> ProgramKind {
        let meta = match self.host.metadata(path) {
            Ok(meta) => meta,
            Err(error) => return ProgramKind::Unreadable { why: reason(&error) },
        };
        match meta.kind {
            Kind::File => {}
            Kind::Folder => return ProgramKind::Folder,
            _ => return broken("no regular file"),
        }
        if !meta.executable() {
            return ProgramKind::NotExecutable;
        }
        if meta.len == 0 {
            return broken("the file is empty");
        }
        let file = match open(self.host, path) {
            Ok(file) => file,
            Err(error) => return ProgramKind::Unreadable { why: reason(&error) },
        };
        match Elf::open(&file) {
            Ok(elf) => self.elf(&elf),
            Err(ElfError::NotElf) => match read_up_to(&file, 0, FIRST_LINE) {
                Ok(start) => self.text(&start),
                Err(error) => ProgramKind::Unreadable { why: reason(&error) },
            },
            Err(ElfError::Io(error)) => ProgramKind::Unreadable { why: reason(&error) },
            Err(error) => ProgramKind::Broken { why: error.to_string() },
        }
    }

    fn elf(&self, elf: &Elf<'_>) -> ProgramKind {
        if let Some(cut) = elf.truncated().filter(|cut| cut.segments) {
            return ProgramKind::Broken { why: format!("the file is cut short: {} of {} bytes", cut.actual, cut.expected) };
        }
        if let Some(own) = self.machine()
            && !runs_on(elf.machine(), own)
        {
            return ProgramKind::Broken { why: format!("an {} program on an {own} system", elf.machine()) };
        }
        match elf.interpreter() {
            // Without any own program to be seen this is no whole system, and a missing loader says nothing.
            Ok(Some(loader)) if self.machine().is_some() && !self.found(&loader, || self.host.exists(Path::new(&loader))) => {
                ProgramKind::Broken { why: format!("its loader {loader} is not here") }
            }
            _ => ProgramKind::Elf,
        }
    }

    fn text(&self, start: &[u8]) -> ProgramKind {
        let Some(line) = start.strip_prefix(b"#!") else { return broken("neither an ELF program nor a script with a #! line") };
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        // A carriage return stays: Linux takes it for a part of the interpreter's name.
        let line = String::from_utf8_lossy(line).trim_matches([' ', '\t', '\0']).to_owned();
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        let Some(program) = words.next() else { return broken("its #! line names no interpreter") };
        let argument = words.find(|word| !word.starts_with('-') && !word.contains('='));
        let interpreter = match argument.filter(|_| program.ends_with("/env")) {
            Some(name) => format!("{program} {name}"),
            None => program.to_owned(),
        };
        let found = self.found(&interpreter, || self.interpreter(program, argument));
        ProgramKind::Script { interpreter, interpreter_found: found }
    }

    /// A tree without any shell is only a part of a system: that its shell is missing says nothing about its scripts.
    fn left_out(&self, program: &str) -> bool {
        let shells = ["/bin/sh", "/bin/bash", "/usr/bin/bash", "/usr/bin/env"];
        self.host.root().is_some() && shells.contains(&program) && !self.host.exists(Path::new("/bin/sh"))
    }

    /// Whether an interpreter is there, and, for `env`, what it is told to start.
    fn interpreter(&self, program: &str, argument: Option<&str>) -> bool {
        let there = self.executable(Path::new(program)) || self.left_out(program);
        let started = |name: &str| search::entries(self.host, "PATH").iter().any(|entry| self.executable(&entry.path.join(name)));
        there && argument.filter(|_| program.ends_with("/env")).is_none_or(started)
    }

    fn found(&self, name: &str, look: impl FnOnce() -> bool) -> bool {
        let known = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(name).copied();
        known.unwrap_or_else(|| {
            let found = look();
            self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), found);
            found
        })
    }

    fn executable(&self, path: &Path) -> bool {
        self.host.metadata(path).is_ok_and(|meta| meta.executable())
    }
}

fn broken(why: &str) -> ProgramKind {
    ProgramKind::Broken { why: why.to_owned() }
}

/// 64-bit kernels of these families run their 32-bit programs too.
fn runs_on(program: Machine, own: Machine) -> bool {
    program == own
        || matches!((program, own), (Machine::X86, Machine::X86_64) | (Machine::X86_64, Machine::X86) | (Machine::ARM, Machine::AARCH64))
}
