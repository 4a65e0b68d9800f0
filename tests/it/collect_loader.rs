//! Libraries and the loader's own facts as collected, against `ldconfig`, the loader itself, `readelf` and the packages' records.

use crate::util::{lab, trial_with};
use ds_doctor::collect::{loader, python};
use ds_doctor::facts::loader::{FAMILIES, Library, LoaderFacts};
use ds_doctor::facts::observed::Observed;
use ds_doctor::facts::python::Interpreter;
use ds_doctor::facts::source::Source;
use ds_doctor::host::{Environment, Host, Live, Rooted};
use libtest_mimic::Trial;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn output(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).env("LC_ALL", "C").output().map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{program} does not run here"))
    }
}

fn live(env: &[(&str, &str)]) -> Live {
    Live::with_env(env.iter().map(|(k, v)| (k.into(), v.into())).collect())
}

fn collect(host: &dyn Host, toolkits: &[PathBuf], pythons: &[Interpreter]) -> LoaderFacts {
    let mut notes = Vec::new();
    let facts = loader::collect(host, toolkits, pythons, &mut notes);
    assert!(notes.is_empty(), "{notes:?}");
    facts.value().unwrap().clone()
}

fn is_family(name: &str) -> bool {
    FAMILIES.iter().any(|(_, start)| {
        let rest = name.strip_prefix(start);
        rest.is_some_and(|rest| rest.chars().all(|c| c == '.' || c.is_ascii_digit()))
    })
}

/// `ldconfig -p`: `libstdc++.so.6 (libc6,x86-64) => /lib/x86_64-linux-gnu/libstdc++.so.6`.
fn cache(printed: String) {
    let facts = collect(&live(&[]), &[], &[]);
    let theirs: Vec<(String, String)> = printed
        .lines()
        .filter_map(|line| line.trim().split_once(" => "))
        .filter(|(left, _)| left.contains("x86-64") || left.contains("AArch64"))
        .map(|(left, path)| (left.split(' ').next().unwrap().to_owned(), path.to_owned()))
        .filter(|(soname, _)| is_family(soname))
        .collect();
    let cache = facts.cache.value().unwrap();
    let ours: Vec<(String, String)> = cache.iter().map(|entry| (entry.soname.clone(), entry.path.to_string())).collect();
    assert_eq!(ours, theirs);
    for entry in cache {
        assert_eq!(entry.exists, entry.path.exists());
        let library = facts.libraries.iter().find(|library| library.path == entry.path).unwrap();
        assert!(library.sources.contains(&Source::LdCache));
        assert_eq!(*library.real, entry.path.canonicalize().unwrap());
    }
}

/// `ld.so --help` lists the folders that are built in (glibc 2.33 and later).
fn default_folders(help: String) {
    let theirs: Vec<&str> = help.lines().filter_map(|line| line.trim().strip_suffix(" (system search path)")).collect();
    let facts = collect(&live(&[]), &[], &[]);
    let ours: Vec<String> = facts.default_folders.iter().map(ToString::to_string).collect();
    assert_eq!(ours, theirs);
}

fn loader_help() -> Result<String, String> {
    let help = ["/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"].iter().find_map(|path| output(path, &["--help"]).ok());
    help.filter(|text| text.contains("(system search path)")).ok_or("the loader does not list its folders".to_owned())
}

fn readelf(library: &Library) -> (Option<String>, BTreeSet<String>) {
    let text = output("readelf", &["-dW", library.path.to_str().unwrap()]).unwrap();
    let bracket = |line: &str| Some(line.split_once('[')?.1.split_once(']')?.0.to_owned());
    let soname = text.lines().find(|line| line.contains("(SONAME)")).and_then(bracket);
    (soname, text.lines().filter(|line| line.contains("(NEEDED)")).filter_map(bracket).collect())
}

/// Every library of a real torch environment: found, and read as readelf reads it.
fn torch_libraries(folder: PathBuf) {
    let host = live(&[("LD_LIBRARY_PATH", "")]);
    let pythons = python::collect(&host, Some(&folder.join("bin/python")), &mut Vec::new());
    let pythons = pythons.value().unwrap();
    let facts = collect(&host, &[], pythons);
    let site = &pythons[0].site[0];
    let mut files = Vec::new();
    for name in fs::read_dir(site.join("nvidia")).unwrap().map(|entry| entry.unwrap().path().join("lib")).chain([site.join("torch/lib").0])
    {
        for entry in fs::read_dir(name).into_iter().flatten() {
            let path = entry.unwrap().path();
            if is_family(path.file_name().unwrap().to_str().unwrap()) {
                files.push(path);
            }
        }
    }
    let ours: BTreeSet<PathBuf> =
        facts.libraries.iter().map(|library| library.path.0.clone()).filter(|path| path.starts_with(site)).collect();
    assert!(ours.len() >= 10, "{ours:?}");
    assert_eq!(ours, files.into_iter().collect());
    for library in facts.libraries.iter().filter(|library| library.path.starts_with(site)) {
        let elf = library.elf.value().unwrap();
        let (soname, needed) = readelf(library);
        assert_eq!((&elf.soname, &elf.needed.iter().cloned().collect()), (&soname, &needed), "{}", library.path);
        assert!(elf.truncated.is_none());
        assert_eq!(library.size, fs::metadata(&library.path).unwrap().len());
        // The wheel's own list names the file with this size.
        assert_eq!(library.release_from, "package", "{}", library.path);
        let release = library.release.as_ref().unwrap();
        let below = library.path.strip_prefix(site).unwrap().display().to_string();
        let records = fs::read_dir(site).unwrap().map(|entry| entry.unwrap().path().join("RECORD")).filter(|path| path.is_file());
        let owner =
            records.filter(|path| fs::read_to_string(path).unwrap().contains(&format!("{below},"))).map(|path| path.display().to_string());
        let owner: Vec<String> = owner.collect();
        assert_eq!(owner.len(), 1, "{owner:?}");
        assert!(owner[0].contains(&format!("-{}.dist-info", release.text)), "{} {owner:?}", release.text);
        assert!(matches!(&library.sources[0], Source::Beside { .. } | Source::Pip { .. }));
    }
}

