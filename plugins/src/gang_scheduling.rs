//! Schedules at least `minCount` pods of a gang, or none.
//!
//! PreEnqueue holds a gang until it has enough pods. The scheduler tries its pods in one cycle.
//! Permit then holds those that are assumed first until there are enough of them.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::context::Command;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::objects::{GroupPolicy, Members, Object, ObjectBody as _, PodGroup, resources};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, Permit, PermitPlugin, PreEnqueuePlugin,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Plugin, PodInfo, QueueContext, Status,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "GangScheduling";

/// How long Permit holds a pod whose gang is not complete.
const PERMIT_TIMEOUT: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(crate) struct GangScheduling;

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
        let Some(key) = pod.group_key() else { return Status::success() };
        let object = cx.objects.get(&resources::POD_GROUP, &key);
        let Some(group) = object.and_then(|object| PodGroup::of(&object.body)) else {
            let name = pod.spec.group().map_or("", |name| name);
            return Status::unresolvable(format!(
                "waiting for pods's pod group {name:?} to appear in scheduling queue"
            ));
        };
        let pods = cx.objects.members.get(&key).map_or(0, Members::all);
        match group.policy {
            GroupPolicy::Gang(min_count) if !reaches(pods, min_count) => {
                Status::unresolvable("waiting for minCount pods from a gang to appear in scheduling queue")
            }
            _ => Status::success(),
        }
    }
}

impl PermitPlugin for GangScheduling {
    fn permit(&self, cx: &Context<'_>, _: &mut CycleState, pod: &PodInfo, _: &Arc<str>) -> Permit {
        let Some(key) = pod.group_key() else { return Permit::Allow };
        let Some(group) = cx.get::<PodGroup>(&resources::POD_GROUP, &key) else {
            let text = format!("failed to get podGroup {key}: podgroup.scheduling.k8s.io {key:?} not found");
            return Permit::Reject(Status::error(text));
        };
        let GroupPolicy::Gang(min_count) = group.policy else { return Permit::Allow };
        let Some(members) = cx.members_of(&key) else { return Permit::Allow };
        if reaches(members.scheduled(), min_count) {
            for waiting in cx.waiting_pods() {
                if members.stage(&waiting.uid).is_some() {
                    cx.command(Command::Allow { pod: waiting.uid.clone(), plugin: NAME.into() });
                }
            }
            return Permit::Allow;
        }
        let key = |name: &Arc<str>| PodKey { namespace: Arc::clone(&pod.namespace), name: Arc::clone(name) };
        cx.command(Command::Activate(members.unscheduled().into_iter().map(key).collect()));
        Permit::Wait(PERMIT_TIMEOUT)
    }
}

impl EnqueueExtensions for GangScheduling {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let added =
            |resource| EventRegistration::hinted(resource, ActionType::ADD, pod_added).of_group(group_of_pod);
        let group = || EventResource::Other(resources::POD_GROUP);
        vec![
            added(EventResource::UnscheduledPod),
            added(EventResource::AssignedPod),
            EventRegistration::hinted(group(), ActionType::ADD, group_added).of_group(changed_group),
            EventRegistration::hinted(group(), ActionType::UPDATE, group_updated).of_group(changed_group),
        ]
    }
}

fn group_of_pod(change: &Change) -> Option<Arc<str>> {
    change.new_pod()?.group_key()
}

fn changed_group(change: &Change) -> Option<Arc<str>> {
    Some(Arc::clone(&objects(change).1?.key))
}

/// A new pod may complete its group.
fn pod_added(pod: &PodInfo, change: &Change) -> Hint {
    let added = hint::new_pod(change)?;
    Ok(QueueingHint::queue_if(pod.spec.group().is_some() && pod.group_key() == added.group_key()))
}

/// A new PodGroup helps the pods that name it.
fn group_added(pod: &PodInfo, change: &Change) -> Hint {
    let (_, new) = objects(change);
    let new = new.ok_or("expected a PodGroup after the event")?;
    Ok(QueueingHint::queue_if(pod.group_key().as_deref() == Some(&*new.key)))
}

/// A gang that needs fewer pods than before may have enough.
fn group_updated(pod: &PodInfo, change: &Change) -> Hint {
    let (old, new) = objects(change);
    let (old, new) = old.zip(new).ok_or("expected a PodGroup before and after the event")?;
    let policy = |object: &Object| PodGroup::of(&object.body).map(|group| group.policy);
    let needs_fewer = match (policy(old), policy(new)) {
        (Some(GroupPolicy::Gang(old)), Some(GroupPolicy::Gang(new))) => new < old,
        _ => false,
    };
    Ok(QueueingHint::queue_if(needs_fewer && pod.group_key().as_deref() == Some(&*new.key)))
}

fn objects(change: &Change) -> (Option<&Arc<Object>>, Option<&Arc<Object>>) {
    match change {
        Change::Object { old, new } => (old.as_ref(), new.as_ref()),
        _ => (None, None),
    }
}

fn reaches(pods: usize, min_count: i32) -> bool {
    i64::try_from(pods).is_ok_and(|pods| pods >= i64::from(min_count))
}

#[cfg(test)]
mod tests {
    use rustc_hash::FxHashSet;
    use supercargo_framework::objects::{Body, MemberStage, Objects};
    use supercargo_framework::testing::{object, pod};
    use supercargo_framework::{Nodes, Now};

    use super::*;
    use crate::testing::driver;

    fn group(name: &str, policy: GroupPolicy) -> Arc<Object> {
        let body = Body::PodGroup(PodGroup { policy, ..PodGroup::default() });
        Arc::new(object(&resources::POD_GROUP, &format!("default/{name}"), body))
    }

    /// Objects with a gang `g` of two, of which these pods are known.
    fn with_members(stages: &[(&str, MemberStage)]) -> Objects {
        let mut objects = Objects::default();
        objects.insert(group("g", GroupPolicy::Gang(2)));
        for (name, stage) in stages {
            objects.members.set(&pod(name).group("g").build(), Some(*stage));
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
            assert_eq!(GangScheduling.pre_enqueue(&cx, &pod("a").group("g").build()), expected);
            assert_eq!(GangScheduling.pre_enqueue(&cx, &pod("a").build()), Status::success());
        }
    }

    #[test]
    fn the_last_pod_of_a_gang_lets_all_go() {
        let stages =
            [("a", MemberStage::Assumed), ("b", MemberStage::Assumed), ("c", MemberStage::Unscheduled)];
        let waiting = [supercargo_framework::context::WaitingPod {
            uid: "a".into(),
            key: pod("a").build().key(),
            node_name: "n".into(),
            pending: Vec::new(),
        }];
        for (known, is_complete) in [(&stages[..2], true), (&stages[1..], false)] {
            let (nodes, objects) = (Nodes::default(), with_members(known));
            let cx = Context::new(&nodes, &objects, &waiting, Now::default());
            let answer =
                GangScheduling.permit(&cx, &mut CycleState::new(), &pod("b").group("g").build(), &"n".into());
            let commands = cx.take_commands();
            if is_complete {
                assert!(matches!(answer, Permit::Allow));
                assert!(
                    matches!(&commands[..], [Command::Allow { pod, .. }] if *pod == "a".into()),
                    "{commands:?}"
                );
            } else {
                assert!(matches!(answer, Permit::Wait(PERMIT_TIMEOUT)));
                let [Command::Activate(pods)] = &commands[..] else { panic!("{commands:?}") };
                assert_eq!(pods.iter().map(|key| &*key.name).collect::<Vec<_>>(), ["c"]);
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
}
