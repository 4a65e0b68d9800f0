//! The release that a toolkit's headers and version files state.

use super::read::ReadAt;
use super::scan::{Hit, scan};
use crate::version::{CudaVersion, Dotted};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;

/// `cuda.h` has 1 MB, and defines its version near the start.
const MOST_HEADER: u64 = 8 << 20;

/// The release in `#define CUDA_VERSION 12040` (cuda.h) or `#define CUDART_VERSION 12040` (cuda_runtime_api.h).
pub fn header_release(header: &dyn ReadAt, name: &str) -> io::Result<Option<CudaVersion>> {
    let mut release = None;
    scan(header, 0..header.len().min(MOST_HEADER), &[name.as_bytes()], |hit| {
        release = defined(&hit, name);
        if release.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(release)
}

/// The number that follows, where the line defines the name as just that.
fn defined(hit: &Hit<'_>, name: &str) -> Option<CudaVersion> {
    let line = hit.before.rsplit(|b| *b == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_start().strip_prefix('#')?.trim_start().strip_prefix("define")?;
    let rest = hit.at.get(name.len()..)?.split(|b| *b == b'\n').next()?;
    let rest = std::str::from_utf8(rest).ok()?;
    if line.is_empty() || !line.trim().is_empty() || !rest.starts_with([' ', '\t']) {
        return None;
    }
    let (number, after) = rest.trim().split_at(rest.trim().find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.trim().len()));
    let number: u32 = number.parse().ok()?;
    let alone = after.is_empty() || after.starts_with([' ', '\t', '/']);
    (alone && number >= 1000 && number.is_multiple_of(10)).then(|| CudaVersion::from_macro(number))
}

/// `version.json` of NVIDIA's own installers, from CUDA 11.1 on: each part's release by its key, `cuda` being the toolkit's.
///
/// `None` for a text of another shape.
pub fn version_json(text: &str) -> Option<BTreeMap<String, Dotted>> {
    #[derive(Deserialize)]
    struct Part {
        version: Dotted,
    }
    let parts: BTreeMap<String, Part> = serde_json::from_str(text).ok()?;
    Some(parts.into_iter().map(|(name, part)| (name, part.version)).collect())
}

/// `version.txt` of CUDA up to 11.0: `CUDA Version 10.2.89`.
pub fn version_txt(text: &str) -> Option<Dotted> {
    let version = text.lines().next()?.trim().strip_prefix("CUDA Version ")?;
    let plain = version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    version.parse().ok().filter(|v: &Dotted| plain && v.parts.len() >= 2)
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers() {
        let read = |text: &str| header_release(&text.as_bytes(), "CUDA_VERSION").unwrap();
        let release = Some(CudaVersion::new(12, 4));
        for text in [
            "#define CUDA_VERSION 12040",
            "/* x */\n#define CUDA_VERSION 12040\n#define CUDA_VERSION_X 1\n",
            "#  define\tCUDA_VERSION\t12040 /* 12.4 */\r\n",
            "#if CUDA_VERSION > 3000\n#define CUDA_VERSION 12040\n",
        ] {
            assert_eq!(read(text), release, "{text}");
        }
        for text in [
            "",
            "#define CUDA_VERSION",
            "#define CUDA_VERSION (12040)",
            "#define CUDA_VERSION 12040.1",
            "#define MY_CUDA_VERSION 12040",
            "#define CUDA_VERSION_X 12040",
            "#define CUDA_VERSION 99999999999999",
            "#define CUDA_VERSION 12",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn version_files() {
        let parts =
            version_json(r#"{"cuda": {"name": "CUDA SDK", "version": "12.4.1"}, "cuda_nvcc": {"name": "x", "version": "12.4.131"}}"#);
        assert_eq!(parts.unwrap().get("cuda").unwrap().text, "12.4.1");
        for text in ["", "{", "[]", r#"{"cuda": "12.4"}"#, r#"{"cuda": {"version": "new"}}"#] {
            assert!(version_json(text).is_none(), "{text}");
        }
        assert_eq!(version_txt("CUDA Version 10.2.89\n").unwrap().text, "10.2.89");
        for text in ["", "10.2", "CUDA Version x", "CUDA Version 10", "CUDA Version 10.2 beta"] {
            assert!(version_txt(text).is_none(), "{text}");
        }
    }
}
