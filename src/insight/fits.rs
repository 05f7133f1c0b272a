//! `supercargo fits`: how many more pods like a given one fit.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::json;
use supercargo_config::Catalog;
use supercargo_framework::PodInfo;
use supercargo_scheduler::Fits;

use super::{Asked, Format, Question, SHORT, print, report};

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 if as many fit as --count names, 1 if fewer do, 2 for wrong usage, 3 if no answer is possible.
Pods are placed one after the other, as the scheduler would, without preemption. Nothing is created.")]
pub(crate) struct FitsOptions {
    #[command(flatten)]
    question: Question,
    /// Number of pods that must fit; exit code 1 if fewer do
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    count: usize,
    /// Maximum number of pods to try
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    limit: usize,
}

/// Prints how many more pods fit.
pub(crate) async fn fits(options: FitsOptions, catalog: &Catalog) -> Result<ExitCode> {
    let catalog = catalog.clone();
    print(options.question.source.timeout.unwrap_or(SHORT), async move { answer(&options, &catalog).await })
        .await
}

/// The answer, and whether enough pods fit.
async fn answer(options: &FitsOptions, catalog: &Catalog) -> Result<(String, bool)> {
    let Asked { fork, pod } = options.question.ask(catalog).await?;
    let fits = fork.fits(&pod, options.limit.max(options.count))?;
    let text = match options.question.source.output {
        Format::Table => report::fits(&pod, &fits),
        Format::Json => json(&pod, &fits),
    };
    Ok((text, fits.count() >= options.count))
}

fn json(pod: &PodInfo, fits: &Fits) -> String {
    let key = pod.key();
    let fields = json!({
        "like": { "namespace": key.namespace, "name": key.name },
        "fit": fits.count(),
        "byNode": fits.by_node,
        "limitedBy": fits.then.as_ref().map(|why| why.refusals.iter().map(report::refusal_json).collect::<Vec<_>>()),
    });
    report::document("Fits", fields)
}
