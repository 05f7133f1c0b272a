//! The order of visiting nodes.

use std::sync::Arc;

use supercargo_framework::node::Zone;

/// Node names by zone; zones and nodes in the order they were added. Same as upstream's nodeTree.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeTree {
    zones: Vec<(Zone, Vec<Arc<str>>)>,
}

impl NodeTree {
    pub(crate) fn add(&mut self, zone: Zone, name: Arc<str>) {
        match self.zones.iter_mut().find(|(known, _)| *known == zone) {
            Some((_, names)) => names.push(name),
            None => self.zones.push((zone, vec![name])),
        }
    }

    pub(crate) fn remove(&mut self, zone: &Zone, name: &str) {
        if let Some((_, names)) = self.zones.iter_mut().find(|(known, _)| known == zone) {
            names.retain(|known| &**known != name);
        }
        self.zones.retain(|(_, names)| !names.is_empty());
    }

    /// One node of each zone in turn; exhausted zones are skipped.
    pub(crate) fn list(&self) -> Vec<Arc<str>> {
        let longest = self.zones.iter().map(|(_, names)| names.len()).max().unwrap_or(0);
        let pass = |i: usize| self.zones.iter().filter_map(move |(_, names)| names.get(i).cloned());
        (0..longest).flat_map(pass).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_framework::testing::node;

    #[test]
    fn zones_take_turns() {
        let mut tree = NodeTree::default();
        for (zone, name) in [("a", "a1"), ("a", "a2"), ("b", "b1"), ("a", "a3"), ("c", "c1"), ("c", "c2")] {
            tree.add(node(name).zone(zone).build().zone(), name.into());
        }
        assert_eq!(
            tree.list().iter().map(|n| &**n).collect::<Vec<_>>(),
            ["a1", "b1", "c1", "a2", "c2", "a3"]
        );
        tree.remove(&node("").zone("b").build().zone(), "b1");
        tree.remove(&node("").zone("a").build().zone(), "a1");
        assert_eq!(tree.list().iter().map(|n| &**n).collect::<Vec<_>>(), ["a2", "c1", "a3", "c2"]);
    }
}
