//! The tables of `environment.toml` and `packages.toml`.

use super::{Fault, List, Number, Str, Versions};

choice! {
    /// Who reads an environment variable.
    pub enum Reader {
        /// torch's build helper.
        Torch,
        #[serde(rename = "deepspeed")]
        DeepSpeed,
        Nvcc,
        /// gcc, clang and the linker they run.
        Compiler,
        /// The dynamic loader.
        Loader,
        /// The CUDA driver and runtime.
        Cuda,
        /// distutils and setuptools.
        Python,
        Pip,
        Cmake,
    }
}

record! {
    /// An environment variable that people set for builds, read by somebody or by nobody.
    pub struct Variable {
        pub name: Str,
        /// Empty: by none of the programs of a build.
        pub read_by: List<Reader>,
        /// The releases of torch that read it; none: all.
        pub torch: Option<Versions>,
        /// The releases of DeepSpeed that read it; none: all.
        pub deepspeed: Option<Versions>,
        /// The variable that would do what people expect of this one.
        pub mistaken_for: Option<Str>,
        /// What it does, or who else reads it; a clause for a sentence.
        pub effect: Str,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Variable, Str, |v| v.name.clone(), v.name.to_string(), {
    match () {
        () if v.torch.is_some() && !v.read_by.contains(&Reader::Torch) => Err(Fault::new("torch", "is a range, but torch is no reader")),
        () if v.deepspeed.is_some() && !v.read_by.contains(&Reader::DeepSpeed) => {
            Err(Fault::new("deepspeed", "is a range, but deepspeed is no reader"))
        }
        () => Ok(()),
    }
});

tables! {
    /// What is known of environment variables.
    EnvironmentTables in "environment.toml" {
        variable: Variable,
    }
    whole: |t| {
        let target = |row: &&Variable| row.mistaken_for.as_ref().is_some_and(|name| !t.variable.iter().any(|other| other.name == *name));
        match t.variable.iter().find(target) {
            Some(row) => Err(Fault::new("variable", format!("says that `{}` is mistaken for a name that has no row", row.name))),
            None => Ok(()),
        }
    }
}

choice! {
    /// Who installs packages.
    pub enum Family {
        Debian,
        Fedora,
        Rhel,
        Suse,
        Arch,
        Alpine,
        Conda,
        Pip,
    }
}

record! {
    /// A distribution, by the `ID` of its os-release.
    pub struct Distribution {
        pub id: Str,
        pub family: Family,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Distribution, Str, |d| d.id.clone(), d.id.to_string());

choice! {
    /// What a build can lack.
    pub enum Need {
        /// A C++ compiler.
        Gxx,
        /// A C++ compiler of one gcc major.
        GxxVersion,
        PythonHeaders,
        Ninja,
        /// A CUDA toolkit of one release.
        Toolkit,
        /// libaio with its header.
        Libaio,
        /// `nccl.h`.
        NcclHeaders,
        Setuptools,
    }
}

record! {
    /// The command that installs a thing.
    pub struct Package {
        pub family: Family,
        pub need: Need,
        /// Without `sudo`. `{gcc}` stands for the gcc major, `{python}` for 3.12, `{python-digits}` for 312, `{cuda}` for 12.4, `{cuda-dash}` for 12-4.
        pub command: Str,
        /// The program that is there afterwards, where its place is not the usual one.
        pub program: Option<Str>,
        /// What must be so first; a clause for a sentence.
        pub condition: Option<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

/// What can stand in braces in a command.
pub const PLACEHOLDERS: &[&str] = &["gcc", "python", "python-digits", "cuda", "cuda-dash"];

row!(Package, (Family, Need), |p| (p.family, p.need), format!("{:?} {:?}", p.family, p.need), {
    let unknown = |text: &str| {
        let mut names = text.split('{').skip(1).map(|rest| rest.split('}').next().unwrap_or_default().to_owned());
        names.find(|name| !PLACEHOLDERS.contains(&name.as_str()))
    };
    match (unknown(&p.command), p.program.as_deref().and_then(unknown)) {
        (Some(name), _) => Err(Fault::new("command", format!("has `{{{name}}}`, which stands for nothing"))),
        (None, Some(name)) => Err(Fault::new("program", format!("has `{{{name}}}`, which stands for nothing"))),
        (None, None) => Ok(()),
    }
});

record! {
    /// The gcc majors that a release of a distribution offers as packages beside its own.
    pub struct GccOffer {
        /// The `ID` of its os-release.
        pub distribution: Str,
        /// The `VERSION_ID`, or its first number for distributions with minor releases.
        pub release: Number,
        pub gcc: List<u32>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(
    GccOffer,
    (Str, crate::version::Dotted),
    |g| (g.distribution.clone(), g.release.dotted()),
    format!("{} {}", g.distribution, g.release),
    if g.gcc.windows(2).all(|pair| matches!(pair, [a, b] if a < b)) { Ok(()) } else { Err(Fault::new("gcc", "is not in ascending order")) }
);

tables! {
    /// What is known of packages.
    PackageTables in "packages.toml" {
        distribution: Distribution,
        package: Package,
        gcc_offer: GccOffer,
    }
    whole: |t| {
        match t.gcc_offer.iter().find(|row| !t.distribution.iter().any(|d| d.id == row.distribution)) {
            Some(row) => Err(Fault::new("gcc_offer", format!("names `{}`, which is no distribution", row.distribution))),
            None => Ok(()),
        }
    }
}
