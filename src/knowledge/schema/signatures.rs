//! The tables of `signatures/*.toml`: what a problem looks like in the output of a tool.

use super::{Fault, List, Str};

choice! {
    /// Who writes the line.
    pub enum Tool {
        Nvcc,
        /// gcc or clang, started by nvcc or by the build.
        Compiler,
        Linker,
        /// NCCL's own warnings.
        Nccl,
        /// The dynamic loader.
        Loader,
        /// The C library and the kernel: no space, no memory, no processes.
        System,
    }
}

record! {
    /// One way in which a problem shows.
    pub struct Signature {
        pub name: Str,
        /// The problem, by its id.
        pub id: Str,
        /// One sentence; `{name}` stands for what the group of that name caught.
        pub says: Str,
        pub tool: Tool,
        /// Regular expressions over the bytes of one line, without Unicode classes. Named groups are captured.
        pub patterns: List<Str>,
        /// Of several that match in one output the lowest rank speaks, and among equals the first line. 50 is usual; less for a line
        /// that names the cause wherever it stands, more for one that others explain.
        #[serde(default)]
        pub rank: Option<u32>,
        /// Signatures that this one follows from: it is passed over where one of them matches too.
        #[serde(default)]
        pub after: List<Str>,
        /// Real lines, all of which it matches and no other signature of lower or equal rank does.
        pub examples: List<Str>,
        #[serde(default)]
        pub source: Str,
        #[serde(default)]
        pub checked: Str,
    }
}

row!(Signature, Str, |s| s.name.clone(), s.name.to_string(), {
    match () {
        () if s.patterns.is_empty() => Err(Fault::new("patterns", "is empty")),
        () if s.examples.is_empty() => Err(Fault::new("examples", "is empty: a signature proves itself on a real line")),
        () if s.rank == Some(0) => Err(Fault::new("rank", "starts at 1")),
        () => Ok(()),
    }
});

impl Signature {
    pub fn rank(&self) -> u32 {
        self.rank.unwrap_or(50)
    }
}

tables! {
    /// All signatures.
    SignatureTables in "signatures.toml" {
        signature: Signature,
    }
    whole: |t| {
        let unknown = |name: &&Str| !t.signature.iter().any(|other| other.name == **name);
        match t.signature.iter().flat_map(|row| row.after.iter()).find(unknown) {
            Some(name) => Err(Fault::new("signature", format!("names `{name}` in `after`, which has no row"))),
            None => Ok(()),
        }
    }
}
