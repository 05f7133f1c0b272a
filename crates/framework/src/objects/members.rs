//! The pods of each group.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::pod::PodInfo;
use crate::uid::Uid;

/// How far a member of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberStage {
    /// It has no node.
    Unscheduled,
    /// It is assumed on a node.
    Assumed,
    /// It is on a node, as the informer reported.
    Assigned,
}

/// The pods of a group (upstream's podGroupState). Pods of other schedulers count once they have a
/// node.
#[derive(Clone, Debug, Default)]
pub struct Members {
    pods: FxHashMap<Uid, MemberStage>,
    scheduled: usize,
}

impl Members {
    /// The number of pods.
    pub fn all(&self) -> usize {
        self.pods.len()
    }

    /// The number of pods that are on a node or assumed on one.
    pub fn scheduled(&self) -> usize {
        self.scheduled
    }

    /// The pods that are on a node or assumed on one.
    pub fn scheduled_pods(&self) -> impl Iterator<Item = &Uid> + Clone {
        self.pods.iter().filter(|(_, stage)| **stage != MemberStage::Unscheduled).map(|(uid, _)| uid)
    }

    fn set(&mut self, pod: &PodInfo, stage: Option<MemberStage>) {
        let is_scheduled = |stage: MemberStage| stage != MemberStage::Unscheduled;
        let old = match stage {
            Some(stage) => self.pods.insert(pod.uid.clone(), stage),
            None => self.pods.remove(&pod.uid),
        };
        self.scheduled += usize::from(stage.is_some_and(is_scheduled));
        self.scheduled -= usize::from(old.is_some_and(is_scheduled));
    }
}

/// The pods of all groups, by the key of the group (`namespace/name`). A group is here as soon as a
/// pod names it, with or without its object.
#[derive(Clone, Debug, Default)]
pub struct MembersByGroup(BTreeMap<Arc<str>, Members>);

impl MembersByGroup {
    /// The pods of a group.
    pub fn get(&self, group: &str) -> Option<&Members> {
        self.0.get(group)
    }

    /// Sets how far a pod of a group is; `None` removes it.
    pub(super) fn set(&mut self, group: Arc<str>, pod: &PodInfo, stage: Option<MemberStage>) {
        if stage.is_some() {
            self.0.entry(group).or_default().set(pod, stage);
        } else if let Some(members) = self.0.get_mut(&group) {
            members.set(pod, None);
            if members.pods.is_empty() {
                self.0.remove(&group);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn scheduled_members_are_assumed_or_assigned() {
        let mut groups = MembersByGroup::default();
        let counts = |groups: &MembersByGroup| groups.get("default/g").map(|it| (it.all(), it.scheduled()));
        let [a, b] = ["a", "b"].map(|name| pod(name).group("g").build());
        let steps = [
            (&a, Some(MemberStage::Unscheduled), Some((1, 0))),
            (&b, Some(MemberStage::Assigned), Some((2, 1))),
            (&a, Some(MemberStage::Assumed), Some((2, 2))),
            (&a, Some(MemberStage::Assigned), Some((2, 2))),
            (&b, Some(MemberStage::Unscheduled), Some((2, 1))),
            (&b, None, Some((1, 1))),
            (&b, None, Some((1, 1))),
            (&a, None, None),
        ];
        for (pod, stage, expected) in steps {
            groups.set("default/g".into(), pod, stage);
            assert_eq!(counts(&groups), expected, "{} {stage:?}", pod.name);
        }
    }
}
