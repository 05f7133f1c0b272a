//! Carries out effects at once, in place of the async writers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::binding::{BindOutcome, BoxFuture, ClusterView};
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_framework::{Status, Text, Timestamp, Uid};
use supercargo_plugins::dynamic_resources;
use supercargo_scheduler::{Effect, EventType, Eviction, Input, PodRead, StatusPatch, VictimEviction};

use super::calls::{Calls, Polling, lock};
use super::world::{World, remove, set_condition};
use crate::oracle::answer::Event;
use crate::oracle::history::Reference;

/// A running PreBind of a pod.
struct PreBinding {
    uid: Uid,
    cancelled: Arc<Mutex<bool>>,
    run: BoxFuture<Status>,
}

/// Pods to be deleted, one after the other.
struct Evicting {
    preemption: u64,
    victims: VecDeque<VictimEviction>,
    outcomes: Vec<Eviction>,
    /// Whether the first of them has its condition already.
    received: bool,
}

/// Carries out effects.
pub(super) struct Effects {
    world: Arc<Mutex<World>>,
    calls: Calls,
    pre_bindings: Vec<PreBinding>,
    /// The pending effects in order. Evictions come last, as on upstream's side.
    waiting: VecDeque<Effect>,
    evictions: VecDeque<Evicting>,
    /// The results to be handled.
    ended: Vec<Input>,
    events: Vec<Event>,
    /// Whether several bindings failed at once.
    has_random_order: bool,
    /// The last failure message of each pod.
    failures: BTreeMap<String, String>,
}

impl Effects {
    pub(super) fn new(world: Arc<Mutex<World>>) -> Self {
        Self {
            calls: Calls::new(Arc::clone(&world)),
            world,
            pre_bindings: Vec::new(),
            waiting: VecDeque::new(),
            evictions: VecDeque::new(),
            ended: Vec::new(),
            events: Vec::new(),
            has_random_order: false,
            failures: BTreeMap::new(),
        }
    }

    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub(super) fn take_random_order(&mut self) -> bool {
        std::mem::take(&mut self.has_random_order)
    }

    /// The last failure message of a pod.
    pub(super) fn last_failure(&self, pod: &str) -> String {
        self.failures.get(pod).cloned().unwrap_or_default()
    }

    /// Advances the clock. Returns whether a sleep of a plugin has ended.
    pub(super) fn pass(&mut self, now: Duration) -> bool {
        self.calls.pass(now)
    }

    /// Advances by a second.
    pub(super) fn tick(&mut self, now: Duration, cluster: &dyn ClusterView) {
        self.calls.tick(now, cluster);
    }

    /// Enqueues effects.
    pub(super) fn take(&mut self, effect: Effect) {
        match effect {
            Effect::Evict { preemption, victims } => self.evictions.push_back(Evicting {
                preemption,
                victims: victims.into(),
                outcomes: Vec::new(),
                received: false,
            }),
            effect => self.waiting.push_back(effect),
        }
    }

    /// Carries out the next effect. Returns `false` if there is none.
    pub(super) fn carry_out_one(&mut self, now: Timestamp) -> bool {
        if let Some(effect) = self.waiting.pop_front() {
            self.carry_out(effect);
            return true;
        }
        self.evict_one(now)
    }

