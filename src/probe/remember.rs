//! Trials of ops that were made before. One that passed, or that failed for want of a header or a library, is not made again as long as
//! compiler and linker would find the same files; any other failure may depend on the moment.

use super::cache::Key;
use super::looks::{self, Folders, Look};
use super::trial::{Bench, Trial};
use crate::facts::probe::Step;
use crate::facts::snapshot::Snapshot;
use crate::host::{Host, Store};
use crate::model::cuda_home::CudaHome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const TRIALS: &str = "trials.json";

/// Where trials are kept, and what besides them says that nothing has changed.
pub struct Memory<'a> {
    pub store: &'a Store,
    pub home: &'a CudaHome<'a>,
}

#[derive(Serialize, Deserialize)]
struct File {
    key: String,
    /// Of all trials: most name the same headers.
    looks: Vec<Look>,
    trials: BTreeMap<String, Kept>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Kept {
    steps: Vec<Step>,
    /// Places in [`File::looks`].
    looks: Vec<usize>,
}

/// Makes those trials that have to be made.
pub fn run(bench: &Bench<'_>, trials: &[Trial], facts: &Snapshot, at_once: usize, memory: Option<&Memory<'_>>) -> Vec<Vec<Step>> {
    let Some(Memory { store, home }) = memory else { return bench.run_all(trials, at_once) };
    let made: Vec<(&str, Vec<u8>)> = trials.iter().map(|trial| (trial.name.as_str(), format!("{trial:?}").into_bytes())).collect();
    let sources: Vec<(&str, &[u8])> = made.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    let key = Key::new(bench.host, facts, home, bench.chain, &[], &sources);
    let mut file = File::load(bench.host, store, &key);
    let missing: Vec<Trial> = trials.iter().filter(|trial| !file.trials.contains_key(&trial.name)).cloned().collect();
    let done = bench.run_all(&missing, at_once);
    let new: Vec<(&Trial, &[Step])> = missing.iter().zip(done.iter().map(Vec::as_slice)).collect();
    if file.add(bench, &new, at_once) {
        file.save(store, &key);
    }
    let mut done: BTreeMap<&str, &Vec<Step>> = missing.iter().map(|trial| trial.name.as_str()).zip(&done).collect();
    done.extend(file.trials.iter().map(|(name, kept)| (name.as_str(), &kept.steps)));
    trials.iter().map(|trial| done.get(trial.name.as_str()).map(|steps| (*steps).clone()).unwrap_or_default()).collect()
}

impl File {
    /// With what still holds.
    fn load(host: &dyn Host, store: &Store, key: &Key) -> Self {
        let read = store.read(&key.name(), TRIALS).and_then(|bytes| serde_json::from_slice::<Self>(&bytes).ok());
        let Some(mut file) = read.filter(|file| file.key == key.text()) else {
            return Self { key: key.text().to_owned(), looks: Vec::new(), trials: BTreeMap::new() };
        };
        let holds: Vec<bool> = file.looks.iter().map(|look| look.holds(host)).collect();
        file.trials.retain(|_, kept| kept.looks.iter().all(|look| holds.get(*look) == Some(&true)));
        file
    }

    /// Takes up what can be kept of these; whether there was any.
    fn add(&mut self, bench: &Bench<'_>, new: &[(&Trial, &[Step])], at_once: usize) -> bool {
        let folders = Folders::of(bench, new, at_once);
        let looks = super::trial::side_by_side(new, at_once, |(trial, steps)| looks::looks(bench, trial, steps, &folders));
        let before = self.trials.len();
        for ((trial, steps), looks) in new.iter().zip(looks) {
            let Some(looks) = looks else { continue };
            let looks = looks.into_iter().map(|look| self.place(look)).collect();
            self.trials.insert(trial.name.clone(), Kept { steps: steps.to_vec(), looks });
        }
        self.trials.len() > before
    }

    fn place(&mut self, look: Look) -> usize {
        self.looks.iter().position(|known| *known == look).unwrap_or_else(|| {
            self.looks.push(look);
            self.looks.len() - 1
        })
    }

    /// A cache that cannot be written is no fault.
    fn save(&self, store: &Store, key: &Key) {
        if let Ok(json) = serde_json::to_vec(self)
            && store.save(&key.name(), &[], &[(TRIALS, &json)]).is_ok()
        {
            super::cache::trim(store);
        }
    }
}
