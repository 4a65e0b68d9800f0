//! The extension cache as collected, against torch's own code: where it builds, what it writes, how it locks.

use crate::util::{lab, trial_with};
use ds_doctor::collect::{cache, python};
use ds_doctor::facts::cache::CacheRoot;
use ds_doctor::facts::observed::Observed;
use ds_doctor::host::Live;
use libtest_mimic::Trial;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// What torch does before it compiles: asks for the folder, takes the lock, writes `build.ninja`. Then it says so and waits.
const BUILD: &str = r"
import os, sys, time
from torch.utils import cpp_extension as c
from torch.utils.file_baton import FileBaton
folder = c._get_build_directory('my_op', False)
baton = FileBaton(os.path.join(folder, 'lock'))
assert baton.try_acquire()
c._write_ninja_file_to_build_library(os.path.join(folder, 'build.ninja'), 'my_op', ['/x/a.cpp'], [], [], [], [], ['/x'], False, False, False)
print(folder, flush=True)
time.sleep(100)
";

fn build(lab: &Path, env: &[(&str, &str)]) -> (Child, BufReader<ChildStdout>, PathBuf) {
    let mut command = Command::new(lab.join("bin/python"));
    command.args(["-c", BUILD]).env_clear().env("PATH", "/usr/bin:/bin").envs(env.iter().copied());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    (child, out, PathBuf::from(line.trim()))
}

fn roots(env: &[(&str, &str)]) -> Vec<CacheRoot> {
    let host = Live::with_env(env.iter().map(|(k, v)| (k.into(), v.into())).collect());
    cache::collect(&host, &mut Vec::new()).value().unwrap().roots.clone()
}

fn torch_builds(lab: PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let (home, named, xdg) = (at("home"), at("named"), at("xdg"));
    let tagged = Live::with_env(Default::default());
    let interpreter = python::collect(&tagged, Some(&lab), &mut Vec::new()).value().unwrap()[0].clone();
    let torch = interpreter.torch.value().unwrap();
    let tag = format!("py{}_{}", interpreter.tag().unwrap(), torch.cuda.unwrap().tag());
    type Case<'c> = (&'c [(&'c str, &'c str)], Option<&'c str>);
    let cases: [Case; 3] = [
        (&[("HOME", &home)], Some(&tag)),
        (&[("HOME", &home), ("XDG_CACHE_HOME", &xdg)], Some(&tag)),
        (&[("HOME", &home), ("TORCH_EXTENSIONS_DIR", &named)], None),
    ];
    for (env, tag) in cases {
        let (mut child, out, folder) = build(&lab, env);
        let found = roots(env);
        assert!(found[0].exists && found[0].writable == Observed::seen(true), "{found:?}");
        let op = &found[0].ops[0];
        assert_eq!((&*op.path, op.name.as_str(), op.tag.as_deref()), (folder.as_path(), "my_op", tag), "{env:?}");
        assert_eq!(op.torch_path.as_deref(), Some(&*torch.path));
        assert_eq!(op.built, None);
        let held = op.lock.as_ref().unwrap().in_use.clone();
        child.kill().unwrap();
        child.wait().unwrap();
        drop(out);
        let left = roots(env)[0].ops[0].lock.clone().unwrap();
        // On a shared or network file system neither is told, which is the right answer there.
        match held {
            Observed::Seen { value } => assert_eq!((value, left.in_use), (true, Observed::seen(false))),
            other => assert_eq!(other, left.in_use),
        }
    }
    // The home's own cache is told beside the one in use.
    assert_eq!(roots(&[("HOME", &home), ("TORCH_EXTENSIONS_DIR", &named)]).len(), 2);
}

pub fn trials() -> Vec<Trial> {
    vec![trial_with("collect_cache::torchs_own_build_folder_and_lock", lab("torch-venv"), torch_builds)]
}
