//! One attempt to schedule a pod: the scheduling cycle, from Pop to Permit.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use supercargo_framework::context::Command;
use supercargo_framework::plugin::{Nomination, Permit};
use supercargo_framework::{
    Code, Context, CycleState, NodeIndex, NodeInfo, Now, PodInfo, Status, Text, panic_text,
};

use crate::bindings::{Binding, MAX_PERMIT_WAIT, Waits};
use crate::dry_run::DryRun;
use crate::effect::{Effect, EventType, PodEvent};
use crate::scheduler::{Scheduler, context};
use supercargo_evaluation::cycle::Cycle;
use supercargo_evaluation::extender::Calls;
use supercargo_evaluation::extender_calls::Extenders;
use supercargo_evaluation::sampling::Sampling;
use supercargo_evaluation::tables::{CycleInput, TableAnswer};
use supercargo_queue::{Popped, QueuedPod, SchedulingQueue};
use supercargo_runtime::diagnosis::FitError;
use supercargo_runtime::failure::{Failure, FailureKind};
use supercargo_runtime::observer::{Observation, Point, Timespan};
use supercargo_runtime::panic_guard::panic_report;
use supercargo_runtime::phase_timer::PhaseTimer;
use supercargo_runtime::plugin_calls::PluginCalls;
use supercargo_runtime::profile::{Named, Profile};

/// What an attempt is part of.
#[derive(Clone, Copy)]
pub(crate) enum Scope<'a> {
    /// A pod alone: PostFilter runs if no node fits.
    Pod,
    /// A member of a group, on these nodes, or all.
    Member(Option<&'a [NodeIndex]>),
}

impl Scheduler {
    /// Takes the next pod from the queue and tries to find a node for it. `false` if the queue has
    /// none to try.
    pub fn schedule_one(&mut self, now: Now, calls: &mut dyn Calls) -> bool {
        if self.is_held_up() {
            return false;
        }
        let mut queued = match self.with_queue(now, SchedulingQueue::pop) {
            Some(Popped::Pod(queued)) => queued,
            Some(Popped::Group(group)) => {
                self.schedule_group(now, group, calls);
                return true;
            }
            None => return false,
        };
        queued.began = self.observer.time_point();
        if let Some(panic) = self.plugin_panic.take() {
            self.fail(now, queued, FailureKind::Internal(panic).into());
        } else if self.skips(&queued) {
            self.queue.done(queued.uid());
        } else {
            self.schedule(now, queued, calls);
        }
        true
    }

    /// Whether to skip the pod: it terminates, or is on a node already.
    pub(crate) fn skips(&mut self, queued: &QueuedPod) -> bool {
        let pod = &queued.pod;
        if pod.terminating {
            let note = format!("skip schedule deleting pod: {}", pod.key());
            self.record_event(pod, EventType::Warning, "FailedScheduling", "Scheduling", note);
            return true;
        }
        self.cache.node_of(&pod.uid).is_some()
    }

    fn schedule(&mut self, now: Now, queued: QueuedPod, calls: &mut dyn Calls) {
        let mut state = CycleState::new();
        match self.catch_panic(|this| this.attempt(now, &queued, &mut state, calls)) {
            Ok((node, waits)) => {
                let chosen_at = self.cache.nodes().get(&node).map_or(0, NodeInfo::generation);
                self.begin_binding(now, Binding::new(now, queued, (node, chosen_at), state, waits));
            }
            Err(failure) => {
                self.undo(now, &queued, &mut state);
                self.fail_or_hold(now, queued, failure);
            }
        }
    }

    /// A failure after a node was chosen, or a panic at any point, leaves no trace.
    pub(crate) fn undo(&mut self, now: Now, queued: &QueuedPod, state: &mut CycleState) {
        if let Some(node) = self.cache.node_of(queued.uid()).cloned() {
            self.unreserve(now, queued, &node, state);
            self.forget(queued.uid());
        }
    }

