//! How much a pod asks for.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::resource::{Resource, names};
use crate::steps;

/// CPU that scoring assumes for a container without a request, in milli-cores.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory that scoring assumes for a container without a request, in bytes (200 MiB).
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// A pod's requests, in the two forms that scheduling needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRequests {
    /// The actual requests.
    pub resource: Resource,
    /// CPU, with [`DEFAULT_MILLI_CPU`] for each container without a request.
    pub non_zero_milli_cpu: i64,
    /// Memory, with [`DEFAULT_MEMORY`] for each container without a request.
    pub non_zero_memory: i64,
}

/// A resource list: names and amounts, CPU in milli-cores.
pub type ResourceList = Vec<(Arc<str>, i64)>;

/// The parts of a container that the pod's request depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// Its requests from the spec.
    pub requests: ResourceList,
    /// For init containers: whether it is a sidecar.
    pub restartable: bool,
    /// The resources in the pod's status, if the kubelet reports them.
    pub status: Option<ContainerStatusRequests>,
}

/// The resources that the kubelet reports for a container, or for the pod, during a resize.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatusRequests {
    /// `resources.requests` of the status.
    pub actual: ResourceList,
    /// `allocatedResources` of the status.
    pub allocated: ResourceList,
}

/// The inputs of a pod's effective request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInputs {
    /// Init containers in order.
    pub init_containers: Vec<ContainerRequests>,
    /// Containers in order.
    pub containers: Vec<ContainerRequests>,
    /// `spec.resources.requests`, if set.
    pub pod_level: Option<ResourceList>,
    /// The same in the pod's status, if `status.resources` is set.
    pub pod_level_status: Option<ContainerStatusRequests>,
    /// `spec.overhead`.
    pub overhead: ResourceList,
    /// Whether the kubelet reports a requested resize as infeasible. The spec then does not count.
    pub resize_infeasible: bool,
}

/// Which of the inputs count.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions {
    /// Count the resources in the status, for running pods (upstream's UseStatusResources).
    pub use_status: bool,
    /// Ignore `spec.resources` (upstream's scorer of the incoming pod does).
    pub skip_pod_level: bool,
}

impl RequestInputs {
    /// The effective request: the maximum of the containers' sum and of each init container with
    /// the sidecars started before it. Pod-level amounts replace it; overhead is added.
    pub fn effective(&self, options: RequestOptions) -> PodRequests {
        let resource = self.aggregate(options, resource_of_all);
        let (cpu, memory) = (self.has_default(names::CPU, options), self.has_default(names::MEMORY, options));
        let with_defaults = self.aggregate(options, |counted| {
            let mut requests = resource_of_all(counted);
            if cpu && !counted.ask(names::CPU) {
                requests.milli_cpu = DEFAULT_MILLI_CPU;
            }
            if memory && !counted.ask(names::MEMORY) {
                requests.memory = DEFAULT_MEMORY;
            }
            requests
        });
        PodRequests {
            resource,
            non_zero_milli_cpu: with_defaults.milli_cpu,
            non_zero_memory: with_defaults.memory,
        }
    }

    /// The pod's limits, if the inputs are limits. Overhead is added only to resources that have a
    /// limit.
    pub fn limits(&self) -> Resource {
        let mut limits = self.without_overhead(RequestOptions::default(), resource_of_all);
        for (name, overhead) in &self.overhead {
            let limit = limits.get(name);
            if limit != 0 {
                limits.set(name, limit.saturating_add(*overhead));
            }
        }
        limits
    }

