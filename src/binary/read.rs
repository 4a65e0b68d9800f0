//! Reading by position, bounded by the length of what is read.

use std::cell::OnceCell;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that can be read at any position without moving a cursor: a file, a slice, a part of an archive.
///
/// Files are read and not mapped: a mapped file that shrinks kills the process that looks at it.
pub trait ReadAt {
    /// Length in bytes.
    fn len(&self) -> u64;

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Reads up to `buf.len()` bytes from `offset` on; fewer, or none, at the end.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        <[u8]>::len(self) as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|start| self.get(start..)).unwrap_or_default();
        let n = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..n), rest.get(..n)) {
            to.copy_from_slice(from);
        }
        Ok(n)
    }
}

impl<T: ReadAt + ?Sized> ReadAt for &T {
    fn len(&self) -> u64 {
        (**self).len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        (**self).read_at(offset, buf)
    }
}

/// What is read of a file at the first look: an ELF file's header, its program headers and its loader's name lie in it.
const HEAD: u64 = 4096;

/// An open file and its length.
#[derive(Debug)]
pub struct FileAt<F> {
    file: F,
    length: u64,
    /// Its first bytes, read once.
    head: OnceCell<Vec<u8>>,
}

impl<F: FileExt> FileAt<F> {
    /// `length` in bytes, from the file's metadata: asked once, not at every read.
    pub fn new(file: F, length: u64) -> Self {
        Self { file, length, head: OnceCell::new() }
    }
}

impl<F: FileExt> ReadAt for FileAt<F> {
    fn len(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if offset.saturating_add(buf.len() as u64) > HEAD.min(self.length) {
            return self.file.read_at(buf, offset);
        }
        if self.head.get().is_none() {
            let mut head = vec![0; HEAD.min(self.length) as usize];
            let read = self.file.read_at(&mut head, 0)?;
            head.truncate(read);
            let _ = self.head.set(head);
        }
        match self.head.get().filter(|head| head.len() as u64 >= offset) {
            Some(head) => head.as_slice().read_at(offset, buf),
            None => self.file.read_at(buf, offset),
        }
    }
}

/// Fills `buf` from `offset` on, or fails with [`io::ErrorKind::UnexpectedEof`].
pub fn read_exact_at(file: &(impl ReadAt + ?Sized), mut offset: u64, mut buf: &mut [u8]) -> io::Result<()> {
    while !buf.is_empty() {
        match file.read_at(offset, buf) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                offset = offset.saturating_add(n as u64);
                buf = buf.get_mut(n..).unwrap_or_default();
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// `size` bytes from `offset` on. Nothing is allocated before `size` is checked against `cap` and against the length of the file.
///
/// # Errors
/// [`io::ErrorKind::FileTooLarge`] when `size` is above `cap`, [`io::ErrorKind::UnexpectedEof`] when the range ends behind the file.
pub fn read_vec(file: &(impl ReadAt + ?Sized), offset: u64, size: u64, cap: u64) -> io::Result<Vec<u8>> {
    if size > cap {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    if offset.checked_add(size).is_none_or(|end| end > file.len()) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut bytes = vec![0; usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?];
    read_exact_at(file, offset, &mut bytes)?;
    Ok(bytes)
}

/// What there is of the `size` bytes from `offset` on: less where the file ends before. `size` is the caller's own bound.
pub fn read_up_to(file: &(impl ReadAt + ?Sized), offset: u64, size: u64) -> io::Result<Vec<u8>> {
    let there = file.len().saturating_sub(offset).min(size);
    if there == 0 {
        return Ok(Vec::new());
    }
    read_vec(file, offset, there, size)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_first_bytes_of_a_file_are_read_once() {
        use std::cell::Cell;
        struct Counted(Vec<u8>, Cell<usize>);
        impl FileExt for Counted {
            fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
                self.1.set(self.1.get() + 1);
                self.0.read_at(offset, buf)
            }
            fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
                Ok(0)
            }
        }
        let bytes: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
        let file = FileAt::new(Counted(bytes.clone(), Cell::new(0)), 10_000);
        for (offset, size, reads) in [(0, 64, 1), (64, 500, 1), (4090, 6, 1), (4090, 7, 2), (9000, 1000, 3), (0, 4096, 3)] {
            assert_eq!(read_vec(&file, offset, size, 10_000).unwrap(), bytes[offset as usize..][..size as usize], "{offset}");
            assert_eq!(file.file.1.get(), reads, "{offset}");
        }
        // A file that has become shorter than it was.
        let file = FileAt::new(Counted(bytes[..100].to_vec(), Cell::new(0)), 10_000);
        assert_eq!(read_vec(&file, 0, 100, 100).unwrap(), bytes[..100]);
        assert!(read_vec(&file, 90, 20, 100).is_err() && read_vec(&file, 200, 20, 100).is_err());
    }

    /// A file that hands out one byte at a time and claims to be longer than it is.
    struct Grudging;
    impl ReadAt for Grudging {
        fn len(&self) -> u64 {
            100
        }
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
            if offset >= 10 || buf.is_empty() {
                return Ok(0);
            }
            buf[0] = offset as u8;
            Ok(1)
        }
    }

    #[test]
    fn short_reads_are_repeated_and_a_shrunken_file_is_an_error() {
        assert_eq!(read_vec(&Grudging, 2, 4, 100).unwrap(), [2, 3, 4, 5]);
        assert_eq!(read_vec(&Grudging, 8, 4, 100).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn sizes_are_checked_before_anything_is_allocated() {
        let bytes: &[u8] = b"0123456789";
        assert_eq!(read_vec(&bytes, 0, u64::MAX, u64::MAX).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_vec(&bytes, u64::MAX, 2, 2).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(read_vec(&bytes, 0, 5, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(read_vec(&bytes, 8, 2, 2).unwrap(), b"89");
        assert_eq!(read_up_to(&bytes, 8, 64).unwrap(), b"89");
        assert_eq!(read_up_to(&bytes, 80, 64).unwrap(), b"");
        let mut buf = [0; 4];
        assert_eq!(bytes.read_at(11, &mut buf).unwrap(), 0);
    }
}
