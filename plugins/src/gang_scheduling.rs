//! Schedules at least `minCount` pods of a gang, or none. Of a composite gang, at least
//! `minGroupCount` groups.
//!
//! PreEnqueue holds a gang until it has enough pods. The scheduler tries its pods in one cycle.
//! Permit then holds those that are assumed first until there are enough of them. Groups that
//! belong together wait for each other.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use supercargo_framework::context::Command;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::objects::{
    Counted, GroupKey, GroupKind, GroupPolicy, Object, ObjectBody as _, PodGroup, resources,
};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, Permit, PermitPlugin, PreEnqueuePlugin,
};
use supercargo_framework::registry::{ArgsError, without_args};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Feature, Features, Plugin, PodInfo, QueueContext, Status,
    WaitingPod,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "GangScheduling";

/// How long Permit holds a pod whose gang is not complete.
const PERMIT_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Default)]
struct GangScheduling {
    /// Whether groups can consist of groups (`CompositePodGroup`).
    has_composites: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    // For the errors.
    without_args::<GangScheduling>(args, features)?;
    Ok(Arc::new(GangScheduling { has_composites: features.enabled(Feature::CompositePodGroup) }))
}

impl Plugin for GangScheduling {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new().pre_enqueue(&self).permit(&self).enqueue_extensions(&self)
    }
}

impl PreEnqueuePlugin for GangScheduling {
    fn pre_enqueue(&self, cx: &QueueContext<'_>, pod: &PodInfo) -> Status {
        let Some(group) = group_of(pod) else { return Status::success() };
        let forest = cx.objects.forest();
        let Some(spec) = forest.spec(&group) else {
            return Status::unresolvable(format!(
                "waiting for pods's pod group {:?} to appear in scheduling queue",
                group.name()
            ));
        };
        let Some(root) = forest.root_of(&group) else { return Status::unresolvable(no_hierarchy(&group)) };
        if root == group && spec.policy == GroupPolicy::Basic || forest.has_quorum(&root, Counted::Known) {
            return Status::success();
        }
        Status::unresolvable(match root.kind {
            GroupKind::Pods => {
                "waiting for minCount pods from a gang to appear in scheduling queue".to_owned()
            }
            GroupKind::Groups => waits_for_tree(&root),
        })
    }
}

impl PermitPlugin for GangScheduling {
    fn permit(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Permit {
        let Some(group) = group_of(pod) else { return Permit::Allow };
        let forest = cx.forest();
        let Some(spec) = forest.spec(&group) else {
            let text = format!(
                "failed to get podGroup {group}: podgroup.scheduling.k8s.io {:?} not found",
                group.key
            );
            return Permit::Reject(Status::error(text));
        };
        let Some(root) = forest.root_of(&group) else {
            return Permit::Reject(Status::error(no_hierarchy(&group)));
        };
        if root == group && spec.policy == GroupPolicy::Basic {
            return Permit::Allow;
        }
        if !forest.has_quorum(&root, Counted::Scheduled) {
            // The other pods of the tree are tried in this attempt, so no queue has them.
            return Permit::Wait(PERMIT_TIMEOUT);
        }
        let is_of_tree = |waiting: &&WaitingPod| {
            let group = waiting.group.clone().map(GroupKey::of_pods);
            group.is_some_and(|group| forest.root_of(&group).as_ref() == Some(&root))
        };
        for waiting in cx.waiting_pods().iter().filter(is_of_tree) {
            cx.command(Command::Allow { pod: waiting.uid.clone(), plugin: NAME.into() });
        }
        Permit::Allow
    }
}

fn group_of(pod: &PodInfo) -> Option<GroupKey> {
    pod.group_key().map(GroupKey::of_pods)
}

fn no_hierarchy(group: &GroupKey) -> String {
    format!("failed to build hierarchy snapshot: no root found for {group}")
}

fn waits_for_tree(root: &GroupKey) -> String {
    format!("waiting for composite pod group {:?} tree to meet quorum", root.name())
}

impl EnqueueExtensions for GangScheduling {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let added = |resource| {
            EventRegistration::reading(resource, ActionType::ADD, pod_added).of_group(group_of_new_pod)
        };
        let pod_group = || EventResource::Other(resources::POD_GROUP);
        let new_group = |resource| {
            EventRegistration::reading(resource, ActionType::ADD, group_added).of_group(changed_group)
        };
        let mut events = vec![
            added(EventResource::UnscheduledPod),
            added(EventResource::AssignedPod),
            new_group(pod_group()),
            EventRegistration::reading(pod_group(), ActionType::UPDATE, group_updated)
                .of_group(changed_group),
        ];
        if self.has_composites {
            events.push(new_group(EventResource::Other(resources::COMPOSITE_POD_GROUP)));
        }
        events
    }
}

