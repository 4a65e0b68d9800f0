//! What a row of each table in `rules/` holds, and the reading and judging of a table's text.
//!
//! Two programs compile this module: build.rs, which judges and embeds the tables, and the library, which reads the tables of a
//! `--rules-dir`. So both accept the same. Each brings its own `record!` and `choice!`: those of the build script can also write a value
//! out as Rust source.

mod error;
mod value;

pub use error::{Fault, RulesError};
pub use value::{List, Number, PciDevice, Str, Versions};

/// A row of a table.
pub trait Row: Sized + Clone + 'static {
    /// What makes a row unique. Rows stand in ascending order of it, so that a reader finds one and a diff stays small.
    type Key: Ord;
    fn key(&self) -> Self::Key;
    /// How an error names the row.
    fn label(&self) -> String;
    /// Where the row comes from, and when that was looked at (`2026-11`).
    fn provenance(&mut self) -> (&mut Str, &mut Str);
    /// What the types alone do not say.
    fn check(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// The tables of one file.
pub trait Tables: Sized {
    /// The file's name in `rules/`.
    const FILE: &'static str;

    /// Reads and judges each row of a text.
    ///
    /// # Errors
    /// What does not parse, an unknown key, a row without source, a row twice or out of order; with file, line and key.
    fn parse(file: &str, text: &str) -> Result<Self, RulesError>;

    /// Adds the rows of `other`; one with the key of a row that is there replaces it.
    fn overlay(&mut self, other: Self);

    /// Judges what no single row shows: that tables cover what they must, and fit each other.
    ///
    /// # Errors
    /// Which table, and what it lacks.
    fn whole(&self) -> Result<(), Fault> {
        Ok(())
    }
}

/// Tables that know when they were last checked.
pub trait Dated {
    /// The newest month of all rows.
    fn date(&self) -> Option<&str>;
}

/// Implements [`Row`]: the key, the name for errors, and what else is to be checked.
macro_rules! row {
    ($row:ty, $key_type:ty, |$r:ident| $key:expr, $label:expr $(, $check:expr)?) => {
        impl super::Row for $row {
            type Key = $key_type;
            fn key(&self) -> $key_type {
                let $r = self;
                $key
            }
            fn label(&self) -> String {
                let $r = self;
                $label
            }
            fn provenance(&mut self) -> (&mut super::Str, &mut super::Str) {
                (&mut self.source, &mut self.checked)
            }
            $(fn check(&self) -> Result<(), super::Fault> {
                let $r = self;
                $check
            })?
        }
    };
}

/// Defines the tables of one file and how they are read.
macro_rules! tables {
    ($(#[$meta:meta])* $name:ident in $file:literal { $($(#[$field_meta:meta])* $table:ident: $row:ty,)* } $(whole: |$t:ident| $whole:expr)?) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        pub struct $name {
            $($(#[$field_meta])* pub $table: super::List<$row>,)*
        }

        impl super::Dated for $name {
            fn date(&self) -> Option<&str> {
                let newest = [$(self.$table.iter().map(|row| row.checked.as_ref()).max()),*];
                newest.into_iter().flatten().max()
            }
        }

        impl super::Tables for $name {
            const FILE: &'static str = $file;

            fn parse(file: &str, text: &str) -> Result<Self, super::RulesError> {
                use super::load;
                #[derive(serde::Deserialize)]
                #[serde(deny_unknown_fields)]
                struct File {
                    #[serde(default)]
                    meta: load::Meta,
                    $(#[serde(default = "Vec::new")] $table: Vec<toml::Spanned<$row>>,)*
                }
                let parsed: File = load::read(file, text)?;
                let page = load::Page { file, text, meta: &parsed.meta };
                page.check_meta()?;
                Ok(Self { $($table: page.settle(stringify!($table), parsed.$table)?,)* })
            }

            fn overlay(&mut self, other: Self) {
                $(super::load::overlay(&mut self.$table, other.$table);)*
            }

            $(fn whole(&self) -> Result<(), super::Fault> {
                let $t = self;
                $whole
            })?
        }

    };
}

pub mod cuda;
pub mod deepspeed;
pub mod gpus;
pub mod host;
pub mod languages;
pub mod load;
pub mod ops;
pub mod shape;
pub mod signatures;
pub mod torch;
pub mod words;

/// Refuses ranges of which two hold one version. Judged where a range begins or ends, and beside.
fn one_at_most<'a>(table: &'static str, ranges: impl Iterator<Item = &'a Versions>) -> Result<(), Fault> {
    let ranges: Vec<&Versions> = ranges.collect();
    for version in ranges.iter().flat_map(|range| range.edges()) {
        let holding: Vec<&str> = ranges.iter().filter(|range| range.contain(&version)).map(|range| range.0.as_ref()).collect();
        if let [a, b, ..] = holding.as_slice() {
            return Err(Fault::new(table, format!("has two rows for {version}: `{a}` and `{b}`")));
        }
    }
    Ok(())
}

/// As [`one_at_most`], and each of `versions` must be in one.
fn one_each<'a>(table: &'static str, ranges: impl Iterator<Item = &'a Versions>, versions: &[semver::Version]) -> Result<(), Fault> {
    let ranges: Vec<&Versions> = ranges.collect();
    one_at_most(table, ranges.iter().copied())?;
    match versions.iter().find(|version| !ranges.iter().any(|range| range.contain(version))) {
        Some(version) => Err(Fault::new(table, format!("has no row for {version}"))),
        None => Ok(()),
    }
}
