//! A node with the pods on it.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::node::NodeRecord;
use crate::pod::{PodInfo, Uid};
use crate::ports::HostPort;
use crate::requests::PodRequests;
use crate::resource::Resource;
use crate::volume::VolumeSource;

/// The total requests of some pods on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodTotals {
    /// The number of pods.
    pub pods: usize,
    /// The sum of their requests.
    pub requested: Resource,
}

/// The pods of one priority on a node: their number, and the totals of the requests that nearly all
/// pods have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct OfPriority {
    priority: i32,
    pods: u32,
    milli_cpu: i64,
    memory: i64,
    ephemeral_storage: i64,
}

/// A node, the pods on it (bound and assumed), and their totals.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    node: Arc<NodeRecord>,
    pods: Vec<Arc<PodInfo>>,
    pods_with_affinity: Vec<Arc<PodInfo>>,
    pods_with_required_anti_affinity: Vec<Arc<PodInfo>>,
    claims: FxHashMap<(Arc<str>, Arc<str>), u32>,
    used_ports: Vec<HostPort>,
    doubtful_volumes: usize,
    /// By priority, ascending. A node has few priorities.
    by_priority: SmallVec<[OfPriority; 1]>,
    requested: Resource,
    non_zero_milli_cpu: i64,
    non_zero_memory: i64,
    generation: u64,
    affinity_arrivals: usize,
}

impl NodeInfo {
    /// A node without pods.
    pub fn new(node: Arc<NodeRecord>) -> Self {
        Self { node, ..Self::default() }
    }

    /// The node object.
    pub fn node(&self) -> &Arc<NodeRecord> {
        &self.node
    }

    /// The node's name.
    pub fn name(&self) -> &Arc<str> {
        &self.node.name
    }

    /// The pods on the node. A removal moves the last pod into the gap, as upstream.
    pub fn pods(&self) -> &[Arc<PodInfo>] {
        &self.pods
    }

    /// The pods with any inter-pod affinity or anti-affinity.
    pub fn pods_with_affinity(&self) -> &[Arc<PodInfo>] {
        &self.pods_with_affinity
    }

    /// The pods with required anti-affinity.
    pub fn pods_with_required_anti_affinity(&self) -> &[Arc<PodInfo>] {
        &self.pods_with_required_anti_affinity
    }

    /// The claims that the pods use, by namespace and name. As upstream, without ephemeral volumes.
    pub fn claims(&self) -> impl Iterator<Item = (&str, &str)> {
        self.claims.keys().map(|(namespace, name)| (&**namespace, &**name))
    }

    /// Whether a pod on the node uses the claim.
    pub fn uses_claim(&self, namespace: &Arc<str>, name: &Arc<str>) -> bool {
        !self.claims.is_empty() && self.claims.contains_key(&(Arc::clone(namespace), Arc::clone(name)))
    }

    /// The number of [doubtful](crate::VolumeSource::is_doubtful) volumes of the pods.
    pub fn doubtful_volumes(&self) -> usize {
        self.doubtful_volumes
    }

    /// Host ports in use; one entry per pod and port.
    pub fn used_ports(&self) -> &[HostPort] {
        &self.used_ports
    }

    /// The number of pods with a lower priority.
    pub fn pods_below(&self, priority: i32) -> usize {
        self.below(priority).map(|sums| sums.pods as usize).sum()
    }

    /// The totals of all pods.
    pub fn totals(&self) -> PodTotals {
        PodTotals { pods: self.pods.len(), requested: self.requested.clone() }
    }

    /// The totals of pods with at least this priority. Visits the pods only if some of them request
    /// scalar resources.
    pub fn totals_from(&self, priority: i32) -> PodTotals {
        let mut totals = self.totals();
        for sums in self.below(priority) {
            totals.pods -= sums.pods as usize;
            totals.requested.milli_cpu -= sums.milli_cpu;
            totals.requested.memory -= sums.memory;
            totals.requested.ephemeral_storage -= sums.ephemeral_storage;
        }
        if !totals.requested.scalars().is_empty() {
            for pod in self.pods.iter().filter(|pod| pod.priority < priority) {
                totals.requested.subtract_scalars(&pod.requests().resource);
            }
        }
        totals
    }

