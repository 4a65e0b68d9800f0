//! Fake driver libraries, compiled from tests/fake when a test asks for them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The compiler that `cc` finds, with the flags of this target; or why there is none.
pub fn compiler() -> Result<(), String> {
    static FOUND: OnceLock<Result<(), String>> = OnceLock::new();
    FOUND.get_or_init(|| tool().map(|_| ()).map_err(|e| format!("no C compiler: {e}"))).clone()
}

fn tool() -> Result<cc::Tool, cc::Error> {
    let triple = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut build = cc::Build::new();
    // Outside a build script nothing of this comes from cargo.
    build.target(&triple).host(&triple).opt_level(0).out_dir(std::env::temp_dir()).cargo_metadata(false).warnings(false);
    build.try_get_compiler()
}

/// A folder for LD_LIBRARY_PATH with a fake `libnvidia-ml.so.1` or `libcuda.so.1`, and the script it answers from.
pub struct Fake {
    folder: tempfile::TempDir,
    variable: &'static str,
}

impl Fake {
    /// `without` names functions that the library lacks.
    pub fn nvml(script: &str, without: &[&str]) -> Self {
        Self::build("nvml.c", "libnvidia-ml.so.1", "FAKE_NVML", script, without)
    }

    pub fn cuda(script: &str, without: &[&str]) -> Self {
        Self::build("cuda.c", "libcuda.so.1", "FAKE_CUDA", script, without)
    }

    fn build(source: &str, name: &str, variable: &'static str, script: &str, without: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        compile(source, &folder.path().join(name), without);
        std::fs::write(folder.path().join("script"), script).unwrap();
        Self { folder, variable }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The variable that names the script, and its value.
    pub fn script(&self) -> (&'static str, PathBuf) {
        (self.variable, self.folder.path().join("script"))
    }
}

/// A folder with both libraries of one driver release, named as a driver's packages name them. What they answer is fixed: the doctor hands
/// no variables on to the process that asks them.
pub fn driver(release: &str, nvml: &str, cuda: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (source, stem, script) in [("nvml.c", "libnvidia-ml.so", nvml), ("cuda.c", "libcuda.so", cuda)] {
        let at = |name: String| folder.path().join(name);
        std::fs::write(at(format!("{stem}.script")), script).unwrap();
        let path = format!("-DSCRIPT_PATH=\"{}\"", at(format!("{stem}.script")).display());
        compile_with(source, &at(format!("{stem}.{release}")), &format!("{stem}.1"), &[path]);
        std::os::unix::fs::symlink(format!("{stem}.{release}"), at(format!("{stem}.1"))).unwrap();
    }
    folder
}

/// Compiles `tests/fake/SOURCE` to a shared library whose SONAME is the name of the file.
pub fn compile(source: &str, library: &Path, without: &[&str]) {
    let options: Vec<String> = without.iter().map(|function| format!("-DWITHOUT_{function}")).collect();
    compile_with(source, library, &library.file_name().unwrap().display().to_string(), &options);
}

/// Compiles a source, of tests/fake or by its absolute path, with these options at the end.
pub fn build(source: &str, library: &Path, options: &[&str]) {
    let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
    compile_with(source, library, &library.file_name().unwrap().display().to_string(), &options);
}

fn compile_with(source: &str, library: &Path, soname: &str, options: &[String]) {
    let tool = tool().unwrap();
    let mut command: Command = tool.to_command();
    command.arg("-shared").arg("-fPIC").arg("-g0");
    command.arg(format!("-Wl,-soname,{soname}"));
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fake").join(source)).args(options).arg("-o").arg(library);
    let out = command.output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}
