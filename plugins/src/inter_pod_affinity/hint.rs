//! Queueing hints for pods that required terms rejected.
//!
//! Same as upstream's, including its quirk: namespace selectors are matched against empty labels.

use supercargo_framework::caching::{HintMarks, Mark, Wish};
use supercargo_framework::event::{Change, QueueingHint};
use supercargo_framework::hint::{Hint, held_a_node, new_node};
use supercargo_framework::pod_affinity::PodAffinityTerm;
use supercargo_framework::{Labels, PodInfo};

use super::terms::affinity_of;

fn matches(term: &PodAffinityTerm, owner: &PodInfo, pod: &PodInfo) -> bool {
    term.matches(&owner.namespace, &pod.namespace, &pod.labels, &Labels::default())
}

/// Whether every term of the owner matches the pod, and there is at least one: required affinity
/// needs one pod that all terms match.
fn all_match(terms: &[PodAffinityTerm], owner: &PodInfo, pod: &PodInfo) -> bool {
    !terms.is_empty() && terms.iter().all(|term| matches(term, owner, pod))
}

/// Whether a term of the owner matches the pod: each term of anti-affinity rejects by itself.
fn any_matches(terms: &[PodAffinityTerm], owner: &PodInfo, pod: &PodInfo) -> bool {
    terms.iter().any(|term| matches(term, owner, pod))
}

/// The pod's required affinity and anti-affinity.
fn required(pod: &PodInfo) -> Result<(&[PodAffinityTerm], &[PodAffinityTerm]), String> {
    match affinity_of(pod) {
        None => Ok((&[], &[])),
        Some(affinity) => match &affinity.invalid {
            Some(reason) => Err(reason.to_string()),
            None => Ok((&affinity.required_affinity, &affinity.required_anti_affinity)),
        },
    }
}

pub(super) fn after_pod_change(pod: &PodInfo, change: &Change) -> Hint {
    let (old, new) = (change.old_pod(), change.new_pod());
    if old.into_iter().chain(new).any(|changed| !held_a_node(changed)) {
        return Ok(QueueingHint::Skip);
    }
    let (near, away) = required(pod)?;
    let helps = match (old, new) {
        (Some(old), Some(new)) => {
            (!all_match(near, pod, old) && all_match(near, pod, new))
                || (any_matches(away, pod, old) && !any_matches(away, pod, new))
        }
        (None, Some(new)) => all_match(near, pod, new),
        (Some(old), None) => any_matches(away, pod, old) || any_matches(required(old)?.1, old, pod),
        (None, None) => return Err("expected a pod before or after the event".to_owned()),
    };
    Ok(QueueingHint::queue_if(helps))
}

/// The pod that is gone after the change.
fn gone(change: &Change) -> Option<&PodInfo> {
    change.old_pod().filter(|_| change.new_pod().is_none()).map(|pod| &**pod)
}

/// Whether a pod is gone that kept others away.
pub(super) fn reads_labels(change: &Change) -> bool {
    gone(change).is_some_and(|gone| required(gone).is_ok_and(|(_, away)| !away.is_empty()))
}

/// Finds the pods of which a term may match the event's pod.
pub(super) const POD_MARKS: HintMarks = HintMarks {
    of_pod: |pod| {
        let Ok((near, away)) = required(pod) else { return Mark::wishes([Mark::Any]) };
        // A pod must match all terms of affinity.
        let near = (!near.is_empty()).then_some(near);
        let away = away.iter().map(std::slice::from_ref);
        near.into_iter().chain(away).filter_map(|terms| wish(terms, pod)).collect()
    },
    of_change: |change| {
        let pods: Vec<_> = change.old_pod().into_iter().chain(change.new_pod()).collect();
        // A pod that is gone may have kept any other away.
        let keeps_none_away = |gone| required(gone).is_ok_and(|(_, away)| away.is_empty());
        let may_help_all = pods.is_empty() || !gone(change).is_none_or(keeps_none_away);
        if may_help_all { None } else { Mark::of_labels(pods) }
    },
};

/// A wish for a pod that all terms match; `None` if one matches no pod.
fn wish(terms: &[PodAffinityTerm], owner: &PodInfo) -> Option<Wish> {
    let namespace = |term: &PodAffinityTerm| {
        let is_own = term.namespaces.is_empty() && term.namespace_selector.is_none();
        is_own.then_some(&owner.namespace)
    };
    let selectors: Option<Vec<_>> =
        terms.iter().map(|term| Some((namespace(term), term.selector.as_ref()?))).collect();
    Some(Mark::of_selectors(selectors?))
}

/// Finds the pods with a term whose topology key the event's node gets or changes.
pub(super) const NODE_MARKS: HintMarks = HintMarks {
    of_pod: |pod| {
        let Ok((near, away)) = required(pod) else { return Mark::wishes([Mark::Any]) };
        let keys = near.iter().chain(away).map(|term| Mark::Node((term.topology_key.clone(), None)));
        Mark::wishes(keys.chain((!away.is_empty()).then_some(Mark::NewNode)))
    },
    of_change: |change| {
        let new = change.new_node()?;
        match change.old_node() {
            Some(old) => Mark::of_changed_node(&old.labels, &new.labels),
            None => Some([Mark::of_nodes([new])?, vec![Mark::NewNode]].concat()),
        }
    },
};

pub(super) fn after_node_change(pod: &PodInfo, change: &Change) -> Hint {
    let (near, away) = required(pod)?;
    let new = new_node(change)?;
    let Some(old) = change.old_node() else {
        // A pod with anti-affinity fits on any node without matching pods in its domains.
        let has_key = |term: &PodAffinityTerm| new.labels.get(&term.topology_key).is_some();
        return Ok(QueueingHint::queue_if(!away.is_empty() || near.iter().any(has_key)));
    };
    let moved = |term: &PodAffinityTerm, otherwise: fn(had: bool, has: bool) -> bool| {
        let (before, after) = (old.labels.get(&term.topology_key), new.labels.get(&term.topology_key));
        before != after && otherwise(before.is_some(), after.is_some())
    };
    let comes_near = |term| moved(term, |_, has| has);
    let goes_away = |term| moved(term, |had, _| had);
    Ok(QueueingHint::queue_if(near.iter().any(comes_near) || away.iter().any(goes_away)))
}
