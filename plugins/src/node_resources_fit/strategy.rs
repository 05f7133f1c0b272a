//! Scores of resource usage.
//!
//! As upstream, arithmetic wraps: a node with absurd amounts gets an absurd score. A panic would
//! fail the cycle.

use smallvec::SmallVec;
use supercargo_framework::plugin::MAX_NODE_SCORE;
use supercargo_framework::shape::Shape;
use supercargo_framework::{NodeColumns, NodeInfo, PodInfo};

use crate::args::ResourceSpec;
use crate::float_int::{float, floor, integer};
use crate::resource_usage::{CHUNK, DeviceUsage, ScoredResource, Usage, UsageColumns, chunks};

/// A scoring strategy: the resources, and how each is scored.
pub(super) struct Strategy {
    method: Method,
    resources: Box<[(ScoredResource, i64)]>,
}

/// How one resource is scored.
pub(super) enum Method {
    /// The emptier the better.
    LeastAllocated,
    /// The fuller the better.
    MostAllocated,
    /// By a line.
    RequestedToCapacityRatio(Shape),
}

impl Strategy {
    /// A strategy over these resources.
    pub(super) fn new(method: Method, resources: &[ResourceSpec]) -> Self {
        let scored = |spec: &ResourceSpec| {
            ScoredResource::from_name(&spec.name).map(|resource| (resource, spec.weight))
        };
        Self { method, resources: resources.iter().filter_map(scored).collect() }
    }

    /// The same resources, the fuller the better.
    pub(super) fn most_allocated(&self) -> Self {
        Self { method: Method::MostAllocated, resources: self.resources.clone() }
    }

    /// The weighted mean over the resources of these nodes, as if they were one with these pods.
    pub(super) fn score_nodes<'a>(
        &self,
        pods: impl Iterator<Item = &'a PodInfo> + Clone,
        nodes: impl Iterator<Item = &'a NodeInfo> + Clone,
    ) -> i64 {
        let usage = |resource: &ScoredResource| {
            let requests = pods.clone().map(|pod| pod.spec.container_requests());
            resource.usage_of_nodes(requests, nodes.clone())
        };
        self.mean(self.resources.iter().map(|(resource, weight)| (usage(resource), *weight)))
    }

    /// The weighted mean over the resources. As in upstream's score (but not its filter), the pod
    /// counts without pod-level resources.
    pub(super) fn score(&self, pod: &PodInfo, node: &NodeInfo, of_devices: &DeviceUsage<'_>) -> i64 {
        let requests = pod.spec.container_requests();
        let usage = |resource: &ScoredResource| resource.usage_with_defaults(requests, node, of_devices);
        self.mean(self.resources.iter().map(|(resource, weight)| (usage(resource), *weight)))
    }

    /// The scalar resources that are scored.
    pub(super) fn scalar_names(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().filter_map(|(resource, _)| resource.scalar_name())
    }

    /// The same for all nodes; `false` if the columns do not suffice.
    pub(super) fn score_all(&self, pod: &PodInfo, columns: &NodeColumns, scores: &mut [i64]) -> bool {
        let requests = pod.spec.container_requests();
        let resources = self.resources.iter();
        let usages =
            resources.map(|(resource, weight)| (resource.usages_with_defaults(requests, columns), *weight));
        let Some(resources) = UsageColumns::all(usages) else { return false };
        for range in chunks(scores.len()) {
            let part: Part<'_> =
                resources.iter().map(|(usages, weight)| (usages.part(range.clone()), *weight)).collect();
            self.score_part(&part, &mut scores[range]);
        }
        true
    }

    fn score_part(&self, resources: &[(UsageColumns<'_>, i64)], scores: &mut [i64]) {
        if resources.iter().all(|(usages, _)| usages.are_small()) {
            match self.method {
                Method::LeastAllocated => {
                    return mean_of_small(resources, scores, |after, capacity| (capacity - after).max(0.0));
                }
                Method::MostAllocated => return mean_of_small(resources, scores, f64::min),
                Method::RequestedToCapacityRatio(_) => {}
            }
        }
        for (i, score) in scores.iter_mut().enumerate() {
            *score = self.mean(resources.iter().map(|(usages, weight)| (usages.at(i), *weight)));
        }
    }

    fn mean(&self, usages: impl Iterator<Item = (Option<Usage>, i64)>) -> i64 {
        let (mut sum, mut weights) = (0_i64, 0);
        for (usage, weight) in usages {
            if let Some(score) = usage.and_then(|usage| self.method.score(usage)) {
                sum = sum.wrapping_add(score.wrapping_mul(weight));
                weights += weight;
            }
        }
        if weights == 0 {
            return 0;
        }
        match self.method {
            Method::RequestedToCapacityRatio(_) => (sum as f64 / weights as f64).round() as i64,
            Method::LeastAllocated | Method::MostAllocated => sum / weights,
        }
    }
}

/// The columns of the resources with their weights, for some nodes.
type Part<'a> = SmallVec<[(UsageColumns<'a>, i64); 2]>;

