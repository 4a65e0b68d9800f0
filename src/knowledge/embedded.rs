//! The tables as build.rs wrote them: constants, in the data of the program.

use super::schema::cuda::*;
use super::schema::deepspeed::*;
use super::schema::gpus::*;
use super::schema::host::*;
use super::schema::languages::*;
use super::schema::ops::*;
use super::schema::signatures::*;
use super::schema::torch::*;
#[allow(unused_imports, reason = "which of these the constants name depends on the tables")]
use super::schema::{List, Number, PciDevice, Str, Versions};
use crate::version::{Capability, CudaVersion, Suffix, Target};
use std::borrow::Cow;

include!(concat!(env!("OUT_DIR"), "/tables.rs"));
