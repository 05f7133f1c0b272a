//! Pod groups and their members.

use std::collections::{BTreeMap, BTreeSet};
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

/// The name of a pod, and its node.
type Member = (Arc<str>, Option<Arc<str>>);

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
    let objects = kinds.iter().flat_map(|kind| objects.list(kind));
    let mut groups: Vec<Group<'_>> = objects.filter_map(|object| Group::of(fork, object)).collect();
    groups.sort_by_key(|group| (!group.waits(), &group.object.key));
    let (all, waiting) = (groups.len(), groups.iter().filter(|group| group.waits()).count());
    groups.truncate(MOST_GROUPS);
    let shown: Vec<Value> = groups.iter().map(|group| group.json(fork, &waiting_pods)).collect();
    json!({ "kind": "Groups", "all": all, "waiting": waiting, "groups": shown })
}

/// A group, and how many of its pods are on nodes.
struct Group<'a> {
    object: &'a Object,
    key: GroupKey,
    spec: &'a GroupSpec,
    condition: Option<&'a PodCondition>,
    /// The PodGroups that its pods are in.
    leaves: BTreeSet<Arc<str>>,
    pods: usize,
    scheduled: usize,
}

impl<'a> Group<'a> {
    /// `None` if the object is no group.
    fn of(fork: &Fork, object: &'a Object) -> Option<Self> {
        let key = GroupKey::of(object)?;
        let (spec, condition, leaves) = match &object.body {
            Body::PodGroup(group) => {
                (&group.spec, group.initially_scheduled.as_ref(), [Arc::clone(&object.key)].into())
            }
            Body::CompositePodGroup(group) => (&group.spec, None, fork.objects().forest().leaves(&key)),
            _ => return None,
        };
        let mut group = Self { object, key, spec, condition, leaves, pods: 0, scheduled: 0 };
        (group.pods, group.scheduled) = group
            .members(fork)
            .fold((0, 0), |(pods, scheduled), it| (pods + it.all(), scheduled + it.scheduled()));
        Some(group)
    }

    fn members<'b>(&'b self, fork: &'b Fork) -> impl Iterator<Item = &'b Members> {
        self.leaves.iter().filter_map(|leaf| fork.objects().members().get(leaf))
    }

    fn is_composite(&self) -> bool {
        matches!(self.object.body, Body::CompositePodGroup(_))
    }

    fn waits(&self) -> bool {
        self.scheduled < self.pods || is_short(self.spec, self.is_composite(), self.scheduled)
    }

    fn json(&self, fork: &Fork, waiting: &WaitingPods) -> Value {
        let Self { object, spec, .. } = self;
        let unplaced = self.leaves.iter().filter_map(|leaf| waiting.get(leaf)).flatten();
        let unplaced = unplaced.map(|pod| (Arc::clone(&pod.name), None));
        let placed = self.members(fork).flat_map(|members| placed(fork, members));
        let children: Vec<&str> = if self.is_composite() {
            fork.objects().forest().children(&self.key).into_iter().map(GroupKey::name).collect()
        } else {
            Vec::new()
        };
        json!({
            "namespace": object.namespace(),
            "name": object.name(),
            "composite": self.is_composite(),
            "children": children,
            "parent": spec.parent,
            "gang": matches!(spec.policy, GroupPolicy::Gang(_)),
            "minCount": spec.min_count(),
            "topologyKey": spec.topology_key,
            "priority": spec.priority,
            "pods": self.pods,
            "scheduled": self.scheduled,
            "members": named(unplaced.chain(placed)),
            "waits": self.waits(),
            "reason": self.condition.map(reason),
        })
    }
}

/// The first members by name, and their nodes.
fn named(members: impl Iterator<Item = Member>) -> Vec<Value> {
    members.take(MOST_MEMBERS).map(|(name, node)| json!({ "name": name, "node": node })).collect()
}

/// Whether a gang of pods has fewer on nodes than it needs.
fn is_short(spec: &GroupSpec, is_composite: bool, scheduled: usize) -> bool {
    let GroupPolicy::Gang(least) = spec.policy else { return false };
    !is_composite && usize::try_from(least).is_ok_and(|least| scheduled < least)
}

/// The members that have a node, by name.
fn placed(fork: &Fork, members: &Members) -> Vec<Member> {
    let cache = fork.cache();
    let placed = members.scheduled_pods().filter_map(|uid| Some((cache.pod(uid)?, cache.node_of(uid)?)));
    let mut placed: Vec<Member> =
        placed.map(|(pod, node)| (Arc::clone(&pod.name), Some(Arc::clone(node)))).collect();
    placed.sort();
    placed
}

/// Why the group has not started; the last word about that.
fn reason(PodCondition { status, reason, message, .. }: &PodCondition) -> Value {
    json!({ "status": status, "reason": reason, "message": message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_members_that_wait_are_named_however_many_are_placed() {
        let placed = (0..=MOST_MEMBERS).map(|i| (format!("p-{i}").into(), Some("n".into())));
        let members = named(std::iter::once(("z".into(), None)).chain(placed));
        assert_eq!(members.len(), MOST_MEMBERS);
        assert_eq!(members[0], json!({ "name": "z", "node": null }));
    }
}
