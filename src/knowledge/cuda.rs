//! Toolkits and drivers.

use super::Knowledge;
use super::schema::cuda::{CallStatus, GlibcClash, NvccAbility, NvccBuild, Release, Toolkit};
use crate::version::{Capability, CudaVersion, Dotted, Isa};

impl Knowledge {
    /// The row of a release; `None` for one that no table knows (12.7, which never was a toolkit, among them).
    pub fn toolkit(&self, cuda: CudaVersion) -> Option<&Toolkit> {
        self.cuda.toolkit.iter().find(|kit| kit.cuda == cuda)
    }

    /// The newest release with a row.
    pub fn newest_cuda(&self) -> Option<CudaVersion> {
        self.cuda.toolkit.last().map(|kit| kit.cuda)
    }

    /// The newest gcc major that this nvcc takes, by its build where the build differs from the release. What the toolkit's own
    /// `host_config.h` says comes first; this is for where it cannot be read.
    pub fn max_gcc(&self, nvcc: &Dotted) -> Option<u32> {
        let own = self.nvcc_build(nvcc).and_then(|build| build.max_gcc);
        own.or_else(|| self.toolkit(release_of(nvcc)?).map(|kit| kit.max_gcc))
    }

    /// As [`max_gcc`](Self::max_gcc), for clang.
    pub fn max_clang(&self, nvcc: &Dotted) -> Option<u32> {
        let own = self.nvcc_build(nvcc).and_then(|build| build.max_clang);
        own.or_else(|| self.toolkit(release_of(nvcc)?).map(|kit| kit.max_clang))
    }

    /// The row of a build that is known to be apart from its release.
    pub fn nvcc_build(&self, nvcc: &Dotted) -> Option<&NvccBuild> {
        self.cuda.nvcc_build.iter().find(|build| build.nvcc.dotted() == *nvcc)
    }

    /// The published updates whose nvcc prints this version, oldest first.
    pub fn releases_of_nvcc<'a>(&'a self, nvcc: &'a Dotted) -> impl Iterator<Item = &'a Release> {
        self.cuda.release.iter().filter(move |release| release.nvcc.dotted() == *nvcc)
    }

    /// Whether the nvcc of this release can do a thing; `None` where it is not known.
    pub fn nvcc_can(&self, ability: NvccAbility, cuda: CudaVersion) -> Option<bool> {
        let version = semver::Version::new(cuda.major.into(), cuda.minor.into(), 0);
        let row = self.cuda.nvcc_can.iter().find(|row| row.ability == ability)?;
        match &row.unknown {
            Some(unknown) if unknown.contain(&version) => None,
            _ => Some(row.cuda.contain(&version)),
        }
    }

    /// The first and the last release that can target a capability; `None` where no release in the tables can. The second is `None` where
    /// the newest one still does.
    pub fn toolkits_for(&self, capability: Capability) -> Option<(CudaVersion, Option<CudaVersion>)> {
        let mut having = self.cuda.toolkit.iter().filter(|kit| kit.targets.iter().any(|t| t.capability == capability)).map(|kit| kit.cuda);
        let first = having.next()?;
        let last = having.next_back().unwrap_or(first);
        Some((first, Some(last).filter(|last| Some(*last) != self.newest_cuda())))
    }

    /// The CUDA level of a driver, by its branch. A branch between two rows has the level of the lower one (rows exist for each branch
    /// that raised it); one above the newest row is not known, except that it is at least the newest level.
    pub fn driver_cuda(&self, driver: &Dotted) -> Option<CudaVersion> {
        let newest = self.cuda.driver_branch.last()?;
        if driver.major() > newest.branch {
            return None;
        }
        self.cuda.driver_branch.iter().rev().find(|row| row.branch <= driver.major()).map(|row| row.cuda)
    }

    /// The oldest driver whose own level is this release: the release notes' figure, else the branch (`615`).
    pub fn own_driver(&self, cuda: CudaVersion) -> Option<Dotted> {
        if let Some(driver) = self.toolkit(cuda).and_then(|kit| kit.min_driver.as_ref()) {
            return Some(driver.dotted());
        }
        let row = self.cuda.driver_branch.iter().find(|row| row.cuda == cuda)?;
        Some(Dotted { text: row.branch.to_string(), parts: vec![row.branch] })
    }

    /// The oldest driver on which programs of this release run, compatibility between minor releases counted in. PTX is not covered by it.
    pub fn oldest_driver(&self, cuda: CudaVersion) -> Option<Dotted> {
        let compat = self.cuda.minor_compat.iter().find(|row| row.cuda_major == cuda.major);
        match compat {
            Some(row) => Some(row.min_driver.dotted()),
            // Before CUDA 11 there was no such compatibility.
            None if cuda.major < 11 => self.own_driver(cuda),
            None => None,
        }
    }

    /// The newest version of PTX that a driver of this CUDA level compiles: that of the newest toolkit not above it. `None` for a level
    /// above all toolkits with a row.
    pub fn newest_ptx(&self, level: CudaVersion) -> Option<Isa> {
        self.newest_cuda().filter(|newest| level <= *newest)?;
        let kit = self.cuda.toolkit.iter().rev().find(|kit| kit.cuda <= level)?;
        kit.ptx_isa.0.parse().ok()
    }

    /// The first toolkit that writes this version of PTX.
    pub fn cuda_of_ptx(&self, isa: Isa) -> Option<CudaVersion> {
        self.cuda.toolkit.iter().find(|kit| kit.ptx_isa.0.parse() == Ok(isa)).map(|kit| kit.cuda)
    }

