//! The effect of each input: upstream's event handlers.

use std::sync::Arc;

use supercargo_framework::binding::{BindingReport, Occurrence};
use supercargo_framework::event::Change;
use supercargo_framework::objects::{GroupKey, MemberStage, Object};
use supercargo_framework::{
    ActionType, ClusterEvent, EventResource, NodeRecord, Now, PodInfo, Status, Text, Uid,
};
use supercargo_timeline::Happening;

use crate::effect::{Effect, EventType, PodEvent};
use crate::input::{Input, Notification};
use crate::scheduler::Scheduler;
use supercargo_evaluation::cache::on_node;
use supercargo_framework::cluster_events;
use supercargo_queue::PreCheck;
use supercargo_runtime::observer::{Observation, TimePoint, Timespan};

impl Scheduler {
    /// Handles an input, and whatever is due by the given time.
    pub fn handle(&mut self, now: Now, input: Input) {
        match input {
            Input::AssignedPod(notification) => self.assigned_pod(now, notification),
            Input::QueuedPod(notification) => self.queued_pod(now, notification),
            Input::Node(notification) => self.node(now, notification),
            Input::Object(notification) => self.object(now, notification),
            Input::Written(object) => self.written(now, object),
            Input::WriteEnded { pod, retry } => self.write_ended(now, &pod, retry),
            Input::BindingReport(report) => self.binding_reported(report),
            Input::PreBound { pod, status } => self.pre_bound(now, &pod, status),
            Input::Bound { pod, by, outcome } => self.bound(now, &pod, &by, outcome),
            Input::PodRead { pod, read } => self.pod_read(now, &pod, read),
            Input::Evicted { preemption, outcomes } => self.evicted(now, preemption, &outcomes),
            Input::Tick => {}
            Input::Drain => self.drain(now),
        }
        self.requeue_left_behind(now);
        self.with_queue(now, supercargo_queue::SchedulingQueue::tick);
        self.tick_bindings(now);
    }

    fn write_ended(&mut self, now: Now, pod: &Uid, retry: bool) {
        if let Some(writes) = self.unanswered_writes.get_mut(pod) {
            *writes -= 1;
            if *writes == 0 {
                self.unanswered_writes.remove(pod);
            }
        }
        if retry {
            self.with_queue(now, |queue, cx| queue.retry_after_backoff(cx, pod));
        }
    }

    /// Reports the time that an informer's event took.
    fn handled(&self, from: TimePoint, event: &ClusterEvent) {
        let took = Timespan { from, to: self.observer.time_point() };
        self.observer.observe(Observation::Handled { event, took });
    }

    fn assigned_pod(&mut self, now: Now, notification: Notification<PodInfo>) {
        let from = self.observer.time_point();
        let action = action_of(&notification);
        match notification {
            Notification::Added(pod) => self.add_assigned(now, pod),
            Notification::Updated { old, new } if old.uid != new.uid => {
                self.delete_assigned(now, &old);
                self.add_assigned(now, new);
            }
            Notification::Updated { old, new } => {
                self.cache_pod(Arc::clone(&new));
                if new.terminating {
                    self.pod_leaves(&new.uid);
                }
                for event in cluster_events::pod_events(&EventResource::AssignedPod, &old, &new) {
                    let change = Change::Pod { old: Some(Arc::clone(&old)), new: Some(Arc::clone(&new)) };
                    self.move_pods(now, &event, &change, PreCheck::All);
                    self.handled(from, &event);
                }
            }
            Notification::Deleted(pod) => self.delete_assigned(now, &pod),
        }
        self.handled(from, &ClusterEvent::new(EventResource::AssignedPod, action));
    }

    fn add_assigned(&mut self, now: Now, pod: Arc<PodInfo>) {
        self.informer_confirms(now, &pod);
        self.note_node(now, &pod);
        self.cache_pod(Arc::clone(&pod));
        let change = Change::Pod { old: None, new: Some(pod) };
        self.move_all(now, EventResource::AssignedPod, ActionType::ADD, &change);
    }

    /// Notes the node of a pod that this scheduler has not bound to it.
    fn note_node(&mut self, now: Now, pod: &PodInfo) {
        let is_new = self.known(pod).is_some() && !self.cache.is_confirmed(&pod.uid);
        if let Some(node) = pod.node_name.as_ref().filter(|_| is_new)
            && self.cache.node_of(&pod.uid) != Some(node)
        {
            self.note(now, pod, Happening::BoundElsewhere(node));
        }
    }

