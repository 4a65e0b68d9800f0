//! Any bytes as an ELF file, asked everything that the doctor asks of one.
#![no_main]

use ds_doctor::binary::elf::{Elf, summarise};
use ds_doctor::binary::{compiler, cudart, driver, nccl, nvcc, torch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = summarise(&bytes);
    if let Ok(elf) = Elf::open(&bytes) {
        let _ = elf.symbol("malloc");
        let _ = elf.section(".rodata");
    }
    let _ = nvcc::nvcc_strings(&bytes);
    let _ = compiler::compiler_strings(&bytes);
    let _ = cudart::cudart_release(&bytes);
    let _ = driver::release_in_strings(&bytes);
    let _ = nccl::nccl_release(&bytes);
    let _ = torch::arch_list(&bytes);
    let _ = torch::cxx11_abi(&bytes);
});
