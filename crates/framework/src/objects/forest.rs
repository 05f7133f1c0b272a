//! How groups belong together: each CompositePodGroup is above the groups that name it as their
//! parent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::groups::spec_of;
use super::{GroupKey, GroupKind, GroupSpec, Object};

/// All groups, as trees.
#[derive(Clone, Debug, Default)]
pub struct GroupForest {
    /// Whether groups have parents (`CompositePodGroup`).
    has_parents: bool,
    groups: BTreeMap<GroupKey, Arc<Object>>,
    /// The groups that name a parent, by the parent, whether it exists or not.
    children: BTreeMap<GroupKey, BTreeSet<GroupKey>>,
    /// What counts for the minimum of each group, whether it exists or not. Kept, because
    /// PreEnqueue and Permit ask for every pod of a tree.
    tallies: BTreeMap<GroupKey, Tally>,
}

/// Which pods count for the minimum of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All that are known.
    Known,
    /// Those that are on a node or assumed on one.
    Scheduled,
}

/// The pods of a PodGroup, or the groups below a composite group that have their own minimum, by
/// [`Counted`].
type Tally = [usize; 2];

/// Whether a group has its minimum, by [`Counted`].
type Quorum = [bool; 2];

impl GroupForest {
    /// The most levels of a tree: the limit of the API.
    pub const MAX_DEPTH: usize = 4;

    pub(super) fn set_parents(&mut self, has_parents: bool) {
        self.has_parents = has_parents;
    }

    /// Adds, changes or removes a group. Objects of other kinds are ignored.
    pub(super) fn change(&mut self, old: Option<&Object>, new: Option<&Arc<Object>>) {
        if let Some(key) = old.and_then(GroupKey::of) {
            let (parent, quorum) = (self.parent(&key), self.quorum(&key));
            self.groups.remove(&key);
            if let Some(parent) = &parent
                && let Some(siblings) = self.children.get_mut(parent)
            {
                siblings.remove(&key);
                if siblings.is_empty() {
                    self.children.remove(parent);
                }
            }
            self.pass_up(parent, quorum, Quorum::default());
        }
        if let Some((key, object)) = new.and_then(|object| Some((GroupKey::of(object)?, object))) {
            self.groups.insert(key.clone(), Arc::clone(object));
            let (parent, quorum) = (self.parent(&key), self.quorum(&key));
            if let Some(parent) = &parent {
                self.children.entry(parent.clone()).or_default().insert(key);
            }
            self.pass_up(parent, Quorum::default(), quorum);
        }
    }

    /// Sets how many pods of a PodGroup are known, and on nodes.
    pub(super) fn set_pods(&mut self, group: Arc<str>, known: usize, scheduled: usize) {
        let key = GroupKey::of_pods(group);
        let earlier = self.quorum(&key);
        self.set_tally(&key, [known, scheduled]);
        self.pass_up(self.parent(&key), earlier, self.quorum(&key));
    }

    /// A group has, or no longer has, its minimum: counts it for its parent, and so on upwards. A
    /// change only ever adds minimums or only takes them away, so it ends in circles, too.
    fn pass_up(&mut self, mut parent: Option<GroupKey>, mut earlier: Quorum, mut quorum: Quorum) {
        while let Some(key) = parent.filter(|_| earlier != quorum) {
            let own = self.quorum(&key);
            let mut tally = self.tallies.get(&key).copied().unwrap_or_default();
            for (count, (had, has)) in tally.iter_mut().zip(earlier.into_iter().zip(quorum)) {
                *count = *count + usize::from(has) - usize::from(had);
            }
            self.set_tally(&key, tally);
            (earlier, quorum) = (own, self.quorum(&key));
            parent = self.parent(&key);
        }
    }

    fn set_tally(&mut self, key: &GroupKey, tally: Tally) {
        if tally == Tally::default() {
            self.tallies.remove(key);
        } else {
            self.tallies.insert(key.clone(), tally);
        }
    }

    fn quorum(&self, key: &GroupKey) -> Quorum {
        let Some(spec) = self.spec(key) else { return Quorum::default() };
        let needed = usize::try_from(spec.min_count()).unwrap_or_default();
        self.tallies.get(key).copied().unwrap_or_default().map(|found| found >= needed)
    }

    /// Whether enough pods of a PodGroup are there, or enough groups of a composite group have
    /// enough.
    pub fn has_quorum(&self, key: &GroupKey, counted: Counted) -> bool {
        self.quorum(key)[counted as usize]
    }

    /// A group.
    pub fn get(&self, key: &GroupKey) -> Option<&Arc<Object>> {
        self.groups.get(key)
    }

    /// The spec of a group.
    pub fn spec(&self, key: &GroupKey) -> Option<&GroupSpec> {
        spec_of(self.groups.get(key)?)
    }

