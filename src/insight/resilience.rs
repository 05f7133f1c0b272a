//! `supercargo resilience`: which pods stay down if a node or a zone fails.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use supercargo_scheduler::{Fork, Verb, WhatIf};

use super::progress::Progress;
use super::question::{Answer, LONG, Question, State, View, node_name};
use supercargo_report::words::count;
use supercargo_report::{Page, Width, document, first_obstacle, obstacle_json, page};

#[derive(Args, Debug, Serialize)]
#[command(after_help = "\
Each failure is simulated separately, as with `what-if --fail`. Nothing is changed in the cluster.

Exit codes: 0 if no failure leaves a pod without a node, 1 if one does, 2 for wrong usage, 3 if no answer is possible.")]
pub(crate) struct Resilience {
    /// Unit of failure: `node`, or a label: all nodes with the same value fail together
    #[arg(long, value_name = "node|LABEL", default_value = "node")]
    by: String,
}

/// What a failure leads to.
struct Failure {
    /// The node, or the label's value.
    name: String,
    /// The number of pods that are moved or stay down.
    pods: usize,
    /// The number of pods that stay down.
    down: usize,
    /// The first of them, and why it is down.
    first: Option<(String, String)>,
}

impl Question for Resilience {
    const NAME: &'static str = "resilience";
    const TIMEOUT: Duration = LONG;

    /// The answer is good if no pod stays down.
    fn answer(&self, mut state: State, view: &View) -> Result<Answer> {
        let by = &self.by;
        // Pods that are pending now are not the failure's.
        state.fork.what_if(&[], 0)?;
        let groups = groups(&state.fork, by);
        ensure!(state.fork.cache().nodes().names().next().is_some(), "there is no node");
        ensure!(!groups.is_empty(), "no node has the label {by}");
        let mut progress = Progress::new("failures", groups.len(), state.deadline);
        let mut failures = Vec::with_capacity(groups.len());
        for (name, nodes) in groups {
            let what_if = state.fork()?.what_if(&[Verb::Fail(nodes)], 1)?;
            failures.push(Failure::new(name, &what_if));
            progress.step()?;
        }
        failures.sort_by_key(|it| (Reverse(it.down), Reverse(it.pods)));
        let is_good = failures.iter().all(|failure| failure.down == 0);
        let name = |it: &Failure| if by == "node" { node_name(&it.name) } else { it.name.clone() };
        let bad = || failures.iter().filter(|failure| failure.down > 0);
        let text = view.output.write(
            |width| table(by, &failures, width),
            || json(by, &failures),
            || bad().map(name).collect(),
        );
        Ok((text, is_good).into())
    }
}

/// The nodes that fail together, by name.
fn groups(fork: &Fork, by: &str) -> BTreeMap<String, Vec<Arc<str>>> {
    let nodes = fork.cache().nodes();
    let mut groups: BTreeMap<String, Vec<Arc<str>>> = BTreeMap::new();
    for name in nodes.names() {
        let value = match by {
            "node" => Some(name),
            label => nodes.get(name).and_then(|node| node.node().labels.get(label)),
        };
        if let Some(value) = value {
            groups.entry(value.to_string()).or_default().push(Arc::clone(name));
        }
    }
    for nodes in groups.values_mut() {
        nodes.sort();
    }
    groups
}

impl Failure {
    fn new(name: String, what_if: &WhatIf) -> Self {
        let down = what_if.pods.iter().filter(|outcome| outcome.end.is_bad()).count();
        Self { name, pods: what_if.pods.len(), down, first: first_obstacle(what_if) }
    }
}

/// The answer in a sentence.
fn headline(by: &str, failures: &[Failure]) -> String {
    let bad = failures.iter().filter(|failure| failure.down > 0).count();
    let what = if by == "node" { "nodes".to_owned() } else { format!("values of {by}") };
    match failures.first().filter(|worst| worst.down > 0) {
        None if failures.len() == 1 => "It can fail: every pod gets another node".to_owned(),
        None => format!("Any one of {} {what} can fail: every pod gets another node", failures.len()),
        Some(Failure { name, down, .. }) => format!(
            "{bad} of {} {what} cannot fail without a pod down; the worst is {name}: {} down",
            failures.len(),
            count(*down, "pod")
        ),
    }
}

fn table(by: &str, failures: &[Failure], width: Width) -> String {
    page(width, |page| write_table(page, by, failures))
}

fn write_table(page: &mut Page, by: &str, failures: &[Failure]) -> std::fmt::Result {
    page.wrapped("", &headline(by, failures))?;
    writeln!(page, "\n{}{:>9}{:>9}", page.name("FAILS", 62), "AFFECTED", "DOWN")?;
    for Failure { name, pods, down, first } in failures.iter().take(page.rows(failures.len())) {
        writeln!(page, "{}{pods:>9}{down:>9}", page.name(name, 62))?;
        if let Some((pod, why)) = first {
            page.wrapped("  ", &format!("{pod}: {why}"))?;
        }
    }
    if let Some(more) = page.hidden(failures.len()) {
        writeln!(page, "and {more} more, with at most as many pods down")?;
    }
    Ok(())
}

fn json(by: &str, failures: &[Failure]) -> String {
    let failure = |Failure { name, pods, down, first }: &Failure| -> Value {
        json!({ "fails": name, "affected": pods, "down": down, "first": obstacle_json(first.as_ref()) })
    };
    let fields = json!({
        "headline": headline(by, failures),
        "by": by,
        "failures": failures.iter().map(failure).collect::<Vec<_>>(),
    });
    document("Resilience", fields)
}
