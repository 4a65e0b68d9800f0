//! How long a user waits, beside what they use today, in one run on one machine: ratios count, not milliseconds.
//!
//! `cargo bench` measures `check --static` on this machine and, where `$DS_DOCTOR_LAB` holds the virtual environment with torch and
//! DeepSpeed and a whole toolkit, on that, next to `ds_report`, torch's collect_env and `nvcc --version`. What is measured of `inspect`
//! stands in `speed/inspect.rs`. Each figure is the best of several runs, warm; the peak of resident memory is what GNU `time` says, where
//! that is installed. `cargo bench --bench speed -- inspect` runs that part alone. What the lab lacks is named as skipped.
#![allow(
    clippy::print_stdout,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints, and stops where it cannot go on"
)]

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

#[path = "speed/inspect.rs"]
mod inspect;

struct Subject {
    name: String,
    program: PathBuf,
    args: Vec<OsString>,
    env: Vec<(&'static str, OsString)>,
    runs: usize,
}

fn main() {
    let doctor = PathBuf::from(env!("CARGO_BIN_EXE_ds-doctor"));
    let lab = std::env::var_os("DS_DOCTOR_LAB").map(PathBuf::from).or_else(|| {
        let home = std::env::var_os("HOME")?;
        Some(Path::new(&home).join(".cache/ds-doctor-lab"))
    });
    println!("{:<52} {:>10} {:>10} {:>9}", "", "best", "median", "peak RSS");
    if !std::env::args().any(|arg| arg == "inspect") {
        machines(&doctor, lab.as_deref());
    }
    inspect::run(&doctor, lab.as_deref());
}

fn machines(doctor: &Path, lab: Option<&Path>) {
    let mut subjects = vec![
        subject("check --static, this machine", doctor, &["check", "--static"], &[], 30),
        subject("arch-list --gpu h100", doctor, &["arch-list", "--gpu", "h100"], &[], 30),
        subject("list", doctor, &["list"], &[], 30),
        subject("--version", doctor, &["--version"], &[], 30),
    ];
    match lab.filter(|lab| lab.join("torch-venv/bin/python3").exists() && lab.join("full-cu130/nvidia/cu13/bin/nvcc").exists()) {
        Some(lab) => subjects.extend(with_lab(doctor, lab)),
        None => println!("skipped: torch, DeepSpeed and a toolkit: $DS_DOCTOR_LAB holds no torch-venv and full-cu130"),
    }
    for subject in &subjects {
        report(subject);
    }
}

/// Measures it and prints its line; the best time.
fn report(subject: &Subject) -> Option<Duration> {
    let measured = measure(subject);
    match measured {
        Some((best, median)) => println!("{:<52} {:>10} {:>10} {:>9}", subject.name, show(best), show(median), memory(subject)),
        None => println!("{:<52} does not run here", subject.name),
    }
    measured.map(|(best, _)| best)
}

fn with_lab(doctor: &Path, lab: &Path) -> Vec<Subject> {
    let venv = lab.join("torch-venv/bin");
    let home = lab.join("full-cu130/nvidia/cu13");
    let path: OsString = [venv.as_os_str(), ":".as_ref(), home.join("bin").as_os_str(), ":/usr/bin:/bin".as_ref()].concat_os();
    let env = [("PATH", path), ("CUDA_HOME", home.clone().into()), ("TORCH_CUDA_ARCH_LIST", "9.0".into())];
    let python = venv.join("python3");
    vec![
        subject("check --static, torch + DeepSpeed + toolkit", doctor, &["check", "--static"], &env, 30),
        subject("fix --print-exports, the same", doctor, &["fix", "--print-exports"], &env, 30),
        subject("ops, the same", doctor, &["ops", "--env", "DS_ACCELERATOR=cuda"], &env, 30),
        subject("nvcc --version", &home.join("bin/nvcc"), &["--version"], &env, 30),
        subject("ds_report", &python, &["-m", "deepspeed.env_report"], &env, 3),
        subject("torch.utils.collect_env", &python, &["-m", "torch.utils.collect_env"], &env, 3),
    ]
}

trait Concat {
    fn concat_os(&self) -> OsString;
}

impl<const N: usize> Concat for [&std::ffi::OsStr; N] {
    fn concat_os(&self) -> OsString {
        let mut all = OsString::new();
        for part in self {
            all.push(part);
        }
        all
    }
}

fn subject(name: &str, program: &Path, args: &[&str], env: &[(&'static str, OsString)], runs: usize) -> Subject {
    Subject { name: name.to_owned(), program: program.to_owned(), args: args.iter().map(OsString::from).collect(), env: env.to_vec(), runs }
}

fn command(subject: &Subject, program: &Path) -> Command {
    let mut command = Command::new(program);
    command.envs(subject.env.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// One run to warm the page cache, then the best and the median.
fn measure(subject: &Subject) -> Option<(Duration, Duration)> {
    let once = || {
        let start = Instant::now();
        let status = command(subject, &subject.program).args(&subject.args).status().ok()?;
        status.code().map(|_| start.elapsed())
    };
    once()?;
    let mut times: Vec<Duration> = (0..subject.runs).filter_map(|_| once()).collect();
    times.sort_unstable();
    Some((*times.first()?, *times.get(times.len() / 2)?))
}

fn show(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// From GNU time's `%M`, in KiB.
fn memory(subject: &Subject) -> String {
    let mut time = command(subject, Path::new("/usr/bin/time"));
    time.args(["-f", "%M"]).arg(&subject.program).args(&subject.args).stderr(Stdio::piped());
    let Ok(output) = time.output() else { return "?".to_owned() };
    let text = String::from_utf8_lossy(&output.stderr);
    match text.lines().last().and_then(|line| line.trim().parse::<u64>().ok()) {
        Some(kib) => format!("{} MiB", kib / 1024),
        None => "?".to_owned(),
    }
}