    fn aggregate(&self, options: RequestOptions, requests: impl Fn(&Counted<'_>) -> Resource) -> Resource {
        let mut total = self.without_overhead(options, requests);
        total.add(&resource_of(&self.overhead));
        total
    }

    fn without_overhead(
        &self,
        options: RequestOptions,
        requests: impl Fn(&Counted<'_>) -> Resource,
    ) -> Resource {
        let mut sums = Sums::default();
        for container in &self.containers {
            sums.add(requests(&self.of_container(container, options)));
        }
        for container in &self.init_containers {
            let own = requests(&self.of_container(container, options));
            if container.restartable {
                sums.add_sidecar(own);
            } else {
                sums.add_init_container(own);
            }
        }
        let mut total = sums.effective();
        if let Some(pod_level) = self.pod_level(options) {
            let counted = resource_of_all(&self.counted(pod_level, self.pod_level_status.as_ref(), options));
            let replaced = pod_level.iter().filter(|(name, _)| is_pod_level(name));
            total.set_all(replaced.map(|(name, _)| (name, counted.get(name))));
        }
        total
    }

    fn pod_level(&self, options: RequestOptions) -> Option<&ResourceList> {
        self.pod_level.as_ref().filter(|_| !options.skip_pod_level)
    }

    /// Whether a container without a request for the resource counts with the default. It does
    /// unless there are pod-level requests and anything in the pod requests the resource.
    fn has_default(&self, name: &str, options: RequestOptions) -> bool {
        let Some(pod_level) =
            self.pod_level(options).filter(|list| list.iter().any(|(name, _)| is_pod_level(name)))
        else {
            return true;
        };
        let mut containers = self.containers.iter().chain(&self.init_containers);
        let asked = containers.any(|container| self.of_container(container, options).ask(name))
            || asks(pod_level, name)
            || asks(&self.overhead, name);
        !asked
    }

    fn of_container<'a>(&self, container: &'a ContainerRequests, options: RequestOptions) -> Counted<'a> {
        self.counted(&container.requests, container.status.as_ref(), options)
    }

    /// The spec's requests; if the status counts, all requests that may be in effect.
    fn counted<'a>(
        &self,
        spec: &'a ResourceList,
        status: Option<&'a ContainerStatusRequests>,
        options: RequestOptions,
    ) -> Counted<'a> {
        match status.filter(|_| options.use_status) {
            None => Counted([Some(spec), None, None]),
            Some(ContainerStatusRequests { actual, allocated }) => {
                Counted([Some(spec).filter(|_| !self.resize_infeasible), Some(actual), Some(allocated)])
            }
        }
    }
}

/// The requests of containers, added up one by one. Basic and scalar resources are apart: each of
/// many containers may name a scalar resource of its own, and costs only what it names.
#[derive(Default)]
struct Sums {
    total: Resource,
    sidecars: Resource,
    init_peak: Resource,
    scalars: BTreeMap<Arc<str>, ScalarSums>,
}

/// The sums of one scalar resource.
#[derive(Default)]
struct ScalarSums {
    total: i64,
    sidecars: i64,
    init_peak: i64,
}

impl Sums {
    fn add(&mut self, mut own: Resource) {
        self.each_scalar(&mut own, |sums, own| sums.total = sums.total.saturating_add(own));
        self.total.add(&own);
    }

    fn add_sidecar(&mut self, mut own: Resource) {
        self.each_scalar(&mut own, |sums, own| {
            sums.total = sums.total.saturating_add(own);
            sums.sidecars = sums.sidecars.saturating_add(own);
            sums.init_peak = sums.init_peak.max(sums.sidecars);
        });
        self.total.add(&own);
        self.sidecars.add(&own);
        self.init_peak.set_max(&self.sidecars);
    }

    fn add_init_container(&mut self, mut own: Resource) {
        self.each_scalar(&mut own, |sums, own| {
            sums.init_peak = sums.init_peak.max(own.saturating_add(sums.sidecars));
        });
        own.add(&self.sidecars);
        self.init_peak.set_max(&own);
    }

    /// Takes the scalar resources out of `own`.
    fn each_scalar(&mut self, own: &mut Resource, add: impl Fn(&mut ScalarSums, i64)) {
        for (name, amount) in own.take_scalars() {
            steps::add(1);
            add(self.scalars.entry(name).or_default(), amount);
        }
    }

    /// The maximum of the sum and of the peak while init containers run.
    fn effective(self) -> Resource {
        let mut total = self.total;
        total.set_max(&self.init_peak);
        let scalars = self.scalars.iter().map(|(name, sums)| (name, sums.total.max(sums.init_peak)));
        total.set_all(scalars);
        total
    }
}

