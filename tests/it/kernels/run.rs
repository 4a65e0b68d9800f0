//! The kernels run on fake GPUs: a fake driver that computes on the CPU, and a library in the place of the built one.

use super::faked;
use crate::fake::build;
use crate::util::BINARY;
use ds_doctor::facts::gpu::Status;
use ds_doctor::facts::kernel::{CallFailed, DeviceRun, Execution, Fault, Gpu, KernelVerdict, Listing, Outcome, Ran, Way};
use ds_doctor::gpu::Kernels;
use ds_doctor::gpu::client::Client;
use ds_doctor::version::{Capability, CudaVersion};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const ALL: [&str; 8] = ["vector-add", "reduce", "atomics", "fp16", "bf16", "tensor", "cooperative", "copy"];
const TWO: &str = "count 2\n0.name NVIDIA H100\n1.name NVIDIA H100\n";

/// The libraries, compiled once: they answer from the script that the worker's environment names.
fn fakes() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("kernels-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        build("cuda.c", &folder.join("libcuda.so.1"), &["-O1"]);
        build("built.c", &folder.join("probe.so"), &["-O1"]);
        folder
    })
}

/// A fake machine: what driver and runtime answer from, and what was built.
struct Machine {
    folder: tempfile::TempDir,
    driver: PathBuf,
    kernels: Kernels,
    limit: Duration,
    env: Vec<(&'static str, String)>,
    known: Vec<Gpu>,
}

impl Machine {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        file("script", script);
        let cubins = [52, 61, 80, 90].map(|sm| file(&format!("sm_{sm}.cubin"), &format!("cubin {sm}"))).into();
        let ptx = [61, 80, 90].map(|sm| file(&format!("{sm}.ptx"), &format!("//\n.version 9.0\n.target sm_{sm}\n"))).into();
        let kernels =
            Kernels { library: fakes().join("probe.so"), cubins, ptx, seed: Some(7), copy_bytes: Some(1 << 16), ..Kernels::default() };
        Self { folder, driver: fakes().to_owned(), kernels, limit: Duration::from_secs(60), env: Vec::new(), known: Vec::new() }
    }

    fn env(mut self, name: &'static str, value: &str) -> Self {
        self.env.push((name, value.to_owned()));
        self
    }

    /// The library is not there: that way ends at once.
    fn driver_only(mut self) -> Self {
        self.kernels.library = "/none/probe.so".into();
        self
    }

    fn limit(mut self, millis: u64) -> Self {
        self.limit = Duration::from_millis(millis);
        self
    }

    /// NVML knows this many GPUs.
    fn known(mut self, count: u32) -> Self {
        let uuid = |ordinal| Some(format!("GPU-{ordinal:08}-0000-0000-0000-000000000000"));
        self.known = (0..count).map(|ordinal| Gpu { ordinal, uuid: uuid(ordinal), ..Gpu::default() }).collect();
        self
    }

    fn run(&self) -> Execution {
        let script = self.folder.path().join("script");
        let mut client = Client::new(Some(self.driver.as_os_str()), self.limit)
            .with_program(BINARY)
            .with_env("FAKE_CUDA", &script)
            .with_env("FAKE_CUDART", &script);
        for (name, value) in &self.env {
            client = client.with_env(*name, value);
        }
        client.run(&self.kernels, &self.known)
    }
}

fn ran(run: &DeviceRun, way: Way) -> &Ran {
    match run.way(way) {
        Some(Outcome::Ran(ran)) => ran,
        other => panic!("{way}: {other:?}"),
    }
}

/// Names of the kernels that passed.
fn passed(ran: &Ran) -> Vec<&str> {
    ran.kernels.iter().filter(|k| k.verdict == KernelVerdict::Passed).map(|k| k.name.as_str()).collect()
}

fn verdict<'a>(ran: &'a Ran, name: &str) -> &'a KernelVerdict {
    &ran.kernels.iter().find(|kernel| kernel.name == name).unwrap().verdict
}

fn failed(call: &str, code: u32, name: &str) -> CallFailed {
    CallFailed { call: call.to_owned(), status: Status { code, name: name.to_owned() }, words: None }
}

fn gpus(execution: &Execution) -> Vec<(u32, &str)> {
    execution.devices.iter().map(|run| (run.gpu.ordinal, run.gpu.uuid.as_deref().unwrap_or("").get(..12).unwrap_or(""))).collect()
}

pub fn trials() -> Vec<Trial> {
    [healthy(), masks(), wrong(), refusals(), faults()].into_iter().flatten().collect()
}

