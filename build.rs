//! Judges the knowledge tables in `rules/` and writes them out as Rust constants, so that the program parses no TOML when it starts.

#![allow(clippy::disallowed_methods, reason = "a build script reads and writes files")]
#![allow(dead_code, reason = "the modules below are written for the library; the build needs a part of them")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::{env, fs};

#[path = "src/version.rs"]
mod version;

/// As in the library, plus [`Emit`].
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)* }) => {
        #[derive(Debug, Clone, PartialEq, Eq, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        impl crate::Emit for $name {
            fn type_name() -> String {
                stringify!($name).to_owned()
            }
            fn emit(&self, out: &mut crate::Source) -> String {
                let fields = [$((stringify!($field), self.$field.emit(out))),*];
                let fields: Vec<String> = fields.into_iter().map(|(name, value)| format!("{name}: {value}")).collect();
                format!("{} {{ {} }}", stringify!($name), fields.join(", "))
            }
        }
    };
}

/// As in the library, plus [`Emit`].
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$variant_meta:meta])* $variant:ident,)* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name { $($(#[$variant_meta])* $variant,)* }

        impl $name {
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];
        }

        impl crate::Emit for $name {
            fn type_name() -> String {
                stringify!($name).to_owned()
            }
            fn emit(&self, _: &mut crate::Source) -> String {
                format!("{}::{self:?}", stringify!($name))
            }
        }
    };
}

#[path = "src/knowledge/schema/mod.rs"]
mod schema;

use schema::{List, Number, PciDevice, Str, Tables, Versions};
use version::{Capability, CudaVersion, Suffix, Target};

/// A value that can be written as a Rust expression.
trait Emit {
    fn type_name() -> String;
    fn emit(&self, out: &mut Source) -> String;
}

/// The source being written. A list becomes a `static` of its own, since only that lives as long as the program whatever it holds.
#[derive(Default)]
struct Source {
    statics: String,
    lists: usize,
}

macro_rules! emit {
    ($($type:ty => $name:literal, |$value:ident| $expression:expr;)*) => {$(
        impl Emit for $type {
            fn type_name() -> String {
                $name.to_owned()
            }
            fn emit(&self, _: &mut Source) -> String {
                let $value = self;
                $expression
            }
        }
    )*};
}

emit! {
    u32 => "u32", |n| n.to_string();
    bool => "bool", |b| b.to_string();
    Str => "Str", |s| format!("Cow::Borrowed({s:?})");
    Versions => "Versions", |v| format!("Versions(Cow::Borrowed({:?}))", v.0);
    Number => "Number", |n| format!("Number(Cow::Borrowed({:?}))", n.0);
    PciDevice => "PciDevice", |p| format!("PciDevice({:#06x})", p.0);
    CudaVersion => "CudaVersion", |c| format!("CudaVersion::new({}, {})", c.major, c.minor);
    Capability => "Capability", |c| format!("Capability::new({}, {})", c.major, c.minor);
    Target => "Target", |t| {
        let suffix = match t.suffix {
            None => "None",
            Some(Suffix::Specific) => "Some(Suffix::Specific)",
            Some(Suffix::Family) => "Some(Suffix::Family)",
        };
        format!("Target {{ capability: Capability::new({}, {}), suffix: {suffix} }}", t.capability.major, t.capability.minor)
    };
}

impl<T: Emit> Emit for Option<T> {
    fn type_name() -> String {
        format!("Option<{}>", T::type_name())
    }
    fn emit(&self, out: &mut Source) -> String {
        match self {
            Some(value) => format!("Some({})", value.emit(out)),
            None => "None".to_owned(),
        }
    }
}

impl<T: Emit + Clone + 'static> Emit for List<T> {
    fn type_name() -> String {
        format!("List<{}>", T::type_name())
    }
    fn emit(&self, out: &mut Source) -> String {
        let items: Vec<String> = self.iter().map(|item| item.emit(out)).collect();
        out.lists += 1;
        let name = format!("L{}", out.lists);
        // Writing into a String cannot fail.
        let _ = writeln!(out.statics, "static {name}: &[{}] = &[{}];", T::type_name(), items.join(", "));
        format!("Cow::Borrowed({name})")
    }
}

