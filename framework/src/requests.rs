//! How much a pod asks for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::resource::{Resource, names};

/// CPU that scoring assumes for a container that asks for none, in thousandths of a core.
pub const DEFAULT_MILLI_CPU: i64 = 100;
/// Memory that scoring assumes for a container that asks for none, in bytes (200 MiB).
pub const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// A larger request, of anything, counts as this much: about 4 PiB, or 4 trillion cores. So the sums of all the pods on a
/// node stay exact, whatever nonsense some of them ask for, and taking a pod away undoes adding it.
pub const MAX_AMOUNT: i64 = 1 << 52;

/// What a pod asks for, in the two forms that scheduling needs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PodRequests {
    /// What is really asked for.
    pub resource: Resource,
    /// CPU with [`DEFAULT_MILLI_CPU`] in place of nothing, per container.
    pub non_zero_milli_cpu: i64,
    /// Memory with [`DEFAULT_MEMORY`] in place of nothing, per container.
    pub non_zero_memory: i64,
}

/// One resource list: names and amounts, CPU in thousandths.
pub type ResourceList = Vec<(Arc<str>, i64)>;

/// What matters of a container for the pod's request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// Its requests from the spec.
    pub requests: ResourceList,
    /// For init containers: whether it keeps running beside the others (a sidecar).
    pub restartable: bool,
    /// From the pod's status, when the kubelet reports it: what is in force now and what has been allocated.
    pub status: Option<ContainerStatusRequests>,
}

/// What the kubelet reports for a container while a resize is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerStatusRequests {
    /// `status.containerStatuses[].resources.requests`.
    pub actual: ResourceList,
    /// `status.containerStatuses[].allocatedResources`.
    pub allocated: ResourceList,
}

/// Everything the effective request of a pod is derived from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RequestInputs {
    /// Init containers in order.
    pub init_containers: Vec<ContainerRequests>,
    /// Containers in order.
    pub containers: Vec<ContainerRequests>,
    /// `spec.resources.requests`, if set.
    pub pod_level: Option<ResourceList>,
    /// `spec.overhead`.
    pub overhead: ResourceList,
    /// Whether the kubelet found a requested resize infeasible; the spec is then not counted.
    pub resize_infeasible: bool,
}

/// Which of the inputs count.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestOptions {
    /// Count what the kubelet reports, for pods that already run (upstream's UseStatusResources).
    pub use_status: bool,
    /// Ignore `spec.resources` (upstream's scorer of the incoming pod does).
    pub skip_pod_level: bool,
}

impl RequestInputs {
    /// The effective request: the larger of what the containers need together and what any init container needs
    /// beside the sidecars started before it; pod-level amounts replace that; overhead is added.
    pub fn effective(&self, options: RequestOptions) -> PodRequests {
        let pod_level = self.pod_level.as_deref().filter(|_| !options.skip_pod_level);
        let resource = self.aggregate(pod_level, |c| self.container(c, options));
        let with_defaults = self.aggregate(pod_level, |c| {
            let mut requests = self.container(c, options);
            set_default(&mut requests.milli_cpu, DEFAULT_MILLI_CPU, c, names::CPU, pod_level);
            set_default(&mut requests.memory, DEFAULT_MEMORY, c, names::MEMORY, pod_level);
            requests
        });
        PodRequests {
            resource: resource.capped(MAX_AMOUNT),
            non_zero_milli_cpu: with_defaults.milli_cpu.min(MAX_AMOUNT),
            non_zero_memory: with_defaults.memory.min(MAX_AMOUNT),
        }
    }

    fn aggregate(
        &self,
        pod_level: Option<&[(Arc<str>, i64)]>,
        requests: impl Fn(&ContainerRequests) -> Resource,
    ) -> Resource {
        let mut total = Resource::default();
        for container in &self.containers {
            total.add(&requests(container));
        }
        let mut sidecars = Resource::default();
        let mut init_peak = Resource::default();
        for container in &self.init_containers {
            let own = requests(container);
            if container.restartable {
                total.add(&own);
                sidecars.add(&own);
                init_peak.set_max(&sidecars);
            } else {
                let mut beside_sidecars = own;
                beside_sidecars.add(&sidecars);
                init_peak.set_max(&beside_sidecars);
            }
        }
        total.set_max(&init_peak);
        for (name, amount) in pod_level.unwrap_or_default().iter().filter(|(name, _)| is_pod_level(name)) {
            total.set(name, *amount);
        }
        total.add(&resource_of(&self.overhead));
        total
    }

    fn container(&self, container: &ContainerRequests, options: RequestOptions) -> Resource {
        let spec = resource_of(&container.requests);
        let Some(status) = container.status.as_ref().filter(|_| options.use_status) else {
            return spec;
        };
        let mut counted = resource_of(&status.actual);
        counted.set_max(&resource_of(&status.allocated));
        if !self.resize_infeasible {
            counted.set_max(&spec);
        }
        counted
    }
}

/// Names that `spec.resources` may set.
fn is_pod_level(name: &str) -> bool {
    matches!(name, names::CPU | names::MEMORY) || name.starts_with(names::HUGE_PAGES_PREFIX)
}

/// The default stands in for a request that is not made at all; an explicit zero stays zero.
fn set_default(
    amount: &mut i64,
    default: i64,
    container: &ContainerRequests,
    name: &str,
    pod_level: Option<&[(Arc<str>, i64)]>,
) {
    let asked = |list: &[(Arc<str>, i64)]| list.iter().any(|(n, _)| &**n == name);
    if !asked(&container.requests) && *amount == 0 && !pod_level.is_some_and(asked) {
        *amount = default;
    }
}

/// A resource list as a vector; a pod count in it is not a request.
pub fn resource_of(list: &[(Arc<str>, i64)]) -> Resource {
    let mut resource = Resource::default();
    for (name, amount) in list.iter().filter(|(name, _)| &**name != names::PODS) {
        resource.set(name, *amount);
    }
    resource
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
    fn scoring_assumes_a_little_for_every_container_that_asks_for_nothing() {
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
    fn while_a_resize_is_under_way_the_largest_amount_counts() {
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
