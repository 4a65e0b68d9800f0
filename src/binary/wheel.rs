//! A wheel: what its texts say and what its binaries hold, each member read once, in the order of the archive.
//!
//! Memory: a member of [`WHOLE`] bytes or less is held while it is looked at; of a larger one [`sparse::MOST_KEPT`] bytes at most, and
//! the headers of its device code. Nothing is written to disk.

use super::elf::{Elf, ElfError};
use super::fatbin;
use super::inspect::{self, Depth, Magic, binary, observed, of_elf};
use super::read::ReadAt;
use super::sparse::Keeper;
use super::zip::{Member, Zip, ZipError, of_member};
use crate::facts::inspect::{Binary, Metadata, Record, Wheel, WheelName};
use crate::facts::observed::Observed;
use crate::facts::raw::HostPath;
use std::collections::BTreeSet;
use std::io::Read;

/// Members up to here are held whole.
const WHOLE: u64 = 32 << 20;
/// At a time of what streams by.
const CHUNK: usize = 256 << 10;
/// Texts of a wheel: torch's RECORD has 1.2 MB, its METADATA 30 KB.
const LONGEST_TEXT: u64 = 32 << 20;
/// Endings of members that are never looked into. What is not among them is known by its first bytes.
const TEXTS: [&str; 22] = [
    ".py", ".pyi", ".pyc", ".h", ".hpp", ".hh", ".cuh", ".cu", ".cpp", ".c", ".inc", ".txt", ".md", ".rst", ".json", ".yaml", ".yml",
    ".toml", ".cmake", ".html", ".js", ".png",
];
/// Of what RECORD and the members disagree about, so many names are kept.
const MOST_NAMES: usize = 20;

/// The texts that a caller reads further.
#[derive(Debug, Default)]
pub struct Texts {
    /// DeepSpeed's `git_version_info_installed.py`.
    pub deepspeed: Option<String>,
}

/// Reads a wheel, or any zip file. `progress` is told the name of each member that is looked into.
///
/// # Errors
/// What is no whole zip file, and what no wheel may hold: see [`ZipError`].
pub fn wheel(file: &dyn ReadAt, path: &HostPath, depth: Depth, progress: &dyn Fn(&str)) -> Result<(Wheel, Texts), ZipError> {
    let mut zip = Zip::open(file)?;
    let members = zip.members().to_vec();
    let mut found = Wheel {
        path: path.clone(),
        size: file.len(),
        files: members.len(),
        unpacked: members.iter().map(|member| member.size).sum(),
        name: path.file_name().and_then(|name| WheelName::parse(name.to_str()?)),
        metadata: Observed::absent(["*.dist-info/METADATA"]),
        record: Observed::absent(["*.dist-info/RECORD"]),
        ..Wheel::default()
    };
    let mut texts = Texts::default();
    for member in &members {
        match text_of(&member.name) {
            Some(Text::Metadata) => found.metadata = text(&mut zip, member)?.map_or_else(Observed::failed, |text| metadata(&text)),
            Some(Text::Tags) => found.tags = text(&mut zip, member)?.map(|text| tags(&text)).unwrap_or_default(),
            Some(Text::Record) => {
                found.record = text(&mut zip, member)?.map_or_else(Observed::failed, |text| Observed::seen(record(&text, &members)));
            }
            Some(Text::DeepSpeed) => texts.deepspeed = text(&mut zip, member)?.ok(),
            None if TEXTS.iter().any(|ending| member.name.ends_with(ending)) => {}
            None => found.binaries.extend(look_into(&mut zip, member, path, depth, progress)?),
        }
    }
    found.binaries.sort_by(|a, b| a.member.cmp(&b.member));
    Ok((found, texts))
}

enum Text {
    Metadata,
    Tags,
    Record,
    DeepSpeed,
}

/// Only the metadata at the top counts: vendored packages have their own.
fn text_of(name: &str) -> Option<Text> {
    let (folder, file) = name.rsplit_once('/')?;
    if folder.ends_with(".dist-info") && !folder.contains('/') {
        return match file {
            "METADATA" => Some(Text::Metadata),
            "WHEEL" => Some(Text::Tags),
            "RECORD" => Some(Text::Record),
            _ => None,
        };
    }
    (name == "deepspeed/git_version_info_installed.py").then_some(Text::DeepSpeed)
}

fn text(zip: &mut Zip<'_>, member: &Member) -> Result<Result<String, String>, ZipError> {
    if member.size > LONGEST_TEXT {
        return Ok(Err(format!("`{}` has {} bytes", member.name, member.size)));
    }
    let bytes = zip.whole(member, LONGEST_TEXT)?;
    Ok(String::from_utf8(bytes).map_err(|_| format!("`{}` is not UTF-8", member.name)))
}

