//! Random histories.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{NODES, Step, of_one_template, replay};
use crate::node::NodeRecord;
use crate::node_info::NodeInfo;
use crate::objects::Object;
use crate::plugin::{ExtensionPoints, Plugin};
use crate::pod::PodInfo;
use crate::testing::SplitMix64;

type AnyPod = Box<dyn Fn(&mut SplitMix64) -> PodInfo>;
type AnyNode = Box<dyn Fn(&mut SplitMix64, &str) -> NodeRecord>;
type AnyObject = Box<dyn Fn(&mut SplitMix64) -> Object>;

/// Random histories of a cluster, made of the pods, nodes and objects that its functions return.
///
/// Use few distinct values, so that pods and nodes often agree: two or three values of a label,
/// small amounts.
pub struct Histories {
    pod: AnyPod,
    node: AnyNode,
    object: Option<AnyObject>,
}

impl Histories {
    /// Histories of these pods, which are both scheduled and placed on nodes, and of nodes with a
    /// given name.
    pub fn new(
        pod: impl Fn(&mut SplitMix64) -> PodInfo + 'static,
        node: impl Fn(&mut SplitMix64, &str) -> NodeRecord + 'static,
    ) -> Self {
        Self { pod: Box::new(pod), node: Box::new(node), object: None }
    }

    /// The same with objects of other kinds.
    #[must_use]
    pub fn with_objects(mut self, object: impl Fn(&mut SplitMix64) -> Object + 'static) -> Self {
        self.object = Some(Box::new(object));
        self
    }

    /// Replays this many histories and returns how often cached answers were used. Zero means that
    /// the check tested nothing: the plugin signs no pod, or every change is a rebuild.
    ///
    /// # Panics
    /// If a cached answer is wrong, with the seed and the shortest failing history found.
    pub fn check(&self, plugin: Arc<dyn Plugin>, histories: u64) -> usize {
        let name = plugin.name();
        let points = plugin.extension_points();
        assert!(points.sign.is_some(), "{name} does not register `sign`: nothing is cached");
        let check = |seed| {
            let (pods, steps) = self.history(&mut SplitMix64::new(seed));
            failure(&points, &pods, &steps).map_err(|message| {
                let (message, steps) = shortest(&points, &pods, steps, message);
                let steps: Vec<_> = steps.iter().map(|step| format!("  {step}")).collect();
                format!("{name} with seed {seed}: {message}\nafter\n{}", steps.join("\n"))
            })
        };
        (0..histories).map(|seed| check(seed).unwrap_or_else(|message| panic!("{message}"))).sum()
    }

    /// Pods to schedule, and the steps.
    fn history(&self, random: &mut SplitMix64) -> (Vec<PodInfo>, Vec<Step>) {
        let first = (self.pod)(random);
        let labels =
            [0, 1].map(|_| if random.chance(50) { (self.pod)(random).labels } else { first.labels.clone() });
        let pods = of_one_template(first, labels);
        let start = (0..NODES - 1).map(|i| self.set_node(random, i)).collect::<Vec<_>>();
        let steps = 1 + random.below(40);
        let steps = (0..steps).map(|_| self.step(random, pods.len())).collect::<Vec<_>>();
        let last = Step::Schedule(random.below(pods.len()));
        let history = start.into_iter().chain(steps).chain([last]).collect();
        (pods, history)
    }

    fn set_node(&self, random: &mut SplitMix64, i: usize) -> Step {
        let mut info = NodeInfo::new(Arc::new((self.node)(random, &format!("n{i}"))));
        for number in 0..random.below(3) {
            let uid = (&*format!("n{i}-{number}")).into();
            info.add_pod(Arc::new(PodInfo { uid, ..(self.pod)(random) }));
        }
        Step::SetNode(info)
    }