    fn below(&self, priority: i32) -> impl Iterator<Item = &OfPriority> {
        self.by_priority.iter().take_while(move |sums| sums.priority < priority)
    }

    /// The node with only the pods that match.
    pub fn with_pods_that(&self, stays: impl Fn(&PodInfo) -> bool) -> Self {
        let mut node = Self::new(Arc::clone(&self.node));
        for pod in self.pods.iter().filter(|pod| stays(pod)) {
            node.add_pod(Arc::clone(pod));
        }
        node
    }

    /// Adds a pod to the totals of its priority, or subtracts it.
    fn sum_up(&mut self, pod: &PodInfo, comes: bool) {
        let requested = &pod.requests().resource;
        let place = match self.by_priority.binary_search_by_key(&pod.priority, |sums| sums.priority) {
            Ok(place) => place,
            Err(place) => {
                let none = OfPriority {
                    priority: pod.priority,
                    pods: 0,
                    milli_cpu: 0,
                    memory: 0,
                    ephemeral_storage: 0,
                };
                self.by_priority.insert(place, none);
                place
            }
        };
        let sums = &mut self.by_priority[place];
        let change: fn(i64, i64) -> i64 = if comes { i64::saturating_add } else { i64::saturating_sub };
        sums.milli_cpu = change(sums.milli_cpu, requested.milli_cpu);
        sums.memory = change(sums.memory, requested.memory);
        sums.ephemeral_storage = change(sums.ephemeral_storage, requested.ephemeral_storage);
        sums.pods = if comes { sums.pods + 1 } else { sums.pods.saturating_sub(1) };
        if sums.pods == 0 {
            self.by_priority.remove(place);
        }
    }

    /// The node's allocatable resources.
    pub fn allocatable(&self) -> &Resource {
        &self.node.allocatable
    }

    /// The sum of the pods' requests.
    pub fn requested(&self) -> &Resource {
        &self.requested
    }

    /// The sum of the pods' CPU requests, with the scoring default for containers without a
    /// request.
    pub fn non_zero_milli_cpu(&self) -> i64 {
        self.non_zero_milli_cpu
    }

    /// The same for memory.
    pub fn non_zero_memory(&self) -> i64 {
        self.non_zero_memory
    }

    /// Increases with every change of the node or its pods.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of pods with inter-pod affinity ever added.
    pub(crate) fn affinity_arrivals(&self) -> usize {
        self.affinity_arrivals
    }

    /// Replaces the node object.
    pub fn set_node(&mut self, node: Arc<NodeRecord>) {
        self.node = node;
        self.generation += 1;
    }

    /// Adds a pod.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        let PodRequests { resource, non_zero_milli_cpu, non_zero_memory } = pod.requests();
        self.requested.add(resource);
        self.sum_up(&pod, true);
        self.non_zero_milli_cpu += non_zero_milli_cpu;
        self.non_zero_memory += non_zero_memory;
        self.used_ports.extend(pod.spec.host_ports.iter().cloned());
        self.doubtful_volumes += doubtful_volumes_of(&pod);
        for key in claims_of(&pod) {
            *self.claims.entry(key).or_default() += 1;
        }
        if let Some(affinity) = &pod.spec.pod_affinity {
            self.affinity_arrivals += 1;
            self.pods_with_affinity.push(Arc::clone(&pod));
            if !affinity.required_anti_affinity.is_empty() {
                self.pods_with_required_anti_affinity.push(Arc::clone(&pod));
            }
        }
        self.pods.push(pod);
        self.generation += 1;
    }

    /// Removes a pod; `None` if it is not on the node.
    pub fn remove_pod(&mut self, uid: &Uid) -> Option<Arc<PodInfo>> {
        // In a dry run it is often the last one added.
        let position = self.pods.iter().rposition(|pod| pod.uid == *uid)?;
        let pod = self.pods.swap_remove(position);
        self.sum_up(&pod, false);
        let PodRequests { resource, non_zero_milli_cpu, non_zero_memory } = pod.requests();
        self.requested.subtract(resource);
        self.non_zero_milli_cpu -= non_zero_milli_cpu;
        self.non_zero_memory -= non_zero_memory;
        self.doubtful_volumes -= doubtful_volumes_of(&pod);
        for key in claims_of(&pod) {
            if let Some(count) = self.claims.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.claims.remove(&key);
                }
            }
        }
        if pod.spec.pod_affinity.is_some() {
            for list in [&mut self.pods_with_affinity, &mut self.pods_with_required_anti_affinity] {
                if let Some(position) = list.iter().position(|listed| listed.uid == *uid) {
                    list.swap_remove(position);
                }
            }
        }
        for port in &pod.spec.host_ports {
            if let Some(i) = self.used_ports.iter().position(|used| used == port) {
                self.used_ports.swap_remove(i);
            }
        }
        self.generation += 1;
        Some(pod)
    }
}

