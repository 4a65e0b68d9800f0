//! Headers of another toolkit's CUB and Thrust in front of the toolkit's own.

use super::link::INCLUDE_VARIABLES;
use super::toolkit::picked;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::raw::HostPath;
use crate::facts::toolkit::Toolkit;
use crate::finding::{Evidence, Finding, Fix};

pub const CHECKS: &[Check] = &[Check { id: "conflicting-cub-headers", run: cub }];

/// Another toolkit's CUB in front, by CPATH: its macros and namespaces clash with this toolkit's own.
fn cub(case: &Case<'_>) -> Judgement {
    let toolkit = match picked(case)? {
        Ok(toolkit) => toolkit,
        Err(verdict) => return Ok(verdict),
    };
    let mut findings = Vec::new();
    for name in INCLUDE_VARIABLES {
        for entry in case.facts.env.entries(name) {
            let owner = case.toolkits().iter().find(|other| {
                other.real != toolkit.real
                    && other.release() != toolkit.release()
                    && other.includes.iter().any(|folder| {
                        folder.is(&entry) && folder.headers.iter().any(|header| header == "cub/cub.cuh" || header == "thrust/version.h")
                    })
            });
            let Some(other) = owner else { continue };
            let release = |toolkit: &Toolkit| toolkit.release().map_or("unknown".to_owned(), |release| release.to_string());
            let folder = HostPath::new(&entry);
            findings.push(
                Finding::error(
                    "conflicting-cub-headers",
                    format!("`{name}` puts the headers of CUDA {} beside those of CUDA {}", release(other), release(toolkit)),
                )
                .about(*name)
                .seen(Evidence::new("CUB and Thrust", release(other)).at(&folder).said_by(*name))
                .seen(Evidence::new("toolkit", release(toolkit)).at(&toolkit.root))
                .then("compilations stop in CUB or Thrust, with redefinitions or `cub::` names that are ambiguous")
                .fix(Fix::remove(name, &folder, "another release")),
            );
        }
    }
    Ok(Verdict::of(findings))
}
