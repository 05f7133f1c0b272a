//! One attempt to schedule a pod: the scheduling cycle, from Pop to Permit.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;
use supercargo_framework::context::Command;
use supercargo_framework::plugin::{Nomination, Permit, PreFlight};
use supercargo_framework::{Context, CycleState, Now, PodInfo, Status, Text};

use crate::bindings::{Binding, MAX_PERMIT_WAIT, PermitWait, Stage};
use crate::cycle::{Cycle, CycleError, Found, Sampling};
use crate::diagnosis::FitError;
use crate::effect::{Effect, EventType, PodEvent, PreBindWork, StatusPatch};
use crate::extender::Calls;
use crate::failure::{Failure, FailureKind};
use crate::profile::Named;
use crate::queue::QueuedPod;
use crate::scheduler::Scheduler;

/// A node for the pod, and what the plugins remember.
struct Chosen {
    node: Arc<str>,
    state: CycleState,
}

/// What Permit left to wait for: plugins and how long each holds the pod at most.
type Waits = SmallVec<[(Text, Duration); 2]>;

/// PreBind's work, in groups.
type Work = Vec<Vec<PreBindWork>>;

impl Scheduler {
    /// Takes the next pod from the queue and tries to find a node for it. `false` when there was nothing to take.
    pub fn schedule_one(&mut self, now: Now, calls: &mut dyn Calls) -> bool {
        if self.draining {
            return false;
        }
        let Some(mut queued) = self.with_queue(now, super::queue::SchedulingQueue::pop) else {
            return false;
        };
        // The informer may have brought a newer version while the pod was in flight before.
        if let Some(known) = self
            .pending
            .get(&queued.pod.key())
            .filter(|known| known.uid == queued.pod.uid)
        {
            queued.pod = Arc::clone(known);
        }
        if self.skips(&queued) {
            self.queue.done(queued.uid());
            return true;
        }
        let attempt = catch_unwind(AssertUnwindSafe(|| self.attempt(now, &queued, calls)));
        match attempt {
            Ok(Ok((chosen, waits, work))) => self.start_binding(now, queued, chosen, waits, work),
            Ok(Err(failure)) => self.fail(now, queued, failure),
            Err(panic) => {
                let failure = self.failure_of_panic(panic.as_ref());
                // Whatever was assumed or set aside before the panic is undone.
                self.undo(now, &queued);
                self.fail(now, queued, failure);
            }
        }
        true
    }

    /// A pod that goes away needs no node, and one that is assumed has one.
    fn skips(&mut self, queued: &QueuedPod) -> bool {
        let pod = &queued.pod;
        if pod.terminating {
            let note = format!("skip schedule deleting pod: {}", pod.key());
            self.record_event(pod, EventType::Warning, "FailedScheduling", "Scheduling", note);
            return true;
        }
        self.cache.node_of(&pod.uid).is_some()
    }

    fn attempt(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        calls: &mut dyn Calls,
    ) -> Result<(Chosen, Waits, Work), Failure> {
        let mut state = CycleState::new();
        let node = self.choose_node(now, queued, &mut state, calls)?;
        if let Err(error) = self.cache.assume(Arc::clone(&queued.pod), Arc::clone(&node)) {
            return Err(Failure::internal(error.to_string()));
        }
        self.queue.nominator.remove(queued.uid());
        let (reserved, commands) = self.reserve_and_permit(queued, &node, &mut state);
        let outcome = reserved.map(|(waits, work)| {
            (
                Chosen {
                    node: Arc::clone(&node),
                    state: CycleState::new(),
                },
                waits,
                work,
            )
        });
        let outcome = match outcome {
            Ok((chosen, waits, work)) => Ok((Chosen { state, ..chosen }, waits, work)),
            Err(failure) => {
                self.unreserve(now, queued, &node, &mut state);
                self.forget(queued.uid());
                Err(failure)
            }
        };
        self.execute(now, commands);
        outcome
    }