    /// Whether a group comes, goes or gets another parent when this is its next version.
    pub fn moves(&self, key: &GroupKey, next: Option<&Object>) -> bool {
        let next = next.and_then(spec_of);
        self.spec(key).zip(next).is_none_or(|(spec, next)| spec.parent != next.parent)
    }

    /// The parent that a group names, whether that exists or not.
    fn parent(&self, key: &GroupKey) -> Option<GroupKey> {
        let name = self.spec(key)?.parent.as_ref().filter(|_| self.has_parents)?;
        Some(GroupKey::of_groups(format!("{}/{name}", key.namespace()).into()))
    }

    /// A group and those above it, each once, as far as they exist and within the limit of levels.
    pub fn ancestors(&self, key: &GroupKey) -> Vec<GroupKey> {
        let mut found = Vec::with_capacity(Self::MAX_DEPTH);
        let mut next = Some(key.clone());
        while let Some(key) = next.filter(|key| self.groups.contains_key(key) && !found.contains(key))
            && found.len() < Self::MAX_DEPTH
        {
            next = self.parent(&key);
            found.push(key);
        }
        found
    }

    /// The root of the tree that a group is in. `None` while the group or one above it is missing,
    /// and for groups that are their own ancestors or too deep in a tree.
    pub fn root_of(&self, key: &GroupKey) -> Option<GroupKey> {
        self.ancestors(key).pop().filter(|last| self.parent(last).is_none())
    }

    /// The groups of a composite group, in the order in which they are tried: the oldest first,
    /// then by name.
    pub fn children(&self, key: &GroupKey) -> Vec<&GroupKey> {
        let mut children: Vec<_> = self.children.get(key).into_iter().flatten().collect();
        children.sort_by_cached_key(|key| (self.spec(key).map_or(0, |spec| spec.created), key.name()));
        children
    }

    /// The keys of the PodGroups at or below a group, also of one that is missing.
    pub fn leaves(&self, key: &GroupKey) -> BTreeSet<Arc<str>> {
        let mut leaves = BTreeSet::new();
        self.add_leaves(key, Self::MAX_DEPTH, &mut leaves);
        leaves
    }

