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
    /// The resources in the container's status.
    pub status: StatusRequests,
}

/// The resources that the kubelet reports for a container or for the pod. As upstream reads them
/// from the API server, an empty list is one that is not reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatusRequests {
    /// `resources.requests` of the status: what is in force.
    pub actuated: ResourceList,
    /// `allocatedResources` of the status: what the kubelet has set aside.
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
    pub pod_level_status: Option<StatusRequests>,
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

/// The amounts that a container can have at one time. They differ while the pod is resized.
#[derive(Clone, Copy)]
enum Amounts {
    Desired,
    Allocated,
    Actuated,
}

impl ContainerRequests {
    /// The container's amounts. Without a report, the spec's are in force too, unless the kubelet
    /// has rejected them.
    fn amounts(&self, which: Amounts, resize_infeasible: bool) -> &[(Arc<str>, i64)] {
        let StatusRequests { actuated, allocated } = &self.status;
        let reports: &[&ResourceList] = match which {
            Amounts::Desired => return &self.requests,
            Amounts::Allocated => &[allocated],
            Amounts::Actuated => &[actuated, allocated],
        };
        match reports.iter().find(|list| !list.is_empty()) {
            Some(reported) => reported,
            None if resize_infeasible => &[],
            None => &self.requests,
        }
    }

    fn reports_another_amount(&self) -> bool {
        let differs = |list: &ResourceList| !list.is_empty() && *list != self.requests;
        differs(&self.status.actuated) || differs(&self.status.allocated)
    }
}

impl RequestInputs {
    /// The effective request, as upstream's `PodRequests`: the maximum of the containers' sum and
    /// of each init container with the sidecars started before it. Pod-level amounts replace it;
    /// overhead is added.
    ///
    /// With the status, there are three such sums: of desired, allocated and actuated amounts. The
    /// largest amount of each resource counts.
    pub fn effective(&self, options: RequestOptions) -> PodRequests {
        let resource = self.aggregate(options, resource_of);
        let (cpu, memory) = (self.has_default(names::CPU, options), self.has_default(names::MEMORY, options));
        let with_defaults = self.aggregate(options, |list| {
            let mut requests = resource_of(list);
            if cpu && !asks(list, names::CPU) {
                requests.milli_cpu = DEFAULT_MILLI_CPU;
            }
            if memory && !asks(list, names::MEMORY) {
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

    /// Whether the status can change the effective request.
    pub fn status_counts(&self) -> bool {
        let mut containers = self.containers.iter().chain(&self.init_containers);
        self.resize_infeasible
            || self.pod_level_status.is_some()
            || containers.any(ContainerRequests::reports_another_amount)
    }

    /// The pod's limits, if the inputs are limits. Overhead is added only to resources that have a
    /// limit.
    pub fn limits(&self) -> Resource {
        let mut limits = self.without_overhead(RequestOptions::default(), resource_of);
        for (name, overhead) in &self.overhead {
            let limit = limits.get(name);
            if limit != 0 {
                limits.set(name, limit.saturating_add(*overhead));
            }
        }
        limits
    }

    fn aggregate(
        &self,
        options: RequestOptions,
        requests: impl Fn(&[(Arc<str>, i64)]) -> Resource,
    ) -> Resource {
        let mut total = self.without_overhead(options, requests);
        total.add(&resource_of(&self.overhead));
        total
    }

    fn without_overhead(
        &self,
        options: RequestOptions,
        requests: impl Fn(&[(Arc<str>, i64)]) -> Resource,
    ) -> Resource {
        let mut total = Resource::default();
        for which in self.in_force(options) {
            total.set_max(&self.sum(*which, &requests));
        }
        let pod_level = self.pod_level(options).unwrap_or_default();
        let mut largest = Resource::default();
        for list in pod_level {
            largest.set_max(&resource_of(list));
        }
        let replaced = pod_level.into_iter().flatten().filter(|(name, _)| is_pod_level(name));
        total.set_all(replaced.map(|(name, _)| (name, largest.get(name))));
        total
    }

    /// The sums of which the largest amounts count.
    fn in_force(&self, options: RequestOptions) -> &'static [Amounts] {
        match (options.use_status, self.resize_infeasible) {
            (false, _) => &[Amounts::Desired],
            (true, true) => &[Amounts::Allocated, Amounts::Actuated],
            (true, false) => &[Amounts::Desired, Amounts::Allocated, Amounts::Actuated],
        }
    }

    /// The sum of the containers, or the kubelet's own sum.
    fn sum(&self, which: Amounts, requests: impl Fn(&[(Arc<str>, i64)]) -> Resource) -> Resource {
        if let Some(reported) = self.reported_sum(which) {
            return resource_of(reported);
        }
        let amounts =
            |container: &ContainerRequests| requests(container.amounts(which, self.resize_infeasible));
        let mut sums = Sums::default();
        for container in &self.containers {
            sums.add(amounts(container));
        }
        for container in &self.init_containers {
            if container.restartable {
                sums.add_sidecar(amounts(container));
            } else {
                sums.add_init_container(amounts(container));
            }
        }
        sums.effective()
    }

    /// The pod's sum from its status. It counts only if both sums are there.
    fn reported_sum(&self, which: Amounts) -> Option<&ResourceList> {
        let StatusRequests { actuated, allocated } = self.pod_level_status.as_ref()?;
        let both = !actuated.is_empty() && !allocated.is_empty();
        match which {
            Amounts::Allocated if both => Some(allocated),
            Amounts::Actuated if both => Some(actuated),
            _ => None,
        }
    }

    /// The lists of pod-level amounts, if the spec has any: the largest amounts replace the sum.
    fn pod_level(&self, options: RequestOptions) -> Option<[PodLevel<'_>; 3]> {
        let is_set = |list: &&ResourceList| list.iter().any(|(name, _)| is_pod_level(name));
        let spec = self.pod_level.as_ref().filter(|_| !options.skip_pod_level).filter(is_set)?;
        let Some(status) = self.pod_level_status.as_ref().filter(|_| options.use_status) else {
            return Some([spec, &[], &[]]);
        };
        let spec: &[_] = if self.resize_infeasible { &[] } else { spec };
        Some([spec, &status.actuated, &status.allocated])
    }

    /// Whether a container without a request for the resource counts with the default. It does
    /// unless there are pod-level requests and anything in the pod requests the resource.
    fn has_default(&self, name: &str, options: RequestOptions) -> bool {
        let Some(pod_level) = self.pod_level(options) else { return true };
        let is_asked = pod_level.into_iter().any(|list| asks(list, name))
            || asks(&self.overhead, name)
            || self.in_force(options).iter().any(|which| self.sum_asks(*which, name));
        !is_asked
    }

    /// Whether the resource is part of the sum.
    fn sum_asks(&self, which: Amounts, name: &str) -> bool {
        if let Some(reported) = self.reported_sum(which) {
            return asks(reported, name);
        }
        let mut containers = self.containers.iter().chain(&self.init_containers);
        containers.any(|container| asks(container.amounts(which, self.resize_infeasible), name))
    }
}

/// Amounts that a pod names as a whole: in its spec, actuated or allocated.
type PodLevel<'a> = &'a [(Arc<str>, i64)];

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

fn asks(list: &[(Arc<str>, i64)], name: &str) -> bool {
    list.iter().any(|(known, _)| **known == *name)
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
mod tests;
