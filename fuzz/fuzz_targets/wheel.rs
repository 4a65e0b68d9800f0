//! Any bytes as a wheel; and as the texts and the library in a good one.
#![no_main]

use ds_doctor::binary::inspect::{Magic, binary};
use ds_doctor::binary::sparse::Keeper;
use ds_doctor::binary::wheel::wheel;
use ds_doctor::facts::inspect::WheelName;
use ds_doctor::facts::raw::HostPath;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = HostPath::new("/x-1.0-py3-none-any.whl");
    let _ = wheel(&bytes, &path, &|_| {});
    if let Some(magic) = Magic::of(bytes) {
        let _ = binary(&bytes, &path, Some("x/x.so"), magic);
    }
    let mut keeper = Keeper::new(bytes.len() as u64);
    bytes.chunks(100).for_each(|chunk| keeper.push(chunk));
    let sparse = keeper.finish();
    let _ = binary(&sparse, &path, Some("x/x.so"), Magic::Elf);
    if let Ok(name) = std::str::from_utf8(bytes) {
        let _ = WheelName::parse(name).and_then(|name| name.glibc());
    }
});
