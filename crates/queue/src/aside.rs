//! Members that are in no queue, because their PodGroup has no root, or while it is being tried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_framework::Uid;

use crate::entry::QueuedPod;

/// Members in their order of arrival. Anyone can create many that wait here, so each is found
/// without a look at the others.
#[derive(Clone, Default)]
pub(crate) struct Aside {
    /// By number of arrival, with the keys of their PodGroups.
    members: BTreeMap<u64, (Arc<str>, QueuedPod)>,
    numbers: FxHashMap<Uid, u64>,
    by_group: BTreeMap<Arc<str>, BTreeSet<u64>>,
    /// The number of the next member.
    next: u64,
}

impl Aside {
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &QueuedPod> {
        self.members.values().map(|(_, member)| member)
    }

    pub(crate) fn get(&self, uid: &Uid) -> Option<&QueuedPod> {
        self.members.get(self.numbers.get(uid)?).map(|(_, member)| member)
    }

    pub(crate) fn get_mut(&mut self, uid: &Uid) -> Option<&mut QueuedPod> {
        self.members.get_mut(self.numbers.get(uid)?).map(|(_, member)| member)
    }

    /// Adds a member of the PodGroup with this key.
    pub(crate) fn push(&mut self, group: Arc<str>, member: QueuedPod) {
        let number = self.next;
        self.next += 1;
        self.numbers.insert(member.uid().clone(), number);
        self.by_group.entry(Arc::clone(&group)).or_default().insert(number);
        self.members.insert(number, (group, member));
    }

    pub(crate) fn remove(&mut self, uid: &Uid) -> Option<QueuedPod> {
        let number = self.numbers.remove(uid)?;
        let (group, member) = self.members.remove(&number)?;
        if let Some(numbers) = self.by_group.get_mut(&group) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_group.remove(&group);
            }
        }
        Some(member)
    }

    /// Takes the members of a PodGroup.
    pub(crate) fn take_group(&mut self, group: &str) -> Vec<QueuedPod> {
        let numbers = self.by_group.remove(group).unwrap_or_default();
        let members = numbers.iter().filter_map(|number| self.members.remove(number));
        let members: Vec<_> = members.map(|(_, member)| member).collect();
        for member in &members {
            self.numbers.remove(member.uid());
        }
        members
    }

    /// Takes all members.
    pub(crate) fn take_all(self) -> Vec<QueuedPod> {
        self.members.into_values().map(|(_, member)| member).collect()
    }

    /// Drops members.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&mut QueuedPod) -> bool) {
        let gone =
            self.members.values_mut().filter_map(|(_, member)| (!keep(member)).then(|| member.uid().clone()));
        for uid in gone.collect::<Vec<_>>() {
            self.remove(&uid);
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
            let member = QueuedPod::new(Arc::new(pod(name).build()), ProfileIndex(0), Timestamp::default());
            aside.push(group.into(), member);
        }
        let names =
            |members: &[QueuedPod]| members.iter().map(|it| it.pod.name.to_string()).collect::<String>();
        assert_eq!(aside.get(&"c".into()).map(|member| &*member.pod.name), Some("c"));
        assert!(aside.remove(&"d".into()).is_some() && aside.get_mut(&"d".into()).is_none());
        assert_eq!(names(&aside.take_group("g")), "ba");
        assert_eq!((aside.len(), aside.iter().count(), aside.get(&"a".into()).is_none()), (1, 1, true));
        aside.retain(|member| &*member.pod.name != "c");
        assert!(aside.by_group.is_empty() && aside.numbers.is_empty());
        assert_eq!(names(&aside.take_all()), "");
    }
}
