//! A node with the pods on it.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::node::NodeRecord;
use crate::pod::{PodInfo, Uid};
use crate::ports::UsedPorts;
use crate::requests::PodRequests;
use crate::resource::Resource;
use crate::resource::sum::{BasicSum, ResourceSum, limited};
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
    requested: BasicSum,
}

/// A node, the pods on it (bound and assumed), and their totals.
#[derive(Clone, Debug, Default)]
pub struct NodeInfo {
    node: Arc<NodeRecord>,
    pods: Vec<Arc<PodInfo>>,
    pods_with_affinity: Vec<Arc<PodInfo>>,
    pods_with_required_anti_affinity: Vec<Arc<PodInfo>>,
    pods_with_claims: Vec<Arc<PodInfo>>,
    used_ports: UsedPorts,
    doubtful_volumes: usize,
    /// By priority, ascending. A node has few priorities.
    by_priority: SmallVec<[OfPriority; 1]>,
    requested_sum: ResourceSum,
    /// `requested_sum`, limited.
    requested: Resource,
    non_zero_milli_cpu: i128,
    non_zero_memory: i128,
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

    /// The names of the claims in a namespace that the pods use, as often as they do. As upstream,
    /// without ephemeral volumes.
    pub fn claims_in(&self, namespace: &str) -> impl Iterator<Item = &str> {
        let pods = self.pods_with_claims.iter().filter(move |pod| *pod.namespace == *namespace);
        pods.flat_map(|pod| claims_of(pod))
    }

    /// The number of [doubtful](crate::VolumeSource::is_doubtful) volumes of the pods.
    pub fn doubtful_volumes(&self) -> usize {
        self.doubtful_volumes
    }

    /// Host ports in use.
    pub fn used_ports(&self) -> &UsedPorts {
        &self.used_ports
    }