fn healthy() -> Vec<Trial> {
    vec![
        faked("kernels::every_way_on_every_gpu", || {
            let execution =
                Machine::new("count 2\n0.name NVIDIA H100\n1.name GTX 1080\n1.capability 61\n1.clock 5005000\n1.width 256\n").run();
            let Listing::Listed { library, cuda } = &execution.listing else { panic!("{execution:?}") };
            assert_eq!((library.asked.as_str(), *cuda), ("libcuda.so.1", Some(CudaVersion::new(12, 4))));
            let [hopper, pascal] = execution.devices.as_slice() else { panic!("{execution:?}") };
            assert!(hopper.proven() && pascal.proven(), "{execution:?}");
            assert_eq!((hopper.gpu.name.as_deref(), hopper.gpu.capability), (Some("NVIDIA H100"), Some(Capability::new(9, 0))));
            assert_eq!(hopper.gpu.uuid.as_deref(), Some("GPU-00000000-0000-0000-0000-000000000000"));
            // 2.619 GHz, 5120 bits, two transfers a clock; 5.005 GHz and 256 bits.
            let round = |figure: Option<f64>| figure.map(f64::round);
            assert_eq!((round(hopper.gpu.bandwidth), round(pascal.gpu.bandwidth)), (Some(3352.0), Some(320.0)));
            for way in Way::ALL {
                assert_eq!(passed(ran(hopper, way)), ALL, "{way}");
                assert_eq!(passed(ran(pascal, way)), ["vector-add", "reduce", "atomics", "fp16", "cooperative", "copy"], "{way}");
                assert!(ran(hopper, way).bandwidth.is_some_and(|speed| speed > 0.0));
            }
            let why = KernelVerdict::Skipped { why: "needs compute capability 7.0".to_owned() };
            assert_eq!(verdict(ran(pascal, Way::Cubin), "tensor"), &why);
            assert_eq!(ran(hopper, Way::Runtime).runtime, Some(CudaVersion::new(13, 0)));
            let loaded = |run, way| ran(run, way).loaded.as_ref().unwrap().file_name().unwrap().to_string_lossy().into_owned();
            assert_eq!((loaded(hopper, Way::Cubin), loaded(pascal, Way::Cubin)), ("sm_90.cubin".to_owned(), "sm_61.cubin".to_owned()));
            assert_eq!((loaded(hopper, Way::Ptx), loaded(pascal, Way::Ptx)), ("90.ptx".to_owned(), "61.ptx".to_owned()));
        }),
        faked("kernels::the_best_image_that_fits_is_taken", || {
            let execution = Machine::new("count 1\n0.capability 89\n").run();
            let ada = &execution.devices[0];
            assert!(ran(ada, Way::Cubin).loaded.as_ref().unwrap().ends_with("sm_80.cubin"), "{ada:?}");
            assert!(ran(ada, Way::Ptx).loaded.as_ref().unwrap().ends_with("80.ptx"), "{ada:?}");
        }),
        faked("kernels::what_was_not_made_is_skipped", || {
            let mut machine = Machine::new("count 1\n");
            machine.kernels.cubins.clear();
            machine.kernels.ptx.clear();
            let run = &machine.run().devices[0];
            assert_eq!(run.way(Way::Cubin), Some(&Outcome::Skipped { why: "no cubin was made".to_owned() }));
            assert_eq!(run.way(Way::Ptx), Some(&Outcome::Skipped { why: "no PTX was made".to_owned() }));
            assert!(run.proven());
            let old = &Machine::new("count 1\n0.capability 50\n").run().devices[0];
            let why = "no PTX was made that compute capability 5.0 can take".to_owned();
            assert_eq!(old.way(Way::Ptx), Some(&Outcome::Skipped { why }));
            // And no cubin fits: the driver's word.
            assert_eq!(
                old.way(Way::Cubin),
                Some(&Outcome::Failed { failed: failed("cuModuleLoadDataEx", 209, "CUDA_ERROR_NO_BINARY_FOR_GPU") })
            );
        }),
    ]
}

