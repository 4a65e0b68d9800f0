//! DeepSpeed's builders, by release.

use super::schema::deepspeed::{Accelerator, DeepSpeedTrait, Part};
use super::{Knowledge, Ranged};
use crate::version::{Capability, CudaVersion, Dotted};

/// What DeepSpeed's own comparison of two CUDA releases says, before `DS_SKIP_CUDA_CHECK` is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CudaPair {
    /// The same release.
    Equal,
    /// Different minors that DeepSpeed takes for one another.
    Compatible,
    /// The build stops.
    Refused,
}

impl Knowledge {
    /// Whether the tables were made with this release in sight. For others the newest rows are a forecast.
    pub fn deepspeed_known(&self, deepspeed: &Dotted) -> bool {
        let numbers = deepspeed.semver();
        self.deepspeed.covered.iter().any(|row| row.oldest.dotted().semver() <= numbers && numbers <= row.newest.dotted().semver())
    }

    /// The oldest and the newest release that the tables were made with.
    pub fn deepspeed_covered(&self) -> Option<(Dotted, Dotted)> {
        let row = self.deepspeed.covered.iter().next()?;
        Some((row.oldest.dotted(), row.newest.dotted()))
    }

    /// Whether there is such a release; one newer than the tables may be.
    ///
    /// # Errors
    /// The nearest releases, where there is none.
    pub fn deepspeed_release(&self, deepspeed: &Dotted) -> Result<(), Vec<String>> {
        let numbers = deepspeed.semver();
        let Some(row) = self.deepspeed.covered.iter().next() else { return Ok(()) };
        let known: Vec<semver::Version> = row.releases.iter().map(|release| release.dotted().semver()).collect();
        if known.contains(&numbers) || known.iter().max().is_none_or(|newest| numbers > *newest) {
            return Ok(());
        }
        let below = known.iter().filter(|release| **release < numbers).max();
        let above = known.iter().filter(|release| **release > numbers).min();
        Err(below.into_iter().chain(above).map(ToString::to_string).collect())
    }

    /// Whether DeepSpeed builds with this nvcc for a torch of this CUDA.
    pub fn deepspeed_cuda_pair(&self, deepspeed: &Dotted, nvcc: CudaVersion, torch: CudaVersion) -> CudaPair {
        let version = deepspeed.semver();
        let row = self.deepspeed.cuda_row.iter().find(|row| row.cuda_major == nvcc.major && row.deepspeed.contain(&version));
        match row {
            _ if nvcc == torch => CudaPair::Equal,
            Some(row) if row.members.contains(&nvcc) && row.members.contains(&torch) => CudaPair::Compatible,
            _ => CudaPair::Refused,
        }
    }

    /// What a pre-build compiles for where `TORCH_CUDA_ARCH_LIST` is unset. `nvcc`: that of torch's CUDA_HOME; `None` where there is none.
    pub fn deepspeed_default_archs(&self, deepspeed: &Dotted, nvcc: Option<CudaVersion>) -> Option<&[Capability]> {
        let version = deepspeed.semver();
        // Without a toolkit nothing is added, as for CUDA 10.
        let cuda = numbers_of(nvcc.unwrap_or(CudaVersion::new(10, 0)));
        let row = self.deepspeed.default_archs.iter().find(|row| row.deepspeed.contain(&version) && row.cuda.contain(&cuda))?;
        Some(&row.archs)
    }

    /// The `-std` of an op's sources: 14, 17 or 20.
    pub fn deepspeed_standard(&self, part: Part, deepspeed: &Dotted, nvcc: CudaVersion, torch: &Dotted) -> Option<u32> {
        let (deepspeed, nvcc, torch) = (deepspeed.semver(), numbers_of(nvcc), torch.semver());
        let holds = |range: &Option<super::schema::Versions>, version| range.as_ref().is_none_or(|range| range.contain(version));
        let mut rows = self.deepspeed.standard.iter().filter(|row| row.part == part && row.deepspeed.contain(&deepspeed));
        rows.find(|row| holds(&row.cuda, &nvcc) && holds(&row.torch, &torch)).map(|row| row.standard)
    }

