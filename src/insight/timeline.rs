//! `supercargo timeline`: what happened to a pod.

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde::Serialize;
use supercargo_report as report;

use super::question::{Answer, Question, State, View, pod_name};

#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(after_help = "\
Exit codes: 0 if the log has something about the pod, 2 for wrong usage, 3 if it has not, or cannot be read.
Only a running supercargo or a file answers: use `kubectl supercargo timeline`, --leader, --server or --from.
`supercargo replay --timeline` answers from a record.")]
pub(crate) struct TimelineQuestion {
    /// Pod: NAME, pod/NAME or NAMESPACE/NAME. It may be gone
    #[arg(value_name = "POD")]
    pod: String,
}

impl Question for TimelineQuestion {
    const NAME: &'static str = "timeline";
    const NEEDS_RUNNING: bool = true;

    fn answer(&self, state: State, view: &View) -> Result<Answer> {
        let pod = state.key(&self.pod, view)?;
        let history = state.fork.history(&pod).context("supercargo runs with --timeline-memory=0")?;
        ensure!(!history.entries.is_empty(), "the log has nothing about pod {pod}");
        let text = view.output.write(
            |width| report::timeline(&pod, &history, width),
            || report::timeline_json(&pod, &history),
            || vec![pod_name(&pod)],
        );
        Ok((text, true).into())
    }
}
