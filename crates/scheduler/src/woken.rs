//! What made pods worth another attempt, for the timeline.

use std::mem::take;
use std::sync::Arc;

use supercargo_framework::event::Change;
use supercargo_framework::{ActionType, ClusterEvent, EventResource, Now, PodInfo};
use supercargo_queue::{PreCheck, QueueCx, SchedulingQueue};
use supercargo_timeline::Happening;

use crate::scheduler::Scheduler;

impl Scheduler {
    /// An event: moves the pods that it may help.
    pub(crate) fn move_all(
        &mut self,
        now: Now,
        resource: EventResource,
        action: ActionType,
        change: &Change,
    ) {
        self.move_pods(now, &ClusterEvent::new(resource, action), change, PreCheck::All);
    }

    /// A pod or its nomination leaves a node: moves the pods that this may help.
    pub(crate) fn move_all_for_freed(&mut self, now: Now, pod: &Arc<PodInfo>, pre_check: PreCheck) {
        let event = ClusterEvent::new(EventResource::AssignedPod, ActionType::DELETE);
        let change = Change::Pod { old: Some(Arc::clone(pod)), new: None };
        self.move_pods(now, &event, &change, pre_check);
    }

    /// Moves the pods that an event may help, and notes what it was.
    pub(crate) fn move_pods(&mut self, now: Now, event: &ClusterEvent, change: &Change, pre_check: PreCheck) {
        let call = |queue: &mut SchedulingQueue, cx: &mut QueueCx<'_>| {
            queue.move_all(cx, event, change, pre_check);
        };
        self.with_queue_noting(now, call, || text(event, change));
    }

    /// Calls the queue, and notes what made it wake pods.
    pub(crate) fn with_queue_noting(
        &mut self,
        now: Now,
        call: impl FnOnce(&mut SchedulingQueue, &mut QueueCx<'_>),
        cause: impl FnOnce() -> String,
    ) {
        let woken = self.with_queue(now, |queue, cx| {
            call(queue, cx);
            take(&mut cx.woken)
        });
        if woken.is_empty() || self.timeline.is_off() {
            return;
        }
        let cause = cause();
        for uid in woken {
            if let Some(pod) = self.queue.get(&uid).map(|queued| Arc::clone(&queued.pod)) {
                self.note(now, &pod, Happening::Woken(&cause));
            }
        }
    }
}

/// An event in words.
fn text(event: &ClusterEvent, change: &Change) -> String {
    let changed = match change {
        Change::Pod { old, new } => {
            last(old.as_deref(), new.as_deref()).map(|(pod, verb)| match (&pod.node_name, new) {
                (Some(node), None) => format!("pod {} left {node}", pod.key()),
                (Some(node), Some(_)) => format!("pod {} on {node} was {verb}", pod.key()),
                (None, _) => format!("pod {} was {verb}", pod.key()),
            })
        }
        Change::Node { old, new } => {
            last(old.as_deref(), new.as_deref()).map(|(node, verb)| format!("node {} was {verb}", node.name))
        }
        Change::Object { old, new } => last(old.as_deref(), new.as_deref())
            .map(|(object, verb)| format!("{} {} was {verb}", object.resource, object.key)),
        Change::Unspecified => None,
    };
    changed.unwrap_or_else(|| event.to_string())
}

/// The latest version of what an event is about, and what happened to it.
fn last<'a, T>(old: Option<&'a T>, new: Option<&'a T>) -> Option<(&'a T, &'static str)> {
    match (old, new) {
        (None, new) => Some((new?, "added")),
        (Some(_), Some(new)) => Some((new, "updated")),
        (Some(old), None) => Some((old, "deleted")),
    }
}
