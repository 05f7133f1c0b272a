//! Why no node was found.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use supercargo_framework::node_statuses::NodeStatuses;
use supercargo_framework::{Code, NodeIndex, Status, Text};

/// The result of a failed search: upstream's Diagnosis.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// The status of each rejected node. Pods that are alike share it.
    pub statuses: Arc<NodeStatuses>,
    /// PreFilter's message; empty if it did not reject the pod.
    pub pre_filter_message: String,
    /// PostFilter's message.
    pub post_filter_message: String,
    /// The plugins that rejected the pod or a node.
    pub unschedulable_plugins: BTreeSet<Text>,
    /// The plugins that returned Pending. They are in `unschedulable_plugins`, too.
    pub pending_plugins: BTreeSet<Text>,
    /// Whether a node may have more than one status.
    repeats: bool,
}

impl Diagnosis {
    /// Notes that a filter rejected a node.
    pub fn set(&mut self, node: NodeIndex, status: Status) {
        self.blame(&status);
        self.statuses_mut().set(node, status);
    }

    /// Sets the status of every node without one of its own.
    pub fn set_absent(&mut self, status: Status) {
        self.statuses_mut().absent = Some(status);
    }

    fn statuses_mut(&mut self) -> &mut NodeStatuses {
        Arc::make_mut(&mut self.statuses)
    }

    /// The search restarts: its statuses replace the known ones.
    pub fn start_over(&mut self) {
        self.repeats = !self.statuses.is_empty();
    }

    /// Notes an extender's status for a node that may already have one.
    pub fn set_again(&mut self, node: NodeIndex, status: Status) {
        self.repeats = true;
        self.statuses_mut().set(node, status);
    }

    /// Keeps the last status of each node.
    pub fn keep_last_status(&mut self) {
        if std::mem::take(&mut self.repeats) {
            self.statuses_mut().keep_last();
        }
    }

    /// Notes the plugin of a rejection.
    pub fn blame(&mut self, status: &Status) {
        let plugin = status.plugin();
        if plugin.is_empty() || !status.is_rejected() {
            return;
        }
        if !self.unschedulable_plugins.contains(&**plugin) {
            self.unschedulable_plugins.insert(plugin.clone());
        }
        if status.code() == Code::Pending {
            self.pending_plugins.insert(plugin.clone());
        }
    }
}

/// No node fits the pod.
#[derive(Clone, Debug)]
pub struct FitError {
    /// The number of nodes in the cluster.
    pub all_nodes: usize,
    /// Why each was rejected.
    pub diagnosis: Diagnosis,
}

/// Upstream's text, byte for byte: the counts of all reasons, sorted as strings.
impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.all_nodes)?;
        let diagnosis = &self.diagnosis;
        if diagnosis.pre_filter_message.is_empty() {
            let histogram = diagnosis.statuses.histogram(self.all_nodes);
            if !histogram.is_empty() {
                write!(f, " {}.", histogram.join(", "))?;
            }
        } else {
            write!(f, " {}.", diagnosis.pre_filter_message)?;
        }
        if !diagnosis.post_filter_message.is_empty() {
            write!(f, " {}", diagnosis.post_filter_message)?;
        }
        Ok(())
    }
}

impl FitError {
    /// The error for a chosen node that was then rejected.
    pub fn of_one_node(node: Option<NodeIndex>, status: Status) -> Self {
        let mut diagnosis = Diagnosis::default();
        diagnosis.blame(&status);
        // As upstream, a rejection without a plugin waits like one with a plugin.
        diagnosis.unschedulable_plugins.insert(status.plugin().clone());
        match node {
            Some(node) => diagnosis.statuses_mut().set(node, status),
            None => diagnosis.set_absent(status),
        }
        Self { all_nodes: 1, diagnosis }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(all_nodes: usize, by_node: &[&str], absent: Option<&'static str>) -> FitError {
        let mut diagnosis = Diagnosis::default();
        for (i, reason) in by_node.iter().enumerate() {
            diagnosis.set(NodeIndex(i as u32), Status::unschedulable(String::from(*reason)).by("P"));
        }
        if let Some(status) = absent {
            diagnosis.set_absent(Status::unresolvable(status));
        }
        FitError { all_nodes, diagnosis }
    }

    #[test]
    fn reasons_are_counted_and_sorted_as_strings() {
        let mut reasons = vec!["Insufficient cpu"; 10];
        reasons.extend(["node(s) were unschedulable"; 2]);
        assert_eq!(
            error(12, &reasons, None).to_string(),
            "0/12 nodes are available: 10 Insufficient cpu, 2 node(s) were unschedulable."
        );
    }

    #[test]
    fn nodes_without_a_status_count_with_the_common_status() {
        let absent = Some("node(s) didn't satisfy plugin(s) [NodeAffinity]");
        assert_eq!(
            error(3, &["Too many pods"], absent).to_string(),
            "0/3 nodes are available: 1 Too many pods, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(error(1, &["x"], absent).to_string(), "0/1 nodes are available: 1 x.");
    }

    #[test]
    fn messages_of_prefilter_and_postfilter_are_placed_as_upstream() {
        let mut error = error(4, &[], Some("ignored"));
        error.diagnosis.pre_filter_message = "no good".into();
        error.diagnosis.post_filter_message = "nor that".into();
        assert_eq!(error.to_string(), "0/4 nodes are available: no good. nor that");
    }
}
