//! The `supercargo` binary.

use std::process::ExitCode;

use clap::Parser as _;
use supercargo::api::full_text;
use supercargo::cli::{Cli, execute};

fn main() -> ExitCode {
    match execute(Cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("supercargo: {}", full_text(&*error));
            ExitCode::FAILURE
        }
    }
}
