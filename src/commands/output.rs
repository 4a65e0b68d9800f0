//! Where the result goes: standard output or a file, with colour where it is wanted.
#![expect(clippy::disallowed_methods, reason = "opens the file that --output names")]

use crate::cli::{Color, TalkArgs};
use crate::render::Detail;
use anstream::{AutoStream, ColorChoice, StripStream};
use anyhow::Context as _;
use std::io::{self, BufWriter, Write};

/// A writer for the result, in large pieces: a snapshot is made of thousands of small ones. To be flushed at the end, so that a full
/// disk is told.
///
/// # Errors
/// When the file cannot be made.
pub fn result(talk: &TalkArgs) -> anyhow::Result<Box<dyn Write>> {
    if let Some(path) = &talk.output {
        let file = std::fs::File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        return Ok(Box::new(BufWriter::new(StripStream::new(file))));
    }
    let choice = match talk.color {
        Color::Auto => AutoStream::choice(&io::stdout()),
        Color::Always => ColorChoice::Always,
        Color::Never => ColorChoice::Never,
    };
    Ok(Box::new(BufWriter::new(AutoStream::new(io::stdout().lock(), choice))))
}

/// How much of a report is printed.
pub fn detail(talk: &TalkArgs) -> Detail {
    match (talk.quiet, talk.verbose) {
        (true, _) => Detail::Quiet,
        (_, true) => Detail::Verbose,
        _ => Detail::Normal,
    }
}

/// One line for the person, on standard error, unless `-q`.
pub fn note(talk: &TalkArgs, text: &str) {
    if !talk.quiet {
        // A closed standard error is no reason to fail.
        let _ = writeln!(io::stderr(), "ds-doctor: {}", crate::text::clean(text));
    }
}
