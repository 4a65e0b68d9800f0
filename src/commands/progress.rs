//! A word on standard error for what takes longer than a second.

use std::io::{self, Write as _};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Default)]
struct State {
    /// What goes on, since when, until it has been said.
    now: Option<(String, Instant)>,
    over: bool,
}

/// Says each thing that lasts longer than a second, once. Ends when dropped.
pub struct Progress {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// With `quiet` nothing is ever said.
    pub fn new(quiet: bool) -> Self {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let thread = (!quiet).then(|| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || watch(&shared))
        });
        Self { shared, thread }
    }

    /// What goes on from now on.
    pub fn say(&self, text: impl Into<String>) {
        let (state, changed) = &*self.shared;
        state.lock().unwrap_or_else(PoisonError::into_inner).now = Some((text.into(), Instant::now()));
        changed.notify_all();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        let (state, changed) = &*self.shared;
        state.lock().unwrap_or_else(PoisonError::into_inner).over = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watch(shared: &(Mutex<State>, Condvar)) {
    let (state, changed) = shared;
    let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
    while !state.over {
        let left = match &state.now {
            Some((_, since)) => PATIENCE.saturating_sub(since.elapsed()),
            None => Duration::MAX,
        };
        if left.is_zero() {
            if let Some((text, _)) = state.now.take() {
                // A closed standard error is no reason to fail.
                let _ = writeln!(io::stderr(), "ds-doctor: {}", crate::text::clean(&text));
            }
        } else if left == Duration::MAX {
            state = changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        } else {
            state = changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
