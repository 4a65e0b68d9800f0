//! Zip files, member by member, with limits: nothing is unpacked to disk, and the name of a member is never a path.

use super::read::ReadAt;
use std::collections::BTreeSet;
use std::io::{self, Read, Seek, SeekFrom};
use zip::CompressionMethod;
use zip::result::ZipError as Inner;

/// More members than any wheel has: torch's has twelve thousand.
pub const MOST_MEMBERS: u64 = 200_000;
/// Unpacked, all members of an archive may have so many bytes, or a hundred times the archive where that is more: a wheel of shared
/// libraries has three times its size.
const MOST_UNPACKED: u64 = 4 << 30;
const MOST_TIMES: u64 = 100;
/// The end record and the longest comment behind it.
const LONGEST_END: u64 = 22 + 0xffff;
/// Read at once where the reader jumps about.
const BLOCK: usize = 4096;

#[derive(Debug, thiserror::Error)]
pub enum ZipError {
    #[error("not a zip file")]
    NotZip,
    #[error("damaged zip file: {0}")]
    Damaged(String),
    #[error("{0} members, and no wheel has more than {MOST_MEMBERS}")]
    TooMany(u64),
    #[error("`{0}` is in the archive twice")]
    Twice(String),
    #[error("the name `{0}` leads out of the archive")]
    Outside(String),
    #[error("`{0}` is encrypted")]
    Encrypted(String),
    #[error("`{name}` is packed by method {method}, and wheels are only stored or deflated")]
    Method { name: String, method: String },
    #[error("unpacked it would have {unpacked} bytes, {times} times its own size: a zip bomb")]
    Bomb { unpacked: u64, times: u64 },
    #[error("members share the same bytes of the archive (`{0}`)")]
    Overlap(String),
    #[error("`{0}` is longer or shorter than the archive says")]
    Length(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One member, as the archive's table describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub name: String,
    /// Bytes, unpacked.
    pub size: u64,
    index: usize,
    offset: u64,
    packed: u64,
}

/// An archive whose table has been read and judged.
pub struct Zip<'a> {
    archive: zip::ZipArchive<Jumping<'a>>,
    members: Vec<Member>,
}

impl<'a> Zip<'a> {
    /// Reads the table of contents: no member is unpacked.
    ///
    /// # Errors
    /// What is no zip file, and what no wheel may hold.
    pub fn open(file: &'a dyn ReadAt) -> Result<Self, ZipError> {
        let count = count(file)?;
        if count > MOST_MEMBERS {
            return Err(ZipError::TooMany(count));
        }
        let mut archive = zip::ZipArchive::new(Jumping::new(file)).map_err(of_archive)?;
        if archive.len() as u64 != count {
            // Of two entries with one name the archive keeps one.
            return Err(ZipError::Twice(twice(file, &mut archive)));
        }
        let mut members = Vec::with_capacity(archive.len());
        for index in 0..archive.len() {
            let entry = archive.by_index_raw(index).map_err(of_archive)?;
            if entry.is_dir() {
                continue;
            }
            let member = Member {
                name: entry.name().to_owned(),
                size: entry.size(),
                index,
                offset: entry.header_start(),
                packed: entry.compressed_size(),
            };
            if leads_outside(&member.name) {
                return Err(ZipError::Outside(member.name));
            }
            if entry.encrypted() {
                return Err(ZipError::Encrypted(member.name));
            }
            let method = entry.compression();
            if !matches!(method, CompressionMethod::Stored | CompressionMethod::Deflated) {
                return Err(ZipError::Method { name: member.name, method: method.to_string() });
            }
            members.push(member);
        }
        members.sort_by_key(|member| member.offset);
        for pair in members.windows(2) {
            if let [one, next] = pair
                && one.offset.saturating_add(one.packed) > next.offset
            {
                return Err(ZipError::Overlap(next.name.clone()));
            }
        }
        let unpacked = members.iter().fold(0, |sum: u64, member| sum.saturating_add(member.size));
        if unpacked > MOST_UNPACKED.max(file.len().saturating_mul(MOST_TIMES)) {
            return Err(ZipError::Bomb { unpacked, times: unpacked / file.len().max(1) });
        }
        Ok(Self { archive, members })
    }