    /// Assumes the pod on a node, where it no longer needs its nomination.
    pub(crate) fn assume(&mut self, queued: &QueuedPod, node: &Arc<str>) -> Result<(), FailureKind> {
        let assumed = self.cache.assume(Arc::clone(&queued.pod), Arc::clone(node));
        assumed.map_err(|error| FailureKind::Internal(error.to_string()))?;
        self.settle_member(&queued.pod);
        self.queue.nominator.remove(queued.uid());
        Ok(())
    }

    /// Runs a part of the attempt. A panic in it becomes a failure that names the plugin.
    pub(crate) fn catch_panic<R>(
        &mut self,
        part: impl FnOnce(&mut Self) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        self.current_plugin.take();
        catch_unwind(AssertUnwindSafe(|| part(self))).unwrap_or_else(|panic| {
            let message = self.blame_for_panic(&*panic);
            self.anomaly(&message);
            Err(FailureKind::Internal(message).into())
        })
    }

    fn blame_for_panic(&self, panic: &(dyn Any + Send)) -> String {
        match self.current_plugin.take() {
            Some((point, plugin)) => panic_report(point, plugin, panic),
            None => format!("the scheduling cycle panicked: {}", panic_text(panic)),
        }
    }

    fn attempt(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        state: &mut CycleState,
        calls: &mut dyn Calls,
    ) -> Result<(Arc<str>, Waits), Failure> {
        let node = self.choose_node(now, queued, state, calls, Scope::Pod)?;
        self.assume(queued, &node)?;
        let (permitted, commands) = self.reserve_and_permit(now, queued, &node, state);
        self.execute(now, commands);
        permitted.map(|waits| (node, waits))
    }

    /// Finds the best node.
    pub(crate) fn choose_node(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        state: &mut CycleState,
        calls: &mut dyn Calls,
        scope: Scope<'_>,
    ) -> Result<Arc<str>, Failure> {
        self.cache.refreshed();
        let cx = context(&self.cache, &self.objects, &self.bindings, now);
        let profile = self.profiles.get(queued.profile);
        let sampling = self.sampling(profile);
        let watches = self.observer.watches_plugins();
        let timer = PhaseTimer::since(&*self.observer, queued.profile, &queued.pod, queued.began, watches);
        let plugins = PluginCalls::new(timer, &self.current_plugin);
        let cycle = Cycle {
            cx: &cx,
            profile,
            pod: &queued.pod,
            queue: &self.queue,
            extenders: Extenders::of_pod(&self.extenders, &cx, &queued.pod, &plugins, calls),
            sampling,
            candidates: if let Scope::Member(nodes) = scope { nodes } else { None },
            plugins: &plugins,
            evaluated: Cell::default(),
        };
        let nominated = cycle.nominated_nodes();
        let answer = self.tables.as_mut().filter(|_| cycle.can_use_tables()).and_then(|tables| {
            let tracking = context(&self.cache, &self.objects, &self.bindings, now).tracking();
            let candidates = cycle.candidates;
            let input = CycleInput { cx: &tracking, cache: &self.cache, calls: &plugins, candidates };
            let mut verdict = |state: &CycleState, index| cycle.verdict(state, index);
            let profile = (queued.profile, profile);
            tables.answer(&input, profile, &queued.pod, &nominated, &mut verdict, state)
        });
        #[cfg(test)]
        if let (Some(comparison), Some(answer), Some(tables)) = (&mut self.comparison, &answer, &self.tables)
        {
            comparison.compare(&cycle, answer, tables, queued.profile);
        }
        let (found, passed) = match answer {
            Some(TableAnswer { found, evaluated }) => {
                cycle.evaluated.set(evaluated);
                (found.map_err(|diagnosis| FailureKind::no_fit(cycle.candidates().len(), *diagnosis)), 0)
            }
            None => cycle.run(state),
        };
        let result = match found {
            Ok(node) => Ok(Arc::clone(self.cache.node_at(node).name())),
            Err(FailureKind::Fit(mut error)) if matches!(scope, Scope::Pod) => {
                let nomination = post_filter(&cycle, state, &mut error);
                Err(Failure { kind: FailureKind::Fit(error), nomination })
            }
            // PodGroupPostFilter decides about the nomination of a member.
            Err(kind @ FailureKind::Fit(_)) => Err(Failure { kind, nomination: Nomination::Keep }),
            Err(kind) => Err(kind.into()),
        };
        let evaluated = cycle.evaluated.get();
        drop(cycle);
        let took = Timespan { from: queued.began, to: self.observer.time_point() };
        self.observer.observe(Observation::Algorithm(took));
        self.observer.observe(Observation::Evaluated { profile: queued.profile.0, plugins: evaluated });
        let commands = cx.take_commands();
        if sampling.is_some() {
            let start = self.next_start_node + passed;
            let nodes = match scope {
                Scope::Member(Some(nodes)) => nodes.len(),
                _ => self.cache.nodes().len(),
            };
            self.next_start_node = start.checked_rem(nodes).unwrap_or(0);
        }
        self.execute(now, commands);
        result
    }

