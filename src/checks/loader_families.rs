//! Packages that write over each other's libraries.

use super::loader::pinned;
use super::remedy::pip_install;
use super::torch::shown;
use super::{Case, Check, Judgement, Verdict};
use crate::facts::python::Package;
use crate::facts::torch::Torch;
use crate::finding::{Evidence, Finding, Fix};
use crate::text::join;
use std::collections::BTreeMap;

pub const CHECKS: &[Check] = &[Check { id: "two-cuda-families", run: families }];

/// Packages whose files have the same names for two CUDA majors, by the name between `nvidia-` and `-cu12`; the second: only for 11 beside
/// 12, since those for 13 lie in a folder of their own. Source: contents of NVIDIA's packages on PyPI.
const SAME_FILES: &[(&str, bool)] =
    &[("nccl", false), ("cudnn", false), ("nvshmem", false), ("cusparselt", false), ("curand", true), ("cusolver", true), ("nvtx", true)];

/// `nccl` and 12 of `nvidia-nccl-cu12`.
fn stem_and_major(name: &str) -> Option<(&str, u32)> {
    let (stem, major) = name.strip_prefix("nvidia-")?.rsplit_once("-cu")?;
    Some((stem, major.parse().ok()?))
}

fn families(case: &Case<'_>) -> Judgement {
    const ID: &str = "two-cuda-families";
    let Some(torch) = case.torch()? else { return Ok(Verdict::not_applicable("no torch")) };
    let Some(cuda) = torch.cuda else { return Ok(Verdict::not_applicable("this torch is not built for CUDA")) };
    let Some(python) = case.python()? else { return Ok(Verdict::not_applicable("no Python")) };
    let site = torch.path.parent();
    let mut by_stem: BTreeMap<&str, Vec<(u32, &Package)>> = BTreeMap::new();
    for package in python.packages.iter().filter(|package| Some(&*package.site) == site) {
        if let Some((stem, major)) = stem_and_major(&package.name) {
            by_stem.entry(stem).or_default().push((major, package));
        }
    }
    let same_files = |stem: &str, majors: &[(u32, &Package)]| {
        let row = SAME_FILES.iter().find(|(known, _)| *known == stem);
        row.is_some_and(|(_, old_only)| !old_only || majors.iter().filter(|(major, _)| *major < 13).count() > 1)
    };
    let clashing: Vec<(&str, &Vec<(u32, &Package)>)> = by_stem
        .iter()
        .filter(|(stem, majors)| majors.len() > 1 && same_files(stem, majors))
        .map(|(stem, majors)| (*stem, majors))
        .collect();
    if clashing.is_empty() {
        return Ok(beside(torch, cuda.major, &by_stem).map_or(Verdict::Pass, Verdict::found));
    }
    let stems: Vec<String> = clashing.iter().map(|(stem, _)| format!("`nvidia-{stem}`")).collect();
    let mut finding = Finding::warning(ID, format!("{} is installed for more than one CUDA major, and the copies have the same files", join(&stems)))
        .seen(shown(torch))
        .then("the one installed last has won, and removing one takes the files from both: torch may meet another NCCL or cuDNN than it was built for (`undefined symbol: ncclMemFree`, `CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH`)");
    let (mut out, mut back) = (Vec::new(), Vec::new());
    for (stem, majors) in clashing {
        for (major, package) in majors {
            finding = finding.seen(Evidence::new(&package.name, package.version.to_string()).at(&package.site));
            if *major != cuda.major {
                out.push(package.name.clone());
            }
        }
        back.extend(pinned(case, torch, &format!("nvidia-{stem}")));
    }
    let start = [python.path.to_string(), "-m".to_owned(), "pip".to_owned()];
    let uninstall = ["uninstall", "-y"].map(str::to_owned);
    finding = finding.fix(
        Fix::run(start.into_iter().chain(uninstall).chain(out), "what torch does not use; it takes the shared files with it").curing(ID),
    );
    if !back.is_empty() {
        let options = ["--force-reinstall", "--no-deps"].map(str::to_owned);
        finding = finding.fix(pip_install(case, options.into_iter().chain(back), "puts the files of torch's own back").curing(ID));
    }
    Ok(Verdict::found(finding.fix(Fix::advice("make a new environment: torch first, and the others in the variant for its CUDA").or(1))))
}

