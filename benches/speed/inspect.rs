//! `inspect` beside cuobjdump, and a wheel beside what unzips one.

use super::{Subject, report, show, subject};
use ds_doctor::binary::FileAt;
use ds_doctor::binary::fatbin::device_code;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

const SITE: &str = "torch-venv/lib/python3.11/site-packages";
const CUOBJDUMP: &str = "device-code/nvidia/cu13/bin/cuobjdump";
/// Members of the wheel that is made: real libraries with device code.
const MEMBERS: &str = "device-code/site/bitsandbytes";

pub fn run(doctor: &Path, lab: Option<&Path>) {
    let part = |name: &str| lab.map(|lab| lab.join(name)).filter(|path| path.exists());
    match part(SITE) {
        Some(site) => torch(doctor, &site, part("torch-venv/bin/python3").as_deref(), part(CUOBJDUMP).as_deref()),
        None => println!("skipped: torch's libraries: $DS_DOCTOR_LAB holds no torch-venv"),
    }
    match part(MEMBERS) {
        Some(folder) => wheel(doctor, &folder),
        None => println!("skipped: a wheel: $DS_DOCTOR_LAB holds no device-code"),
    }
}

fn torch(doctor: &Path, site: &Path, python: Option<&Path>, cuobjdump: Option<&Path>) {
    let library = site.join("torch/lib/libtorch_cuda.so");
    let path = library.to_str().expect("a path in UTF-8");
    let all = site.to_str().expect("a path in UTF-8");
    in_process(&library);
    let list = report(&subject("inspect --list libtorch_cuda.so", doctor, &["inspect", "--list", path], &[], 50));
    report(&subject("inspect --expect 8.0 libtorch_cuda.so", doctor, &["inspect", "--expect", "8.0", path], &[], 30));
    if let Some(python) = python.and_then(Path::to_str) {
        report(&subject("inspect libtorch_cuda.so, loading judged", doctor, &["inspect", "--python", python, path], &[], 30));
        report(&subject("inspect site-packages, loading judged", doctor, &["inspect", "--python", python, all], &[], 10));
    }
    report(&subject("inspect --list site-packages", doctor, &["inspect", "--list", all], &[], 10));
    let Some(cuobjdump) = cuobjdump else { return println!("skipped: cuobjdump: $DS_DOCTOR_LAB holds no device-code") };
    // It takes seconds and gigabytes.
    let other = report(&subject("cuobjdump -lelf libtorch_cuda.so", cuobjdump, &["-lelf", path], &[], 3));
    report(&subject("cuobjdump -all -lelf -lptx libtorch_cuda.so", cuobjdump, &["-all", "-lelf", "-lptx", path], &[], 1));
    if let (Some(list), Some(other)) = (list, other) {
        println!("inspect --list is {:.0} times as fast as cuobjdump -lelf", other.as_secs_f64() / list.as_secs_f64());
    }
}

/// The reading alone, without a process around it.
fn in_process(library: &Path) {
    let once = || {
        let start = Instant::now();
        let file = File::open(library).expect("the library opens");
        let length = file.metadata().expect("its length").len();
        let code = device_code(&FileAt::new(file, length)).expect("its device code").expect("it has some");
        (start.elapsed(), code.entries)
    };
    let mut times: Vec<(Duration, u64)> = (0..200).map(|_| once()).collect();
    times.sort_unstable();
    let (best, median) = (times.first().expect("one"), times.get(100).expect("one"));
    println!("{:<52} {:>10} {:>10} {:>9}", format!("{} entries of libtorch_cuda.so, in process", best.1), show(best.0), show(median.0), "");
}

fn wheel(doctor: &Path, members: &Path) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("bits-1.0-py3-none-any.whl");
    let unpacked = make(&path, members);
    let path = path.to_str().expect("a path in UTF-8");
    let subjects: [Subject; 4] = [
        subject("inspect wheel", doctor, &["inspect", "--expect", "8.0", path], &[], 10),
        subject("unzip -tq", Path::new("unzip"), &["-tq", path], &[], 10),
        subject("unzip -p > /dev/null", Path::new("unzip"), &["-p", path], &[], 10),
        subject("Python's zipfile, every member read", Path::new("python3"), &["-c", READ, path], &[], 5),
    ];
    println!(
        "a wheel of {} MB, {} MB unpacked:",
        PathBuf::from(path).metadata().map_or(0, |meta| meta.len()) / 1_000_000,
        unpacked / 1_000_000
    );
    let times: Vec<Option<Duration>> = subjects.iter().map(report).collect();
    let rate = |time: &Option<Duration>| time.map_or(0.0, |time| unpacked as f64 / 1e6 / time.as_secs_f64());
    println!("unpacked MB/s: {}", times.iter().map(|time| format!("{:.0}", rate(time))).collect::<Vec<_>>().join(", "));
}

const READ: &str =
    "import sys, zipfile\nz = zipfile.ZipFile(sys.argv[1])\nfor m in z.infolist():\n    f = z.open(m)\n    while f.read(1 << 20): pass";

/// Deflates the libraries of a folder as wheels are; the bytes that they have.
fn make(path: &Path, members: &Path) -> u64 {
    let mut wheel = zip::ZipWriter::new(File::create(path).expect("a file"));
    let mut unpacked = 0;
    let entries = members.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path());
    for member in entries.filter(|path| path.extension().is_some_and(|ending| ending == "so")) {
        let name = member.file_name().expect("a name").to_string_lossy().into_owned();
        let bytes = std::fs::read(&member).expect("the library");
        unpacked += bytes.len() as u64;
        wheel
            .start_file(format!("bits/{name}"), SimpleFileOptions::default().compression_method(CompressionMethod::Deflated))
            .expect("a member");
        wheel.write_all(&bytes).expect("its bytes");
    }
    wheel.finish().expect("the end");
    unpacked
}
