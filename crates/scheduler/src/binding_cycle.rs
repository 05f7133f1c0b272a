//! The binding cycle, from Permit to the API server's answer.

use std::sync::Arc;

use supercargo_framework::binding::{ApiError, BindOutcome, Certainty};
use supercargo_framework::context::Command;
use supercargo_framework::plugin::{Nomination, PreFlight};
use supercargo_framework::{Code, Feature, Now, PodInfo, Status, Text, Uid, go_duration};
use supercargo_timeline::Happening;

use crate::bindings::{Binding, Stage};
use crate::drain::DRAINED;
use crate::effect::{Effect, EventType, PreBindWork};
use crate::notes::attempt_of;
use crate::scheduler::Scheduler;
use supercargo_evaluation::cache::on_node;
use supercargo_evaluation::extender::ExtenderSpec;
use supercargo_queue::PreCheck;
use supercargo_runtime::failure::{Failure, FailureKind};
use supercargo_runtime::observer::{AttemptResult, Observation, Observer, Point, Timespan};
use supercargo_runtime::profile::Named;

/// PreBind's work: groups run one after the other, the work of a group in parallel.
type Work = Vec<Vec<PreBindWork>>;

impl Scheduler {
    /// Runs PreBindPreFlight for a reserved pod, and starts PreBind or Bind unless Permit holds the
    /// pod.
    pub(crate) fn begin_binding(&mut self, now: Now, mut binding: Binding) {
        let (work, commands) =
            match self.catch_panic(|this| this.pre_flight(now, &binding).map_err(Failure::from)) {
                Ok(found) => found,
                Err(Failure { kind, .. }) => return self.fail_binding(now, binding, kind),
            };
        let has_work = !work.is_empty();
        let is_held = binding.keep_for_later(work);
        let nominates_assumed = self.features.enabled(Feature::NominatedNodeNameForExpectation);
        if nominates_assumed && (is_held || has_work) {
            let node = Some(Arc::clone(&binding.node));
            self.patch_nomination(binding.pod(), Nomination::Override(node));
        }
        let uid = binding.queued.uid().clone();
        self.note_chosen(now, &binding);
        self.bindings.insert(binding);
        if !is_held {
            self.proceed(now, &uid);
        }
        self.execute(now, commands);
    }

    fn note_chosen(&mut self, now: Now, binding: &Binding) {
        let Binding { queued, node, stage, .. } = binding;
        self.note(now, &queued.pod, Happening::Chosen(node, attempt_of(queued)));
        if let Stage::WaitingOnPermit(wait) = stage
            && let Some((plugin, ..)) = wait.pending.first()
        {
            self.note(now, &queued.pod, Happening::Waits(plugin));
        }
    }

    /// Runs PreBindPreFlight. Adjacent plugins that allow it form a group that runs in parallel.
    fn pre_flight(&self, now: Now, binding: &Binding) -> Result<(Work, Vec<Command>), FailureKind> {
        let Binding { queued, node, state, .. } = binding;
        let cx = self.context(now);
        let plugins = self.plugin_calls(queued);
        let mut groups = Work::new();
        let mut joins_last = false;
        for Named { name, plugin } in &self.profiles.get(queued.profile).pre_bind {
            let call = || plugin.pre_flight(&cx, state, &queued.pod, node);
            match plugins.call(Point::PreBindPreFlight, name, call, pre_flight_code) {
                PreFlight::Skip { allow_parallel } => joins_last &= allow_parallel,
                PreFlight::Fail(status) => {
                    plugins.timer.point(Point::PreBindPreFlight, status.code());
                    return Err(pre_flight_failed(name, &status));
                }
                PreFlight::Work { allow_parallel, work } => {
                    let work = PreBindWork { name: (*name).into(), plugin: Arc::clone(plugin), work };
                    match groups.last_mut() {
                        Some(group) if joins_last && allow_parallel => group.push(work),
                        _ => groups.push(vec![work]),
                    }
                    joins_last = allow_parallel;
                }
            }
        }
        plugins
            .timer
            .point(Point::PreBindPreFlight, if groups.is_empty() { Code::Skip } else { Code::Success });
        Ok((groups, cx.take_commands()))
    }

