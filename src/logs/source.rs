//! The bytes of a log as text: unpacked where it is gzip or zstd, and UTF-8 where it is UTF-16.

use flate2::read::MultiGzDecoder;
use ruzstd::decoding::StreamingDecoder;
use std::io::{self, BufReader, Cursor, Error, ErrorKind, Read};

/// So much is looked at to know what a file is.
const HEAD: usize = 4 << 10;

/// A reader of the text in `packed`.
///
/// # Errors
/// Those of reading; and what is no log: another archive, a program, bytes that are no text.
pub fn text<'r>(mut packed: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let head = head(&mut packed)?;
    let unpack = |with: &str| Err(Error::new(ErrorKind::InvalidData, format!("it is packed: unpack it first (`{with}`)")));
    let whole = Cursor::new(head.clone()).chain(packed);
    match head.as_slice() {
        [0x1f, 0x8b, ..] => unpacked(MultiGzDecoder::new(BufReader::with_capacity(64 << 10, whole))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => unpacked(Zstd { packed: Some(BufReader::with_capacity(64 << 10, whole)), frame: None }),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => unpack("xz -d"),
        [b'B', b'Z', b'h', b'1'..=b'9', ..] => unpack("bunzip2"),
        [b'P', b'K', 3, 4, ..] => unpack("unzip"),
        [b'7', b'z', 0xbc, 0xaf, ..] => unpack("7z x"),
        _ => decoded(&head, whole),
    }
}

/// What comes out of an archive is no archive again.
fn unpacked<'r>(mut reader: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let head = head(&mut reader)?;
    decoded(&head.clone(), Cursor::new(head).chain(reader))
}

fn decoded<'r>(head: &[u8], whole: impl Read + 'r) -> io::Result<Box<dyn Read + 'r>> {
    let zeros = |from: usize| head.iter().skip(from).step_by(2).filter(|byte| **byte == 0).count();
    match head {
        [0xff, 0xfe, ..] => Ok(Box::new(Utf16::new(whole, false))),
        [0xfe, 0xff, ..] => Ok(Box::new(Utf16::new(whole, true))),
        _ if head.len() >= 8 && zeros(1) * 4 > head.len() && zeros(0) * 16 < head.len() => Ok(Box::new(Utf16::new(whole, false))),
        _ if head.len() >= 8 && zeros(0) * 4 > head.len() && zeros(1) * 16 < head.len() => Ok(Box::new(Utf16::new(whole, true))),
        [0x7f, b'E', b'L', b'F', ..] => {
            Err(Error::new(ErrorKind::InvalidData, "it is a program or library, no log: `ds-doctor inspect` reads those"))
        }
        _ if zeros(0) + zeros(1) > head.len() / 8 => Err(Error::new(ErrorKind::InvalidData, "it is no text")),
        _ => Ok(Box::new(whole)),
    }
}

