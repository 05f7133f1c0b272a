//! `supercargo capture`: the state of the scheduler as a file.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::ops::{ControlFlow, Not};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use supercargo_config::Config;
use supercargo_report::words::printable_json;
use supercargo_scheduler::Fork;
use supercargo_scheduler::record::{Pseudonyms, RecordedCall, Redaction};

use super::progress::Deadline;
use super::question::{Answer, Question, State, View};

#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(after_help = "\
Prints a file of JSON lines, which other questions take with --from. It has all nodes, pods and other objects that
the scheduler reads, its configuration, and the log of `timeline`.
Exit codes: 0 if the capture is complete, 2 for wrong usage, 3 if no answer is possible.")]
pub(crate) struct CaptureQuestion {
    /// Replace names, labels, images, messages and so on by pseudonyms, which only this file has
    #[arg(
        long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true",
        default_value_t = false, hide_possible_values = true
    )]
    #[serde(skip_serializing_if = "Not::not")]
    redact: bool,
}

impl Question for CaptureQuestion {
    const NAME: &'static str = "capture";
    const IS_FILE: bool = true;

    fn answer(&self, mut state: State, _: &View) -> Result<Answer> {
        let mut file = CaptureFile::of(&state);
        let config = &state.config;
        if self.redact {
            let (pseudonyms, configuration) = pseudonyms(&mut state.fork, config, state.deadline)?;
            show(&mut state.fork, configuration, |call| file.add(&pseudonyms.call(call)?))?;
        } else {
            show(&mut state.fork, config.to_yaml_without_keys(), |call| file.add(&call))?;
        }
        Ok((file.text, true).into())
    }
}

/// A pseudonym for each name, and the configuration with them.
fn pseudonyms(fork: &mut Fork, config: &Config, deadline: Deadline) -> Result<(Pseudonyms, String)> {
    let mut redaction = Redaction::keeping(config.plugin_names());
    config.to_redacted_yaml(&mut |setting| {
        redaction.note_setting(&setting);
        setting
    })?;
    show(fork, String::new(), |call| {
        deadline.check()?;
        Ok(redaction.note(call)?)
    })?;
    // Its secret is forgotten with it.
    let key = RandomState::new();
    let pseudonyms = redaction.pseudonyms(|text| key.hash_one(text));
    let configuration = config.to_redacted_yaml(&mut |setting| pseudonyms.setting(setting))?;
    Ok((pseudonyms, configuration))
}

/// Shows the calls of a capture until an error.
fn show(
    fork: &mut Fork,
    configuration: String,
    mut each: impl FnMut(RecordedCall) -> Result<()>,
) -> Result<()> {
    let shown = fork.capture(configuration, |call| match each(call) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    });
    match shown {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// The text of a capture.
struct CaptureFile {
    text: String,
    deadline: Deadline,
    most_bytes: usize,
}

impl CaptureFile {
    fn of(state: &State) -> Self {
        Self { text: String::new(), deadline: state.deadline, most_bytes: state.most_bytes }
    }

    fn add(&mut self, call: &RecordedCall) -> Result<()> {
        self.deadline.check()?;
        let line = call.to_line().context("the state cannot be written as JSON")?;
        // A terminal, or a client that reads a table, gets it unchanged.
        self.text += &printable_json(&String::from_utf8_lossy(&line));
        let most = self.most_bytes >> 20;
        ensure!(
            self.text.len() <= self.most_bytes,
            "the capture is larger than {most} MiB; `supercargo capture` reads the cluster without a limit"
        );
        Ok(())
    }
}
