//! The four answers to "what is there": seen, absent, could not be read, not asked.

use serde::{Deserialize, Serialize};

/// A fact, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum Observed<T> {
    Seen {
        value: T,
    },
    /// It is not there; `looked` names the places.
    Absent {
        #[serde(default)]
        looked: Vec<String>,
    },
    /// It is there, or may be, and could not be read.
    Failed {
        why: String,
    },
    /// It was not asked for, or cannot be asked here.
    Skipped {
        why: String,
    },
}

/// Why a question cannot be judged: the topic, and what is known about its absence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    pub topic: &'static str,
    pub why: String,
    /// True when it failed, false when it was only skipped.
    pub failed: bool,
}

impl<T> Observed<T> {
    pub fn seen(value: T) -> Self {
        Self::Seen { value }
    }

    pub fn absent<S: Into<String>>(looked: impl IntoIterator<Item = S>) -> Self {
        Self::Absent { looked: looked.into_iter().map(Into::into).collect() }
    }

    pub fn failed(why: impl Into<String>) -> Self {
        Self::Failed { why: why.into() }
    }

    pub fn skipped(why: impl Into<String>) -> Self {
        Self::Skipped { why: why.into() }
    }

    /// The value where it was seen. For display; a check uses [`Observed::get`], which does not lose the difference between the rest.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Seen { value } => Some(value),
            _ => None,
        }
    }

    pub fn value_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Seen { value } => Some(value),
            _ => None,
        }
    }

    /// `Some` when seen, `None` when it is known not to be there.
    ///
    /// # Errors
    /// [`Missing`] when nobody knows.
    pub fn get(&self, topic: &'static str) -> Result<Option<&T>, Missing> {
        match self {
            Self::Seen { value } => Ok(Some(value)),
            Self::Absent { .. } => Ok(None),
            Self::Failed { why } => Err(Missing { topic, why: why.clone(), failed: true }),
            Self::Skipped { why } => Err(Missing { topic, why: why.clone(), failed: false }),
        }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Absent { .. })
    }

    pub fn is_skipped(&self) -> bool {
        matches!(self, Self::Skipped { .. })
    }

    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { .. })
    }
}

/// What a snapshot from before a topic existed holds for it.
impl<T> Default for Observed<T> {
    fn default() -> Self {
        Self::Skipped { why: "not collected".to_owned() }
    }
}
