//! Candidates for preemption, and the best of them.

use std::cmp::Reverse;
use std::sync::Arc;

use supercargo_framework::context::Victims;
use supercargo_framework::plugin::{Candidate, NodeStatuses};
use supercargo_framework::{Code, NodeIndex, Nodes, PodInfo, Status, Timestamp};

use super::victims::VictimSearch;

/// The results of dry runs.
#[derive(Default)]
pub(super) struct Found {
    /// Candidates without budget violations come first.
    pub(super) candidates: Vec<Candidate>,
    /// Why the others are none.
    pub(super) statuses: NodeStatuses,
    /// The errors.
    pub(super) errors: Vec<String>,
}

/// The nodes whose filters failed in a way that eviction can resolve.
pub(super) fn potential_nodes(nodes: &Nodes, statuses: &NodeStatuses) -> Vec<NodeIndex> {
    let by_default = statuses.absent.as_ref().is_some_and(may_be_helped);
    let mut by_slot = vec![by_default; nodes.columns().len()];
    for (node, status) in statuses.iter() {
        if let Some(helped) = by_slot.get_mut(node.0 as usize) {
            *helped = may_be_helped(status);
        }
    }
    nodes.order().iter().copied().filter(|node| by_slot[node.0 as usize]).collect()
}

fn may_be_helped(status: &Status) -> bool {
    status.code() == Code::Unschedulable
}

impl VictimSearch<'_> {
    /// Dry-runs nodes from `offset` on, wrapping around, until there are enough candidates, at
    /// least one without a budget violation.
    pub(super) fn over(&self, nodes: &[NodeIndex], offset: usize, wanted: usize) -> Found {
        let (mut clean, mut violating) = (Vec::new(), Vec::new());
        let mut found = Found::default();
        for index in nodes[offset..].iter().chain(&nodes[..offset]) {
            match self.victims_on(*index) {
                Ok(Victims { pods, pdb_violations, .. }) => {
                    let node = self.cx.node(*index);
                    let list = if pdb_violations == 0 { &mut clean } else { &mut violating };
                    if list.len() < wanted {
                        list.push(Candidate { node: Arc::clone(node.name()), victims: pods, pdb_violations });
                    }
                    if !clean.is_empty() && clean.len() + violating.len() >= wanted {
                        break;
                    }
                }
                Err(status) => {
                    if status.code() == Code::Error {
                        found.errors.push(status.message());
                    }
                    found.statuses.set(*index, status);
                }
            }
        }
        clean.append(&mut violating);
        found.candidates = clean;
        found
    }
}

/// The candidate with the least harm. Of equal ones the first; upstream's choice is arbitrary.
pub(super) fn best(candidates: Vec<Candidate>, now: Timestamp) -> Option<Candidate> {
    candidates.into_iter().min_by_key(|candidate| {
        let Candidate { victims, pdb_violations, .. } = candidate;
        let highest = victims.first().map(|victim| victim.priority);
        // Otherwise more victims with negative priorities would have a smaller sum.
        let above_lowest = |victim: &Arc<PodInfo>| i64::from(victim.priority) - i64::from(i32::MIN);
        let sum: i64 = victims.iter().map(above_lowest).sum();
        (*pdb_violations, highest, sum, victims.len(), Reverse(earliest_start(victims, now)))
    })
}

/// The earliest start time of the most important victims.
fn earliest_start(victims: &[Arc<PodInfo>], now: Timestamp) -> Option<Timestamp> {
    let highest = victims.iter().map(|victim| victim.priority).max()?;
    let most_important = victims.iter().filter(|victim| victim.priority == highest);
    most_important.map(|victim| victim.status.start_time.unwrap_or(now)).min()
}
