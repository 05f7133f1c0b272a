//! From Permit to the API server's word, and what happens when it does not come.

use std::sync::Arc;

use supercargo_framework::binding::{ApiError, BindOutcome, Certainty};
use supercargo_framework::plugin::Nomination;
use supercargo_framework::{Context, Now, PodInfo, Status, Uid};

use crate::bindings::{Binding, Stage, Uncertain};
use crate::diagnosis::FitError;
use crate::effect::{Effect, EventType};
use crate::failure::{Failure, FailureKind};
use crate::input::PodRead;
use crate::observer::{AttemptResult, Observation};
use crate::scheduler::Scheduler;

impl Scheduler {
    /// Nobody holds the pod any more: PreBind, or Bind at once.
    pub(crate) fn permitted(&mut self, now: Now, uid: &Uid) {
        self.bindings.forget_waiting(uid);
        let Some(binding) = self.bindings.get_mut(uid) else {
            return;
        };
        let Stage::WaitingOnPermit(wait) = std::mem::replace(&mut binding.stage, Stage::Binding) else {
            return;
        };
        let waited = now.monotonic.saturating_sub(wait.since);
        if wait.work.is_empty() {
            self.start_bind(uid);
        } else {
            binding.stage = Stage::PreBinding { cancelled: None };
            let (pod, node) = (Arc::clone(binding.pod()), Arc::clone(&binding.node));
            self.effects.push(Effect::StartPreBind {
                pod,
                node,
                groups: wait.work,
            });
        }
        self.observer.observe(Observation::PermitWaited {
            result: "Success",
            waited,
        });
        // From here on events are not kept for the pod: upstream's choice, too.
        self.queue.done(uid);
    }

    /// A plugin, or time, turns a waiting pod down.
    pub(crate) fn permit_rejected(&mut self, now: Now, uid: &Uid, status: Status) {
        if !self.bindings.is_waiting(uid) {
            return;
        }
        if let Some(Stage::WaitingOnPermit(wait)) = self.bindings.get(uid).map(|binding| &binding.stage) {
            let waited = now.monotonic.saturating_sub(wait.since);
            self.observer.observe(Observation::PermitWaited {
                result: status.code().as_str(),
                waited,
            });
        }
        if let Some(binding) = self.bindings.remove(uid) {
            let index = self.cache.nodes().index_of(&binding.node);
            let kind = FailureKind::Fit(Box::new(FitError::of_one_node(index, status)));
            self.fail_binding(now, binding, kind);
        }
    }

    /// Makes PreBind of a pod give up, as long as it runs.
    pub fn cancel_binding(&mut self, uid: &Uid, status: Status) {
        if let Some(Stage::PreBinding { cancelled }) =
            self.bindings.get_mut(uid).map(|binding| &mut binding.stage)
        {
            cancelled.get_or_insert(status);
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
        let status = cancelled.take().unwrap_or(status);
        if status.is_success() {
            binding.stage = Stage::Binding;
            self.start_bind(uid);
        } else if let Some(binding) = self.bindings.remove(uid) {
            let kind = if status.is_rejected() {
                let index = self.cache.nodes().index_of(&binding.node);
                FailureKind::Fit(Box::new(FitError::of_one_node(index, status)))
            } else {
                let plugin = status.plugin();
                FailureKind::Internal(format!("running PreBind plugin {plugin:?}: {}", status.message()))
            };
            self.fail_binding(now, binding, kind);
        }
    }

    fn start_bind(&mut self, uid: &Uid) {
        let Some(binding) = self.bindings.get(uid) else {
            return;
        };
        self.effects.push(Effect::Bind {
            pod: Arc::clone(binding.pod()),
            node: Arc::clone(&binding.node),
            binders: Arc::clone(&self.profiles.get(binding.queued.profile).bind),
        });
    }

    /// Bind ended.
    pub(crate) fn bound(&mut self, now: Now, uid: &Uid, outcome: BindOutcome) {
        if !matches!(
            self.bindings.get(uid).map(|binding| &binding.stage),
            Some(Stage::Binding)
        ) {
            return;
        }
        match outcome {
            BindOutcome::Bound => self.succeed(now, uid),
            BindOutcome::Skip => self.bind_failed(now, uid, "all Bind plugins skipped the pod".to_owned()),
            BindOutcome::Failed(ApiError { certainty, message }) => match certainty {
                Certainty::Refused => self.bind_failed(now, uid, message),
                Certainty::NotFound => self.pod_is_gone(now, uid, message),
                Certainty::Unknown => self.bind_uncertain(now, uid, message),
            },
        }
    }

    /// Nobody knows whether the pod is bound: it stays assumed until somebody does.
    fn bind_uncertain(&mut self, now: Now, uid: &Uid, message: String) {
        if let Some(node) = self
            .cache
            .is_confirmed(uid)
            .then(|| self.cache.node_of(uid).cloned())
            .flatten()
        {
            self.found_bound(now, uid, &node);
        } else if let Some(binding) = self.bindings.get_mut(uid) {
            binding.stage = Stage::Uncertain(Uncertain {
                message,
                ask_at: None,
                asked: 0,
            });
            let pod = binding.pod().key();
            self.effects.push(Effect::ReadPod {
                pod,
                uid: uid.clone(),
            });
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
                self.bind_failed(now, uid, message);
            }
            PodRead::Gone => {
                let message = std::mem::take(&mut uncertain.message);
                self.pod_is_gone(now, uid, message);
            }
            PodRead::Failed => {
                uncertain.ask_at = Some(now.monotonic + uncertain.pause());
                uncertain.asked += 1;
            }
        }
    }