    /// The last Permit plugin allows a waiting pod.
    pub(crate) fn permitted(&mut self, now: Now, uid: &Uid) {
        self.observe_wait(now, uid, Code::Success);
        if let Some(pod) = self.bindings.get(uid).map(|binding| Arc::clone(binding.pod())) {
            self.note(now, &pod, Happening::Permitted);
        }
        self.proceed(now, uid);
    }

    /// Starts PreBind, or Bind if PreBind has no work.
    fn proceed(&mut self, now: Now, uid: &Uid) {
        // As upstream, events from here on are not replayed for the pod.
        self.queue.done(uid);
        self.bindings.forget_waiting(uid);
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        let Stage::WaitingOnPermit(wait) = &mut binding.stage else {
            return;
        };
        let groups = std::mem::take(&mut wait.work);
        binding.stage_began = self.observer.time_point();
        if groups.is_empty() {
            let nothing = Timespan { from: binding.stage_began, to: binding.stage_began };
            observe_point(&*self.observer, binding, Point::PreBind, Code::Success, nothing);
            self.start_bind(now, uid);
        } else {
            binding.stage = Stage::PreBinding { cancelled: None };
            let (pod, node) = (Arc::clone(binding.pod()), Arc::clone(&binding.node));
            self.effects.push(Effect::StartPreBind { pod, node, groups });
        }
    }

    /// Permit rejects a waiting pod, or its timeout ends.
    pub(crate) fn permit_rejected(&mut self, now: Now, uid: &Uid, status: Status) {
        if !self.bindings.is_waiting(uid) {
            return;
        }
        self.observe_wait(now, uid, status.code());
        if let Some(binding) = self.bindings.remove(uid) {
            let kind = if status.is_rejected() {
                self.rejected_node(&binding.node, status)
            } else {
                FailureKind::Internal(format!("waiting on permit for pod: {}", status.message()))
            };
            self.fail_binding(now, binding, kind);
        }
    }

    fn observe_wait(&mut self, now: Now, uid: &Uid, result: Code) {
        if let Some(Stage::WaitingOnPermit(wait)) = self.bindings.get(uid).map(|binding| &binding.stage) {
            let waited = now.monotonic.saturating_sub(wait.since);
            self.observer.observe(Observation::PermitWaited { result: result.as_str(), waited });
        }
    }

    /// Cancels PreBind of a pod while it runs.
    pub(crate) fn cancel_binding(&mut self, uid: &Uid, status: Status) {
        if let Some(Stage::PreBinding { cancelled: cancelled @ None }) =
            self.bindings.get_mut(uid).map(|binding| &mut binding.stage)
        {
            *cancelled = Some(status);
            self.effects.push(Effect::CancelPreBind(uid.clone()));
        }
    }

    /// PreBind ended. From here on, a binding cannot be cancelled.
    pub(crate) fn pre_bound(&mut self, now: Now, uid: &Uid, status: Status) {
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        let Stage::PreBinding { cancelled } = &mut binding.stage else {
            return;
        };
        let is_cancelled = cancelled.is_some();
        let failure = match cancelled.take() {
            Some(cause) => Some(pre_bind_failed(&status, &cause)),
            None => (!status.is_success()).then(|| pre_bind_failed(&status, &status)),
        };
        let took = Timespan { from: binding.stage_began, to: self.observer.time_point() };
        binding.stage_began = took.to;
        observe_point(&*self.observer, binding, Point::PreBind, status.code(), took);
        if status.code() == Code::Error {
            let plugin = status.plugin();
            self.observer.observe(Observation::PluginFailed { plugin, point: Point::PreBind });
        }
        let Some(kind) = failure else { return self.start_bind(now, uid) };
        let Some(binding) = self.bindings.remove(uid) else { return };
        if is_cancelled && self.draining {
            self.put_back(now, binding, &DRAINED);
        } else {
            self.fail_binding(now, binding, kind);
        }
    }

