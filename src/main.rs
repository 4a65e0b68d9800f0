//! The program: the GPU worker's entry, then command line, command, exit code.

use clap::Parser as _;
use ds_doctor::cli::{Cli, with_default_command};
use ds_doctor::exit::Exit;
use std::io::{self, Write as _};
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Some(code) = ds_doctor::gpu::worker::entry() {
        return code;
    }
    let cli = match Cli::try_parse_from(with_default_command(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return if error.use_stderr() { Exit::Unable.into() } else { Exit::Fine.into() };
        }
    };
    match ds_doctor::commands::run(&cli) {
        Ok(exit) => exit.into(),
        // A reader that has seen enough (`| head`) is no failure.
        Err(error) if error.chain().any(is_broken_pipe) => Exit::Fine.into(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "ds-doctor: {}", ds_doctor::text::clean(&format!("{error:#}")));
            Exit::Unable.into()
        }
    }
}

fn is_broken_pipe(error: &(dyn std::error::Error + 'static)) -> bool {
    let written = error.downcast_ref::<io::Error>().map(io::Error::kind);
    // serde_json keeps what stopped the writer to itself: it is no source of its error.
    let serialized = || error.downcast_ref::<serde_json::Error>().and_then(serde_json::Error::io_error_kind);
    written.or_else(serialized) == Some(io::ErrorKind::BrokenPipe)
}