    /// Sets the condition of a victim, or deletes it.
    fn evict_one(&mut self, now: Timestamp) -> bool {
        let Some(mut evicting) = self.evictions.pop_front() else { return false };
        let Some(victim) = evicting.victims.front() else {
            let Evicting { preemption, outcomes, .. } = evicting;
            self.ended.push(Input::Evicted { preemption, outcomes });
            return false;
        };
        let pod = Reference::pod(&victim.pod.namespace, &victim.pod.name);
        let mut world = lock(&self.world);
        let outcome = if world.pod_of(&pod, &victim.uid.text()).is_none() {
            Some(Eviction::Gone)
        } else if let Some(new) = victim.condition.as_ref().filter(|_| !evicting.received) {
            world.write(&pod, |pod| set_condition(pod, condition("DisruptionTarget", new)));
            None
        } else {
            world.evict(&pod, moment(now));
            Some(Eviction::Deleted)
        };
        drop(world);
        evicting.received = outcome.is_none();
        if let Some(outcome) = outcome {
            evicting.outcomes.push(outcome);
            evicting.victims.pop_front();
        }
        self.evictions.push_front(evicting);
        true
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::StartPreBind { pod, groups, .. } => {
                let cancelled = Arc::new(Mutex::new(false));
                let (calls, is_cancelled) = (self.calls.clone(), Arc::clone(&cancelled));
                let run = async move {
                    // Plugins of a group may run at the same time. Upstream's side has one worker.
                    for work in groups.into_iter().flatten() {
                        let polls_itself = *work.name == *dynamic_resources::NAME;
                        let polling = if polls_itself { Polling::AtStart } else { Polling::EverySecond };
                        let cx = calls.context(polling, Arc::clone(&is_cancelled));
                        let status = work.plugin.pre_bind(cx, work.work).await.by(work.name);
                        if !status.is_success() {
                            return status;
                        }
                    }
                    Status::success()
                };
                self.pre_bindings.push(PreBinding { uid: pod.uid.clone(), cancelled, run: Box::pin(run) });
            }
            Effect::CancelPreBind(uid) => {
                for binding in self.pre_bindings.iter().filter(|binding| binding.uid == uid) {
                    *lock(&binding.cancelled) = true;
                }
            }
            Effect::Bind { pod, node, binders, .. } => {
                let cx = self.calls.context(Polling::EverySecond, Arc::default());
                let mut outcome = BindOutcome::Skip;
                let mut by = Text::EMPTY;
                for binder in &*binders {
                    let bind = binder.plugin.bind(cx.clone(), Arc::clone(&pod), Arc::clone(&node));
                    outcome = poll_once(bind).unwrap_or(BindOutcome::Skip);
                    if outcome != BindOutcome::Skip {
                        by = binder.name.clone();
                        break;
                    }
                }
                self.ended.push(Input::Bound { pod: pod.uid.clone(), by, outcome });
            }
            Effect::ReadPod { pod, uid } => {
                let world = lock(&self.world);
                let found = world.pod_of(&Reference::pod(&pod.namespace, &pod.name), &uid.text());
                let read = found.map_or(PodRead::Gone, |pod| {
                    PodRead::Exists(pod["spec"]["nodeName"].as_str().map(Into::into))
                });
                self.ended.push(Input::PodRead { pod: uid, read });
            }
            Effect::Write { call, then, pod, retries, .. } => {
                let mut world = lock(&self.world);
                let result =
                    world.call(call).and_then(|_| then.map_or(Ok(Value::Null), |then| world.call(then)));
                drop(world);
                let retry = retries && result.is_err();
                self.ended.extend(pod.map(|pod| Input::WriteEnded { pod, retry }));
            }
            // Evictions are stored separately.
            Effect::Evict { .. } => {}
            Effect::PatchGroupStatus(patch) => {
                lock(&self.world).patch_group(&patch.group, &patch.uid.text(), || {
                    condition("PodGroupInitiallyScheduled", &patch.condition)
                });
            }
            Effect::PatchPodStatus(patch) => patch_status(&mut lock(&self.world), &patch),
            Effect::RecordEvent(event) => {
                if event.reason == *"FailedScheduling" {
                    self.failures.insert(event.pod.to_string(), event.note.clone());
                }
                self.events.push(Event {
                    pod: event.pod.to_string(),
                    kind: match event.kind {
                        EventType::Normal => "Normal".to_owned(),
                        EventType::Warning => "Warning".to_owned(),
                    },
                    reason: event.reason.to_string(),
                    action: event.action.to_string(),
                    note: event.note,
                });
            }
        }
    }

    /// Advances running bindings and returns their results.
    pub(super) fn poll(&mut self, cluster: &dyn ClusterView) -> Vec<Input> {
        let mut cx = Context::from_waker(Waker::noop());
        let ended = &mut self.ended;
        loop {
            self.pre_bindings.retain_mut(|binding| match binding.run.as_mut().poll(&mut cx) {
                Poll::Pending => true,
                Poll::Ready(status) => {
                    ended.push(Input::PreBound { pod: binding.uid.clone(), status });
                    false
                }
            });
            // A wait looks at what has just been written.
            if !lock(&self.world).changes.is_empty() || !self.calls.begin_waits(cluster) {
                break;
            }
        }
        ended.extend(self.calls.take_reports().into_iter().map(Input::BindingReport));
        let failed = ended.iter().filter(|input| is_failed_pre_bind(input));
        self.has_random_order |= failed.count() > 1;
        std::mem::take(ended)
    }
}

fn is_failed_pre_bind(input: &Input) -> bool {
    matches!(input, Input::PreBound { status, .. } if !status.is_success())
}

fn poll_once<T>(mut future: BoxFuture<T>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn condition(kind: &str, condition: &PodCondition) -> Value {
    let transition = condition.last_transition.map(rfc3339);
    json!({
        "type": kind,
        "status": &*condition.status,
        "reason": &*condition.reason,
        "message": &*condition.message,
        "observedGeneration": condition.observed_generation,
        "lastTransitionTime": transition,
    })
}

/// Patches a pod's status, unless the pod is deleted or replaced.
fn patch_status(world: &mut World, patch: &StatusPatch) {
    let pod = Reference::pod(&patch.pod.namespace, &patch.pod.name);
    if world.pod_of(&pod, &patch.uid.text()).is_none() {
        return;
    }
    world.write(&pod, |pod| {
        if let Some(patched) = &patch.condition {
            set_condition(pod, condition("PodScheduled", patched));
        }
        match &patch.nomination {
            Nomination::Keep => {}
            Nomination::Override(None) => remove(pod, "status", "nominatedNodeName"),
            Nomination::Override(Some(node)) => pod["status"]["nominatedNodeName"] = Value::from(&**node),
        }
    });
}

fn rfc3339(at: Timestamp) -> String {
    moment(at).to_string()
}

fn moment(at: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_microsecond(at.0).unwrap_or_default()
}
