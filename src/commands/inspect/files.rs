//! The files that were named, and those of the folders that were named, looked into.

use crate::cli::InspectArgs;
use crate::collect::inspect as collect;
use crate::collect::inspect::Depth;
use crate::commands::progress::Progress;
use crate::facts::inspect::Inspected;
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::host::{Host, Kind, Live};
use std::path::{Path, PathBuf};

/// Files that were looked into, and those that could not be.
#[derive(Default)]
pub struct Files {
    pub read: Vec<Inspected>,
    /// Named by the user, rather than met in a folder: by their place in `read`.
    pub named: Vec<bool>,
    /// The folders that were named.
    pub folders: Vec<PathBuf>,
    unreadable: Vec<(HostPath, String)>,
}

pub fn read(host: &dyn Host, args: &InspectArgs, depth: Depth, progress: &Progress) -> Files {
    let mut files = Files::default();
    let live = Live::new();
    for path in &args.paths {
        // A wheel made here is judged for a tree that need not hold it.
        let host: &dyn Host = if host.root().is_some() && !host.exists(path) { &live } else { host };
        let path = absolute(host, path);
        let say = |name: &str| progress.say(format!("reading `{name}`…"));
        say(&path.display().to_string());
        match host.metadata(&path).map(|meta| meta.kind) {
            Ok(Kind::Folder) => files.folder(host, path, depth, &say),
            Ok(_) => match collect::file(host, &path, depth, &say) {
                Ok(Some(inspected)) => files.add(inspected, true),
                Ok(None) => files.fail(&path, "neither an ELF file, nor a fat binary, nor an archive, nor a wheel"),
                Err(why) => files.fail(&path, why),
            },
            Err(_) if path.ends_with("-") => {
                files.fail(&path, "a file is read at many places, and standard input is read only once: name a file")
            }
            Err(error) => files.fail(&path, error.to_string()),
        }
    }
    files
}

impl Files {
    fn folder(&mut self, host: &dyn Host, path: PathBuf, depth: Depth, say: &dyn Fn(&str)) {
        let before = (self.read.len(), self.unreadable.len());
        let contents = collect::contents(host, &path);
        for (closed, why) in contents.closed {
            self.fail(&closed, format!("the folder cannot be listed: {why}"));
        }
        for file in contents.files {
            match collect::file(host, &file, depth, say) {
                Ok(Some(inspected)) => self.add(inspected, false),
                Ok(None) => {}
                Err(why) => self.fail(&file, why),
            }
        }
        if before == (self.read.len(), self.unreadable.len()) {
            self.fail(&path, "no library, object, cubin or wheel is in this folder");
        }
        self.folders.push(path);
    }

    fn add(&mut self, inspected: Inspected, named: bool) {
        self.read.push(inspected);
        self.named.push(named);
    }

    fn fail(&mut self, path: &Path, why: impl Into<String>) {
        self.unreadable.push((path.into(), why.into()));
    }

    /// Files that could not be opened, and those of which a part that matters could not be read.
    pub fn unreadable(&self) -> Vec<(HostPath, String)> {
        let mut all = self.unreadable.clone();
        for binary in self.read.iter().flat_map(Inspected::binaries) {
            let why = match (&binary.elf, &binary.device_code) {
                (Observed::Failed { why }, _) | (_, Observed::Failed { why }) => why,
                _ => continue,
            };
            let name = binary.member.as_ref().map_or_else(|| binary.path.clone(), |member| binary.path.join(member));
            all.push((name, why.clone()));
        }
        all
    }
}

/// `$ORIGIN` needs to know where a file lies, and the cache where an op does. `.` is left out.
fn absolute(host: &dyn Host, path: &Path) -> PathBuf {
    let whole = if path.is_absolute() { path.to_owned() } else { host.cwd().unwrap_or_else(|| PathBuf::from("/")).join(path) };
    whole.components().collect()
}
