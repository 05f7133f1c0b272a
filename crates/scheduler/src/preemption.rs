//! Preemption: from a plugin's command to the deletion of the last victim.
//!
//! All victims but the last are deleted in parallel, then the last one. Until its deletion is
//! answered, or the last victim is seen to leave, PreEnqueue can hold the preemptor: it would
//! select the same victims again. A victim whose binding can still be cancelled costs no request.

use std::sync::Arc;

use supercargo_framework::context::Preemptor;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_framework::{Feature, Now, PodInfo, Status, Uid};
use supercargo_timeline::Happening;

use crate::bindings::Stage;
use crate::effect::{Effect, EventType, GroupReference, PodEvent, VictimEviction};
use crate::input::Eviction;
use crate::preemptions::{HeldAttempt, Order, Preemption, StrandedPreemptor};
use crate::scheduler::Scheduler;
use supercargo_queue::{Place, QueuedPod};
use supercargo_runtime::failure::{Failure, FailureKind};
use supercargo_runtime::observer::{Observation, Timespan};

impl Scheduler {
    /// Starts a preemption.
    pub(crate) fn preempt(&mut self, now: Now, mut order: Order) {
        let Order { preemptor, victims, .. } = &order;
        self.observer.observe(Observation::Preempting { preemptor, victims });
        order.asynchronous |= preemptor.group.is_some();
        // A terminating pod needs no request.
        order.victims.pods.retain(|victim| !victim.terminating);
        if order.asynchronous && order.victims.pods.is_empty() {
            return;
        }
        let (node, victims) = (&order.node, order.victims.pods.len());
        self.note(now, &order.preemptor.pod, Happening::Preempts(node, victims));
        let mut victims = order.victims.pods.clone();
        let last = if order.asynchronous { victims.pop() } else { None };
        let is_asynchronous = order.asynchronous;
        let number = self.preemptions.begin(self.observer.time_point(), order, last);
        if is_asynchronous {
            self.clear_nominations(number);
        }
        self.evict(now, number, victims);
    }

    /// Clears nominations of lower-priority pods for the node: they may no longer fit there. As
    /// upstream, a pod that is in no queue keeps its nomination: one that is being bound, or that
    /// terminates.
    fn clear_nominations(&mut self, number: u64) {
        let Some(Preemption { order, .. }) = self.preemptions.get(number) else {
            return;
        };
        let priority = order.preemptor.pod.priority;
        let nominated = self.nominated_on(&order.node);
        for pod in nominated.iter().filter(|pod| pod.priority < priority) {
            if self.queue.get(&pod.uid).is_some() {
                self.patch_nomination(pod, Nomination::Override(None));
            }
        }
    }

    /// Deletes or cancels these victims. Without a request to wait for, the next stage follows at
    /// once.
    fn evict(&mut self, now: Now, number: u64, victims: Vec<Arc<PodInfo>>) {
        let asked: Vec<_> =
            victims.into_iter().filter(|victim| !self.cancel_victim(now, number, victim)).collect();
        let Some(preemption) = self.preemptions.get_mut(number) else {
            return;
        };
        if asked.is_empty() {
            return self.stage_done(now, number, Ok(()));
        }
        let Preemptor { pod, .. } = &preemption.order.preemptor;
        let message = format!(
            "{}: preempting to accommodate a higher priority {}",
            pod.spec.scheduler_name,
            preemption.order.preemptor.kind()
        );
        let writes_generation = self.features.enabled(Feature::PodObservedGenerationTracking);
        self.effects.push(Effect::Evict {
            preemption: number,
            victims: asked.iter().map(|victim| eviction(victim, &message, writes_generation, now)).collect(),
        });
        preemption.asked = asked;
    }

    /// Cancels the binding of a victim; `false` if it can no longer be cancelled.
    fn cancel_victim(&mut self, now: Now, number: u64, victim: &Arc<PodInfo>) -> bool {
        let Some(order) = self.preemptions.get(number).map(|preemption| &preemption.order) else {
            return false;
        };
        let plugin = order.plugin.clone();
        match self.bindings.get(&victim.uid).map(|binding| &binding.stage) {
            Some(Stage::WaitingOnPermit(_)) => {
                self.note_preempted(now, number, victim, " (in kube-scheduler memory).");
                self.permit_rejected(now, &victim.uid, Status::error("preempted").by(plugin));
                true
            }
            Some(Stage::PreBinding { .. }) => {
                let message = format!("preempted by {plugin}");
                self.note_preempted(now, number, victim, " (in kube-scheduler memory).");
                self.cancel_binding(&victim.uid, Status::error(message));
                true
            }
            Some(Stage::Binding | Stage::Uncertain(_)) | None => false,
        }
    }

