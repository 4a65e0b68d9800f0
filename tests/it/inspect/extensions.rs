//! Extensions that load and that do not: real ones must be silent, and made ones get the cause that a real Python stumbles over.

use super::{ids, inspect, json};
use crate::util::{Doctor, lab, program, trial_with};
use libtest_mimic::Trial;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn trials() -> Vec<Trial> {
    let made = || Ok((program("g++")?, lab("torch-venv")?));
    vec![
        trial_with("inspect::every_module_of_real_environments_is_silent", lab("torch-venv"), |venv| silent(&venv)),
        trial_with("inspect::another_torch_is_silent_too", lab("torch26-venv"), |venv| silent(&venv)),
        trial_with("inspect::undefined_symbols_have_their_causes", made(), |(gxx, venv)| causes(&gxx, &venv)),
        trial_with("inspect::what_the_cache_keeps_of_another_torch", made(), |(gxx, venv)| cached(&gxx, &venv)),
        trial_with("inspect::missing_libraries_have_their_ids", made(), |(gxx, venv)| missing(&gxx, &venv)),
    ]
}

fn site(venv: &Path) -> PathBuf {
    venv.join("lib/python3.11/site-packages")
}

fn with_python(doctor: Doctor, venv: &Path) -> Doctor {
    doctor.arg("--python").arg(venv.join("bin/python"))
}

fn silent(venv: &Path) {
    let report = json(with_python(inspect(&site(venv)), venv), 0);
    let errors: Vec<&Value> = report["findings"].as_array().unwrap().iter().filter(|finding| finding["severity"] != "info").collect();
    assert!(errors.is_empty(), "{errors:#?}");
    let files = report["result"]["files"].as_array().unwrap();
    let modules: Vec<&Value> = files.iter().filter(|file| file["python_module"] == true).collect();
    assert!(modules.len() > 20, "{} modules", modules.len());
    let mut judged = 0;
    for module in modules {
        if module["load"]["judged"] == true {
            assert_eq!(module["load"]["undefined"], serde_json::json!([]), "{}", module["path"]);
            judged += 1;
        } else {
            // Only what is built for another Python is passed over.
            assert!(module["load"]["why_not"].as_str().unwrap().contains("CPython"), "{module}");
        }
    }
    assert!(judged > 20, "{judged}");
    // torch's own libraries resolve through each other.
    let torch = files.iter().find(|file| file["path"].as_str().unwrap().ends_with("/torch/lib/libtorch_python.so")).unwrap();
    assert_eq!((torch["load"]["within"].as_str(), &torch["load"]["undefined"]), (Some("after-torch"), &serde_json::json!([])));
}

const HEAD: &str = "#include <string>\nextern \"C\" void *PyInit_NAME() { CALL; return nullptr; }\n";

/// A shared library whose module function does this; `flags` are for the compiler and the linker.
fn extension(gxx: &Path, folder: &Path, name: &str, before: &str, call: &str, flags: &[String]) -> PathBuf {
    let source = folder.join(format!("{name}.cpp"));
    fs::write(&source, format!("{before}\n{}", HEAD.replace("NAME", name).replace("CALL", call))).unwrap();
    let library = folder.join(format!("{name}.so"));
    let is_macro = |flag: &&String| flag.starts_with("-D");
    let mut command = Command::new(gxx);
    command.args(["-shared", "-fPIC", "-O1"]).args(flags.iter().filter(is_macro)).arg(&source).arg("-o").arg(&library);
    let out = command.args(flags.iter().filter(|flag| !is_macro(flag))).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    library
}

const CURAND: &str = "extern \"C\" int curandCreateGenerator(void *, int);";
const CALL_CURAND: &str = "curandCreateGenerator(0, 0)";
const CHECK_FAIL: &str = "#include <string>\nnamespace c10 { namespace detail { void torchCheckFail(const char *, const char *, unsigned, const std::string &); } }";
const CALL_CHECK: &str = "c10::detail::torchCheckFail(\"\", \"\", 1, std::string(\"x\"))";

