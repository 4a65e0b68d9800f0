//! A log and a machine judged together: what the machine has is what the cure names. Each machine is judged as a file tree and as a
//! snapshot of it.

use crate::machines;
use crate::util::{Doctor, trial};
use libtest_mimic::Trial;
use serde_json::Value;

pub fn trials() -> Vec<Trial> {
    CASES.iter().map(|case| trial(&format!("triage_here::{}", case.name), || judged(case))).collect()
}

struct Case {
    name: &'static str,
    base: &'static str,
    /// What the machine has besides.
    more: &'static str,
    log: &'static str,
    /// The first finding.
    id: &'static str,
    /// Of one fix, as JSON.
    fix: &'static [&'static str],
    /// Somewhere in the evidence.
    seen: &'static str,
}

const TWO: &str = r#"
system = "ubuntu-22.04"
links = { "/usr/local/cuda" = "cuda-11.7" }
[[toolkit]]
root = "/usr/local/cuda-11.7"
release = "11.7.99"
home = true
on-path = true
[[python]]
prefix = "/opt/venv"
kind = "venv"
"#;

const CONDA: &str = r#"
system = "ubuntu-22.04"
[[python]]
prefix = "/opt/conda/envs/ds"
kind = "conda"
version = "3.11.9"
ninja = true
[[toolkit]]
root = "/usr/local/cuda-12.4"
release = "12.4.131"
home = true
[[torch]]
version = "2.6.0+cu124"
"#;

const ONE: &str = r#"
system = "ubuntu-24.04"
[[toolkit]]
root = "/usr/local/cuda-12.4"
release = "12.4.131"
home = true
[[python]]
prefix = "/opt/venv"
kind = "venv"
packages = { pip = "24.0", setuptools = "69.5.1" }
[[torch]]
version = "2.6.0+cu124"
"#;

const CASES: &[Case] = &[
    Case {
        name: "an_arch_that_the_second_toolkit_knows",
        base: TWO,
        more: concat!("[[toolkit]]\nroot = \"/usr/local/cuda-12.4\"\nrelease = \"12.4.131\"\n", "[[torch]]\nversion = \"2.6.0+cu124\"\n"),
        log: "nvcc fatal   : Unsupported gpu architecture 'compute_89'\n",
        id: "",
        fix: &["CUDA_HOME", "/usr/local/cuda-12.4"],
        seen: "compute_89",
    },
    Case {
        name: "an_arch_that_a_later_minor_knows",
        base: TWO,
        more: concat!("[[toolkit]]\nroot = \"/usr/local/cuda-11.8\"\nrelease = \"11.8.89\"\n", "[[torch]]\nversion = \"2.0.1+cu117\"\n"),
        log: "nvcc fatal   : Unsupported gpu architecture 'compute_89'\n",
        id: "nvcc-too-old-for-gpu",
        fix: &["CUDA_HOME", "/usr/local/cuda-11.8"],
        seen: "CUDA 11.8 compiles for compute_89",
    },
    Case {
        name: "a_toolkit_of_another_major_is_no_cure",
        base: TWO,
        more: concat!("[[toolkit]]\nroot = \"/usr/local/cuda-12.4\"\nrelease = \"12.4.131\"\n", "[[torch]]\nversion = \"2.0.1+cu117\"\n"),
        log: "nvcc fatal   : Unsupported gpu architecture 'compute_89'\n",
        id: "nvcc-too-old-for-gpu",
        fix: &["!/usr/local/cuda-12.4"],
        seen: "compute_89",
    },
    Case {
        name: "a_toolkit_for_the_torch_of_the_log",
        base: TWO,
        more: "[[toolkit]]\nroot = \"/usr/local/cuda-12.1\"\nrelease = \"12.1.105\"\n",
        log: "RuntimeError: The detected CUDA version (11.7) mismatches the version that was used to compile PyTorch (12.1). Please make sure to use the same CUDA versions.\n",
        id: "torch-nvcc-mismatch-major",
        fix: &["CUDA_HOME", "/usr/local/cuda-12.1"],
        seen: "CUDA 12.1",
    },
    Case {
        name: "a_header_that_another_toolkit_has",
        base: TWO,
        more: concat!("[[toolkit]]\nroot = \"/usr/local/cuda-11.8\"\nrelease = \"11.8.89\"\n", "[[torch]]\nversion = \"2.0.1+cu117\"\n"),
        log: "torch/include/ATen/cuda/CUDAContext.h:6:10: fatal error: cusparse.h: No such file or directory\n",
        id: "missing-cuda-headers",
        fix: &["CUDA_HOME", "/usr/local/cuda-11."],
        seen: "has `cusparse.h`",
    },
    Case {
        name: "a_torch_of_the_builds_own",
        base: ONE,
        more: "",
        log: "RuntimeError: The detected CUDA version (12.4) mismatches the version that was used to compile PyTorch (13.0). Please make sure to use the same CUDA versions.\n",
        id: "torch-nvcc-mismatch-major",
        fix: &["--no-build-isolation"],
        seen: "2.6.0+cu124",
    },
    Case {
        name: "nvcc_is_there_all_the_same",
        base: ONE,
        more: "",
        log: "/bin/sh: 1: nvcc: not found\n",
        id: "no-nvcc",
        fix: &["CUDA_HOME", "/usr/local/cuda-12.4"],
        seen: "CUDA 12.4",
    },
    Case {
        name: "the_linker_is_shown_the_folder",
        base: ONE,
        more: "",
        log: "/usr/bin/ld: cannot find -lcurand: No such file or directory\n",
        id: "linker-cannot-find-cuda-lib",
        fix: &["LIBRARY_PATH", "/usr/local/cuda-12.4/lib64"],
        seen: "libcurand.so",
    },
    Case {
        name: "libcuda_is_in_the_stubs",
        base: ONE,
        more: "",
        log: "/usr/bin/ld: cannot find -lcuda: No such file or directory\n",
        id: "libcuda-not-found-at-link",
        fix: &["LIBRARY_PATH", "/usr/local/cuda-12.4/lib64/stubs"],
        seen: "libcuda.so",
    },
    Case {
        name: "libcudart_of_the_toolkit",
        base: ONE,
        more: "",
        log: "ImportError: libcudart.so.12: cannot open shared object file: No such file or directory\n",
        id: "libcudart-not-found",
        fix: &["LD_LIBRARY_PATH", "/"],
        seen: "libcudart.so.12",
    },
    Case {
        name: "libcudart_of_another_major",
        base: ONE,
        more: "[[toolkit]]\nroot = \"/usr/local/cuda-11.8\"\nrelease = \"11.8.89\"\n",
        log: "ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n",
        id: "libcudart-not-found",
        fix: &["it was made for another CUDA"],
        seen: "/usr/local/cuda-11.8",
    },
    Case {
        name: "an_older_gcc_beside_the_newer",
        base: ONE,
        more: "[[gcc]]\nversion = \"12.3.0\"\n",
        log: "/usr/local/cuda/include/crt/host_config.h:132:2: error: #error -- unsupported GNU version! gcc versions later than 12 are not supported!\n",
        id: "gcc-too-new-for-nvcc",
        fix: &["NVCC_PREPEND_FLAGS", "g++-12"],
        seen: "host compiler",
    },
    Case {
        name: "the_libstdcxx_of_conda",
        base: CONDA,
        more: concat!(
            "[[lib]]\npath = \"/opt/conda/envs/ds/lib/libstdc++.so.6\"\nsoname = \"libstdc++.so.6\"\n",
            "defines = [\"GLIBCXX_3.4\", \"GLIBCXX_3.4.32\", \"CXXABI_1.3.14\"]\n"
        ),
        log: "ImportError: /lib/x86_64-linux-gnu/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by /opt/conda/envs/ds/lib/python3.11/site-packages/x.so)\n",
        id: "glibcxx-not-found",
        fix: &["LD_PRELOAD", "/opt/conda/envs/ds/lib/libstdc++.so.6"],
        seen: "has `GLIBCXX_3.4.32`",
    },
];