    fn start_bind(&mut self, now: Now, uid: &Uid) {
        if self.cache.is_confirmed(uid) {
            return self.lose_race(now, uid);
        }
        if self.node_no_longer_fits(now, uid) {
            return self.choose_another_node(now, uid);
        }
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        binding.stage = Stage::Binding;
        let pod = Arc::clone(binding.pod());
        let binds = |extender: &&ExtenderSpec| extender.binds && extender.is_interested(&pod);
        self.effects.push(Effect::Bind {
            extenders: self.extenders.iter().filter(binds).cloned().collect(),
            pod,
            node: Arc::clone(&binding.node),
            binders: Arc::clone(&self.profiles.get(binding.queued.profile).bind),
        });
    }

    /// Undoes a binding and requeues the pod for an immediate attempt, without an event or a
    /// condition.
    pub(crate) fn put_back(&mut self, now: Now, mut binding: Binding, cause: &Text) {
        self.note(now, binding.pod(), Happening::GaveUp(cause));
        let freed = self.give_up_node(now, &mut binding);
        self.move_all_for_freed(now, &freed, PreCheck::Others);
        let Some(pod) = self.known(&freed).cloned() else { return self.queue.done(&freed.uid) };
        let Some(profile) = self.profile_of(&pod) else {
            self.queue.done(&freed.uid);
            return self.unclaim(pod);
        };
        let mut queued = binding.queued;
        (queued.pod, queued.profile) = (pod, profile);
        self.with_queue(now, |queue, cx| queue.retry(cx, queued, cause));
    }

    /// Bind ended. `by` is the plugin that reports the outcome; it is empty if no plugin does.
    pub(crate) fn bound(&mut self, now: Now, uid: &Uid, by: &str, outcome: BindOutcome) {
        let Some(binding @ Binding { stage: Stage::Binding, .. }) = self.bindings.get(uid) else {
            return;
        };
        let (status, took) =
            (bind_code(&outcome), Timespan { from: binding.stage_began, to: self.observer.time_point() });
        observe_point(&*self.observer, binding, Point::Bind, status, took);
        if !by.is_empty() && self.observer.watches_plugins() {
            let (pod, point) = (&**binding.pod(), Point::Bind);
            self.observer.observe(Observation::Plugin { pod, plugin: by, point, status, took });
        }
        match outcome {
            BindOutcome::Bound => self.succeed(now, uid),
            BindOutcome::Skip => {
                let message = "all Bind plugins skipped the pod".to_owned();
                self.bind_failed(now, uid, FailureKind::Internal(message));
            }
            // As with PreBind, no event helps: only the backoff ends the wait.
            BindOutcome::Rejected(message) => self.bind_failed(now, uid, FailureKind::Rejected(message)),
            BindOutcome::Failed(ApiError { certainty, message }) => {
                let message =
                    if by.is_empty() { message } else { format!("running Bind plugin {by:?}: {message}") };
                match certainty {
                    Certainty::Refused => self.bind_failed(now, uid, FailureKind::Internal(message)),
                    Certainty::NotFound => self.pod_is_gone(now, uid),
                    Certainty::Conflict | Certainty::Unknown => self.bind_uncertain(now, uid, message),
                }
            }
        }
    }

    /// Drops the binding of a pod that somebody else has bound.
    pub(crate) fn lose_race(&mut self, now: Now, uid: &Uid) {
        if let Some(mut binding) = self.bindings.remove(uid) {
            self.observer.observe(Observation::LostRace);
            let freed = self.give_up_node(now, &mut binding);
            self.move_all_for_freed(now, &freed, PreCheck::All);
            self.queue.done(uid);
        }
    }

    pub(crate) fn pod_is_gone(&mut self, now: Now, uid: &Uid) {
        if let Some(binding) = self.bindings.remove(uid) {
            self.fail_binding(now, binding, FailureKind::Gone);
        }
    }

    pub(crate) fn bind_failed(&mut self, now: Now, uid: &Uid, kind: FailureKind) {
        if let Some(binding) = self.bindings.remove(uid) {
            self.fail_binding(now, binding, kind);
        }
    }

    /// Undoes a binding and puts the pod back into the queue.
    fn fail_binding(&mut self, now: Now, mut binding: Binding, kind: FailureKind) {
        let freed = self.give_up_node(now, &mut binding);
        if kind.is_rejection() {
            // A rejected pod must not wake itself.
            self.fail(now, binding.queued, kind.into());
            self.move_all_for_freed(now, &freed, PreCheck::Others);
        } else {
            self.move_all_for_freed(now, &freed, PreCheck::All);
            self.fail(now, binding.queued, kind.into());
        }
    }