    /// The priorities of the pods, ascending.
    pub fn priorities(&self) -> impl Iterator<Item = i32> {
        self.by_priority.iter().map(|sums| sums.priority)
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
        let (mut pods, mut sum) = (self.pods.len(), self.requested_sum.clone());
        for sums in self.below(priority) {
            pods -= sums.pods as usize;
            sum.subtract_basic(&sums.requested);
        }
        if sum.has_scalars() {
            for pod in self.pods.iter().filter(|pod| pod.priority < priority) {
                sum.subtract_scalars(&pod.requests().resource);
            }
        }
        PodTotals { pods, requested: sum.limited() }
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

    /// The totals of a priority.
    fn of_priority(&mut self, priority: i32) -> &mut OfPriority {
        let place = match self.by_priority.binary_search_by_key(&priority, |sums| sums.priority) {
            Ok(place) => place,
            Err(place) => {
                let none = OfPriority { priority, pods: 0, requested: BasicSum::default() };
                self.by_priority.insert(place, none);
                place
            }
        };
        &mut self.by_priority[place]
    }

    /// Adds a pod to all sums.
    fn add_requests(&mut self, pod: &PodInfo) {
        let PodRequests { resource, non_zero_milli_cpu, non_zero_memory } = pod.requests();
        self.requested_sum.add(resource);
        self.requested = self.requested_sum.limited();
        self.non_zero_milli_cpu += i128::from(*non_zero_milli_cpu);
        self.non_zero_memory += i128::from(*non_zero_memory);
        let sums = self.of_priority(pod.priority);
        sums.pods += 1;
        sums.requested.add(resource);
    }

    /// Subtracts a pod from all sums.
    fn subtract_requests(&mut self, pod: &PodInfo) {
        let PodRequests { resource, non_zero_milli_cpu, non_zero_memory } = pod.requests();
        self.requested_sum.subtract(resource);
        self.requested = self.requested_sum.limited();
        self.non_zero_milli_cpu -= i128::from(*non_zero_milli_cpu);
        self.non_zero_memory -= i128::from(*non_zero_memory);
        let sums = self.of_priority(pod.priority);
        sums.pods -= 1;
        sums.requested.subtract(resource);
        self.by_priority.retain(|sums| sums.pods > 0);
    }

    /// Makes a sum wrong.
    #[cfg(any(test, feature = "testing"))]
    pub fn spoil_sums(&mut self) {
        self.requested.milli_cpu += 1;
    }

    /// Whether the sums are those of the pods: always, unless there is a bug. Costs as much as
    /// adding up the pods' requests.
    pub fn has_exact_sums(&self) -> bool {
        let mut fresh = Self::new(Arc::clone(&self.node));
        self.pods.iter().for_each(|pod| fresh.add_requests(pod));
        (self.requested_sum == fresh.requested_sum && self.requested == fresh.requested)
            && (self.non_zero_milli_cpu, self.non_zero_memory)
                == (fresh.non_zero_milli_cpu, fresh.non_zero_memory)
            && self.by_priority == fresh.by_priority
    }

    /// The node's allocatable resources.
    pub fn allocatable(&self) -> &Resource {
        &self.node.allocatable
    }

    /// The sum of the pods' requests. Amounts that 64 bits cannot express are limited.
    pub fn requested(&self) -> &Resource {
        &self.requested
    }

    /// The sum of the pods' CPU requests, with the scoring default for containers without a
    /// request.
    pub fn non_zero_milli_cpu(&self) -> i64 {
        limited(self.non_zero_milli_cpu)
    }

    /// The same for memory.
    pub fn non_zero_memory(&self) -> i64 {
        limited(self.non_zero_memory)
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

    /// Goes back to an earlier state, and to its generation: nobody may have noted a later one.
    pub fn restore(&mut self, earlier: Self) {
        let affinity_arrivals = self.affinity_arrivals + earlier.pods_with_affinity.len();
        *self = Self { affinity_arrivals, ..earlier };
    }

    /// Adds a pod.
    pub fn add_pod(&mut self, pod: Arc<PodInfo>) {
        self.add_requests(&pod);
        self.used_ports.add(&pod.spec.host_ports);
        self.doubtful_volumes += doubtful_volumes_of(&pod);
        if claims_of(&pod).next().is_some() {
            self.pods_with_claims.push(Arc::clone(&pod));
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
        self.subtract_requests(&pod);
        self.doubtful_volumes -= doubtful_volumes_of(&pod);
        if pod.spec.pod_affinity.is_some() {
            unlist(&mut self.pods_with_affinity, uid);
            unlist(&mut self.pods_with_required_anti_affinity, uid);
        }
        if claims_of(&pod).next().is_some() {
            unlist(&mut self.pods_with_claims, uid);
        }
        self.used_ports.remove(&pod.spec.host_ports);
        self.generation += 1;
        Some(pod)
    }
}

fn unlist(list: &mut Vec<Arc<PodInfo>>, uid: &Uid) {
    if let Some(position) = list.iter().position(|listed| listed.uid == *uid) {
        list.swap_remove(position);
    }
}

fn doubtful_volumes_of(pod: &PodInfo) -> usize {
    pod.spec.volumes.iter().filter(|volume| volume.source.is_doubtful()).count()
}

/// The claims of a pod.
fn claims_of(pod: &PodInfo) -> impl Iterator<Item = &str> {
    pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim(name) => Some(&**name),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::{PodBuilder, node, pod};

    #[test]
    fn removing_a_pod_undoes_adding_it() {
        let mut info = NodeInfo::new(Arc::new(node("n1").build()));
        let first = Arc::new(pod("a").request("cpu", "100m").host_port(80).build());
        let second = Arc::new(pod("b").request("example.com/gpu", "2").host_port(80).build());
        info.add_pod(Arc::clone(&first));
        info.add_pod(Arc::clone(&second));
        assert_eq!(info.requested().get("example.com/gpu"), 2);
        info.remove_pod(&second.uid);
        assert!(info.used_ports().conflict_with(&first.spec.host_ports), "the first pod still has the port");
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

    /// All sums of a node.
    fn sums(info: &NodeInfo) -> (&ResourceSum, i128, i128, &[OfPriority]) {
        (&info.requested_sum, info.non_zero_milli_cpu, info.non_zero_memory, &info.by_priority)
    }

    /// The pods' requests of a resource, added up without a limit.
    fn total(pods: &[Arc<PodInfo>], name: &str) -> i64 {
        limited(pods.iter().map(|pod| i128::from(pod.requests().resource.get(name))).sum())
    }

    #[test]
    fn pods_beyond_64_bits_fill_a_node_and_leave_no_trace() {
        let mut info = NodeInfo::new(Arc::new(node("n1").build()));
        let greedy = |i: usize| pod(&format!("p{i}")).request("memory", "4Pi").request("cpu", "4e15");
        let pods: Vec<_> = (0..2_200).map(|i| Arc::new(greedy(i).build())).collect();
        for pod in &pods {
            info.add_pod(Arc::clone(pod));
        }
        assert_eq!((info.requested().memory, info.non_zero_memory()), (i64::MAX, i64::MAX));
        assert_eq!((info.requested().milli_cpu, info.non_zero_milli_cpu()), (i64::MAX, i64::MAX));
        assert_eq!(info.totals_from(0).requested.memory, i64::MAX);
        assert_eq!(info.totals_from(1).requested.memory, 0);
        for pod in &pods {
            info.remove_pod(&pod.uid);
        }
        assert!(info.requested().is_zero());
        assert_eq!(sums(&info), sums(&NodeInfo::new(Arc::clone(info.node()))));
    }

    /// Requests of all magnitudes.
    fn request(name: usize) -> impl Strategy<Value = Arc<PodInfo>> {
        let amount = || {
            prop_oneof![0..100_i64, (0..63_u32).prop_map(|shift| i64::MAX >> shift), Just(i64::MAX)]
                .prop_map(|amount| amount.to_string())
        };
        let milli_cpu = || amount().prop_map(|amount| format!("{amount}m"));
        let scalars = prop::collection::vec(("example.com/[a-c]", amount()), 0..3);
        (milli_cpu(), amount(), amount(), scalars, -2..3_i32).prop_map(
            move |(cpu, memory, storage, scalars, priority)| {
                let pod = pod(&format!("p{name}")).request("cpu", &cpu).priority(priority);
                let pod = pod.request("memory", &memory).request("ephemeral-storage", &storage);
                let add = |pod: PodBuilder, (name, amount): &(String, String)| pod.request(name, amount);
                Arc::new(scalars.iter().fold(pod, add).build())
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn sums_are_exact_beyond_5000_pods(
            kinds in (0..12_usize).map(request).collect::<Vec<_>>(),
            kept in 0..20_usize,
            stride in 1..40_usize,
        ) {
            let named = |i: usize| {
                let uid = Uid::from(&*format!("p{i}"));
                Arc::new(PodInfo { uid, ..(*kinds[i % kinds.len()]).clone() })
            };
            let pods: Vec<_> = (0..5_200).map(named).collect();
            let mut info = NodeInfo::new(Arc::new(node("n1").build()));
            for pod in &pods {
                info.add_pod(Arc::clone(pod));
            }
            for name in ["cpu", "memory", "ephemeral-storage", "example.com/a"] {
                prop_assert_eq!(info.requested().get(name), total(&pods, name), "{}", name);
            }
            for start in 0..stride {
                for pod in pods[kept..].iter().skip(start).step_by(stride) {
                    info.remove_pod(&pod.uid);
                }
            }
            let rebuilt = info.with_pods_that(|_| true);
            prop_assert_eq!(info.pods().len(), kept);
            prop_assert_eq!(sums(&info), sums(&rebuilt));
            prop_assert!(info.has_exact_sums());
        }
    }

    #[test]
    fn a_sum_that_is_not_of_the_pods_is_noticed() {
        let mut info = NodeInfo::new(Arc::new(node("n1").build()));
        info.add_pod(Arc::new(pod("a").request("cpu", "1").build()));
        assert!(info.has_exact_sums());
        let wrong: [fn(&mut NodeInfo); 4] = [
            |info| info.requested_sum.add(&Resource::new(1, 0)),
            |info| info.non_zero_memory += 1,
            |info| info.by_priority.clear(),
            |info| info.requested.memory += 1,
        ];
        for (i, change) in wrong.into_iter().enumerate() {
            let mut wrong = info.clone();
            change(&mut wrong);
            assert!(!wrong.has_exact_sums(), "case {i}");
        }
    }
}
