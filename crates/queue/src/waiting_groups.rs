//! The groups of pods in unschedulableEntities, indexed by what decides whether an event helps.
//!
//! A plugin of PreEnqueue holds each of them. An event looks at a group only if that plugin
//! registers for it, and if a plugin that rejected a member may find that it helps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use supercargo_framework::Text;
use supercargo_runtime::profile::ProfileIndex;

use super::entry::QueuedPod;
use super::unschedulable::claims;

/// The entries of groups of pods, by sequence number.
#[derive(Clone, Default)]
pub(crate) struct WaitingGroups {
    groups: BTreeMap<u64, WaitingGroup>,
    by_rejection: BTreeMap<Arc<GroupRejection>, Alike>,
}

#[derive(Clone)]
struct WaitingGroup {
    rejection: Arc<GroupRejection>,
    /// The keys of the claims that members name, or once named.
    claims: BTreeSet<Box<str>>,
}

/// The plugins whose registrations decide which events concern a group.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupRejection {
    pub(crate) gating_plugin: Option<Text>,
    /// The plugins that rejected a member; `None` stands for a member that no plugin rejected.
    pub(crate) rejectors: BTreeSet<(ProfileIndex, Option<Text>)>,
}

/// Groups that the same plugins rejected.
#[derive(Clone, Default)]
pub(crate) struct Alike {
    pub(crate) sequences: BTreeSet<u64>,
    by_claim: BTreeMap<Box<str>, BTreeSet<u64>>,
}

impl WaitingGroups {
    pub(crate) fn insert(&mut self, entry: &QueuedPod, members: &[QueuedPod]) {
        let rejection = Arc::new(GroupRejection::of(entry, members));
        let alike = self.by_rejection.entry(Arc::clone(&rejection)).or_default();
        alike.sequences.insert(entry.sequence);
        let group = WaitingGroup { rejection, claims: BTreeSet::new() };
        self.groups.insert(entry.sequence, group);
        for member in members {
            self.add_claims(entry.sequence, member);
        }
    }

    /// Adds the claims that a member names.
    pub(crate) fn add_claims(&mut self, sequence: u64, member: &QueuedPod) {
        let Some(group) = self.groups.get_mut(&sequence) else { return };
        let Some(alike) = self.by_rejection.get_mut(&group.rejection) else { return };
        for claim in claims(&member.pod) {
            alike.by_claim.entry(claim.clone()).or_default().insert(sequence);
            group.claims.insert(claim);
        }
    }

    pub(crate) fn remove(&mut self, sequence: u64) {
        let Some(group) = self.groups.remove(&sequence) else { return };
        let Some(alike) = self.by_rejection.get_mut(&group.rejection) else { return };
        alike.sequences.remove(&sequence);
        for claim in &group.claims {
            if let Some(sequences) = alike.by_claim.get_mut(claim) {
                sequences.remove(&sequence);
                if sequences.is_empty() {
                    alike.by_claim.remove(claim);
                }
            }
        }
        if alike.sequences.is_empty() {
            self.by_rejection.remove(&group.rejection);
        }
    }

    pub(crate) fn by_rejection(&self) -> impl Iterator<Item = (&GroupRejection, &Alike)> {
        self.by_rejection.iter().map(|(rejection, alike)| (&**rejection, alike))
    }

    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }
}

impl Alike {
    /// The groups of which a member may name a claim, by its key.
    pub(crate) fn with_claim(&self, key: &str) -> impl Iterator<Item = u64> {
        self.by_claim.get(key).into_iter().flatten().copied()
    }
}

impl GroupRejection {
    fn of(entry: &QueuedPod, members: &[QueuedPod]) -> Self {
        let mut rejectors = BTreeSet::new();
        for member in members {
            rejectors.extend(member.rejectors().map(|plugin| (member.profile, Some(plugin.clone()))));
            if !member.has_rejectors() {
                rejectors.insert((member.profile, None));
            }
        }
        Self { gating_plugin: entry.gating_plugin.clone(), rejectors }
    }
}
