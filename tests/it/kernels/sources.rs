//! The sources of `kernels/` with real compilers.

use crate::util::{Doctor, lab, trial_with};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Both halves, for the oldest and the newest target, without a warning.
fn compile(home: &Path, standard: &str, targets: [&str; 2]) {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    let work = tempfile::tempdir().unwrap();
    let gencode = targets.map(|target| format!("-gencode=arch=compute_{target},code=sm_{target}"));
    let half_macros = ["-D__CUDA_NO_HALF_OPERATORS__", "-D__CUDA_NO_HALF_CONVERSIONS__", "-D__CUDA_NO_BFLOAT16_CONVERSIONS__"];
    let run = |program: PathBuf, args: &[&str], source: &str, object: &str| {
        let doctor = Doctor::new([]).program(program).cwd(work.path()).timeout(Duration::from_secs(120));
        let out = doctor.arg(standard).args(args).arg("-c").arg(kernels.join(source)).args(["-o", object]).run();
        assert_eq!((out.code, out.stderr.as_str()), (Some(0), ""), "{}", out.stdout);
    };
    let strict = ["-Werror", "all-warnings", "-Xcompiler", "-fPIC,-Wall,-Wextra", &gencode[0], &gencode[1]];
    run(home.join("bin/nvcc"), &[&strict[..], &half_macros].concat(), "probe.cu", "probe.o");
    let include = home.join("include");
    run("c++".into(), &["-fPIC", "-Wall", "-Wextra", "-Werror", "-pedantic", "-isystem", include.to_str().unwrap()], "host.cpp", "host.o");
}

pub fn trials() -> Vec<Trial> {
    let need = |part: &str| crate::util::program("c++").and_then(|_| lab(&format!("{part}/nvidia/cu13")));
    vec![
        trial_with("kernels::sources_compile_with_nvcc_13_0", need("full-cu130"), |home| compile(&home, "-std=c++14", ["75", "121"])),
        trial_with("kernels::sources_compile_with_nvcc_13_5", need("pip-cu135"), |home| compile(&home, "-std=c++17", ["75", "120a"])),
    ]
}
