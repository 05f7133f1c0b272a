//! `supercargo pending`: what is pending in the cluster, by reason.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use supercargo_framework::PodInfo;
use supercargo_framework::signature::Signature;
use supercargo_scheduler::{Fork, Why};

use super::progress::{Deadline, Progress};
use super::question::{Answer, LONG, Question, State, View, pod_name};
use supercargo_report::words::count;
use supercargo_report::{Page, Width, document, fix_text, hindrances, key_reason, page};

/// The most workloads of a reason that are named.
const MOST_WORKLOADS: usize = 5;

#[derive(Args, Debug, Serialize)]
#[command(after_help = "\
Pods of one workload that the scheduler treats alike share an answer, as from `why`. Without --namespace, all \
namespaces count.

Exit codes: 0 if no pod is pending, 1 if some are, 2 for wrong usage, 3 if no answer is possible.")]
pub(crate) struct Pending {}

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

impl Question for Pending {
    const NAME: &'static str = "pending";
    const TIMEOUT: Duration = LONG;

    /// The answer is good if no pod is pending.
    fn answer(&self, mut state: State, view: &View) -> Result<Answer> {
        let mut pods = state.fork.pending();
        if let Some(namespace) = &view.namespace {
            pods.retain(|pod| *pod.namespace == **namespace);
        }
        let reasons = reasons(&mut state.fork, &pods, state.deadline)?;
        let text = view.output.write(
            |width| table(pods.len(), &reasons, width),
            || json(pods.len(), &reasons),
            || pods.iter().map(|pod| pod_name(&pod.key())).collect(),
        );
        Ok((text, pods.is_empty()).into())
    }
}

/// The reasons, those of the most pods first.
fn reasons(fork: &mut Fork, pods: &[Arc<PodInfo>], deadline: Deadline) -> Result<Vec<(String, Reason)>> {
    // Pods of a workload with equal signatures share an answer.
    let mut answers: HashMap<(String, Signature), (String, Option<String>)> = HashMap::new();
    let mut progress = Progress::new("pods", pods.len(), deadline);
    let mut reasons: BTreeMap<String, Reason> = BTreeMap::new();
    for pod in pods {
        let workload = workload(pod);
        let (text, fix) = if let Some(hindrance) = hindrances(pod).next() {
            (hindrance, None)
        } else if let Some(signature) = fork.signature(pod) {
            answers.entry((workload.clone(), signature)).or_insert_with(|| reason(fork, pod)).clone()
        } else {
            reason(fork, pod)
        };
        let reason = reasons.entry(text).or_default();
        if reason.workloads.is_empty() {
            (reason.example, reason.fix) = (pod.key().to_string(), fix);
        }
        *reason.workloads.entry(workload).or_default() += 1;
        progress.step()?;
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, reason)| Reverse(reason.pods()));
    Ok(reasons)
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
    match fork.why(pod) {
        Ok(why) if !why.feasible.is_empty() => match pod.spec.group() {
            Some(group) => (format!("fits alone, and waits for its PodGroup {group}"), None),
            None => ("fits, and waits for its turn".to_owned(), None),
        },
        Ok(why) => (key_reason(&why.refusals).unwrap_or(why.message.clone()), first_fix(&why)),
        Err(error) => (error.to_string(), None),
    }
}

fn first_fix(why: &Why) -> Option<String> {
    match &why.preemption {
        Some(node) => Some(format!("nothing: preemption makes room on {node}")),
        None => why.fixes.first().map(fix_text),
    }
}

/// The answer in a sentence.
fn headline(pods: usize, reasons: &[(String, Reason)]) -> String {
    let workloads: BTreeSet<_> = reasons.iter().flat_map(|(_, reason)| reason.workloads.keys()).collect();
    match pods {
        0 => "No pod is pending".to_owned(),
        1 => "1 pod is pending".to_owned(),
        pods => format!(
            "{pods} pods of {} are pending, for {}",
            count(workloads.len(), "workload"),
            count(reasons.len(), "reason")
        ),
    }
}

fn table(pods: usize, reasons: &[(String, Reason)], width: Width) -> String {
    page(width, |page| write_table(page, pods, reasons))
}

fn write_table(page: &mut Page, pods: usize, reasons: &[(String, Reason)]) -> std::fmt::Result {
    page.wrapped("", &headline(pods, reasons))?;
    for (why, reason) in reasons.iter().take(page.rows(reasons.len())) {
        writeln!(page)?;
        page.wrapped(&format!("{:>6}  ", reason.pods()), why)?;
        let mut workloads: Vec<_> = reason.workloads.iter().collect();
        workloads.sort_by_key(|(_, pods)| Reverse(**pods));
        // More of a reason than of all of them.
        let most = page.hidden(workloads.len()).map_or(workloads.len(), |_| MOST_WORKLOADS);
        let mut names: Vec<String> =
            workloads.iter().take(most).map(|(name, pods)| format!("{name} ({pods})")).collect();
        if workloads.len() > most {
            names.push(format!("{} more", workloads.len() - most));
        }
        page.wrapped("        ", &names.join(", "))?;
        if let Some(fix) = &reason.fix {
            page.wrapped("        FIX  ", fix)?;
        }
        page.wrapped("        ", &format!("supercargo why {}", reason.example))?;
    }
    if let Some(more) = page.hidden(reasons.len()) {
        writeln!(page, "\nand {}", count(more, "more reason"))?;
    }
    Ok(())
}

fn json(pods: usize, reasons: &[(String, Reason)]) -> String {
    let reason = |(why, reason): &(String, Reason)| -> Value {
        json!({
            "reason": why, "pods": reason.pods(), "workloads": reason.workloads,
            "example": reason.example, "fix": reason.fix,
        })
    };
    let fields = json!({
        "headline": headline(pods, reasons),
        "reasons": reasons.iter().map(reason).collect::<Vec<_>>(),
    });
    document("Pending", fields)
}
