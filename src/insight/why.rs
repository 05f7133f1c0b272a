//! `supercargo why`: why a pod is pending, or why it is on its node.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use supercargo_config::Catalog;

use super::{Asked, Format, Question, SHORT, print, report};

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 if the pod has a node or fits, 1 if it is pending, 2 for wrong usage, 3 if no answer is possible.
The answer is for the current state. Extenders are not called. A pod of a group is evaluated alone.")]
pub(crate) struct WhyOptions {
    #[command(flatten)]
    question: Question,
    /// Explain this node, too: what refuses the pod there, or its scores beside the best node's
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
}

/// Prints why the pod is pending.
pub(crate) async fn why(options: WhyOptions, catalog: &Catalog) -> Result<ExitCode> {
    let catalog = catalog.clone();
    print(options.question.source.timeout.unwrap_or(SHORT), async move { answer(&options, &catalog).await })
        .await
}

/// The answer, and whether the pod has a node or fits.
async fn answer(WhyOptions { question, node }: &WhyOptions, catalog: &Catalog) -> Result<(String, bool)> {
    let Asked { mut fork, pod } = question.ask(catalog).await?;
    if let Some(node) = node {
        fork.cache().nodes().get(node).with_context(|| format!("there is no node {node}"))?;
    }
    let why = fork.why_there(&pod)?;
    let is_placed = pod.is_assigned() || (!why.feasible.is_empty() && pod.scheduling_gates.is_empty());
    let text = match question.source.output {
        Format::Table => report::table(&pod, &why, node.as_deref()),
        Format::Json => report::json(&pod, &why),
    };
    Ok((text, is_placed))
}