fn causes(gxx: &Path, venv: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let lib = site(venv).join("torch/lib");
    let torch: Vec<String> =
        [format!("-L{}", lib.display()), "-Wl,--no-as-needed".into(), "-lc10".into(), "-Wl,--unresolved-symbols=ignore-all".into()].into();
    let with = |more: &str| torch.iter().cloned().chain([more.to_owned()]).collect::<Vec<_>>();
    let none: Vec<String> = vec!["-Wl,--unresolved-symbols=ignore-all".into()];
    let cases: Vec<(&str, PathBuf, &str)> = vec![
        ("good", extension(gxx, folder, "good", CHECK_FAIL, CALL_CHECK, &torch), ""),
        ("old_abi", extension(gxx, folder, "old_abi", CHECK_FAIL, CALL_CHECK, &with("-D_GLIBCXX_USE_CXX11_ABI=0")), "cxx11-abi-mismatch"),
        (
            "other_torch",
            extension(
                gxx,
                folder,
                "other_torch",
                "namespace c10 { void gone_in_this_release(int); }",
                "c10::gone_in_this_release(1)",
                &torch,
            ),
            "undefined-symbol-torch-version",
        ),
        ("unlinked_torch", extension(gxx, folder, "unlinked_torch", CHECK_FAIL, CALL_CHECK, &none), "undefined-symbol-missing-link"),
        (
            "no_aio",
            extension(gxx, folder, "no_aio", "extern \"C\" int io_setup(int, void *);", "io_setup(1, 0)", &none),
            "undefined-symbol-missing-link",
        ),
        (
            "no_driver",
            extension(gxx, folder, "no_driver", "extern \"C\" int cuInit(int);", "cuInit(0)", &torch),
            "undefined-symbol-missing-link",
        ),
        // torch loads it for itself; only what is linked with libtorch_cuda, which needs it, sees it too.
        ("no_curand", extension(gxx, folder, "no_curand", CURAND, CALL_CURAND, &torch), "undefined-symbol-missing-link"),
        ("curand_by_torch", extension(gxx, folder, "curand_by_torch", CURAND, CALL_CURAND, &with("-ltorch_cuda")), ""),
        (
            "weak",
            extension(
                gxx,
                folder,
                "weak",
                "extern \"C\" __attribute__((weak)) int nobody_has_this();",
                "if (nobody_has_this) nobody_has_this()",
                &torch,
            ),
            "",
        ),
    ];
    let truth = real_python(venv, folder, &cases.iter().map(|(name, ..)| *name).collect::<Vec<_>>());
    for ((name, path, expected), real) in cases.iter().zip(&truth) {
        let report = json(with_python(inspect(path), venv), i32::from(!expected.is_empty()));
        let expected_ids: Vec<&str> = if expected.is_empty() { vec![] } else { vec![expected] };
        assert_eq!(ids(&report), expected_ids, "{name}: {report:#}");
        // Python says which symbol it is; where it loads, it complains of something else.
        let symbol = real.split("undefined symbol: ").nth(1).map(str::trim);
        assert_eq!(symbol.is_some(), !expected.is_empty(), "{name}: {real}");
        let undefined = report["result"]["files"][0]["load"]["undefined"].as_array().unwrap();
        assert_eq!(undefined.iter().any(|one| Some(one.as_str().unwrap()) == symbol), symbol.is_some(), "{name}: {real} {undefined:?}");
        if let Some(symbol) = symbol {
            let consequence = report["findings"][0]["consequence"].as_str().unwrap();
            assert!(consequence.ends_with(&format!("undefined symbol: {symbol}`")), "{consequence}");
        }
    }
    let text = with_python(inspect(&cases[2].1), venv).run();
    assert!(text.stdout.contains("c10::gone_in_this_release(int)"), "demangled: {}", text.stdout);
    assert!(text.stdout.contains("-lcuda") || with_python(inspect(&cases[5].1), venv).run().stdout.contains("`-lcuda`"));
}

