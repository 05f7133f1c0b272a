//! The groups of an attempt, and what becomes of each.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use supercargo_framework::CycleState;
use supercargo_framework::objects::{GroupForest, GroupKey, GroupKind, GroupSpec};
use supercargo_framework::plugin::Assignments;
use supercargo_queue::QueuedPod;
use supercargo_runtime::diagnosis::FitError;
use supercargo_runtime::failure::{Failure, FailureKind};

/// A pod that found a node in the trial.
pub(crate) struct Placed {
    pub(crate) node: Arc<str>,
    pub(crate) state: CycleState,
}

/// The results of a trial, a member each; members after the last one were not tried.
pub(crate) type Results = Vec<Result<Placed, Failure>>;

/// Why a group is not scheduled.
#[derive(Clone)]
pub(crate) enum GroupFailure {
    /// Too few pods, or groups, fit.
    Unschedulable(String),
    /// Something failed.
    Error(String),
}

/// A group of an attempt, with the groups below it.
pub(crate) struct GroupNode {
    pub(crate) key: GroupKey,
    /// How many pods, or groups, must be placed; 0 if no plugin asks for a minimum.
    pub(crate) min_count: i32,
    /// Where the pods of all PodGroups at or below it are among the members of the attempt.
    pub(crate) members: Range<usize>,
    /// The groups of a composite group, in the order in which they are tried.
    pub(crate) children: Vec<GroupNode>,
}

impl GroupNode {
    /// The tree below a root, the members in the order of its PodGroups, and those that are
    /// not in the tree.
    pub(crate) fn new(
        forest: &GroupForest,
        root: &GroupKey,
        members: Vec<QueuedPod>,
    ) -> (Self, Vec<QueuedPod>, Vec<QueuedPod>) {
        let mut by_group: BTreeMap<Arc<str>, Vec<QueuedPod>> = BTreeMap::new();
        let mut strays = Vec::new();
        for member in members {
            match member.pod.group_key() {
                Some(key) => by_group.entry(key).or_default().push(member),
                None => strays.push(member),
            }
        }
        let mut ordered = Vec::new();
        let node = Self::below(forest, root, GroupForest::MAX_DEPTH, &mut by_group, &mut ordered);
        strays.extend(by_group.into_values().flatten());
        (node, ordered, strays)
    }

    fn below(
        forest: &GroupForest,
        key: &GroupKey,
        levels: usize,
        by_group: &mut BTreeMap<Arc<str>, Vec<QueuedPod>>,
        ordered: &mut Vec<QueuedPod>,
    ) -> Self {
        let start = ordered.len();
        let mut children = Vec::new();
        match key.kind {
            GroupKind::Pods => ordered.extend(by_group.remove(&key.key).unwrap_or_default()),
            GroupKind::Groups if levels > 1 => {
                for child in forest.children(key) {
                    children.push(Self::below(forest, child, levels - 1, by_group, ordered));
                }
            }
            GroupKind::Groups => {}
        }
        Self { key: key.clone(), min_count: 0, members: start..ordered.len(), children }
    }

    /// Sets how many pods, or groups, each group needs.
    pub(crate) fn require_minimum(&mut self, forest: &GroupForest) {
        self.min_count = forest.spec(&self.key).map_or(0, GroupSpec::min_count);
        self.children.iter_mut().for_each(|child| child.require_minimum(forest));
    }

    /// The number of its pods and groups, itself included.
    pub(crate) fn size(&self) -> usize {
        1 + match self.key.kind {
            GroupKind::Pods => self.members.len(),
            GroupKind::Groups => self.children.iter().map(Self::size).sum(),
        }
    }

    /// The PodGroups at or below it.
    pub(crate) fn leaves(&self) -> Vec<&Self> {
        match self.key.kind {
            GroupKind::Pods => vec![self],
            GroupKind::Groups => self.children.iter().flat_map(Self::leaves).collect(),
        }
    }
}

/// What became of a group in a trial.
#[derive(Default)]
pub(crate) struct Trial {
    /// Those of a PodGroup's members.
    pub(crate) results: Results,
    /// Those of a composite group's groups; groups after the last one were not tried.
    pub(crate) children: Vec<Trial>,
    /// Why it fails; `None` if it succeeds.
    pub(crate) refusal: Option<GroupFailure>,
}

impl Trial {
    pub(crate) fn refused(refusal: GroupFailure) -> Self {
        Self { refusal: Some(refusal), ..Self::default() }
    }

    /// Whether it succeeds, and a pod found a node.
    pub(crate) fn places_any(&self) -> bool {
        let is_placed = self.results.iter().any(Result::is_ok) || self.children.iter().any(Self::places_any);
        self.refusal.is_none() && is_placed
    }