    /// Whether the cycle filters only a sample of the nodes.
    pub(crate) fn sampling(&self, profile: &Profile) -> Option<Sampling> {
        let extended = self.extenders.iter().any(|extender| extender.filters);
        let scores = !profile.score.is_empty() || self.extenders.iter().any(|e| e.weight.is_some());
        let takes_first = !extended && !scores;
        let configured = profile.percentage_of_nodes_to_score.or(self.percentage_of_nodes_to_score);
        let percentage = configured.or((extended || takes_first).then_some(0))?;
        Some(Sampling { percentage, start: self.next_start_node, takes_first })
    }

    /// Runs Reserve.
    pub(crate) fn reserve_only(
        &self,
        now: Now,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) -> (Result<(), Failure>, Vec<Command>) {
        let cx = self.context(now);
        let reserved = self.reserve(&cx, queued, node, state, &self.plugin_calls(queued));
        (reserved.map_err(Failure::from), cx.take_commands())
    }

    /// Runs Reserve and Permit.
    pub(crate) fn reserve_and_permit(
        &self,
        now: Now,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) -> (Result<Waits, Failure>, Vec<Command>) {
        let cx = self.context(now);
        let plugins = self.plugin_calls(queued);
        let reserved = self.reserve(&cx, queued, node, state, &plugins);
        let permitted = reserved.and_then(|()| self.permit(&cx, queued, node, state, &plugins));
        (permitted.map_err(Failure::from), cx.take_commands())
    }

    fn reserve(
        &self,
        cx: &Context<'_>,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
        plugins: &PluginCalls<'_>,
    ) -> Result<(), FailureKind> {
        for Named { name, plugin } in &self.profiles.get(queued.profile).reserve {
            let call = || plugin.reserve(cx, state, &queued.pod, node);
            let status = plugins.call(Point::Reserve, name, call, Status::code);
            if !status.is_success() {
                plugins.timer.point(Point::Reserve, status.code());
                return Err(self.rejected(node, status, name, Point::Reserve));
            }
        }
        plugins.timer.point(Point::Reserve, Code::Success);
        Ok(())
    }

    fn permit(
        &self,
        cx: &Context<'_>,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
        plugins: &PluginCalls<'_>,
    ) -> Result<Waits, FailureKind> {
        let mut waits = Waits::new();
        for Named { name, plugin } in &self.profiles.get(queued.profile).permit {
            let call = || plugin.permit(cx, state, &queued.pod, node);
            match plugins.call(Point::Permit, name, call, permit_code) {
                Permit::Allow => {}
                Permit::Wait(timeout) => waits.push(((*name).into(), timeout.min(MAX_PERMIT_WAIT))),
                Permit::Reject(status) => {
                    plugins.timer.point(Point::Permit, status.code());
                    return Err(self.rejected(node, status, name, Point::Permit));
                }
            }
        }
        plugins.timer.point(Point::Permit, if waits.is_empty() { Code::Success } else { Code::Wait });
        Ok(waits)
    }

