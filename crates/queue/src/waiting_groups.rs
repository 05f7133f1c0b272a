//! The groups of pods in unschedulableEntities, indexed by what decides whether an event helps.
//!
//! A plugin of PreEnqueue holds each of them. An event looks at a group only if that plugin
//! registers for it, and if a plugin that rejected a member may find that it helps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_framework::Text;

use super::entry::QueuedPod;
use super::members::{InProfile, Members};

/// The entries of groups of pods, by sequence number.
#[derive(Clone, Default)]
pub(crate) struct WaitingGroups {
    groups: BTreeMap<u64, Arc<GroupRejection>>,
    by_rejection: BTreeMap<Arc<GroupRejection>, BTreeSet<u64>>,
}

/// The plugins whose registrations decide which events concern a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupRejection {
    pub(crate) gating_plugin: Option<Text>,
    /// The plugins that rejected a member; `None` stands for a member that no plugin rejected.
    pub(crate) rejectors: BTreeSet<InProfile>,
}

impl WaitingGroups {
    pub(crate) fn insert(&mut self, entry: &QueuedPod, members: &Members) {
        let rejectors = members.rejected().keys().cloned().collect();
        let gating_plugin = entry.gating_plugin.clone();
        let rejection = Arc::new(GroupRejection { gating_plugin, rejectors });
        self.by_rejection.entry(Arc::clone(&rejection)).or_default().insert(entry.sequence);
        self.groups.insert(entry.sequence, rejection);
    }

    pub(crate) fn remove(&mut self, sequence: u64) {
        let Some(rejection) = self.groups.remove(&sequence) else { return };
        let Some(alike) = self.by_rejection.get_mut(&rejection) else { return };
        alike.remove(&sequence);
        if alike.is_empty() {
            self.by_rejection.remove(&rejection);
        }
    }

    /// The groups that the same plugins rejected.
    pub(crate) fn by_rejection(&self) -> impl Iterator<Item = (&GroupRejection, &BTreeSet<u64>)> {
        self.by_rejection.iter().map(|(rejection, alike)| (&**rejection, alike))
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }
}
