//! What changes of groups mean for their queued pods.

use std::collections::BTreeSet;
use std::sync::Arc;

use supercargo_framework::objects::GroupKey;
use supercargo_framework::{PodInfo, Text};

use crate::SchedulingQueue;
use crate::context::QueueCx;

const UNSCHEDULED_POD_UPDATE: Text = Text::Static("UnscheduledPodUpdate");

impl SchedulingQueue {
    /// A group is new, changed or gone. `earlier` was the root of its tree before.
    pub fn group_changed(&mut self, cx: &mut QueueCx<'_>, group: &GroupKey, earlier: Option<&GroupKey>) {
        let root = cx.objects.forest().root_of(group);
        let leaves = cx.objects.forest().leaves(group);
        if let Some(earlier) = earlier.filter(|earlier| root.as_ref() != Some(*earlier)) {
            self.leave_tree(cx, earlier, &leaves);
        }
        let Some(root) = root else { return };
        for leaf in leaves {
            for member in self.groups.take_incomplete(&leaf) {
                self.add_new_member(cx, Arc::clone(&leaf), member);
            }
        }
        self.follow_priority(cx, &root);
    }

    /// The pods of some PodGroups are no longer in this tree: they wait for another root.
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
            self.put_back(cx, (queued, strategy), &UNSCHEDULED_POD_UPDATE);
        }
    }
}
