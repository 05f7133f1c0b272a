//! From Permit to the API server's word, and what happens when it does not come.

use std::cell::Cell;
use std::sync::Arc;

use supercargo_framework::binding::{ApiError, BindOutcome, Certainty};
use supercargo_framework::context::Command;
use supercargo_framework::plugin::PreFlight;
use supercargo_framework::{Code, Context, Feature, Now, PodInfo, Status, Text, Uid};

use crate::bindings::{Binding, Stage};
use crate::cache::on_node;
use crate::contain::contained;
use crate::cycle::Cycle;
use crate::drain::DRAINED;
use crate::effect::{Effect, EventType, PreBindWork};
use crate::extender::{ExtenderSpec, NoCalls};
use crate::extending::Extenders;
use crate::failure::{Failure, FailureKind};
use crate::input::PodRead;
use crate::laps::Laps;
use crate::observer::{AttemptResult, Observation, Observer, Point, Took};
use crate::profile::{Named, ProfileIndex};
use crate::scheduler::Scheduler;

/// Why a pod is tried again that waited too long for its node.
const NODE_TAKEN: Text = Text::Static("NodeTaken");

/// PreBind's work, in groups.
type Work = Vec<Vec<PreBindWork>>;

impl Scheduler {
    /// A node is reserved for the pod: finds out what PreBind has to do, and binds as soon as nobody holds the pod.
    pub(crate) fn begin_binding(&mut self, now: Now, mut binding: Binding) {
        let (work, commands) = match self.caught(|this| this.pre_flight(now, &binding).map_err(Failure::from))
        {
            Ok(found) => found,
            Err(Failure { kind, .. }) => return self.fail_binding(now, binding, kind),
        };
        let has_work = !work.is_empty();
        let is_held = binding.keep_for_later(work);
        let says_where = self.features.enabled(Feature::NominatedNodeNameForExpectation);
        if says_where && (is_held || has_work) {
            self.nominate(binding.pod(), &binding.node);
        }
        let uid = binding.queued.uid().clone();
        self.bindings.insert(binding);
        if !is_held {
            self.go_ahead(now, &uid);
        }
        self.execute(now, commands);
    }