    fn cache_pod(&mut self, pod: Arc<PodInfo>) {
        if let Err(error) = self.cache.add_pod(Arc::clone(&pod)) {
            self.anomaly(&error.to_string());
        }
        self.settle_member(&pod);
    }

    fn delete_assigned(&mut self, now: Now, pod: &Arc<PodInfo>) {
        // The pod may be deleted so soon after it was bound that its removal from the queue was not
        // reported.
        self.note(now, pod, if pod.terminating { Happening::Deleted } else { Happening::Ended });
        self.remove_unassigned(now, pod);
        self.cache.remove_pod(&pod.uid);
        self.settle_member(pod);
        self.pod_leaves(&pod.uid);
        self.move_all_for_freed(now, pod, PreCheck::All);
    }

    fn queued_pod(&mut self, now: Now, notification: Notification<PodInfo>) {
        let from = self.observer.time_point();
        let action = action_of(&notification);
        match notification {
            Notification::Added(pod) => self.add_to_queue(now, pod),
            Notification::Updated { old, new } if old.uid != new.uid => {
                self.delete_from_queue(now, &old);
                self.add_to_queue(now, new);
            }
            Notification::Updated { old, new } => {
                let events = cluster_events::pod_events(&EventResource::UnscheduledPod, &old, &new);
                self.update_in_queue(now, &old, new);
                for event in events.iter().filter(|event| event.action != ActionType::UPDATE) {
                    self.handled(from, event);
                }
            }
            Notification::Deleted(pod) => self.delete_from_queue(now, &pod),
        }
        self.handled(from, &ClusterEvent::new(EventResource::UnscheduledPod, action));
    }

    pub(crate) fn add_to_queue(&mut self, now: Now, pod: Arc<PodInfo>) {
        match self.pending.get(&pod.key()).cloned() {
            // After a relist, a handler may see a known pod again. That counts as an update.
            Some(known) if known.uid == pod.uid => return self.update_in_queue(now, &known, pod),
            // The deletion of the old pod was missed.
            Some(missed) => self.delete_from_queue(now, &missed),
            None => {}
        }
        if self.cache.is_confirmed(&pod.uid) {
            return;
        }
        let Some(profile) = self.profile_of(&pod) else {
            self.unclaimed_pods.insert(pod.key(), pod);
            return;
        };
        self.pending.insert(pod.key(), Arc::clone(&pod));
        self.settle_member(&pod);
        match self.bindings.get(&pod.uid) {
            None => {
                self.note(now, &pod, Happening::Added);
                self.with_queue(now, |queue, cx| queue.add(cx, Arc::clone(&pod), profile));
                self.note_gate(now, &pod, None);
            }
            // The pod was reported as deleted while it was being bound, and is back.
            Some(binding) => {
                if let Err(error) = self.cache.assume(Arc::clone(&pod), Arc::clone(&binding.node)) {
                    self.anomaly(&error.to_string());
                }
                self.settle_member(&pod);
            }
        }
    }

    fn update_in_queue(&mut self, now: Now, old: &Arc<PodInfo>, new: Arc<PodInfo>) {
        // A resync, or a relist without changes.
        if old.resource_version == new.resource_version {
            return;
        }
        if self.cache.is_confirmed(&new.uid) {
            return;
        }
        let profile = self.profile_of(&new);
        // Its profile may have been replaced while the pod is being bound.
        if profile.is_none() && self.known(&new).is_none() {
            self.unclaimed_pods.insert(new.key(), new);
            return;
        }
        self.pending.insert(new.key(), Arc::clone(&new));
        self.unconfirmed_patches.confirm(&new);
        if self.cache.is_assumed(&new.uid) {
            if new.terminating && !old.terminating {
                self.assumed_pod_deleted(now, &new);
            }
            return;
        }
        // A terminating pod in a binding was forgotten; it is requeued when the binding fails.
        if self.bindings.get(&new.uid).is_some() {
            return;
        }
        if let Some(profile) = profile {
            let gate = self.gate(old);
            let cause = || format!("pod {} was updated", new.key());
            self.with_queue_noting(now, |queue, cx| queue.update(cx, old, &new, profile), cause);
            self.note_gate(now, &new, gate.as_ref());
        }
        let (before, after) = (&old.status.nominated_node_name, &new.status.nominated_node_name);
        if before.is_some() && before != after {
            self.move_all_for_freed(now, old, PreCheck::MaxPriority(old.priority));
        }
    }

