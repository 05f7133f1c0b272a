//! A cluster as the page draws it.

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::tiles::{Load, Node, Tile, tiles};

/// The most reasons that are named; the others are one.
const MOST_REASONS: usize = 50;

/// Requested and allocatable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// The sum of what pods on nodes request.
    pub requested: i64,
    /// The sum of what nodes have.
    pub allocatable: i64,
}

/// The number of pods without a node, by their place in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// They wait for their turn.
    pub active: usize,
    /// They wait for the end of their backoff.
    pub backoff: usize,
    /// They wait for an event that may help.
    pub unschedulable: usize,
    /// They are held before the queue.
    pub gated: usize,
}

/// Pods that wait for one reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Reason {
    /// The plugins that rejected them in their last attempt.
    pub plugins: Vec<String>,
    /// Their number.
    pub pods: usize,
}

/// Numbers about the whole cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of cordoned ones.
    pub cordoned: usize,
    /// The number of pods on nodes.
    pub pods: usize,
    /// CPU in milli-cores.
    pub cpu: Usage,
    /// Memory in bytes.
    pub memory: Usage,
    /// The pods without a node.
    pub queue: Queue,
    /// Why pods wait, those of the most pods first.
    pub reasons: Vec<Reason>,
}

/// A cluster as the page draws it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    pub(crate) tiles: Vec<Tile>,
    pub(crate) is_grouped: bool,
    pub(crate) summary: Summary,
}

impl Overview {
    /// The overview of these nodes. The numbers of nodes and their pods are counted here.
    pub fn new(nodes: Vec<Node>, summary: Summary) -> Self {
        let cordoned = nodes.iter().filter(|node| node.is_cordoned).count();
        let pods = nodes.iter().map(|node| node.pods as usize).sum();
        let reasons = most_first(summary.reasons);
        let summary = Summary { nodes: nodes.len(), cordoned, pods, reasons, ..summary };
        let (tiles, is_grouped) = tiles(nodes);
        Self { tiles, is_grouped, summary }
    }

    /// The number of nodes.
    pub fn nodes(&self) -> usize {
        self.summary.nodes
    }

    /// The whole overview, as JSON.
    pub fn snapshot(&self) -> Value {
        let names: Vec<&str> = self.tiles.iter().map(|tile| &*tile.name).collect();
        let mut snapshot = columns(self.tiles.iter().map(|tile| &tile.load));
        snapshot.insert("names".to_owned(), json!(names));
        json!({
            "summary": self.summary, "grouped": self.is_grouped, "blocks": self.blocks(), "tiles": snapshot,
        })
    }

    /// The blocks of tiles, in order.
    pub(crate) fn blocks(&self) -> Vec<Value> {
        let blocks = self.tiles.chunk_by(|one, other| one.zone == other.zone && one.pool == other.pool);
        let block =
            |tiles: &[Tile]| json!({ "zone": tiles[0].zone, "pool": tiles[0].pool, "tiles": tiles.len() });
        blocks.map(block).collect()
    }
}

/// One array per property of a load.
pub(crate) fn columns<'a>(loads: impl Iterator<Item = &'a Load> + Clone) -> Map<String, Value> {
    let column = |of: fn(&Load) -> u32| loads.clone().map(of).collect::<Vec<u32>>();
    let columns = [
        ("cpu", column(|load| load.cpu.into())),
        ("memory", column(|load| load.memory.into())),
        ("pods", column(|load| load.pods)),
        ("nodes", column(|load| load.nodes)),
        ("cordoned", column(|load| load.cordoned)),
    ];
    columns.into_iter().map(|(name, column)| (name.to_owned(), json!(column))).collect()
}

/// Reasons by their numbers of pods. Those that are too many become one without a plugin.
fn most_first(mut reasons: Vec<Reason>) -> Vec<Reason> {
    reasons.sort_by(|one, other| (other.pods, &one.plugins).cmp(&(one.pods, &other.plugins)));
    let others: usize = reasons.iter().skip(MOST_REASONS).map(|reason| reason.pods).sum();
    reasons.truncate(MOST_REASONS);
    reasons.extend((others > 0).then_some(Reason { plugins: Vec::new(), pods: others }));
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, zone: &str) -> Node {
        let is_cordoned = zone == "b";
        Node {
            name: name.into(),
            zone: zone.into(),
            pool: "web".into(),
            cpu: 100,
            memory: 50,
            pods: 2,
            is_cordoned,
        }
    }

    #[test]
    fn a_snapshot_has_one_array_per_property() {
        let nodes = vec![node("n2", "a"), node("n3", "b"), node("n1", "a")];
        let snapshot = Overview::new(nodes, Summary::default()).snapshot();
        assert_eq!(
            snapshot["blocks"],
            json!([{ "zone": "a", "pool": "web", "tiles": 2 }, { "zone": "b", "pool": "web", "tiles": 1 }])
        );
        assert_eq!(snapshot["tiles"]["names"], json!(["n1", "n2", "n3"]));
        assert_eq!(snapshot["tiles"]["cordoned"], json!([0, 0, 1]));
        let summary = &snapshot["summary"];
        assert_eq!([&summary["nodes"], &summary["cordoned"], &summary["pods"]], [3, 1, 6]);
    }

    #[test]
    fn the_rarest_reasons_become_one() {
        let reason = |pods: usize| Reason { plugins: vec![format!("P{pods}")], pods };
        let reasons = most_first((1..=60).map(reason).collect());
        assert_eq!((reasons.len(), reasons[0].pods), (51, 60));
        assert_eq!(reasons[50], Reason { plugins: Vec::new(), pods: (1..=10).sum() });
    }
}