    /// Runs PreBindPreFlight. Neighbours that may run side by side form a group.
    fn pre_flight(&self, now: Now, binding: &Binding) -> Result<(Work, Vec<Command>), FailureKind> {
        let Binding { queued, node, state, .. } = binding;
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting(), now);
        let mut groups = Work::new();
        let mut joins_last = false;
        let watches = self.observer.watches_plugins();
        let laps = Laps::now(&*self.observer, queued.profile, &queued.pod, watches);
        for Named { name, plugin } in &self.profiles.get(queued.profile).pre_bind {
            self.running.set("PreBindPreFlight", name);
            let call = || plugin.pre_flight(&cx, state, &queued.pod, node);
            match laps.plugin(Point::PreBindPreFlight, name, call, pre_flight_code) {
                PreFlight::Skip { allow_parallel } => joins_last &= allow_parallel,
                PreFlight::Fail(status) => {
                    laps.point(Point::PreBindPreFlight, status.code());
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
        laps.point(Point::PreBindPreFlight, if groups.is_empty() { Code::Skip } else { Code::Success });
        Ok((groups, cx.take_commands()))
    }

    /// Nobody holds a waiting pod any more.
    pub(crate) fn permitted(&mut self, now: Now, uid: &Uid) {
        self.observe_wait(now, uid, Code::Success);
        self.go_ahead(now, uid);
    }

    /// PreBind, or Bind at once.
    fn go_ahead(&mut self, now: Now, uid: &Uid) {
        // From here on events are not kept for the pod: upstream's choice, too.
        self.queue.done(uid);
        self.bindings.forget_waiting(uid);
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        let Stage::WaitingOnPermit(wait) = &mut binding.stage else {
            return;
        };
        let groups = std::mem::take(&mut wait.work);
        binding.stage_began = self.observer.moment();
        if groups.is_empty() {
            let nothing = Took { from: binding.stage_began, to: binding.stage_began };
            observe_point(&*self.observer, binding, Point::PreBind, Code::Success, nothing);
            self.start_bind(now, uid);
        } else {
            binding.stage = Stage::PreBinding { cancelled: None };
            let (pod, node) = (Arc::clone(binding.pod()), Arc::clone(&binding.node));
            self.effects.push(Effect::StartPreBind { pod, node, groups });
        }
    }

    /// A plugin, or time, turns a waiting pod down.
    pub(crate) fn permit_rejected(&mut self, now: Now, uid: &Uid, status: Status) {
        if !self.bindings.is_waiting(uid) {
            return;
        }
        self.observe_wait(now, uid, status.code());
        if let Some(binding) = self.bindings.remove(uid) {
            let kind = if status.is_rejected() {
                self.refused_node(&binding.node, status)
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

    /// Makes PreBind of a pod give up, as long as it runs.
    pub(crate) fn cancel_binding(&mut self, uid: &Uid, status: Status) {
        if let Some(Stage::PreBinding { cancelled: cancelled @ None }) =
            self.bindings.get_mut(uid).map(|binding| &mut binding.stage)
        {
            *cancelled = Some(status);
            self.effects.push(Effect::CancelPreBind(uid.clone()));
        }
    }

    /// PreBind ended. This is the point after which a binding can no longer be cancelled.
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
        let took = Took { from: binding.stage_began, to: self.observer.moment() };
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
            return self.lose(now, uid);
        }
        if self.has_lost_its_node(now, uid) {
            return self.choose_again(now, uid);
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

    /// Whether the node has changed since the pod was put there, and the pod no longer fits it: others bind, too. When that
    /// cannot be found out it has not.
    fn has_lost_its_node(&mut self, now: Now, uid: &Uid) -> bool {
        let Some(Binding { queued, node, chosen_at, .. }) = self.bindings.get(uid) else { return false };
        // A pod that has been deleted meanwhile is not on the node; its binding fails by itself.
        if !self.cache.is_assumed(uid) {
            return false;
        }
        let Some(info) = self.cache.nodes().get(node) else { return true };
        if info.generation() == *chosen_at {
            return false;
        }
        let (pod, node, profile) = (Arc::clone(&queued.pod), Arc::clone(node), queued.profile);
        let verdict = self.caught(|this| {
            // It must not count against itself.
            this.forget(&pod.uid);
            Ok(this.verdict_anew(now, &pod, profile, &node)?)
        });
        if let Err(error) = self.cache.assume(pod, node) {
            self.anomaly(&error.to_string());
        }
        verdict.is_ok_and(|status| status.is_rejected())
    }

    fn verdict_anew(
        &mut self,
        now: Now,
        pod: &Arc<PodInfo>,
        profile: ProfileIndex,
        node: &str,
    ) -> Result<Status, FailureKind> {
        self.cache.refreshed();
        let Some(index) = self.cache.nodes().index_of(node) else { return Ok(Status::success()) };
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting(), now);
        let mut calls = NoCalls;
        let laps = Laps::now(&*self.observer, profile, pod, false);
        let cycle = Cycle {
            cx: &cx,
            profile: self.profiles.get(profile),
            pod,
            queue: &self.queue,
            extenders: Extenders::of_pod(&[], pod, &mut calls),
            sampling: None,
            running: &self.running,
            laps: &laps,
            evaluated: Cell::default(),
        };
        cycle.verdict_anew(index)
    }

    /// Gives up the node and tries the pod again at once.
    fn choose_again(&mut self, now: Now, uid: &Uid) {
        let Some(binding) = self.bindings.remove(uid) else { return };
        self.observer.observe(Observation::NodeTaken);
        self.put_back(now, binding, &NODE_TAKEN);
    }

    /// Undoes a binding and lets the pod be tried again at once, without a word about it.
    pub(crate) fn put_back(&mut self, now: Now, mut binding: Binding, cause: &Text) {
        let freed = self.give_up_node(now, &mut binding);
        self.move_all_for_freed(now, &freed, |waiting| waiting.uid != freed.uid);
        let Some(pod) = self.known(&freed).cloned() else { return self.queue.done(&freed.uid) };
        let Some(profile) = self.profile_of(&pod) else {
            self.queue.done(&freed.uid);
            return self.let_go(pod);
        };
        let mut queued = binding.queued;
        (queued.pod, queued.profile) = (pod, profile);
        self.with_queue(now, |queue, cx| queue.retry(cx, queued, cause));
    }

    /// Bind ended, by whom is said where it was a plugin.
    pub(crate) fn bound(&mut self, now: Now, uid: &Uid, by: &str, outcome: BindOutcome) {
        let Some(binding @ Binding { stage: Stage::Binding, .. }) = self.bindings.get(uid) else {
            return;
        };
        let (status, took) =
            (bind_code(&outcome), Took { from: binding.stage_began, to: self.observer.moment() });
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
            // As with PreBind, who turns it down is not waited for: nothing but time helps.
            BindOutcome::Rejected(message) => self.bind_failed(now, uid, FailureKind::Rejected(message)),
            BindOutcome::Failed(ApiError { certainty, message }) => {
                let message =
                    if by.is_empty() { message } else { format!("running Bind plugin {by:?}: {message}") };
                match certainty {
                    Certainty::Refused => self.bind_failed(now, uid, FailureKind::Internal(message)),
                    Certainty::NotFound => self.pod_is_gone(now, uid),
                    Certainty::Unknown => self.bind_uncertain(now, uid, message),
                }
            }
        }
    }

    /// Nobody knows whether the pod is bound: it stays assumed until somebody does.
    fn bind_uncertain(&mut self, now: Now, uid: &Uid, message: String) {
        let confirmed = self.cache.node_of(uid).filter(|_| self.cache.is_confirmed(uid)).cloned();
        if let Some(node) = confirmed {
            self.found_bound(now, uid, &node);
        } else if let Some(binding) = self.bindings.set_uncertain(uid, message) {
            let pod = binding.pod().key();
            self.effects.push(Effect::ReadPod { pod, uid: uid.clone() });
        }
    }

    /// The API server's word on an uncertain binding.
    pub(crate) fn pod_read(&mut self, now: Now, uid: &Uid, read: PodRead) {
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        let Stage::Uncertain(uncertain) = &mut binding.stage else {
            return;
        };
        match read {
            PodRead::Exists(Some(node)) => self.found_bound(now, uid, &node),
            PodRead::Exists(None) => {
                let message = std::mem::take(&mut uncertain.message);
                self.bind_failed(now, uid, FailureKind::Internal(message));
            }
            PodRead::Gone => self.pod_is_gone(now, uid),
            PodRead::Failed => {
                uncertain.ask_at = Some(now.monotonic + uncertain.pause());
                uncertain.asked += 1;
            }
        }
    }

    /// The informer says that a pod has a node. If its binding is uncertain, that settles it.
    pub(crate) fn informer_confirms(&mut self, now: Now, pod: &PodInfo) {
        let stage = self.bindings.get(&pod.uid).map(|binding| &binding.stage);
        if let (Some(Stage::Uncertain(_)), Some(node)) = (stage, &pod.node_name) {
            self.found_bound(now, &pod.uid, node);
        }
    }

    /// The pod is on a node: ours, or one that somebody else chose.
    fn found_bound(&mut self, now: Now, uid: &Uid, node: &Arc<str>) {
        let Some(binding) = self.bindings.get(uid) else {
            return;
        };
        if binding.node == *node {
            return self.succeed(now, uid);
        }
        let pod = Arc::clone(binding.pod());
        self.lose(now, uid);
        // It counts there until the informer says so, and is not to be tried again meanwhile.
        if self.known(&pod).is_some() && self.cache.node_of(uid).is_none() {
            let assumed = self.cache.assume(pod, Arc::clone(node));
            debug_assert!(assumed.is_ok(), "a pod that is on no node can be assumed");
        }
    }

    /// Somebody else has bound the pod: it is none of our business any more.
    fn lose(&mut self, now: Now, uid: &Uid) {
        if let Some(mut binding) = self.bindings.remove(uid) {
            self.observer.observe(Observation::LostRace);
            let freed = self.give_up_node(now, &mut binding);
            self.move_all_for_freed(now, &freed, |_| true);
            self.queue.done(uid);
        }
    }

    fn pod_is_gone(&mut self, now: Now, uid: &Uid) {
        if let Some(binding) = self.bindings.remove(uid) {
            self.fail_binding(now, binding, FailureKind::Gone);
        }
    }

    fn bind_failed(&mut self, now: Now, uid: &Uid, kind: FailureKind) {
        if let Some(binding) = self.bindings.remove(uid) {
            self.fail_binding(now, binding, kind);
        }
    }

    /// Undoes a binding and puts the pod back into the queue.
    fn fail_binding(&mut self, now: Now, mut binding: Binding, kind: FailureKind) {
        let freed = self.give_up_node(now, &mut binding);
        if kind.is_rejection() {
            // A pod that was turned down must not wake itself.
            self.fail(now, binding.queued, kind.into());
            self.move_all_for_freed(now, &freed, |waiting| waiting.uid != freed.uid);
        } else {
            self.move_all_for_freed(now, &freed, |_| true);
            self.fail(now, binding.queued, kind.into());
        }
    }

    /// Takes an assumed pod off its node, for its plugins, too. Returns it as it was there.
    fn give_up_node(&mut self, now: Now, binding: &mut Binding) -> Arc<PodInfo> {
        let Binding { queued, node, state, .. } = binding;
        self.unreserve(now, queued, node, state);
        if self.cache.is_assumed(queued.uid()) {
            self.forget(queued.uid());
        }
        on_node(&queued.pod, node)
    }

    fn succeed(&mut self, now: Now, uid: &Uid) {
        let Some(Binding { queued, node, mut state, .. }) = self.bindings.remove(uid) else {
            return;
        };
        let note = format!("Successfully assigned {} to {node}", queued.pod.key());
        self.record_event(&queued.pod, EventType::Normal, "Scheduled", "Binding", note);
        self.observe_attempt(&queued, AttemptResult::Scheduled, Some(&node), "", now);
        self.cache.refreshed();
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting(), now);
        let watches = self.observer.watches_plugins();
        let laps = Laps::now(&*self.observer, queued.profile, &queued.pod, watches);
        for Named { name, plugin } in &self.profiles.get(queued.profile).post_bind {
            let call = || plugin.post_bind(&cx, &mut state, &queued.pod, &node);
            let done =
                contained("PostBind", name, || laps.plugin(Point::PostBind, name, call, |()| Code::Success));
            if let Err(panic) = done {
                self.observer.observe(Observation::Anomaly(&panic));
            }
        }
        laps.point(Point::PostBind, Code::Success);
        let commands = cx.take_commands();
        self.execute(now, commands);
    }

    /// Does what is due: pods held too long, questions to ask again.
    pub(crate) fn tick_bindings(&mut self, now: Now) {
        if self.bindings.next_deadline().is_none_or(|at| at > now.monotonic) {
            return;
        }
        for (uid, plugin, timeout) in self.bindings.timed_out(now.monotonic) {
            let reason =
                format!("rejected due to timeout after waiting {} at plugin {plugin}", go_duration(timeout));
            self.permit_rejected(now, &uid, Status::unschedulable(reason).by(plugin));
        }
        for uid in self.bindings.to_ask(now.monotonic) {
            if let Some(binding) = self.bindings.get_mut(&uid)
                && let Stage::Uncertain(uncertain) = &mut binding.stage
            {
                uncertain.ask_at = None;
                let pod = binding.pod().key();
                self.effects.push(Effect::ReadPod { pod, uid });
            }
        }
    }
}

/// What runs outside is timed by itself.
fn observe_point(observer: &dyn Observer, binding: &Binding, point: Point, status: Code, took: Took) {
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

/// PreBindPreFlight may only fail, not turn the pod down.
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

/// PreBind did not succeed, or was cancelled when it nearly had. Whom it turns down nothing but time helps.
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

/// A duration as Go prints it, which is what the message has: `15m0s`, `1.5s`, `200ms`.
fn go_duration(duration: std::time::Duration) -> String {
    let nanos = duration.as_nanos();
    let trimmed = |value: f64, unit: &str| format!("{}{unit}", (value * 1e9).round() / 1e9);
    if nanos == 0 {
        return "0s".to_owned();
    }
    if nanos < 1_000 {
        return format!("{nanos}ns");
    }
    if nanos < 1_000_000 {
        return trimmed(nanos as f64 / 1e3, "µs");
    }
    if nanos < 1_000_000_000 {
        return trimmed(nanos as f64 / 1e6, "ms");
    }
    let (hours, minutes) = (duration.as_secs() / 3600, duration.as_secs() / 60 % 60);
    let seconds = trimmed((duration.as_secs() % 60) as f64 + f64::from(duration.subsec_nanos()) / 1e9, "s");
    match (hours, minutes) {
        (0, 0) => seconds,
        (0, minutes) => format!("{minutes}m{seconds}"),
        (hours, minutes) => format!("{hours}h{minutes}m{seconds}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn durations_read_as_in_go() {
        for (duration, expected) in [
            (Duration::ZERO, "0s"),
            (Duration::from_millis(200), "200ms"),
            (Duration::from_millis(1500), "1.5s"),
            (Duration::from_secs(10), "10s"),
            (Duration::from_mins(15), "15m0s"),
            (Duration::from_millis(3_661_500), "1h1m1.5s"),
            (Duration::from_micros(1500), "1.5ms"),
        ] {
            assert_eq!(go_duration(duration), expected);
        }
    }
}
