//! What torch, nvcc, pip, the dynamic loader and DeepSpeed would do on this machine, computed from facts alone.

pub mod visible;