fn look_into(
    zip: &mut Zip<'_>,
    member: &Member,
    path: &HostPath,
    depth: Depth,
    progress: &dyn Fn(&str),
) -> Result<Option<Binary>, ZipError> {
    let mut reader = zip.read(member)?;
    let failed = |error| of_member(&member.name, error);
    let mut start = Vec::new();
    reader.by_ref().take(8).read_to_end(&mut start).map_err(failed)?;
    let broken = |error: ElfError| inspect::broken(path, Some(&member.name), member.size, &error);
    let Some(magic) = Magic::of(&start).filter(|magic| *magic != Magic::Zip) else {
        if !inspect::is_library(&member.name) {
            return Ok(None);
        }
        reader.take(64).read_to_end(&mut start).map_err(failed)?;
        return Ok(inspect::no_library(&start).map(broken));
    };
    progress(&member.name);
    if member.size <= WHOLE {
        start.reserve(usize::try_from(member.size).unwrap_or(0));
        reader.read_to_end(&mut start).map_err(failed)?;
        return Ok(Some(binary(&start.as_slice(), path, Some(&member.name), magic, depth).unwrap_or_else(broken)));
    }
    let (mut keeper, mut device) = (Keeper::new(member.size), fatbin::Stream::new(member.size));
    let mut chunk = vec![0; CHUNK];
    keeper.push(&start);
    device.feed(&start);
    loop {
        let read = reader.read(&mut chunk).map_err(failed)?;
        let Some(bytes) = chunk.get(..read).filter(|bytes| !bytes.is_empty()) else { break };
        keeper.push(bytes);
        device.feed(bytes);
    }
    let sparse = keeper.finish();
    let mut found = match magic {
        Magic::Elf => of_elf(&sparse, path, Some(&member.name), depth).unwrap_or_else(broken),
        _ => inspect::empty(path, Some(&member.name), member.size, magic),
    };
    found.device_code = match Elf::open(&sparse).map_err(fatbin::FatbinError::from).and_then(|elf| fatbin::Places::of(&elf)) {
        Ok(places) => observed(device.finish(&places)),
        Err(_) if magic != Magic::Elf => observed(device.finish(&fatbin::Places::raw(member.size))),
        Err(error) => Observed::failed(error.to_string()),
    };
    Ok(Some(found))
}

/// Headers up to the first empty line; continued lines are no matter here.
fn headers(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(':')).map(|(key, value)| (key, value.trim()))
}

fn metadata(text: &str) -> Observed<Metadata> {
    let all = |key: &str| headers(text).filter(|(k, _)| k.eq_ignore_ascii_case(key)).map(|(_, value)| value.to_owned()).collect::<Vec<_>>();
    match (all("Name").pop(), all("Version").pop()) {
        (Some(name), Some(version)) => Observed::seen(Metadata { name, version, requires: all("Requires-Dist") }),
        _ => Observed::failed("METADATA names no package or no version"),
    }
}

fn tags(text: &str) -> Vec<String> {
    headers(text).filter(|(key, _)| *key == "Tag").map(|(_, value)| value.to_owned()).collect()
}

/// Lines of `name,hash,size`, names with commas or quotes in quotes.
fn record(text: &str, members: &[Member]) -> Record {
    let named: BTreeSet<String> = text.lines().filter_map(first_field).collect();
    let there: BTreeSet<&str> = members.iter().map(|member| member.name.as_str()).collect();
    let signature = |name: &str| name.ends_with(".dist-info/RECORD.jws") || name.ends_with(".dist-info/RECORD.p7s");
    Record {
        missing: named.iter().filter(|name| !there.contains(name.as_str())).take(MOST_NAMES).cloned().collect(),
        unlisted: there
            .iter()
            .filter(|name| !named.contains(**name) && !signature(name))
            .take(MOST_NAMES)
            .map(|name| (*name).to_owned())
            .collect(),
    }
}

fn first_field(line: &str) -> Option<String> {
    match line.strip_prefix('"') {
        None => line.split(',').next().filter(|name| !name.is_empty()).map(str::to_owned),
        Some(quoted) => {
            let mut name = String::new();
            let mut chars = quoted.chars().peekable();
            while let Some(c) = chars.next() {
                match c {
                    '"' if chars.peek() == Some(&'"') => name.extend(chars.next()),
                    '"' => return Some(name),
                    c => name.push(c),
                }
            }
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_record() {
        assert_eq!(first_field("torch/lib/libc10.so,sha256=x,12").as_deref(), Some("torch/lib/libc10.so"));
        assert_eq!(first_field("\"a,\"\"b\"\".py\",sha256=x,12").as_deref(), Some("a,\"b\".py"));
        assert_eq!(first_field("\"never closed,,"), None);
        assert_eq!(first_field(""), None);
    }

    #[test]
    fn headers_of_metadata() {
        let text =
            "Metadata-Version: 2.1\nName: deepspeed\nVersion: 0.19.8\nRequires-Dist: torch\nRequires-Dist: ninja\n\nName: no header\n";
        let read = metadata(text);
        let read = read.value().cloned().unwrap_or_default();
        assert_eq!((read.name.as_str(), read.version.as_str(), read.requires.len()), ("deepspeed", "0.19.8", 2));
        assert!(metadata("Name: x\n").is_failed() && metadata("").is_failed());
        assert_eq!(tags("Wheel-Version: 1.0\nTag: py3-none-any\nTag: py2-none-any\n"), ["py3-none-any", "py2-none-any"]);
    }

    #[test]
    fn only_the_metadata_at_the_top_counts() {
        assert!(matches!(text_of("x-1.dist-info/METADATA"), Some(Text::Metadata)));
        assert!(text_of("setuptools/_vendor/x-1.dist-info/METADATA").is_none());
        assert!(text_of("METADATA").is_none());
    }
}