    pub(crate) fn delete_from_queue(&mut self, now: Now, pod: &Arc<PodInfo>) {
        self.remove_unassigned(now, pod);
        if self.cache.is_confirmed(&pod.uid) {
            // It left the queue because it was bound.
            return;
        }
        self.note(now, pod, Happening::Deleted);
        if self.cache.is_assumed(&pod.uid) {
            self.assumed_pod_deleted(now, pod);
        } else if pod.status.nominated_node_name.is_some() {
            self.move_all_for_freed(now, pod, PreCheck::MaxPriority(pod.priority));
        }
    }

    fn remove_unassigned(&mut self, now: Now, pod: &PodInfo) {
        if self.known(pod).is_some() {
            self.pending.remove(&pod.key());
            self.unconfirmed_patches.forget(&pod.uid);
        }
        if self.unclaimed_pods.get(&pod.key()).is_some_and(|other| other.uid == pod.uid) {
            self.unclaimed_pods.remove(&pod.key());
        }
        // As upstream, PreEnqueue still counts the pod when its group goes on without it.
        self.with_queue(now, |queue, cx| queue.delete(cx, &pod.uid));
        self.settle_member(pod);
    }

    /// A pod is deleted while it is being bound. If Permit holds it, it is rejected, which also
    /// forgets it.
    fn assumed_pod_deleted(&mut self, now: Now, pod: &Arc<PodInfo>) {
        let node = self.cache.node_of(&pod.uid).cloned();
        self.pod_leaves(&pod.uid);
        if self.bindings.is_waiting(&pod.uid) {
            self.permit_rejected(now, &pod.uid, Status::unschedulable("removed"));
        } else {
            self.forget(&pod.uid);
        }
        let freed = node.map_or_else(|| Arc::clone(pod), |node| on_node(pod, &node));
        self.move_all_for_freed(now, &freed, PreCheck::All);
    }

    pub(crate) fn forget(&mut self, uid: &Uid) {
        let pod = self.cache.pod(uid).filter(|pod| pod.spec.group().is_some()).cloned();
        if let Err(error) = self.cache.forget(uid) {
            self.anomaly(&error.to_string());
        }
        if let Some(pod) = pod {
            self.settle_member(&pod);
        }
    }

    /// Notes how far a pod of a group is. An assumed pod that is being deleted leaves its group at
    /// once.
    pub(crate) fn settle_member(&mut self, pod: &PodInfo) {
        if pod.spec.group().is_none() {
            return;
        }
        let known = self.known(pod);
        let stage = if self.cache.is_confirmed(&pod.uid) {
            Some(MemberStage::Assigned)
        } else if self.cache.is_assumed(&pod.uid) {
            known.is_some_and(|known| !known.terminating).then_some(MemberStage::Assumed)
        } else {
            known.map(|_| MemberStage::Unscheduled)
        };
        self.objects.set_member(pod, stage);
    }

    fn node(&mut self, now: Now, notification: Notification<NodeRecord>) {
        let from = self.observer.time_point();
        match notification {
            Notification::Added(node) => {
                self.cache.set_node(Arc::clone(&node));
                let change = Change::Node { old: None, new: Some(node) };
                self.move_all(now, EventResource::Node, ActionType::ADD, &change);
                self.handled(from, &ClusterEvent::new(EventResource::Node, ActionType::ADD));
            }
            Notification::Updated { old, new } => {
                self.cache.set_node(Arc::clone(&new));
                for event in cluster_events::node_events(&old, &new, &self.features) {
                    let change = Change::Node { old: Some(Arc::clone(&old)), new: Some(Arc::clone(&new)) };
                    self.move_pods(now, &event, &change, PreCheck::All);
                    self.handled(from, &event);
                }
            }
            Notification::Deleted(node) => {
                let name = Arc::clone(&node.name);
                let change = Change::Node { old: Some(node), new: None };
                self.move_all(now, EventResource::Node, ActionType::DELETE, &change);
                if let Err(error) = self.cache.remove_node(&name) {
                    self.anomaly(&error.to_string());
                }
                self.handled(from, &ClusterEvent::new(EventResource::Node, ActionType::DELETE));
            }
        }
    }

