//! The lines of an output against the signatures.

use crate::facts::probe::Meaning;
use crate::knowledge::Knowledge;
use crate::knowledge::schema::shape::{Hit, Shape, stands};
use crate::knowledge::schema::signatures::{Kind, Signature, Tool};
use std::collections::BTreeMap;

/// The signatures, ready to read with. Making one compiles every pattern: some milliseconds, so only once something failed.
pub struct Reader<'a> {
    all: Vec<(&'a Signature, Shape)>,
}

/// A line that a signature knows.
#[derive(Debug, Clone)]
pub struct Match<'a> {
    pub signature: &'a Signature,
    /// Counted from 1.
    pub number: usize,
    pub line: String,
    pub captures: BTreeMap<String, String>,
}

impl Match<'_> {
    pub fn meaning(&self) -> Meaning {
        Meaning { id: self.signature.id.to_string(), signature: self.signature.name.to_string(), captures: self.captures.clone() }
    }
}

/// Longer lines are read up to here: command lines of a build can have hundreds of kilobytes.
const LONGEST: usize = 16 << 10;

impl<'a> Reader<'a> {
    /// # Errors
    /// A pattern that is no regular expression, which only a table of `--rules-dir` can hold.
    pub fn new(know: &'a Knowledge) -> Result<Self, String> {
        Self::of(know, |_| true)
    }

    /// Only the signatures of these tools.
    ///
    /// # Errors
    /// As [`Reader::new`].
    pub fn of(know: &'a Knowledge, wanted: impl Fn(Tool) -> bool) -> Result<Self, String> {
        let mut all = Vec::new();
        for signature in know.signatures.signature.iter().filter(|signature| wanted(signature.tool)) {
            let shape = Shape::new(signature).map_err(|fault| format!("signature {}: {}", signature.name, fault.why))?;
            all.push((signature, shape));
        }
        Ok(Self { all })
    }

    /// Every signature's first line, in the order of lines.
    pub fn matches(&self, output: &[u8]) -> Vec<Match<'a>> {
        let lines: Vec<&[u8]> = output.split(|byte| *byte == b'\n').map(shortened).collect();
        let mut found: Vec<Match<'a>> = self.all.iter().filter_map(|(signature, shape)| first(signature, shape, &lines)).collect();
        found.sort_by_key(|one| one.number);
        found
    }

    /// The line that names the cause.
    pub fn cause(&self, output: &[u8]) -> Option<Match<'a>> {
        let all = self.matches(output);
        let explained = |one: &Match<'_>| one.signature.after.iter().any(|name| all.iter().any(|other| other.signature.name == *name));
        let causes = all.iter().filter(|one| one.signature.kind() == Kind::Cause && !explained(one));
        causes.min_by_key(|one| (one.signature.rank(), one.number)).cloned()
    }
}

fn shortened(line: &[u8]) -> &[u8] {
    let line = line.get(..line.len().min(LONGEST)).unwrap_or_default();
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn first<'a>(signature: &'a Signature, shape: &Shape, lines: &[&[u8]]) -> Option<Match<'a>> {
    let hit = |(line, captures)| Hit { line, captures };
    let mut decisive = lines.iter().enumerate().filter_map(|(at, line)| Some(hit((at, shape.decisive(line)?)))).peekable();
    decisive.peek()?;
    let of_context = |number| lines.iter().enumerate().filter_map(|(at, line)| Some(hit((at, shape.context(number, line)?)))).collect();
    let around: Vec<Vec<Hit>> = (0..signature.context.len()).map(of_context).collect();
    decisive.find_map(|hit| {
        let captures = stands(&signature.context, &hit, &around)?;
        let line = String::from_utf8_lossy(lines.get(hit.line)?).trim().to_owned();
        Some(Match { signature, number: hit.line + 1, line, captures })
    })
}

