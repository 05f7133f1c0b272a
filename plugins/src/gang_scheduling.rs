//! Schedules at least `minCount` pods of a gang, or none.
//!
//! PreEnqueue holds a gang until it has enough pods. The scheduler tries its pods in one cycle. Permit
//! then holds those that are assumed first until there are enough of them.

use std::sync::Arc;
use std::time::Duration;

use supercargo_framework::context::Command;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::objects::{GroupPolicy, Object, ObjectBody as _, PodGroup, resources};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, Permit, PermitPlugin, PreEnqueuePlugin,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Plugin, PodInfo, QueueContext, Status,
};

use crate::hint::{self, Hint};

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
        let pods = cx.objects.members.get(&key).map_or(0, |members| members.all());
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
        let added = |resource| EventRegistration::hinted(resource, ActionType::ADD, pod_added);
        let group = || EventResource::Other(resources::POD_GROUP);
        vec![
            added(EventResource::UnscheduledPod),
            added(EventResource::AssignedPod),
            EventRegistration::hinted(group(), ActionType::ADD, group_added),
            EventRegistration::hinted(group(), ActionType::UPDATE, group_updated),
        ]
    }
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
