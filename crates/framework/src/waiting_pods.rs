//! The pods that wait on Permit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::pod::{PodInfo, PodKey, Uid};
use crate::text::Text;

/// A pod that waits on Permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingPod {
    /// Its UID.
    pub uid: Uid,
    /// Its name.
    pub key: PodKey,
    /// The key of its PodGroup, `namespace/name`.
    pub group: Option<Arc<str>>,
    /// The node reserved for it.
    pub node_name: Arc<str>,
    /// The plugins that still hold it, each with its timeout, counted from the start of the wait.
    pub pending: Vec<(Text, Duration)>,
}

impl WaitingPod {
    /// A pod that these plugins hold.
    pub fn new(pod: &PodInfo, node_name: Arc<str>, pending: Vec<(Text, Duration)>) -> Self {
        Self { uid: pod.uid.clone(), key: pod.key(), group: pod.group_key(), node_name, pending }
    }
}

/// The pods that wait on Permit, the longest wait first. A gang may have many.
#[derive(Debug, Default)]
pub struct WaitingPods {
    by_arrival: BTreeMap<u64, WaitingPod>,
    arrivals: BTreeMap<Uid, u64>,
    next: u64,
}

impl WaitingPods {
    /// No pods.
    pub const NONE: &Self = &Self { by_arrival: BTreeMap::new(), arrivals: BTreeMap::new(), next: 0 };

    /// The number of pods.
    pub fn len(&self) -> usize {
        self.by_arrival.len()
    }

    /// Whether no pod waits.
    pub fn is_empty(&self) -> bool {
        self.by_arrival.is_empty()
    }

    /// The pods, the longest wait first.
    pub fn iter(&self) -> impl Iterator<Item = &WaitingPod> {
        self.by_arrival.values()
    }

    /// A pod.
    pub fn get(&self, uid: &Uid) -> Option<&WaitingPod> {
        self.by_arrival.get(&self.arrival(uid)?)
    }

    /// The same, to change it.
    pub fn get_mut(&mut self, uid: &Uid) -> Option<&mut WaitingPod> {
        let arrival = self.arrival(uid)?;
        self.by_arrival.get_mut(&arrival)
    }

    /// The number of a pod's arrival: greater numbers came later.
    pub fn arrival(&self, uid: &Uid) -> Option<u64> {
        self.arrivals.get(uid).copied()
    }

    /// Adds a pod that does not wait yet.
    pub fn push(&mut self, pod: WaitingPod) {
        self.arrivals.insert(pod.uid.clone(), self.next);
        self.by_arrival.insert(self.next, pod);
        self.next += 1;
    }

    /// Removes a pod.
    pub fn remove(&mut self, uid: &Uid) -> Option<WaitingPod> {
        self.by_arrival.remove(&self.arrivals.remove(uid)?)
    }
}

impl FromIterator<WaitingPod> for WaitingPods {
    fn from_iter<I: IntoIterator<Item = WaitingPod>>(pods: I) -> Self {
        let mut waiting = Self::default();
        pods.into_iter().for_each(|pod| waiting.push(pod));
        waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::pod;

    #[test]
    fn pods_keep_the_order_of_their_arrival() {
        let waiting_pod = |name: &str| WaitingPod::new(&pod(name).group("g").build(), "n".into(), Vec::new());
        let mut waiting: WaitingPods = ["b", "c", "a"].into_iter().map(waiting_pod).collect();
        let names = |waiting: &WaitingPods| waiting.iter().map(|it| it.uid.to_string()).collect::<Vec<_>>();
        assert_eq!(names(&waiting), ["b", "c", "a"]);
        assert_eq!(waiting.remove(&"c".into()).map(|it| it.uid), Some("c".into()));
        assert!(waiting.remove(&"c".into()).is_none() && waiting.get(&"c".into()).is_none());
        waiting.push(waiting_pod("c"));
        waiting.get_mut(&"a".into()).unwrap().node_name = "m".into();
        assert_eq!(names(&waiting), ["b", "a", "c"]);
        assert_eq!(waiting.get(&"a".into()).unwrap().node_name, "m".into());
        assert_eq!((waiting.len(), waiting.is_empty()), (3, false));
    }
}
