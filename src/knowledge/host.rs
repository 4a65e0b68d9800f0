//! Environment variables, and the packages of distributions.

use super::Knowledge;
use super::near::edits;
use super::schema::host::{Family, Need, Package, Reader, Variable};
use crate::version::Dotted;

/// What is put in the place of the braces of a command.
#[derive(Debug, Clone, Default)]
pub struct Wanted<'a> {
    /// A gcc major, for [`Need::GxxVersion`].
    pub gcc: Option<u32>,
    /// A Python release, for [`Need::PythonHeaders`].
    pub python: Option<&'a Dotted>,
    /// A CUDA release, for [`Need::Toolkit`].
    pub cuda: Option<crate::version::CudaVersion>,
}

/// A command that installs something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Install {
    /// For root, in a shell of the system.
    pub command: String,
    /// Where the program is afterwards, if not in the usual place.
    pub program: Option<String>,
    /// What must be so first; a clause for a sentence.
    pub condition: Option<String>,
}

impl Knowledge {
    /// The row of a variable.
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        let at = self.environment.variable.binary_search_by(|row| row.name.as_ref().cmp(name)).ok()?;
        self.environment.variable.get(at)
    }

    /// Variables that torch does not read although people set them in that belief.
    pub fn mistaken_variables(&self) -> impl Iterator<Item = &Variable> {
        self.environment.variable.iter().filter(|row| row.mistaken_for.is_some())
    }

    /// Whether this torch reads a variable; `None` for one that the tables do not know.
    pub fn torch_reads(&self, variable: &str, torch: &Dotted) -> Option<bool> {
        let row = self.variable(variable)?;
        let version = torch.semver();
        Some(row.read_by.contains(&Reader::Torch) && row.torch.as_ref().is_none_or(|range| range.contain(&version)))
    }

    /// Whether this DeepSpeed reads a variable, those of single ops included; `None` for one that the tables do not know.
    pub fn deepspeed_reads(&self, variable: &str, deepspeed: &Dotted) -> Option<bool> {
        if self.deepspeed_op_by_variable(variable, None).is_some() {
            return Some(self.deepspeed_op_by_variable(variable, Some(deepspeed)).is_some());
        }
        let row = self.variable(variable)?;
        let version = deepspeed.semver();
        Some(row.read_by.contains(&Reader::DeepSpeed) && row.deepspeed.as_ref().is_none_or(|range| range.contain(&version)))
    }

    /// The variable of DeepSpeed's that a misspelt one is nearest to: `DS_BUILD_FUSEDADAM`, `DS_BUILD_ASYNC_IO`. `None` for a name that is
    /// right, or like none.
    pub fn near_deepspeed_variable(&self, name: &str) -> Option<&str> {
        let ops = self.ops.op.iter();
        // An op's name in the place of its short form: DS_BUILD_ASYNC_IO, whose variable is DS_BUILD_AIO.
        let as_op = name.strip_prefix("DS_BUILD_").map(str::to_ascii_lowercase);
        let own = ops.clone().find(|row| as_op.as_deref() == Some(row.op.as_ref())).map(|row| row.variable.as_ref());
        let read = self.environment.variable.iter().filter(|row| row.read_by.contains(&Reader::DeepSpeed)).map(|row| row.name.as_ref());
        let mut all = ops.map(|row| row.variable.as_ref()).chain(read.filter(|other| other.starts_with("DS_")));
        if all.clone().any(|other| other == name) {
            return None;
        }
        own.or_else(|| {
            let nearest = all.by_ref().map(|other| (edits(name, other), other)).min()?;
            (nearest.0 <= 2).then_some(nearest.1)
        })
    }

    /// Who installs packages, by the `ID` and the words of the `ID_LIKE` of os-release.
    pub fn family<'a>(&self, id: &str, id_like: impl IntoIterator<Item = &'a str>) -> Option<Family> {
        let of = |id: &str| self.packages.distribution.iter().find(|row| row.id == id).map(|row| row.family);
        of(id).or_else(|| id_like.into_iter().find_map(of))
    }

    /// How a thing is installed; `None` where it is not known, or where `wanted` lacks what the command needs.
    pub fn install(&self, family: Family, need: Need, wanted: &Wanted<'_>) -> Option<Install> {
        let row = self.package(family, need)?;
        Some(Install {
            command: fill(&row.command, wanted)?,
            program: match &row.program {
                Some(program) => Some(fill(program, wanted)?),
                None => None,
            },
            condition: row.condition.as_ref().map(ToString::to_string),
        })
    }

    fn package(&self, family: Family, need: Need) -> Option<&Package> {
        self.packages.package.iter().find(|row| (row.family, row.need) == (family, need))
    }

    /// The gcc majors that a release offers as packages, by the `ID` and `VERSION_ID` of os-release; `None` where it is not known. RHEL's
    /// are those of the distributions made from it.
    pub fn gcc_offer(&self, id: &str, version_id: &Dotted) -> Option<&[u32]> {
        let id = if self.family(id, []) == Some(Family::Rhel) { "rhel" } else { id };
        let minor_counts = |row: &super::schema::host::GccOffer| row.release.0.contains('.');
        let row = self.packages.gcc_offer.iter().find(|row| {
            let release = row.release.dotted();
            row.distribution == id && release.major() == version_id.major() && (!minor_counts(row) || release.minor() == version_id.minor())
        })?;
        Some(&row.gcc)
    }
}

