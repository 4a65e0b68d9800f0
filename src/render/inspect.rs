//! Files that were looked into, as lines for people, lines for scripts, and values for programs.

use crate::facts::device_code::{DeviceCode, Kind};
use crate::facts::elf::ElfFacts;
use crate::facts::inspect::{Binary, Wheel};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use crate::text::{bytes, clean, count};
use serde::Serialize;
use serde_json::{Value, json};

/// One file, with what the models say of it in words.
#[derive(Debug)]
pub struct View<'a> {
    pub binary: &'a Binary,
    pub runs: Vec<Runs>,
    /// In the loader's order; empty where it was not judged.
    pub libraries: Vec<Library>,
    /// Where it was judged: `alone`, `python`, `after-torch`; else why not.
    pub judged: Result<&'static str, String>,
    /// Symbols that nothing in the process has.
    pub undefined: Observed<Vec<String>>,
    /// How many symbols it wants of torch, and the ABI that they show.
    pub torch_symbols: usize,
    pub cxx11_abi: Option<bool>,
}

#[derive(Debug, Clone, Serialize)]
pub struct Runs {
    pub gpu: String,
    pub capability: String,
    pub runs: bool,
    /// The target that serves, or why none does.
    pub by: String,
}

#[derive(Debug, Clone, Serialize)]
pub struct Library {
    pub name: String,
    /// `found`, `missing`, `refused`, `unknown`
    pub answer: &'static str,
    pub path: Option<HostPath>,
    /// How it is found, or why not.
    pub how: String,
    /// The file that needs it, where that is not the file itself.
    pub by: Option<HostPath>,
}

fn line(label: &str, text: &str) -> String {
    format!("  {label:<13}  {}", clean(text))
}

/// A file in full.
pub fn lines(view: &View<'_>, verbose: bool) -> Vec<String> {
    let binary = view.binary;
    let mut lines = vec![head(binary)];
    lines.extend(code_lines(&binary.device_code, binary));
    lines.extend(runs_lines(&view.runs));
    match &binary.elf {
        Observed::Seen { value } => lines.extend(elf_lines(view, value, verbose)),
        Observed::Failed { why } => lines.push(line("cannot read", why)),
        _ => {}
    }
    lines
}

/// The first line: name, size, form.
fn head(binary: &Binary) -> String {
    let mut words = vec![bytes(binary.size), binary.form.to_string()];
    if let Some(elf) = binary.elf.value() {
        words.push(elf.machine.to_string());
    }
    if binary.stripped == Some(true) {
        words.push("stripped".to_owned());
    }
    format!("{}  {}", clean(&binary.name()), words.join(", "))
}

fn code_lines(code: &Observed<DeviceCode>, binary: &Binary) -> Vec<String> {
    match code {
        Observed::Seen { value } => {
            let mut lines = vec![line("device code", &format!("{}  {}", listed(value), amounts(value)))];
            let partial: Vec<String> = value
                .partial()
                .filter(|(_, held)| held.containers > 0)
                .map(|(target, held)| format!("{target} in {} of {}", held.containers, value.containers_for(target.kind)))
                .collect();
            if !partial.is_empty() {
                lines.push(line("only partly", &partial.join(", ")));
            }
            lines
        }
        Observed::Failed { why } if binary.elf.value().is_some() => vec![line("device code", &format!("cannot be read: {why}"))],
        Observed::Failed { .. } | Observed::Skipped { .. } => Vec::new(),
        Observed::Absent { .. } => vec![line("device code", "none")],
    }
}

/// `sm_80 sm_90 compute_90 (PTX ISA 8.4)`
pub fn listed(code: &DeviceCode) -> String {
    let words: Vec<String> = code
        .listed()
        .map(|(target, held)| match held.isa.filter(|_| target.kind == Kind::Ptx) {
            Some(isa) => format!("{target} (PTX ISA {isa})"),
            None => target.to_string(),
        })
        .collect();
    if words.is_empty() { "no target in every container".to_owned() } else { words.join(" ") }
}

