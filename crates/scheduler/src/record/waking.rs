//! What woke a pod, as a record shows it.

use std::sync::Arc;

use supercargo_framework::pod::PodKey;
use supercargo_framework::{Now, PodInfo};

use super::{RecordedCall, SchedulerCall};
use crate::input::{Input, Notification};
use crate::scheduler::Scheduler;
use crate::timeline::Happening;
use supercargo_queue::Place;

/// Watches a pod during a replay, and notes in its history which input made it worth another
/// attempt.
pub struct Waking {
    pod: PodKey,
    /// The pod's place before the last call.
    place: Option<Place>,
    /// The last call, if it was an input.
    last: Option<(Now, String)>,
}

impl Waking {
    /// Watches the pods of this name.
    pub fn of(pod: PodKey) -> Self {
        Self { pod, place: None, last: None }
    }

    /// To be called with each recorded call before it is made, and after the last one without.
    pub fn before(&mut self, scheduler: &mut Scheduler, next: Option<&RecordedCall>) {
        let pod = scheduler.pending.get(&self.pod).cloned();
        let place = pod.as_ref().and_then(|pod| scheduler.place(&pod.uid));
        let waits = matches!(self.place, Some(Place::Unschedulable));
        let wakes = matches!(place, Some(Place::Active | Place::Backoff));
        if let (Some(pod), Some((now, cause)), true) = (pod, self.last.take(), waits && wakes) {
            scheduler.note(now, &pod, Happening::Woken(&cause));
        }
        self.place = place;
        self.last = next.and_then(|call| Some((call.now, cause(call)?)));
    }
}

/// An input in words; `None` for other calls, which wake nobody.
fn cause(RecordedCall { call, .. }: &RecordedCall) -> Option<String> {
    match call {
        SchedulerCall::Handle(input) => Some(input_text(input)),
        SchedulerCall::Reconfigure(_) => Some("the configuration was replaced".to_owned()),
        SchedulerCall::Begin(..) | SchedulerCall::ScheduleOne(_) | SchedulerCall::Remember(_) => None,
    }
}

fn input_text(input: &Input) -> String {
    match input {
        Input::AssignedPod(it) => change(it, |pod: &PodInfo| {
            let node = pod.node_name.as_deref().unwrap_or_default();
            format!("pod {} on {node}", pod.key())
        }),
        Input::QueuedPod(it) => change(it, |pod| format!("pod {}", pod.key())),
        Input::Node(it) => change(it, |node| format!("node {}", node.name)),
        Input::Object(it) => change(it, |object| format!("{} {}", object.resource, object.key)),
        Input::Written(object) => format!("{} {} was written", object.resource, object.key),
        Input::Tick => "it had waited long enough".to_owned(),
        Input::Evicted { .. } => "victims of a preemption were deleted".to_owned(),
        Input::WriteEnded { .. }
        | Input::BindingReport(_)
        | Input::PreBound { .. }
        | Input::Bound { .. }
        | Input::PodRead { .. }
        | Input::Drain => "the binding of a pod made progress".to_owned(),
    }
}

fn change<T>(notification: &Notification<T>, name: impl Fn(&T) -> String) -> String {
    let (object, verb): (&Arc<T>, _) = match notification {
        Notification::Added(object) => (object, "added"),
        Notification::Updated { new, .. } => (new, "updated"),
        Notification::Deleted(object) => (object, "deleted"),
    };
    format!("{} was {verb}", name(object))
}
