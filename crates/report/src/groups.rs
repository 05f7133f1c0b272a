//! Pod groups and their members.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::PodInfo;
use supercargo_framework::objects::{Body, GroupKey, GroupPolicy, GroupSpec, Members, Object, resources};
use supercargo_framework::pod::PodCondition;
use supercargo_scheduler::Fork;

/// The most groups in an answer, and the most members of each that are named.
const MOST_GROUPS: usize = 500;
const MOST_MEMBERS: usize = 100;

/// The pods that wait, by the key of their PodGroup.
type WaitingPods = BTreeMap<Arc<str>, Vec<Arc<PodInfo>>>;

/// All groups, those that wait first.
pub fn groups(fork: &Fork) -> Value {
    let objects = fork.objects();
    let mut waiting_pods = WaitingPods::new();
    for pod in fork.pending() {
        if let Some(group) = pod.group_key() {
            waiting_pods.entry(group).or_default().push(pod);
        }
    }
    let kinds = [resources::POD_GROUP, resources::COMPOSITE_POD_GROUP];
    let mut groups: Vec<(bool, &Arc<str>, Value)> = kinds
        .iter()
        .flat_map(|kind| objects.list(kind))
        .filter_map(|object| {
            let group = group(fork, object, &waiting_pods)?;
            let waits = group["waits"] == true;
            Some((!waits, &object.key, group))
        })
        .collect();
    groups.sort_by(|(one, key, _), (other, other_key, _)| (one, key).cmp(&(other, other_key)));
    let (all, waiting) = (groups.len(), groups.iter().filter(|(has_started, ..)| !has_started).count());
    let shown: Vec<Value> = groups.into_iter().take(MOST_GROUPS).map(|(.., group)| group).collect();
    json!({ "kind": "Groups", "all": all, "waiting": waiting, "groups": shown })
}

/// A group as JSON; `None` if the object is none.
fn group(fork: &Fork, object: &Object, waiting: &WaitingPods) -> Option<Value> {
    let key = GroupKey::of(object)?;
    let (spec, condition) = match &object.body {
        Body::PodGroup(group) => (&group.spec, group.initially_scheduled.as_ref()),
        Body::CompositePodGroup(group) => (&group.spec, None),
        _ => return None,
    };
    let forest = fork.objects().forest();
    let is_composite = matches!(object.body, Body::CompositePodGroup(_));
    let leaves = if is_composite { forest.leaves(&key) } else { [Arc::clone(&object.key)].into() };
    let members = || leaves.iter().filter_map(|leaf| fork.objects().members().get(leaf));
    let all: usize = members().map(Members::all).sum();
    let scheduled: usize = members().map(Members::scheduled).sum();
    let unplaced = leaves.iter().filter_map(|leaf| waiting.get(leaf)).flatten();
    let named = unplaced.map(|pod| json!({ "name": pod.name, "node": null }));
    let named: Vec<Value> =
        named.chain(members().flat_map(|group| placed(fork, group))).take(MOST_MEMBERS).collect();
    let children: Vec<&str> = if is_composite {
        forest.children(&key).into_iter().map(GroupKey::name).collect()
    } else {
        Vec::new()
    };
    Some(json!({
        "namespace": object.namespace(),
        "name": object.name(),
        "composite": is_composite,
        "children": children,
        "parent": spec.parent,
        "gang": matches!(spec.policy, GroupPolicy::Gang(_)),
        "minCount": spec.min_count(),
        "topologyKey": spec.topology_key,
        "priority": spec.priority,
        "pods": all,
        "scheduled": scheduled,
        "members": named,
        "waits": scheduled < all || is_short(spec, is_composite, scheduled),
        "reason": condition.map(reason),
    }))
}

/// Whether a gang of pods has fewer on nodes than it needs.
fn is_short(spec: &GroupSpec, is_composite: bool, scheduled: usize) -> bool {
    let GroupPolicy::Gang(least) = spec.policy else { return false };
    !is_composite && usize::try_from(least).is_ok_and(|least| scheduled < least)
}

/// The members that have a node, by name.
fn placed(fork: &Fork, members: &Members) -> Vec<Value> {
    let cache = fork.cache();
    let placed = members.scheduled_pods().filter_map(|uid| Some((cache.pod(uid)?, cache.node_of(uid)?)));
    let mut placed: Vec<_> = placed.map(|(pod, node)| (&pod.name, node)).collect();
    placed.sort();
    placed.into_iter().map(|(name, node)| json!({ "name": name, "node": node })).collect()
}

/// Why the group has not started; the last word about that.
fn reason(PodCondition { status, reason, message, .. }: &PodCondition) -> Value {
    json!({ "status": status, "reason": reason, "message": message })
}
