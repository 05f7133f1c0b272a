//! `supercargo capture`: the state of the scheduler as a file.

use std::ops::ControlFlow;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use supercargo_report::words::printable_json;
use supercargo_scheduler::record::RecordedCall;

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
    const IS_FILE: bool = true;

    fn answer(&self, mut state: State, _: &View) -> Result<Answer> {
        let (mut text, deadline, most_bytes) = (String::new(), state.deadline, state.most_bytes);
        let mut add = |call: RecordedCall| {
            deadline.check()?;
            let line = call.to_line().context("the state cannot be written as JSON")?;
            // A terminal, or a client that reads a table, gets it unchanged.
            text += &printable_json(&String::from_utf8_lossy(&line));
            let most = most_bytes >> 20;
            ensure!(
                text.len() <= most_bytes,
                "the capture is larger than {most} MiB; `supercargo capture` reads the cluster without a limit"
            );
            Ok(())
        };
        let configuration = state.config.to_yaml_without_keys();
        let shown = state.fork.capture(configuration, |call| match add(call) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        });
        match shown {
            ControlFlow::Continue(()) => Ok((text, true).into()),
            ControlFlow::Break(error) => Err(error),
        }
    }
}