    /// The members that found a node, with it, in the order in which they were tried. Groups that
    /// fail have none.
    pub(crate) fn placed<'a>(&'a self, node: &GroupNode) -> Vec<(usize, &'a Placed)> {
        if self.refusal.is_some() {
            return Vec::new();
        }
        let own = node.members.clone().zip(&self.results);
        let own = own.filter_map(|(member, result)| Some((member, result.as_ref().ok()?)));
        let below = node.children.iter().zip(&self.children).flat_map(|(node, trial)| trial.placed(node));
        own.chain(below).collect()
    }

    /// The same, to change their states.
    pub(crate) fn placed_mut<'a>(&'a mut self, node: &GroupNode) -> Vec<(usize, &'a mut Placed)> {
        if self.refusal.is_some() {
            return Vec::new();
        }
        let own = node.members.clone().zip(&mut self.results);
        let own = own.filter_map(|(member, result)| Some((member, result.as_mut().ok()?)));
        let below =
            node.children.iter().zip(&mut self.children).flat_map(|(node, trial)| trial.placed_mut(node));
        own.chain(below).collect()
    }

    /// The members that were tried, and what became of each.
    pub(crate) fn tried<'a>(&'a self, node: &GroupNode) -> Vec<(usize, &'a Result<Placed, Failure>)> {
        let own = node.members.clone().zip(&self.results);
        let below = node.children.iter().zip(&self.children).flat_map(|(node, trial)| trial.tried(node));
        own.chain(below).collect()
    }

    /// The members that were tried and that no node took, and why.
    pub(crate) fn rejected<'a>(&'a self, node: &GroupNode) -> Vec<(usize, &'a FitError)> {
        let fit_error = |(member, result): (usize, &'a Result<_, _>)| match result {
            Err(Failure { kind: FailureKind::Fit(error), .. }) => Some((member, &**error)),
            _ => None,
        };
        self.tried(node).into_iter().filter_map(fit_error).collect()
    }

    /// The pods that found a node, with it.
    pub(crate) fn assignments(&self, node: &GroupNode, members: &[QueuedPod]) -> Assignments {
        let assignment = |(member, placed): (usize, &Placed)| {
            let pod: &QueuedPod = &members[member];
            (Arc::clone(&pod.pod), Arc::clone(&placed.node))
        };
        self.placed(node).into_iter().map(assignment).collect()
    }
}

/// What is said about the groups of a tree after its trial.
#[derive(Default)]
pub(crate) struct Verdicts<'a> {
    /// The reasons, and how many groups share each. `None` is success.
    pub(crate) all: Vec<(Option<GroupFailure>, usize)>,
    /// The PodGroups with their results, and the position of the reason.
    pub(crate) leaves: Vec<(&'a GroupNode, Results, usize)>,
}

impl<'a> Verdicts<'a> {
    /// A group that was not tried has its parent's reason. So has one that succeeded below a group
    /// that fails; its results are void.
    pub(crate) fn new(root: &'a GroupNode, trial: Trial) -> Self {
        let mut verdicts = Self::default();
        verdicts.add(root, Some(trial), None);
        verdicts
    }

    fn add(&mut self, node: &'a GroupNode, trial: Option<Trial>, above: Option<usize>) {
        let above_fails = above.filter(|above| self.all[*above].0.is_some());
        let (own, mut results, children) = match trial {
            Some(Trial { results, children, refusal }) => (Some(refusal), results, children),
            None => (None, Results::new(), Vec::new()),
        };
        let inherited = if own.as_ref().is_none_or(Option::is_none) { above_fails } else { None };
        let verdict = match inherited {
            Some(above) => {
                results.clear();
                self.all[above].1 += 1;
                above
            }
            None => {
                self.all.push((own.flatten(), 1));
                self.all.len() - 1
            }
        };
        if node.key.kind == GroupKind::Pods {
            self.leaves.push((node, results, verdict));
        }
        let mut children = children.into_iter();
        for child in &node.children {
            self.add(child, children.next(), Some(verdict));
        }
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::Timestamp;
    use supercargo_framework::testing::{PodBuilder, pod};
    use supercargo_runtime::profile::ProfileIndex;

    use super::*;

    #[test]
    fn pods_outside_of_the_tree_are_strays() {
        let queued =
            |pod: PodBuilder| QueuedPod::new(Arc::new(pod.build()), ProfileIndex(0), Timestamp::default());
        let members = [pod("a").group("g"), pod("b"), pod("c").group("h")].map(queued).into();
        let root = GroupKey::of_pods("default/g".into());
        let (_, members, strays) = GroupNode::new(&GroupForest::default(), &root, members);
        let names = |pods: &[QueuedPod]| pods.iter().map(|it| it.pod.name.to_string()).collect::<Vec<_>>();
        assert_eq!((names(&members), names(&strays)), (vec!["a".to_owned()], vec!["b".into(), "c".into()]));
    }
}