/// Wheels that write over each other: the one whose list has the file's size is what lies there.
fn two_wheels_in_one_folder(folder: PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().canonicalize().unwrap();
    let site = dir.join("lib/python3.11/site-packages");
    let source = find(&folder, "libcudart.so.13");
    fs::create_dir_all(site.join("nvidia/nccl/lib")).unwrap();
    fs::create_dir_all(dir.join("bin")).unwrap();
    fs::copy(&source, site.join("nvidia/nccl/lib/libnccl.so.2")).unwrap();
    let size = fs::metadata(&source).unwrap().len();
    for (name, size) in [("nvidia_nccl_cu12-2.21.5", 17), ("nvidia_nccl_cu13-2.28.9", size)] {
        let info = site.join(format!("{name}.dist-info"));
        fs::create_dir(&info).unwrap();
        fs::write(info.join("RECORD"), format!("nvidia/nccl/lib/libnccl.so.2,sha256=x,{size}\n")).unwrap();
    }
    let home = folder.join("bin/python").canonicalize().unwrap();
    fs::write(dir.join("pyvenv.cfg"), format!("home = {}\nversion = 3.11.7\n", home.parent().unwrap().display())).unwrap();
    std::os::unix::fs::symlink(&home, dir.join("bin/python3")).unwrap();
    let host = live(&[]);
    let pythons = python::collect(&host, Some(&dir), &mut Vec::new());
    let facts = collect(&host, &[], pythons.value().unwrap());
    let nccl = facts.at(&site.join("nvidia/nccl/lib"), "libnccl.so.2").unwrap();
    assert_eq!((nccl.release.as_ref().map(|r| r.text.as_str()), nccl.release_from.as_str()), (Some("2.28.9"), "package"));
}

fn find(below: &Path, name: &str) -> PathBuf {
    let mut folders = vec![below.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.file_name().is_some_and(|n| n == name) {
                return path;
            }
            if path.is_dir() && !path.is_symlink() {
                folders.push(path);
            }
        }
    }
    panic!("no {name} below {}", below.display());
}

/// A libcudart outside any package and without a number in its name: only its code tells.
fn cudart_code(folder: PathBuf) {
    let mut releases = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let release = entry.unwrap();
        let major = release.file_name().to_string_lossy().split('.').next().unwrap().to_owned();
        let soname = if major == "11" { "libcudart.so.11.0".to_owned() } else { format!("libcudart.so.{major}") };
        let library = find(&release.path(), &soname);
        let lib = library.parent().unwrap();
        let facts = collect(&live(&[("LD_LIBRARY_PATH", lib.to_str().unwrap())]), &[], &[]);
        let own = facts.at(lib, &soname).unwrap();
        assert_eq!(own.release.as_ref().map(|r| r.text.clone()), Some(release.file_name().to_string_lossy().into_owned()));
        assert_eq!(own.release_from, "code");
        assert_eq!(own.sources, [Source::entry("LD_LIBRARY_PATH", 1)]);
        releases += 1;
    }
    assert!(releases > 3, "{releases}");
}

/// A driver that Debian's packages laid out, seen from outside its tree.
fn driver(root: PathBuf) {
    let host = Rooted::new(&root, Environment::new()).unwrap();
    let facts = collect(&host, &[], &[]);
    let cuda: Vec<&Library> = facts.of("cuda").collect();
    assert!(!cuda.is_empty(), "{:?}", facts.libraries);
    for library in cuda.into_iter().filter(|library| library.elf.value().is_some()) {
        assert!(library.release.as_ref().unwrap().text.starts_with("535."), "{library:?}");
        assert!(library.real.starts_with("/"));
        assert!(matches!(library.elf, Observed::Seen { .. }));
    }
}

pub fn trials() -> Vec<Trial> {
    vec![
        trial_with("collect_loader::the_cache_is_ldconfigs", output("ldconfig", &["-p"]), cache),
        trial_with("collect_loader::default_folders_are_the_loaders", loader_help(), default_folders),
        trial_with("collect_loader::torchs_libraries_are_all_found_and_read", lab("torch-venv"), torch_libraries),
        trial_with("collect_loader::of_two_wheels_the_one_that_wrote_last_counts", lab("torch-venv"), two_wheels_in_one_folder),
        trial_with("collect_loader::a_libcudart_without_a_name_is_dated_by_its_code", lab("cudart"), cudart_code),
        trial_with("collect_loader::a_driver_in_a_tree", lab("deb-driver"), driver),
    ]
}
