//! The tables of `signatures/*.toml`: what a problem looks like in the output of a tool.

use super::shape::{Captures, Hit, Shape, stands};
use super::{Fault, List, Str, words};
use crate::version::{Capability, CudaVersion, Dotted, Target};

choice! {
    /// Who writes the line. Innermost first: where nothing is known, the first error of the innermost is shown.
    pub enum Tool {
        Nvcc,
        /// gcc, clang or MSVC, started by nvcc or by the build.
        Compiler,
        Linker,
        /// The dynamic loader, also through an `ImportError`.
        Loader,
        /// The C library and the kernel: no space, no memory, no processes.
        System,
        /// NCCL's own warnings.
        Nccl,
        /// torch and DeepSpeed when a program runs: CUDA errors, distributed and numeric ones.
        Runtime,
        /// torch's `cpp_extension` and DeepSpeed's op builders.
        Builder,
        Ninja,
        /// The interpreter: modules that are not there, exceptions of no builder.
        Python,
        Setuptools,
        Pip,
        Uv,
        Conda,
        Docker,
    }
}

choice! {
    /// What a line tells.
    pub enum Kind {
        /// Why it went wrong.
        Cause,
        /// That it went wrong: its cause is another line.
        Consequence,
        /// Nothing: loud, and met in builds and runs that succeed.
        Harmless,
    }
}

choice! {
    /// How far a line can be trusted to mean its problem.
    pub enum Trust {
        /// The text says it.
        Certain,
        /// It means this as a rule; other problems can print the same.
        Likely,
    }
}

choice! {
    /// Where a line of the context stands, seen from the decisive line.
    pub enum Place {
        Before,
        /// After the decisive line, and after the lines of the context that are named before this one.
        After,
        Anywhere,
    }
}

choice! {
    pub enum System {
        Linux,
        Windows,
    }
}

record! {
    /// A line that must stand, or must not stand, around the decisive one.
    pub struct Context {
        /// As those of a signature. A named group that the decisive line has too must catch the same text in both.
        pub pattern: Str,
        pub place: Place,
        /// At most so many lines away: from the decisive line, or with `after` from the line of the context before. Absent: anywhere.
        #[serde(default)]
        pub within: Option<u32>,
        /// The signature holds only where there is no such line.
        #[serde(default)]
        pub absent: bool,
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
        /// `cause` where nothing else is said.
        #[serde(default)]
        pub kind: Option<Kind>,
        /// `certain` where nothing else is said.
        #[serde(default)]
        pub confidence: Option<Trust>,
        /// The system that prints it, where only one does: facts of another are not asked about it.
        #[serde(default)]
        pub platform: Option<System>,
        /// Regular expressions over the bytes of one line, without Unicode classes; the line is the decisive one. Any of them does.
        ///
        /// The line is read without colours, prefixes of docker, CI and ranks, and indentation; `‘’“”«»` are `'` and `"`. Named groups are
        /// captured, and a name of [`reading`] gives what it catches a type.
        pub patterns: List<Str>,
        /// Lines around the decisive one: all of these must hold. What they capture counts as the decisive line's.
        #[serde(default)]
        pub context: List<Context>,
        /// Of several that match in one output the lowest rank speaks, and among equals the first line. 50 is usual; less for a line
        /// that names the cause wherever it stands, more for one that others explain: above 50 it counts only where no cause of 50 or
        /// less is there.
        #[serde(default)]
        pub rank: Option<u32>,
        /// Signatures that this one follows from: it is passed over where one of them matches too.
        #[serde(default)]
        pub after: List<Str>,
        /// First of its kind wins: of all signatures of one family only the one whose line comes first counts as a cause, the others
        /// follow from it (the rank that died first, and what the other ranks said of it).
        #[serde(default)]
        pub family: Str,
        /// Real output that it matches, and that no other signature of lower or equal rank does. One line; or several, of which the
        /// decisive one begins with `>> `, which is not part of it.
        pub examples: List<Str>,
        /// Lines that look alike and must not match.
        #[serde(default)]
        pub misses: List<Str>,
        /// For each pattern, then for each pattern of the context: words of which every line that it matches holds one. Not written in a
        /// table: build.rs finds them for those it embeds, as that takes longer than to read a log.
        #[serde(skip)]
        pub words: List<List<Str>>,
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
        () => s.proves_itself(),
    }
});