/// One library that wants what this torch has not, in the extension cache: kept by ninja, built anew by it, and of another Python.
fn cached(gxx: &Path, venv: &Path) {
    let torch = site(venv).join("torch");
    let flags: Vec<String> = [
        format!("-L{}", torch.join("lib").display()),
        "-Wl,--no-as-needed".into(),
        "-lc10".into(),
        "-Wl,--unresolved-symbols=ignore-all".into(),
    ]
    .into();
    let elsewhere = Path::new("/other/site-packages/torch");
    for (tag, built_with, expected) in [
        ("py311_cu130", torch.as_path(), Some("stale-jit-cache")),
        ("py311_cu130", elsewhere, None),
        ("py310_cu118", torch.as_path(), None),
    ] {
        let home = tempfile::tempdir().unwrap();
        let doctor = Doctor::new(["inspect"]).env("HOME", home.path());
        let cache = home.path().join(".cache/torch_extensions");
        let op = cache.join(tag).join("my_op");
        fs::create_dir_all(&op).unwrap();
        let library =
            extension(gxx, &op, "my_op", "namespace c10 { void gone_in_this_release(int); }", "c10::gone_in_this_release(1)", &flags);
        let ninja = format!(
            "cflags = -fPIC -isystem {}/include\n\nbuild my_op.o: compile {}\n",
            built_with.display(),
            library.with_extension("cpp").display()
        );
        fs::write(op.join("build.ninja"), ninja).unwrap();
        fs::write(op.join("my_op.o"), "").unwrap();
        let report = json(with_python(doctor.arg(&cache), venv), i32::from(expected.is_some()));
        let found = report["findings"].as_array().unwrap();
        let load = &report["result"]["files"][0]["load"];
        match expected {
            Some(id) => {
                assert_eq!(ids(&report)[0], id, "{report:#}");
                let (first, cause) = (&found[0], found.iter().find(|one| one["id"] == "undefined-symbol-torch-version"));
                assert!(first["fixes"][0]["argv"].to_string().contains("/my_op"), "{first:#}");
                assert!(cause.is_none_or(|one| one["caused_by"].to_string().contains(id)), "{report:#}");
            }
            None if tag == "py311_cu130" => {
                assert!(found.iter().all(|one| one["severity"] == "info"), "{report:#}");
                assert!(found[0]["consequence"].as_str().unwrap().contains("anew"), "{report:#}");
            }
            None => {
                assert!(found.is_empty() && load["why_not"].as_str().unwrap().contains(tag), "{report:#}");
            }
        }
        // Asked for by name it is judged whatever folder it lies in.
        if tag == "py310_cu118" {
            assert_eq!(ids(&json(with_python(inspect(&library), venv), 1)), ["undefined-symbol-torch-version"]);
        }
    }
}

/// What a real Python with torch says to each import, in order. The modules make no module: that complaint means that they loaded.
fn real_python(venv: &Path, folder: &Path, names: &[&str]) -> Vec<String> {
    const SCRIPT: &str = "import sys, ctypes\nimport torch\nfor path in sys.argv[1:]:\n    try:\n        ctypes.CDLL(path)\n        print('loaded')\n    except OSError as error:\n        print(str(error).replace('\\n', ' '))\n";
    let paths = names.iter().map(|name| folder.join(format!("{name}.so")));
    let out =
        Command::new(venv.join("bin/python")).arg("-c").arg(SCRIPT).args(paths).env_clear().env("PATH", "/usr/bin:/bin").output().unwrap();
    let lines: Vec<String> = String::from_utf8_lossy(&out.stdout).lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), names.len(), "{}", String::from_utf8_lossy(&out.stderr));
    lines
}

/// An empty library of this name, for the linker.
fn stub(gxx: &Path, folder: &Path, name: &str) -> String {
    let source = folder.join("stub.c");
    fs::write(&source, "").unwrap();
    let library = folder.join("stubs").join(name);
    fs::create_dir_all(library.parent().unwrap()).unwrap();
    let out = Command::new(gxx).args(["-shared", "-o"]).arg(&library).arg(format!("-Wl,-soname,{name}")).arg(&source).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    library.display().to_string()
}

fn missing(gxx: &Path, venv: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for (name, library, expected, code) in [
        ("a", "libcudart.so.11.0", "libcudart-not-found", 1),
        ("b", "libcudnn.so.7", "cudnn-not-found", 1),
        ("c", "libnobody.so.5", "runtime-lib-not-on-loader-path", 1),
        ("d", "libtorch_xpu.so", "prebuilt-binary-torch-mismatch", 1),
    ] {
        let flags = vec!["-Wl,--no-as-needed".to_owned(), stub(gxx, folder, library)];
        let path = extension(gxx, folder, name, "", "", &flags);
        let report = json(with_python(inspect(&path), venv), code);
        assert_eq!(ids(&report), [expected], "{library}");
        let found = &report["findings"][0];
        assert!(found["consequence"].as_str().unwrap().contains(&format!("{library}: cannot open shared object file")), "{found}");
        // The same with the library on the loader's path.
        let there = with_python(inspect(&path), venv).arg("--env").arg(format!("LD_LIBRARY_PATH={}", folder.join("stubs").display()));
        let report = json(there, 0);
        assert!(ids(&report).is_empty(), "{report:#}");
    }
    // The driver's library is expected to be absent where there is no driver.
    let flags = vec!["-Wl,--no-as-needed".to_owned(), stub(gxx, folder, "libcuda.so.1")];
    let path = extension(gxx, folder, "e", "", "", &flags);
    if !Path::new("/proc/driver/nvidia/version").exists() {
        let report = json(with_python(inspect(&path), venv), 0);
        assert_eq!(ids(&report), ["libcuda-not-found"]);
        assert_eq!(report["findings"][0]["severity"], "info");
    }
}
