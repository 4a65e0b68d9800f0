//! torch's releases and its build helper.

use super::schema::torch::{ArchName, ArchValues, Compiler, Headers, HostBound, SetuptoolsLimit, TorchRelease, TorchTrait};
use super::{Knowledge, Ranged};
use crate::version::{CudaVersion, Dotted, Target};

/// The code in a build of torch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TorchCode<'a> {
    pub sass: &'a [Target],
    pub ptx: Option<Target>,
}

impl Knowledge {
    /// The row of this very release, by its first three numbers.
    pub fn torch_release(&self, torch: &Dotted) -> Option<&TorchRelease> {
        self.torch.release.iter().find(|row| row.torch.dotted().semver() == torch.semver())
    }

    /// The newest release with a row.
    pub fn newest_torch(&self) -> Option<Dotted> {
        self.torch.release.last().map(|row| row.torch.dotted())
    }

    /// Whether the tables were made with this release, or one of the same minor, in sight. For others the newest rows are a forecast.
    pub fn torch_known(&self, torch: &Dotted) -> bool {
        let minor = |of: &Dotted| (of.major(), of.minor());
        let (first, last) = (self.torch.release.first(), self.torch.release.last());
        let since = first.is_some_and(|row| minor(&row.torch.dotted()) <= minor(torch));
        since && last.is_some_and(|row| minor(torch) <= minor(&row.torch.dotted()))
    }

    /// What a build of torch holds, where the tables know the build. What its binary says comes first.
    pub fn torch_code(&self, torch: &Dotted, cuda: CudaVersion) -> Option<TorchCode<'_>> {
        let same_minor = |row: &&TorchRelease| row.torch.dotted().major_minor() == torch.major_minor();
        if let Some(row) = self.torch.release.iter().filter(same_minor).find(|row| row.default_cuda == cuda) {
            return Some(TorchCode { sass: &row.archs, ptx: None });
        }
        let version = torch.semver();
        let row = self.torch.build.iter().find(|row| row.cuda == cuda && row.torch.contain(&version))?;
        Some(TorchCode { sass: &row.archs, ptx: row.ptx })
    }

    /// Whether a build of torch has the new ABI of libstdc++, where the tables know it. What its files say comes first.
    pub fn torch_cxx11_abi(&self, torch: &Dotted, cuda: CudaVersion) -> Option<bool> {
        let version = torch.semver();
        let build = self.torch.build.iter().find(|row| row.cuda == cuda && row.torch.contain(&version));
        build
            .and_then(|row| row.cxx11_abi)
            .or_else(|| self.torch_release(torch).filter(|row| row.default_cuda == cuda).map(|row| row.cxx11_abi))
    }

    /// The items that this torch takes in `TORCH_CUDA_ARCH_LIST`, each also with `+PTX`.
    pub fn torch_arch_values(&self, torch: &Dotted) -> Option<Ranged<'_, ArchValues>> {
        let version = torch.semver();
        let row = self.torch.arch_values.iter().find(|row| row.torch.contain(&version))?;
        Some(Ranged { row, known: self.torch_known(torch) })
    }

    /// The names that this torch takes in `TORCH_CUDA_ARCH_LIST`, in the order in which they are to be replaced: the longer first, since
    /// torch puts `Ampere+Tegra` before `Ampere`.
    pub fn torch_arch_names(&self, torch: &Dotted) -> Vec<&ArchName> {
        let version = torch.semver();
        let mut names: Vec<&ArchName> = self.torch.arch_name.iter().filter(|row| row.torch.contain(&version)).collect();
        names.sort_by_key(|row| std::cmp::Reverse(row.name.len()));
        names
    }

    /// The list with names replaced as torch does: as plain text, wherever they stand.
    pub fn expand_torch_arch_names(&self, torch: &Dotted, list: &str) -> String {
        self.torch_arch_names(torch).into_iter().fold(list.to_owned(), |list, row| list.replace(row.name.as_ref(), &row.expands))
    }

    /// The versions of a host compiler with which setup builds go on. `None`: torch only warns that it has no bounds.
    pub fn torch_host_bound(&self, torch: &Dotted, compiler: Compiler, nvcc: &Dotted) -> Option<Ranged<'_, HostBound>> {
        let version = torch.semver();
        let cuda = CudaVersion::new(nvcc.major(), nvcc.minor());
        let rows =
            || self.torch.host_bound.iter().filter(|row| row.compiler == compiler && row.cuda == cuda && row.torch.contain(&version));
        let own = rows().find(|row| row.nvcc.as_ref().is_some_and(|build| build.dotted() == *nvcc));
        let row = own.or_else(|| rows().find(|row| row.nvcc.is_none()))?;
        Some(Ranged { row, known: self.torch_known(torch) })
    }

    /// What this torch's headers and build helper ask of the compiler.
    pub fn torch_headers(&self, torch: &Dotted) -> Option<Ranged<'_, Headers>> {
        let version = torch.semver();
        let row = self.torch.headers.iter().find(|row| row.torch.contain(&version))?;
        Some(Ranged { row, known: self.torch_known(torch) })
    }

    /// The setuptools with which this torch's build helper cannot be imported, if any.
    pub fn setuptools_limit(&self, torch: &Dotted) -> Option<&SetuptoolsLimit> {
        let version = torch.semver();
        self.torch.setuptools_limit.iter().find(|row| row.torch.contain(&version))
    }

    /// Whether this torch does a thing; a release newer than the tables does what the newest one does.
    pub fn torch_does(&self, what: TorchTrait, torch: &Dotted) -> bool {
        let version = torch.semver();
        self.torch.does.iter().any(|row| row.what == what && row.torch.contain(&version))
    }
}

