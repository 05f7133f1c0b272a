//! What changes of groups mean for their queued pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::objects::GroupKey;
use supercargo_framework::{PodInfo, Text};

use crate::SchedulingQueue;
use crate::context::QueueCx;
use crate::queueing_strategy::QueueingStrategy;

const UNSCHEDULED_POD_UPDATE: Text = Text::Static("UnscheduledPodUpdate");

impl SchedulingQueue {
    /// A group is new or gone, or its parent is another one. `earlier` was the root of its tree
    /// before.
    pub fn group_moved(&mut self, cx: &mut QueueCx<'_>, group: &GroupKey, earlier: Option<&GroupKey>) {
        let forest = cx.objects.forest();
        let root = forest.root_of(group);
        // A PodGroup below can have become too deep for the tree that the group is in.
        let has_root =
            |leaf: &Arc<str>| root.is_some() && forest.root_of(&GroupKey::of_pods(Arc::clone(leaf))) == root;
        let (here, mut gone): (BTreeSet<_>, BTreeSet<_>) =
            forest.leaves(group).into_iter().partition(has_root);
        if let Some(earlier) = earlier {
            if root.as_ref() != Some(earlier) {
                gone.extend(here.iter().cloned());
            }
            self.leave_tree(cx, earlier, &gone);
        }
        let Some(root) = root else { return };
        let members = here.iter().flat_map(|leaf| self.groups.take_incomplete(leaf)).collect();
        self.add_new_members(cx, &root, members);
        self.follow_priority(cx, &root);
    }

    /// A group changed, but its parent is the same.
    pub fn group_updated(&mut self, cx: &mut QueueCx<'_>, group: &GroupKey) {
        if cx.objects.forest().root_of(group).as_ref() == Some(group) {
            self.follow_priority(cx, group);
        }
    }

    /// The pods of some PodGroups are no longer in this tree: they wait for another root.
    /// PreEnqueue asks the others again, even if there were none.
    fn leave_tree(&mut self, cx: &mut QueueCx<'_>, root: &GroupKey, leaves: &BTreeSet<Arc<str>>) {
        let entry = self.groups.uid_of(root);
        let mut members = self.groups.take_pending_of(&entry, leaves);
        if let Some(taken) = self.take_group(&entry) {
            members = self.groups.take_members_of(&entry, leaves);
            self.put_back(cx, taken, &UNSCHEDULED_POD_UPDATE);
        }
        self.groups.add_incomplete(members);
    }

    /// The root of a tree may have another priority.
    fn follow_priority(&mut self, cx: &mut QueueCx<'_>, root: &GroupKey) {
        let entry = self.groups.uid_of(root);
        let known = self.entries.get(&entry).map(|entry| entry.pod.priority);
        if let Some(spec) = cx.objects.forest().spec(root)
            && known.is_some_and(|known| known != spec.priority)
            && let Some((mut queued, strategy)) = self.take_group(&entry)
        {
            queued.pod = Arc::new(PodInfo { priority: spec.priority, ..PodInfo::clone(&queued.pod) });
            queued.stays = strategy == QueueingStrategy::Skip;
            self.put_back(cx, (queued, strategy), &UNSCHEDULED_POD_UPDATE);
        }
    }
}