/// Puts what is wanted in the place of the braces; `None` where it is not there.
fn fill(text: &str, wanted: &Wanted<'_>) -> Option<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, tail) = after.split_once('}')?;
        out += before;
        out += &match name {
            "gcc" => wanted.gcc?.to_string(),
            "python" => wanted.python?.major_minor(),
            "python-digits" => wanted.python?.major_minor().replace('.', ""),
            "cuda" => wanted.cuda?.to_string(),
            "cuda-dash" => wanted.cuda?.to_string().replace('.', "-"),
            _ => return None,
        };
        rest = tail;
    }
    out += rest;
    Some(out)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::super::schema::host::PLACEHOLDERS;
    use super::*;
    use crate::version::CudaVersion;

    fn v(text: &str) -> Dotted {
        text.parse().unwrap()
    }

    #[test]
    fn who_reads_a_variable() {
        let all = Knowledge::embedded();
        for name in ["CUDA_ROOT", "CUDAHOME", "CUDA_TOOLKIT_ROOT_DIR", "CUDACXX", "CUDAHOSTCXX"] {
            assert_eq!(all.torch_reads(name, &v("2.6.0")), Some(false), "{name}");
            assert!(all.variable(name).unwrap().mistaken_for.is_some(), "{name}");
        }
        assert_eq!(all.torch_reads("CUDA_HOME", &v("2.6.0")), Some(true));
        assert_eq!(all.torch_reads("CUDA_INC_PATH", &v("2.3.1")), Some(false));
        assert_eq!(all.torch_reads("CUDA_INC_PATH", &v("2.4.0")), Some(true));
        assert_eq!(all.torch_reads("HOME", &v("2.4.0")), None);
        assert_eq!(all.deepspeed_reads("DS_SKIP_CUDA_CHECK", &v("0.9.2")), Some(false));
        assert_eq!(all.deepspeed_reads("DS_BUILD_GDS", &v("0.14.5")), Some(false));
        assert_eq!(all.deepspeed_reads("DS_BUILD_GDS", &v("0.15.0")), Some(true));
        assert_eq!(all.deepspeed_reads("DS_IGNORE_CUTLASS_DETECTION", &v("0.19.8")), Some(false));
        assert!(all.mistaken_variables().all(|row| !row.read_by.contains(&Reader::Torch)));
    }

    #[test]
    fn misspelt_variables() {
        let all = Knowledge::embedded();
        assert_eq!(all.near_deepspeed_variable("DS_BUILD_FUSEDADAM"), Some("DS_BUILD_FUSED_ADAM"));
        assert_eq!(all.near_deepspeed_variable("DS_BUILD_ASYNC_IO"), Some("DS_BUILD_AIO"));
        assert_eq!(all.near_deepspeed_variable("DS_BUILD_DC"), Some("DS_BUILD_DEEP_COMPILE"));
        assert_eq!(all.near_deepspeed_variable("DS_SKIP_CUDA_CHEK"), Some("DS_SKIP_CUDA_CHECK"));
        assert_eq!(all.near_deepspeed_variable("DS_BUILD_OPS"), None);
        assert_eq!(all.near_deepspeed_variable("DS_MY_OWN_THING"), None);
        assert_eq!(all.near_deepspeed_variable(""), None);
    }

    #[test]
    fn commands_of_distributions() {
        let all = Knowledge::embedded();
        let command = |family, need, wanted: &Wanted<'_>| all.install(family, need, wanted).map(|install| install.command);
        let gcc = Wanted { gcc: Some(12), ..Wanted::default() };
        assert_eq!(command(Family::Debian, Need::GxxVersion, &gcc).as_deref(), Some("apt-get install -y g++-12"));
        let toolset = all.install(Family::Rhel, Need::GxxVersion, &gcc).unwrap();
        assert_eq!(toolset.program.as_deref(), Some("/opt/rh/gcc-toolset-12/root/usr/bin/g++"));
        assert_eq!(command(Family::Fedora, Need::GxxVersion, &gcc), None, "not known");
        assert_eq!(command(Family::Debian, Need::GxxVersion, &Wanted::default()), None, "which gcc?");
        let cuda = Wanted { cuda: Some(CudaVersion::new(12, 4)), ..Wanted::default() };
        assert_eq!(command(Family::Debian, Need::Toolkit, &cuda).as_deref(), Some("apt-get install -y cuda-toolkit-12-4"));
        assert!(all.install(Family::Debian, Need::Toolkit, &cuda).unwrap().condition.is_some());
        let python = v("3.12.3");
        let python = Wanted { python: Some(&python), ..Wanted::default() };
        assert_eq!(command(Family::Suse, Need::PythonHeaders, &python).as_deref(), Some("zypper install -y python312-devel"));
    }

    #[test]
    fn every_placeholder_can_be_filled() {
        let python = v("3.12.3");
        let all = Wanted { gcc: Some(12), python: Some(&python), cuda: Some(CudaVersion::new(12, 4)) };
        for name in PLACEHOLDERS {
            assert!(fill(&format!("a {{{name}}} b"), &all).is_some(), "{name}");
        }
    }

    #[test]
    fn families_and_what_they_offer() {
        let all = Knowledge::embedded();
        assert_eq!(all.family("ubuntu", []), Some(Family::Debian));
        assert_eq!(all.family("mydistro", ["ubuntu", "debian"]), Some(Family::Debian));
        assert_eq!(all.family("mydistro", []), None);
        assert_eq!(all.gcc_offer("debian", &v("12")), Some(&[11, 12][..]));
        assert_eq!(all.gcc_offer("ubuntu", &v("22.04")), Some(&[9, 10, 11, 12][..]));
        assert_eq!(all.gcc_offer("ubuntu", &v("22.10")), None);
        assert_eq!(all.gcc_offer("rocky", &v("9.4")), Some(&[12, 13, 14][..]));
        assert_eq!(all.gcc_offer("debian", &v("99")), None);
    }
}
