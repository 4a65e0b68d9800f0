//! The search for one name.

use super::{Answer, PROGRAM, Process, Via};
use crate::facts::observed::Observed;
use std::path::{Component, Path, PathBuf};

impl Process<'_> {
    /// Looks for a name on behalf of a loaded object.
    pub(super) fn search(&self, name: &str, asker: usize) -> Answer {
        self.by_rpath(name, asker)
            .or_else(|| self.by_library_path(name))
            .or_else(|| self.by_runpath(name, asker))
            .unwrap_or_else(|| self.by_system(name, asker))
    }

    /// DT_RPATH of the asker, of what loaded it, and so on; then the program's. Not at all where the asker has a RUNPATH; an object with
    /// both has no RPATH.
    fn by_rpath(&self, name: &str, asker: usize) -> Option<Answer> {
        let runpath = |at: usize| self.objects.get(at)?.elf.as_ref()?.runpath.as_ref();
        if runpath(asker).is_some() {
            return None;
        }
        let mut chain = vec![asker];
        while let Some(next) = chain.last().and_then(|at| self.objects.get(*at)?.loader) {
            if chain.contains(&next) {
                break;
            }
            chain.push(next);
        }
        if !chain.contains(&PROGRAM) {
            chain.push(PROGRAM);
        }
        chain.into_iter().filter(|at| runpath(*at).is_none()).find_map(|at| {
            let object = self.objects.get(at)?;
            let entries = object.elf.as_ref()?.rpath.as_ref()?;
            self.in_entries(at, entries.iter().map(String::as_str), name, |_| Via::Rpath { of: object.path.clone() })
        })
    }

    fn by_library_path(&self, name: &str) -> Option<Answer> {
        let value = self.facts.env.text("LD_LIBRARY_PATH")?;
        self.in_entries(PROGRAM, value.split([':', ';']), name, |at| Via::LibraryPath { entry: at + 1 })
    }

    fn by_runpath(&self, name: &str, asker: usize) -> Option<Answer> {
        let object = self.objects.get(asker)?;
        let entries = object.elf.as_ref()?.runpath.as_ref()?;
        self.in_entries(asker, entries.iter().map(String::as_str), name, |_| Via::Runpath { of: object.path.clone() })
    }

    /// The cache, then the default folders; neither for an object that says so.
    fn by_system(&self, name: &str, asker: usize) -> Answer {
        let nodeflib = self.objects.get(asker).and_then(|object| object.elf.as_ref()).is_some_and(|elf| elf.nodeflib);
        if nodeflib {
            return Answer::NotFound { no_cache: false };
        }
        let mut no_cache = false;
        match &self.loader.cache {
            Observed::Seen { value } => {
                let mut entries = value.iter().filter(|entry| entry.soname == name && entry.exists);
                if let Some(answer) = entries.find_map(|entry| self.at(&entry.path, || Via::Cache)) {
                    return answer;
                }
            }
            Observed::Absent { .. } => no_cache = true,
            Observed::Failed { why } | Observed::Skipped { why } => return Answer::Unknown { why: format!("`/etc/ld.so.cache`: {why}") },
        }
        let folders = self.loader.default_folders.iter();
        let found = folders.map(|folder| folder.join(name)).find_map(|path| self.at(&path, || Via::DefaultFolder));
        found.unwrap_or(Answer::NotFound { no_cache })
    }

    fn in_entries<'e>(&self, of: usize, entries: impl Iterator<Item = &'e str>, name: &str, via: impl Fn(usize) -> Via) -> Option<Answer> {
        let mut entries = entries.enumerate().peekable();
        // A path of one empty entry is no path.
        if let Some((_, "")) = entries.peek() {
            let rest: Vec<_> = entries.collect();
            if rest.len() == 1 {
                return None;
            }
            return rest.into_iter().find_map(|(at, entry)| self.in_entry(of, entry, name, &|| via(at)));
        }
        entries.find_map(|(at, entry)| self.in_entry(of, entry, name, &|| via(at)))
    }

    fn in_entry(&self, of: usize, entry: &str, name: &str, via: &dyn Fn() -> Via) -> Option<Answer> {
        let (folder, known) = self.expand(of, entry);
        if !known {
            return None;
        }
        // An empty entry is the current folder, as is a relative one's start.
        let folder = Path::new(&folder);
        let folder = if folder.is_absolute() { folder.to_owned() } else { self.facts.env.cwd.as_ref()?.0.join(folder) };
        self.at(&folder.join(name), via)
    }

    /// What the loader makes of a file: `None` where there is none, or one for another machine.
    pub(super) fn at(&self, path: &Path, via: impl FnOnce() -> Via) -> Option<Answer> {
        let file = self.files.get(&tidy(path))?;
        match file.elf {
            Ok(elf) if self.machine.is_some_and(|machine| machine != (elf.machine, elf.class_bits)) => None,
            Ok(_) => Some(Answer::Found { path: file.path.clone(), via: via() }),
            Err(why) => Some(Answer::Refused { path: file.path.clone(), via: via(), why: why.to_owned() }),
        }
    }

    /// `$ORIGIN` (the folder of the object's path; of the real file for the program), `$LIB` and `$PLATFORM`, with braces or without. The
    /// second is false where one of them cannot be told: the loader leaves such an entry out.
    pub(super) fn expand(&self, of: usize, entry: &str) -> (String, bool) {
        if !entry.contains('$') {
            return (entry.to_owned(), true);
        }
        let origin = self.objects.get(of).and_then(|object| object.path.parent()).map(|folder| folder.to_string_lossy().into_owned());
        let multiarch = self.loader.default_folders.iter().find_map(|folder| {
            let name = folder.file_name()?.to_str()?.ends_with("-linux-gnu").then(|| folder.strip_prefix("/").ok())??;
            Some(name.strip_prefix("usr").unwrap_or(name).to_string_lossy().into_owned())
        });
        let lib = multiarch.unwrap_or_else(|| "lib64".to_owned());
        let platform = self.machine.map(|(machine, _)| machine.to_string().replace('-', "_"));
        let mut text = entry.to_owned();
        for (name, value) in [("ORIGIN", origin), ("LIB", Some(lib)), ("PLATFORM", platform)] {
            for form in [format!("${{{name}}}"), format!("${name}")] {
                if text.contains(&form) {
                    let Some(value) = &value else { return (text, false) };
                    text = text.replace(&form, value);
                }
            }
        }
        (text, true)
    }
}

/// Without `.` and `..`: where a folder before `..` is a link, the answer can differ from the loader's, which the facts cannot show.
pub(super) fn tidy(path: &Path) -> PathBuf {
    let mut tidy = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                tidy.pop();
            }
            other => tidy.push(other),
        }
    }
    tidy
}
