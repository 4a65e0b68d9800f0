//! DeepSpeed's ops, by release: what they are called, what they are built from, and what they ask for.

use super::schema::deepspeed::AcceleratorKind;
use super::schema::ops::{BrokenOp, BuilderFiles, Op, OpBuild, OpCost, OpGate, OpHeader, OpLibrary, OpPart};
use super::{Knowledge, near};
use crate::version::Dotted;

impl Knowledge {
    /// The ops of a release, in alphabetical order.
    pub fn deepspeed_ops(&self, deepspeed: &Dotted, accelerator: AcceleratorKind) -> impl Iterator<Item = &Op> {
        let version = deepspeed.semver();
        self.ops.op.iter().filter(move |row| row.accelerator == accelerator && row.deepspeed.contain(&version))
    }

    /// The op that a variable asks for in some release, or in this one: `DS_BUILD_AIO`.
    pub fn deepspeed_op_by_variable(&self, variable: &str, deepspeed: Option<&Dotted>) -> Option<&Op> {
        let version = deepspeed.map(Dotted::semver);
        let mut rows = self.ops.op.iter().filter(|row| row.variable == variable);
        rows.find(|row| version.as_ref().is_none_or(|version| row.deepspeed.contain(version)))
    }

    /// What an op is built from in a release that has it.
    pub fn op_build(&self, op: &Op, deepspeed: &Dotted) -> Option<&OpBuild> {
        let version = deepspeed.semver();
        self.ops.build.iter().find(|row| row.op == op.op && row.accelerator == op.accelerator && row.deepspeed.contain(&version))
    }

    /// What an op asks of a machine; `None` where it asks for nothing but torch.
    pub fn op_gate(&self, op: &Op, deepspeed: &Dotted) -> Option<&OpGate> {
        let version = deepspeed.semver();
        self.ops.gate.iter().find(|row| row.op == op.op && row.accelerator == op.accelerator && row.deepspeed.contain(&version))
    }

    /// The flags of a set, with the words in braces that stand for the machine.
    pub fn op_flags(&self, set: &str, deepspeed: &Dotted) -> Option<&[super::schema::Str]> {
        let version = deepspeed.semver();
        let row = self.ops.flags.iter().find(|row| row.set == set && row.deepspeed.contain(&version))?;
        Some(&row.flags)
    }

    /// A header that ops include and that is neither DeepSpeed's nor torch's.
    pub fn op_header(&self, header: &str) -> Option<(&OpHeader, &OpPart)> {
        let row = self.ops.header.iter().find(|row| row.header == header)?;
        Some((row, self.op_part(&row.part)?))
    }

    /// A library that ops link, by what stands after `-l`.
    pub fn op_library(&self, library: &str) -> Option<(&OpLibrary, &OpPart)> {
        let row = self.ops.library.iter().find(|row| row.library == library)?;
        Some((row, self.op_part(&row.part)?))
    }

    fn op_part(&self, part: &str) -> Option<&OpPart> {
        self.ops.part.iter().find(|row| row.part == part)
    }

    /// The row of an op that no nvcc compiles in this release.
    pub fn deepspeed_broken_op(&self, op: &str, deepspeed: &Dotted) -> Option<&BrokenOp> {
        let version = deepspeed.semver();
        self.ops.broken_op.iter().find(|row| row.op == op && row.deepspeed.contain(&version))
    }

    /// The order in which setup.py builds the ops; `None` where it does not matter or is not known.
    pub fn op_order(&self, deepspeed: &Dotted, accelerator: AcceleratorKind) -> Option<&[super::schema::Str]> {
        let version = deepspeed.semver();
        let row = self.ops.order.iter().find(|row| row.accelerator == accelerator && row.deepspeed.contain(&version))?;
        Some(&row.ops)
    }

    /// What compiling an op costs; of the nearest release that was measured.
    pub fn op_cost(&self, op: &str, deepspeed: &Dotted) -> Option<&OpCost> {
        let version = deepspeed.semver();
        let mut rows = self.ops.cost.iter().filter(|row| row.op == op);
        rows.find(|row| row.deepspeed.contain(&version))
    }

    /// The builders' files of exactly this release.
    pub fn builder_files(&self, deepspeed: &Dotted) -> Option<&BuilderFiles> {
        let version = deepspeed.semver();
        self.ops.builder_files.iter().find(|row| row.release.dotted().semver() == version)
    }

    /// Every op of any release and accelerator, once, in alphabetical order.
    pub fn op_names(&self) -> std::collections::BTreeSet<&str> {
        self.ops.op.iter().map(|row| row.op.as_ref()).collect()
    }

    /// The variable of some op that a wrong one is nearest to, both without `DS_BUILD_`: `FUSEDADAM`.
    pub fn near_op_variable(&self, name: &str) -> Option<&str> {
        let plain = |name: &str| name.trim_start_matches("DS_BUILD_").to_ascii_lowercase();
        let name = plain(name);
        let by_name = self.ops.op.iter().find(|row| row.op == name).map(|row| row.variable.as_ref());
        let best = || self.ops.op.iter().map(|row| (near::edits(&name, &plain(&row.variable)), row.variable.as_ref())).min();
        by_name.or_else(|| best().filter(|(edits, _)| *edits <= 2).map(|(_, variable)| variable))
    }

