//! `supercargo fits`: how many more pods like a given one fit.

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::json;
use supercargo_framework::PodInfo;
use supercargo_scheduler::Fits;

use super::manifest::Subject;
use super::question::{Answer, Question, State, View, at_most_100_000, node_name};
use supercargo_report as report;

#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[command(after_help = "\
Exit codes: 0 if at least --count pods fit, 1 if fewer do, 2 for wrong usage, 3 if no answer is possible.
Pods are placed one after the other, as the scheduler would, without preemption. Nothing is created.")]
pub(crate) struct FitsQuestion {
    #[command(flatten)]
    #[serde(flatten)]
    subject: Subject,
    /// Number of pods that must fit; exit code 1 if fewer do
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = at_most_100_000)]
    count: usize,
    /// Maximum number of pods to try
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = at_most_100_000)]
    limit: usize,
}

impl Question for FitsQuestion {
    const NAME: &'static str = "fits";

    fn read_files(&mut self) -> Result<()> {
        self.subject.read()
    }

    /// The answer is good if enough pods fit.
    fn answer(&self, state: State, view: &View) -> Result<Answer> {
        let pod = state.subject(&self.subject, view)?;
        let fits = state.fork.fits(&pod, self.limit.max(self.count))?;
        let text = view.output.write(
            |width| report::fits(&pod, &fits, width),
            || json(&pod, &fits),
            || fits.by_node.keys().map(|node| node_name(node)).collect(),
        );
        Ok((text, fits.count() >= self.count).into())
    }
}

fn json(pod: &PodInfo, fits: &Fits) -> String {
    let key = pod.key();
    let fields = json!({
        "headline": report::fits_headline(pod, fits),
        "like": { "namespace": key.namespace, "name": key.name },
        "fit": fits.count(),
        "byNode": fits.by_node,
        "limitedBy": fits.then.as_ref().map(|why| why.refusals.iter().map(report::refusal_json).collect::<Vec<_>>()),
    });
    report::document("Fits", fields)
}