    /// What an error of a CUDA call means.
    pub fn call_status(&self, code: u32) -> Option<&CallStatus> {
        self.cuda.call_status.iter().find(|row| row.code == code)
    }

    /// The clashes that stop every `.cu` file with this glibc and this CUDA. Debian patches older headers: where the toolkit's
    /// `crt/math_functions.h` can be read, the row's marker in it decides.
    pub fn glibc_clashes<'a>(&'a self, glibc: &'a Dotted, cuda: CudaVersion) -> impl Iterator<Item = &'a GlibcClash> {
        self.cuda.glibc_clash.iter().filter(move |row| *glibc >= row.glibc.dotted() && cuda < row.fixed_in)
    }
}

fn release_of(nvcc: &Dotted) -> Option<CudaVersion> {
    (nvcc.parts.len() >= 2).then(|| CudaVersion::new(nvcc.major(), nvcc.minor()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn cuda(text: &str) -> CudaVersion {
        text.parse().unwrap()
    }

    fn dotted(text: &str) -> Dotted {
        text.parse().unwrap()
    }

    #[test]
    fn releases_that_exist_and_that_do_not() {
        let all = Knowledge::embedded();
        assert_eq!(all.toolkit(cuda("12.4")).unwrap().max_gcc, 13);
        assert_eq!(all.toolkit(cuda("12.3")).unwrap().max_gcc, 12, "torch's own table says 13");
        assert!(all.toolkit(cuda("12.7")).is_none(), "12.7 is a driver level only");
        assert!(all.toolkit(cuda("14.0")).is_none());
        assert_eq!(all.newest_cuda(), Some(cuda("13.5")));
    }

    #[test]
    fn builds_apart_from_their_release() {
        let all = Knowledge::embedded();
        assert_eq!(all.max_gcc(&dotted("11.4.48")), Some(10));
        assert_eq!(all.max_gcc(&dotted("11.4.152")), Some(11));
        assert_eq!(all.max_clang(&dotted("12.2.91")), Some(15));
        assert_eq!(all.max_clang(&dotted("12.2.140")), Some(16));
        assert_eq!(all.max_gcc(&dotted("14.0.12")), None);
        assert_eq!(all.max_gcc(&dotted("12")), None);
        assert!(all.nvcc_build(&dotted("10.1.105")).unwrap().bug.is_some());
        assert!(all.nvcc_build(&dotted("10.1.243")).is_none());
        let labels: Vec<_> = all.releases_of_nvcc(&dotted("13.0.88")).map(|r| r.label.to_string()).collect();
        assert_eq!(labels, ["13.0.1", "13.0.2", "13.0.3.0"]);
    }

    #[test]
    fn what_nvcc_can() {
        let all = Knowledge::embedded();
        assert_eq!(all.nvcc_can(NvccAbility::ReadsCcbinVariable, cuda("12.4")), Some(false));
        assert_eq!(all.nvcc_can(NvccAbility::ReadsCcbinVariable, cuda("12.5")), Some(true));
        assert_eq!(all.nvcc_can(NvccAbility::ReadsCcbinVariable, cuda("14.2")), Some(true));
        assert_eq!(all.nvcc_can(NvccAbility::AllowUnsupportedCompiler, cuda("10.2")), None);
    }

    #[test]
    fn lives_of_targets() {
        let all = Knowledge::embedded();
        let capability = |text: &str| text.parse::<Capability>().unwrap();
        assert_eq!(all.toolkits_for(capability("7.0")), Some((cuda("9.0"), Some(cuda("12.9")))));
        assert_eq!(all.toolkits_for(capability("12.0")), Some((cuda("12.8"), None)));
        assert_eq!(all.toolkits_for(capability("10.1")), Some((cuda("12.8"), Some(cuda("12.9")))));
        assert_eq!(all.toolkits_for(capability("15.0")), None);
    }

    #[test]
    fn drivers() {
        let all = Knowledge::embedded();
        assert_eq!(all.driver_cuda(&dotted("550.144.03")), Some(cuda("12.4")));
        assert_eq!(all.driver_cuda(&dotted("565.77")), Some(cuda("12.7")));
        assert_eq!(all.driver_cuda(&dotted("430.50")), Some(cuda("10.1")), "between two rows: the lower one");
        assert_eq!(all.driver_cuda(&dotted("700.1")), None);
        assert_eq!(all.driver_cuda(&dotted("304.137")), None);
        assert_eq!(all.own_driver(cuda("12.4")), Some(dotted("550.54.14")));
        assert_eq!(all.own_driver(cuda("13.4")), Some(dotted("615")));
        assert_eq!(all.own_driver(cuda("14.0")), None);
        assert_eq!(all.oldest_driver(cuda("12.8")), Some(dotted("525.60.13")));
        assert_eq!(all.oldest_driver(cuda("10.2")), Some(dotted("440.33")));
        assert_eq!(all.oldest_driver(cuda("14.0")), None);
    }

    #[test]
    fn glibc_against_cuda_headers() {
        let all = Knowledge::embedded();
        let functions = |glibc: &str, release: &str| {
            let glibc = dotted(glibc);
            all.glibc_clashes(&glibc, cuda(release)).map(|row| row.function.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(functions("2.40", "12.4"), [""; 0]);
        assert_eq!(functions("2.41", "12.9"), ["cospi"]);
        assert_eq!(functions("2.42", "12.9"), ["cospi", "rsqrt"]);
        assert_eq!(functions("2.42", "13.1"), ["rsqrt"]);
        assert_eq!(functions("2.43", "13.2"), [""; 0]);
    }
}
