//! All checks, root causes before what follows from them.

use super::{
    Check, arch, buildtools, cache, cache_folder, compiler, compiler_limits, compiler_named, cub, cuda_home, deepspeed, device_code,
    driver, driver_libs, driver_nodes, driver_release, folders, gpu, headers, link, loader, loader_families, loader_impostor, loader_order,
    loader_path, loader_versions, lookup, nccl, ninja, ops, python, setuptools, system, toolkit, torch,
};

/// By topic, in the order in which findings of equal weight are shown.
pub const CHECKS: &[&[Check]] = &[
    python::CHECKS,
    setuptools::CHECKS,
    torch::CHECKS,
    cuda_home::CHECKS,
    lookup::CHECKS,
    toolkit::CHECKS,
    compiler::CHECKS,
    compiler_limits::CHECKS,
    compiler_named::CHECKS,
    headers::CHECKS,
    link::CHECKS,
    cub::CHECKS,
    ninja::CHECKS,
    buildtools::CHECKS,
    driver::CHECKS,
    driver_libs::CHECKS,
    driver_nodes::CHECKS,
    driver_release::CHECKS,
    gpu::CHECKS,
    arch::CHECKS,
    deepspeed::CHECKS,
    ops::CHECKS,
    device_code::CHECKS,
    loader_impostor::CHECKS,
    loader::CHECKS,
    loader_order::CHECKS,
    loader_path::CHECKS,
    loader_families::CHECKS,
    loader_versions::CHECKS,
    cache::CHECKS,
    cache_folder::CHECKS,
    folders::CHECKS,
    system::CHECKS,
    nccl::CHECKS,
];

/// The place of an id in the registry, for sorting.
pub fn check(id: &str) -> Option<usize> {
    CHECKS.iter().flat_map(|topic| topic.iter()).position(|check| check.id == id)
}
