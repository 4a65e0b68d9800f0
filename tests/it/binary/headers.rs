//! `host_config.h` against a compiler's own preprocessor, told to be each version in turn; release macros against folder names.

use super::{Counted, tool};
use crate::util::{lab, trial_with};
use ds_doctor::binary::hostconfig::{Limits, host_compilers};
use ds_doctor::binary::releases::header_release;
use libtest_mimic::Trial;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whether gcc's preprocessor, with these macros instead of its own, meets an `#error` of the header about an unsupported compiler.
fn refused(header: &Path, macros: &[(&str, String)]) -> bool {
    let mut source = String::from("#define __CUDACC__ 1\n#define __LP64__ 1\n#define __linux__ 1\n#define __x86_64__ 1\n#undef __GNUC__\n");
    for (name, value) in macros {
        source.push_str(&format!("#undef {name}\n#define {name} {value}\n"));
    }
    // features.h and its like are only asked for types that do not matter here.
    let text = std::fs::read_to_string(header).unwrap();
    source.push_str(&text.lines().filter(|l| !l.contains("#include")).map(|l| format!("{l}\n")).collect::<String>());
    let mut child = Command::new("gcc")
        .args(["-E", "-undef", "-w", "-x", "c", "-"])
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() || complaint.contains("unsupported"), "{complaint}");
    !output.status.success()
}

fn accepted(limits: Limits, major: u32) -> bool {
    limits.min.is_none_or(|min| major >= min) && limits.max.is_none_or(|max| major <= max)
}

fn agrees(header: &Path) {
    let read = host_compilers(&std::fs::read_to_string(header).unwrap());
    let (gcc, clang) = (read.gcc.unwrap(), read.clang.unwrap());
    assert!(gcc.max.is_some() && clang.max.is_some(), "{read:?}");
    for major in 4..30 {
        let macros = [("__GNUC__", major.to_string()), ("__GNUC_MINOR__", "0".to_owned())];
        assert_eq!(accepted(gcc, major), !refused(header, &macros), "{}: gcc {major}", header.display());
        let macros = [
            ("__GNUC__", "4".to_owned()),
            ("__clang__", "1".to_owned()),
            ("__clang_major__", major.to_string()),
            ("__clang_minor__", "0".to_owned()),
        ];
        assert_eq!(accepted(clang, major), !refused(header, &macros), "{}: clang {major}", header.display());
    }
}

/// The toolkits of the lab that have headers, with their releases.
fn headers(file: &str) -> Result<Vec<(PathBuf, &'static str)>, String> {
    let roots = [("pip-cu130/nvidia/cu13/include", "13.0"), ("pip-cu135/nvidia/cu13/include", "13.5"), ("deb-cuda118/usr/include", "11.8")];
    let found: Vec<_> = roots.iter().filter_map(|(root, release)| Some((lab(&format!("{root}/{file}")).ok()?, *release))).collect();
    if found.is_empty() { Err(format!("no toolkit with `{file}` in the lab")) } else { Ok(found) }
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with(
            "binary::headers::host_config_lets_through_what_a_preprocessor_lets_through",
            tool("gcc").and_then(|_| headers("crt/host_config.h")),
            |headers| headers.iter().for_each(|(header, _)| agrees(header)),
        ),
        trial_with("binary::headers::release_macros_are_read", headers("cuda_runtime_api.h"), |headers| {
            for (header, release) in headers {
                let read = header_release(&Counted::open(&header), "CUDART_VERSION").unwrap();
                assert_eq!(read, Some(release.parse().unwrap()), "{}", header.display());
                let cuda = header.with_file_name("cuda.h");
                if cuda.exists() {
                    let read = header_release(&Counted::open(&cuda), "CUDA_VERSION").unwrap();
                    assert_eq!(read, Some(release.parse().unwrap()), "{}", cuda.display());
                }
            }
        }),
    ]
}
