//! How groups belong together: each CompositePodGroup is above the groups that name it as their
//! parent.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
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
}

impl GroupForest {
    /// The most levels of a tree: the limit of the API.
    pub const MAX_DEPTH: usize = 4;

    pub(super) fn set_parents(&mut self, has_parents: bool) {
        self.has_parents = has_parents;
    }

    /// Adds, changes or removes a group. Objects of other kinds are ignored.
    pub(super) fn change(&mut self, old: Option<&Object>, new: Option<&Arc<Object>>) {
        if let Some(key) = old.and_then(GroupKey::of) {
            if let Some(parent) = self.parent(&key)
                && let Some(siblings) = self.children.get_mut(&parent)
            {
                siblings.remove(&key);
                if siblings.is_empty() {
                    self.children.remove(&parent);
                }
            }
            self.groups.remove(&key);
        }
        if let Some((key, object)) = new.and_then(|object| Some((GroupKey::of(object)?, object))) {
            self.groups.insert(key.clone(), Arc::clone(object));
            if let Some(parent) = self.parent(&key) {
                self.children.entry(parent).or_default().insert(key);
            }
        }
    }

    /// A group.
    pub fn get(&self, key: &GroupKey) -> Option<&Arc<Object>> {
        self.groups.get(key)
    }

    /// The spec of a group.
    pub fn spec(&self, key: &GroupKey) -> Option<&GroupSpec> {
        spec_of(self.groups.get(key)?)
    }

    /// The parent that a group names.
    fn parent(&self, key: &GroupKey) -> Option<GroupKey> {
        let name = self.spec(key)?.parent.as_ref().filter(|_| self.has_parents)?;
        Some(GroupKey::of_groups(format!("{}/{name}", key.namespace()).into()))
    }

    /// A group and those above it, as far as they exist and within the limit of levels.
    pub fn ancestors(&self, key: &GroupKey) -> impl Iterator<Item = GroupKey> {
        let exists = |key: &GroupKey| self.groups.contains_key(key);
        let first = Some(key.clone()).filter(exists);
        iter::successors(first, move |key| self.parent(key).filter(exists)).take(Self::MAX_DEPTH)
    }

    /// The root of the tree that a group is in. `None` while the group or one above it is missing,
    /// and for groups that are their own ancestors or too deep in a tree.
    pub fn root_of(&self, key: &GroupKey) -> Option<GroupKey> {
        self.ancestors(key).last().filter(|last| self.parent(last).is_none())
    }

    /// The groups of a composite group, in the order in which they are tried: the oldest first,
    /// then by name.
    pub fn children(&self, key: &GroupKey) -> Vec<&GroupKey> {
        let mut children: Vec<_> = self.children.get(key).into_iter().flatten().collect();
        children.sort_by_cached_key(|key| (self.spec(key).map_or(0, |spec| spec.created), key.name()));
        children
    }

    /// Whether enough pods of a PodGroup are there, by `count`, or enough groups of a composite
    /// group have enough.
    pub fn has_quorum(&self, key: &GroupKey, count: &dyn Fn(&Arc<str>) -> usize) -> bool {
        self.has_quorum_within(key, Self::MAX_DEPTH, count)
    }

    fn has_quorum_within(&self, key: &GroupKey, levels: usize, count: &dyn Fn(&Arc<str>) -> usize) -> bool {
        let Some(spec) = self.spec(key).filter(|_| levels > 0) else { return false };
        let needed = usize::try_from(spec.min_count()).unwrap_or_default();
        let found = match key.kind {
            GroupKind::Pods => count(&key.key),
            GroupKind::Groups => {
                let children = self.children.get(key).into_iter().flatten();
                let ready = children.filter(|child| self.has_quorum_within(child, levels - 1, count));
                ready.take(needed).count()
            }
        };
        found >= needed
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
    use super::*;
    use crate::objects::{Body, CompositePodGroup, Objects, PodGroup, resources};
    use crate::testing::object;

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