    /// Finds the best node, or lets PostFilter look for a way out.
    fn choose_node(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        state: &mut CycleState,
        calls: &mut dyn Calls,
    ) -> Result<Arc<str>, Failure> {
        self.cache.refreshed();
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting());
        let profile = self.profiles.get(queued.profile);
        let percentage = profile
            .percentage_of_nodes_to_score
            .or(self.percentage_of_nodes_to_score);
        let extended = self.extenders.iter().any(|extender| extender.filters);
        let sampling = percentage.or(extended.then_some(0));
        let cycle = Cycle {
            cx: &cx,
            profile,
            pod: &queued.pod,
            queue: &self.queue,
            extenders: &self.extenders,
            sampling: sampling.map(|percentage| Sampling {
                percentage,
                start: self.next_start_node,
            }),
            running: &self.running,
        };
        let result = match cycle.run(state, calls) {
            Ok(Found { node, processed }) => Ok((Arc::clone(self.cache.node_at(node).name()), processed)),
            Err(CycleError::NoNodes) => Err(Failure::no_nodes()),
            Err(CycleError::Internal(message)) => Err(Failure::internal(message)),
            Err(CycleError::Fit(mut error)) => {
                let nomination = post_filter(&cycle, state, &mut error);
                Err(Failure {
                    kind: FailureKind::Fit(error),
                    nomination,
                })
            }
        };
        let commands = cx.take_commands();
        let nodes = self.cache.nodes().len();
        if let (Ok((_, processed)), Some(_)) = (&result, sampling) {
            self.next_start_node = (self.next_start_node + processed) % nodes.max(1);
        }
        self.execute(now, commands);
        result.map(|(node, _)| node)
    }

    /// Reserve, Permit and PreBindPreFlight.
    fn reserve_and_permit(
        &self,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) -> (Result<(Waits, Work), Failure>, Vec<Command>) {
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting());
        let reserved = self.reserve(&cx, queued, node, state);
        let permitted = reserved.and_then(|()| self.permit(&cx, queued, node, state));
        let result = permitted.and_then(|waits| Ok((waits, self.pre_flight(&cx, queued, node, state)?)));
        (result, cx.take_commands())
    }

    fn reserve(
        &self,
        cx: &Context<'_>,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) -> Result<(), Failure> {
        for Named { name, plugin } in &self.profiles.get(queued.profile).reserve {
            self.running.set("Reserve", name);
            let status = plugin.reserve(cx, state, &queued.pod, node);
            if !status.is_success() {
                return Err(self.late_failure(node, status, name, "Reserve"));
            }
        }
        Ok(())
    }

    fn permit(
        &self,
        cx: &Context<'_>,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) -> Result<Waits, Failure> {
        let mut waits = Waits::new();
        for Named { name, plugin } in &self.profiles.get(queued.profile).permit {
            self.running.set("Permit", name);
            match plugin.permit(cx, state, &queued.pod, node) {
                Permit::Allow => {}
                Permit::Wait(timeout) => waits.push(((*name).into(), timeout.min(MAX_PERMIT_WAIT))),
                Permit::Reject(status) => return Err(self.late_failure(node, status, name, "Permit")),
            }
        }
        Ok(waits)
    }

    /// Collects PreBind's work: neighbours that may run side by side form a group.
    fn pre_flight(
        &self,
        cx: &Context<'_>,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &CycleState,
    ) -> Result<Work, Failure> {
        let mut groups: Work = Vec::new();
        let mut joins_last = false;
        for Named { name, plugin } in &self.profiles.get(queued.profile).pre_bind {
            self.running.set("PreBindPreFlight", name);
            match plugin.pre_flight(cx, state, &queued.pod, node) {
                PreFlight::Skip => {}
                PreFlight::Fail(status) => {
                    return Err(self.late_failure(node, status, name, "PreBindPreFlight"));
                }
                PreFlight::Work { allow_parallel, work } => {
                    let work = PreBindWork {
                        name: (*name).into(),
                        plugin: Arc::clone(plugin),
                        work,
                    };
                    match groups.last_mut() {
                        Some(group) if joins_last && allow_parallel => group.push(work),
                        _ => groups.push(vec![work]),
                    }
                    joins_last = allow_parallel;
                }
            }
        }
        Ok(groups)
    }

    /// A plugin turned down the node that was chosen.
    fn late_failure(&self, node: &Arc<str>, status: Status, plugin: &'static str, point: &str) -> Failure {
        let kind = if status.is_rejected() {
            let index = self.cache.nodes().index_of(node);
            FailureKind::Fit(Box::new(FitError::of_one_node(index, status.by(plugin))))
        } else {
            FailureKind::Internal(format!("running {point} plugin {plugin:?}: {}", status.message()))
        };
        Failure {
            kind,
            nomination: Nomination::Override(None),
        }
    }

    /// Gives back what Reserve plugins have set aside, the last one first.
    pub(crate) fn unreserve(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) {
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting());
        for Named { name, plugin } in self.profiles.get(queued.profile).reserve.iter().rev() {
            self.running.set("Unreserve", name);
            plugin.unreserve(&cx, state, &queued.pod, node);
        }
        let commands = cx.take_commands();
        self.execute(now, commands);
    }

    /// After a panic: the pod is on no node, and no plugin has anything set aside for it.
    fn undo(&mut self, now: Now, queued: &QueuedPod) {
        let Some(node) = self.cache.node_of(queued.uid()).cloned() else {
            return;
        };
        let unreserve = AssertUnwindSafe(|| self.unreserve(now, queued, &node, &mut CycleState::new()));
        if catch_unwind(unreserve).is_err() {
            self.anomaly("a plugin panicked in Unreserve");
        }
        self.forget(queued.uid());
    }

    fn failure_of_panic(&mut self, panic: &(dyn std::any::Any + Send)) -> Failure {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text
            .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("no message");
        let message = match self.running.take() {
            Some((point, plugin)) => format!("plugin {plugin:?} panicked in {point}: {text}"),
            None => format!("the scheduling cycle panicked: {text}"),
        };
        self.anomaly(&message);
        Failure::internal(message)
    }

    fn start_binding(&mut self, now: Now, queued: QueuedPod, chosen: Chosen, waits: Waits, work: Work) {
        let uid = queued.uid().clone();
        let Chosen { node, state } = chosen;
        if !waits.is_empty() || !work.is_empty() {
            self.nominate(&queued.pod, Some(&node));
        }
        let deadline = |timeout: Duration| now.monotonic + timeout;
        let pending = waits
            .into_iter()
            .map(|(plugin, timeout)| (plugin, timeout, deadline(timeout)))
            .collect();
        let wait = PermitWait {
            pending,
            since: now.monotonic,
            work,
        };
        let free = wait.pending.is_empty();
        self.bindings.insert(Binding {
            queued,
            node,
            state,
            stage: Stage::WaitingOnPermit(wait),
        });
        if free {
            self.permitted(now, &uid);
        }
    }

    /// Writes a nominated node into the pod's status, if it is not there.
    fn nominate(&mut self, pod: &Arc<PodInfo>, node: Option<&Arc<str>>) {
        if pod.status.nominated_node_name.as_ref() != node {
            self.effects.push(Effect::PatchPodStatus(StatusPatch {
                pod: pod.key(),
                uid: pod.uid.clone(),
                condition: None,
                nominated_node_name: Some(node.cloned()),
            }));
        }
    }

    pub(crate) fn record_event(
        &mut self,
        pod: &PodInfo,
        kind: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.effects.push(Effect::RecordEvent(PodEvent {
            pod: pod.key(),
            uid: pod.uid.clone(),
            resource_version: Arc::clone(&pod.resource_version),
            scheduler_name: Arc::clone(&pod.spec.scheduler_name),
            kind,
            reason: reason.into(),
            action: action.into(),
            note,
        }));
    }
}

/// Runs PostFilter until a plugin finds a way out; what the others say goes into the error.
fn post_filter(cycle: &Cycle<'_>, state: &CycleState, error: &mut FitError) -> Nomination {
    let mut nomination = Nomination::Keep;
    let mut reasons: Vec<String> = Vec::new();
    for Named { name, plugin } in &cycle.profile.post_filter {
        cycle.running.set("PostFilter", name);
        let statuses = &error.diagnosis.statuses;
        let (answer, status) = plugin.post_filter(cycle.cx, state, cycle.pod, statuses, cycle);
        if answer != Nomination::Keep {
            nomination = answer;
        }
        if status.is_success() {
            reasons.clear();
            break;
        }
        reasons.push(status.message());
        if !status.is_rejected() || status.code() == supercargo_framework::Code::UnschedulableAndUnresolvable
        {
            break;
        }
    }
    error.diagnosis.post_filter_message = reasons.join(", ");
    nomination
}
