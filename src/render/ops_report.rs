//! The layout of DeepSpeed's own ds_report, without its colours: what issue templates ask for. Nothing is imported, and nothing crashes
//! where the toolkit is broken.
//!
//! Source of the layout: `deepspeed/env_report.py` of 0.9 to 0.19.8.

use super::ops::View;
use crate::model::ops::{Compatible, Installed, NvccFound};
use crate::model::search;
use crate::text::clean;
use std::fmt::Write as _;

const RULE: &str = "--------------------------------------------------";

/// `name .... value`, the dots up to a column; a longer name has none.
fn dotted(name: &str, width: usize, value: &str) -> String {
    let dots = ".".repeat(width.saturating_sub(name.chars().count()));
    format!("{name} {dots} {value}\n")
}

pub fn text(view: &View<'_, '_, '_>) -> String {
    let scene = view.scene;
    let mut out = String::new();
    let _ = write!(
        out,
        "{RULE}\nDeepSpeed C++/CUDA extension op report\n{RULE}\n\
         NOTE: Ops not installed will be just-in-time (JIT) compiled at\n      runtime if needed. Op compatibility means that your system\n      \
         meet the required dependencies to JIT install the op.\n{RULE}\nJIT compiled ops requires ninja\n"
    );
    let ninja = search::starts(scene.facts, "ninja").is_some();
    let _ = writeln!(out, "ninja .................. {}", if ninja { "[OKAY]" } else { "[FAIL]" });
    let _ = write!(out, "{RULE}\nop name ................ installed .. compatible\n{RULE}\n");
    for row in view.rows {
        // ds_report counts what was noted and built for this accelerator.
        let accelerator = scene.deepspeed.built.value().and_then(|built| built.accelerator.as_deref());
        let noted = matches!(row.state.installed, Installed::Yes | Installed::Invalid(_));
        let yes = noted && accelerator.is_none_or(|name| name == view.accelerator());
        let compatible = match row.state.compatible {
            Compatible::Yes => "[OKAY]",
            Compatible::Unknown => "[UNKNOWN]",
            Compatible::No | Compatible::Raises => "[NO]",
        };
        let (installed, dots) = if yes { ("[YES]", "......") } else { ("[NO]", ".......") };
        out.push_str(&dotted(&row.state.op.op, 23, &format!("{installed} {dots} {compatible}")));
    }
    let _ = write!(out, "{RULE}\nDeepSpeed general environment info:\n");
    let mut line = |name: &str, value: String| out.push_str(&dotted(name, 33, &clean(&value)));
    let built = scene.deepspeed.built.value();
    if let Some(torch) = scene.torch {
        line("torch install path", format!("['{}']", torch.path));
        line("torch version", torch.version.to_string());
    }
    line("deepspeed install path", format!("['{}']", scene.deepspeed.path));
    line("deepspeed info", scene.deepspeed.version.to_string());
    if let Some(torch) = scene.torch {
        line("torch cuda version", torch.cuda.map_or("None".to_owned(), |cuda| cuda.to_string()));
        line("torch hip version", torch.hip.clone().unwrap_or_else(|| "None".to_owned()));
    }
    let nvcc = match scene.nvcc() {
        Ok(NvccFound::Release(release)) => release.to_string(),
        Ok(NvccFound::NoHome) => " [FAIL] cannot find CUDA_HOME via torch.utils.cpp_extension.CUDA_HOME".to_owned(),
        Ok(NvccFound::NoNvcc) => " [FAIL] nvcc missing".to_owned(),
        Err(missing) => format!(" [UNKNOWN] {}", missing.why),
    };
    line("nvcc version", nvcc);
    let word = |text: Option<&String>| text.cloned().unwrap_or_else(|| "0.0".to_owned());
    line(
        "deepspeed wheel compiled w.",
        format!("torch {}, cuda {}", word(built.and_then(|built| built.torch.as_ref())), word(built.and_then(|built| built.cuda.as_ref()))),
    );
    let shm = scene.facts.host.folder(crate::facts::host::FolderPurpose::SharedMemory).and_then(|folder| folder.size);
    if let Some(size) = shm {
        // As there: GiB, called GB.
        #[expect(clippy::cast_precision_loss, reason = "two digits behind the point are shown")]
        let size = size as f64 / f64::from(1_u32 << 30);
        line("shared memory (/dev/shm) size", format!("{size:.2} GB"));
    }
    let _ = writeln!(out, "made by ds-doctor {} without importing torch or DeepSpeed", env!("CARGO_PKG_VERSION"));
    out
}
