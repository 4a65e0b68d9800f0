//! The models against what they imitate: torch's and DeepSpeed's own code, nvcc, and the dynamic loader.

mod loader;
mod nvcc;
mod truth;

use ds_doctor::facts::program::{Program, ProgramKind};
use ds_doctor::facts::snapshot::Snapshot;
use libtest_mimic::Trial;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    [truth::trials(), nvcc::trials(), loader::trials()].into_iter().flatten().collect()
}

/// Writes an executable script, folders included.
fn script(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The facts of an environment and of the programs in some folders, links not followed.
fn machine(env: &[(String, String)], cwd: &Path, folders: &[&Path]) -> Snapshot {
    let mut facts = Snapshot::default();
    facts.env.cwd = Some(cwd.into());
    for (name, value) in env {
        facts.env.set(name, value.as_str());
    }
    for folder in folders {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(meta) = fs::metadata(&path) else { continue };
            let kind = match () {
                () if meta.is_dir() => ProgramKind::Folder,
                () if meta.permissions().mode() & 0o111 == 0 => ProgramKind::NotExecutable,
                () => ProgramKind::Elf,
            };
            let real = fs::canonicalize(&path).unwrap();
            facts.programs.push(Program {
                name: entry.file_name().to_string_lossy().into_owned(),
                path: path.into(),
                real: real.into(),
                kind,
            });
        }
    }
    facts
}

/// Numbers that are the same in every run (an LCG), to draw cases from.
struct Draw(u64);

impl Draw {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}
