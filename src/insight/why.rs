//! `supercargo why`: why a pod is pending, or why it is on its node.

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;

use super::manifest::Subject;
use super::question::{Answer, Question, State, View, node_name};
use supercargo_report as report;

#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(after_help = "\
Exit codes: 0 if the pod has a node or fits, 1 if it is pending, 2 for wrong usage, 3 if no answer is possible.
The answer is for the current state. Extenders are not called.")]
pub(crate) struct WhyQuestion {
    #[command(flatten)]
    #[serde(flatten)]
    subject: Subject,
    /// Explain this node, too: what refuses the pod there, or its scores beside the best node's
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

impl Question for WhyQuestion {
    const NAME: &'static str = "why";

    fn read_files(&mut self) -> Result<()> {
        self.subject.read()
    }

    /// The answer is good if the pod has a node or fits.
    fn answer(&self, mut state: State, view: &View) -> Result<Answer> {
        let pod = state.subject(&self.subject, view)?;
        let node = self.node.as_deref();
        if let Some(node) = node {
            state.fork.cache().nodes().get(node).with_context(|| format!("there is no node {node}"))?;
        }
        let why = state.fork.why_there(&pod)?;
        let starts = why.group.as_ref().is_none_or(|group| group.obstacle.is_none());
        let fits = !why.feasible.is_empty() && pod.scheduling_gates.is_empty();
        let is_placed = pod.is_assigned() || (fits && starts);
        let text = view.output.write(
            |width| report::table(&pod, &why, node, width),
            || report::json(&pod, &why, view.rows),
            || why.feasible.iter().map(|(node, _)| node_name(node)).collect(),
        );
        Ok(Answer { text, is_good: is_placed, is_settled: pod.is_assigned() })
    }
}
