//! The loader's cache against `ldconfig -p`: this machine's own, and one of each layout made for the purpose.

use super::{Counted, printed, tool};
use crate::util::trial_with;
use ds_doctor::binary::ldcache::{Hwcap, LdCache};
use libtest_mimic::Trial;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The lines `soname (flags) => path` of `ldconfig -p`: name, path, hwcap subfolder, whether it says x86-64 or AArch64.
fn listed(ldconfig: &Path, cache: &Path) -> Vec<(String, String, Option<String>, bool)> {
    let text = printed(ldconfig, &["-p", "-C"], &[cache.into()]);
    let line = |line: &str| {
        let (name, rest) = line.strip_prefix('\t')?.split_once(" (")?;
        let (flags, path) = rest.split_once(") => ")?;
        let hwcap = flags.split_once("hwcap: \"").map(|(_, r)| r.trim_end_matches('"').to_owned());
        Some((name.to_owned(), path.to_owned(), hwcap, flags.contains("x86-64") || flags.contains("AArch64")))
    };
    text.lines().filter_map(line).collect()
}

fn ours(cache: &Path) -> Vec<(String, String, Option<String>, bool)> {
    let cache = LdCache::read(&Counted::open(cache)).unwrap();
    let hwcap = |h| match h {
        Hwcap::Subfolder(name) => Some(name.into_owned()),
        Hwcap::Any | Hwcap::Mask(_) => None,
    };
    cache
        .entries()
        .map(|e| {
            let named = e.abi().is_some_and(|abi| abi.class_bits == 64);
            (e.soname.into_owned(), e.path.into_owned(), hwcap(e.hwcap), named)
        })
        .collect()
}

/// Has ldconfig make a cache in one of its layouts, with a plain library and one in a glibc-hwcaps subfolder.
fn make(ldconfig: &Path, layout: &str) -> (tempfile::TempDir, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let library = ["/usr/lib/x86_64-linux-gnu/libgcc_s.so.1", "/usr/lib/aarch64-linux-gnu/libgcc_s.so.1", "/usr/lib64/libgcc_s.so.1"];
    let library = library.iter().find(|path| Path::new(path).exists()).unwrap();
    let subfolder = if cfg!(target_arch = "x86_64") { "x86-64-v3" } else { "atomics" };
    for folder in ["opt/lib".to_owned(), format!("opt/lib/glibc-hwcaps/{subfolder}"), "etc".to_owned()] {
        fs::create_dir_all(root.path().join(&folder)).unwrap();
        fs::copy(library, root.path().join(&folder).join("libgcc_s.so.1")).unwrap();
    }
    fs::write(root.path().join("etc/ld.so.conf"), "/opt/lib\n").unwrap();
    let status = Command::new(ldconfig).args(["-X", "-c", layout, "-C", "/etc/made.cache", "-r"]).arg(root.path()).output().unwrap();
    let cache = root.path().join("etc/made.cache");
    assert!(cache.exists(), "{status:?}");
    (root, cache)
}

/// `ldconfig -r` wants chroot, so only root can have a cache made.
fn ldconfig_as_root() -> Result<PathBuf, String> {
    if rustix::process::geteuid().is_root() { tool("ldconfig") } else { Err("not root, and `ldconfig -r` needs chroot".into()) }
}

pub fn trials() -> Vec<Trial> {
    let own = PathBuf::from("/etc/ld.so.cache");
    let both = tool("ldconfig").and_then(|l| if own.exists() { Ok((l, own)) } else { Err("no /etc/ld.so.cache".into()) });
    vec![
        trial_with("binary::ldcache::this_machines_cache_reads_as_ldconfig_prints_it", both, |(ldconfig, cache)| {
            let truth = listed(&ldconfig, &cache);
            assert!(!truth.is_empty());
            assert_eq!(ours(&cache), truth);
        }),
        trial_with("binary::ldcache::all_three_layouts_read_as_ldconfig_prints_them", ldconfig_as_root(), |ldconfig| {
            for layout in ["new", "compat", "old"] {
                let (_root, cache) = make(&ldconfig, layout);
                let mut truth = listed(&ldconfig, &cache);
                assert_eq!(truth.len(), 2, "{layout}");
                let found = ours(&cache);
                if layout == "compat" {
                    // ldconfig prints junk for this name: it counts its offset from the start of the file.
                    assert!(truth[0].2.is_some());
                    truth[0].2.clone_from(&found[0].2);
                }
                assert_eq!(found, truth, "{layout}");
                let subfolder = if cfg!(target_arch = "x86_64") { "x86-64-v3" } else { "atomics" };
                let expected = (layout != "old").then(|| subfolder.to_owned());
                assert_eq!(found[0].2, expected, "{layout}");
            }
        }),
    ]
}
