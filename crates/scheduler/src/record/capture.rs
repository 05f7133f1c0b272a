//! The state of a scheduler as a record: calls that bring a new scheduler to it.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::ops::ControlFlow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supercargo_framework::objects::{Body, Object, resources};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{NodeRecord, Now, PodInfo, Text, Timestamp, Uid};

use super::{Content, RecordedCall, ReplayError, SchedulerCall, perform, read};
use crate::fork::Fork;
use crate::input::{Input, Notification};
use crate::scheduler::{Options, Scheduler};
use supercargo_evaluation::cache::on_node;
use supercargo_queue::Nominated;
use supercargo_timeline::Entry;

/// What a scheduler knows beside the objects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Memory {
    /// Nodes and a pod that is nominated for each, in order. The API may not have them yet.
    nominations: Vec<(Arc<str>, PodKey, Uid)>,
    /// Pods without a node that are in no queue, such as those that are being deleted.
    unqueued: Vec<Uid>,
    /// Claims with the allocations that bindings are about to write.
    allocations: Vec<Arc<Object>>,
    /// What happened to pods.
    timeline: Vec<Entry>,
    /// When the log began, if older entries have been dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeline_begin: Option<Timestamp>,
}

impl Memory {
    /// The same with other allocations.
    pub(super) fn with_allocations(self, change: impl Fn(&Object) -> Object) -> Self {
        let allocations = self.allocations.iter().map(|claim| Arc::new(change(claim))).collect();
        Self { allocations, ..self }
    }
}

impl Scheduler {
    fn memory(&self) -> Memory {
        let nomination =
            |(node, pod): (&Arc<str>, &Nominated)| (Arc::clone(node), pod.key.clone(), pod.uid.clone());
        Memory {
            nominations: self.queue.nominator.all().map(nomination).collect(),
            unqueued: self.unqueued(),
            allocations: self.objects.list_pending().cloned().collect(),
            timeline: self.timeline.notes().map(|note| note.entry()).collect(),
            timeline_begin: self.timeline.begin(),
        }
    }

    fn unqueued(&self) -> Vec<Uid> {
        let is_in_no_queue = |pod: &&Arc<PodInfo>| {
            self.queue.get(&pod.uid).is_none() && self.cache.node_of(&pod.uid).is_none()
        };
        let mut pods: Vec<_> = self.pending.values().filter(is_in_no_queue).collect();
        pods.sort_by_key(|pod| pod.key());
        pods.into_iter().map(|pod| pod.uid.clone()).collect()
    }

    /// Takes over what another scheduler knew.
    pub(super) fn remember(&mut self, now: Now, memory: Memory) {
        for uid in &memory.unqueued {
            self.with_queue(now, |queue, cx| queue.delete(cx, uid));
        }
        let nominations = memory.nominations.into_iter();
        self.queue.nominator.replace(nominations.map(|(node, key, uid)| (node, Nominated { key, uid })));
        for claim in memory.allocations {
            self.cache.note_object(&claim);
            self.objects.add_pending(claim);
        }
        self.timeline.replace(&memory.timeline, memory.timeline_begin);
    }
}

