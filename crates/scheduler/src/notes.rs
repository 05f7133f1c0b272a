//! What the scheduler notes in its [`Timeline`](supercargo_timeline::Timeline).

use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo, Text};
use supercargo_queue::QueuedPod;
use supercargo_timeline::{Attempt, Happening, History};

use crate::scheduler::Scheduler;

/// The attempt that is being made.
pub(crate) fn attempt_of(queued: &QueuedPod) -> Attempt {
    Attempt { number: queued.attempts, after_flush: queued.flushed }
}

impl Scheduler {
    /// What happened to the pods of this name; `None` if it is not noted.
    pub fn history(&self, pod: &PodKey) -> Option<History> {
        (!self.timeline.is_off()).then(|| self.timeline.of(pod))
    }

    /// Notes that something happened to a pod.
    pub(crate) fn note(&mut self, now: Now, pod: &PodInfo, what: Happening<&str>) {
        if !self.timeline.is_off() {
            self.timeline.push(now.wall, &pod.namespace, &pod.name, &what);
        }
    }

    /// The PreEnqueue plugin that holds a pod, if the timeline is on.
    pub(crate) fn gate(&self, pod: &PodInfo) -> Option<Text> {
        let queued = self.queue.get(&pod.uid).filter(|_| !self.timeline.is_off())?;
        queued.gating_plugin.clone()
    }

    /// Notes that the gate of a pod is another one than `before`.
    pub(crate) fn note_gate(&mut self, now: Now, pod: &PodInfo, before: Option<&Text>) {
        let gate = self.gate(pod);
        if gate.as_ref() != before {
            self.note(now, pod, gate.as_deref().map_or(Happening::Released, Happening::Gated));
        }
    }
}
