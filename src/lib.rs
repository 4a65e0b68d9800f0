//! ds-doctor: facts are gathered at the edge into one snapshot, pure models say what torch, nvcc, the loader and DeepSpeed would do
//! with it, pure checks judge that against knowledge tables, and renderers print the findings.

pub mod binary;
pub mod checks;
pub mod cli;
pub mod collect;
pub mod commands;
pub mod exit;
pub mod facts;
pub mod finding;
pub mod gpu;
pub mod host;
pub mod knowledge;
pub mod logs;
pub mod model;
pub mod probe;
pub mod render;
pub mod repair;
pub mod text;
pub mod version;
