//! The NCCL test against a fake NCCL that really moves the values between its ranks.

mod check;
mod command;
mod fake_machine;
mod faults;

use crate::fake::{build, compile, compiler};
use crate::util::{BINARY, trial_with};
use ds_doctor::facts::nccl::{End, Member, Op, Row, Run, Stage, Step};
use ds_doctor::facts::raw::HostPath;
use ds_doctor::gpu::client::Client;
use ds_doctor::gpu::nccl::client::{Opened, Plan, Watched};
use libtest_mimic::Trial;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Both libraries, compiled once.
fn built() -> &'static Path {
    static BUILT: OnceLock<tempfile::TempDir> = OnceLock::new();
    BUILT
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            compile("nccl.c", &folder.path().join("libnccl.so.2"), &[]);
            compile("cuda.c", &folder.path().join("libcuda.so.1"), &[]);
            folder
        })
        .path()
}

/// A machine of fake libraries: what they answer, and where the ranks meet.
struct Fake {
    folder: tempfile::TempDir,
    limit: Duration,
}

impl Fake {
    /// `nccl` and `cuda`: the scripts.
    fn new(nccl: &str, cuda: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nccl"), format!("{nccl}\nshared {}\n", folder.path().display())).unwrap();
        std::fs::write(folder.path().join("cuda"), format!("{cuda}\ncount 8\n")).unwrap();
        Self { folder, limit: Duration::from_secs(30) }
    }

    fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    fn client(&self) -> Client {
        Client::new(Some(built().as_os_str()), self.limit)
            .with_program(BINARY)
            .with_env("FAKE_NCCL", self.folder.path().join("nccl"))
            .with_env("FAKE_CUDA", self.folder.path().join("cuda"))
    }

    fn run(&self, ranks: u32, sizes: &[u64]) -> Run {
        self.watched(ranks, sizes, &mut |_| ())
    }

    fn watched(&self, ranks: u32, sizes: &[u64], watch: &mut dyn FnMut(Watched<'_>)) -> Run {
        let library = HostPath::new(built().join("libnccl.so.2"));
        let devices: Vec<u32> = (0..ranks).collect();
        let plan = Plan { library: &library, driver: "libcuda.so.1", devices: &devices, sizes, limit: self.limit };
        self.client().nccl_run(&plan, watch)
    }

    fn open(&self, library: &Path, driver: Option<&str>) -> Opened {
        self.client().nccl_open(&HostPath::new(library), driver, self.limit, &mut |_| ())
    }

    /// Files that the ranks left where they meet.
    fn left(&self) -> usize {
        std::fs::read_dir(self.folder.path()).unwrap().count() - 2
    }
}

/// Another build of the fake, in a folder of its own.
fn other(options: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libnccl.so.2");
    build("nccl.c", &library, options);
    (folder, library)
}

fn ends(run: &Run) -> Vec<&End> {
    run.ranks.iter().map(|member| &member.end).collect()
}

fn row(run: &Run, op: Op, bytes: u64) -> &Row {
    run.rows.iter().find(|row| (row.op, row.bytes) == (op, bytes)).unwrap_or_else(|| panic!("no {op:?} of {bytes}: {run:#?}"))
}

fn faked(name: &str, run: impl FnOnce() + Send + 'static) -> Trial {
    trial_with(&format!("nccl::{name}"), compiler(), move |()| run())
}

pub fn trials() -> Vec<Trial> {
    let mut trials = vec![
        faked("opening_tells_version_and_gpus", || {
            let fake = Fake::new("version 22105", "0.name NVIDIA H100\n1.bus 0000:2A:00.0\ncount 2");
            let opened = fake.open(&built().join("libnccl.so.2"), Some("libcuda.so.1"));
            assert_eq!(opened.member.end, End::Done);
            assert_eq!(opened.version.unwrap().text, "2.21.5");
            let devices = opened.devices.unwrap();
            let told: Vec<_> = devices.iter().map(|d| (d.ordinal, d.name.as_deref().unwrap(), d.bus.as_deref().unwrap())).collect();
            assert_eq!(told, [(0, "NVIDIA H100", "0000:18:00.0"), (1, "NVIDIA Fake", "0000:2a:00.0")]);
        }),
        faked("opening_asks_no_driver_where_there_is_none", || {
            let opened = Fake::new("", "cuInit.act crash").open(&built().join("libnccl.so.2"), None);
            assert_eq!((opened.member.end, opened.member.last, opened.devices), (End::Done, Some(Step::UniqueId), None));
        }),
    ];
    for ranks in [1, 2, 3, 5] {
        trials.push(faked(&format!("all_operations_of_all_sizes_with_{ranks}_ranks"), move || whole(ranks)));
    }
    trials.extend(check::trials());
    trials.extend(command::trials());
    trials.extend(faults::trials());
    trials
}

/// Up to more than one piece of the fake's.
const SIZES: [u64; 4] = [8, 256, 8192, 524_288];

fn whole(ranks: u32) {
    let fake = Fake::new("", "");
    let mut steps = Vec::new();
    let begin = Instant::now();
    let run = fake.watched(ranks, &SIZES, &mut |watched| {
        if let Watched::At { rank: 0, step } = watched {
            steps.push(step);
        }
    });
    let wall = begin.elapsed().as_secs_f64();
    assert!(ends(&run).iter().all(|end| **end == End::Done), "{run:#?}");
    assert_eq!((run.ranks.len(), run.hung, run.rows.len()), (ranks as usize, None, Op::ALL.len() * SIZES.len()));
    assert!(run.rows.iter().all(|row| row.wrong.is_empty()), "{run:#?}");
    let devices: Vec<Option<u32>> = run.ranks.iter().map(|member| member.device).collect();
    assert_eq!(devices, (0..ranks).map(Some).collect::<Vec<_>>());
    let measured: f64 = run.rows.iter().map(|row| row.seconds).sum();
    assert!(run.rows.iter().all(|row| row.seconds > 0.0) && measured < wall, "{measured} of {wall}");
    // A size that does not divide among the ranks is rounded to what does, as the row says.
    let part = u64::from(ranks) * 4;
    for asked in SIZES {
        assert_eq!(row(&run, Op::AllReduce, asked).ranks, ranks as usize);
        row(&run, Op::AllGather, (asked / part * part).max(part));
    }
    assert!(steps.is_sorted(), "{steps:?}");
    let first = Step::Collective { op: Op::AllReduce, bytes: 8, stage: Stage::Fill };
    assert_eq!(steps[..6], [Step::Open, Step::UniqueId, Step::Driver, Step::Context, Step::Memory, Step::Init]);
    assert_eq!((steps[6], steps.last().unwrap()), (first, &Step::Close));
    assert_eq!(fake.left(), 0);
}

fn member(run: &Run, rank: usize) -> &Member {
    &run.ranks[rank]
}
