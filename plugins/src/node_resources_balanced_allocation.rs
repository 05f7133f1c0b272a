//! Prefers nodes whose resource usage becomes more balanced with the pod.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use smallvec::SmallVec;
use supercargo_dynamic_resources::extended_resources::ScoredDevices;
use supercargo_framework::caching::{Caching, Stateless};
use supercargo_framework::plugin::{
    ExtensionPoints, MAX_NODE_SCORE, PreScorePlugin, ScorePlugin, SignPlugin,
};
use supercargo_framework::registry::{ArgsError, decode_args};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::status::Reasons;
use supercargo_framework::{
    Code, Context, CycleState, Features, NodeIndex, NodeInfo, Nodes, Plugin, PodInfo, Status,
};

use crate::args::{ResourceSpec, resources_or_default};
use crate::float_int::{float, floor, integer};
use crate::resource_usage::{ScoredResource, Usage, UsageColumns, chunks};

/// The plugin's name.
pub const NAME: &str = "NodeResourcesBalancedAllocation";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Args {
    resources: Option<Vec<ResourceSpec>>,
}

struct BalancedAllocation {
    resources: Box<[ScoredResource]>,
    /// Scores devices that provide extended resources (`DRAExtendedResource`).
    with_devices: Option<ScoredDevices>,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    let args: Args = decode_args(args)?;
    let resources = resources_or_default(args.resources);
    validate(&resources)?;
    Ok(Arc::new(BalancedAllocation {
        resources: resources.iter().filter_map(|spec| ScoredResource::from_name(&spec.name)).collect(),
        with_devices: ScoredDevices::if_enabled(features),
    }))
}

fn validate(resources: &[ResourceSpec]) -> Result<(), ArgsError> {
    // Names come last: one that is removed as wrong is missing, which would hide a weight.
    if let Some((i, spec)) = resources.iter().enumerate().find(|(_, spec)| spec.weight != 1) {
        return Err(ArgsError::new(
            format!("resources[{i}].weight"),
            format!("{} must be 1: balance knows no weights", spec.weight),
        ));
    }
    for (i, spec) in resources.iter().enumerate() {
        if resources[..i].iter().any(|earlier| earlier.name == spec.name) {
            return Err(ArgsError::new(
                format!("resources[{i}].name"),
                format!("{:?} is listed twice: each resource must be listed once", spec.name),
            ));
        }
    }
    Ok(())
}

impl BalancedAllocation {
    /// Pods that request none of the resources are skipped; otherwise all of them would be placed
    /// on one node.
    fn is_best_effort(&self, pod: &PodInfo) -> bool {
        let requested = &pod.requests().resource;
        self.resources.iter().all(|resource| resource.amount(requested) == 0)
    }

    fn scalar_names(&self) -> impl Iterator<Item = &str> {
        self.resources.iter().filter_map(ScoredResource::scalar_name)
    }
}

/// From 50, if the pod destroys the balance, over 75, if it changes nothing, to 100. A node with
/// absurd amounts gets an absurd score.
fn score_of(usages: &[Usage]) -> i64 {
    let balance_after = balance(usages, |usage| usage.after);
    let gain = balance_after.wrapping_sub(balance(usages, |usage| usage.before));
    let half = MAX_NODE_SCORE / 2;
    // The balance is never below 50, so the sum is not negative and truncates like upstream's
    // division.
    half + i64::midpoint(half, gain)
}