/// The first line that tells of an error, whoever wrote it; else the last line that is not empty.
pub fn first_error(output: &[u8]) -> String {
    let lines = || output.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty());
    let tells = |line: &&[u8]| {
        let lower = line.get(..line.len().min(LONGEST)).unwrap_or_default().to_ascii_lowercase();
        let has = |word: &str| memchr::memmem::find(&lower, word.as_bytes()).is_some();
        ["error:", "error :", "fatal:", "fatal :", "fatal   :", "cannot find", "undefined reference", "undefined symbol", "not found"]
            .into_iter()
            .any(has)
            || has("no such file")
            || has("no space left")
            || has("permission denied")
            || has("killed")
    };
    let line = lines().find(tells).or_else(|| lines().next_back()).unwrap_or_default();
    String::from_utf8_lossy(line.get(..line.len().min(2048)).unwrap_or_default()).into_owned()
}

#[cfg(test)]
#[expect(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::knowledge::schema::signatures::example;

    fn cause(output: &str) -> Option<(String, String)> {
        let know = Knowledge::embedded();
        let reader = Reader::new(&know).unwrap();
        reader.cause(output.as_bytes()).map(|found| (found.signature.id.to_string(), found.line))
    }

    #[test]
    fn every_example_is_known_by_its_own_signature_alone() {
        let know = Knowledge::embedded();
        let reader = Reader::new(&know).unwrap();
        let mut wrong = Vec::new();
        for signature in know.signatures.signature.iter() {
            for text in signature.examples.iter() {
                let (lines, at) = example(text).unwrap();
                let output = lines.join("\n");
                let own = |one: &Match<'_>| one.signature.name == signature.name;
                let found = match signature.kind() {
                    Kind::Cause => reader.cause(output.as_bytes()),
                    // A cause may stand in the example too.
                    Kind::Consequence | Kind::Harmless => reader.matches(output.as_bytes()).into_iter().find(own),
                };
                let found = found.map(|found| (found.signature.name.to_string(), found.number));
                if found != Some((signature.name.to_string(), at + 1)) {
                    wrong.push(format!("{} is taken for {found:?}: {text}", signature.name));
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn every_id_is_a_problem_of_probes_or_logs() {
        let know = Knowledge::embedded();
        for signature in know.signatures.signature.iter() {
            let problem = know.problem(&signature.id);
            assert!(problem.is_some_and(|problem| problem.id == signature.id), "{}: {}", signature.name, signature.id);
            let seen = problem.map_or(&[][..], |problem| problem.seen_in);
            assert!(seen.contains(&"log") || seen.contains(&"probe"), "{}: its row does not say that logs show it", signature.id);
        }
    }

    #[test]
    fn the_cause_speaks_wherever_it_stands() {
        let log = "In file included from x.h:1:\n\
            nvcc warning : The -std=c++20 flag is not supported with the configured host compiler. Flag will be ignored.\n\
            a.h(3): error: #error libcu++ requires at least C++ 17. Define CCCL_IGNORE_DEPRECATED_CPP_DIALECT\n\
            /usr/bin/ld: cannot find -lcudart: No such file or directory\n";
        assert_eq!(cause(log).unwrap().0, "gcc-too-old-for-torch");
        assert_eq!(cause("all is well\n"), None);
    }

    #[test]
    fn bytes_and_long_lines_do_no_harm() {
        let mut output = vec![0xff, 0xfe, b'\n'];
        output.extend(vec![b'x'; LONGEST + 10]);
        output.extend(b"\r\n/usr/bin/ld: cannot find -lcudart\r\n");
        let know = Knowledge::embedded();
        let found = Reader::new(&know).unwrap().cause(&output).unwrap();
        assert_eq!((found.number, found.line.as_str()), (3, "/usr/bin/ld: cannot find -lcudart"));
        assert_eq!(found.captures["library"], "cudart");
    }

    #[test]
    fn first_errors() {
        assert_eq!(first_error(b"note: x\na.cu(3): error: boom\nb.cu(4): error: more\n"), "a.cu(3): error: boom");
        assert_eq!(first_error(b"collect2\n\n last words \n\n"), "last words");
        assert_eq!(first_error(b""), "");
    }
}
