//! Why the group of a pod does not start: all of its pods that wait are tried as one.

use std::sync::Arc;

use supercargo_framework::objects::{Counted, GroupKey, GroupSpec};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{Code, Feature, Now, PodInfo, Timestamp};
use supercargo_queue::{QueuedPod, sort_members};
use supercargo_runtime::failure::Failure;

use crate::group_cycle::TriedGroup;
use crate::group_tree::{GroupFailure, GroupNode, Placed};
use crate::scheduler::Scheduler;
use supercargo_evaluation::extender::NoCalls;

/// What a trial of a pod's group shows.
#[derive(Clone, Debug)]
pub struct WhyGroup {
    /// The group that is tried as one: the pod's PodGroup, or the root of its tree.
    pub key: GroupKey,
    /// How many of its pods, or groups, must be scheduled at once; 1 if any of them may be.
    pub min_count: i32,
    /// The number of its pods on nodes.
    pub scheduled: usize,
    /// The number of its pods that wait.
    pub waiting: usize,
    /// How many of them got a node in the trial, each beside those before it.
    pub placed: usize,
    /// The node that the pod itself got.
    pub node: Option<Arc<str>>,
    /// What keeps the group from its start; `None` if it would start now.
    pub obstacle: Option<Obstacle>,
    /// The first of its pods that no node took, and the message of that pod.
    pub refused: Option<(PodKey, String)>,
}

/// What keeps a group from its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The group, or one above it, does not exist.
    Missing,
    /// There are fewer pods, or groups, than must be scheduled at once.
    Incomplete,
    /// This many of its pods wait for scheduling gates.
    Gated(usize),
    /// Too few fit. The message of the group's condition (upstream's text), and whether preemption
    /// would make room.
    Unschedulable(String, bool),
    /// Something failed, as pods that do not agree.
    Error(String),
}

impl WhyGroup {
    fn new(key: GroupKey, obstacle: Option<Obstacle>) -> Self {
        let (min_count, scheduled, waiting, placed) = (1, 0, 0, 0);
        Self { key, min_count, scheduled, waiting, placed, node: None, obstacle, refused: None }
    }
}

impl Scheduler {
    /// Tries the group of a pod without a node. `None` if the pod has no group, or groups are off.
    /// Nothing but the turn of the group's placements changes.
    pub(super) fn why_group(&mut self, now: Now, pod: &Arc<PodInfo>) -> Option<WhyGroup> {
        if !self.features.enabled(Feature::GenericWorkload) {
            return None;
        }
        let leaf = GroupKey::of_pods(pod.group_key()?);
        let forest = self.objects.forest();
        let Some(key) = forest.root_of(&leaf) else {
            return Some(WhyGroup::new(leaf, Some(Obstacle::Missing)));
        };
        let min_count = forest.spec(&key).map_or(1, GroupSpec::min_count);
        let is_complete = forest.has_quorum(&key, Counted::Known);
        let members = self.waiting_members(&key, pod);
        let (root, members, _) = GroupNode::new(self.objects.forest(), &key, members);
        let scheduled = root.leaves().iter().map(|leaf| self.scheduled_pods(&leaf.key.key).count()).sum();
        let waiting = members.len();
        let gated = members.iter().filter(|member| !member.pod.scheduling_gates.is_empty()).count();
        let mut why = WhyGroup { min_count, scheduled, waiting, ..WhyGroup::new(key, None) };
        if !is_complete {
            why.obstacle = Some(Obstacle::Incomplete);
            return Some(why);
        }
        self.try_for(&mut why, now, pod, root, members);
        if gated > 0 && why.obstacle.is_none() {
            why.obstacle = Some(Obstacle::Gated(gated));
        }
        Some(why)
    }

    fn try_for(
        &mut self,
        why: &mut WhyGroup,
        now: Now,
        pod: &PodInfo,
        mut root: GroupNode,
        mut members: Vec<QueuedPod>,
    ) {
        if let Err(error) = self.validate_group(&root, &members) {
            why.obstacle = Some(Obstacle::Error(error));
            return;
        }
        self.require_minimum(&mut root, &members);
        let mut group = TriedGroup { root: &root, members: &mut members };
        let trial = self.try_root(now, &mut group, &mut NoCalls);
        why.obstacle = match &trial.refusal {
            None => None,
            Some(GroupFailure::Error(error)) => Some(Obstacle::Error(error.clone())),
            Some(GroupFailure::Unschedulable(message)) => {
                let ((_, status), _) = self.run_group_post_filters(now, &mut group, &trial, &mut NoCalls);
                Some(Obstacle::Unschedulable(message.clone(), status.code() == Code::Success))
            }
        };
        self.objects.end_sharing();
        for (member, result) in trial.tried(&root) {
            let tried = &members[member].pod;
            match result {
                Ok(Placed { node, .. }) => {
                    why.placed += 1;
                    why.node = why.node.take().or_else(|| (tried.uid == pod.uid).then(|| Arc::clone(node)));
                }
                Err(Failure { kind, .. }) if why.refused.is_none() => {
                    why.refused = Some((tried.key(), kind.to_string()));
                }
                Err(_) => {}
            }
        }
    }

    /// The pods of a tree that have no node, in the order in which they are tried, and this pod.
    fn waiting_members(&self, root: &GroupKey, pod: &Arc<PodInfo>) -> Vec<QueuedPod> {
        let leaves = self.objects.forest().leaves(root);
        let is_member = |it: &&Arc<PodInfo>| {
            let is_in_tree = it.group_key().is_some_and(|key| leaves.contains(&key));
            is_in_tree && !it.terminating && it.uid != pod.uid && self.cache.node_of(&it.uid).is_none()
        };
        let known = self.pending.values().chain(self.unclaimed_pods.values()).filter(is_member);
        let queued = |pod: &Arc<PodInfo>| {
            let known = self.queue.get(&pod.uid).cloned();
            known.unwrap_or_else(|| {
                QueuedPod::new(Arc::clone(pod), self.answering_profile(pod), Timestamp::default())
            })
        };
        let mut members: Vec<QueuedPod> = known.chain([pod]).map(queued).collect();
        sort_members(&mut members);
        members
    }
}
