//! Handles failed attempts: upstream's FailureHandler.

use std::sync::Arc;

use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_framework::{Feature, Now, PodInfo};
use supercargo_timeline::Happening;

use crate::effect::EventType;
use crate::notes::attempt_of;
use crate::scheduler::Scheduler;
use supercargo_queue::QueuedPod;
use supercargo_runtime::failure::{Failure, FailureKind};
use supercargo_runtime::observer::{AttemptResult, Observation, Timespan};

/// The longest note of an event, in bytes.
const MAX_NOTE: usize = 1024;

impl Scheduler {
    /// Requeues the pod, and reports the failure as an event and a condition.
    pub(crate) fn fail(&mut self, now: Now, mut queued: QueuedPod, failure: Failure) {
        let Failure { kind, nomination } = failure;
        let mut message = kind.to_string();
        let (result, mut reason) = if kind.is_rejection() {
            (AttemptResult::Unschedulable, "Unschedulable")
        } else {
            (AttemptResult::Error, "SchedulerError")
        };
        self.observe_attempt(&queued, result, None, &message, now);
        self.note(now, &queued.pod, Happening::Failed(&message, attempt_of(&queued)));
        let gone = matches!(kind, FailureKind::Gone);
        queued.blame(kind);
        // A pod that is gone, replaced or bound is not requeued, and nothing is reported.
        let Some(pod) = self.known(&queued.pod).filter(|pod| !self.cache.is_confirmed(&pod.uid)).cloned()
        else {
            self.queue.done(queued.uid());
            return;
        };
        let Some(profile) = self.profile_of(&pod) else {
            self.queue.done(queued.uid());
            return self.unclaim(pod);
        };
        if self.profiles.is_retired(queued.profile) {
            // No event that a replaced profile registered for helps: only the backoff does.
            queued.unschedulable_plugins.clear();
            queued.pending_plugins.clear();
        }
        queued.profile = profile;
        queued.pod = Arc::clone(&pod);
        self.with_queue(now, |queue, cx| queue.add_unschedulable(cx, queued));
        if let Some(panic) = self.plugin_panic.take() {
            (message, reason) = (panic, "SchedulerError");
        }
        self.queue.nominator.add(&pod, &nomination);
        if gone {
            return;
        }
        self.record_event(&pod, EventType::Warning, "FailedScheduling", "Scheduling", truncated(&message));
        self.patch_failed(now, &pod, reason, message, nomination);
    }

    /// Patches the PodScheduled condition and the nomination, unless both are up to date. As
    /// upstream, a new generation alone is no reason for a patch, but goes along with one.
    fn patch_failed(
        &mut self,
        now: Now,
        pod: &PodInfo,
        reason: &str,
        message: String,
        nomination: Nomination,
    ) {
        let current = pod.status.pod_scheduled.as_ref();
        let still_false = current.filter(|condition| &*condition.status == "False");
        // Keep observedGeneration once written: a patch cannot clear it.
        let writes_generation = self.features.enabled(Feature::PodObservedGenerationTracking)
            || current.is_some_and(|condition| condition.observed_generation.is_some_and(|it| it != 0));
        let condition = PodCondition {
            status: "False".into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: writes_generation.then_some(pod.generation),
            // The transition time follows the status, not the reason.
            last_transition: still_false
                .map_or(Some(now.wall.floor_to_second()), |condition| condition.last_transition),
        };
        let renominates = self.changes_nomination(pod, &nomination);
        let is_news = self.changes_condition(pod, &condition);
        let generation = |condition: &PodCondition| condition.observed_generation.unwrap_or_default();
        let is_newer = current.is_some_and(|known| generation(known) != generation(&condition));
        if is_news || renominates {
            let condition = (is_news || is_newer).then_some(condition);
            let nomination = if renominates { nomination } else { Nomination::Keep };
            self.patch_status(pod, condition, nomination);
        }
    }

    pub(crate) fn observe_attempt(
        &mut self,
        queued: &QueuedPod,
        result: AttemptResult,
        node: Option<&str>,
        message: &str,
        now: Now,
    ) {
        let now = self.queue.steady(now);
        let since_first_attempt = queued.initial_attempt.map(|first| now.wall.since(first));
        self.observer.observe(Observation::Attempt {
            profile: queued.profile.0,
            result,
            pod: &queued.pod,
            attempts: queued.attempts,
            node,
            message,
            since_first_attempt,
            after_flush: queued.flushed,
            took: Timespan { from: queued.began, to: self.observer.time_point() },
        });
    }
}

/// The message as an event's note: truncated to the API's limit at a character boundary.
fn truncated(message: &str) -> String {
    const SUFFIX: &str = " ...";
    if message.len() <= MAX_NOTE {
        return message.to_owned();
    }
    let end = (0..=MAX_NOTE - SUFFIX.len()).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
    format!("{}{SUFFIX}", &message[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_note_is_truncated_to_the_limit() {
        assert_eq!(truncated("short"), "short");
        let long = truncated(&"x".repeat(2000));
        assert_eq!((long.len(), &long[1020..]), (1024, " ..."));
        assert!(truncated(&"é".repeat(1000)).len() <= 1024);
    }
}
