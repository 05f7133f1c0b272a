//! Small Go programs of this crate's module, for tests that compare with Go.

use std::io::{Seek as _, Write as _};
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::build;
use crate::shared::required;

/// Runs a program of the Go module in this crate (`./schema`) on an input and returns its output.
/// Go builds it when it changes, and caches it.
pub fn run_tool(package: &str, args: &[&str], input: &[u8]) -> Result<String> {
    let mut file = tempfile::tempfile().context("make a file for the input")?;
    file.write_all(input).context("write the input")?;
    file.rewind().context("rewind the input")?;
    let all = [&["run", "-mod=readonly", "-trimpath", package], args].concat();
    build::go_with_input(Path::new(env!("CARGO_MANIFEST_DIR")), &all, file.into())
}

/// [`run_tool`], or `None` after printing to stderr that Go is not available.
///
/// # Panics
///
/// If Go is not available and [`required`], or if the program fails.
pub fn run_tool_or_skip(package: &str, args: &[&str], input: &[u8]) -> Option<String> {
    match build::go(Path::new(env!("CARGO_MANIFEST_DIR")), &["version"]) {
        Err(why) if required() => panic!("{why:#}"),
        Err(why) => {
            eprintln!("SKIPPED: {why:#}");
            None
        }
        Ok(_) => match run_tool(package, args, input) {
            Ok(output) => Some(output),
            Err(why) => panic!("{package}: {why:#}"),
        },
    }
}