    /// In the order in which they lie in the archive: read so, the file is read once from its start to its end.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// Unpacks a member as it is read. The reader fails where the member is longer than the table says, or its checksum is wrong.
    ///
    /// # Errors
    /// A damaged member.
    pub fn read(&mut self, member: &Member) -> Result<impl Read + use<'_, 'a>, ZipError> {
        let inner = self.archive.by_index(member.index).map_err(of_archive)?;
        Ok(Exact { inner, left: member.size })
    }

    /// A whole member of `cap` bytes at most.
    ///
    /// # Errors
    /// A longer or damaged member.
    pub fn whole(&mut self, member: &Member, cap: u64) -> Result<Vec<u8>, ZipError> {
        if member.size > cap {
            return Err(ZipError::Damaged(format!("`{}` has {} bytes, and {cap} are the most", member.name, member.size)));
        }
        let mut bytes = Vec::new();
        let read = self.read(member)?.read_to_end(&mut bytes);
        read.map_err(|error| of_member(&member.name, error))?;
        Ok(bytes)
    }
}

/// What reading a member says, with its name.
pub fn of_member(name: &str, error: io::Error) -> ZipError {
    match error.kind() {
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::UnexpectedEof => {
            ZipError::Damaged(format!("`{name}`: {error}"))
        }
        io::ErrorKind::FileTooLarge => ZipError::Length(name.to_owned()),
        _ => ZipError::Io(error),
    }
}

fn of_archive(error: Inner) -> ZipError {
    match error {
        Inner::Io(error) => of_member("the archive", error),
        Inner::InvalidArchive(why) => ZipError::Damaged(why.to_string()),
        Inner::UnsupportedArchive(why) => ZipError::Damaged(why.to_owned()),
        other => ZipError::Damaged(other.to_string()),
    }
}

fn leads_outside(name: &str) -> bool {
    let parts = || name.split(['/', '\\']);
    name.is_empty()
        || name.contains('\0')
        || name.starts_with(['/', '\\'])
        || parts().any(|part| part == "..")
        || parts().next().is_some_and(|first| first.ends_with(':'))
}

/// The number of members in the end record: known before any memory is taken for them.
fn count(file: &dyn ReadAt) -> Result<u64, ZipError> {
    let size = file.len().min(LONGEST_END);
    let start = file.len() - size;
    let tail = super::read::read_up_to(file, start, size)?;
    let at = memchr::memmem::rfind(&tail, b"PK\x05\x06").ok_or(ZipError::NotZip)?;
    let record = tail.get(at..at + 22).ok_or_else(|| ZipError::Damaged("its end record is cut short".to_owned()))?;
    let short = u64::from(u16::from_le_bytes([record[10], record[11]]));
    if short != 0xffff {
        return Ok(short);
    }
    // More members, or a larger file, than these fields hold: the other record stands before this one.
    let Some(at) = memchr::memmem::rfind(tail.get(..at).unwrap_or_default(), b"PK\x06\x06") else { return Ok(short) };
    let record = tail.get(at + 32..at + 40).ok_or_else(|| ZipError::Damaged("its zip64 record is cut short".to_owned()))?;
    Ok(record.try_into().map_or(u64::MAX, u64::from_le_bytes))
}

/// The name that occurs twice: the tables of contents are read again, which only such an archive costs.
fn twice(file: &dyn ReadAt, archive: &mut zip::ZipArchive<Jumping<'_>>) -> String {
    let mut seen = BTreeSet::new();
    let mut at = archive.central_directory_start();
    for _ in 0..MOST_MEMBERS {
        let Ok(head) = super::read::read_vec(file, at, 46, 46) else { break };
        if !head.starts_with(b"PK\x01\x02") {
            break;
        }
        let field = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let Ok(name) = super::read::read_vec(file, at + 46, field(28), 0xffff) else { break };
        let name = String::from_utf8_lossy(&name).into_owned();
        if !seen.insert(name.clone()) {
            return name;
        }
        at = at.saturating_add(46 + field(28) + field(30) + field(32));
    }
    "a name".to_owned()
}

/// A reader that gives exactly so many bytes.
struct Exact<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Exact<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            // The checksum is compared at the end, and a longer member shows here.
            return match self.inner.read(&mut [0])? {
                0 => Ok(0),
                _ => Err(io::ErrorKind::FileTooLarge.into()),
            };
        }
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buf.len());
        let Some(into) = buf.get_mut(..most) else { return Ok(0) };
        match self.inner.read(into)? {
            0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends too early")),
            read => {
                self.left -= read as u64;
                Ok(read)
            }
        }
    }
}

