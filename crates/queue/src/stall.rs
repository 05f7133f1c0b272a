//! Pods during whose attempt or update a scheduler made no progress and had to end.
//!
//! Such a pod would end each process that meets it. So the process that ends marks it in its
//! PodScheduled condition, and the next one tries the pod last, after a delay.

use std::time::Duration;

use supercargo_framework::pod::PodCondition;
use supercargo_framework::{PodInfo, Timestamp};

/// The reason in the condition.
const REASON: &str = "SchedulerStalled";

/// The least and the greatest delay of such a pod. Each process that ends over it doubles the
/// delay, because the condition keeps its transition time.
const DELAYS: (Duration, Duration) = (Duration::from_mins(5), Duration::from_hours(1));

/// How long a process that meets a marked pod schedules others only.
pub fn delay(pod: &PodInfo, now: Timestamp) -> Duration {
    let marked = pod.status.pod_scheduled.as_ref().and_then(|condition| condition.last_transition);
    marked.map_or(DELAYS.0, |since| now.since(since).clamp(DELAYS.0, DELAYS.1))
}

/// The condition that marks a pod whose attempt or update has taken `stalled_for`.
pub fn condition(pod: &PodInfo, stalled_for: Duration, now: Timestamp) -> PodCondition {
    let current = pod.status.pod_scheduled.as_ref().filter(|condition| &*condition.status == "False");
    let message = format!(
        "the scheduler made no progress with this pod for {} s and restarts; the pod is tried again after all others",
        stalled_for.as_secs()
    );
    PodCondition {
        status: "False".into(),
        reason: REASON.into(),
        message: message.into(),
        observed_generation: (pod.generation > 0).then_some(pod.generation),
        // The transition time follows the status, not the reason.
        last_transition: current.map_or(Some(now.floor_to_second()), |condition| condition.last_transition),
    }
}

/// Whether the pod is marked. A mark does not outlast a change of the pod's spec.
pub fn is_stalled(pod: &PodInfo) -> bool {
    pod.status.pod_scheduled.as_ref().is_some_and(|condition| {
        &*condition.status == "False"
            && &*condition.reason == REASON
            && condition.observed_generation.is_none_or(|generation| generation >= pod.generation)
    })
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::pod;

    use super::*;

    #[test]
    fn a_mark_is_recognized_until_the_spec_changes() {
        let now = Timestamp(1_700_000_000_500_000);
        let at_generation = |generation| PodInfo { generation, ..pod("a").build() };
        let mut marked = at_generation(3);
        assert!(!is_stalled(&marked));
        let mark = condition(&marked, Duration::from_mins(1), now);
        marked.status.pod_scheduled = Some(mark.clone());
        assert!(is_stalled(&marked));
        assert!(!is_stalled(&PodInfo { status: marked.status.clone(), ..at_generation(4) }));
        assert_eq!(mark.last_transition, Some(Timestamp(1_700_000_000_000_000)));
        let again = condition(&marked, Duration::from_mins(1), now.plus(Duration::from_hours(1)));
        assert_eq!(again.last_transition, mark.last_transition, "the status stays");
    }

    #[test]
    fn the_delay_doubles_with_each_process_that_ends() {
        let mut now = Timestamp(1_700_000_000_000_000);
        let mut marked = pod("a").build();
        let mut delays = Vec::new();
        for _ in 0..6 {
            marked.status.pod_scheduled = Some(condition(&marked, Duration::from_mins(1), now));
            delays.push(delay(&marked, now).as_secs() / 60);
            now = now.plus(delay(&marked, now));
        }
        assert_eq!(delays, [5, 5, 10, 20, 40, 60]);
    }
}