    /// A plugin rejects the chosen node, or fails.
    fn rejected(&self, node: &Arc<str>, status: Status, plugin: &'static str, point: Point) -> FailureKind {
        if status.is_rejected() {
            self.rejected_node(node, status.by(plugin))
        } else {
            self.observer.observe(Observation::PluginFailed { plugin, point });
            let point = point.as_str();
            FailureKind::Internal(format!("running {point} plugin {plugin:?}: {}", status.message()))
        }
    }

    /// The failure for a chosen node that is rejected.
    pub(crate) fn rejected_node(&self, node: &Arc<str>, status: Status) -> FailureKind {
        let index = self.cache.nodes().index_of(node);
        FailureKind::Fit(Box::new(FitError::of_one_node(index, status)))
    }

    /// Runs Unreserve, the last plugin first. A panic in one plugin does not skip the others.
    pub(crate) fn unreserve(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) {
        let commands = self.unreserve_only(now, queued, node, state);
        self.execute(now, commands);
    }

    /// Runs Unreserve and returns its commands.
    pub(crate) fn unreserve_only(
        &mut self,
        now: Now,
        queued: &QueuedPod,
        node: &Arc<str>,
        state: &mut CycleState,
    ) -> Vec<Command> {
        self.cache.refreshed();
        let cx = self.context(now);
        let plugins = self.plugin_calls(queued);
        for Named { name, plugin } in self.profiles.get(queued.profile).reserve.iter().rev() {
            let call = || plugin.unreserve(&cx, state, &queued.pod, node);
            plugins.call_guarded(Point::Unreserve, name, call);
        }
        plugins.timer.point(Point::Unreserve, Code::Success);
        cx.take_commands()
    }

    pub(crate) fn record_event(
        &mut self,
        pod: &PodInfo,
        kind: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) {
        self.effects.push(Effect::RecordEvent(PodEvent::about(pod, kind, reason, action, note)));
    }
}

/// Runs PostFilter until a plugin makes the pod schedulable or rules that out. The outcome goes
/// into the error.
pub(crate) fn post_filter(cycle: &Cycle<'_>, state: &CycleState, error: &mut FitError) -> Nomination {
    if cycle.profile.post_filter.is_empty() {
        return Nomination::Override(None);
    }
    cycle.plugins.timer.restart();
    let filters = DryRun::new(cycle, state);
    let (status, nomination) = run_post_filters(cycle, state, error, &filters);
    cycle.plugins.timer.point(Point::PostFilter, status);
    nomination
}

/// The status of PostFilter, and the new nomination.
fn run_post_filters(
    cycle: &Cycle<'_>,
    state: &CycleState,
    error: &mut FitError,
    filters: &DryRun<'_, '_>,
) -> (Code, Nomination) {
    let mut nomination = Nomination::Keep;
    let mut reasons: Vec<Text> = Vec::new();
    for Named { name, plugin } in &cycle.profile.post_filter {
        let statuses = &error.diagnosis.statuses;
        let call = || plugin.post_filter(cycle.cx, state, cycle.pod, statuses, filters);
        let code = |(_, status): &(Nomination, Status)| status.code();
        let (answer, status) = cycle.plugins.call_timed(Point::PostFilter, name, call, code);
        match status.code() {
            // This status is final: reasons of earlier plugins are dropped.
            Code::Success | Code::UnschedulableAndUnresolvable => {
                error.diagnosis.post_filter_message = status.message();
                return (status.code(), answer);
            }
            _ if status.is_rejected() => {
                reasons.extend(status.reasons().iter().cloned());
                if answer != Nomination::Keep {
                    nomination = answer;
                }
            }
            _ => {
                error.diagnosis.post_filter_message = status.message();
                return (status.code(), Nomination::Keep);
            }
        }
    }
    error.diagnosis.post_filter_message = reasons.join(", ");
    (Code::Unschedulable, nomination)
}

fn permit_code(answer: &Permit) -> Code {
    match answer {
        Permit::Allow => Code::Success,
        Permit::Wait(_) => Code::Wait,
        Permit::Reject(status) => status.code(),
    }
}
