//! Cached state and answers of one signature.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::caching::{Applied, Scope};
use crate::context::Read;
use crate::cycle_state::CycleState;
use crate::node::NodeRecord;
use crate::nodes::Nodes;
use crate::pod::PodInfo;
use crate::status::Status;
use crate::text::Text;

/// Whether no change reports that the read is outdated.
pub(super) fn is_untracked(read: &Read) -> bool {
    matches!(read, Read::Now | Read::WaitingPods)
}

/// A change as evaluation tables see it.
#[derive(Clone)]
pub(super) enum TableChange {
    Pod {
        node: Arc<NodeRecord>,
        pod: Arc<PodInfo>,
        added: bool,
    },
    NodeAdded(Arc<NodeRecord>),
    NodeRemoved(Arc<NodeRecord>),
    NodeChanged(Arc<NodeRecord>, Arc<NodeRecord>),
    Object(Text, Arc<str>),
    /// All objects are gone.
    Objects,
}

/// Whether a plugin's Filter or Score runs.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Runs,
    Skipped,
    Rejected(Status),
}

/// The answers for every node.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Rows {
    pub(super) verdicts: BTreeMap<Arc<str>, Status>,
    pub(super) scores: BTreeMap<Arc<str>, i64>,
    /// The classes of nodes, if scores are by class. Scores are then computed each time.
    pub(super) classes: BTreeMap<Arc<str>, i64>,
}

/// A state with the answers computed from it.
pub(super) struct Table {
    pub(super) state: CycleState,
    pub(super) filter: Part,
    pub(super) score: Part,
    pub(super) filter_scope: Option<Scope>,
    pub(super) score_scope: Option<Scope>,
    pub(super) rows: Rows,
    pub(super) feasible: BTreeSet<Arc<str>>,
    pub(super) reads: Vec<Read>,
    /// The number of changes that the state reflects.
    pub(super) cursor: usize,
    /// Whether everything that was read is tracked.
    pub(super) is_cacheable: bool,
}

impl Table {
    /// Notes what the answers have read, at first or after a change.
    pub(super) fn note_reads(&mut self, reads: Vec<Read>) {
        // The state follows the nodes; single answers do not.
        self.is_cacheable &= !reads.iter().any(|read| *read == Read::AllNodes || is_untracked(read));
        self.reads.extend(reads);
    }

    /// Whether the plugin follows the changes of an object's kind.
    pub(super) fn follows(&self, change: &TableChange) -> bool {
        self.reads.iter().any(|read| match (read, change) {
            (Read::Followed(kind), TableChange::Object(changed, _)) => kind == changed,
            (Read::Followed(_), TableChange::Objects) => true,
            _ => false,
        })
    }

    /// Whether the change outdates a recorded read.
    pub(super) fn reads_of(&self, change: &TableChange) -> bool {
        let reads = |is: fn(&Read) -> bool| self.reads.iter().any(is);
        let images_of = |node: &NodeRecord| reads(|read| *read == Read::Images) && !node.images.is_empty();
        match change {
            TableChange::Pod { .. } => false,
            TableChange::NodeAdded(node) | TableChange::NodeRemoved(node) => {
                reads(|read| *read == Read::NodeCount) || images_of(node)
            }
            TableChange::NodeChanged(old, new) => {
                reads(|read| *read == Read::Images) && old.images != new.images
            }
            TableChange::Object(changed, of) => self.reads.iter().any(|read| match read {
                Read::Kind(kind) => kind == changed,
                Read::Object { resource, key } => resource == changed && key == of,
                _ => false,
            }),
            TableChange::Objects => reads(|read| matches!(read, Read::Kind(_) | Read::Object { .. })),
        }
    }
}

/// Which rows must be computed again.
#[derive(Default)]
pub(super) struct Dirty {
    pub(super) all: bool,
    pub(super) nodes: BTreeSet<Arc<str>>,
    pub(super) domains: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl Dirty {
    pub(super) fn note(&mut self, applied: Applied, node: &NodeRecord) {
        match applied {
            Applied::Here => {}
            Applied::Domain(keys) => {
                for key in keys {
                    if let Some(value) = node.labels.get(&key) {
                        self.domains.insert((key, Arc::clone(value)));
                    }
                }
            }
            Applied::Nodes(names) => self.nodes.extend(names),
            Applied::Everywhere | Applied::Rebuild => self.all = true,
        }
    }

    fn has(&self, node: &NodeRecord) -> bool {
        self.all
            || self.nodes.contains(&node.name)
            || self.domains.iter().any(|(key, value)| node.labels.get(key) == Some(value))
    }

    /// Replaces dirty rows, removes those of nodes that no longer exist, and keeps the rest.
    pub(super) fn refresh<T>(
        &self,
        nodes: &Nodes,
        rows: &mut BTreeMap<Arc<str>, T>,
        fresh: BTreeMap<Arc<str>, T>,
    ) {
        rows.retain(|name, _| nodes.get(name).is_some());
        for (name, answer) in fresh {
            if nodes.get(&name).is_some_and(|info| self.has(info.node())) {
                rows.insert(name, answer);
            }
        }
    }
}