fn amounts(code: &DeviceCode) -> String {
    let number = |number: u64, noun| count(usize::try_from(number).unwrap_or(usize::MAX), noun);
    let mut parts =
        vec![number(code.containers(), "container"), format!("{} {}", code.entries, if code.entries == 1 { "entry" } else { "entries" })];
    parts.push(if code.unpacked > code.stored {
        format!("{} ({} unpacked)", bytes(code.stored), bytes(code.unpacked))
    } else {
        bytes(code.stored)
    });
    if code.relocatable > 0 {
        parts.push(format!("{} relocatable", code.relocatable));
    }
    parts.join(", ")
}

fn runs_lines(runs: &[Runs]) -> Vec<String> {
    let named = |wanted: bool| {
        let all: Vec<String> = runs
            .iter()
            .filter(|one| one.runs == wanted)
            .map(|one| {
                let name = if one.gpu == one.capability { one.gpu.clone() } else { format!("{} ({})", one.gpu, one.capability) };
                if one.by.is_empty() {
                    name
                } else if wanted {
                    format!("{name} by {}", one.by)
                } else {
                    format!("{name}: {}", one.by)
                }
            })
            .collect();
        all.join(", ")
    };
    [("runs on", named(true)), ("not on", named(false))]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(label, text)| line(label, &text))
        .collect()
}

fn elf_lines(view: &View<'_>, elf: &ElfFacts, verbose: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let versions = versions(elf);
    if !versions.is_empty() {
        lines.push(line("needs", &versions.join(", ")));
    }
    if let Some(soname) = &elf.soname {
        lines.push(line("SONAME", soname));
    }
    for (label, path) in [("RPATH", &elf.rpath), ("RUNPATH", &elf.runpath)] {
        if let Some(path) = path {
            lines.push(line(label, &path.join(":")));
        }
    }
    if view.torch_symbols > 0 {
        let abi = match view.cxx11_abi {
            Some(true) => ", C++11 ABI",
            Some(false) => ", older C++ ABI",
            None => "",
        };
        lines.push(line("torch", &format!("{}{abi}", count(view.torch_symbols, "symbol"))));
    }
    if let Some(tag) = &view.binary.python {
        lines.push(line("Python", tag));
    }
    lines.extend(library_lines(view, elf, verbose));
    lines
}

fn library_lines(view: &View<'_>, elf: &ElfFacts, verbose: bool) -> Vec<String> {
    if !view.binary.is_loaded() {
        return Vec::new();
    }
    let within = match &view.judged {
        Err(why) => return vec![line("libraries", &elf.needed.join(" ")), line("loads here", &format!("not judged: {why}"))],
        Ok("after-torch") => " after `import torch`",
        Ok("python") => " in this Python",
        Ok(_) => "",
    };
    let mut lines = Vec::new();
    let found = view.libraries.iter().filter(|library| library.answer == "found").count();
    if !verbose && found > 0 {
        lines.push(line("libraries", &format!("{found} found, directly or by way of others")));
    }
    for library in view.libraries.iter().filter(|library| verbose || library.answer != "found") {
        let by = library.by.as_ref().map(|by| format!(" (for {by})")).unwrap_or_default();
        let text = match (&library.path, library.answer) {
            (Some(path), "found") => format!("{} => {path}  {}{by}", library.name, library.how),
            (_, answer) => format!("{} => {answer}: {}{by}", library.name, library.how),
        };
        lines.push(line(if lines.is_empty() { "libraries" } else { "" }, &text));
    }
    let missing = view.libraries.iter().find(|library| matches!(library.answer, "missing" | "refused"));
    let unknown = view.libraries.iter().filter(|library| library.answer == "unknown").count();
    let verdict = match (missing, &view.undefined) {
        (None, _) if unknown > 0 => format!("not known{within}: the facts do not tell where {} come from", count(unknown, "needed file")),
        (Some(first), _) => format!("no{within}: `{}` is {}", first.name, first.answer),
        (None, Observed::Seen { value }) if value.is_empty() => format!("yes{within}: every library and every symbol is there"),
        (None, Observed::Seen { value }) => format!("every library is there{within}; {} in none of them", count(value.len(), "symbol")),
        (None, Observed::Failed { why }) => format!("every library is there{within}; symbols not judged: {why}"),
        (None, _) => format!("every library is there{within}"),
    };
    lines.push(line("loads here", &verdict));
    lines
}