/// What a named group catches, where its name gives it a type. Any other name catches text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reading {
    /// `nvcc`, `torch_cuda`, `driver_cuda`: a CUDA release, `12.4`.
    Cuda(CudaVersion),
    /// `torch`, `deepspeed`, `python`, `gcc`, `clang`, `glibc`, `driver`, `nccl`, `setuptools`, `pip`, `triton`: `2.6.0+cu124`.
    Version(Dotted),
    /// `arch`: `compute_89`, `sm_90a`, `8.9`, `89`.
    Arch(Target),
    /// `capability` of a GPU: `8.9`.
    Capability(Capability),
    /// `library`, `header`, `op`, `module`, `symbol`, `program`: a name without blanks.
    Name(String),
    /// `signal`, `rank`, `gpu`, `bytes`, `line`: a whole number.
    Number(u64),
}

/// The text that the group `name` caught, by its type; `None` for a group without one.
///
/// # Errors
/// What the text should have been.
pub fn reading(name: &str, text: &str) -> Result<Option<Reading>, &'static str> {
    let read = match name {
        "nvcc" | "torch_cuda" | "driver_cuda" => text.parse().map(Reading::Cuda).map_err(|_| "a CUDA release"),
        "torch" | "deepspeed" | "python" | "gcc" | "clang" | "glibc" | "driver" | "nccl" | "setuptools" | "pip" | "triton" => {
            text.parse().map(Reading::Version).map_err(|_| "a version")
        }
        "arch" => text.parse().map(Reading::Arch).map_err(|_| "an architecture"),
        "capability" => text.parse().map(Reading::Capability).map_err(|_| "a compute capability"),
        "library" | "header" | "op" | "module" | "symbol" | "program" if text.is_empty() || text.contains(char::is_whitespace) => {
            Err("a name")
        }
        "library" | "header" | "op" | "module" | "symbol" | "program" => Ok(Reading::Name(text.to_owned())),
        "signal" | "rank" | "gpu" | "bytes" | "line" => text.parse().map(Reading::Number).map_err(|_| "a whole number"),
        _ => return Ok(None),
    };
    read.map(Some)
}

/// What marks the decisive line in an example of several.
pub const DECISIVE: &str = ">> ";

/// The lines of an example, and which of them is decisive.
///
/// # Errors
/// None, or more than one, of several lines is marked.
pub fn example(text: &str) -> Result<(Vec<&str>, usize), Fault> {
    let mut lines: Vec<&str> = text.trim_matches('\n').split('\n').collect();
    if lines.len() < 2 {
        return Ok((lines, 0));
    }
    let marked: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with(DECISIVE)).collect();
    match marked.as_slice() {
        [one] => {
            lines[*one] = &lines[*one][DECISIVE.len()..];
            Ok((lines, *one))
        }
        _ => Err(Fault::new(
            "examples",
            format!("{} of the lines of `{text}` are marked as decisive by `{DECISIVE}`: mark one", marked.len()),
        )),
    }
}

impl Signature {
    /// Finds [`Signature::words`].
    pub fn find_words(&mut self) {
        let all = self.patterns.iter().chain(self.context.iter().map(|context| &context.pattern));
        let words = |pattern: &Str| words::needed(pattern).unwrap_or_default().into_iter().map(Str::from).collect();
        self.words = all.map(words).collect();
    }

    pub fn rank(&self) -> u32 {
        self.rank.unwrap_or(50)
    }

    pub fn kind(&self) -> Kind {
        self.kind.unwrap_or(Kind::Cause)
    }

    pub fn confidence(&self) -> Trust {
        self.confidence.unwrap_or(Trust::Certain)
    }

