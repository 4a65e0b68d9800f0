#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| ds_doctor_fuzz::targets::elf(bytes));
