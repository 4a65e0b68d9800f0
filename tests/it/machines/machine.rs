//! One machine: its manifest made into a tree and an environment.

use super::fatbin::containers;
use super::manifest::{CachedOp, Library, Manifest};
use super::python::Installed;
use super::system::{Distribution, Style, distribution};
use super::tree::Tree;
use super::{cuda, python, release, system, torch};
use ds_doctor::knowledge::Knowledge;
use std::collections::BTreeMap;
use std::path::Path;

pub struct Machine<'m> {
    pub manifest: &'m Manifest,
    pub know: Knowledge,
    pub tree: Tree,
    pub system: &'static Distribution,
    pub pythons: Vec<Installed>,
    /// What goes in front of PATH: environments that were activated, then toolkits.
    pub path: Vec<String>,
    pub vars: BTreeMap<String, String>,
    cache: Vec<(String, String)>,
}

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Machine<'_> {
    /// A line of `ldconfig -p`.
    pub fn cache(&mut self, soname: &str, path: &str) {
        self.cache.push((soname.to_owned(), path.to_owned()));
    }
}

/// Makes the tree in `root`, which is empty, and gives the environment.
pub fn build(manifest: &Manifest, root: &Path) -> BTreeMap<String, String> {
    let system = distribution(&manifest.system);
    let tree = Tree::new(root, manifest.aarch64, system.style == Style::Alpine);
    let (know, vars) = (Knowledge::embedded(), BTreeMap::new());
    let mut m = Machine { manifest, know, tree, system, pythons: Vec::new(), path: Vec::new(), vars, cache: Vec::new() };
    system::install(&mut m);
    manifest.gcc.iter().for_each(|gcc| system::gcc(&mut m, gcc));
    manifest.clang.iter().for_each(|clang| system::clang(&mut m, clang));
    manifest.python.iter().for_each(|python| python::install(&mut m, python));
    manifest.toolkit.iter().for_each(|kit| cuda::install(&mut m, kit));
    manifest.torch.iter().for_each(|torch| torch::install(&mut m, torch));
    manifest.deepspeed.iter().for_each(|deepspeed| torch::deepspeed(&mut m, deepspeed));
    if let Some(driver) = &manifest.driver {
        system::driver(&mut m, driver);
    }
    manifest.lib.iter().for_each(|one| library(&mut m, one));
    manifest.cached_op.iter().for_each(|op| cached_op(&m, op));
    loose_files(&m);
    for entry in &manifest.ld_cache {
        m.cache(&entry.soname, &entry.path);
    }
    if system.style != Style::Alpine && !manifest.without.iter().any(|part| part == "ldconfig") {
        m.tree.plain("/usr/sbin/ldconfig");
        m.tree.file("/etc/ld.so.cache", loader_cache(&m.cache, manifest.aarch64));
    }
    environment(m)
}

fn loose_files(m: &Machine<'_>) {
    let manifest = m.manifest;
    manifest.files.iter().for_each(|(path, text)| m.tree.file(path, text));
    manifest.programs.iter().for_each(|(path, text)| m.tree.exec(path, text));
    manifest.folders.iter().for_each(|path| m.tree.folder(path));
    manifest.links.iter().for_each(|(path, target)| m.tree.link(path, target));
    manifest.remove.iter().for_each(|path| m.tree.remove(path));
    manifest.empty.iter().for_each(|path| m.tree.file(path, ""));
    manifest.truncated.iter().for_each(|path| m.tree.cut(path));
    manifest.modes.iter().for_each(|(path, mode)| m.tree.mode(path, *mode));
    manifest.times.iter().for_each(|(path, seconds)| m.tree.time(path, *seconds));
}

/// PATH as shells have it after all activations; everything said in `env` counts more.
fn environment(m: Machine<'_>) -> BTreeMap<String, String> {
    let mut path: Vec<String> = m.path.clone();
    path.extend(m.manifest.path.iter().cloned());
    path.push(SYSTEM_PATH.to_owned());
    let mut vars = BTreeMap::from([("PATH".to_owned(), path.join(":")), ("HOME".to_owned(), "/root".to_owned())]);
    vars.extend(m.vars);
    vars.extend(m.manifest.env.clone());
    vars
}

