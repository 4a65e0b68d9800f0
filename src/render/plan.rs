//! A plan as a script, as a step of a Dockerfile, and as JSON. Every word from outside is quoted.

use super::json::Envelope;
use super::shell;
use crate::facts::raw::Raw;
use crate::model::plan::{Line, What, Word};
use crate::text::clean;
use serde::Serialize;
use std::os::unix::ffi::OsStrExt as _;

#[derive(Debug, Clone, Default)]
pub struct Plan {
    pub deepspeed: String,
    pub ops: Vec<String>,
    /// `8.0`, `9.0+PTX`
    pub archs: Vec<String>,
    pub lines: Vec<Line>,
    pub left_out: Vec<LeftOut>,
    /// Why it would fail; nothing is planned then.
    pub refused: Vec<Refusal>,
    pub notes: Vec<String>,
    /// Of processor time, where every op was measured.
    pub seconds: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    pub op: String,
    pub why: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    pub id: &'static str,
    pub says: String,
    pub fixes: Vec<String>,
}

impl Plan {
    /// For a pipe into bash: what fails there fails here.
    fn refusal(&self) -> String {
        let mut ids: Vec<&str> = Vec::new();
        for refusal in &self.refused {
            if !ids.contains(&refusal.id) {
                ids.push(refusal.id);
            }
        }
        format!("echo 'ds-doctor: plan refused: {}' >&2; exit 1", ids.join(" "))
    }

    fn title(&self) -> String {
        let archs = if self.archs.is_empty() { String::new() } else { format!(" for {}", self.archs.join(";")) };
        let time = self.seconds.map(|seconds| format!("; about {} minutes of processor time", seconds.div_ceil(60))).unwrap_or_default();
        clean(&format!("DeepSpeed {} with {}{archs}{time}", self.deepspeed, self.ops.join(", "))).into_owned()
    }

    pub fn shell(&self) -> Vec<u8> {
        if !self.refused.is_empty() {
            return format!("{}\n", self.refusal()).into_bytes();
        }
        let mut out = format!("#!/usr/bin/env bash\n# {}\nset -eu\n", self.title()).into_bytes();
        for line in &self.lines {
            out.extend(statement(&line.what));
            out.extend(format!("  # {}\n", clean(&line.why)).into_bytes());
        }
        out
    }

    pub fn dockerfile(&self) -> Vec<u8> {
        if !self.refused.is_empty() {
            return format!("RUN {}\n", self.refusal()).into_bytes();
        }
        let mut out = format!("# {}\nRUN set -eu; \\\n", self.title()).into_bytes();
        for (at, line) in self.lines.iter().enumerate() {
            // Comment lines between continued ones are taken out by the builder.
            out.extend(format!("# {}\n    ", clean(&line.why)).into_bytes());
            out.extend(statement(&line.what));
            out.extend(if at + 1 == self.lines.len() { b"\n".to_vec() } else { b"; \\\n".to_vec() });
        }
        out
    }

    pub fn json(&self) -> Vec<u8> {
        let lines: Vec<JsonLine> = self.lines.iter().map(JsonLine::from).collect();
        let result = serde_json::json!({
            "deepspeed": self.deepspeed,
            "ops": self.ops,
            "archs": self.archs,
            "lines": if self.refused.is_empty() { lines } else { Vec::new() },
            "left_out": self.left_out,
            "refused": self.refused,
            "notes": self.notes,
            "processor_seconds": self.seconds,
        });
        Envelope::bare("plan", result).broken_if(!self.refused.is_empty()).text().into_bytes()
    }
}

/// One statement of a POSIX shell.
fn statement(what: &What) -> Vec<u8> {
    let set = |name: &str, value: &[u8]| [b"export ".as_slice(), name.as_bytes(), b"=", &shell::quote_sh(value)].concat();
    match what {
        What::Set { name, value } => set(name, value.bytes()),
        What::Unset { name } => format!("unset {name}").into_bytes(),
        What::Prepend { name, folder } => {
            let tail = format!("\"${{{name}:+:${name}}}\"");
            [set(name, folder.as_os_str().as_bytes()), tail.into_bytes()].concat()
        }
        What::Append { name, folder } => [
            b"export ".as_slice(),
            name.as_bytes(),
            format!("=\"${{{name}:+${name}:}}\"").as_bytes(),
            &shell::quote_sh(folder.as_os_str().as_bytes()),
        ]
        .concat(),
        What::Run { argv } => {
            let words: Vec<Vec<u8>> = argv
                .iter()
                .map(|word| match word {
                    Word::Plain(word) => shell::quote_sh(word.as_bytes()),
                    Word::Pattern(word) => word.clone().into_bytes(),
                })
                .collect();
            words.join(&b' ')
        }
    }
}

#[derive(Serialize)]
struct JsonLine {
    /// `set`, `unset`, `prepend`, `append`, `run`
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Raw>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    argv: Vec<String>,
    why: String,
}

impl From<&Line> for JsonLine {
    fn from(line: &Line) -> Self {
        let base = Self { action: "run", name: None, value: None, argv: Vec::new(), why: line.why.clone() };
        match &line.what {
            What::Set { name, value } => Self { action: "set", name: Some(name.clone()), value: Some(value.clone()), ..base },
            What::Unset { name } => Self { action: "unset", name: Some(name.clone()), ..base },
            What::Prepend { name, folder } => {
                Self { action: "prepend", name: Some(name.clone()), value: Some(Raw(folder.0.clone().into_os_string())), ..base }
            }
            What::Append { name, folder } => {
                Self { action: "append", name: Some(name.clone()), value: Some(Raw(folder.0.clone().into_os_string())), ..base }
            }
            What::Run { argv } => {
                let argv = argv.iter().map(|word| match word {
                    Word::Plain(word) | Word::Pattern(word) => word.clone(),
                });
                Self { argv: argv.collect(), ..base }
            }
        }
    }
}
