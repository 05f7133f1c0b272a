//! Detects a hung scheduler thread.
//!
//! The owner's thread reports each step, what the step is about, and when it is idle. A plugin that
//! never returns is not visible otherwise: nothing fails, and nothing is scheduled.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use supercargo_framework::objects::Object;
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_scheduler::{Input, Notification};
use thiserror::Error;
use tokio::time::{Instant, sleep};

/// Longest step, without calls to extenders.
const LONGEST_STEP: Duration = Duration::from_secs(30);
/// After this many times the longest step the process exits. The lease must become free even
/// without liveness probes.
const EXIT_FACTOR: u32 = 2;
/// Time between two checks before the process exits: the whole process may have been suspended, not
/// just this thread.
const LAST_CHECK: Duration = Duration::from_secs(1);
/// Marks a thread that waits for messages.
const IDLE: u64 = u64::MAX;

/// Updated by the owner's thread, read by health checks.
#[derive(Clone, Debug)]
pub struct Watchdog {
    zero: Instant,
    /// When the current step began, in milliseconds since `zero`, or [`IDLE`].
    step: Arc<AtomicU64>,
    subject: Arc<Mutex<Option<Subject>>>,
    longest_step: Duration,
}

/// What a step is about.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A cycle of this pod, or of its group.
    Cycle(Arc<PodInfo>),
    /// A change of a pod that waits for a node.
    Waiting(Arc<PodInfo>),
    /// A change of a pod that has a node, or is gone.
    Pod(Arc<PodInfo>),
    /// A change of a node.
    Node(Arc<NodeRecord>),
    /// A change of another object.
    Object(Arc<Object>),
}

impl Subject {
    /// The object that an informer reports. Other inputs are short.
    pub fn of(input: &Input) -> Option<Self> {
        match input {
            Input::AssignedPod(change) | Input::QueuedPod(change @ Notification::Deleted(_)) => {
                Some(Self::Pod(latest(change)))
            }
            Input::QueuedPod(change) => Some(Self::Waiting(latest(change))),
            Input::Node(change) => Some(Self::Node(latest(change))),
            Input::Object(change) => Some(Self::Object(latest(change))),
            _ => None,
        }
    }
}

fn latest<T>(change: &Notification<T>) -> Arc<T> {
    let (Notification::Added(object)
    | Notification::Updated { new: object, .. }
    | Notification::Deleted(object)) = change;
    Arc::clone(object)
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(pod) => write!(f, "while scheduling pod {}", pod.key()),
            Self::Waiting(pod) | Self::Pod(pod) => {
                write!(f, "while handling an update of pod {}", pod.key())
            }
            Self::Node(node) => write!(f, "while handling an update of node {}", node.name),
            Self::Object(object) => {
                write!(f, "while handling an update of {} {}", object.resource, object.key)
            }
        }
    }
}

/// The owner's thread hangs.
#[derive(Debug, Error)]
pub struct Stalled {
    /// For how long no call has begun or ended.
    pub stalled_for: Duration,
    subject: Option<Subject>,
}

impl Stalled {
    /// The pod that it tries, or whose update it handles. A pod that is bound or gone is tried no
    /// more.
    pub fn pod(&self) -> Option<&PodInfo> {
        match &self.subject {
            Some(Subject::Cycle(pod) | Subject::Waiting(pod)) => Some(pod),
            _ => None,
        }
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the scheduler has not advanced for {} s", self.stalled_for.as_secs())?;
        match &self.subject {
            Some(subject) => write!(f, " {subject}"),
            None => Ok(()),
        }
    }
}

impl Watchdog {
    /// For a thread that has not started. A call to an extender counts as a step and takes
    /// `longest_call` at most.
    pub fn new(longest_call: Duration) -> Self {
        let longest_step = LONGEST_STEP.saturating_add(longest_call);
        let step = Arc::new(AtomicU64::new(IDLE));
        Self { zero: Instant::now(), step, subject: Arc::default(), longest_step }
    }

    /// Marks the beginning of a step about `subject`.
    pub fn begin(&self, subject: Option<Subject>) {
        *self.subject.lock() = subject;
        self.tick();
    }

    /// Marks the beginning of a step about the same subject.
    pub fn tick(&self) {
        let millis = self.zero.elapsed().as_millis();
        self.step.store(u64::try_from(millis).unwrap_or(IDLE), Ordering::Relaxed);
    }

    /// Marks the thread as waiting for messages.
    pub fn idle(&self) {
        self.step.store(IDLE, Ordering::Relaxed);
    }