/// Resource lists of which the maximum of each resource counts.
struct Counted<'a>([Option<&'a ResourceList>; 3]);

impl Counted<'_> {
    fn ask(&self, name: &str) -> bool {
        self.0.iter().flatten().any(|list| asks(list, name))
    }
}

fn asks(list: &ResourceList, name: &str) -> bool {
    list.iter().any(|(known, _)| **known == *name)
}

fn resource_of_all(Counted(lists): &Counted<'_>) -> Resource {
    let mut largest = Resource::default();
    for list in lists.iter().flatten() {
        largest.set_max(&resource_of(list));
    }
    largest
}

/// Resources that `spec.resources` can set.
fn is_pod_level(name: &str) -> bool {
    matches!(name, names::CPU | names::MEMORY) || name.starts_with(names::HUGE_PAGES_PREFIX)
}

/// A resource list as a vector. A `pods` entry is not a request.
pub fn resource_of(list: &[(Arc<str>, i64)]) -> Resource {
    let counted = list.iter().filter(|(name, _)| &**name != names::PODS);
    Resource::of(counted.map(|(name, amount)| (name, *amount)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(cpu: i64, memory: i64) -> ContainerRequests {
        let requests = [("cpu", cpu), ("memory", memory)];
        let requests = requests.into_iter().filter(|(_, amount)| *amount >= 0);
        ContainerRequests { requests: requests.map(|(n, a)| (n.into(), a)).collect(), ..Default::default() }
    }

    fn sidecar(cpu: i64) -> ContainerRequests {
        ContainerRequests { restartable: true, ..container(cpu, 0) }
    }

    fn cpu(inputs: &RequestInputs, options: RequestOptions) -> i64 {
        inputs.effective(options).resource.milli_cpu
    }

    #[test]
    fn containers_add_up_and_init_containers_peak() {
        let cases = [
            ("containers add up", vec![], vec![container(100, 1), container(200, 1)], 300),
            ("a larger init container wins", vec![container(500, 1)], vec![container(100, 1)], 500),
            ("sidecars count with the containers", vec![sidecar(50)], vec![container(100, 1)], 150),
            (
                "an init container runs beside the sidecars before it",
                vec![sidecar(50), container(500, 1), sidecar(30)],
                vec![container(100, 1)],
                550,
            ),
        ];
        for (name, init_containers, containers, expected) in cases {
            let inputs = RequestInputs { init_containers, containers, ..Default::default() };
            assert_eq!(cpu(&inputs, RequestOptions::default()), expected, "{name}");
        }
    }

    #[test]
    fn scalar_resources_count_like_cpu() {
        let of_both = |amount: i64, restartable| ContainerRequests {
            requests: vec![("cpu".into(), amount), ("example.com/gpu".into(), amount)],
            restartable,
            ..Default::default()
        };
        let [peak, low] = [
            [of_both(50, true), of_both(500, false), of_both(30, true)],
            [5, 6, 7].map(|amount| of_both(amount, false)),
        ];
        for (init_containers, expected) in [(peak, 550), (low, 110)] {
            let containers = vec![of_both(10, false), of_both(100, false)];
            let inputs =
                RequestInputs { init_containers: init_containers.into(), containers, ..Default::default() };
            let requests = inputs.effective(RequestOptions::default()).resource;
            assert_eq!((requests.milli_cpu, requests.scalar("example.com/gpu")), (expected, expected));
        }
    }

    #[test]
    fn pod_level_requests_replace_and_overhead_adds() {
        let inputs = RequestInputs {
            containers: vec![container(100, 10)],
            pod_level: Some(vec![("cpu".into(), 70)]),
            overhead: vec![("cpu".into(), 5), ("memory".into(), 1)],
            ..Default::default()
        };
        let requests = inputs.effective(RequestOptions::default());
        assert_eq!((requests.resource.milli_cpu, requests.resource.memory), (75, 11));
        assert_eq!(cpu(&inputs, RequestOptions { skip_pod_level: true, ..Default::default() }), 105);
    }

    #[test]
    fn limits_add_up_and_overhead_alone_is_no_limit() {
        let inputs = RequestInputs {
            init_containers: vec![sidecar(50), container(500, 0)],
            containers: vec![container(100, 0)],
            overhead: vec![("cpu".into(), 5), ("memory".into(), 1)],
            ..Default::default()
        };
        assert_eq!(inputs.limits(), Resource::new(555, 0));
        let pod_level = RequestInputs { pod_level: Some(vec![("memory".into(), 10)]), ..inputs };
        assert_eq!(pod_level.limits(), Resource::new(555, 11));
    }

    #[test]
    fn scoring_uses_defaults_for_containers_without_requests() {
        let inputs = RequestInputs {
            containers: vec![container(-1, -1), container(300, -1), container(0, 0)],
            ..Default::default()
        };
        let requests = inputs.effective(RequestOptions::default());
        assert_eq!(requests.resource, Resource::new(300, 0));
        assert_eq!(requests.non_zero_milli_cpu, 100 + 300);
        assert_eq!(requests.non_zero_memory, 2 * DEFAULT_MEMORY);
    }

    #[test]
    fn pod_level_requests_limit_scoring_defaults() {
        let with_pod_level = |name: &str, containers, overhead: &[&str]| RequestInputs {
            containers,
            pod_level: Some(vec![(name.into(), 64)]),
            overhead: overhead.iter().map(|name| (Arc::from(*name), 1)).collect(),
            ..Default::default()
        };
        let half = || vec![container(100, -1), container(-1, -1)];
        let cases = [
            ("asked for by one container", with_pod_level("memory", half(), &[]), (100, 64)),
            ("asked for by none", with_pod_level("cpu", half(), &[]), (64, 2 * DEFAULT_MEMORY)),
            ("asked for by the overhead", with_pod_level("cpu", half(), &["memory"]), (64, 1)),
            (
                "pod-level amounts that do not count",
                with_pod_level("example.com/gpu", half(), &[]),
                (200, 2 * DEFAULT_MEMORY),
            ),
        ];
        for (name, inputs, expected) in cases {
            let requests = inputs.effective(RequestOptions::default());
            assert_eq!((requests.non_zero_milli_cpu, requests.non_zero_memory), expected, "{name}");
        }
    }

    #[test]
    fn pod_level_resizes_count_like_container_resizes() {
        let resizing = |infeasible| RequestInputs {
            containers: vec![container(100, 1)],
            pod_level: Some(vec![("cpu".into(), 400), ("memory".into(), 10)]),
            pod_level_status: Some(ContainerStatusRequests {
                actual: vec![("cpu".into(), 500)],
                allocated: vec![("cpu".into(), 450)],
            }),
            resize_infeasible: infeasible,
            ..Default::default()
        };
        let of = |inputs: &RequestInputs, options| {
            let resource = inputs.effective(options).resource;
            (resource.milli_cpu, resource.memory)
        };
        let with_status = RequestOptions { use_status: true, ..Default::default() };
        assert_eq!(of(&resizing(false), with_status), (500, 10));
        assert_eq!(of(&resizing(true), with_status), (500, 0), "the spec does not count");
        assert_eq!(of(&resizing(false), RequestOptions::default()), (400, 10));
        assert_eq!(of(&resizing(false), RequestOptions { skip_pod_level: true, ..with_status }), (100, 1));
    }

    #[test]
    fn during_a_resize_the_largest_amount_counts() {
        let resizing = |infeasible| RequestInputs {
            containers: vec![ContainerRequests {
                status: Some(ContainerStatusRequests {
                    actual: vec![("cpu".into(), 200)],
                    allocated: vec![("cpu".into(), 250)],
                }),
                ..container(400, 1)
            }],
            resize_infeasible: infeasible,
            ..Default::default()
        };
        let with_status = RequestOptions { use_status: true, ..Default::default() };
        assert_eq!(cpu(&resizing(false), with_status), 400);
        assert_eq!(cpu(&resizing(true), with_status), 250);
        assert_eq!(cpu(&resizing(true), RequestOptions::default()), 400);
    }
}
