//! Statuses of rejected nodes.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::node_index::NodeIndex;
use crate::status::Status;

/// The status of each rejected node: some individually, all others with one shared status.
/// Thousands of nodes share a few statuses, so each status is stored once and nodes refer to its
/// number.
#[derive(Clone, Debug, Default)]
pub struct NodeStatuses {
    /// The status of every node without an individual one.
    pub absent: Option<Status>,
    /// Mostly distinct.
    statuses: Vec<Status>,
    by_node: Vec<(NodeIndex, StatusNumber)>,
}

/// The number of a status among those of one [`NodeStatuses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusNumber(u32);

/// The number of latest statuses that are searched for an equal one.
const LOOKED_THROUGH: usize = 8;

impl NodeStatuses {
    /// The number of individual statuses.
    pub fn len(&self) -> usize {
        self.by_node.len()
    }

    /// Whether no node has an individual status.
    pub fn is_empty(&self) -> bool {
        self.by_node.is_empty()
    }

    /// The individual statuses, in the order they were set.
    pub fn iter(&self) -> impl Iterator<Item = (NodeIndex, &Status)> {
        self.by_node.iter().map(|(node, number)| (*node, &self.statuses[number.0 as usize]))
    }

    /// The status of a node; `None` if unknown.
    pub fn get(&self, node: NodeIndex) -> Option<&Status> {
        let own = self.iter().find(|(index, _)| *index == node).map(|(_, status)| status);
        own.or(self.absent.as_ref())
    }

    /// Assigns a number to a status.
    pub fn number(&mut self, status: Status) -> StatusNumber {
        let latest = self.statuses.iter().enumerate().rev().take(LOOKED_THROUGH);
        let known = latest.into_iter().find(|(_, known)| **known == status).map(|(number, _)| number);
        let number = known.unwrap_or(self.statuses.len());
        if known.is_none() {
            self.statuses.push(status);
        }
        StatusNumber(number as u32)
    }

    /// Sets the status of a node without one.
    pub fn set(&mut self, node: NodeIndex, status: Status) {
        let number = self.number(status);
        self.set_numbered(node, number);
    }

    /// Sets the status of a node without one, by its [`number`](Self::number).
    pub fn set_numbered(&mut self, node: NodeIndex, status: StatusNumber) {
        self.by_node.push((node, status));
    }

    /// For nodes with several statuses, keeps the last one.
    pub fn keep_last(&mut self) {
        let mut seen = FxHashSet::default();
        self.by_node.reverse();
        self.by_node.retain(|(node, _)| seen.insert(*node));
        self.by_node.reverse();
    }

    /// The approximate size in bytes.
    pub fn bytes(&self) -> usize {
        self.by_node.capacity() * size_of::<(NodeIndex, StatusNumber)>()
            + self.statuses.capacity() * size_of::<Status>()
    }

    /// The number of nodes per reason, sorted as strings: upstream's histogram.
    pub fn histogram(&self, all_nodes: usize) -> Vec<String> {
        let mut nodes = vec![0; self.statuses.len()];
        for (_, number) in &self.by_node {
            nodes[number.0 as usize] += 1;
        }
        let others = all_nodes.saturating_sub(self.by_node.len());
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (status, nodes) in
            self.statuses.iter().zip(nodes).chain(self.absent.iter().map(|it| (it, others)))
        {
            for reason in status.reasons().iter().filter(|_| nodes > 0) {
                *counts.entry(reason).or_default() += nodes;
            }
        }
        let mut lines: Vec<_> = counts.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        lines.sort();
        lines
    }
}

impl FromIterator<(NodeIndex, Status)> for NodeStatuses {
    fn from_iter<I: IntoIterator<Item = (NodeIndex, Status)>>(statuses: I) -> Self {
        let mut collected = Self::default();
        statuses.into_iter().for_each(|(node, status)| collected.set(node, status));
        collected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(nodes: impl IntoIterator<Item = (u32, &'static str)>) -> NodeStatuses {
        nodes.into_iter().map(|(node, reason)| (NodeIndex(node), Status::unschedulable(reason))).collect()
    }

    fn lines(statuses: &NodeStatuses) -> Vec<String> {
        statuses.iter().map(|(node, status)| format!("{} {}", node.0, status.message())).collect()
    }

    #[test]
    fn many_distinct_statuses_keep_their_order() {
        let reasons: Vec<&'static str> = vec!["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        let turns = || (0..30).map(|node| (node, reasons[node as usize % reasons.len()]));
        let statuses = of(turns());
        let expected: Vec<String> = turns().map(|(node, reason)| format!("{node} {reason}")).collect();
        assert_eq!(lines(&statuses), expected);
        assert_eq!(
            statuses.histogram(30),
            reasons.iter().map(|reason| format!("3 {reason}")).collect::<Vec<_>>()
        );
        assert_eq!(statuses.get(NodeIndex(11)).map(Status::message).as_deref(), Some("b"));
        assert_eq!(statuses.get(NodeIndex(30)), None);
    }

    #[test]
    fn keep_last_keeps_the_last_status_of_a_node() {
        let mut statuses = of([(1, "a"), (2, "a"), (1, "b"), (3, "a")]);
        statuses.keep_last();
        assert_eq!(lines(&statuses), ["2 a", "1 b", "3 a"]);
        assert_eq!(statuses.histogram(3), ["1 b", "2 a"]);
    }

    #[test]
    fn histogram_omits_unused_reasons() {
        let mut statuses = of([(1, "a"), (1, "b")]);
        statuses.keep_last();
        statuses.absent = Some(Status::unresolvable("c"));
        assert_eq!(statuses.histogram(1), ["1 b"]);
        assert_eq!(statuses.histogram(4), ["1 b", "3 c"]);
    }
}
