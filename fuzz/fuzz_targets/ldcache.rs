//! Any bytes as the loader's cache.
#![no_main]

use ds_doctor::binary::ldcache::LdCache;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(cache) = LdCache::read(bytes) {
        let _ = (cache.entries().filter(|e| e.is_libc6() && e.abi().is_some()).count(), cache.generator());
    }
});
