//! What is typed after `ds-doctor overlay`.

use super::{ListingFormat, TalkArgs};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// Make, show or remove a CUDA_HOME of links that repairs a toolkit's layout without root
#[derive(Debug, Args)]
#[command(after_help = OVERLAY_AFTER, after_long_help = OVERLAY_EXAMPLES)]
pub struct OverlayArgs {
    #[command(subcommand)]
    pub action: OverlayAction,
}

#[derive(Debug, Subcommand)]
pub enum OverlayAction {
    Create(OverlayCreateArgs),
    /// Say what an overlay links to, and whether it is whole
    Show(OverlayDirArgs),
    /// Take an overlay away; its toolkit stays as it is
    Remove(OverlayDirArgs),
}

/// Make the overlay of the toolkit that torch finds, or follow a change of that toolkit; nothing is done where it is right already
#[derive(Debug, Args)]
pub struct OverlayCreateArgs {
    /// Where; default: ds-doctor/overlay in $XDG_DATA_HOME, else in ~/.local/share
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The toolkit behind it; default: the one that torch finds, else the one that fits torch best
    #[arg(long, value_name = "DIR")]
    pub toolkit: Option<PathBuf>,
    /// The Python whose NVIDIA packages may fill gaps; default: the python3, else python, on PATH
    #[arg(long, value_name = "PATH")]
    pub python: Option<PathBuf>,
    /// Only say what would be linked
    #[arg(long)]
    pub dry_run: bool,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: ListingFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

// No doc comment: each command that takes these has its own sentence.
#[derive(Debug, Args)]
pub struct OverlayDirArgs {
    /// The overlay; default: ds-doctor/overlay in $XDG_DATA_HOME, else in ~/.local/share
    #[arg(value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// The shape of the result
    #[arg(long, value_name = "FORMAT", default_value = "human", help_heading = "Output")]
    pub format: ListingFormat,
    #[command(flatten)]
    pub talk: TalkArgs,
}

const OVERLAY_AFTER: &str =
    "Exit codes: 0 done (show: whole), 1 show: something in it is not as it was made, 2 nothing was changed, and why.";

const OVERLAY_EXAMPLES: &str = "\
Examples:
  ds-doctor overlay create
  eval \"$(ds-doctor fix --print-exports --overlay ~/.local/share/ds-doctor/overlay)\"
  ds-doctor overlay create ./cuda --toolkit /opt/conda
  ds-doctor overlay show -v
  ds-doctor overlay remove

Exit codes: 0 done (show: whole), 1 show: something in it is not as it was made, 2 nothing was changed, and why.";