/// The first bytes, fewer only where a pipe gives fewer at once or the input ends. Four are waited for.
fn head(reader: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = vec![0; HEAD];
    let mut filled = 0;
    while filled < 4 {
        match reader.read(head.get_mut(filled..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(number) => filled += number,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head.truncate(filled);
    Ok(head)
}

/// One frame after the other, as `cat a.zst b.zst` makes them.
struct Zstd<R: Read> {
    packed: Option<BufReader<R>>,
    frame: Option<StreamingDecoder<BufReader<R>, ruzstd::decoding::FrameDecoder>>,
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(frame) = &mut self.frame {
                let number = frame.read(out)?;
                if number > 0 || out.is_empty() {
                    return Ok(number);
                }
                self.packed = self.frame.take().map(StreamingDecoder::into_inner);
            }
            let Some(mut packed) = self.packed.take() else { return Ok(0) };
            if io::BufRead::fill_buf(&mut packed)?.is_empty() {
                return Ok(0);
            }
            let broken = |error| Error::new(ErrorKind::InvalidData, format!("zstd: {error}"));
            self.frame = Some(StreamingDecoder::new(packed).map_err(broken)?);
        }
    }
}

/// UTF-16 as UTF-8.
struct Utf16<R> {
    inner: R,
    big: bool,
    /// Bytes that are not decoded yet: at most an odd byte and half a pair.
    raw: Vec<u8>,
    /// Decoded, and from where it is not handed out.
    ready: Vec<u8>,
    given: usize,
    ended: bool,
}

impl<R: Read> Utf16<R> {
    fn new(inner: R, big: bool) -> Self {
        Self { inner, big, raw: Vec::new(), ready: Vec::new(), given: 0, ended: false }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut block = [0; 16 << 10];
        let number = self.inner.read(&mut block)?;
        self.ended = number == 0;
        self.raw.extend_from_slice(block.get(..number).unwrap_or_default());
        let unit = |pair: &[u8]| match pair {
            [a, b] if self.big => u16::from_be_bytes([*a, *b]),
            [a, b] => u16::from_le_bytes([*a, *b]),
            _ => 0xfffd,
        };
        let mut units: Vec<u16> = self.raw.chunks_exact(2).map(unit).collect();
        // The first half of a pair waits for the second.
        if !self.ended && units.last().is_some_and(|unit| (0xd800..0xdc00).contains(unit)) {
            units.pop();
        }
        self.raw.drain(..units.len() * 2);
        let text: String = char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect();
        self.ready = text.into_bytes();
        self.given = 0;
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() && !self.ended {
            self.fill()?;
        }
        let rest = self.ready.get(self.given..).unwrap_or_default();
        let number = rest.len().min(out.len());
        let (Some(from), Some(to)) = (rest.get(..number), out.get_mut(..number)) else { return Ok(0) };
        to.copy_from_slice(from);
        self.given += number;
        Ok(number)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn read(bytes: &[u8]) -> Result<String, String> {
        let mut out = Vec::new();
        let mut reader = text(bytes).map_err(|error| error.to_string())?;
        reader.read_to_end(&mut out).map_err(|error| error.to_string())?;
        Ok(String::from_utf8_lossy(&out).into_owned())
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn utf16(text: &str, big: bool) -> Vec<u8> {
        text.encode_utf16().flat_map(|unit| if big { unit.to_be_bytes() } else { unit.to_le_bytes() }).collect()
    }

    #[test]
    fn packed_and_wide_texts() {
        assert_eq!(read(b"").unwrap(), "");
        assert_eq!(read(b"ab\xff\n").unwrap(), "ab\u{fffd}\n");
        let twice = [gzip(b"one\n"), gzip(b"two\n")].concat();
        assert_eq!(read(&twice).unwrap(), "one\ntwo\n");
        let frame = ruzstd::encoding::compress_to_vec(&b"one\n"[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert_eq!(read(&frame).unwrap(), "one\n");
        assert_eq!(read(&[frame.clone(), frame].concat()).unwrap(), "one\none\n");
        let text = "ld: cannot find -lcudart \u{1f600}\r\n";
        assert_eq!(read(&[vec![0xff, 0xfe], utf16(text, false)].concat()).unwrap(), format!("\u{feff}{text}"));
        assert_eq!(read(&utf16(text, false)).unwrap(), text);
        assert_eq!(read(&utf16(text, true)).unwrap(), text);
        assert_eq!(read(&gzip(&utf16(text, false))).unwrap(), text);
    }

    #[test]
    fn what_is_no_log_says_so() {
        assert!(read(b"PK\x03\x04abcd").unwrap_err().contains("unzip"));
        assert!(read(b"\x7fELF\x02\x01\x01").unwrap_err().contains("inspect"));
        assert!(read(&[0; 64]).unwrap_err().contains("no text"));
        let mut cut = gzip(&[b'x'; 5000]);
        cut.truncate(cut.len() - 8);
        assert!(read(&cut).is_err());
        assert!(read(b"\x28\xb5\x2f\xfdgarbage").is_err());
    }
}
