//! Filters and scores nodes by the pod's `nodeSelector` and node affinity.

mod args;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::affinity::{self, METADATA_NAME, Operator};
use supercargo_framework::caching::{Caching, HintMarks, HintScope, Mark, Scope, Stateless};
use supercargo_framework::errors::aggregate;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, NodeNames, Normalize, PreFilter, PreFilterPlugin,
    PreScorePlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::registry::ArgsError;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::status::Reasons;
use supercargo_framework::{
    ActionType, Code, Context, CycleState, EventResource, Features, NodeIndex, NodeInfo, NodeRecord,
    NodeSelectorTerm, Plugin, PodInfo, PreferredTerm, Status,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "NodeAffinity";

struct NodeAffinity {
    /// The affinity that the profile adds to that of every pod. All its terms are valid.
    added: affinity::NodeAffinity,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, _: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let added = args::parse(args)?;
    Ok(Arc::new(NodeAffinity { added }))
}

fn required_terms(pod: &PodInfo) -> Option<&[NodeSelectorTerm]> {
    pod.spec.node_affinity.as_ref()?.required.as_deref()
}

fn preferred_terms(pod: &PodInfo) -> &[PreferredTerm] {
    pod.spec.node_affinity.as_ref().map_or(&[], |affinity| &affinity.preferred)
}

/// The sum of the weights of the pod's preferred terms that match the node.
fn preferred_weight(pod: &PodInfo, node: &NodeRecord) -> i64 {
    pod.spec.node_affinity.as_ref().map_or(0, |affinity| affinity.preferred.weight(node))
}

/// Whether the pod's selector and affinity match the node.
fn admits(pod: &PodInfo, node: &NodeRecord) -> bool {
    pod.spec.admits_node(node)
}

/// The same for hints, where an invalid term is an error unless another one matches.
fn try_admits(pod: &PodInfo, node: &NodeRecord) -> Result<bool, String> {
    if admits(pod, node) {
        return Ok(true);
    }
    if !pod.spec.node_selector.is_subset_of(&node.labels) {
        return Ok(false);
    }
    let terms = required_terms(pod).unwrap_or_default();
    let errors = terms.iter().enumerate().flat_map(|(i, term)| term.errors_at("nodeSelectorTerms", i));
    aggregate(errors).map_or(Ok(false), Err)
}

/// Finds the pods that may match the event's node.
const MARKS: HintMarks = HintMarks {
    of_pod: |pod| vec![Mark::of_node_selectors(&pod.spec.node_selector, required_terms(pod))],
    of_change: |change| Mark::of_nodes(change.new_node()),
};

/// The names of the only nodes that can match; `None` if the terms do not name nodes. Terms are
/// alternatives, so each must name nodes. Requirements are combined, so a term's nodes are the
/// intersection of its requirements'.
fn named_nodes(terms: &[NodeSelectorTerm]) -> Option<NodeNames> {
    let mut names = NodeNames::default();
    for term in terms {
        let mut lists = term
            .match_fields
            .iter()
            .filter(|field| &*field.key == METADATA_NAME && field.operator == Operator::In)
            .map(|field| &field.values);
        let first = lists.next()?;
        let others: Vec<_> = lists.collect();
        let common = first.iter().filter(|name| others.iter().all(|values| values.has(name)));
        names.extend(common.cloned());
    }
    (!terms.is_empty()).then_some(names)
}

/// The errors of preferred terms. Terms without weight are ignored.
fn preferred_error(terms: &[PreferredTerm]) -> Option<String> {
    let weighted = terms.iter().enumerate().filter(|(_, preferred)| preferred.weight != 0);
    aggregate(weighted.flat_map(|(i, preferred)| preferred.term.errors_at("", i)))
}

impl NodeAffinity {
    /// As upstream, the added affinity must match the new node, but a change of its result does not
    /// queue the pod. Only the pod's own terms are compared with the old node.
    fn after_node_change(&self, pod: &PodInfo, change: &Change) -> Hint {
        let new = hint::new_node(change)?;
        if !self.added.required_matches(new) || !try_admits(pod, new)? {
            return Ok(QueueingHint::Skip);
        }
        let was_admitted = change.old_node().map_or(Ok(false), |old| try_admits(pod, old))?;
        Ok(QueueingHint::queue_if(!was_admitted))
    }
}

impl Plugin for NodeAffinity {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .pre_score(&self)
            .score(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for NodeAffinity {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let required = required_terms(pod);
        if required.is_none() && self.added.required.is_none() && pod.spec.node_selector.is_empty() {
            return PreFilter::Skip;
        }
        match required.and_then(named_nodes) {
            None => PreFilter::AllNodes,
            Some(names) if names.is_empty() => {
                PreFilter::Reject(Status::unresolvable("pod affinity terms conflict"))
            }
            Some(names) => PreFilter::Nodes(names),
        }
    }
}

impl FilterPlugin for NodeAffinity {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if !self.added.required_matches(node.node()) {
            Status::unresolvable("node(s) didn't match scheduler-enforced node affinity")
        } else if !admits(pod, node.node()) {
            Status::unresolvable("node(s) didn't match Pod's node affinity/selector")
        } else {
            Status::success()
        }
    }
}

impl PreScorePlugin for NodeAffinity {
    fn pre_score(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        let terms = preferred_terms(pod);
        if let Some(error) = preferred_error(terms) {
            Status::error(error)
        } else if terms.is_empty() && self.added.preferred.is_empty() {
            Status::with_reasons(Code::Skip, Reasons::new())
        } else {
            Status::success()
        }
    }
}

impl ScorePlugin for NodeAffinity {
    fn score(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Result<i64, Status> {
        Ok(self.added.preferred.weight(node.node()) + preferred_weight(pod, node.node()))
    }

    fn normalization(&self) -> Normalize {
        Normalize::ByMax { reverse: false }
    }
}

impl EnqueueExtensions for NodeAffinity {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let changed = EventRegistration::hinted(
            EventResource::Node,
            ActionType::ADD | ActionType::UPDATE_NODE_LABEL,
            move |pod, change| self.after_node_change(pod, change),
        );
        vec![changed.scoped(HintScope::NODE_AFFINITY).marked(MARKS)]
    }
}

impl SignPlugin for NodeAffinity {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.spec.node_selector);
        signer.write(&pod.spec.node_affinity);
        Ok(())
    }
}

impl Caching for NodeAffinity {
    fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }

    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    fn score_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
        Scope::NodeObject
    }
}
