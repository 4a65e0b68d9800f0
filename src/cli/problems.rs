//! What is typed after `ds-doctor explain` and `ds-doctor list`.

use super::TalkArgs;
use clap::{Args, ValueEnum};

/// Print a problem's page
#[derive(Debug, Args)]
pub struct ExplainArgs {
    /// A problem's id, or the words of an error message
    #[arg(value_name = "ID|TEXT", required = true)]
    pub what: Vec<String>,
    #[command(flatten)]
    pub talk: TalkArgs,
}

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
