//! Why no node was found.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::fmt;

use supercargo_framework::plugin::NodeStatuses;
use supercargo_framework::{Code, NodeIndex, Status, Text};

/// What is known of a failed search: upstream's Diagnosis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Diagnosis {
    pub(crate) statuses: NodeStatuses,
    pub(crate) pre_filter_message: String,
    pub(crate) post_filter_message: String,
    pub(crate) unschedulable_plugins: BTreeSet<Text>,
    pub(crate) pending_plugins: BTreeSet<Text>,
}

impl Diagnosis {
    /// Notes that a node was turned down.
    pub(crate) fn set(&mut self, node: NodeIndex, status: Status) {
        self.blame(&status);
        self.statuses.by_node.push((node, status));
    }

    /// Notes who turned the pod down.
    pub(crate) fn blame(&mut self, status: &Status) {
        if status.plugin().is_empty() {
            return;
        }
        let plugins = match status.code() {
            Code::Pending => &mut self.pending_plugins,
            _ if status.is_rejected() => &mut self.unschedulable_plugins,
            _ => return,
        };
        if !plugins.contains(&**status.plugin()) {
            plugins.insert(status.plugin().clone());
        }
    }
}

/// No node fits the pod.
#[derive(Clone, Debug)]
pub(crate) struct FitError {
    pub(crate) all_nodes: usize,
    pub(crate) diagnosis: Diagnosis,
}

/// Upstream's text, byte for byte: the counts of all reasons, sorted as strings.
impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0/{} nodes are available:", self.all_nodes)?;
        let diagnosis = &self.diagnosis;
        if diagnosis.pre_filter_message.is_empty() {
            let histogram = self.histogram();
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
    /// A node that was found and then refused.
    pub(crate) fn of_one_node(node: Option<NodeIndex>, status: Status) -> Self {
        let mut diagnosis = Diagnosis::default();
        match node {
            Some(node) => diagnosis.set(node, status),
            None => {
                diagnosis.blame(&status);
                diagnosis.statuses.absent = Some(status);
            }
        }
        Self {
            all_nodes: 1,
            diagnosis,
        }
    }

    fn histogram(&self) -> Vec<String> {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let NodeStatuses { by_node, absent } = &self.diagnosis.statuses;
        for reason in by_node.iter().flat_map(|(_, status)| status.reasons()) {
            *counts.entry(reason).or_default() += 1;
        }
        let others = self.all_nodes.saturating_sub(by_node.len());
        for reason in absent.iter().flat_map(Status::reasons).filter(|_| others > 0) {
            *counts.entry(reason).or_default() += others;
        }
        let mut lines: Vec<_> = counts
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        lines.sort();
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(all_nodes: usize, by_node: &[&str], absent: Option<&'static str>) -> FitError {
        let mut diagnosis = Diagnosis::default();
        for (i, reason) in by_node.iter().enumerate() {
            diagnosis.set(
                NodeIndex(i as u32),
                Status::unschedulable(String::from(*reason)).by("P"),
            );
        }
        diagnosis.statuses.absent = absent.map(Status::unresolvable);
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
    fn nodes_without_a_status_of_their_own_count_with_the_common_one() {
        let absent = Some("node(s) didn't satisfy plugin(s) [NodeAffinity]");
        assert_eq!(
            error(3, &["Too many pods"], absent).to_string(),
            "0/3 nodes are available: 1 Too many pods, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]."
        );
        assert_eq!(
            error(1, &["x"], absent).to_string(),
            "0/1 nodes are available: 1 x."
        );
    }

    #[test]
    fn messages_of_prefilter_and_postfilter_have_their_places() {
        let mut error = error(4, &[], Some("ignored"));
        error.diagnosis.pre_filter_message = "no good".into();
        error.diagnosis.post_filter_message = "nor that".into();
        assert_eq!(error.to_string(), "0/4 nodes are available: no good. nor that");
    }
}