/// Packages of another major that do not touch torch's files: a state.
fn beside(torch: &Torch, own: u32, by_stem: &BTreeMap<&str, Vec<(u32, &Package)>>) -> Option<Finding> {
    let others: Vec<&Package> = by_stem.values().flatten().filter(|(major, _)| *major != own).map(|(_, package)| *package).collect();
    let first = others.first()?;
    let finding = Finding::info("two-cuda-families", format!("packages of another CUDA major are beside those of torch: `{}`", first.name))
        .seen(shown(torch))
        .then("their libraries have other names, and one process may load both");
    Some(
        others
            .iter()
            .fold(finding, |finding, package| finding.seen(Evidence::new(&package.name, package.version.to_string()).at(&package.site))),
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::sample::{SITE, ask, machine, one, quiet, with_torch};
    use super::*;
    use crate::facts::snapshot::Snapshot;
    use crate::finding::{Action, Severity};

    fn with_packages(packages: &[(&str, &str)]) -> Snapshot {
        let mut facts = machine();
        let torch = with_torch(&mut facts, "2.7.1+cu128", "12.8", &[]);
        torch.requires = vec![("nvidia-nccl-cu12".to_owned(), "==2.26.2".to_owned())];
        facts.pythons.value_mut().unwrap()[0].packages = packages
            .iter()
            .map(|(name, version)| Package { name: (*name).to_owned(), version: version.parse().unwrap(), site: SITE.into() })
            .collect();
        facts
    }

    #[test]
    fn one_family_is_quiet() {
        for packages in [
            &[("nvidia-nccl-cu12", "2.26.2"), ("nvidia-cudnn-cu12", "9.7.1.26"), ("nvidia-cublas-cu12", "12.8.4.1")][..],
            &[("nvidia-ml-py", "12.570.86"), ("nvidia-nccl-cu12", "2.26.2")],
            &[],
        ] {
            assert!(quiet(&ask(families, &with_packages(packages))), "{packages:?}");
        }
    }

    #[test]
    fn two_nccls_write_over_each_other() {
        let finding = one(ask(families, &with_packages(&[("nvidia-nccl-cu12", "2.26.2"), ("nvidia-nccl-cu13", "2.28.9")])));
        assert_eq!(finding.severity, Severity::Warning);
        let argv = |at: usize| match &finding.fixes[at].action {
            Action::Run { argv, .. } => argv.join(" "),
            other => format!("{other:?}"),
        };
        assert!(argv(0).ends_with("-m pip uninstall -y nvidia-nccl-cu13"), "{}", argv(0));
        assert!(argv(1).ends_with("--no-deps nvidia-nccl-cu12==2.26.2"), "{}", argv(1));
    }

    #[test]
    fn other_names_are_a_state() {
        let severity = |packages: &[(&str, &str)]| one(ask(families, &with_packages(packages))).severity;
        assert_eq!(severity(&[("nvidia-cublas-cu11", "11.10.3.66"), ("nvidia-cublas-cu12", "12.8.4.1")]), Severity::Info);
        assert_eq!(severity(&[("nvidia-curand-cu12", "10.3.9.90"), ("nvidia-curand-cu13", "10.4.0.35")]), Severity::Info);
        assert_eq!(severity(&[("nvidia-curand-cu11", "10.3.0.86"), ("nvidia-curand-cu12", "10.3.9.90")]), Severity::Warning);
    }

    #[test]
    fn packages_of_another_site_do_not_touch_these() {
        let mut facts = with_packages(&[("nvidia-nccl-cu12", "2.26.2"), ("nvidia-nccl-cu13", "2.28.9")]);
        facts.pythons.value_mut().unwrap()[0].packages[1].site = "/usr/lib/python3/dist-packages".into();
        assert!(quiet(&ask(families, &facts)));
    }
}