fn judged(case: &Case) {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let manifest = write("machine.toml", &format!("about = \"a machine beside a log\"\nexpect = []\n{}{}", case.base, case.more));
    let log = write("build.log", case.log);
    let saved = write("snapshot.json", &machines::snapshot(&manifest));
    let (_kept, root, env) = machines::tree(&manifest);
    let vars: String = env.iter().map(|(name, value)| format!("{name}={value}\n")).collect();
    let vars = write("env", &vars);
    let live = Doctor::new(["triage", "--format", "json"]).arg("--root").arg(&root).arg("--env-file").arg(&vars);
    let later = Doctor::new(["triage", "--format", "json"]).arg("--from").arg(&saved);
    for run in [live, later] {
        let out = run.arg(&log).run();
        let found: Value = serde_json::from_str(&out.stdout).unwrap_or_else(|error| panic!("{error} {} {}", out.stdout, out.stderr));
        let finding = &found["findings"][0];
        assert!(case.id.is_empty() || finding["id"] == case.id, "{}", out.stdout);
        let (fixes, evidence) = (finding["fixes"].as_array().unwrap(), found["findings"].to_string());
        let has = |fix: &Value| {
            let fix = fix.to_string();
            case.fix.iter().all(|words| match words.strip_prefix('!') {
                Some(words) => !fix.contains(words),
                None => fix.contains(words),
            })
        };
        let right = if case.fix[0].starts_with('!') { fixes.iter().all(has) } else { fixes.iter().any(has) };
        assert!(right && evidence.contains(case.seen), "{}", out.stdout);
    }
    // Without the machine the page's cures stand, and none of them names its folders.
    let alone = Doctor::new(["triage", "--format", "json"]).arg(&log).run();
    assert!(!alone.stdout.contains("\"source\": \"this machine\""), "{}", alone.stdout);
}