fn group_of_new_pod(change: &Change) -> Option<GroupKey> {
    group_of(change.new_pod()?)
}

fn changed_group(change: &Change) -> Option<GroupKey> {
    GroupKey::of(objects(change).1?)
}

/// Whether a pod is in the tree of a group.
fn is_of_tree(cx: &QueueContext<'_>, pod: &PodInfo, group: &GroupKey) -> bool {
    let forest = cx.objects.forest();
    group_of(pod).is_some_and(|own| {
        own == *group || forest.root_of(&own).is_some_and(|root| forest.root_of(group) == Some(root))
    })
}

/// A new pod may complete its group.
fn pod_added(cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
    let added = group_of(hint::new_pod(change)?);
    Ok(QueueingHint::queue_if(added.is_some_and(|group| is_of_tree(cx, pod, &group))))
}

/// A new group helps the pods of its tree.
fn group_added(cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
    let new = changed_group(change).ok_or("expected a group after the event")?;
    Ok(QueueingHint::queue_if(is_of_tree(cx, pod, &new)))
}

/// A gang that needs fewer pods than before may have enough.
fn group_updated(cx: &QueueContext<'_>, pod: &PodInfo, change: &Change) -> Hint {
    let (old, new) = objects(change);
    let (old, new) = old.zip(new).ok_or("expected a PodGroup before and after the event")?;
    let policy = |object: &Object| PodGroup::of(&object.body).map(|group| group.spec.policy);
    let needs_fewer = match (policy(old), policy(new)) {
        (Some(GroupPolicy::Gang(old)), Some(GroupPolicy::Gang(new))) => new < old,
        _ => false,
    };
    let group = GroupKey::of_pods(Arc::clone(&new.key));
    Ok(QueueingHint::queue_if(needs_fewer && is_of_tree(cx, pod, &group)))
}