impl Fork {
    /// Shows `call` the calls that bring a new scheduler to this state, the configuration first,
    /// until it breaks.
    ///
    /// Assumed pods are on their nodes. Places in the queue, attempts and backoff are left out:
    /// each pod without a node is new.
    pub fn capture<B>(
        &mut self,
        configuration: String,
        mut call: impl FnMut(RecordedCall) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let now = self.now();
        let mut show = |it| call(RecordedCall { now, call: it, effects: Vec::new() });
        let features = Some(self.features().clone());
        show(SchedulerCall::Begin(Content::Capture, configuration, features))?;
        let mut add = |input| show(SchedulerCall::Handle(Box::new(input)));
        let scheduler = &mut self.scheduler;
        scheduler.cache.refreshed();
        let scheduler = &*scheduler;
        let nodes = scheduler.cache.nodes();
        for index in nodes.order() {
            let node = scheduler.cache.node_at(*index).node();
            add(Input::Node(Notification::Added(without_raw_node(node))))?;
        }
        let mut kinds: BTreeSet<Text> = scheduler.resources().into_iter().collect();
        kinds.insert(resources::POD_DISRUPTION_BUDGET);
        let objects = kinds.iter().flat_map(|kind| scheduler.objects.list(kind));
        // Nobody knows what is in kinds that only a plugin outside of the tree reads.
        for object in objects.filter(|object| !matches!(object.body, Body::Other(_))) {
            add(Input::Object(Notification::Added(Arc::clone(object))))?;
        }
        // Of a node in its own order, which breaks ties among victims.
        for index in nodes.order() {
            let node = scheduler.cache.node_at(*index);
            for pod in node.pods() {
                add(Input::AssignedPod(Notification::Added(without_raw(on_node(pod, node.name())))))?;
            }
        }
        // The informer may report a pod before its node.
        let placed = scheduler.cache.pods().filter_map(|pod| Some((pod, scheduler.cache.node_of(&pod.uid)?)));
        let mut others: Vec<_> = placed.filter(|(_, node)| nodes.get(node).is_none()).collect();
        others.sort_by_key(|(pod, _)| (pod.key(), pod.uid.clone()));
        for (pod, node) in others {
            add(Input::AssignedPod(Notification::Added(without_raw(on_node(pod, node)))))?;
        }
        for pod in self.pending() {
            add(Input::QueuedPod(Notification::Added(without_raw(pod))))?;
        }
        show(SchedulerCall::Remember(Box::new(self.scheduler.memory())))
    }
}

/// The pod as the scheduler reads it. The whole pod, which some extenders get, has the environment
/// of its containers.
fn without_raw(pod: Arc<PodInfo>) -> Arc<PodInfo> {
    if pod.raw.is_none() { pod } else { Arc::new(PodInfo { raw: None, ..PodInfo::clone(&pod) }) }
}

fn without_raw_node(node: &Arc<NodeRecord>) -> Arc<NodeRecord> {
    if node.raw.is_none() {
        Arc::clone(node)
    } else {
        Arc::new(NodeRecord { raw: None, ..NodeRecord::clone(node) })
    }
}

/// What has been read of a record or a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// The number of calls.
    pub steps: usize,
    /// The time of the last one.
    pub now: Now,
    /// Whether a later one than wanted follows.
    pub is_over: bool,
    /// Whether a record ends within a line, as after a crash.
    pub is_cut: bool,
}

/// Makes the calls of a capture, or of a part of a record, to `scheduler`, up to this time. As for
/// [`replay`](super::replay), the first part creates it. Effects are not compared: the
/// configuration may be another one.
pub fn restore(
    scheduler: &mut Option<Scheduler>,
    record: impl BufRead,
    configure: impl FnMut(&str) -> Result<Options, String>,
    until: Option<Timestamp>,
) -> Result<Restored, ReplayError> {
    restore_with(scheduler, record, configure, until, |_, _| {})
}

/// The same, and shows `after` the scheduler and what has been read after each call.
pub fn restore_with(
    scheduler: &mut Option<Scheduler>,
    record: impl BufRead,
    mut configure: impl FnMut(&str) -> Result<Options, String>,
    until: Option<Timestamp>,
    mut after: impl FnMut(&Scheduler, &Restored),
) -> Result<Restored, ReplayError> {
    let mut restored = Restored::default();
    let mut is_incomplete = false;
    let lines = read(record, |line, step| {
        restored.is_over = until.is_some_and(|until| step.now.wall > until);
        if restored.is_over {
            return Ok(false);
        }
        (restored.steps, restored.now) = (line, step.now);
        match step.call {
            SchedulerCall::Begin(Content::Capture, ..) => is_incomplete = true,
            SchedulerCall::Remember(_) => is_incomplete = false,
            _ => {}
        }
        let scheduler = perform(scheduler, step.now, step.call, line, &mut configure)?;
        scheduler.take_effects();
        after(scheduler, &restored);
        Ok(true)
    })?;
    if is_incomplete {
        return Err(ReplayError::CutCapture { lines: lines.steps });
    }
    Ok(Restored { is_cut: lines.is_cut, ..restored })
}
