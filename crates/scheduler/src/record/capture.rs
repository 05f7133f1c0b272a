//! The state of a scheduler as a record: calls that bring a new scheduler to it.

use std::collections::BTreeSet;
use std::io::BufRead;
use std::sync::Arc;

use supercargo_framework::objects::{Body, resources};
use supercargo_framework::{NodeRecord, Now, PodInfo, Text, Timestamp};

use super::{RecordedCall, ReplayError, SchedulerCall, perform, read};
use crate::fork::Fork;
use crate::input::{Input, Notification};
use crate::scheduler::{Options, Scheduler};
use supercargo_evaluation::cache::on_node;

impl Fork {
    /// Shows `call` the calls that bring a new scheduler to this state, the configuration first.
    ///
    /// Assumed pods are on their nodes. Places in the queue, attempts and backoff are left out:
    /// each pod without a node is new.
    pub fn capture(&mut self, configuration: String, mut call: impl FnMut(RecordedCall)) {
        let now = self.now();
        let mut show = |it| call(RecordedCall { now, call: it, effects: Vec::new() });
        show(SchedulerCall::Reconfigure(configuration));
        let mut add = |input| show(SchedulerCall::Handle(Box::new(input)));
        let scheduler = &mut self.scheduler;
        scheduler.cache.refreshed();
        let scheduler = &*scheduler;
        let nodes = scheduler.cache.nodes();
        for index in nodes.order() {
            let node = scheduler.cache.node_at(*index).node();
            add(Input::Node(Notification::Added(without_raw_node(node))));
        }
        let mut kinds: BTreeSet<Text> = scheduler.resources().into_iter().collect();
        kinds.insert(resources::POD_DISRUPTION_BUDGET);
        let objects = kinds.iter().flat_map(|kind| scheduler.objects.list(kind));
        // Nobody knows what is in kinds that only a plugin outside of the tree reads.
        for object in objects.filter(|object| !matches!(object.body, Body::Other(_))) {
            add(Input::Object(Notification::Added(Arc::clone(object))));
        }
        // Of a node in its own order, which breaks ties among victims.
        for index in nodes.order() {
            let node = scheduler.cache.node_at(*index);
            for pod in node.pods() {
                add(Input::AssignedPod(Notification::Added(without_raw(on_node(pod, node.name())))));
            }
        }
        // The informer may report a pod before its node.
        let placed = scheduler.cache.pods().filter_map(|pod| Some((pod, scheduler.cache.node_of(&pod.uid)?)));
        let mut others: Vec<_> = placed.filter(|(_, node)| nodes.get(node).is_none()).collect();
        others.sort_by_key(|(pod, _)| (pod.key(), pod.uid.clone()));
        for (pod, node) in others {
            add(Input::AssignedPod(Notification::Added(without_raw(on_node(pod, node)))));
        }
        for pod in self.pending() {
            add(Input::QueuedPod(Notification::Added(without_raw(pod))));
        }
        let entries = self.scheduler.timeline.entries().cloned().collect();
        show(SchedulerCall::Remember(entries));
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
}

/// Makes the calls of a capture, or of a part of a record, to `scheduler`, up to this time.
/// Effects are not compared: the configuration may be another one.
pub fn restore(
    scheduler: &mut Scheduler,
    record: impl BufRead,
    mut configure: impl FnMut(&str) -> Result<Options, String>,
    until: Option<Timestamp>,
) -> Result<Restored, ReplayError> {
    let mut restored = Restored::default();
    read(record, |line, step| {
        restored.is_over = until.is_some_and(|until| step.now.wall > until);
        if restored.is_over {
            return Ok(false);
        }
        (restored.steps, restored.now) = (line, step.now);
        perform(scheduler, step.now, step.call, line, &mut configure)?;
        scheduler.take_effects();
        Ok(true)
    })?;
    Ok(restored)
}