    fn add_leaves(&self, key: &GroupKey, levels: usize, leaves: &mut BTreeSet<Arc<str>>) {
        if levels == 0 {
            return;
        }
        match key.kind {
            GroupKind::Pods => drop(leaves.insert(Arc::clone(&key.key))),
            GroupKind::Groups => {
                for child in self.children.get(key).into_iter().flatten() {
                    self.add_leaves(child, levels - 1, leaves);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::objects::{Body, CompositePodGroup, GroupPolicy, MemberStage, Objects, PodGroup, resources};
    use crate::testing::{object, pod};

    fn spec(parent: Option<&str>) -> GroupSpec {
        GroupSpec { parent: parent.map(Into::into), ..GroupSpec::default() }
    }

    fn composite(name: &str, parent: Option<&str>) -> Arc<Object> {
        let body = Body::CompositePodGroup(CompositePodGroup { spec: spec(parent) });
        object(&resources::COMPOSITE_POD_GROUP, &format!("default/{name}"), body).into()
    }

    fn leaf(name: &str, spec: GroupSpec) -> Arc<Object> {
        object(&resources::POD_GROUP, &format!("default/{name}"), Body::PodGroup(spec.into())).into()
    }

    fn objects(has_parents: bool) -> Objects {
        let mut objects = Objects::default();
        objects.set_composite_groups(has_parents);
        objects
    }

    /// The name of the root of PodGroup `g`.
    fn root(objects: &Objects) -> Option<String> {
        let root = objects.forest().root_of(&GroupKey::of_pods("default/g".into()))?;
        Some(root.name().to_owned())
    }

    #[test]
    fn a_group_has_a_root_while_all_groups_above_it_exist() {
        let mut objects = objects(true);
        objects.insert(leaf("g", spec(Some("a"))));
        assert_eq!(root(&objects), None);
        objects.insert(composite("b", None));
        assert_eq!(root(&objects), None);
        objects.insert(composite("a", Some("b")));
        assert_eq!(root(&objects).as_deref(), Some("b"));
        let leaves = objects.forest().leaves(&GroupKey::of_groups("default/b".into()));
        assert_eq!(leaves.iter().map(|key| &**key).collect::<Vec<_>>(), ["default/g"]);
        objects.remove(&resources::COMPOSITE_POD_GROUP, "default/a");
        assert_eq!(root(&objects), None);
        assert_eq!(objects.forest().leaves(&GroupKey::of_groups("default/a".into())).len(), 1);
    }

    #[test]
    fn parents_are_ignored_without_the_feature() {
        let mut objects = objects(false);
        objects.insert(leaf("g", spec(Some("a"))));
        assert_eq!(root(&objects).as_deref(), Some("g"));
    }

    #[test]
    fn cycles_and_trees_of_more_than_four_levels_have_no_root() {
        let mut cycle = objects(true);
        cycle.insert(leaf("g", spec(Some("a"))));
        cycle.insert(composite("a", Some("b")));
        cycle.insert(composite("b", Some("a")));
        assert_eq!(root(&cycle), None);
        assert_eq!(cycle.forest().leaves(&GroupKey::of_groups("default/b".into())).len(), 1);

        let mut deep = objects(true);
        deep.insert(leaf("g", spec(Some("a"))));
        for (name, parent) in [("a", Some("b")), ("b", Some("c")), ("c", None), ("d", None)] {
            deep.insert(composite(name, parent));
        }
        assert_eq!(root(&deep).as_deref(), Some("c"));
        deep.insert(composite("c", Some("d")));
        assert_eq!(root(&deep), None);
    }

    #[test]
    fn groups_above_are_each_listed_once() {
        let mut objects = objects(true);
        objects.insert(leaf("g", spec(Some("a"))));
        objects.insert(composite("a", Some("b")));
        objects.insert(composite("b", Some("a")));
        let names = |objects: &Objects| -> Vec<String> {
            let found = objects.forest().ancestors(&GroupKey::of_pods("default/g".into()));
            found.iter().map(|key| key.name().to_owned()).collect()
        };
        assert_eq!(names(&objects), ["g", "a", "b"]);
        objects.insert(composite("a", Some("a")));
        assert_eq!(names(&objects), ["g", "a"]);
        objects.remove(&resources::COMPOSITE_POD_GROUP, "default/a");
        assert_eq!(names(&objects), ["g"]);
    }

    /// What `has_quorum` says of a group in a tree, counted anew.
    fn count_quorum(objects: &Objects, key: &GroupKey, counted: Counted) -> bool {
        let Some(spec) = objects.forest().spec(key) else { return false };
        let found = match key.kind {
            GroupKind::Pods => objects.members().get(&key.key).map_or(0, |members| match counted {
                Counted::Known => members.all(),
                Counted::Scheduled => members.scheduled(),
            }),
            GroupKind::Groups => {
                let children = objects.forest().children(key).into_iter();
                children.filter(|child| count_quorum(objects, child, counted)).count()
            }
        };
        found >= usize::try_from(spec.min_count()).unwrap()
    }

    proptest! {
        /// Groups get other parents, also in circles, and other minimums, and pods come and go.
        #[test]
        fn kept_quorums_equal_those_counted_anew(
            steps in proptest::collection::vec((0..4_u8, 0..4_usize, 0..5_usize, 1..3_i32), 1..60),
        ) {
            let mut objects = objects(true);
            let composites = ["a", "b", "c", "d"];
            for (action, at, other, min_count) in steps {
                let spec = GroupSpec {
                    policy: GroupPolicy::Gang(min_count),
                    ..spec(composites.get(other).copied())
                };
                match action {
                    0 => {
                        let body = Body::CompositePodGroup(CompositePodGroup { spec });
                        let key = format!("default/{}", composites[at]);
                        objects.insert(object(&resources::COMPOSITE_POD_GROUP, &key, body).into());
                    }
                    1 => drop(objects.insert(leaf(&format!("g{at}"), spec))),
                    2 if other == 0 => {
                        let key = format!("default/{}", composites[at]);
                        objects.remove(&resources::COMPOSITE_POD_GROUP, &key);
                    }
                    2 => drop(objects.remove(&resources::POD_GROUP, &format!("default/g{at}"))),
                    _ => {
                        let stages = [None, Some(MemberStage::Unscheduled), Some(MemberStage::Assigned)];
                        let pod = pod(&format!("p{at}-{min_count}")).group(&format!("g{at}")).build();
                        objects.set_member(&pod, stages[other % 3]);
                    }
                }
                let forest = objects.forest();
                // Nobody asks about others than roots: below them is no circle.
                let roots = forest.groups.keys().filter(|key| forest.root_of(key).as_ref() == Some(*key));
                for (key, counted) in roots.flat_map(|key| [(key, Counted::Known), (key, Counted::Scheduled)]) {
                    let expected = count_quorum(&objects, key, counted);
                    prop_assert_eq!(forest.has_quorum(key, counted), expected, "{} {:?}", key, counted);
                }
            }
        }
    }

    #[test]
    fn children_are_ordered_by_creation_then_name() {
        let mut objects = objects(true);
        for (name, created) in [("c", 1), ("a", 2), ("b", 2)] {
            objects.insert(leaf(name, GroupSpec { created, ..spec(Some("p")) }));
        }
        let forest = objects.forest();
        let parent = GroupKey::of_groups("default/p".into());
        let names: Vec<_> = forest.children(&parent).into_iter().map(GroupKey::name).collect();
        assert_eq!(names, ["c", "a", "b"]);
        assert_eq!(PodGroup::from(spec(None)).spec.min_count(), 1);
    }
}