    /// Every pattern compiles and is met by an example, each example as a whole fits, what is captured has its type, and no miss fits.
    fn proves_itself(&self) -> Result<(), Fault> {
        let shape = Shape::new(self)?;
        let wordless = |pattern: &&Str| words::needed(pattern).is_none();
        if let Some(pattern) = self.patterns.iter().find(wordless) {
            return Err(Fault::new("patterns", format!("`{pattern}`: {WORDLESS}")));
        }
        if let Some(pattern) = self.context.iter().map(|context| &context.pattern).find(wordless) {
            return Err(Fault::new("context", format!("`{pattern}`: {WORDLESS}")));
        }
        let groups = shape.groups();
        if let Some(hole) = holes(&self.says).find(|hole| !groups.contains(hole)) {
            return Err(Fault::new("says", format!("names `{{{hole}}}`, which no pattern captures")));
        }
        let mut met = vec![false; self.patterns.len()];
        for text in self.examples.iter() {
            let (lines, at) = example(text)?;
            let fits = self.fits(&shape, &lines, at).map_err(|why| Fault::new("examples", format!("`{text}`: {why}")))?;
            for (name, caught) in fits {
                if let Err(expected) = reading(&name, &caught) {
                    return Err(Fault::new("examples", format!("`{text}`: the group `{name}` caught `{caught}`, which is not {expected}")));
                }
            }
            for (one, met) in met.iter_mut().enumerate() {
                *met |= shape.matches(one, lines[at].as_bytes());
            }
        }
        if let Some(one) = met.iter().position(|met| !met) {
            return Err(Fault::new("examples", format!("hold none for pattern {}", one + 1)));
        }
        for text in self.misses.iter() {
            let lines: Vec<&str> = text.trim_matches('\n').split('\n').collect();
            if (0..lines.len()).any(|at| self.fits(&shape, &lines, at).is_ok()) {
                return Err(Fault::new("misses", format!("`{text}` matches")));
            }
        }
        Ok(())
    }

    fn fits(&self, shape: &Shape, lines: &[&str], at: usize) -> Result<Captures, String> {
        let caught = |found: Option<Captures>, line: usize| found.map(|captures| Hit { line, captures });
        let hit = caught(shape.decisive(lines[at].as_bytes()), at).ok_or("no pattern matches the decisive line")?;
        let all = |one: usize| (0..lines.len()).filter_map(|line| caught(shape.context(one, lines[line].as_bytes()), line)).collect();
        let around: Vec<Vec<Hit>> = (0..self.context.len()).map(all).collect();
        stands(&self.context, &hit, &around).ok_or_else(|| "its context does not hold".to_owned())
    }
}

const WORDLESS: &str =
    "holds no word of four letters that every matching line has (upper and lower case told apart), so it cannot be looked for fast";

/// The names in braces.
fn holes(says: &str) -> impl Iterator<Item = &str> {
    says.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
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

#[cfg(test)]
mod tests {
    use super::super::Tables as _;
    use super::SignatureTables;

    /// Why a row with these keys is refused; empty: it is not.
    fn refused(keys: &str) -> String {
        let row = "[[signature]]\nname = \"x\"\nid = \"y\"\nsays = \"z\"\ntool = \"linker\"\nsource = \"s\"\nchecked = \"2026-11\"\n";
        SignatureTables::parse("x.toml", &format!("{row}{keys}")).err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn a_signature_that_does_not_prove_itself_is_refused() {
        let context = "patterns = ['cannot find']\ncontext = [{ pattern = 'linking', place = 'before', within = 1 }]\n";
        assert_eq!(refused("patterns = ['cannot find']\nexamples = ['cannot find x']\nmisses = ['can find x']\n"), "");
        assert_eq!(
            refused(&format!("{context}examples = ['''linking\n>> cannot find x\nend''']\nmisses = ['''linking\n\ncannot find x''']\n")),
            ""
        );
        for (keys, why) in [
            ("patterns = ['cannot find', 'other words']\nexamples = ['cannot find x']\n", "hold none for pattern 2"),
            ("patterns = ['cannot find']\nexamples = ['found x']\n", "no pattern matches the decisive line"),
            ("patterns = ['cannot find']\nexamples = ['cannot find x']\nmisses = ['he cannot find y']\n", "matches"),
            (
                r"patterns = ['^\d+$']
            examples = ['12']",
                "no word of four letters",
            ),
            ("patterns = ['(?<arch>[a-z]+) is unknown']\nexamples = ['abc is unknown']\n", "which is not an architecture"),
            ("patterns = ['cannot find']\nexamples = ['''a\ncannot find x''']\n", "mark one"),
            ("patterns = ['cannot (find']\nexamples = ['cannot find x']\n", "unclosed group"),
        ] {
            assert!(refused(keys).contains(why), "{keys}: {}", refused(keys));
        }
        assert!(refused(&format!("{context}examples = ['''linking\n\n>> cannot find x''']\n")).contains("context does not hold"));
    }
}
