//! One step of a cure, what it changes, and what its author takes for granted.

use crate::facts::raw::{HostPath, Raw};

#[derive(Debug, Clone, PartialEq)]
pub struct Fix {
    /// Why this step, in few words: `one of 3 toolkits on this machine`.
    pub title: String,
    pub action: Action,
    pub safety: Safety,
    /// Steps of one choice belong together; choice 0 is the recommended cure, 1, 2… are alternatives to it.
    pub choice: u8,
    /// For actions that are no variable: what the machine is like afterwards, so that the set can be judged again.
    pub assumes: Vec<Effect>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    SetEnv {
        name: String,
        value: Raw,
    },
    UnsetEnv {
        name: String,
    },
    /// Put in front of a list variable.
    PrependPath {
        name: String,
        dir: HostPath,
    },
    /// Take every such entry out of a list variable. An empty `dir` takes out the empty entries.
    RemovePath {
        name: String,
        dir: HostPath,
    },
    /// A command to be run once, by a person.
    Run {
        argv: Vec<String>,
        needs_root: bool,
    },
    /// A change to a file, in words.
    Edit {
        file: HostPath,
        how: String,
    },
    Advice {
        text: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safety {
    /// May be applied without looking: undone by closing the shell, hides no fault, breaks no other program.
    Safe,
    /// A person should look first.
    Review,
}

/// What a step brings about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The finding of this id (and subject, where one is named) is gone.
    Cures { id: &'static str, subject: Option<String> },
}

impl Fix {
    fn new(action: Action, safety: Safety, title: impl Into<String>) -> Self {
        Self { title: title.into(), action, safety, choice: 0, assumes: Vec::new() }
    }

    pub fn set(name: &str, value: impl Into<Raw>, title: impl Into<String>) -> Self {
        Self::new(Action::SetEnv { name: name.to_owned(), value: value.into() }, Safety::Safe, title)
    }

    pub fn unset(name: &str, title: impl Into<String>) -> Self {
        Self::new(Action::UnsetEnv { name: name.to_owned() }, Safety::Safe, title)
    }

    pub fn prepend(name: &str, dir: &HostPath, title: impl Into<String>) -> Self {
        Self::new(Action::PrependPath { name: name.to_owned(), dir: dir.clone() }, Safety::Safe, title)
    }

    pub fn remove(name: &str, dir: &HostPath, title: impl Into<String>) -> Self {
        Self::new(Action::RemovePath { name: name.to_owned(), dir: dir.clone() }, Safety::Safe, title)
    }

    /// A command that a person runs. It is assumed to do what the finding needs: see [`Fix::curing`].
    pub fn run<S: Into<String>>(argv: impl IntoIterator<Item = S>, title: impl Into<String>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self::new(Action::Run { argv, needs_root: false }, Safety::Review, title)
    }

    pub fn run_as_root<S: Into<String>>(argv: impl IntoIterator<Item = S>, title: impl Into<String>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self::new(Action::Run { argv, needs_root: true }, Safety::Review, title)
    }

    pub fn edit(file: &HostPath, how: impl Into<String>, title: impl Into<String>) -> Self {
        Self::new(Action::Edit { file: file.clone(), how: how.into() }, Safety::Review, title)
    }

    /// Words where no command fits. Cures nothing.
    pub fn advice(text: impl Into<String>) -> Self {
        Self::new(Action::Advice { text: text.into() }, Safety::Review, "")
    }

    pub fn review(mut self) -> Self {
        self.safety = Safety::Review;
        self
    }

    /// Another way, instead of the choices before it.
    pub fn or(mut self, choice: u8) -> Self {
        self.choice = choice;
        self
    }

    pub fn curing(mut self, id: &'static str) -> Self {
        self.assumes.push(Effect::Cures { id, subject: None });
        self
    }

    pub fn curing_of(mut self, id: &'static str, subject: impl Into<String>) -> Self {
        self.assumes.push(Effect::Cures { id, subject: Some(subject.into()) });
        self
    }

    /// The variable that it changes, where it changes one.
    pub fn variable(&self) -> Option<&str> {
        match &self.action {
            Action::SetEnv { name, .. }
            | Action::UnsetEnv { name }
            | Action::PrependPath { name, .. }
            | Action::RemovePath { name, .. } => Some(name),
            Action::Run { .. } | Action::Edit { .. } | Action::Advice { .. } => None,
        }
    }

    /// A variable that may be changed without looking.
    pub fn is_safe_env(&self) -> bool {
        self.is_env() && self.safety == Safety::Safe
    }

    /// Whether it only changes variables of a shell.
    pub fn is_env(&self) -> bool {
        matches!(self.action, Action::SetEnv { .. } | Action::UnsetEnv { .. } | Action::PrependPath { .. } | Action::RemovePath { .. })
    }
}
