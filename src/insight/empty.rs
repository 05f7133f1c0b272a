//! `supercargo empty`: which nodes can be drained, one after another.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use serde::Serialize;
use serde_json::json;
use supercargo_framework::NodeInfo;
use supercargo_scheduler::{Fork, Verb};

use super::progress::Progress;
use super::question::{Answer, LONG, Question, State, View, node_name};
use super::what_if::{Nodes, named};
use supercargo_report::words::count;
use supercargo_report::{Page, Width, document, first_obstacle, obstacle_json, page};

#[derive(Args, Debug, Serialize)]
#[command(after_help = "\
The nodes with the least requests are tried first. Each is drained as with `what-if --drain`. If no pod is worse \
off, it counts as removed when the next node is tried. Nothing is changed in the cluster.

Exit codes: 0 if a node can be removed, 1 if none can, 2 for wrong usage, 3 if no answer is possible.")]
pub(crate) struct Empty {
    /// Only these nodes: a name, or KEY=VALUE for all nodes with this label
    #[arg(long, value_name = "NODES")]
    nodes: Vec<Nodes>,
}

/// A node that was tried.
struct Tried {
    node: Arc<str>,
    /// The number of pods that go to other nodes.
    pods: usize,
    /// The first pod that would be worse off, and why.
    obstacle: Option<(String, String)>,
}

impl Question for Empty {
    const NAME: &'static str = "empty";
    const TIMEOUT: Duration = LONG;

    /// The answer is good if a node can be removed.
    fn answer(&self, mut state: State, view: &View) -> Result<Answer> {
        state.fork.what_if(&[], 0)?;
        let only = named(&state.fork, &self.nodes)?;
        for name in &only {
            state.fork.cache().nodes().get(name).with_context(|| format!("there is no node {name}"))?;
        }
        let order = least_used(&state.fork, &only);
        let mut progress = Progress::new("nodes", order.len(), state.deadline);
        let mut tried = Vec::with_capacity(order.len());
        for node in order {
            let mut fork = state.fork()?;
            let what_if = fork.what_if(&[Verb::Drain(vec![Arc::clone(&node)])], 1)?;
            let mut obstacle = first_obstacle(&what_if);
            if obstacle.is_none() {
                // It counts as removed when the next node is tried.
                obstacle = first_obstacle(&fork.what_if(&[Verb::Fail(vec![Arc::clone(&node)])], 1)?);
            }
            if obstacle.is_none() {
                state.fork = fork;
            }
            tried.push(Tried { node, pods: what_if.pods.len(), obstacle });
            progress.step()?;
        }
        let is_good = tried.iter().any(|it| it.obstacle.is_none());
        let removable = || tried.iter().filter(|it| it.obstacle.is_none()).map(|it| node_name(&it.node));
        let text = view.output.write(|width| table(&tried, width), || json(&tried), || removable().collect());
        Ok((text, is_good).into())
    }
}

/// The nodes, those with the least requests first; cordoned ones, which take no pods, too.
fn least_used(fork: &Fork, only: &[Arc<str>]) -> Vec<Arc<str>> {
    let nodes = fork.cache().nodes();
    let is_wanted = |name: &&Arc<str>| only.is_empty() || only.contains(name);
    let mut names: Vec<_> = nodes.names().filter(is_wanted).cloned().collect();
    names.sort();
    // Stable: of equal nodes the first by name.
    names.sort_by_key(|name| nodes.get(name).map(used));
    names
}

/// The larger share of CPU and memory that pods request, in thousandths.
fn used(node: &NodeInfo) -> i64 {
    let share = |requested: i64, allocatable: i64| {
        requested.saturating_mul(1000).checked_div(allocatable).unwrap_or_default()
    };
    let (requested, allocatable) = (node.requested(), node.allocatable());
    share(requested.milli_cpu, allocatable.milli_cpu).max(share(requested.memory, allocatable.memory))
}

/// The answer in a sentence.
fn headline(tried: &[Tried]) -> String {
    let nodes = count(tried.len(), "node");
    match tried.iter().filter(|it| it.obstacle.is_none()).count() {
        0 => format!("None of {nodes} can be removed: pods would be worse off"),
        some => format!("{some} of {nodes} can be removed, in this order: no pod is worse off"),
    }
}

fn table(tried: &[Tried], width: Width) -> String {
    page(width, |page| write_table(page, tried))
}

fn write_table(page: &mut Page, tried: &[Tried]) -> std::fmt::Result {
    let (stay, go): (Vec<_>, Vec<_>) = tried.iter().partition(|it| it.obstacle.is_some());
    page.wrapped("", &headline(tried))?;
    if !go.is_empty() {
        writeln!(page, "\n{}{:>14}", page.name("CAN BE REMOVED", 66), "PODS THAT MOVE")?;
    }
    for Tried { node, pods, .. } in go.iter().take(page.rows(go.len())) {
        writeln!(page, "{}{pods:>14}", page.name(node, 66))?;
    }
    if let Some(more) = page.hidden(go.len()) {
        writeln!(page, "and {more} more")?;
    }
    if !stay.is_empty() {
        writeln!(page, "\nSTAYS")?;
    }
    for Tried { node, obstacle, .. } in stay.iter().take(page.rows(stay.len())) {
        writeln!(page, "{}", page.name(node, 81).trim_end())?;
        if let Some((pod, why)) = obstacle {
            page.wrapped("  ", &format!("{pod}: {why}"))?;
        }
    }
    if let Some(more) = page.hidden(stay.len()) {
        writeln!(page, "and {more} more")?;
    }
    Ok(())
}

fn json(tried: &[Tried]) -> String {
    let node = |Tried { node, pods, obstacle }: &Tried| {
        let removable = obstacle.is_none();
        json!({ "node": node, "removable": removable, "pods": pods, "obstacle": obstacle_json(obstacle.as_ref()) })
    };
    let fields = json!({
        "headline": headline(tried),
        "nodes": tried.iter().map(node).collect::<Vec<_>>(),
    });
    document("Empty", fields)
}