/// `GLIBC 2.17`, `GLIBCXX 3.4.26`
fn versions(elf: &ElfFacts) -> Vec<String> {
    ["GLIBC", "GLIBCXX", "CXXABI"].iter().filter_map(|family| Some(format!("{family} {}", elf.highest_need(family)?))).collect()
}

/// A wheel's own lines; its files follow.
pub fn wheel_lines(wheel: &Wheel) -> Vec<String> {
    let name = wheel.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut lines = vec![format!(
        "{}  {}, {} ({} unpacked), {}",
        clean(&name),
        bytes(wheel.size),
        count(wheel.files, "file"),
        bytes(wheel.unpacked),
        count(wheel.binaries.len(), "binary file")
    )];
    match &wheel.metadata {
        Observed::Seen { value } => lines.push(line("package", &format!("{} {}", value.name, value.version))),
        Observed::Failed { why } => lines.push(line("package", why)),
        _ => lines.push(line("package", "no METADATA: not a wheel")),
    }
    let tags = if wheel.tags.is_empty() {
        wheel
            .name
            .as_ref()
            .map(|name| format!("{}-{}-{}", name.python.join("."), name.abi.join("."), name.platform.join(".")))
            .unwrap_or_default()
    } else {
        wheel.tags.join(", ")
    };
    if !tags.is_empty() {
        lines.push(line("tags", &tags));
    }
    if let Some(built) = wheel.built.value() {
        let ops: Vec<&str> = built.ops.iter().filter(|(_, built)| **built).map(|(name, _)| name.as_str()).collect();
        let ops = if ops.is_empty() { "none".to_owned() } else { ops.join(" ") };
        let of = |what: &str, version: &Option<String>| version.as_ref().map(|version| format!(", {what} {version}")).unwrap_or_default();
        lines.push(line("DeepSpeed ops", &format!("{ops}{}{}", of("torch", &built.torch), of("CUDA", &built.cuda))));
    }
    if let Some(record) = wheel.record.value() {
        for (names, what) in [(&record.missing, "named in RECORD and not there"), (&record.unlisted, "there and not named in RECORD")] {
            if let Some(first) = names.first() {
                let more = if names.len() > 1 { format!(" and {} more", names.len() - 1) } else { String::new() };
                lines.push(line("RECORD", &format!("`{first}`{more}: {what}")));
            }
        }
    }
    lines
}

/// Of many files: the device code of all together.
pub fn sum_line(files: usize, code: &DeviceCode) -> String {
    line("in sum", &format!("{} with device code: {}  {}", count(files, "file"), listed(code), amounts(code)))
}

/// One of many files, for people: the columns of [`list_line`] that say something.
pub fn short_line(binary: &Binary, below: &str) -> String {
    let line = list_line(binary);
    let mut cells = line.split('\t');
    let name = cells.next().unwrap_or_default();
    let name = name.strip_prefix(below).map_or(name, |rest| rest.trim_start_matches('/'));
    let (listed, partial) = (cells.nth(1).unwrap_or_default(), cells.next().unwrap_or_default());
    let code = match (listed, partial) {
        ("-", "-") => "cannot be read".to_owned(),
        ("-", partial) => format!("only partly: {partial}"),
        (listed, "-") => listed.to_owned(),
        (listed, partial) => format!("{listed}; partly: {partial}"),
    };
    format!("  {name}  {code}")
}