impl HostBound {
    /// Whether torch goes on with a compiler of this version.
    pub fn accepts(&self, compiler: &Dotted) -> bool {
        let max = self.max.dotted();
        *compiler >= self.min.dotted() && (*compiler < max || (self.inclusive && *compiler == max))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn v(text: &str) -> Dotted {
        text.parse().unwrap()
    }

    fn sms(targets: &[Target]) -> String {
        targets.iter().map(|t| t.sm()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn releases() {
        let all = Knowledge::embedded();
        let row = all.torch_release(&v("2.6.0+cu124")).unwrap();
        assert_eq!((row.default_cuda.to_string().as_str(), row.cxx11_abi), ("12.4", false));
        assert!(all.torch_release(&v("2.6.7")).is_none());
        assert!(all.torch_known(&v("2.6.7")));
        assert!(all.torch_known(&v("2.15.0a0+git123")));
        assert!(!all.torch_known(&v("2.16.0")) && !all.torch_known(&v("3.0.0")) && !all.torch_known(&v("1.7.1")));
        assert_eq!(all.newest_torch(), Some(v("2.15.0")));
    }

    #[test]
    fn code_of_builds() {
        let all = Knowledge::embedded();
        let code = |torch: &str, cuda: &str| all.torch_code(&v(torch), cuda.parse().unwrap());
        assert_eq!(sms(code("2.7.1", "12.8").unwrap().sass), "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120");
        assert_eq!(code("2.7.1", "12.8").unwrap().ptx.unwrap().compute(), "compute_120");
        assert_eq!(sms(code("2.6.0", "12.4").unwrap().sass), "sm_50 sm_60 sm_70 sm_75 sm_80 sm_86 sm_90");
        assert_eq!(code("2.6.0", "13.0"), None);
        assert_eq!(code("3.0.0", "13.2"), None, "what a future build holds is not known");
        assert_eq!(all.torch_cxx11_abi(&v("2.6.0"), "12.4".parse().unwrap()), Some(false));
        assert_eq!(all.torch_cxx11_abi(&v("2.6.0"), "12.6".parse().unwrap()), Some(true));
        assert_eq!(all.torch_cxx11_abi(&v("2.9.0"), "12.6".parse().unwrap()), None);
    }

    #[test]
    fn arch_lists() {
        let all = Knowledge::embedded();
        let takes = |torch: &str, target: &str| all.torch_arch_values(&v(torch)).unwrap().values.contains(&target.parse().unwrap());
        assert!(!takes("1.13.1", "9.0") && takes("2.0.0", "9.0"));
        assert!(!takes("2.1.2", "9.0a") && takes("2.2.0", "9.0a"));
        assert!(takes("2.8.0", "10.1") && !takes("2.9.0", "10.1") && takes("2.9.0", "11.0"));
        assert!(!takes("2.15.0", "8.8") && !takes("2.15.0", "10.0f"));
        assert!(takes("3.1.0", "10.7"));
        assert!(!all.torch_arch_values(&v("3.1.0")).unwrap().known);
        assert!(all.torch_arch_values(&v("2.14.1")).unwrap().known);
    }

    #[test]
    fn arch_names() {
        let all = Knowledge::embedded();
        let expand = |torch: &str, list: &str| all.expand_torch_arch_names(&v(torch), list);
        assert_eq!(expand("2.6.0", "Ampere"), "8.0;8.6+PTX");
        assert_eq!(expand("2.6.0", "Ampere+Tegra;Hopper"), "8.7;9.0+PTX");
        assert_eq!(expand("2.0.1", "Ampere+Tegra"), "8.0;8.6+PTX+Tegra", "torch 2.0 did not know it");
        assert_eq!(expand("2.6.0", "Blackwell"), "10.0+PTX");
        assert_eq!(expand("2.7.1", "Blackwell"), "10.0;12.0+PTX");
        assert_eq!(expand("2.8.0", "Blackwell+Tegra"), "10.1");
        assert_eq!(expand("2.13.0", "Blackwell+Tegra"), "11.0");
        assert_eq!(expand("2.13.0", "Rubin"), "Rubin");
        assert_eq!(expand("2.15.0", "Rubin"), "10.7+PTX");
        assert_eq!(expand("1.13.1", "Hopper"), "Hopper");
        assert_eq!(expand("2.6.0", "8.0 9.0"), "8.0 9.0");
    }

    #[test]
    fn compilers_that_torch_refuses() {
        let all = Knowledge::embedded();
        let accepts = |torch: &str, compiler, nvcc: &str, version: &str| {
            all.torch_host_bound(&v(torch), compiler, &v(nvcc)).map(|bound| bound.accepts(&v(version)))
        };
        use Compiler::{Clang, Gcc};
        assert_eq!(accepts("2.15.0", Gcc, "12.3.107", "13.2.0"), Some(true), "though nvcc 12.3 refuses it");
        assert_eq!(accepts("2.15.0", Gcc, "12.3.107", "14.1.0"), Some(false));
        assert_eq!(accepts("2.11.0", Gcc, "12.8.93", "14.2.0"), Some(false));
        assert_eq!(accepts("2.12.0", Gcc, "12.8.93", "14.2.0"), Some(true));
        assert_eq!(accepts("2.10.0", Gcc, "12.8.93", "99"), None);
        assert_eq!(accepts("2.15.0", Gcc, "13.1.80", "99"), None);
        assert_eq!(accepts("2.15.0", Clang, "12.4.131", "17.0.1"), Some(false), "though nvcc 12.4 takes it");
        assert_eq!(accepts("2.0.1", Gcc, "11.4.152", "11.3.0"), Some(true));
        assert_eq!(accepts("2.0.1", Gcc, "11.4.48", "11.3.0"), Some(false));
        assert_eq!(accepts("1.13.1", Gcc, "11.7.99", "11.5.0"), Some(true), "the upper bound of 1.13 is inclusive");
        assert_eq!(accepts("1.13.1", Gcc, "11.7.99", "11.5.1"), Some(false));
        assert_eq!(accepts("1.13.1", Gcc, "11.8.89", "12"), None);
    }

    #[test]
    fn headers_and_helper() {
        let all = Knowledge::embedded();
        let needs = |torch: &str| all.torch_headers(&v(torch)).map(|row| (row.default_standard, row.min_standard, row.min_gcc));
        assert_eq!(needs("1.13.1"), Some((14, 14, Some(5))));
        assert_eq!(needs("2.0.1"), Some((17, 14, Some(5))));
        assert_eq!(needs("2.1.2"), Some((17, 17, Some(5))));
        assert_eq!(needs("2.11.0"), Some((17, 17, Some(9))));
        assert_eq!(needs("2.13.0"), Some((20, 17, Some(10))));
        assert_eq!(needs("3.0.0"), Some((20, 20, Some(10))));
        assert!(all.setuptools_limit(&v("2.1.2")).is_some_and(|row| row.below.0 == "82"));
        assert!(all.setuptools_limit(&v("2.2.0")).is_none());
    }

    #[test]
    fn what_torch_does() {
        let all = Knowledge::embedded();
        assert!(!all.torch_does(TorchTrait::LockIsFlock, &v("2.13.0")));
        assert!(all.torch_does(TorchTrait::LockIsFlock, &v("2.14.0")));
        assert!(all.torch_does(TorchTrait::CudaHomeByWhichProgram, &v("2.3.1")));
        assert!(!all.torch_does(TorchTrait::CudaHomeByWhichProgram, &v("2.4.0")));
        assert!(all.torch_does(TorchTrait::LogsThroughLogger, &v("3.0")));
    }
}
