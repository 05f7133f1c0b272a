//! The nominated nodes of pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use supercargo_framework::labels::Labels;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::{PodKey, PodStatus};
use supercargo_framework::{PodInfo, Uid};

/// A nominated pod, by name and UID only: the rest of it may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nominated {
    /// Its namespace and name.
    pub key: PodKey,
    /// Its UID.
    pub uid: Uid,
}

impl Nominated {
    /// The stand-in for a pod that is not queued: it requests nothing and has priority 0.
    pub(crate) fn unknown(&self) -> PodInfo {
        PodInfo {
            namespace: Arc::clone(&self.key.namespace),
            name: Arc::clone(&self.key.name),
            uid: self.uid.clone(),
            resource_version: "".into(),
            generation: 0,
            terminating: false,
            labels: Labels::default(),
            annotations: Labels::default(),
            controller: None,
            node_name: None,
            priority: 0,
            scheduling_gates: Box::default(),
            spec: Arc::default(),
            status_requests: None,
            status: PodStatus::default(),
            raw: None,
        }
    }
}

/// Nominated pods by node. Only pods without a node are here.
#[derive(Clone, Default)]
pub struct Nominator {
    by_node: BTreeMap<Arc<str>, Vec<Nominated>>,
    nodes: FxHashMap<Uid, Arc<str>>,
}

impl Nominator {
    /// Nominates the pod for the node of `nomination` or, with `Keep`, of its status.
    pub fn add(&mut self, pod: &PodInfo, nomination: &Nomination) {
        let node = match nomination {
            Nomination::Override(node) => node.clone(),
            Nomination::Keep => pod.status.nominated_node_name.clone(),
        };
        self.remove(&pod.uid);
        if let Some(node) = node.filter(|node| !node.is_empty()) {
            self.push(node, Nominated { key: pod.key(), uid: pod.uid.clone() });
        }
    }

    fn push(&mut self, node: Arc<str>, nominated: Nominated) {
        self.nodes.insert(nominated.uid.clone(), Arc::clone(&node));
        self.by_node.entry(node).or_default().push(nominated);
    }

    /// All nominations, by node and in their order.
    pub fn all(&self) -> impl Iterator<Item = (&Arc<str>, &Nominated)> {
        self.by_node.iter().flat_map(|(node, pods)| pods.iter().map(move |pod| (node, pod)))
    }

    /// Replaces all nominations.
    pub fn replace(&mut self, nominations: impl IntoIterator<Item = (Arc<str>, Nominated)>) {
        *self = Self::default();
        for (node, nominated) in nominations {
            self.remove(&nominated.uid);
            self.push(node, nominated);
        }
    }

    /// Follows an update: the status decides, or the known nomination if neither version has one.
    pub fn update(&mut self, old: &PodInfo, new: &PodInfo) {
        let silent = old.status.nominated_node_name.is_none() && new.status.nominated_node_name.is_none();
        let nomination = match self.nodes.get(&old.uid) {
            Some(node) if silent => Nomination::Override(Some(Arc::clone(node))),
            _ => Nomination::Keep,
        };
        self.remove(&old.uid);
        self.add(new, &nomination);
    }

    /// Ends the pod's nomination.
    pub fn remove(&mut self, uid: &Uid) {
        let Some(node) = self.nodes.remove(uid) else {
            return;
        };
        if let Some(uids) = self.by_node.get_mut(&node) {
            uids.retain(|nominated| nominated.uid != *uid);
            if uids.is_empty() {
                self.by_node.remove(&node);
            }
        }
    }

    /// The pods nominated for a node, in the order of their nominations.
    pub fn on_node(&self, node: &str) -> &[Nominated] {
        self.by_node.get(node).map_or(&[], Vec::as_slice)
    }

    /// The nodes with nominated pods.
    pub fn nodes(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_node.keys()
    }

    /// Whether no pod is nominated.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use supercargo_framework::testing::pod;

    #[test]
    fn a_nomination_is_remembered_until_the_status_says_otherwise() {
        let mut nominator = Nominator::default();
        let silent = pod("a").build();
        nominator.add(&silent, &Nomination::Override(Some("n1".into())));
        nominator.update(&silent, &silent);
        assert_eq!(nominator.on_node("n1")[0].uid, silent.uid);
        let nominated = pod("a").nominated("n2").build();
        nominator.update(&silent, &nominated);
        assert!(nominator.on_node("n1").is_empty());
        assert_eq!(nominator.on_node("n2").len(), 1);
        nominator.update(&nominated, &silent);
        assert!(nominator.is_empty(), "clearing the status clears the nomination");
    }
}