fn masks() -> Vec<Trial> {
    vec![
        faked("kernels::the_mask_is_the_drivers_to_apply", || {
            let see = |mask: &str| Machine::new("count 3\n").env("CUDA_VISIBLE_DEVICES", mask).run();
            let execution = see("2,0");
            assert_eq!(gpus(&execution), [(0, "GPU-00000002"), (1, "GPU-00000000")]);
            assert!(execution.devices.iter().all(DeviceRun::proven), "{execution:?}");
            let one = see("GPU-00000001");
            assert_eq!((gpus(&one), one.devices[0].proven()), (vec![(0, "GPU-00000001")], true));
            let none = see("-1");
            assert!(matches!(&none.listing, Listing::Failed { failed, .. } if failed.status.code == 100), "{none:?}");
            assert_eq!(none.devices, []);
        }),
        faked("kernels::a_mig_instance_goes_by_its_own_uuid", || {
            let instance = "MIG-0a0b0c0d-0000-0000-0000-000000000001";
            let execution = Machine::new(&format!("count 2\n0.instance {instance}\n")).run();
            assert_eq!(execution.devices[0].gpu.uuid.as_deref(), Some(instance));
            assert!(execution.devices.iter().all(DeviceRun::proven), "{execution:?}");
        }),
        faked("kernels::a_driver_that_tells_no_uuid", || {
            let execution = Machine::new("count 2\ncuDeviceGetUuid 1\n").run();
            assert_eq!(gpus(&execution), [(0, ""), (1, "")]);
            assert!(execution.devices.iter().all(DeviceRun::proven), "{execution:?}");
        }),
    ]
}

fn wrong() -> Vec<Trial> {
    vec![
        faked("kernels::a_wrong_value_of_each_kernel_is_found", || {
            let symbol = |name: &str| format!("ds_{}", name.replace('-', "_"));
            let spoilt: String = ALL.iter().map(|name| format!("1.{}.wrong 3\n", symbol(name))).collect();
            let execution = Machine::new(&format!("{TWO}{spoilt}")).run();
            let [fine, bad] = execution.devices.as_slice() else { panic!("{execution:?}") };
            assert!(fine.proven() && !bad.proven());
            for (way, name) in Way::ALL.into_iter().flat_map(|way| ALL.map(|name| (way, name))) {
                let KernelVerdict::Wrong { wrong, index, expected, got, .. } = verdict(ran(bad, way), name) else { panic!("{bad:?}") };
                // The word that is spoilt holds two halves.
                let at = if name.ends_with("16") { 6 } else { 3 };
                assert_eq!((*wrong, *index), (1, at), "{way} {name}");
                assert_ne!(expected, got);
            }
        }),
        faked("kernels::a_wrong_value_spoils_no_other_kernel", || {
            let run = &Machine::new("count 1\nds_reduce.wrong 0\n").run().devices[0];
            assert_eq!(passed(ran(run, Way::Cubin)).len(), ALL.len() - 1);
            assert!(!run.proven());
        }),
        faked("kernels::the_values_do_not_depend_on_chance", || {
            for seed in [0, u64::MAX] {
                let mut machine = Machine::new("count 1\n").driver_only();
                machine.kernels.ptx.clear();
                machine.kernels.seed = Some(seed);
                let execution = machine.run();
                assert!(ran(&execution.devices[0], Way::Cubin).passed() && execution.seed == seed, "{execution:?}");
            }
        }),
    ]
}