/// The weighted mean of the resources' fractions, for up to [`CHUNK`] nodes with small amounts.
/// Without branches, so that the loop is vectorised: a resource that a node lacks has weight 0.
fn mean_of_small(
    resources: &[(UsageColumns<'_>, i64)],
    scores: &mut [i64],
    counted: impl Fn(f64, f64) -> f64,
) {
    let (mut sums, mut weights) = ([0.0; CHUNK], [0.0; CHUNK]);
    for (usages, weight) in resources {
        let (added, weight) = (float(usages.added), float(*weight));
        let totals = sums.iter_mut().zip(&mut weights);
        for ((before, capacity), (sum, weights)) in usages.before.iter().zip(usages.capacity).zip(totals) {
            let capacity = float(*capacity);
            let counts = if capacity == 0.0 { 0.0 } else { weight };
            let share = counted(float(*before) + added, capacity) * MAX_NODE_SCORE as f64 / capacity.max(1.0);
            *sum += floor(share) * counts;
            *weights += counts;
        }
    }
    for (score, (sum, weights)) in scores.iter_mut().zip(sums.iter().zip(&weights)) {
        *score = integer(floor(sum / weights.max(1.0)));
    }
}

impl Method {
    /// The score of one resource; `None` if it does not count.
    fn score(&self, Usage { after, capacity, .. }: Usage) -> Option<i64> {
        match self {
            Self::LeastAllocated if after > capacity => Some(0),
            Self::LeastAllocated => Some(share(capacity.wrapping_sub(after), capacity)),
            Self::MostAllocated => Some(share(after.min(capacity), capacity)),
            Self::RequestedToCapacityRatio(shape) => {
                let utilization = if after > capacity { 100 } else { share(after, capacity) };
                // Resources with score 0 are excluded from the mean.
                Some(shape.at(utilization)).filter(|score| *score > 0)
            }
        }
    }
}

/// The fraction of the capacity, scaled to [`MAX_NODE_SCORE`].
fn share(amount: i64, capacity: i64) -> i64 {
    amount.wrapping_mul(MAX_NODE_SCORE).wrapping_div(capacity)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, node_info, pod};

    use super::super::NAME;
    use crate::testing::driver_with_args;

    fn asking(cpu: &str, memory: &str) -> PodBuilder {
        pod("p").request("cpu", cpu).request("memory", memory)
    }

    fn sized(cpu: &str, memory: &str) -> NodeBuilder {
        node("n").allocatable("cpu", cpu).allocatable("memory", memory)
    }

    fn strategy(name: &str, resources: Value) -> Value {
        json!({"scoringStrategy": {"type": name, "resources": resources}})
    }

    fn score(args: Value, new: PodBuilder, node: NodeBuilder, pods: Vec<PodBuilder>) -> i64 {
        let info = node_info(node.build(), pods.into_iter().map(PodBuilder::build));
        driver_with_args(NAME, args).score(&new.build(), info)
    }

    #[test]
    fn least_allocated_prefers_emptier_nodes() {
        let args = || json!({});
        let cases = [
            ("quarter and half used", asking("1", "2Gi"), sized("4", "4Gi"), vec![], 62),
            (
                "the pods on the node count",
                asking("1", "1Gi"),
                sized("4", "4Gi"),
                vec![asking("1", "1Gi")],
                50,
            ),
            (
                "too much of one resource is zero for it",
                asking("8", "1Gi"),
                sized("4", "4Gi"),
                vec![],
                75 / 2,
            ),
            ("a pod without requests counts with the defaults", pod("p"), sized("1", "400Mi"), vec![], 70),
            (
                "each container of the node's pods counts with the defaults",
                pod("p"),
                sized("1", "800Mi"),
                vec![pod("q").container()],
                47,
            ),
            ("a resource that the node lacks is left out", asking("1", "1Gi"), sized("4", "0"), vec![], 75),
            ("a node with nothing scores nothing", asking("1", "1Gi"), sized("0", "0"), vec![], 0),
            (
                "pod-level requests do not count, the containers' defaults do",
                pod("p").pod_level_request("cpu", "2").pod_level_request("memory", "1Gi"),
                sized("1", "400Mi"),
                vec![],
                70,
            ),
        ];
        for (name, new, node, pods, expected) in cases {
            assert_eq!(score(args(), new, node, pods), expected, "{name}");
        }
    }

    #[test]
    fn weights_and_other_resources_count() {
        let resources = json!([{"name": "cpu", "weight": 3}, {"name": "example.com/gpu", "weight": 1}, {"name": "pods", "weight": 9}]);
        let gpus = || sized("4", "4Gi").allocatable("example.com/gpu", "4");
        let cases = [
            ("a requested scalar", asking("1", "0").request("example.com/gpu", "2"), (75 * 3 + 50) / 4),
            ("a scalar that it does not want", asking("1", "0"), 75),
        ];
        for (name, new, expected) in cases {
            let args = strategy("LeastAllocated", resources.clone());
            assert_eq!(score(args, new, gpus(), vec![]), expected, "{name}");
        }
    }

    #[test]
    fn most_allocated_prefers_fuller_nodes() {
        let cases = [
            ("quarter and half used", asking("1", "2Gi"), sized("4", "4Gi"), 37),
            ("more than all counts as all", asking("8", "1Gi"), sized("4", "4Gi"), 62),
        ];
        for (name, new, node, expected) in cases {
            assert_eq!(score(strategy("MostAllocated", json!([])), new, node, vec![]), expected, "{name}");
        }
    }

    #[test]
    fn requested_to_capacity_ratio_follows_the_shape() {
        let args = |resources: Value| {
            json!({"scoringStrategy": {"type": "RequestedToCapacityRatio", "resources": resources,
                "requestedToCapacityRatio": {"shape": [
                    {"utilization": 20, "score": 0}, {"utilization": 60, "score": 10}, {"utilization": 90, "score": 5}]}}})
        };
        let cpu = || json!([{"name": "cpu"}]);
        let cases = [
            ("before the first point", cpu(), asking("100m", "0"), 0),
            ("on a point", cpu(), asking("600m", "0"), 100),
            ("between two points", cpu(), asking("500m", "0"), 75),
            ("going down, cut towards zero", cpu(), asking("700m", "0"), 84),
            ("after the last point", cpu(), asking("950m", "0"), 50),
            ("more than all counts as all", cpu(), asking("5", "0"), 50),
            ("a resource with score 0 is excluded from the mean", json!([]), asking("600m", "10Mi"), 100),
            (
                "the mean is rounded to the nearest",
                json!([{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 2}]),
                asking("600m", "500Mi"),
                (100.0_f64 + 2.0 * 75.0).div_euclid(3.0) as i64,
            ),
        ];
        for (name, resources, new, expected) in cases {
            let node = sized("1", "1000Mi");
            assert_eq!(score(args(resources), new, node, vec![]), expected, "{name}");
        }
    }

    #[test]
    fn absurd_amounts_do_not_panic() {
        let huge = sized("4", "9223372036854775807");
        score(json!({}), asking("1", "9223372036854775807"), huge, vec![asking("1", "1Gi")]);
    }
}