    /// The accelerator that DeepSpeed chooses by itself.
    pub fn deepspeed_accelerator(&self, deepspeed: &Dotted) -> Option<Ranged<'_, Accelerator>> {
        let version = deepspeed.semver();
        let row = self.deepspeed.accelerator.iter().find(|row| row.deepspeed.contain(&version))?;
        Some(Ranged { row, known: self.deepspeed_known(deepspeed) })
    }

    /// Whether this DeepSpeed does a thing; `None` where it is not known. A release newer than the tables does what the newest one does,
    /// unless the row says that this is not known.
    pub fn deepspeed_does(&self, what: DeepSpeedTrait, deepspeed: &Dotted) -> Option<bool> {
        let version = deepspeed.semver();
        let row = self.deepspeed.does.iter().find(|row| row.what == what)?;
        match &row.unknown {
            Some(unknown) if unknown.contain(&version) => None,
            _ => Some(row.deepspeed.contain(&version)),
        }
    }
}

fn numbers_of(cuda: CudaVersion) -> semver::Version {
    semver::Version::new(cuda.major.into(), cuda.minor.into(), 0)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn v(text: &str) -> Dotted {
        text.parse().unwrap()
    }

    fn cuda(text: &str) -> CudaVersion {
        text.parse().unwrap()
    }

    #[test]
    fn pairs_of_cuda_releases() {
        let all = Knowledge::embedded();
        let pair = |deepspeed: &str, nvcc: &str, torch: &str| all.deepspeed_cuda_pair(&v(deepspeed), cuda(nvcc), cuda(torch));
        assert_eq!(pair("0.19.8", "12.4", "12.4"), CudaPair::Equal);
        assert_eq!(pair("0.19.8", "12.9", "12.4"), CudaPair::Compatible);
        assert_eq!(pair("0.17.1", "12.9", "12.4"), CudaPair::Refused);
        assert_eq!(pair("0.16.9", "12.8", "12.6"), CudaPair::Compatible);
        assert_eq!(pair("0.16.3", "12.8", "12.6"), CudaPair::Refused);
        assert_eq!(pair("0.9.2", "12.1", "12.0"), CudaPair::Refused);
        assert_eq!(pair("0.9.3", "12.1", "12.0"), CudaPair::Compatible);
        assert_eq!(pair("0.19.8", "12.7", "12.4"), CudaPair::Refused, "12.7 is in no row");
        assert_eq!(pair("0.19.8", "11.8", "12.4"), CudaPair::Refused);
        for deepspeed in ["0.9.0", "0.16.9", "0.19.8"] {
            assert_eq!(pair(deepspeed, "13.0", "13.2"), CudaPair::Refused, "{deepspeed} has no row for CUDA 13");
            assert_eq!(pair(deepspeed, "13.2", "13.2"), CudaPair::Equal);
        }
    }

    #[test]
    fn releases() {
        let all = Knowledge::embedded();
        assert_eq!(all.deepspeed_release(&v("0.16.9")), Ok(()));
        assert_eq!(all.deepspeed_release(&v("0.16.9+abc")), Ok(()));
        assert_eq!(all.deepspeed_release(&v("0.20.0")), Ok(()), "newer than the tables");
        assert_eq!(all.deepspeed_release(&v("0.16.10")), Err(vec!["0.16.9".to_owned(), "0.17.0".to_owned()]));
        assert_eq!(all.deepspeed_release(&v("0.3.1")), Err(vec!["0.9.0".to_owned()]));
    }

    #[test]
    fn default_lists() {
        let all = Knowledge::embedded();
        let list = |deepspeed: &str, nvcc: Option<&str>| {
            let archs = all.deepspeed_default_archs(&v(deepspeed), nvcc.map(cuda)).unwrap();
            archs.iter().map(ToString::to_string).collect::<Vec<_>>().join(";")
        };
        assert_eq!(list("0.19.8", None), "6.0;6.1;7.0");
        assert_eq!(list("0.19.8", Some("13.0")), "6.0;6.1;7.0", "nvcc 13 knows none of these");
        assert_eq!(list("0.19.8", Some("12.9")), "6.0;6.1;7.0;8.0;8.6;9.0;10.0;12.0");
        assert_eq!(list("0.19.8", Some("12.6")), "6.0;6.1;7.0;8.0;8.6;9.0");
        assert_eq!(list("0.19.8", Some("11.7")), "6.0;6.1;7.0;8.0;8.6");
        assert_eq!(list("0.16.2", Some("11.7")), "6.0;6.1;7.0;8.0;8.6;9.0", "although nvcc 11.7 does not know 9.0");
        assert_eq!(list("0.15.3", Some("12.8")), "6.0;6.1;7.0;8.0;8.6");
        assert_eq!(list("0.9.5", Some("11.0")), "6.0;6.1;7.0;8.0");
    }

    #[test]
    fn standards() {
        let all = Knowledge::embedded();
        let of = |part, deepspeed: &str, nvcc: &str, torch: &str| all.deepspeed_standard(part, &v(deepspeed), cuda(nvcc), &v(torch));
        assert_eq!(of(Part::Nvcc, "0.19.6", "13.0", "2.12.0"), Some(17));
        assert_eq!(of(Part::Nvcc, "0.19.7", "13.0", "2.12.0"), Some(20));
        assert_eq!(of(Part::Nvcc, "0.14.4", "12.5", "2.4.0"), Some(17));
        assert_eq!(of(Part::Nvcc, "0.14.5", "12.5", "2.4.0"), Some(20));
        assert_eq!(of(Part::Nvcc, "0.14.5", "12.4", "2.4.0"), Some(17));
        assert_eq!(of(Part::Nvcc, "0.9.2", "11.8", "2.0.0"), Some(14));
        assert_eq!(of(Part::Host, "0.19.8", "13.0", "2.11.0"), Some(17));
        assert_eq!(of(Part::Host, "0.19.8", "13.0", "2.12.0"), Some(20));
        assert_eq!(of(Part::Host, "0.19.4", "13.0", "2.12.0"), Some(17));
    }

    #[test]
    fn every_covered_release_has_every_answer() {
        let all = Knowledge::embedded();
        for deepspeed in
            ["0.9.0", "0.9.2", "0.9.3", "0.12.2", "0.14.4", "0.14.5", "0.15.4", "0.16.4", "0.19.4", "0.19.5", "0.19.7", "0.19.8", "1.0.0"]
        {
            let deepspeed = v(deepspeed);
            assert!(all.deepspeed_accelerator(&deepspeed).is_some(), "{deepspeed}");
            for nvcc in ["10.2", "11.0", "11.8", "12.4", "12.5", "12.8", "13.0", "14.0"].map(cuda) {
                assert!(all.deepspeed_default_archs(&deepspeed, Some(nvcc)).is_some(), "{deepspeed} {nvcc}");
                for torch in ["1.13.1", "2.11.0", "2.12.0", "3.0.0"].map(v) {
                    for part in Part::ALL {
                        assert!(all.deepspeed_standard(*part, &deepspeed, nvcc, &torch).is_some(), "{deepspeed} {nvcc} {torch} {part:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn accelerators() {
        let all = Knowledge::embedded();
        let chosen = |deepspeed: &str| all.deepspeed_accelerator(&v(deepspeed)).map(|row| (row.no_gpu, row.no_torch, row.known)).unwrap();
        use super::super::schema::deepspeed::AcceleratorKind::{Cpu, Cuda};
        assert_eq!(chosen("0.14.0"), (Cuda, Cuda, true));
        assert_eq!(chosen("0.14.1"), (Cpu, Cuda, true));
        assert_eq!(chosen("0.16.2"), (Cpu, Cpu, true));
        assert_eq!(chosen("0.20.0"), (Cpu, Cpu, false));
    }

    #[test]
    fn what_deepspeed_does() {
        let all = Knowledge::embedded();
        let does = |what, deepspeed: &str| all.deepspeed_does(what, &v(deepspeed));
        assert_eq!(does(DeepSpeedTrait::ImportNeedsGpu, "0.15.4"), Some(false));
        assert_eq!(does(DeepSpeedTrait::ImportNeedsGpu, "0.16.3"), Some(false));
        assert_eq!(does(DeepSpeedTrait::ImportNeedsGpu, "0.16.4"), Some(true));
        assert_eq!(does(DeepSpeedTrait::ImportNeedsGpu, "0.17.4"), Some(true));
        assert_eq!(does(DeepSpeedTrait::ImportNeedsGpu, "0.17.5"), Some(false));
        assert_eq!(does(DeepSpeedTrait::ImportNeedsGpu, "0.16.9"), Some(true));
        assert_eq!(does(DeepSpeedTrait::LeaksArchList, "0.18.9"), Some(false));
        assert_eq!(does(DeepSpeedTrait::LeaksArchList, "0.19.8+abc"), Some(true));
        assert_eq!(does(DeepSpeedTrait::LeaksArchList, "0.20.0"), None);
        assert_eq!(does(DeepSpeedTrait::NinjaAsProgram, "0.18.2"), Some(false));
        assert_eq!(does(DeepSpeedTrait::JitChecksCuda, "0.12.2"), Some(true));
        assert_eq!(does(DeepSpeedTrait::JitChecksCudaForHostOps, "0.19.8"), Some(false));
    }
}