    /// The op of some release that a wrong name is nearest to: `async-io`, `fusedadam`.
    pub fn near_op(&self, name: &str) -> Option<&str> {
        if name.len() < 3 {
            return None;
        }
        let name = name.to_ascii_lowercase().replace('-', "_");
        let best = self.ops.op.iter().map(|row| (near::edits(&name, &row.op), row.op.as_ref())).min()?;
        if best.0 <= 2 { Some(best.1) } else { None }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use AcceleratorKind::{Cpu, Cuda};

    fn v(text: &str) -> Dotted {
        text.parse().unwrap()
    }

    #[test]
    fn ops() {
        let all = Knowledge::embedded();
        let has = |deepspeed: &str, op: &str| all.deepspeed_ops(&v(deepspeed), Cuda).any(|row| row.op == op);
        assert!(has("0.19.6", "sparse_attn") && !has("0.19.7", "sparse_attn"));
        assert!(has("0.9.4", "utils") && !has("0.9.5", "utils") && has("0.17.1", "utils"));
        assert!(!has("0.19.8", "deepspeed_ccl_comm"));
        assert_eq!(all.deepspeed_ops(&v("0.19.8"), Cuda).count(), 23);
        assert_eq!(all.deepspeed_ops(&v("0.19.6"), Cuda).count(), 24);
        assert_eq!(all.deepspeed_ops(&v("0.19.8"), Cpu).count(), 9);
        assert_eq!(all.deepspeed_op_by_variable("DS_BUILD_AIO", None).unwrap().op, "async_io");
        assert!(all.deepspeed_op_by_variable("DS_BUILD_SPARSE_ATTN", Some(&v("0.19.8"))).is_none());
        assert!(all.deepspeed_op_by_variable("DS_BUILD_ASYNC_IO", None).is_none());
        assert!(all.deepspeed_broken_op("fp_quantizer", &v("0.19.8")).is_some());
        assert!(all.deepspeed_broken_op("fp_quantizer", &v("0.16.9")).is_none());
        assert_eq!(all.near_op("fusedadam"), Some("fused_adam"));
        assert_eq!(all.near_op("async-io"), Some("async_io"));
        assert_eq!(all.near_op("flash_attention"), None);
    }

    fn op<'a>(all: &'a Knowledge, name: &str, kind: AcceleratorKind, deepspeed: &str) -> &'a Op {
        all.deepspeed_ops(&v(deepspeed), kind).find(|row| row.op == name).unwrap()
    }

    #[test]
    fn every_op_of_every_release_has_its_build() {
        let all = Knowledge::embedded();
        for deepspeed in
            ["0.9.0", "0.9.5", "0.11.0", "0.12.6", "0.13.3", "0.14.5", "0.15.2", "0.16.9", "0.18.9", "0.19.4", "0.19.8", "1.0.0"].map(v)
        {
            for kind in [Cuda, Cpu] {
                for op in all.deepspeed_ops(&deepspeed, kind) {
                    let build = all.op_build(op, &deepspeed).unwrap();
                    for set in [&build.cxx, &build.nvcc].into_iter().flatten() {
                        assert!(all.op_flags(set, &deepspeed).is_some(), "{} {deepspeed}", op.op);
                    }
                }
            }
        }
    }

    #[test]
    fn builds_change_with_the_release() {
        let all = Knowledge::embedded();
        let link = |name: &str, deepspeed: &str| all.op_build(op(&all, name, Cuda, deepspeed), &v(deepspeed)).unwrap().link.join(" ");
        assert_eq!(link("async_io", "0.14.5"), "-laio");
        assert_eq!(link("async_io", "0.15.0"), "-L{cuda} -L{cuda}/lib64 -laio -lcuda -lcudart");
        assert_eq!(link("quantizer", "0.18.9"), "-lcurand");
        assert_eq!(link("quantizer", "0.19.8"), "");
        let gate = |name: &str, deepspeed: &str| all.op_gate(op(&all, name, Cuda, deepspeed), &v(deepspeed));
        assert_eq!(gate("fused_adam", "0.19.8"), None);
        assert_eq!(gate("ragged_device_ops", "0.19.8").unwrap().keeps, Some(8));
        assert_eq!(gate("ragged_device_ops", "0.19.8").unwrap().capability, Some(6));
        assert_eq!(gate("async_io", "0.14.5").unwrap().functions.as_ref(), ["aio:io_pgetevents"]);
    }

    #[test]
    fn a_missing_header_or_library_has_its_problem() {
        let all = Knowledge::embedded();
        let header = |name: &str| all.op_header(name).and_then(|(_, part)| part.header_problem.clone()).unwrap();
        assert_eq!(header("curand_kernel.h"), "missing-cuda-headers");
        assert_eq!(header("nccl.h"), "nccl-header-missing");
        assert_eq!(header("libaio.h"), "libaio-missing");
        let library = |name: &str| all.op_library(name).and_then(|(_, part)| part.library_problem.clone()).unwrap();
        assert_eq!(library("curand"), "linker-cannot-find-cuda-lib");
        assert_eq!(library("cuda"), "libcuda-not-found-at-link");
        assert_eq!(library("cufile"), "cufile-missing");
        let ids: Vec<&str> = all.problems().iter().map(|problem| problem.id).collect();
        for part in all.ops.part.iter() {
            for id in [&part.header_problem, &part.library_problem].into_iter().flatten() {
                assert!(ids.contains(&id.as_ref()), "{id}");
            }
        }
    }
}
