//! Members that are in no queue, because their PodGroup has no root, or while it is being tried.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_framework::Uid;

use crate::entry::QueuedPod;

/// The key of a member's PodGroup, and the number of its arrival.
type Slot = (Arc<str>, u64);

/// Members by PodGroup, and in their order of arrival. Anyone can create many that wait here, so
/// each is found without a look at the others.
#[derive(Clone, Default)]
pub(crate) struct Aside {
    members: BTreeMap<Slot, QueuedPod>,
    slots: FxHashMap<Uid, Slot>,
    /// The number of the next member.
    next: u64,
}

impl Aside {
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        self.members.values()
    }

    pub(crate) fn get(&self, uid: &Uid) -> Option<&QueuedPod> {
        self.members.get(self.slots.get(uid)?)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut QueuedPod> {
        self.members.get_mut(self.slots.get(uid)?)
    }

    /// Adds a member.
    pub(crate) fn push(&mut self, member: QueuedPod) {
        let slot = (member.pod.group_key().unwrap_or_default(), self.next);
        self.next += 1;
        self.slots.insert(member.uid().clone(), slot.clone());
        self.members.insert(slot, member);
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<QueuedPod> {
        self.members.remove(&self.slots.remove(uid)?)
    }

    /// Takes the members of a PodGroup.
    pub(crate) fn take_group(&mut self, group: &Arc<str>) -> Vec<QueuedPod> {
        let [first, last] = [0, u64::MAX].map(|number| (Arc::clone(group), number));
        let taken = self.members.extract_if(first..=last, |_, _| true);
        let members: Vec<_> = taken.map(|(_, member)| member).collect();
        for member in &members {
            self.slots.remove(member.uid());
        }
        members
    }

    /// Takes all members.
    pub(crate) fn take_all(self) -> Vec<QueuedPod> {
        self.members.into_values().collect()
    }

    /// Drops members.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut QueuedPod) -> bool) {
        for (_, gone) in self.members.extract_if(.., |_, member| !keep(member)) {
            self.slots.remove(gone.uid());
        }
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::pod;
    use supercargo_runtime::profile::ProfileIndex;

    use super::*;

    #[test]
    fn members_are_found_and_taken_in_their_order_of_arrival() {
        let mut aside = Aside::default();
        for (group, name) in [("g", "b"), ("h", "c"), ("g", "a"), ("g", "d")] {
            let pod = Arc::new(pod(name).group(group).build());
            aside.push(QueuedPod::new(pod, ProfileIndex(0), Timestamp::default()));
        }
        let names =
            |members: &[QueuedPod]| members.iter().map(|it| it.pod.name.to_string()).collect::<String>();
        assert_eq!(aside.get(&"c".into()).map(|member| &*member.pod.name), Some("c"));
        assert!(aside.remove(&"d".into()).is_some() && aside.get_mut(&"d".into()).is_none());
        assert_eq!(names(&aside.take_group(&"default/g".into())), "ba");
        assert_eq!((aside.len(), aside.iter().count(), aside.get(&"a".into()).is_none()), (1, 1, true));
        aside.retain(|member| &*member.pod.name != "c");
        assert!(aside.slots.is_empty());
        assert_eq!(names(&aside.take_all()), "");
    }
}