    /// The API server's answers to deletions.
    pub(crate) fn evicted(&mut self, now: Now, number: u64, outcomes: &[Eviction]) {
        let Some(preemption) = self.preemptions.get_mut(number) else {
            return;
        };
        let mut result = Ok(());
        for (victim, outcome) in std::mem::take(&mut preemption.asked).iter().zip(outcomes) {
            match outcome {
                Eviction::Deleted => self.note_preempted(now, number, victim, ""),
                Eviction::Gone => {}
                Eviction::Failed(message) => {
                    self.anomaly(&format!("cannot preempt pod {}: {message}", victim.key()));
                    result = result.and_then(|()| Err(message.clone()));
                }
            }
        }
        self.stage_done(now, number, result);
    }

    fn stage_done(&mut self, now: Now, number: u64, result: Result<(), String>) {
        let Some(preemption) = self.preemptions.get_mut(number) else {
            return;
        };
        match preemption.last.take().filter(|_| result.is_ok()) {
            Some(last) => self.evict_last(now, number, last),
            None => self.preempted(now, number, result),
        }
    }

    /// Deletes the last victim. From here on, its leaving releases the preemptor.
    fn evict_last(&mut self, now: Now, number: u64, last: Arc<PodInfo>) {
        let cancels = match self.bindings.get(&last.uid).map(|binding| &binding.stage) {
            Some(stage) => matches!(stage, Stage::WaitingOnPermit(_) | Stage::PreBinding { .. }),
            None => false,
        };
        if cancels || self.is_leaving(&last.uid) {
            self.preemptions.release(number);
        }
        if let Some(preemption) = self.preemptions.get_mut(number) {
            preemption.cancels_last = cancels;
        }
        self.evict(now, number, vec![last]);
    }

    /// Whether a pod has left its node or terminates.
    fn is_leaving(&self, uid: &Uid) -> bool {
        match self.cache.pod(uid) {
            None => true,
            Some(pod) => self.known(pod).unwrap_or(pod).terminating,
        }
    }

    /// A pod leaves its node.
    pub(crate) fn pod_leaves(&mut self, uid: &Uid) {
        if self.preemptions.len() > 0 {
            self.preemptions.pod_leaves(uid);
        }
    }

    /// A preemption is complete or has failed.
    fn preempted(&mut self, now: Now, number: u64, result: Result<(), String>) {
        let is_asynchronous =
            self.preemptions.get(number).is_some_and(|preemption| preemption.order.asynchronous);
        if !is_asynchronous && result.is_ok() {
            self.clear_nominations(number);
        }
        let Some(Preemption { order, began, cancels_last, .. }) = self.preemptions.end(number) else {
            return;
        };
        let Order { preemptor, victims, asynchronous, .. } = order;
        let took = Timespan { from: began, to: self.observer.time_point() };
        let failed = result.is_err();
        self.observer.observe(Observation::Preempted { preemptor: &preemptor, asynchronous, failed, took });
        if !asynchronous {
            return self.end_held_attempt(now, result);
        }
        if result.is_err() {
            self.requeue_preemptor(now, &preemptor);
        } else if cancels_last || self.place_of(&preemptor) == Some(Place::Gated) {
            if preemptor.group.is_some() {
                self.retry_group(now, &preemptor);
            }
            self.preemptions.left_behind.push(StrandedPreemptor {
                preemptor,
                victims: victims.pods,
                cancels_last,
            });
            self.requeue_left_behind(now);
        }
    }

    /// Lets a group that PreEnqueue holds be tried after its backoff. No event would let it take
    /// other room while its victims terminate.
    fn retry_group(&mut self, now: Now, preemptor: &Preemptor) {
        let pods: Vec<_> = preemptor.pods().map(|pod| pod.uid.clone()).collect();
        self.with_queue(now, |queue, cx| {
            for pod in &pods {
                queue.retry_after_backoff(cx, pod);
            }
        });
    }

    /// The place of a preemptor in the queue. Of a group, that of a pod that is queued with it:
    /// others can be on nodes, in flight, or aside.
    fn place_of(&self, preemptor: &Preemptor) -> Option<Place> {
        let place = |pod: &Arc<PodInfo>| self.known(pod).and_then(|pod| self.queue.place(&pod.uid));
        let is_queued = |place: &Place| !matches!(place, Place::InFlight | Place::Aside);
        let mut places = preemptor.pods().filter_map(place);
        let first = places.next()?;
        if is_queued(&first) { Some(first) } else { Some(places.find(is_queued).unwrap_or(first)) }
    }