fn refusals() -> Vec<Trial> {
    let mut trials: Vec<Trial> = [
        (34, "CUDA_ERROR_STUB_LIBRARY"),
        (35, "CUDA_ERROR_INSUFFICIENT_DRIVER"),
        (100, "CUDA_ERROR_NO_DEVICE"),
        (802, "CUDA_ERROR_SYSTEM_NOT_READY"),
        (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
        (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE"),
        (999, "CUDA_ERROR_UNKNOWN"),
        (4711, ""),
    ]
    .into_iter()
    .map(|(code, name)| {
        faked(&format!("kernels::init_answers_{code}"), move || {
            let execution = Machine::new(&format!("count 2\ncuInit {code}\n")).known(2).run();
            let Listing::Failed { failed: told, .. } = &execution.listing else { panic!("{execution:?}") };
            assert_eq!(told, &failed("cuInit", code, name));
            // What may be one GPU's fault is tried on each by itself.
            assert_eq!(execution.devices.len(), if [34, 35, 100, 803, 804].contains(&code) { 0 } else { 2 });
            for run in &execution.devices {
                assert_eq!(run.way(Way::Cubin), Some(&Outcome::Failed { failed: failed("cuInit", code, name) }));
            }
        })
    })
    .collect();
    trials.extend([
        faked("kernels::one_bad_gpu_hides_no_other", || {
            let execution = Machine::new("count 3\n1.cuInit 999\n1.cudaGetDeviceCount 999\n").known(3).run();
            assert!(matches!(&execution.listing, Listing::Failed { failed, .. } if failed.status.code == 999));
            let [first, bad, third] = execution.devices.as_slice() else { panic!("{execution:?}") };
            assert!(first.proven() && third.proven(), "{execution:?}");
            assert_eq!(bad.way(Way::Ptx), Some(&Outcome::Failed { failed: failed("cuInit", 999, "CUDA_ERROR_UNKNOWN") }));
        }),
        faked("kernels::a_gpu_in_use_is_left_alone", || {
            for (script, words) in [
                ("1.cuDevicePrimaryCtxRetain 46\n1.cudaSetDevice 46\n", "another program holds it"),
                ("1.cuDevicePrimaryCtxRetain 2\n1.cudaSetDevice 2\n", "its memory is full"),
                ("1.free 100\n", "only 100 MB of its memory are free"),
            ] {
                let execution = Machine::new(&format!("{TWO}{script}")).run();
                let [free, taken] = execution.devices.as_slice() else { panic!("{execution:?}") };
                assert!(free.proven() && !taken.proven());
                assert!(taken.busy().is_some_and(|why| why.starts_with(words)) && taken.ways.len() == 1, "{taken:?}");
            }
        }),
        faked("kernels::ptx_newer_than_the_driver", || {
            let run = &Machine::new("count 1\nptx 83\n").run().devices[0];
            assert_eq!(passed(ran(run, Way::Cubin)), ALL);
            let Some(Outcome::Failed { failed }) = run.way(Way::Ptx) else { panic!("{run:?}") };
            assert_eq!((failed.call.as_str(), failed.status.code), ("cuModuleLoadDataEx", 222));
            assert_eq!(failed.words.as_deref(), Some("ptxas application ptx input, line 9; fatal   : too new"));
        }),
        faked("kernels::a_kernel_that_breaks_the_context_ends_its_way", || {
            let run = &Machine::new("count 1\nds_atomics.sync 700\n").run().devices[0];
            for (way, call) in [(Way::Runtime, "cudaDeviceSynchronize"), (Way::Cubin, "cuCtxSynchronize"), (Way::Ptx, "cuCtxSynchronize")] {
                let ran = ran(run, way);
                assert_eq!(passed(ran), ["vector-add", "reduce"]);
                assert_eq!(verdict(ran, "atomics"), &KernelVerdict::Failed { failed: failed(call, 700, "CUDA_ERROR_ILLEGAL_ADDRESS") });
                assert_eq!(verdict(ran, "copy"), &KernelVerdict::Skipped { why: "atomics failed before".to_owned() });
                assert!(!ran.passed());
            }
        }),
        faked("kernels::calls_that_fail_are_named", || {
            for (function, code) in [
                ("cuMemAlloc_v2", 2),
                ("cuMemcpyHtoD_v2", 719),
                ("cuMemcpyDtoH_v2", 214),
                ("cuLaunchKernel", 101),
                ("cuModuleGetFunction", 1),
                ("cuMemsetD8_v2", 999),
            ] {
                let run = &Machine::new(&format!("count 1\n{function} {code}\n")).driver_only().run().devices[0];
                let KernelVerdict::Failed { failed } = verdict(ran(run, Way::Cubin), "vector-add") else { panic!("{run:?}") };
                assert_eq!((failed.call.as_str(), failed.status.code), (function, code));
            }
            for (function, code) in
                [("cuDeviceGet", 101), ("cuMemGetInfo_v2", 214), ("cuCtxSetCurrent", 201), ("cuDevicePrimaryCtxRetain", 304)]
            {
                let run = &Machine::new(&format!("count 1\n{function} {code}\n")).driver_only().run().devices[0];
                let Some(Outcome::Failed { failed }) = run.way(Way::Ptx) else { panic!("{run:?}") };
                assert_eq!((failed.call.as_str(), failed.status.code), (function, code));
            }
        }),
    ]);
    trials
}

/// A driver of its own, built with these options.
fn driver(options: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    build("cuda.c", &folder.path().join("libcuda.so.1"), options);
    folder
}

/// Processes whose environment names this script: workers that were left running.
fn left(script: &Path) -> Vec<String> {
    let named = |process: &Path| {
        let environ = std::fs::read(process.join("environ")).unwrap_or_default();
        String::from_utf8_lossy(&environ).contains(script.to_str().unwrap())
    };
    let dead = |process: &Path| std::fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z "));
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    all.filter(|path| named(path) && !dead(path)).map(|path| path.display().to_string()).collect()
}

fn faults() -> Vec<Trial> {
    vec![
        faked("kernels::a_driver_that_lacks_functions", || {
            for function in ["cuInit", "cuMemGetInfo_v2", "cuLaunchCooperativeKernel", "cuDriverGetVersion"] {
                let fake = driver(&[&format!("-D{function}=left_out"), &format!("-DWITHOUT_{function}")]);
                let machine = Machine { driver: fake.path().to_owned(), ..Machine::new("count 1\n") };
                let execution = machine.run();
                let Listing::Fault(Fault::NotLoaded { words }) = &execution.listing else { panic!("{execution:?}") };
                assert!(words.ends_with(&format!("libcuda.so.1 has no function {function}")), "{words}");
                assert_eq!(execution.devices, []);
            }
            // The second form of this call came with CUDA 11.4: nothing of it is needed.
            let fake = driver(&["-DcuDeviceGetUuid_v2=left_out"]);
            let machine = Machine { driver: fake.path().to_owned(), ..Machine::new("count 1\n") };
            assert!(machine.run().devices[0].proven());
        }),
        faked("kernels::no_driver_library", || {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join("libcuda.so.1"), "no library").unwrap();
            let machine = Machine { driver: folder.path().to_owned(), ..Machine::new("count 1\n").known(1) };
            let execution = machine.run();
            assert!(matches!(&execution.listing, Listing::Fault(Fault::NotLoaded { words }) if words.contains("file too short")));
            assert_eq!(execution.devices, []);
        }),
        faked("kernels::a_crash_is_told_with_its_place", || {
            let execution = Machine::new(&format!("{TWO}1.ds_tensor.act crash\n")).run();
            let [fine, bad] = execution.devices.as_slice() else { panic!("{execution:?}") };
            assert!(fine.proven());
            for way in Way::ALL {
                let fault = Fault::Crashed { signal: 11, at: Some("tensor".to_owned()), stderr: String::new() };
                assert_eq!(bad.way(way), Some(&Outcome::Fault(fault)), "{way}");
            }
        }),
        faked("kernels::a_crash_of_the_driver_at_its_start", || {
            let execution = Machine::new("count 1\ncuInit.act abort\n").run();
            let Listing::Fault(Fault::Crashed { signal, at, .. }) = &execution.listing else { panic!("{execution:?}") };
            assert_eq!((*signal, at.as_deref()), (6, Some("asking the driver for its GPUs")));
            let execution = Machine::new("count 1\ncuInit.act exit\n").run();
            let Listing::Fault(fault) = &execution.listing else { panic!("{execution:?}") };
            assert_eq!(fault, &Fault::Unanswered { why: "exit code 3".to_owned() });
        }),
        faked("kernels::a_hang_ends_in_time_and_leaves_nobody", || {
            let machine = Machine::new(&format!("{TWO}1.ds_reduce.act hang\n")).limit(15_000);
            let begin = Instant::now();
            let execution = machine.run();
            assert!(begin.elapsed() < Duration::from_secs(55), "{:?}", begin.elapsed());
            let [fine, hung] = execution.devices.as_slice() else { panic!("{execution:?}") };
            assert!(fine.proven(), "{fine:?}");
            let fault = Fault::TimedOut { seconds: 15.0, at: Some("reduce".to_owned()), stderr: String::new() };
            assert_eq!(hung.way(Way::Runtime), Some(&Outcome::Fault(fault)));
            // It is not waited for three times.
            assert_eq!(hung.way(Way::Ptx), Some(&Outcome::Skipped { why: "runtime did not end before".to_owned() }));
            assert_eq!(left(&machine.folder.path().join("script")), [""; 0]);
        }),
        faked("kernels::a_library_of_another_release", || {
            let run = &Machine::new("count 1\nabi 2\n").run().devices[0];
            let Some(Outcome::Fault(Fault::Unanswered { why })) = run.way(Way::Runtime) else { panic!("{run:?}") };
            assert!(why.ends_with("probe.so has the interface 2, not 1"), "{why}");
            assert_eq!(passed(ran(run, Way::Cubin)), ALL);
        }),
        faked("kernels::a_library_that_does_not_load", || {
            let mut machine = Machine::new("count 1\n");
            machine.kernels.library = "/none/probe.so".into();
            let run = &machine.run().devices[0];
            assert!(
                matches!(run.way(Way::Runtime), Some(Outcome::Fault(Fault::NotLoaded { words })) if words.starts_with("/none/probe.so: "))
            );
        }),
    ]
}