    /// The informer says that a pod has a node. If its binding is uncertain, that settles it.
    pub(crate) fn informer_confirms(&mut self, now: Now, pod: &Arc<PodInfo>) {
        let uncertain = matches!(
            self.bindings.get(&pod.uid).map(|b| &b.stage),
            Some(Stage::Uncertain(_))
        );
        if let Some(node) = pod.node_name.clone().filter(|_| uncertain) {
            self.found_bound(now, &pod.uid, &node);
        }
    }

    /// The pod is on a node: ours, or one that somebody else chose.
    fn found_bound(&mut self, now: Now, uid: &Uid, node: &Arc<str>) {
        if self
            .bindings
            .get(uid)
            .is_some_and(|binding| binding.node == *node)
        {
            self.succeed(now, uid);
        } else if let Some(mut binding) = self.bindings.remove(uid) {
            self.observer.observe(Observation::LostRace);
            let node = Arc::clone(&binding.node);
            let mut state = std::mem::take(&mut binding.state);
            self.unreserve(now, &binding.queued, &node, &mut state);
            if self.cache.is_assumed(uid) {
                self.forget(uid);
            }
            let freed = Arc::clone(binding.pod());
            self.move_all_for_freed(now, &freed, |_| true);
            self.queue.done(uid);
        }
    }

    fn pod_is_gone(&mut self, now: Now, uid: &Uid, message: String) {
        // The informer will say so, too; until then the pod is no business of the queue's.
        let key = self.bindings.get(uid).map(|binding| binding.pod().key());
        if let Some(key) = key.filter(|key| self.pending.get(key).is_some_and(|pod| pod.uid == *uid)) {
            self.pending.remove(&key);
        }
        self.bind_failed(now, uid, message);
    }

    fn bind_failed(&mut self, now: Now, uid: &Uid, message: String) {
        if let Some(binding) = self.bindings.remove(uid) {
            let binders = &self.profiles.get(binding.queued.profile).bind;
            let name = binders.last().map_or("", |binder| &*binder.name);
            let message = format!("running Bind plugin {name:?}: {message}");
            self.fail_binding(now, binding, FailureKind::Internal(message));
        }
    }

    /// Undoes a binding and puts the pod back into the queue.
    fn fail_binding(&mut self, now: Now, mut binding: Binding, kind: FailureKind) {
        let node = Arc::clone(&binding.node);
        let mut state = std::mem::take(&mut binding.state);
        self.unreserve(now, &binding.queued, &node, &mut state);
        let uid = binding.queued.uid().clone();
        if self.cache.is_assumed(&uid) {
            self.forget(&uid);
        }
        let freed = Arc::clone(binding.pod());
        // A pod that was turned down must not wake itself; one that failed is not in the queue yet.
        let rejected = matches!(kind, FailureKind::Fit(_));
        if !rejected {
            self.move_all_for_freed(now, &freed, |_| true);
        }
        self.fail(
            now,
            binding.queued,
            Failure {
                kind,
                nomination: Nomination::Override(None),
            },
        );
        if rejected {
            self.move_all_for_freed(now, &freed, |waiting| waiting.uid != uid);
        }
    }

    fn succeed(&mut self, now: Now, uid: &Uid) {
        let Some(Binding {
            queued,
            node,
            mut state,
            ..
        }) = self.bindings.remove(uid)
        else {
            return;
        };
        let note = format!("Successfully assigned {} to {node}", queued.pod.key());
        self.record_event(&queued.pod, EventType::Normal, "Scheduled", "Binding", note);
        self.observe_attempt(&queued, AttemptResult::Scheduled, now);
        let cx = Context::new(self.cache.nodes(), &self.objects, self.bindings.waiting());
        for plugin in &self.profiles.get(queued.profile).post_bind {
            self.running.set("PostBind", plugin.name);
            plugin.plugin.post_bind(&cx, &mut state, &queued.pod, &node);
        }
        let commands = cx.take_commands();
        self.execute(now, commands);
    }

    /// Does what is due: pods held too long, questions to ask again.
    pub(crate) fn tick_bindings(&mut self, now: Now) {
        if self.bindings.next_deadline().is_none_or(|at| at > now.monotonic) {
            return;
        }
        for (uid, plugin, timeout) in self.bindings.timed_out(now.monotonic) {
            let reason = format!(
                "rejected due to timeout after waiting {} at plugin {plugin}",
                go_duration(timeout)
            );
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
    let seconds = trimmed(
        (duration.as_secs() % 60) as f64 + f64::from(duration.subsec_nanos()) / 1e9,
        "s",
    );
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
            (Duration::from_secs(900), "15m0s"),
            (Duration::from_millis(3_661_500), "1h1m1.5s"),
            (Duration::from_micros(1500), "1.5ms"),
        ] {
            assert_eq!(go_duration(duration), expected);
        }
    }
}
