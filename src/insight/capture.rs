//! `supercargo capture`: the state of the scheduler as a file.

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use supercargo_report::words::printable_json;

use super::question::{Answer, Question, State, View};

#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(after_help = "\
Prints a file of JSON lines, which other questions take with --from. It has all nodes, pods and other objects that
the scheduler reads, its configuration, and the log of `timeline`.
Exit codes: 0 if the capture is complete, 2 for wrong usage, 3 if no answer is possible.")]
pub(crate) struct CaptureQuestion {}

impl Question for CaptureQuestion {
    const NAME: &'static str = "capture";

    fn answer(&self, mut state: State, _: &View) -> Result<Answer> {
        let (mut text, mut failed) = (String::new(), None);
        state.fork.capture(state.config.to_yaml_without_keys(), |call| match call.to_line() {
            // A terminal, or a client that reads a table, gets it unchanged.
            Ok(line) => text += &printable_json(&String::from_utf8_lossy(&line)),
            Err(error) => failed = Some(error),
        });
        match failed {
            Some(error) => Err(error).context("the state cannot be written as JSON"),
            None => Ok((text, true).into()),
        }
    }
}