    fn step(&self, random: &mut SplitMix64, pods: usize) -> Step {
        let node = random.below(NODES);
        match (random.below(31), &self.object) {
            (0..6, _) => Step::AddPod(node, (self.pod)(random)),
            (6..9, _) => Step::RemovePod(node, random.below(9)),
            (9, _) => Step::UpdatePod(node, random.below(9), (self.pod)(random)),
            (10, _) => Step::TerminatePod(node, random.below(9)),
            (11..13, _) => self.set_node(random, node),
            (13, _) => Step::RemoveNode(node),
            (14..17, _) => Step::ToggleFeasible(node),
            (17, Some(object)) => Step::SetObject(object(random)),
            (18, Some(_)) => Step::ClearObjects,
            _ => Step::Schedule(random.below(pods)),
        }
    }
}

/// Replays a history; the error is a mismatch or the message of a panic.
fn failure(points: &ExtensionPoints, pods: &[PodInfo], steps: &[Step]) -> Result<usize, String> {
    let replayed = catch_unwind(AssertUnwindSafe(|| replay(points, pods, steps.iter().cloned())));
    match replayed {
        Ok(result) => result.map_err(|mismatch| mismatch.to_string()),
        Err(_) => Err("the plugin panicked".to_owned()),
    }
}

/// Removes steps as long as the history still fails.
fn shortest(
    points: &ExtensionPoints,
    pods: &[PodInfo],
    mut steps: Vec<Step>,
    mut message: String,
) -> (String, Vec<Step>) {
    loop {
        let (before, mut i) = (steps.len(), 0);
        while i < steps.len() {
            let mut fewer = steps.clone();
            fewer.remove(i);
            match failure(points, pods, &fewer) {
                Err(shorter) => (steps, message) = (fewer, shorter),
                Ok(_) => i += 1,
            }
        }
        if steps.len() == before {
            return (message, steps);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caching::{Caching, Scope};
    use crate::context::Context;
    use crate::cycle_state::CycleState;
    use crate::panic_text;
    use crate::plugin::{FilterPlugin, SignPlugin};
    use crate::signature::{Signer, Unsignable};
    use crate::status::Status;
    use crate::testing::{node, pod};

    /// Limits the number of pods on a node to that of a label of the pod.
    struct Limit {
        scope: Scope,
        signs_limit: bool,
    }

    impl Plugin for Limit {
        fn name(&self) -> &'static str {
            "Limit"
        }

        fn extension_points(self: Arc<Self>) -> ExtensionPoints {
            ExtensionPoints::new().filter(&self).sign(&self).caching(&self)
        }
    }

    impl FilterPlugin for Limit {
        fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
            let limit = pod.labels.get("limit").and_then(|limit| limit.parse().ok()).unwrap_or(0);
            if node.pods().len() < limit { Status::success() } else { Status::unschedulable("full") }
        }
    }

    impl SignPlugin for Limit {
        fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
            if self.signs_limit {
                signer.write(&pod.labels.get("limit"));
            }
            Ok(())
        }
    }

    impl Caching for Limit {
        fn filter_scope(&self, _: &CycleState, _: &PodInfo) -> Scope {
            self.scope.clone()
        }
    }

    fn check(limit: Limit) -> Result<usize, String> {
        let histories = Histories::new(
            |random| pod("p").label("limit", random.pick(&["1", "2", "3"])).build(),
            |_, name| node(name).build(),
        );
        let checked = catch_unwind(AssertUnwindSafe(|| histories.check(Arc::new(limit), 50)));
        checked.map_err(|panic| panic_text(&*panic).to_owned())
    }

    #[test]
    fn a_correct_plugin_passes_and_its_answers_are_reused() {
        let reused = check(Limit { scope: Scope::Node, signs_limit: true });
        assert!(reused.as_ref().is_ok_and(|reused| *reused > 100), "{reused:?}");
    }

    #[test]
    fn a_scope_that_is_too_narrow_is_reported() {
        let message = check(Limit { scope: Scope::NodeObject, signs_limit: true }).unwrap_err();
        assert!(message.contains("answers that were not computed again"), "{message}");
        let steps = message.lines().skip_while(|line| *line != "after").count();
        assert!(steps <= 10, "the history is shortened: {message}");
    }

    #[test]
    fn a_signature_without_what_the_filter_reads_is_reported() {
        let message = check(Limit { scope: Scope::Node, signs_limit: false }).unwrap_err();
        assert!(message.contains("cached"), "{message}");
    }
}
