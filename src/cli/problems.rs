//! What is typed after `ds-doctor explain` and `ds-doctor list`.

use super::TalkArgs;
use clap::{Args, ValueEnum};

/// Print a problem's page
#[derive(Debug, Args)]
#[command(after_long_help = EXPLAIN_EXAMPLES)]
pub struct ExplainArgs {
    /// A problem's id, or a line of an error message
    #[arg(value_name = "ID|TEXT", required = true)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  ds-doctor explain torch-nvcc-mismatch-major
  ds-doctor explain \"/usr/bin/ld: cannot find -lcudart: No such file or directory\"

Exit codes: 0 a page was printed, 2 nothing fits.";

/// List all problems
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those of this topic
    #[arg(value_name = "TOPIC")]
    pub topic: Option<String>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    pub format: ListingFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ListingFormat {
    Human,
    Json,
}
