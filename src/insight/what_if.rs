//! `supercargo what-if`: where pods go if nodes are drained or fail, or come, or pods come or go.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use serde::Serialize;
use supercargo_framework::NodeInfo;
use supercargo_framework::pod::PodKey;
use supercargo_scheduler::{Fork, Verb};

use super::question::{Answer, Question, State, View, at_most_100_000, pod_name};
use supercargo_report as report;

#[derive(Args, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
#[group(required = true, multiple = true)]
#[command(override_usage = "supercargo what-if [OPTIONS] CHANGE...")]
#[command(next_help_heading = "Changes")]
#[command(after_help = "\
Changes apply in the order of this list: --add, --uncordon, --cordon, --delete, --copy, --fail, --drain.
Controllers replace pods at once, a pod on a node is ready, and volumes are bound at once. A drain leaves pods of \
DaemonSets and respects PodDisruptionBudgets. Nothing is changed in the cluster.

Exit codes: 0 if every affected pod gets another node, 1 if one does not, 2 for wrong usage, 3 if no answer is \
possible.")]
pub(crate) struct WhatIfQuestion {
    /// Add nodes like this one (default 1)
    #[arg(long, value_name = "NODE[=COUNT]")]
    add: Vec<String>,
    /// Uncordon the nodes
    #[arg(long, value_name = "NODES")]
    uncordon: Vec<Nodes>,
    /// Cordon the nodes. NODES is a name, or KEY=VALUE for all nodes with this label
    #[arg(long, value_name = "NODES")]
    cordon: Vec<Nodes>,
    /// Delete the pod; nothing replaces it
    #[arg(long, value_name = "POD")]
    delete: Vec<String>,
    /// Create pods like this one (default 1)
    #[arg(long, value_name = "POD[=COUNT]")]
    copy: Vec<String>,
    /// Fail the nodes, with all their pods
    #[arg(long, value_name = "NODES")]
    fail: Vec<Nodes>,
    /// Drain the nodes
    #[arg(long, value_name = "NODES")]
    drain: Vec<Nodes>,
}

/// A node's name, or a label.
pub(super) type Nodes = String;

impl Question for WhatIfQuestion {
    const NAME: &'static str = "what-if";

    /// The answer is good if no pod ends without a node, or on a drained one.
    fn answer(&self, mut state: State, view: &View) -> Result<Answer> {
        let verbs = self.parse(&state.fork, |text| state.key(text, view))?;
        let what_if = state.fork.what_if(&verbs, report::MOST_LINES)?;
        let text = view.output.write(
            |width| report::what_if(&what_if, width),
            || report::what_if_json(&what_if),
            || what_if.pods.iter().map(|outcome| pod_name(&outcome.pod)).collect(),
        );
        Ok((text, !what_if.pods.iter().any(|outcome| outcome.end.is_bad())).into())
    }
}

impl WhatIfQuestion {
    fn parse(&self, fork: &Fork, pod: impl Fn(&str) -> Result<PodKey>) -> Result<Vec<Verb>> {
        let mut verbs = Vec::new();
        for text in &self.add {
            let (name, count) = counted(text)?;
            verbs.push(Verb::AddNodes { like: name.into(), count });
        }
        verbs.extend(named(fork, &self.uncordon)?.into_iter().map(Verb::Uncordon));
        verbs.extend(named(fork, &self.cordon)?.into_iter().map(Verb::Cordon));
        for text in &self.delete {
            verbs.push(Verb::Delete(pod(text)?));
        }
        for text in &self.copy {
            let (name, count) = counted(text)?;
            verbs.push(Verb::AddPods { like: pod(name)?, count });
        }
        for (all, verb) in [(&self.fail, Verb::Fail as fn(_) -> _), (&self.drain, Verb::Drain)] {
            let nodes = named(fork, all)?;
            verbs.extend((!nodes.is_empty()).then(|| verb(nodes)));
        }
        let added = |verb: &Verb| match verb {
            Verb::AddNodes { count, .. } | Verb::AddPods { count, .. } => *count,
            _ => 0,
        };
        ensure!(verbs.iter().map(added).sum::<usize>() <= 100_000, "more than 100,000 nodes and pods to add");
        Ok(verbs)
    }
}

/// A name, and a count after `=`.
fn counted(text: &str) -> Result<(&str, usize)> {
    let Some((name, count)) = text.split_once('=') else { return Ok((text, 1)) };
    let count = at_most_100_000(count).map_err(|problem| anyhow!("{text}: {problem}"))?;
    Ok((name, count))
}

/// The nodes of these names or labels, each once.
pub(super) fn named(fork: &Fork, all: &[Nodes]) -> Result<Vec<Arc<str>>> {
    let mut names = BTreeSet::new();
    for text in all {
        let Some((label, value)) = text.split_once('=') else {
            names.insert(text.as_str().into());
            continue;
        };
        let nodes = fork.cache().nodes();
        let has_label = |name: &&Arc<str>| {
            let node = nodes.get(name).map(NodeInfo::node);
            node.is_some_and(|node| node.labels.get(label).is_some_and(|it| **it == *value))
        };
        let mut nodes = nodes.names().filter(has_label).cloned().peekable();
        ensure!(nodes.peek().is_some(), "no node has the label {text}");
        names.extend(nodes);
    }
    Ok(names.into_iter().collect())
}
