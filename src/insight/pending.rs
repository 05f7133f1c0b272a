//! `supercargo pending`: what is pending in the cluster, by reason.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use serde_json::{Value, json};
use supercargo_config::Catalog;
use supercargo_framework::PodInfo;
use supercargo_scheduler::{Fork, Why};

use super::progress::Progress;
use super::report::{API_VERSION, MOST_LINES, fix_text, hindrances, key_reason, printable, write_wrapped};
use super::{Format, LONG, Source, print};
use crate::text::count;

/// The most workloads of a reason that are named.
const MOST_WORKLOADS: usize = 5;

#[derive(Debug, Args)]
#[command(after_help = "\
Pods with equal specs of one workload share an answer, as from `why`. Without --namespace, all namespaces count.

Exit codes: 0 if no pod is pending, 1 if some are, 2 for wrong usage, 3 if no answer is possible.")]
pub(crate) struct PendingOptions {
    #[command(flatten)]
    source: Source,
}

/// The pods that are pending for one reason.
#[derive(Default)]
struct Reason {
    /// The number of pods of each workload.
    workloads: BTreeMap<String, usize>,
    /// A pod, for `supercargo why`.
    example: String,
    /// A change that helps the example.
    fix: Option<String>,
}

impl Reason {
    fn pods(&self) -> usize {
        self.workloads.values().sum()
    }
}

/// Prints what is pending.
pub(crate) async fn pending(options: PendingOptions, catalog: &Catalog) -> Result<ExitCode> {
    let catalog = catalog.clone();
    print(options.source.timeout.unwrap_or(LONG), async move { answer(&options, &catalog).await }).await
}

/// The answer, and whether no pod is pending.
async fn answer(PendingOptions { source }: &PendingOptions, catalog: &Catalog) -> Result<(String, bool)> {
    let mut snapshot = source.read(catalog).await?;
    let mut pods = snapshot.fork.pending();
    if let Some(namespace) = &source.namespace {
        pods.retain(|pod| *pod.namespace == **namespace);
    }
    let reasons = reasons(&mut snapshot.fork, &pods);
    let text = match source.output {
        Format::Table => table(pods.len(), &reasons),
        Format::Json => json(&reasons),
    };
    Ok((text, pods.is_empty()))
}

/// The reasons, those of the most pods first.
fn reasons(fork: &mut Fork, pods: &[Arc<PodInfo>]) -> Vec<(String, Reason)> {
    let mut alike: BTreeMap<String, Vec<Vec<&Arc<PodInfo>>>> = BTreeMap::new();
    for pod in pods {
        let of_workload = alike.entry(workload(pod)).or_default();
        match of_workload.iter_mut().find(|others| is_like(others[0], pod)) {
            Some(others) => others.push(pod),
            None => of_workload.push(vec![pod]),
        }
    }
    let mut progress = Progress::new("kinds of pods", alike.values().map(Vec::len).sum());
    let mut reasons: BTreeMap<String, Reason> = BTreeMap::new();
    for (workload, kinds) in alike {
        for pods in kinds {
            let (text, fix) = reason(fork, pods[0]);
            let reason = reasons.entry(text).or_default();
            if reason.workloads.is_empty() {
                (reason.example, reason.fix) = (pods[0].key().to_string(), fix);
            }
            *reason.workloads.entry(workload.clone()).or_default() += pods.len();
            progress.step();
        }
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, reason)| Reverse(reason.pods()));
    reasons
}

/// Whether the scheduler treats the pods alike.
fn is_like(a: &PodInfo, b: &PodInfo) -> bool {
    a.spec == b.spec
        && (&a.labels, a.priority, &a.scheduling_gates, a.terminating)
            == (&b.labels, b.priority, &b.scheduling_gates, b.terminating)
        && a.status.nominated_node_name == b.status.nominated_node_name
}

/// The pod's workload: its controller, or the pod itself.
fn workload(pod: &PodInfo) -> String {
    match &pod.controller {
        Some(owner) => format!("{}/{} {}", pod.namespace, owner.kind, owner.name),
        None => format!("{}/Pod {}", pod.namespace, pod.name),
    }
}

/// Why the pod is pending, and a change that helps.
fn reason(fork: &mut Fork, pod: &Arc<PodInfo>) -> (String, Option<String>) {
    if let Some(hindrance) = hindrances(pod).next() {
        return (hindrance, None);
    }
    match fork.why(pod) {
        Ok(why) if !why.feasible.is_empty() => ("nothing: it fits, and waits for its turn".to_owned(), None),
        Ok(why) => (key_reason(&why.refusals).unwrap_or(why.message.clone()), first_fix(&why)),
        Err(error) => (error.to_string(), None),
    }
}

fn first_fix(why: &Why) -> Option<String> {
    match &why.preemption {
        Some(node) => Some(format!("none: preemption makes room on {node}")),
        None => why.fixes.first().map(fix_text),
    }
}

fn table(pods: usize, reasons: &[(String, Reason)]) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_table(&mut text, pods, reasons);
    printable(&text)
}

fn write_table(text: &mut String, pods: usize, reasons: &[(String, Reason)]) -> std::fmt::Result {
    let workloads: BTreeSet<_> = reasons.iter().flat_map(|(_, reason)| reason.workloads.keys()).collect();
    let first_line = match pods {
        0 => "No pod is pending".to_owned(),
        1 => "1 pod is pending".to_owned(),
        pods => format!(
            "{pods} pods of {} are pending, for {}",
            count(workloads.len(), "workload"),
            count(reasons.len(), "reason")
        ),
    };
    write_wrapped(text, "", &first_line)?;
    for (why, reason) in reasons.iter().take(MOST_LINES) {
        writeln!(text)?;
        write_wrapped(text, &format!("{:>6}  ", reason.pods()), why)?;
        let mut workloads: Vec<_> = reason.workloads.iter().collect();
        workloads.sort_by_key(|(_, pods)| Reverse(**pods));
        let mut names: Vec<String> =
            workloads.iter().take(MOST_WORKLOADS).map(|(name, pods)| format!("{name} ({pods})")).collect();
        if workloads.len() > MOST_WORKLOADS {
            names.push(format!("{} more", workloads.len() - MOST_WORKLOADS));
        }
        write_wrapped(text, "        ", &names.join(", "))?;
        if let Some(fix) = &reason.fix {
            write_wrapped(text, "        FIX  ", fix)?;
        }
        write_wrapped(text, "        ", &format!("supercargo why {}", reason.example))?;
    }
    if reasons.len() > MOST_LINES {
        writeln!(text, "\nand {}", count(reasons.len() - MOST_LINES, "more reason"))?;
    }
    Ok(())
}

fn json(reasons: &[(String, Reason)]) -> String {
    let reason = |(why, reason): &(String, Reason)| -> Value {
        json!({
            "reason": why, "pods": reason.pods(), "workloads": reason.workloads,
            "example": reason.example, "fix": reason.fix,
        })
    };
    let object = json!({
        "apiVersion": API_VERSION,
        "kind": "Pending",
        "reasons": reasons.iter().map(reason).collect::<Vec<_>>(),
    });
    format!("{object:#}\n")
}