    /// The health check `scheduler`.
    pub fn check(&self, now: Instant) -> Result<(), Stalled> {
        let stalled_for = self.stalled_for(now);
        if stalled_for > self.longest_step { Err(self.stalled(stalled_for)) } else { Ok(()) }
    }

    /// Resolves when the thread has hung for so long that the process must exit.
    pub async fn expired(&self) -> Stalled {
        let limit = self.longest_step.saturating_mul(EXIT_FACTOR);
        loop {
            let (step, stalled_for) = (self.step.load(Ordering::Relaxed), self.stalled_for(Instant::now()));
            sleep(limit.saturating_sub(stalled_for).max(LAST_CHECK)).await;
            if stalled_for >= limit && self.step.load(Ordering::Relaxed) == step {
                return self.stalled(stalled_for);
            }
        }
    }

    fn stalled(&self, stalled_for: Duration) -> Stalled {
        Stalled { stalled_for, subject: self.subject.lock().clone() }
    }

    /// When the current step began.
    #[cfg(test)]
    pub fn step(&self) -> u64 {
        self.step.load(Ordering::Relaxed)
    }

    /// Duration of the current step so far.
    fn stalled_for(&self, now: Instant) -> Duration {
        match self.step.load(Ordering::Relaxed) {
            IDLE => Duration::ZERO,
            began => now.saturating_duration_since(self.zero + Duration::from_millis(began)),
        }
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::testing::{node, pod};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn check_fails_after_a_long_step_but_not_while_idle() {
        let watchdog = Watchdog::new(Duration::from_secs(5));
        let after = |seconds| Instant::now() + Duration::from_secs(seconds);
        assert!(watchdog.check(after(1000)).is_ok(), "not started");
        watchdog.tick();
        assert!(watchdog.check(after(35)).is_ok());
        let stalled = watchdog.check(after(36)).unwrap_err();
        assert_eq!(stalled.to_string(), "the scheduler has not advanced for 36 s");
        sleep(Duration::from_secs(36)).await;
        watchdog.tick();
        assert!(watchdog.check(Instant::now()).is_ok(), "next step");
        watchdog.idle();
        assert!(watchdog.check(after(1000)).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_subject_of_a_hung_step_is_named() {
        let watchdog = Watchdog::new(Duration::ZERO);
        let pod = Arc::new(pod("p").build());
        watchdog.begin(Some(Subject::Cycle(Arc::clone(&pod))));
        watchdog.tick();
        let stalled = watchdog.expired().await;
        assert_eq!(
            stalled.to_string(),
            "the scheduler has not advanced for 60 s while scheduling pod default/p"
        );
        assert_eq!(stalled.pod().map(PodInfo::key), Some(pod.key()));

        let node = Arc::new(node("n").build());
        let change = Notification::Updated { old: Arc::clone(&node), new: node };
        watchdog.begin(Subject::of(&Input::Node(change)));
        let stalled = watchdog.expired().await;
        assert!(stalled.to_string().ends_with(" 60 s while handling an update of node n"), "{stalled}");
        assert!(stalled.pod().is_none(), "no pod is to blame");

        watchdog.begin(None);
        assert!(watchdog.expired().await.to_string().ends_with(" 60 s"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_to_blame_only_while_it_waits_for_a_node() {
        let watchdog = Watchdog::new(Duration::ZERO);
        let pod = || Arc::new(pod("p").build());
        let updated = || Notification::Updated { old: pod(), new: pod() };
        let inputs = [
            (Input::QueuedPod(Notification::Added(pod())), true),
            (Input::QueuedPod(updated()), true),
            (Input::QueuedPod(Notification::Deleted(pod())), false),
            (Input::AssignedPod(updated()), false),
        ];
        for (input, is_to_blame) in inputs {
            watchdog.begin(Subject::of(&input));
            let stalled = watchdog.expired().await;
            assert!(stalled.to_string().ends_with(" while handling an update of pod default/p"), "{stalled}");
            assert_eq!(stalled.pod().is_some(), is_to_blame, "{input:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn watchdog_expires_after_a_hang_but_not_while_idle() {
        let watchdog = Watchdog::new(Duration::ZERO);
        let resting = tokio::time::timeout(Duration::from_hours(1), watchdog.expired());
        assert!(resting.await.is_err());
        watchdog.tick();
        let began = Instant::now();
        assert_eq!(watchdog.expired().await.to_string(), "the scheduler has not advanced for 60 s");
        assert_eq!(began.elapsed().as_secs(), 61);
    }
}