/// The file as `zip` wants it: small reads are served from a block, large ones go to the file.
struct Jumping<'a> {
    file: &'a dyn ReadAt,
    at: u64,
    block: Vec<u8>,
    block_at: u64,
}

impl<'a> Jumping<'a> {
    fn new(file: &'a dyn ReadAt) -> Self {
        Self { file, at: 0, block: Vec::new(), block_at: 0 }
    }
}

impl Read for Jumping<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.len() >= BLOCK {
            let read = self.file.read_at(self.at, buf)?;
            self.at = self.at.saturating_add(read as u64);
            return Ok(read);
        }
        let in_block = self.at.checked_sub(self.block_at).is_some_and(|into| into < self.block.len() as u64);
        if !in_block {
            self.block.resize(BLOCK, 0);
            let read = self.file.read_at(self.at, &mut self.block)?;
            self.block.truncate(read);
            self.block_at = self.at;
        }
        let from = usize::try_from(self.at - self.block_at).unwrap_or(usize::MAX);
        let read = self.block.get(from..).unwrap_or_default().read(buf)?;
        self.at = self.at.saturating_add(read as u64);
        Ok(read)
    }
}

impl Seek for Jumping<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let target = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.file.len().checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        self.at = target.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.at)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::{Cursor, Write as _};
    use zip::write::SimpleFileOptions;

    fn made(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in members {
            writer.start_file(*name, SimpleFileOptions::default().compression_method(CompressionMethod::Deflated)).unwrap();
            writer.write_all(content).unwrap();
        }
        writer.finish().unwrap().into_inner()
    }

    fn why(bytes: &[u8]) -> String {
        Zip::open(&bytes).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn members_are_read_in_their_order() {
        let bytes = made(&[("b/x.so", b"first"), ("a.txt", &[7; 100_000])]);
        let file = bytes.as_slice();
        let mut zip = Zip::open(&file).unwrap();
        let members = zip.members().to_vec();
        assert_eq!(members.iter().map(|m| (m.name.as_str(), m.size)).collect::<Vec<_>>(), [("b/x.so", 5), ("a.txt", 100_000)]);
        assert_eq!(zip.whole(&members[0], 5).unwrap(), b"first");
        assert_eq!(zip.whole(&members[1], 1 << 20).unwrap(), [7; 100_000]);
        assert!(zip.whole(&members[1], 99_999).is_err());
    }

    #[test]
    fn what_no_wheel_may_hold() {
        assert_eq!(why(b""), "not a zip file");
        assert_eq!(why(b"#!/bin/sh\n"), "not a zip file");
        for name in ["../x", "/etc/x", "a/../../x", "C:/x", "a\\..\\x"] {
            assert_eq!(why(&made(&[(name, b"")])), format!("the name `{name}` leads out of the archive"));
        }
        // Two names of equal length, made equal by hand.
        let mut twice = made(&[("x1", b"a"), ("x2", b"b")]);
        for at in memchr::memmem::find_iter(&twice.clone(), b"x2").collect::<Vec<_>>() {
            twice[at + 1] = b'1';
        }
        assert_eq!(why(&twice), "`x1` is in the archive twice");
        let whole = made(&[("x", &[9; 5000])]);
        for cut in [whole.len() - 1, whole.len() - 10, whole.len() - 30, 10] {
            assert!(!why(&whole[..cut]).is_empty(), "{cut}");
        }
    }

    #[test]
    fn a_member_that_lies_about_its_length() {
        let honest = made(&[("x", &[0; 1 << 20])]);
        let entry = memchr::memmem::find(&honest, b"PK\x01\x02").unwrap();
        for (claim, word) in [(1000_u32, "longer or shorter"), (2 << 20, "too early")] {
            let mut bytes = honest.clone();
            bytes[entry + 24..entry + 28].copy_from_slice(&claim.to_le_bytes());
            let file = bytes.as_slice();
            let mut zip = Zip::open(&file).unwrap();
            let member = zip.members()[0].clone();
            let why = zip.whole(&member, 4 << 20).unwrap_err().to_string();
            assert!(why.contains(word), "{claim}: {why}");
        }
    }

    #[test]
    fn damage_inside_a_member_is_noticed() {
        let mut bytes = made(&[("x", b"some text that is packed, some text that is packed")]);
        bytes[40] ^= 0x55;
        let file = bytes.as_slice();
        let read = Zip::open(&file).and_then(|mut zip| {
            let member = zip.members()[0].clone();
            zip.whole(&member, 1 << 20)
        });
        assert!(read.is_err());
    }
}