fn objects(change: &Change) -> (Option<&Arc<Object>>, Option<&Arc<Object>>) {
    match change {
        Change::Object { old, new } => (old.as_ref(), new.as_ref()),
        _ => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;
    use supercargo_framework::objects::{Body, CompositePodGroup, GroupSpec, MemberStage, Objects};
    use supercargo_framework::testing::{object, pod};
    use supercargo_framework::{Nodes, Now, WaitingPods};

    use super::*;
    use crate::testing::driver;

    fn plugin() -> GangScheduling {
        GangScheduling { has_composites: true }
    }

    fn group(name: &str, policy: GroupPolicy) -> Arc<Object> {
        let body = Body::PodGroup(GroupSpec { policy, ..GroupSpec::default() }.into());
        Arc::new(object(&resources::POD_GROUP, &format!("default/{name}"), body))
    }

    fn waiting_pod(name: &str, group: &str) -> WaitingPod {
        WaitingPod::new(&pod(name).group(group).build(), "n".into(), Vec::new())
    }

    /// Objects with a gang `g` of two, of which these pods are known.
    fn with_members(stages: &[(&str, MemberStage)]) -> Objects {
        let mut objects = Objects::default();
        objects.insert(group("g", GroupPolicy::Gang(2)));
        for (name, stage) in stages {
            objects.set_member(&pod(name).group("g").build(), Some(*stage));
        }
        objects
    }

    #[test]
    fn a_gang_is_held_until_it_has_enough_pods() {
        let (few, preempting) = (with_members(&[("a", MemberStage::Unscheduled)]), FxHashSet::default());
        let enough = with_members(&[("a", MemberStage::Unscheduled), ("b", MemberStage::Assigned)]);
        let mut basic = Objects::default();
        basic.insert(group("g", GroupPolicy::Basic));
        let waits = "waiting for minCount pods from a gang to appear in scheduling queue";
        let cases = [
            (&few, Status::unresolvable(waits)),
            (&enough, Status::success()),
            (&basic, Status::success()),
            (
                &Objects::default(),
                Status::unresolvable("waiting for pods's pod group \"g\" to appear in scheduling queue"),
            ),
        ];
        for (objects, expected) in cases {
            let cx = QueueContext { objects, preempting: &preempting };
            assert_eq!(plugin().pre_enqueue(&cx, &pod("a").group("g").build()), expected);
            assert_eq!(plugin().pre_enqueue(&cx, &pod("a").build()), Status::success());
        }
    }

    #[test]
    fn the_last_pod_of_a_gang_lets_all_go() {
        let stages =
            [("a", MemberStage::Assumed), ("b", MemberStage::Assumed), ("c", MemberStage::Unscheduled)];
        let waiting = WaitingPods::from_iter([waiting_pod("a", "g")]);
        for (known, is_complete) in [(&stages[..2], true), (&stages[1..], false)] {
            let (nodes, objects) = (Nodes::default(), with_members(known));
            let cx = Context::new(&nodes, &objects, &waiting, Now::default());
            let answer =
                plugin().permit(&cx, &mut CycleState::new(), &pod("b").group("g").build(), &"n".into());
            let commands = cx.take_commands();
            if is_complete {
                assert!(matches!(answer, Permit::Allow));
                assert!(
                    matches!(&commands[..], [Command::Allow { pod, .. }] if *pod == "a".into()),
                    "{commands:?}"
                );
            } else {
                assert!(matches!(answer, Permit::Wait(PERMIT_TIMEOUT)) && commands.is_empty());
            }
        }
    }

    #[test]
    fn only_pods_and_changes_of_its_own_group_wake_a_pod() {
        let gang = |name, min_count| Some(group(name, GroupPolicy::Gang(min_count)));
        let object = |old, new| Change::Object { old, new };
        let new_pod =
            |name: &str| Change::Pod { old: None, new: Some(Arc::new(pod("b").group(name).build())) };
        let (pod_group, add) = (EventResource::Other(resources::POD_GROUP), ActionType::ADD);
        let cases = [
            ("a pod of the group", EventResource::UnscheduledPod, add, new_pod("g"), true),
            ("a pod of another group", EventResource::UnscheduledPod, add, new_pod("h"), false),
            ("a pod on a node", EventResource::AssignedPod, add, new_pod("g"), true),
            ("the group", pod_group.clone(), add, object(None, gang("g", 2)), true),
            ("another group", pod_group.clone(), add, object(None, gang("h", 2)), false),
            ("fewer", pod_group.clone(), ActionType::UPDATE, object(gang("g", 3), gang("g", 2)), true),
            ("more", pod_group.clone(), ActionType::UPDATE, object(gang("g", 2), gang("g", 3)), false),
            ("fewer of another", pod_group, ActionType::UPDATE, object(gang("h", 3), gang("h", 2)), false),
        ];
        for (name, resource, action, change, expected) in cases {
            let answer = driver(NAME).hint(resource, action, &pod("a").group("g").build(), &change);
            assert_eq!(answer, Some(Ok(QueueingHint::queue_if(expected))), "{name}");
        }
    }

    /// Composite group `r` of two of its groups `g` and `h`, gangs of two and of one, with these
    /// members.
    fn tree(members: &[(&str, &str, MemberStage)]) -> Objects {
        let mut objects = Objects::default();
        objects.set_composite_groups(true);
        let spec = GroupSpec { policy: GroupPolicy::Gang(2), ..GroupSpec::default() };
        let body = Body::CompositePodGroup(CompositePodGroup { spec });
        objects.insert(object(&resources::COMPOSITE_POD_GROUP, "default/r", body).into());
        for (name, min_count) in [("g", 2), ("h", 1)] {
            let policy = GroupPolicy::Gang(min_count);
            let spec = GroupSpec { policy, parent: Some("r".into()), ..GroupSpec::default() };
            let body = Body::PodGroup(spec.into());
            objects.insert(object(&resources::POD_GROUP, &format!("default/{name}"), body).into());
        }
        for (name, group, stage) in members {
            objects.set_member(&pod(name).group(group).build(), Some(*stage));
        }
        objects
    }

    #[test]
    fn a_tree_is_held_until_enough_of_its_groups_are_complete() {
        let (preempting, new) = (FxHashSet::default(), MemberStage::Unscheduled);
        let waits = "waiting for composite pod group \"r\" tree to meet quorum";
        let members = [("a", "g", new), ("b", "h", new), ("c", "g", new)];
        for (known, expected) in [(2, Status::unresolvable(waits)), (3, Status::success())] {
            let objects = tree(&members[..known]);
            let cx = QueueContext { objects: &objects, preempting: &preempting };
            assert_eq!(plugin().pre_enqueue(&cx, &pod("b").group("h").build()), expected);
        }
        let mut objects = tree(&members);
        objects.remove(&resources::COMPOSITE_POD_GROUP, "default/r");
        let cx = QueueContext { objects: &objects, preempting: &preempting };
        assert!(plugin().pre_enqueue(&cx, &pod("b").group("h").build()).is_rejected());
    }

    #[test]
    fn the_pod_that_completes_a_tree_lets_pods_of_all_its_groups_go() {
        let (assumed, new) = (MemberStage::Assumed, MemberStage::Unscheduled);
        let pods = [("a", "g"), ("b", "h"), ("other", "o")];
        let waiting: WaitingPods = pods.into_iter().map(|(name, group)| waiting_pod(name, group)).collect();
        for (stage, expected) in [(assumed, 2), (new, 0)] {
            let objects = tree(&[("a", "g", assumed), ("b", "h", assumed), ("c", "g", stage)]);
            let nodes = Nodes::default();
            let cx = Context::new(&nodes, &objects, &waiting, Now::default());
            let answer =
                plugin().permit(&cx, &mut CycleState::new(), &pod("b").group("h").build(), &"n".into());
            let commands = cx.take_commands();
            assert_eq!((matches!(answer, Permit::Allow), commands.len()), (stage == assumed, expected));
        }
    }

    #[test]
    fn changes_in_its_tree_wake_a_pod() {
        let objects = tree(&[]);
        let preempting = FxHashSet::default();
        let cx = QueueContext { objects: &objects, preempting: &preempting };
        let waiting = pod("a").group("g").build();
        let new_pod =
            |group: &str| Change::Pod { old: None, new: Some(Arc::new(pod("b").group(group).build())) };
        assert_eq!(pod_added(&cx, &waiting, &new_pod("h")), Ok(QueueingHint::Queue));
        assert_eq!(pod_added(&cx, &waiting, &new_pod("other")), Ok(QueueingHint::Skip));
        let root = objects.get(&resources::COMPOSITE_POD_GROUP, "default/r").cloned();
        let added = Change::Object { old: None, new: root };
        assert_eq!(group_added(&cx, &waiting, &added), Ok(QueueingHint::Queue));
        assert_eq!(group_added(&cx, &pod("x").group("other").build(), &added), Ok(QueueingHint::Skip));
    }
}
