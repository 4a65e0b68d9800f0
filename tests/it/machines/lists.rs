//! What is collected for an arch list gives the answers that a whole look at the machine gives.

use super::Built;
use ds_doctor::checks::{Case, Purpose};
use ds_doctor::collect::{self, Lists, Options};
use ds_doctor::facts::snapshot::Snapshot;
use ds_doctor::host::{Environment, Rooted};
use ds_doctor::knowledge::Knowledge;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

pub fn agree(built: &Built) {
    let (words, _) = built.arguments();
    let python = words.iter().position(|word| *word == "--python").and_then(|at| words.get(at + 1)).map(PathBuf::from);
    let own: Environment = built.env.iter().map(|(name, value)| (name.into(), value.into())).collect();
    let changed = |changes: &[(&str, Option<&str>)]| {
        let mut env = own.clone();
        for (name, value) in changes {
            env.remove(OsStr::new(name));
            env.extend(value.map(|value| (OsString::from(name), OsString::from(value))));
        }
        env
    };
    let mut environments = vec![own.clone()];
    // A few machines also with what leads to the toolkit gone, empty or leading elsewhere.
    if built.manifest.expect.is_empty() && built.manifest.toolkit.len() > 1 {
        let gone = ("CUDA_HOME", None);
        environments.extend([
            changed(&[gone]),
            changed(&[gone, ("CUDA_PATH", Some(""))]),
            changed(&[("CUDA_HOME", Some("")), ("CUDA_PATH", Some("/usr/local/cuda/"))]),
            changed(&[gone, ("PATH", None)]),
            changed(&[gone, ("PATH", Some("bin:/none::/usr/local/cuda/bin:/usr/bin:/bin"))]),
        ]);
    }
    for env in environments {
        let of = |name: &OsString| name == "PATH" || name.as_encoded_bytes().starts_with(b"CUDA_");
        let said: Vec<(OsString, OsString)> = env.clone().into_iter().filter(|(name, _)| of(name)).collect();
        let host = Rooted::new(&built.root, env).unwrap();
        let look = |for_lists| {
            let options = Options { python: python.clone(), ask_gpu: false, for_lists, ..Options::default() };
            collect::snapshot(&host, &options)
        };
        let whole = look(None);
        for torch_targets in [false, true] {
            let lists = look(Some(Lists { torch_targets }));
            assert_eq!(answers(&lists, torch_targets), answers(&whole, torch_targets), "for lists, then of the whole machine: {said:?}");
        }
    }
}

/// Everything that `arch-list` asks.
fn answers(facts: &Snapshot, torch_targets: bool) -> String {
    let know = Knowledge::embedded();
    let case = Case::new(facts, &know, Purpose::Build, &[]);
    let nvcc = case.nvcc().map(|nvcc| nvcc.map(|nvcc| (&nvcc.path, &nvcc.version, &nvcc.targets)));
    let toolkit = case.toolkit().map(|kit| kit.map(|kit| (&kit.root, kit.release())));
    let torch = case.torch().map(|torch| torch.map(|torch| (&torch.path, &torch.version, torch.cuda, &torch.hip)));
    let targets = case.torch().map(|torch| torch.filter(|_| torch_targets).map(|torch| &torch.arch_list));
    let deepspeed = case.deepspeed().map(|deepspeed| deepspeed.map(|deepspeed| (&deepspeed.path, &deepspeed.version)));
    format!("{:?}\n{toolkit:?}\n{nvcc:?}\n{torch:?}\n{targets:?}\n{deepspeed:?}", case.cuda_home().value)
}