    /// Unreserves and forgets an assumed pod. Returns the pod as it was on the node.
    fn give_up_node(&mut self, now: Now, binding: &mut Binding) -> Arc<PodInfo> {
        let Binding { queued, node, state, .. } = binding;
        self.unreserve(now, queued, node, state);
        if self.cache.is_assumed(queued.uid()) {
            self.forget(queued.uid());
        }
        on_node(&queued.pod, node)
    }

    pub(crate) fn succeed(&mut self, now: Now, uid: &Uid) {
        let Some(Binding { queued, node, mut state, .. }) = self.bindings.remove(uid) else {
            return;
        };
        let note = format!("Successfully assigned {} to {node}", queued.pod.key());
        self.record_event(&queued.pod, EventType::Normal, "Scheduled", "Binding", note);
        self.observe_attempt(&queued, AttemptResult::Scheduled, Some(&node), "", now);
        self.note(now, &queued.pod, Happening::Bound(&node));
        self.cache.refreshed();
        let cx = self.context(now);
        let plugins = self.plugin_calls(&queued);
        for Named { name, plugin } in &self.profiles.get(queued.profile).post_bind {
            let call = || plugin.post_bind(&cx, &mut state, &queued.pod, &node);
            plugins.call_guarded(Point::PostBind, name, call);
        }
        plugins.timer.point(Point::PostBind, Code::Success);
        let commands = cx.take_commands();
        self.execute(now, commands);
    }

    /// Rejects pods whose Permit timeout has ended, and retries reads of uncertain bindings.
    pub(crate) fn tick_bindings(&mut self, now: Now) {
        if self.bindings.next_deadline().is_none_or(|at| at > now.monotonic) {
            return;
        }
        for (uid, plugin, timeout) in self.bindings.timed_out(now.monotonic) {
            let reason = format!(
                "rejected due to timeout after waiting {} at plugin {plugin}",
                go_duration::format(timeout)
            );
            self.permit_rejected(now, &uid, Status::unschedulable(reason).by(plugin));
        }
        for pod in self.bindings.take_to_ask(now.monotonic) {
            self.effects.push(Effect::ReadPod { pod: pod.key(), uid: pod.uid.clone() });
        }
    }
}

/// Reports the time of an extension point that runs outside the scheduler.
fn observe_point(observer: &dyn Observer, binding: &Binding, point: Point, status: Code, took: Timespan) {
    let (profile, pod) = (binding.queued.profile.0, &**binding.pod());
    observer.observe(Observation::ExtensionPoint { profile, pod, point, status, took });
}

fn pre_flight_code(answer: &PreFlight) -> Code {
    match answer {
        PreFlight::Skip { .. } => Code::Skip,
        PreFlight::Work { .. } => Code::Success,
        PreFlight::Fail(status) => status.code(),
    }
}

fn bind_code(outcome: &BindOutcome) -> Code {
    match outcome {
        BindOutcome::Bound => Code::Success,
        BindOutcome::Skip => Code::Skip,
        BindOutcome::Rejected(_) => Code::Unschedulable,
        BindOutcome::Failed(_) => Code::Error,
    }
}

/// PreBindPreFlight may fail but not reject the pod.
fn pre_flight_failed(plugin: &str, status: &Status) -> FailureKind {
    FailureKind::Internal(match status.code() {
        Code::Error => format!("running PreBindPreFlight {plugin:?}: {}", status.message()),
        code => format!(
            "PreBindPreFlight {plugin} returned {:?}, which is unsupported. It is supposed to return Success, Skip, or \
             Error status",
            code.as_str()
        ),
    })
}

/// PreBind failed, or was cancelled before its result arrived. If it rejects the pod, only the
/// backoff helps.
fn pre_bind_failed(status: &Status, cause: &Status) -> FailureKind {
    let message = cause.message();
    if cause.is_rejected() {
        FailureKind::Rejected(message)
    } else if status.is_success() {
        FailureKind::Internal(message)
    } else {
        FailureKind::Internal(format!("running PreBind plugin {:?}: {message}", status.plugin()))
    }
}