fn doubtful_volumes_of(pod: &PodInfo) -> usize {
    pod.spec.volumes.iter().filter(|volume| volume.source.is_doubtful()).count()
}

/// The claims of a pod.
fn claims_of(pod: &PodInfo) -> impl Iterator<Item = (Arc<str>, Arc<str>)> {
    pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim(name) => Some((Arc::clone(&pod.namespace), Arc::clone(name))),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{node, pod};

    #[test]
    fn removing_a_pod_undoes_adding_it() {
        let mut info = NodeInfo::new(Arc::new(node("n1").build()));
        let first = Arc::new(pod("a").request("cpu", "100m").host_port(80).build());
        let second = Arc::new(pod("b").request("example.com/gpu", "2").host_port(80).build());
        info.add_pod(Arc::clone(&first));
        info.add_pod(Arc::clone(&second));
        assert_eq!(info.requested().get("example.com/gpu"), 2);
        assert_eq!(info.used_ports().len(), 2, "two pods with one port count twice");
        info.remove_pod(&second.uid);
        assert_eq!(info.used_ports().len(), 1);
        info.remove_pod(&first.uid);
        assert!(info.requested().is_zero() && info.used_ports().is_empty() && info.pods().is_empty());
        assert_eq!((info.non_zero_milli_cpu(), info.non_zero_memory()), (0, 0));
        assert!(info.remove_pod(&first.uid).is_none());
    }

    #[test]
    fn pods_are_totalled_by_priority() {
        let mut info = NodeInfo::new(Arc::new(node("n1").build()));
        let pods =
            [(5, "a", "1"), (-1, "b", "2"), (5, "c", "3"), (7, "d", "4")].map(|(priority, name, cpus)| {
                let pod = pod(name).priority(priority).request("cpu", cpus).request("memory", "1");
                Arc::new(pod.request("ephemeral-storage", "2").request("example.com/gpu", cpus).build())
            });
        for pod in &pods {
            info.add_pod(Arc::clone(pod));
        }
        let by_hand =
            |info: &NodeInfo, priority| info.with_pods_that(|pod| pod.priority >= priority).totals();
        for gone in [None, Some("c"), Some("b"), Some("a"), Some("d")] {
            if let Some(gone) = gone {
                info.remove_pod(&gone.into());
            }
            for priority in [i32::MIN, -1, 0, 5, 6, 8] {
                assert_eq!(info.totals_from(priority), by_hand(&info, priority), "from {priority}");
                let below = info.pods().iter().filter(|pod| pod.priority < priority).count();
                assert_eq!(info.pods_below(priority), below);
            }
        }
        assert!(info.by_priority.is_empty());
    }

    #[test]
    fn huge_requests_leave_no_trace_after_removal() {
        let mut info = NodeInfo::new(Arc::new(node("n1").build()));
        let greedy = |name: &str| {
            let pod = pod(name).request("memory", "9223372036854775807").request("cpu", "9e15");
            Arc::new(pod.request("example.com/gpu", "8Ei").build())
        };
        let pods: Vec<_> = (0..2_000).map(|i| greedy(&format!("p{i}"))).collect();
        for pod in &pods {
            info.add_pod(Arc::clone(pod));
        }
        assert!(
            info.requested().memory > 0
                && info.non_zero_memory() > 0
                && info.requested().get("example.com/gpu") > 0
        );
        for pod in &pods {
            info.remove_pod(&pod.uid);
        }
        assert!(info.requested().is_zero());
        assert_eq!((info.non_zero_milli_cpu(), info.non_zero_memory()), (0, 0));
    }
}
