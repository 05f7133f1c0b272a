//! What has changed between two overviews.

use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::overview::{Overview, columns};
use crate::tiles::Load;

/// What turns one overview into a later one. It does not grow with the time between them.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// The places of tiles that are gone, among the old tiles.
    removed: Vec<usize>,
    /// New tiles: their places among the new tiles, and their names.
    added: Vec<(usize, Arc<str>, Load)>,
    /// Tiles that show something else: their places among the new tiles.
    changed: Vec<(usize, Load)>,
}

impl Overview {
    /// What has changed since an older overview; `None` if it is most of it, so that a snapshot is
    /// not larger.
    pub fn changes_since(&self, old: &Self) -> Option<Changes> {
        let changes = changes(old, self);
        let Changes { removed, added, changed } = &changes;
        let is_small = 2 * (removed.len() + added.len() + changed.len()) <= self.tiles.len().max(16);
        (is_small && self.is_grouped == old.is_grouped).then_some(changes)
    }
}

/// Both lists of tiles are in the same order.
fn changes(old: &Overview, new: &Overview) -> Changes {
    let mut changes = Changes::default();
    let (mut from, mut to) = (0, 0);
    loop {
        let order = match (old.tiles.get(from), new.tiles.get(to)) {
            (None, None) => return changes,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) => one.order(other),
        };
        match order {
            Ordering::Less => changes.removed.push(from),
            Ordering::Greater => {
                changes.added.push((to, Arc::clone(&new.tiles[to].name), new.tiles[to].load));
            }
            Ordering::Equal if old.tiles[from].load != new.tiles[to].load => {
                changes.changed.push((to, new.tiles[to].load));
            }
            Ordering::Equal => {}
        }
        from += usize::from(order != Ordering::Greater);
        to += usize::from(order != Ordering::Less);
    }
}

impl Changes {
    /// As JSON, with what is small of the new overview.
    pub fn json(&self, new: &Overview) -> Value {
        let mut added = columns(self.added.iter().map(|(.., load)| load));
        added.insert("at".to_owned(), self.added.iter().map(|(at, ..)| *at).collect());
        added.insert("names".to_owned(), self.added.iter().map(|(_, name, _)| &**name).collect());
        let mut changed = columns(self.changed.iter().map(|(_, load)| load));
        changed.insert("at".to_owned(), self.changed.iter().map(|(at, _)| *at).collect());
        let mut changes = json!({ "summary": new.summary, "changed": changed });
        if !self.removed.is_empty() || !self.added.is_empty() {
            changes["removed"] = json!(self.removed);
            changes["added"] = added.into();
            changes["blocks"] = new.blocks().into();
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::overview::Summary;
    use crate::tiles::Node;

    /// What the page's script does (`assets/model.js`), on the arrays of a snapshot.
    fn apply(mut snapshot: Value, changes: &Value) -> Value {
        let places = |list: &Value| -> Vec<usize> {
            list.as_array().into_iter().flatten().map(|at| at.as_u64().unwrap() as usize).collect()
        };
        for (name, column) in snapshot["tiles"].as_object_mut().unwrap() {
            let column = column.as_array_mut().unwrap();
            for at in places(&changes["removed"]).into_iter().rev() {
                column.remove(at);
            }
            for (i, at) in places(&changes["added"]["at"]).into_iter().enumerate() {
                column.insert(at, changes["added"][name][i].clone());
            }
            for (i, at) in places(&changes["changed"]["at"]).into_iter().enumerate() {
                if let Some(value) = changes["changed"][name].get(i) {
                    column[at] = value.clone();
                }
            }
        }
        snapshot["summary"] = changes["summary"].clone();
        if let Some(blocks) = changes.get("blocks") {
            snapshot["blocks"] = blocks.clone();
        }
        snapshot
    }

    prop_compose! {
        fn a_node()(number in 0..30_u8, zone in 0..3_usize, pool in 0..2_usize, cpu in 0..4_u8, is_cordoned: bool) -> Node {
            Node {
                name: format!("n{number}").into(),
                zone: ["", "a", "b"][zone].into(),
                pool: ["web", "__proto__"][pool].into(),
                cpu,
                memory: cpu / 2,
                pods: u32::from(number),
                is_cordoned,
            }
        }
    }

    fn an_overview() -> impl Strategy<Value = Overview> {
        proptest::collection::vec(a_node(), 0..40).prop_map(|mut nodes| {
            nodes.sort_by(|one, other| one.name.cmp(&other.name));
            nodes.dedup_by(|one, other| one.name == other.name);
            Overview::new(nodes, Summary::default())
        })
    }

    proptest! {
        #[test]
        fn a_snapshot_with_changes_is_the_later_snapshot(old in an_overview(), new in an_overview()) {
            let changes = changes(&old, &new).json(&new);
            prop_assert_eq!(apply(old.snapshot(), &changes), new.snapshot());
        }

        #[test]
        fn areas_add_up(overview in an_overview()) {
            let blocks: u64 = overview.blocks().iter().map(|block| block["tiles"].as_u64().unwrap()).sum();
            let nodes: u32 = overview.tiles.iter().map(|tile| tile.load.nodes).sum();
            prop_assert_eq!((blocks as usize, nodes as usize), (overview.tiles.len(), overview.summary.nodes));
        }
    }

    fn overview(loads: impl Iterator<Item = u8>) -> Overview {
        let node = |(i, cpu): (usize, u8)| {
            let name = format!("n{i:03}").into();
            Node { name, zone: "a".into(), pool: "".into(), cpu, memory: 0, pods: 0, is_cordoned: false }
        };
        Overview::new(loads.enumerate().map(node).collect(), Summary::default())
    }

    #[test]
    fn a_change_of_most_tiles_is_a_snapshot() {
        let old = overview((0..100).map(|_| 0));
        let one = overview((0..100).map(|i| u8::from(i == 7)));
        let changes = one.changes_since(&old).unwrap().json(&one);
        assert_eq!((&changes["changed"]["at"], &changes["changed"]["cpu"]), (&json!([7]), &json!([1])));
        assert!(changes.get("removed").is_none() && changes.get("blocks").is_none());
        assert!(changes.to_string().len() < 500);
        assert!(overview((0..100).map(|_| 1)).changes_since(&old).is_none());
    }
}
