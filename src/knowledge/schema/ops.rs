//! The tables of `ops.toml`.

use super::deepspeed::AcceleratorKind;
use super::{Fault, List, Number, Str, Versions};

type Key = (Str, AcceleratorKind, semver::Version);

record! {
    /// An op of the set of an accelerator.
    pub struct Op {
        pub op: Str,
        pub accelerator: AcceleratorKind,
        pub deepspeed: Versions,
        /// The class of its builder.
        pub class: Str,
        /// The variable that asks for it in a pre-build.
        pub variable: Str,
        /// The Python module that a pre-build makes.
        pub module: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Op, Key, |o| (o.op.clone(), o.accelerator, o.deepspeed.lowest()), format!("{} {:?} {}", o.op, o.accelerator, o.deepspeed.0), {
    match o.variable.starts_with("DS_BUILD_") {
        true => Ok(()),
        false => Err(Fault::new("variable", "does not begin with `DS_BUILD_`")),
    }
});

record! {
    /// The flags that several ops share.
    pub struct FlagSet {
        pub set: Str,
        pub deepspeed: Versions,
        /// In order. A word in braces stands for what depends on the machine: `{cuda}` is CUDA_HOME, `{std}` the `-std` of the compiler's
        /// part, `{march}` and `{simd}` what the CPU has, `{threads}` nvcc's `--threads`, `{arch}` the `-gencode` flags, `{bf16}` the
        /// macro that turns BF16 on where every arch of the list is 8.0 or above.
        pub flags: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(FlagSet, (Str, semver::Version), |f| (f.set.clone(), f.deepspeed.lowest()), format!("{} {}", f.set, f.deepspeed.0));

choice! {
    /// What setup.py makes of an op.
    pub enum Extension {
        /// Torch's CUDAExtension: `-L` of the toolkit and `-lcudart` at link.
        Cuda,
        /// Torch's CppExtension.
        Cpp,
    }
}

record! {
    /// What an op is compiled from, on a machine with a toolkit.
    pub struct OpBuild {
        pub op: Str,
        pub accelerator: AcceleratorKind,
        pub deepspeed: Versions,
        pub extension: Extension,
        /// How many C++ sources.
        pub cpp: u32,
        /// How many CUDA sources.
        pub cu: u32,
        /// What its own files include that belongs neither to DeepSpeed nor to the compiler; of CUTLASS the first alone.
        #[serde(default)]
        pub headers: List<Str>,
        /// The set of flags of the C++ sources, and what the op adds.
        pub cxx: Option<Str>,
        #[serde(default)]
        pub cxx_own: List<Str>,
        /// The `-std` of the C++ sources with a torch before 2.1, where it is another.
        pub torch_2_0_standard: Option<u32>,
        /// The flags of the CUDA sources, likewise. An op without any may have flags for them all the same.
        pub nvcc: Option<Str>,
        #[serde(default)]
        pub nvcc_own: List<Str>,
        /// The flags of the link in a pre-build, without what torch adds. `{kernels}` is the folder of the package deepspeed-kernels.
        #[serde(default)]
        pub link: List<Str>,
        /// The same in a JIT build, where it differs.
        pub jit_link: Option<List<Str>>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpBuild, Key, |o| (o.op.clone(), o.accelerator, o.deepspeed.lowest()), format!("{} {:?} {}", o.op, o.accelerator, o.deepspeed.0));

choice! {
    /// Where a torch or an nvcc of CUDA 10 is refused.
    pub enum CudaGate {
        /// On a GPU of capability 8.0 and above.
        Ampere,
        /// Wherever there is a GPU.
        Gpu,
    }
}

choice! {
    /// How an op finds CUTLASS.
    pub enum CutlassGate {
        /// `CUTLASS_PATH` must be set, and without a CHANGELOG.md there the test itself dies.
        Log,
        /// `CUTLASS_PATH` must be set; without a CHANGELOG.md there the Python package must be there in 3.1 or newer, its minor 1 or above.
        Path,
        /// The same; `DS_IGNORE_CUTLASS_DETECTION` and `DS_USE_CUTLASS_PYTHON_BINDINGS` are values with a meaning of their own.
        PathOrWord,
        /// The build dies of a path: only `DS_IGNORE_CUTLASS_DETECTION` goes through.
        Word,
        /// Unset, the usual places are searched.
        Search,
    }
}

choice! {
    pub enum Platform {
        Linux,
        Macos,
        Windows,
    }
}

record! {
    /// What an op asks of a machine before it is built. An op without a row asks for nothing but torch.
    pub struct OpGate {
        pub op: Str,
        pub accelerator: AcceleratorKind,
        pub deepspeed: Versions,
        /// The lowest major capability of GPU 0, where there is one.
        pub capability: Option<u32>,
        /// The lowest major capability that it leaves in an arch list.
        pub keeps: Option<u32>,
        pub cuda11: Option<CudaGate>,
        /// The releases of triton of which one must be installed, by their first two numbers.
        #[serde(default)]
        pub triton: List<Number>,
        /// The releases of torch with which it can be built; none: all.
        pub torch: Option<Versions>,
        /// The releases of torch with which its build does not die, whatever `is_compatible` said; none: all.
        pub torch_at_build: Option<Versions>,
        /// Functions that must link, each after the library and a colon.
        #[serde(default)]
        pub functions: List<Str>,
        pub cutlass: Option<CutlassGate>,
        /// Without CUDA_HOME it is not built.
        pub cuda_home: Option<bool>,
        /// A pre-build reads the capability of GPU 0 and dies without one.
        pub gpu_at_build: Option<bool>,
        /// Where it is built; none: everywhere.
        #[serde(default)]
        pub platforms: List<Platform>,
        /// Python modules that the build imports; without them it dies, whatever `is_compatible` said.
        #[serde(default)]
        pub imports: List<Str>,
        /// Variables without which it dies.
        #[serde(default)]
        pub variables: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpGate, Key, |o| (o.op.clone(), o.accelerator, o.deepspeed.lowest()), format!("{} {:?} {}", o.op, o.accelerator, o.deepspeed.0));

record! {
    /// A thing that ops need from outside, by the part of the system that brings it.
    pub struct OpPart {
        pub part: Str,
        /// The problem when a header of it is missing.
        pub header_problem: Option<Str>,
        /// The problem when the linker does not find it.
        pub library_problem: Option<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpPart, Str, |p| p.part.clone(), p.part.to_string());

record! {
    /// A header that ops include.
    pub struct OpHeader {
        pub header: Str,
        pub part: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpHeader, Str, |h| h.header.clone(), h.header.to_string());

record! {
    /// What a header of torch's that ops include needs in its turn, of the headers in the table.
    pub struct OpTorchHeader {
        pub header: Str,
        /// In a C++ source.
        #[serde(default)]
        pub needs: List<Str>,
        /// Besides, in a CUDA source.
        #[serde(default)]
        pub cuda_needs: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpTorchHeader, Str, |h| h.header.clone(), h.header.to_string());

record! {
    /// A library that ops link.
    pub struct OpLibrary {
        /// As after `-l`.
        pub library: Str,
        pub part: Str,
        /// A C function that it exports; none where it has only C++ ones.
        pub symbol: Option<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpLibrary, Str, |l| l.library.clone(), l.library.to_string());

record! {
    /// An op whose sources no nvcc compiles.
    pub struct BrokenOp {
        pub op: Str,
        pub deepspeed: Versions,
        /// The file and what the compiler says.
        pub error: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(BrokenOp, (Str, semver::Version), |b| (b.op.clone(), b.deepspeed.lowest()), format!("{} {}", b.op, b.deepspeed.0));

record! {
    /// The order in which setup.py builds the ops of an accelerator, where it matters: an op may change the arch list of those behind it.
    pub struct OpOrder {
        pub accelerator: AcceleratorKind,
        pub deepspeed: Versions,
        pub ops: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(
    OpOrder,
    (AcceleratorKind, semver::Version),
    |o| (o.accelerator, o.deepspeed.lowest()),
    format!("{:?} {}", o.accelerator, o.deepspeed.0)
);

record! {
    /// What compiling an op costs, as it was measured once, by one compiler at a time, for the targets that the source names.
    pub struct OpCost {
        pub op: Str,
        pub deepspeed: Versions,
        /// Seconds of processor time for all its sources.
        pub seconds: u32,
        /// MiB of the largest compiler process.
        pub memory: u32,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(OpCost, (Str, semver::Version), |c| (c.op.clone(), c.deepspeed.lowest()), format!("{} {}", c.op, c.deepspeed.0));

record! {
    /// The files of a release's builders, so that a changed one is told.
    pub struct BuilderFiles {
        pub release: Number,
        /// `PATH=DIGEST`, the path in `op_builder`.
        pub files: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(BuilderFiles, semver::Version, |b| b.release.dotted().semver(), b.release.to_string());

tables! {
    /// What is known of DeepSpeed's ops.
    OpTables in "ops.toml" {
        op: Op,
        flags: FlagSet,
        build: OpBuild,
        gate: OpGate,
        part: OpPart,
        header: OpHeader,
        torch_header: OpTorchHeader,
        library: OpLibrary,
        broken_op: BrokenOp,
        order: OpOrder,
        cost: OpCost,
        builder_files: BuilderFiles,
    }
    whole: |t| {
        for row in t.op.iter() {
            let same = |op: &Str, accelerator| *op == row.op && accelerator == row.accelerator;
            super::one_at_most("op", t.op.iter().filter(|other| same(&other.op, other.accelerator)).map(|other| &other.deepspeed))?;
            super::one_at_most("gate", t.gate.iter().filter(|other| same(&other.op, other.accelerator)).map(|other| &other.deepspeed))?;
            // Each release of the op must have its build, where the row begins and ends and wherever the builds change.
            let builds: Vec<&Versions> = t.build.iter().filter(|other| same(&other.op, other.accelerator)).map(|other| &other.deepspeed).collect();
            let edges = builds.iter().copied().chain([&row.deepspeed]).flat_map(|range| range.edges());
            let within: Vec<semver::Version> = edges.filter(|version| row.deepspeed.contain(version)).collect();
            super::one_each("build", builds.into_iter(), &within).map_err(|fault| Fault::new("build", format!("of `{}` {}", row.op, fault.why)))?;
        }
        for row in t.build.iter() {
            for set in [&row.cxx, &row.nvcc].into_iter().flatten() {
                let sets = t.flags.iter().filter(|flags| flags.set == *set).map(|flags| &flags.deepspeed);
                let within: Vec<semver::Version> = row.deepspeed.edges().into_iter().filter(|version| row.deepspeed.contain(version)).collect();
                super::one_each("flags", sets, &within).map_err(|fault| Fault::new("flags", format!("`{set}` {}", fault.why)))?;
            }
            let torch = |header: &Str| ["torch/", "ATen/", "c10/"].iter().any(|folder| header.starts_with(folder));
            if let Some(header) = row.headers.iter().find(|header| !torch(header) && !t.header.iter().any(|known| known.header == **header)) {
                return Err(Fault::new("header", format!("has no row for `{header}`")));
            }
            let mut libraries = row.link.iter().chain(row.jit_link.iter().flat_map(|flags| flags.iter())).filter_map(|flag| flag.strip_prefix("-l"));
            if let Some(library) = libraries.find(|library| !t.library.iter().any(|known| known.library == *library)) {
                return Err(Fault::new("library", format!("has no row for `{library}`")));
            }
        }
        let mut needed = t.torch_header.iter().flat_map(|row| row.needs.iter().chain(row.cuda_needs.iter()));
        if let Some(header) = needed.find(|header| !t.header.iter().any(|known| known.header == **header)) {
            return Err(Fault::new("header", format!("has no row for `{header}`")));
        }
        let named = t.header.iter().map(|row| &row.part).chain(t.library.iter().map(|row| &row.part));
        if let Some(part) = named.into_iter().find(|part| !t.part.iter().any(|known| known.part == **part)) {
            return Err(Fault::new("part", format!("has no row for `{part}`")));
        }
        let named = t.build.iter().map(|row| &row.op).chain(t.gate.iter().map(|row| &row.op)).chain(t.broken_op.iter().map(|row| &row.op));
        match named.into_iter().find(|op| !t.op.iter().any(|known| known.op == **op)) {
            Some(op) => Err(Fault::new("op", format!("has no row for `{op}`"))),
            None => Ok(()),
        }
    }
}