    /// Requeues a preemptor. The pods of a tree can meanwhile be in several ones.
    fn requeue_preemptor(&mut self, now: Now, preemptor: &Preemptor) {
        let pods: Vec<_> = preemptor.pods().filter_map(|pod| self.known(pod).cloned()).collect();
        self.with_queue(now, |queue, cx| queue.activate_all(cx, &pods));
    }

    /// Requeues preemptors that were still held when their last victim left, and those whose last
    /// victim's binding was cancelled. If the plugins that rejected them ignore such events,
    /// nothing else would wake them. Groups do not wait for the end of their backoff.
    pub(crate) fn requeue_left_behind(&mut self, now: Now) {
        if self.preemptions.left_behind.is_empty() {
            return;
        }
        for waiting in std::mem::take(&mut self.preemptions.left_behind) {
            let place = self.place_of(&waiting.preemptor);
            let waits = match place {
                Some(Place::Gated) => true,
                Some(Place::Backoff) => waiting.cancels_last || waiting.preemptor.group.is_some(),
                Some(_) => waiting.cancels_last,
                None => false,
            };
            if !waits {
                continue;
            }
            if waiting.victims.iter().all(|victim| self.cache.pod(&victim.uid).is_none()) {
                self.requeue_preemptor(now, &waiting.preemptor);
            } else {
                self.preemptions.left_behind.push(waiting);
            }
        }
    }

    fn note_preempted(&mut self, now: Now, number: u64, victim: &PodInfo, suffix: &str) {
        let Some(Preemption { order, .. }) = self.preemptions.get(number) else {
            return;
        };
        let Order { preemptor, node, .. } = order;
        let (kind, uid) = (preemptor.kind(), preemptor.uid());
        let note = format!("Preempted by {kind} {uid} on node {node}{suffix}");
        let reporter = Arc::clone(&preemptor.pod.spec.scheduler_name);
        // Upstream sets a pod that preempts as the related object, too, but its reference is no API
        // object and is dropped.
        let related = preemptor.group.as_ref().map(|group| GroupReference {
            kind: group.key.kind,
            namespace: group.key.namespace().into(),
            name: group.key.name().into(),
            uid: group.uid.clone(),
            resource_version: Arc::clone(&group.resource_version),
        });
        let mut event = PodEvent::about(victim, EventType::Normal, "Preempted", "Preempting", note);
        (event.scheduler_name, event.related) = (reporter, related);
        let by = preemptor.pod.key();
        self.effects.push(Effect::RecordEvent(event));
        self.note(now, victim, Happening::PreemptedBy { namespace: &by.namespace, name: &by.name });
    }
}

/// Attempts that wait for their preemption, as without `SchedulerAsyncPreemption`. No other pod is
/// tried meanwhile: it could take the freed resources.
impl Scheduler {
    /// Ends a failed attempt, unless it must wait for its preemption.
    pub(crate) fn fail_or_hold(&mut self, now: Now, queued: QueuedPod, failure: Failure) {
        if self.preemptions.is_any_synchronous() {
            self.preemptions.held = Some(HeldAttempt { queued, failure });
        } else {
            self.fail(now, queued, failure);
        }
    }

    fn end_held_attempt(&mut self, now: Now, result: Result<(), String>) {
        let Some(HeldAttempt { queued, mut failure }) = self.preemptions.held.take() else {
            return;
        };
        if let (Err(message), FailureKind::Fit(error)) = (result, &mut failure.kind) {
            error.diagnosis.post_filter_message = format!("preemption: {message}");
            failure.nomination = Nomination::Keep;
        }
        self.fail(now, queued, failure);
    }
}

/// The request that deletes a victim.
fn eviction(victim: &PodInfo, message: &str, writes_generation: bool, now: Now) -> VictimEviction {
    const REASON: &str = "PreemptionByScheduler";
    let known = victim.status.disruption_target.as_ref();
    let is_set = known.is_some_and(|known| *known.reason == *REASON && *known.message == *message);
    let condition = PodCondition {
        status: "True".into(),
        reason: REASON.into(),
        message: message.into(),
        observed_generation: writes_generation.then_some(victim.generation),
        // A condition that is already true keeps its transition time.
        last_transition: known.is_none().then(|| now.wall.floor_to_second()),
    };
    VictimEviction { pod: victim.key(), uid: victim.uid.clone(), condition: (!is_set).then_some(condition) }
}
