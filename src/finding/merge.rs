//! Many fixes, one environment: the change of each variable when all steps are taken together.

use super::fix::{Action, Fix};
use crate::facts::env::EnvFacts;
use crate::facts::raw::{HostPath, Raw};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// What happens to one variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Set(Raw),
    Unset,
    /// Only put in front: printed by reference, so that the shell's own value stays what it is.
    Prepend(Vec<HostPath>),
    /// Entries were taken out: the whole list, from the live bytes.
    Rewrite(Raw),
}

/// The changes that these fixes make to this environment, variable by variable. A variable that ends as it began is left out.
pub fn merge(fixes: &[&Fix], env: &EnvFacts) -> BTreeMap<String, Change> {
    let mut plans: BTreeMap<String, Plan> = BTreeMap::new();
    for fix in fixes {
        match &fix.action {
            Action::SetEnv { name, value } => plans.entry(name.clone()).or_default().fixed = Some(Some(value.clone())),
            Action::UnsetEnv { name } => plans.entry(name.clone()).or_default().fixed = Some(None),
            Action::PrependPath { name, dir } => {
                let front = &mut plans.entry(name.clone()).or_default().front;
                if !front.contains(dir) {
                    front.push(dir.clone());
                }
            }
            Action::RemovePath { name, dir } => plans.entry(name.clone()).or_default().out.push(dir.clone()),
            Action::Run { .. } | Action::Edit { .. } | Action::Advice { .. } => {}
        }
    }
    plans.into_iter().filter_map(|(name, plan)| plan.change(env, &name).map(|change| (name, change))).collect()
}

#[derive(Default)]
struct Plan {
    fixed: Option<Option<Raw>>,
    front: Vec<HostPath>,
    out: Vec<HostPath>,
}

impl Plan {
    fn change(self, env: &EnvFacts, name: &str) -> Option<Change> {
        let now = env.get(name);
        if let Some(fixed) = self.fixed {
            return match fixed {
                Some(value) if now == Some(&*value) => None,
                Some(value) => Some(Change::Set(value)),
                None => now.map(|_| Change::Unset),
            };
        }
        let entries: Vec<&[u8]> = match now {
            Some(value) if !value.is_empty() => value.as_bytes().split(|b| *b == b':').collect(),
            _ => Vec::new(),
        };
        let kept: Vec<&[u8]> = entries.iter().copied().filter(|entry| !self.out.iter().any(|dir| dir.bytes() == *entry)).collect();
        // An entry that already comes first needs no second place.
        let front: Vec<HostPath> = match kept.first() {
            Some(first) if self.front.len() == 1 && self.front[0].bytes() == *first => Vec::new(),
            _ => self.front,
        };
        if kept.len() == entries.len() {
            return if front.is_empty() { None } else { Some(Change::Prepend(front)) };
        }
        let all: Vec<&[u8]> = front.iter().map(HostPath::bytes).chain(kept).collect();
        if all.is_empty() {
            return Some(Change::Unset);
        }
        Some(Change::Rewrite(Raw(OsString::from_vec(all.join(&b':')))))
    }
}

impl Change {
    /// The value afterwards; `None` when unset.
    pub fn apply(&self, now: Option<&std::ffi::OsStr>) -> Option<Raw> {
        match self {
            Self::Set(value) | Self::Rewrite(value) => Some(value.clone()),
            Self::Unset => None,
            Self::Prepend(front) => {
                let mut parts: Vec<&[u8]> = front.iter().map(HostPath::bytes).collect();
                if let Some(now) = now.filter(|now| !now.is_empty()) {
                    parts.push(now.as_bytes());
                }
                Some(Raw(OsString::from_vec(parts.join(&b':'))))
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn env(pairs: &[(&str, &str)]) -> EnvFacts {
        let mut env = EnvFacts::default();
        for (name, value) in pairs {
            env.set(name, *value);
        }
        env
    }

    #[test]
    fn a_prepend_keeps_the_rest_by_reference() {
        let fix = Fix::prepend("PATH", &"/x/bin".into(), "");
        let merged = merge(&[&fix, &fix], &env(&[("PATH", "/usr/bin")]));
        assert_eq!(merged["PATH"], Change::Prepend(vec!["/x/bin".into()]));
        assert_eq!(merged["PATH"].apply(Some("/usr/bin".as_ref())).unwrap(), Raw::from("/x/bin:/usr/bin"));
    }

    #[test]
    fn removing_rewrites_and_keeps_order_and_empty_entries() {
        let fix = Fix::remove("LD_LIBRARY_PATH", &"/old".into(), "");
        let merged = merge(&[&fix], &env(&[("LD_LIBRARY_PATH", "/a:/old::/b:/old")]));
        assert_eq!(merged["LD_LIBRARY_PATH"], Change::Rewrite(Raw::from("/a::/b")));
        let all = merge(&[&fix], &env(&[("LD_LIBRARY_PATH", "/old")]));
        assert_eq!(all["LD_LIBRARY_PATH"], Change::Unset);
    }

    #[test]
    fn nothing_to_do_is_nothing() {
        let set = Fix::set("CUDA_HOME", "/c", "");
        let front = Fix::prepend("PATH", &"/c/bin".into(), "");
        let gone = Fix::unset("CUDA_PATH", "");
        let out = Fix::remove("PATH", &"/none".into(), "");
        assert!(merge(&[&set, &front, &gone, &out], &env(&[("CUDA_HOME", "/c"), ("PATH", "/c/bin:/usr/bin")])).is_empty());
    }
}