    fn object(&mut self, now: Now, notification: Notification<Object>) {
        let from = self.observer.time_point();
        let action = action_of(&notification);
        let (old, new) = match notification {
            Notification::Added(new) => (None, Some(new)),
            Notification::Updated { old, new } => (Some(old), Some(new)),
            Notification::Deleted(old) => (Some(old), None),
        };
        let Some(object) = new.as_ref().or(old.as_ref()).cloned() else {
            return;
        };
        let written = self.objects.written(&object.resource, &object.key).cloned();
        let old = written.clone().or(old);
        self.cache.note_object(&object);
        let group = GroupKey::of(&object);
        let earlier = group.as_ref().and_then(|group| self.objects.forest().root_of(group));
        let moves = group.as_ref().is_some_and(|group| self.objects.forest().moves(group, new.as_deref()));
        // Hints see the objects as they are after the event.
        match &new {
            Some(new) => drop(self.objects.insert(Arc::clone(new))),
            None => drop(self.objects.remove(&object.resource, &object.key)),
        }
        // A write that is still the latest state was an event when it was answered.
        let latest = self.objects.get(&object.resource, &object.key);
        let is_known =
            written.as_ref().zip(latest).is_some_and(|(written, latest)| Arc::ptr_eq(written, latest));
        if let Some(group) = group {
            self.confirm_started_group(old.as_ref(), new.as_ref());
            self.with_queue(now, |queue, cx| {
                if moves {
                    queue.group_moved(cx, &group, earlier.as_ref());
                } else {
                    queue.group_updated(cx, &group);
                }
            });
        }
        if !is_known {
            self.object_changed(now, from, &object.resource, action, Change::Object { old, new });
        }
    }

    /// Assumes what a binding has written. As in upstream's assume cache, this is an event like
    /// that of an informer. An answer that comes after a newer version, or after the object is
    /// gone, changes nothing.
    fn written(&mut self, now: Now, object: Arc<Object>) {
        let from = self.observer.time_point();
        let old = self.objects.get(&object.resource, &object.key).cloned();
        self.cache.note_object(&object);
        if self.objects.assume(Arc::clone(&object)) {
            let change = Change::Object { old, new: Some(Arc::clone(&object)) };
            self.object_changed(now, from, &object.resource, ActionType::UPDATE, change);
        }
    }

    fn binding_reported(&mut self, BindingReport { pod, what }: BindingReport) {
        let now = self.observer.time_point();
        let Some(binding) = self.bindings.get_mut(&pod) else { return };
        match what {
            Occurrence::Event { reason, action, note } => {
                binding.reported_at = now;
                let about = PodEvent::about(&binding.queued.pod, EventType::Normal, "", "", note);
                self.effects.push(Effect::RecordEvent(PodEvent { reason, action, ..about }));
            }
            Occurrence::ClaimCreation { is_created } => {
                self.observer.observe(Observation::ClaimCreation { is_created });
            }
            Occurrence::DevicesAwaited(wait) => {
                let (profile, took) =
                    (binding.queued.profile.0, Timespan { from: binding.reported_at, to: now });
                self.observer.observe(Observation::DevicesAwaited { profile, wait: &wait, took });
            }
        }
    }

    fn object_changed(
        &mut self,
        now: Now,
        from: TimePoint,
        resource: &Text,
        action: ActionType,
        change: Change,
    ) {
        // A kind that plugins only read moves no pods, not even for plugins that register for all
        // events.
        if self.registered_kinds.contains(resource) {
            let resource = EventResource::Other(resource.clone());
            self.move_all(now, resource.clone(), action, &change);
            self.handled(from, &ClusterEvent::new(resource, action));
        }
    }
}

fn action_of<T>(notification: &Notification<T>) -> ActionType {
    match notification {
        Notification::Added(_) => ActionType::ADD,
        Notification::Updated { .. } => ActionType::UPDATE,
        Notification::Deleted(_) => ActionType::DELETE,
    }
}