/// One line for scripts: name, form, listed targets, partial ones as `target:containers/of`, highest GLIBC; `-` where there is nothing.
pub fn list_line(binary: &Binary) -> String {
    let or_none = |words: Vec<String>| if words.is_empty() { "-".to_owned() } else { words.join(" ") };
    let code = binary.device_code.value();
    let listed = code.map(|code| code.listed().map(|(target, _)| target.to_string()).collect()).unwrap_or_default();
    let partial = code.map(|code| {
        let one = |(target, held): (crate::facts::device_code::CodeTarget, &crate::facts::device_code::TargetUse)| {
            format!("{target}:{}/{}", held.containers, code.containers_for(target.kind))
        };
        code.partial().map(one).collect()
    });
    let glibc = binary.elf.value().and_then(|elf| elf.highest_need("GLIBC")).map_or("-".to_owned(), |version| version.to_string());
    let name = match &binary.member {
        Some(member) => format!("{}/{member}", binary.path),
        None => binary.path.to_string(),
    };
    let cells = [name, binary.form.to_string().replace(' ', "-"), or_none(listed), or_none(partial.unwrap_or_default()), glibc];
    cells.iter().map(|cell| clean(cell).into_owned()).collect::<Vec<_>>().join("\t")
}

/// Versioned with the envelope.
pub fn json_file(view: &View<'_>) -> Value {
    let binary = view.binary;
    let elf = binary.elf.value();
    let highest = |family: &str| elf.and_then(|elf| elf.highest_need(family)).map(|version| version.to_string());
    let undefined = view.undefined.value();
    json!({
        "path": binary.path,
        "member": binary.member,
        "size": binary.size,
        "form": binary.form,
        "machine": elf.map(|elf| elf.machine),
        "stripped": binary.stripped,
        "unreadable": failure(&binary.elf),
        "device_code": json_code(&binary.device_code),
        "runs_on": view.runs,
        "soname": elf.and_then(|elf| elf.soname.clone()),
        "needed": elf.map(|elf| elf.needed.clone()),
        "rpath": elf.and_then(|elf| elf.rpath.clone()),
        "runpath": elf.and_then(|elf| elf.runpath.clone()),
        "versions": { "GLIBC": highest("GLIBC"), "GLIBCXX": highest("GLIBCXX"), "CXXABI": highest("CXXABI") },
        "python": binary.python,
        "python_module": binary.module,
        "torch_symbols": view.torch_symbols,
        "cxx11_abi": view.cxx11_abi,
        "load": {
            "judged": view.judged.is_ok(),
            "within": view.judged.as_ref().ok(),
            "why_not": view.judged.as_ref().err(),
            "libraries": view.libraries,
            "undefined": undefined,
        },
    })
}

fn failure<T>(observed: &Observed<T>) -> Option<&str> {
    match observed {
        Observed::Failed { why } => Some(why),
        _ => None,
    }
}

fn json_code(code: &Observed<DeviceCode>) -> Value {
    let Some(code) = code.value() else {
        return match failure(code) {
            Some(why) => json!({ "unreadable": why }),
            None => Value::Null,
        };
    };
    let targets: Vec<Value> = code
        .targets
        .iter()
        .map(|(target, held)| {
            json!({
                "target": target.to_string(),
                "listed": code.is_listed(*target),
                "containers": held.containers,
                "of": code.containers_for(target.kind),
                "entries": held.entries,
                "stored": held.stored,
                "unpacked": held.unpacked,
                "ptx_isa": held.isa.map(|isa| isa.to_string()),
            })
        })
        .collect();
    json!({
        "arch_list": code.listed().map(|(target, _)| target.to_string()).collect::<Vec<_>>(),
        "targets": targets,
        "containers": code.containers(),
        "entries": code.entries,
        "compressed": code.compressed,
        "relocatable": code.relocatable,
        "stored": code.stored,
        "unpacked": code.unpacked,
    })
}

pub fn json_wheel(wheel: &Wheel) -> Value {
    let built = wheel.built.value();
    json!({
        "path": wheel.path,
        "size": wheel.size,
        "files": wheel.files,
        "unpacked": wheel.unpacked,
        "package": wheel.metadata.value().map(|metadata| metadata.name.clone()),
        "version": wheel.metadata.value().map(|metadata| metadata.version.clone()),
        "requires": wheel.metadata.value().map(|metadata| metadata.requires.clone()),
        "tags": wheel.tags,
        "glibc": wheel.name.as_ref().and_then(|name| name.glibc()).map(|version| version.to_string()),
        "record": wheel.record.value(),
        "deepspeed": built.map(|built| json!({ "ops": built.ops, "torch": built.torch, "cuda": built.cuda, "accelerator": built.accelerator })),
    })
}