fn score_part(resources: &[UsageColumns<'_>], scores: &mut [i64]) {
    match resources {
        [a, b] if a.are_small() && b.are_small() => score_of_two(*a, *b, scores),
        _ => {
            for (i, score) in scores.iter_mut().enumerate() {
                let usages: SmallVec<[Usage; 4]> =
                    resources.iter().filter_map(|usages| usages.at(i)).collect();
                *score = score_of(&usages);
            }
        }
    }
}

/// [`score_of`] two resources for nodes with small amounts, without branches, so that the loop is
/// vectorised.
fn score_of_two(a: UsageColumns<'_>, b: UsageColumns<'_>, scores: &mut [i64]) {
    let (added_a, added_b) = (float(a.added), float(b.added));
    let (a, b) = (a.before.iter().zip(a.capacity), b.before.iter().zip(b.capacity));
    let half = float(MAX_NODE_SCORE / 2);
    for (score, ((before_a, capacity_a), (before_b, capacity_b))) in scores.iter_mut().zip(a.zip(b)) {
        let (before_a, before_b) = (float(*before_a), float(*before_b));
        let (capacity_a, capacity_b) = (float(*capacity_a), float(*capacity_b));
        let balance = |used_a: f64, used_b: f64| {
            let (a, b) = ((used_a / capacity_a).min(1.0), (used_b / capacity_b).min(1.0));
            floor((1.0 - ((a - b) / 2.0).abs()) * MAX_NODE_SCORE as f64)
        };
        let after = balance(before_a + added_a, before_b + added_b);
        let gain = after - balance(before_a, before_b);
        // A single resource is always balanced.
        let gain = if capacity_a == 0.0 || capacity_b == 0.0 { 0.0 } else { gain };
        *score = integer(half + floor((half + gain) * 0.5));
    }
}

/// 100 if all resources are used to the same fraction; less, the more the fractions differ.
fn balance(usages: &[Usage], used: impl Fn(&Usage) -> i64) -> i64 {
    let shares = usages.iter().map(|usage| (used(usage) as f64 / usage.capacity as f64).min(1.0));
    let shares: SmallVec<[f64; 4]> = shares.collect();
    ((1.0 - deviation(&shares)) * MAX_NODE_SCORE as f64) as i64
}

/// The standard deviation. Two fractions use the short form, which also rounds like upstream.
fn deviation(shares: &[f64]) -> f64 {
    match shares {
        [] | [_] => 0.0,
        [a, b] => ((a - b) / 2.0).abs(),
        _ => {
            let count = shares.len() as f64;
            let mean = shares.iter().sum::<f64>() / count;
            let squares: f64 = shares.iter().map(|share| (share - mean) * (share - mean)).sum();
            (squares / count).sqrt()
        }
    }
}

impl Plugin for BalancedAllocation {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_score(&self)
            .score(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreScorePlugin for BalancedAllocation {
    fn pre_score(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo, _: &[NodeIndex]) -> Status {
        if self.is_best_effort(pod) {
            return Status::with_reasons(Code::Skip, Reasons::new());
        }
        if let Some(devices) = &self.with_devices {
            devices.prepare(cx, state, pod, self.scalar_names());
        }
        Status::success()
    }
}

impl ScorePlugin for BalancedAllocation {
    fn score(
        &self,
        _: &Context<'_>,
        state: &CycleState,
        pod: &PodInfo,
        node: &NodeInfo,
    ) -> Result<i64, Status> {
        if self.is_best_effort(pod) {
            // Only if a profile disables the plugin at PreScore.
            return Ok(0);
        }
        let requested = &pod.requests().resource;
        let of_devices = |name: &str| self.with_devices.as_ref()?.usage(state, name, node.node());
        let usages: SmallVec<[Usage; 4]> = self
            .resources
            .iter()
            .filter_map(|resource| resource.usage(requested, node, &of_devices))
            .collect();
        Ok(score_of(&usages))
    }
}

impl SignPlugin for BalancedAllocation {
    /// Scores of devices depend on claims.
    fn sign(&self, cx: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        if self.with_devices.is_some() && ScoredDevices::are_scored(cx, pod, self.scalar_names()) {
            return Err(Unsignable);
        }
        signer.write(&pod.requests().resource);
        Ok(())
    }
}

impl Caching for BalancedAllocation {
    fn pre_score_depends_on_nodes(&self) -> bool {
        false
    }

    fn score_columns(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        scores: &mut [i64],
    ) -> bool {
        if self.is_best_effort(pod) {
            scores.fill(0);
            return true;
        }
        let requested = &pod.requests().resource;
        let usages = self.resources.iter().map(|resource| (resource.usages(requested, nodes.columns()), ()));
        let Some(resources) = UsageColumns::all(usages) else { return false };
        for range in chunks(scores.len()) {
            let part: SmallVec<[_; 4]> =
                resources.iter().map(|(usages, ())| usages.part(range.clone())).collect();
            score_part(&part, &mut scores[range]);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use supercargo_framework::testing::{NodeBuilder, PodBuilder, node, node_info, nodes, pod};

    use super::*;
    use crate::testing::{args_error, driver, driver_with_args};

    fn sized(cpu: &str, memory: &str) -> NodeBuilder {
        node("n").allocatable("cpu", cpu).allocatable("memory", memory)
    }

    fn asking(cpu: &str, memory: &str) -> PodBuilder {
        pod("p").request("cpu", cpu).request("memory", memory)
    }

    #[test]
    fn nodes_score_by_the_change_of_balance() {
        let cases = [
            ("a balanced pod on an empty node", asking("1", "1Gi"), sized("4", "4Gi"), vec![], 75),
            (
                "an unbalanced pod on an empty node",
                asking("4", "1Gi"),
                sized("4", "4Gi"),
                vec![],
                // Fractions 1 and 1/4: a deviation of 0.375, so 62 after 100.
                56,
            ),
            (
                "a pod that restores the balance",
                asking("0", "2Gi"),
                sized("4", "4Gi"),
                vec![asking("2", "0")],
                // Fractions 1/2 and 0 before: 75, then 100.
                87,
            ),
            (
                "an odd difference is truncated towards zero",
                asking("1", "0"),
                sized("4", "4Gi"),
                vec![],
                // Fractions 1/4 and 0: 87 after 100, so (50 - 13) / 2 = 18.
                68,
            ),
            ("a share is never above one", asking("8", "4Gi"), sized("4", "4Gi"), vec![], 75),
            ("requests only, no scoring defaults", asking("1", "1Gi"), sized("4", "4Gi"), vec![pod("q")], 75),
            ("a node without memory has only one share", asking("1", "1Gi"), sized("4", "0"), vec![], 75),
        ];
        for (name, new, node, pods, expected) in cases {
            let info = node_info(node.build(), pods.into_iter().map(PodBuilder::build));
            assert_eq!(driver(NAME).score(&new.build(), info), expected, "{name}");
        }
    }

    #[test]
    fn more_than_two_resources_use_the_standard_deviation() {
        let args = json!({"resources": [{"name": "cpu"}, {"name": "memory", "weight": 1}, {"name": "example.com/gpu"}]});
        let plugin = driver_with_args(NAME, args);
        let gpus = || sized("4", "4Gi").allocatable("example.com/gpu", "4");
        let new = asking("4", "0").request("example.com/gpu", "2").build();
        // Fractions 1, 0 and 1/2: a deviation of sqrt(1/6), so 59 after 100.
        let expected = 54;
        assert_eq!(plugin.score(&new, node_info(gpus().build(), [])), expected);
        // Without a request for the scalar, the two others count.
        let new = asking("4", "0").build();
        let expected = 50;
        assert_eq!(plugin.score(&new, node_info(gpus().build(), [])), expected);
    }

    #[test]
    fn pods_without_scored_requests_skip() {
        let (plugin, cluster) = (driver(NAME), nodes([node_info(sized("4", "4Gi").build(), [])]));
        let cases = [
            ("nothing", pod("p").build(), Code::Skip),
            ("only what is not scored", pod("p").request("example.com/gpu", "1").build(), Code::Skip),
            ("cpu", pod("p").request("cpu", "1m").build(), Code::Success),
        ];
        for (name, pod, expected) in cases {
            assert_eq!(plugin.pre_score(&pod, &cluster).code(), expected, "{name}");
        }
    }

    #[test]
    fn pod_level_requests_count() {
        let new = pod("p").pod_level_request("cpu", "4").build();
        let info = node_info(sized("4", "4Gi").build(), []);
        assert_eq!(driver(NAME).score(&new, info), 50);
    }

    #[test]
    fn arguments_are_checked() {
        let bad = [
            (
                json!({"resources": [{"name": "cpu"}, {"name": "cpu"}]}),
                "resources[1].name: \"cpu\" is listed twice: each resource must be listed once",
            ),
            (
                json!({"resources": [{"name": "cpu", "weight": 2}]}),
                "resources[0].weight: 2 must be 1: balance knows no weights",
            ),
            (
                json!({"resources": [{"name": "cpu", "weight": "1"}]}),
                "resources[0].weight: invalid type: string \"1\", expected i64",
            ),
            (json!({"resource": []}), "resource: unknown field `resource`, expected `resources`"),
        ];
        for (args, message) in bad {
            assert_eq!(args_error(NAME, args.clone()).as_deref(), Some(message), "{args}");
        }
        for args in [
            json!({}),
            json!({"resources": null}),
            json!({"resources": []}),
            json!({"resources": [{"name": "cpu", "weight": 0}]}),
        ] {
            assert_eq!(args_error(NAME, args.clone()), None, "{args}");
        }
    }
}
