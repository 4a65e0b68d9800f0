//! What is known beforehand of CUDA, GPUs, torch, DeepSpeed and systems: the tables of `rules/`, and the questions they answer.
//!
//! The machine is asked first; the tables are the fallback, and what no table knows is answered with `None`, never with a guess.

/// A row: a struct that reads from TOML and refuses unknown keys. The build script has its own form, which writes rows out too.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }
    };
}

/// A choice of names, written in the tables in kebab case.
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
    };
}

pub mod cuda;
pub mod deepspeed;
mod embedded;
pub mod gpu;
pub mod host;
mod near;
pub mod ops;
pub mod problems;
pub mod schema;
pub mod torch;

pub use schema::RulesError;
use schema::cuda::CudaTables;
use schema::deepspeed::DeepSpeedTables;
use schema::gpus::GpuTables;
use schema::host::{EnvironmentTables, PackageTables};
use schema::languages::LanguageTables;
use schema::ops::OpTables;
use schema::signatures::SignatureTables;
use schema::torch::TorchTables;
use schema::{Dated, Fault, Tables};

/// All tables, embedded or with the rows of a `--rules-dir` over them.
///
/// The embedded tables are constants of the program: making a `Knowledge` of them reads and allocates nothing.
#[derive(Debug, Clone)]
pub struct Knowledge {
    pub cuda: CudaTables,
    pub gpus: GpuTables,
    pub torch: TorchTables,
    pub deepspeed: DeepSpeedTables,
    pub ops: OpTables,
    pub environment: EnvironmentTables,
    pub packages: PackageTables,
    pub languages: LanguageTables,
    /// All files of `rules/signatures` in one; `signatures.toml` in a `--rules-dir`.
    pub signatures: SignatureTables,
}

impl Knowledge {
    /// The tables that the program was built with.
    pub fn embedded() -> Self {
        Self {
            cuda: embedded::cuda(),
            gpus: embedded::gpus(),
            torch: embedded::torch(),
            deepspeed: embedded::deepspeed(),
            ops: embedded::ops(),
            environment: embedded::environment(),
            packages: embedded::packages(),
            languages: embedded::languages(),
            signatures: embedded::signatures(),
        }
    }

    /// The embedded tables with the rows of `files` (name and text of each) over them: a row with the key of an embedded one replaces it.
    ///
    /// # Errors
    /// The first thing wrong in the first file that has something wrong: its name, line, row and key; or a file that is no table.
    pub fn with_rules<'a>(files: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self, RulesError> {
        let mut all = Self::embedded();
        for (name, text) in files {
            match name.rsplit(['/', '\\']).next().unwrap_or(name) {
                CudaTables::FILE => lay_over(&mut all.cuda, name, text)?,
                GpuTables::FILE => lay_over(&mut all.gpus, name, text)?,
                TorchTables::FILE => lay_over(&mut all.torch, name, text)?,
                DeepSpeedTables::FILE => lay_over(&mut all.deepspeed, name, text)?,
                OpTables::FILE => lay_over(&mut all.ops, name, text)?,
                EnvironmentTables::FILE => lay_over(&mut all.environment, name, text)?,
                PackageTables::FILE => lay_over(&mut all.packages, name, text)?,
                LanguageTables::FILE => lay_over(&mut all.languages, name, text)?,
                SignatureTables::FILE => lay_over(&mut all.signatures, name, text)?,
                _ => {
                    let why = format!("no table has this name; there are {}", Self::FILES.join(", "));
                    return Err(RulesError { file: name.to_owned(), line: None, row: None, key: None, why });
                }
            }
        }
        Ok(all)
    }

    /// A problem by its id or one of its other names.
    pub fn problem(&self, name: &str) -> Option<&'static problems::Problem> {
        problems::PROBLEMS.iter().find(|problem| problem.id == name || problem.aliases.contains(&name))
    }

    /// All problems, in the order in which they are listed.
    pub fn problems(&self) -> &'static [problems::Problem] {
        problems::PROBLEMS
    }

    /// The names that a file of a `--rules-dir` can have.
    pub const FILES: &'static [&'static str] = &[
        CudaTables::FILE,
        DeepSpeedTables::FILE,
        EnvironmentTables::FILE,
        GpuTables::FILE,
        LanguageTables::FILE,
        OpTables::FILE,
        PackageTables::FILE,
        SignatureTables::FILE,
        TorchTables::FILE,
    ];

    /// The month in which the newest row was checked: `2026-11`.
    pub fn date(&self) -> &str {
        let tables: [&dyn Dated; 9] = [
            &self.cuda,
            &self.gpus,
            &self.torch,
            &self.deepspeed,
            &self.ops,
            &self.environment,
            &self.packages,
            &self.languages,
            &self.signatures,
        ];
        tables.into_iter().filter_map(Dated::date).max().unwrap_or_default()
    }
}

/// A row that holds for a range of versions.
#[derive(Debug)]
pub struct Ranged<'a, R> {
    pub row: &'a R,
    /// Whether the tables were made with this version in sight. If not, the row is that of the newest version known, a forecast.
    pub known: bool,
}

impl<R> std::ops::Deref for Ranged<'_, R> {
    type Target = R;
    fn deref(&self) -> &R {
        self.row
    }
}

fn lay_over<T: Tables>(tables: &mut T, name: &str, text: &str) -> Result<(), RulesError> {
    tables.overlay(T::parse(name, text)?);
    tables.whole().map_err(|Fault { key, why }| RulesError { file: name.to_owned(), line: None, row: None, key: Some(key.to_owned()), why })
}