fn read<T: Tables>() -> Result<T, String> {
    let path = Path::new("rules").join(T::FILE);
    println!("cargo::rerun-if-changed={}", path.display());
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let tables = T::parse(&path.to_string_lossy(), &text).map_err(|e| e.to_string())?;
    tables.whole().map_err(|fault| format!("{}: table `{}` {}", path.display(), fault.key, fault.why))?;
    Ok(tables)
}

/// Writes a function that gives the tables of one file.
macro_rules! write_tables {
    ($out:ident, $body:ident, $function:ident: $module:ident::$name:ident { $($table:ident),* }) => {{
        let tables: schema::$module::$name = read()?;
        let fields = [$((stringify!($table), tables.$table.len(), tables.$table.emit(&mut $out))),*];
        if let Some((table, ..)) = fields.iter().find(|(_, rows, _)| *rows == 0) {
            return Err(format!("rules/{}: table `{table}` is empty", <schema::$module::$name as Tables>::FILE));
        }
        let fields: Vec<String> = fields.into_iter().map(|(name, _, value)| format!("{name}: {value}")).collect();
        let (function, name) = (stringify!($function), stringify!($name));
        let _ = writeln!($body, "pub(super) fn {function}() -> {name} {{ {name} {{ {} }} }}", fields.join(", "));
    }};
}

fn write() -> Result<(), String> {
    let mut out = Source::default();
    let mut body = String::new();
    write_tables!(out, body, cuda: cuda::CudaTables { toolkit, nvcc_build, release, minor_compat, driver_branch, glibc_clash, nvcc_can, call_status });
    write_tables!(out, body, gpus: gpus::GpuTables { arch, runs_on, family, alias, ambiguous, virtual_gpu, pci_range, gpu });
    write_tables!(out, body, torch: torch::TorchTables { release, build, arch_values, arch_name, host_bound, headers, setuptools_limit, does });
    write_tables!(
        out,
        body,
        deepspeed: deepspeed::DeepSpeedTables { covered, cuda_row, default_archs, standard, accelerator, does }
    );
    write_tables!(out, body, ops: ops::OpTables { op, flags, build, gate, part, header, torch_header, library, broken_op, order, cost, builder_files });
    write_tables!(out, body, environment: host::EnvironmentTables { variable });
    write_tables!(out, body, packages: host::PackageTables { distribution, package, gcc_offer });
    write_languages(&mut out, &mut body)?;
    write_signatures(&mut out, &mut body)?;
    let folder = env::var_os("OUT_DIR").ok_or("cargo gave no OUT_DIR")?;
    fs::write(Path::new(&folder).join("tables.rs"), out.statics + &body).map_err(|e| e.to_string())
}

/// The phrases, with the words to look for.
fn write_languages(out: &mut Source, body: &mut String) -> Result<(), String> {
    let mut tables: schema::languages::LanguageTables = read()?;
    tables.phrase.to_mut().iter_mut().for_each(schema::languages::Phrase::find_words);
    let rows = tables.phrase.emit(out);
    let _ = writeln!(body, "pub(super) fn languages() -> LanguageTables {{ LanguageTables {{ phrase: {rows} }} }}");
    Ok(())
}

/// The signatures of all files as one table.
fn write_signatures(out: &mut Source, body: &mut String) -> Result<(), String> {
    use schema::signatures::SignatureTables;
    let mut all: Option<SignatureTables> = None;
    for path in files("rules/signatures")? {
        let file = path.display().to_string();
        let text = fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
        let tables = SignatureTables::parse(&file, &text).map_err(|e| e.to_string())?;
        match &mut all {
            None => all = Some(tables),
            Some(all) => {
                if let Some(twice) = tables.signature.iter().find(|new| all.signature.iter().any(|old| old.name == new.name)) {
                    return Err(format!("{file}: signature `{}` stands in two files", twice.name));
                }
                all.overlay(tables);
            }
        }
    }
    let mut all = all.ok_or("rules/signatures holds no file")?;
    all.whole().map_err(|fault| format!("rules/signatures: table `{}` {}", fault.key, fault.why))?;
    all.signature.to_mut().iter_mut().for_each(schema::signatures::Signature::find_words);
    let rows = all.signature.emit(out);
    let _ = writeln!(body, "pub(super) fn signatures() -> SignatureTables {{ SignatureTables {{ signature: {rows} }} }}");
    Ok(())
}

