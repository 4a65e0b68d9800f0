//! Any text as `host_config.h`, as a header with a release, and as a version file.
#![no_main]

use ds_doctor::binary::hostconfig::host_compilers;
use ds_doctor::binary::releases::{header_release, version_json, version_txt};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    // Without this text a header is turned down at once.
    let _ = host_compilers(&format!("{text}\n#if 0\n#error unsupported GNU version\n#endif\n"));
    let _ = header_release(&bytes, "CUDA_VERSION");
    let _ = (version_json(&text), version_txt(&text));
});
