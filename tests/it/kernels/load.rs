//! Loading the library that the probe built.

use super::{client, faked};
use crate::fake::build;
use ds_doctor::facts::kernel::{Fault, Loaded};
use libtest_mimic::Trial;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// The library, in a folder of its own.
fn built(options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("probe.so");
    build("built.c", &path, options);
    (folder, path)
}

fn words(result: Result<Loaded, Fault>) -> String {
    match result {
        Err(Fault::NotLoaded { words }) => words,
        other => panic!("{other:?}"),
    }
}

/// A folder with a `libcudart.so.13` that has `cudaFree`, and the library that needs it.
fn needing() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let (home, library) = (folder.path().join("runtime"), folder.path().join("probe.so"));
    std::fs::create_dir(&home).unwrap();
    let runtime = home.join("libcudart.so.13");
    std::fs::write(folder.path().join("cudart.c"), "int cudaFree(void *at) { return at != 0; }\n").unwrap();
    build(folder.path().join("cudart.c").to_str().unwrap(), &runtime, &[]);
    build("built.c", &library, &["-DUSES", "-Wl,--no-as-needed", runtime.to_str().unwrap()]);
    (folder, home, library)
}

pub fn trials() -> Vec<Trial> {
    vec![
        faked("kernels::load_names_the_runtime_that_was_taken", || {
            let (_folder, home, library) = needing();
            let loaded = client(Some(&home), LIMIT).load(&library, &[]).unwrap();
            assert_eq!(loaded.runtime().unwrap().as_os_str(), home.join("libcudart.so.13").as_os_str());
            assert!(loaded.libraries.iter().any(|path| **path == *library), "{loaded:?}");
        }),
        faked("kernels::load_says_what_is_not_found_in_the_loaders_words", || {
            let (_folder, _home, library) = needing();
            let words = words(client(None, LIMIT).load(&library, &[]));
            assert_eq!(words, "libcudart.so.13: cannot open shared object file: No such file or directory");
        }),
        faked("kernels::load_takes_what_torch_has_loaded_before", || {
            let (_folder, home, library) = needing();
            let loaded = client(None, LIMIT).load(&library, &[home.join("libcudart.so.13")]).unwrap();
            assert!(loaded.runtime().is_some(), "{loaded:?}");
        }),
        faked("kernels::load_binds_every_symbol", || {
            let (_folder, library) = built(&["-DUNDEFINED"]);
            let words = words(client(None, LIMIT).load(&library, &[]));
            assert!(words.ends_with("undefined symbol: ds_of_nobody") && words.starts_with(library.to_str().unwrap()), "{words}");
        }),
        faked("kernels::load_survives_a_crash", || {
            let (_folder, library) = built(&["-DACT_crash"]);
            let fault = client(None, LIMIT).load(&library, &[]).unwrap_err();
            assert_eq!(fault, Fault::Crashed { signal: 11, at: None, stderr: "about to crash".to_owned() });
        }),
        faked("kernels::load_survives_a_hang", || {
            let (_folder, library) = built(&["-DACT_hang"]);
            let begin = Instant::now();
            let fault = client(None, Duration::from_millis(300)).load(&library, &[]).unwrap_err();
            assert_eq!(fault, Fault::TimedOut { seconds: 0.3, at: None, stderr: String::new() });
            assert!(begin.elapsed() < Duration::from_secs(5));
        }),
        faked("kernels::load_of_no_library", || {
            let words = words(client(None, LIMIT).load(Path::new("/none/probe.so"), &[]));
            assert_eq!(words, "/none/probe.so: cannot open shared object file: No such file or directory");
        }),
    ]
}