/// The files of a folder, in order.
fn files(folder: &str) -> Result<Vec<std::path::PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{folder}: {e}"))?;
    let mut paths: Vec<_> = entries.filter_map(Result::ok).map(|entry| entry.path()).filter(|path| path.is_file()).collect();
    paths.sort();
    Ok(paths)
}

/// The sources in kernels/ by name, for the trial build.
fn write_kernels() -> Result<(), String> {
    let root = env::current_dir().map_err(|e| e.to_string())?;
    let mut body = String::from("pub static KERNELS: &[(&str, &[u8])] = &[\n");
    for path in files("kernels")? {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let _ = writeln!(body, "({name:?}, include_bytes!({:?})),", root.join(&path).display().to_string());
    }
    body.push_str("];\n");
    let folder = env::var_os("OUT_DIR").ok_or("cargo gave no OUT_DIR")?;
    fs::write(Path::new(&folder).join("kernels.rs"), body).map_err(|e| e.to_string())
}

/// One row of rules/problems.toml. Rows stand in the order in which problems are listed, root causes first, not by id.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Problem {
    id: String,
    topic: String,
    severity: String,
    seen_in: Vec<String>,
    summary: String,
    aliases: Vec<String>,
}

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Problems {
    problem: Vec<Problem>,
}

/// The problem table and the page of each problem, embedded as they are.
fn write_problems() -> Result<(), String> {
    let file = "rules/problems.toml";
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let table: Problems = toml::from_str(&text).map_err(|e| format!("{file}: {e}"))?;
    let root = env::current_dir().map_err(|e| e.to_string())?;
    let mut names = std::collections::BTreeSet::new();
    let mut body = String::from("pub static PROBLEMS: &[Problem] = &[\n");
    for problem in &table.problem {
        let Problem { id, topic, severity, seen_in, summary, aliases } = problem;
        for name in aliases.iter().chain([id]) {
            if !names.insert(name.clone()) {
                return Err(format!("{file}: `{name}` names two problems"));
            }
        }
        if !["error", "warning", "info"].contains(&severity.as_str()) || summary.is_empty() || summary.ends_with('.') {
            return Err(format!("{file}: `{id}`: a severity, and a summary without full stop, are needed"));
        }
        let page = root.join("rules/explain").join(format!("{id}.md"));
        if !page.is_file() {
            return Err(format!("{file}: `{id}` has no page {}", page.display()));
        }
        let _ = writeln!(
            body,
            "Problem {{ id: {id:?}, topic: {topic:?}, severity: {severity:?}, seen_in: &{seen_in:?}, summary: {summary:?}, aliases: &{aliases:?}, page: include_str!({:?}) }},",
            page.display().to_string()
        );
    }
    body.push_str("];\n");
    for entry in fs::read_dir("rules/explain").map_err(|e| e.to_string())? {
        let path = entry.map_err(|e| e.to_string())?.path();
        let id = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        if !table.problem.iter().any(|problem| problem.id == id) {
            return Err(format!("{}: a page of no problem in {file}", path.display()));
        }
    }
    let folder = env::var_os("OUT_DIR").ok_or("cargo gave no OUT_DIR")?;
    fs::write(Path::new(&folder).join("problems.rs"), body).map_err(|e| e.to_string())
}

fn main() -> ExitCode {
    for path in ["build.rs", "src/version.rs", "src/knowledge/schema", "rules", "kernels"] {
        println!("cargo::rerun-if-changed={path}");
    }
    match write().and_then(|()| write_problems()).and_then(|()| write_kernels()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("cargo::error={why}");
            ExitCode::FAILURE
        }
    }
}