fn library(m: &mut Machine<'_>, library: &Library) {
    let machine = if library.aarch64 { super::elf::AARCH64 } else { m.tree.machine };
    let mut elf = super::elf::Elf::library(machine, &library.soname);
    elf.needed = library.needed.iter().cloned().chain(["libc.so.6".to_owned()]).collect();
    elf.runpath.clone_from(&library.runpath);
    elf.defines.clone_from(&library.defines);
    elf.exports.clone_from(&library.exports);
    if let Some(cuda) = &library.cuda {
        elf.code = release::cudart_code(machine, cuda.parse().unwrap());
    }
    m.tree.file(&library.path, elf.say(&library.strings).bytes());
    if library.ldconfig {
        m.cache(&library.soname, &library.path);
    }
}

/// As torch and ninja leave it.
fn cached_op(m: &Machine<'_>, op: &CachedOp) {
    let folder = op.path.as_str();
    let name = folder.rsplit('/').next().unwrap();
    if let Some(torch) = &op.torch {
        let text = format!(
            "ninja_required_version = 1.3\ncxx = c++\n\ncommon_cflags = -DTORCH_EXTENSION_NAME={name} -DTORCH_API_INCLUDE_EXTENSION_H -isystem {torch}/include -isystem {torch}/include/torch/csrc/api/include -fPIC -std=c++17\nldflags = -shared -L{torch}/lib -lc10 -ltorch_cpu -ltorch\n\nrule compile\n  command = $cxx $common_cflags -c $in -o $out\n"
        );
        m.tree.file(&format!("{folder}/build.ninja"), text);
    }
    if let Some(built) = op.built {
        let mut elf = m.tree.library("");
        elf.needed = ["libc10.so", "libtorch_cpu.so", "libc.so.6"].map(str::to_owned).into();
        let of = |libc: bool| op.needs.iter().filter(|node| node.starts_with("GLIBC_") == libc).cloned().collect();
        elf.needs = vec![("libc.so.6".to_owned(), of(true)), ("libstdc++.so.6".to_owned(), of(false))];
        elf.needs.retain(|(_, nodes): &(String, Vec<String>)| !nodes.is_empty());
        elf.needed.push("libstdc++.so.6".to_owned());
        elf.device_code = containers(&op.device_code);
        let path = format!("{folder}/{name}.so");
        m.tree.file(&path, elf.bytes());
        m.tree.time(&path, built);
    }
    if let Some(lock) = op.lock {
        let path = format!("{folder}/lock");
        m.tree.file(&path, "");
        m.tree.time(&path, lock);
    }
}

/// The loader's cache in the form of glibc 2.32 and later.
fn loader_cache(entries: &[(String, String)], aarch64: bool) -> Vec<u8> {
    const HEADER: usize = 48;
    let mut entries = entries.to_vec();
    // ldconfig sorts names downwards.
    entries.sort_by(|a, b| b.0.cmp(&a.0));
    let flags: u32 = if aarch64 { 0x0a03 } else { 0x0303 };
    let names_at = HEADER + 24 * entries.len();
    let (mut table, mut names) = (Vec::new(), Vec::new());
    for (soname, path) in &entries {
        table.extend_from_slice(&flags.to_le_bytes());
        for text in [soname, path] {
            table.extend_from_slice(&((names_at + names.len()) as u32).to_le_bytes());
            names.extend_from_slice(text.as_bytes());
            names.push(0);
        }
        table.extend_from_slice(&[0; 12]);
    }
    let mut out = b"glibc-ld.so.cache1.1".to_vec();
    out.extend_from_slice(&(entries.len() as u32).to_le_bytes());
    out.extend_from_slice(&(names.len() as u32).to_le_bytes());
    // Little-endian, and no extensions.
    out.extend_from_slice(&[2, 0, 0, 0]);
    out.extend_from_slice(&[0; 16]);
    out.extend(table);
    out.extend(names);
    out
}
