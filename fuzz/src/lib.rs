//! The readers of foreign bytes, compiled without the rest of the doctor: an instrumented build of the whole takes minutes and 4 GB.

extern crate self as ds_doctor;

#[path = "../../src/binary/mod.rs"]
pub mod binary;
#[path = "../../src/facts/mod.rs"]
pub mod facts;
#[path = "../../src/knowledge/mod.rs"]
pub mod knowledge;
#[path = "../../src/logs/mod.rs"]
pub mod logs;
pub mod targets;
#[path = "../../src/version.rs"]
pub mod version;
