//! Calls one plugin as the scheduler does.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde_json::Value;

use crate::caching::{Caching, Uncached};
use crate::context::{Context, QueueContext};
use crate::cycle_state::CycleState;
use crate::event::{ActionType, Change, ClusterEvent, EventRegistration, EventResource, QueueingHint};
use crate::features::Features;
use crate::node_info::NodeInfo;
use crate::nodes::Nodes;
use crate::objects::Objects;
use crate::plugin::{ExtensionPoints, MAX_NODE_SCORE, Normalize, Plugin, PreFilter};
use crate::pod::PodInfo;
use crate::registry::Factory;
use crate::signature::{Signature, Signer, Unsignable};
use crate::status::{Code, Status};

/// Calls one plugin at its extension points, in the order and with the state of a scheduling cycle.
///
/// Methods panic if the plugin does not implement the extension point they are about.
#[derive(Clone)]
pub struct Driver {
    /// The plugin's extension points.
    pub points: ExtensionPoints,
}

impl Driver {
    /// A driver for this plugin.
    pub fn new(plugin: Arc<dyn Plugin>) -> Self {
        Self { points: plugin.extension_points() }
    }

    /// A driver for the plugin that a factory builds.
    pub fn build(factory: Factory, args: &Value, features: &Features) -> Self {
        Self::new(factory(args, features).unwrap_or_else(|error| panic!("{error}")))
    }

    /// The plugin's caching, or the defaults.
    pub fn caching(&self) -> &dyn Caching {
        self.points.caching.as_deref().unwrap_or(&Uncached)
    }

    /// The result of PreFilter without any nodes.
    pub fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        self.run_pre_filter(&Context::at_rest(&nodes, &objects), &mut CycleState::new(), pod)
    }

    fn run_pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let plugin = self.points.pre_filter.as_ref().expect("the plugin implements PreFilter");
        plugin.pre_filter(cx, state, pod)
    }

    /// The verdict on a node outside any cluster: PreFilter if the plugin has it, then Filter.
    pub fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Status {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        self.verdict(&Context::at_rest(&nodes, &objects), pod, node)
    }

    /// The verdict on every node of a cluster, in visiting order.
    pub fn verdicts(&self, pod: &PodInfo, nodes: &Nodes, objects: &Objects) -> Vec<Status> {
        let cx = Context::at_rest(nodes, objects);
        nodes.iter().map(|(_, node)| self.verdict(&cx, pod, node)).collect()
    }

    fn verdict(&self, cx: &Context<'_>, pod: &PodInfo, node: &NodeInfo) -> Status {
        let mut state = CycleState::new();
        if self.points.pre_filter.is_some() {
            match self.run_pre_filter(cx, &mut state, pod) {
                PreFilter::Skip => return Status::success(),
                PreFilter::Reject(status) => return status,
                PreFilter::AllNodes | PreFilter::Nodes(_) => {}
            }
        }
        let Some(plugin) = &self.points.filter else { return Status::success() };
        let status = plugin.filter(cx, &state, pod, node);
        let may_fail = !self.caching().filter_never_fails(cx, &state, pod);
        assert!(
            may_fail || status.code() != Code::Error,
            "filter_never_fails, but Filter failed: {status:?}"
        );
        status
    }

    /// The result of PreScore; success if the plugin does not implement it.
    pub fn pre_score(&self, pod: &PodInfo, nodes: &Nodes) -> Status {
        self.prepare_scores(&mut CycleState::new(), pod, nodes, &Objects::default())
    }

    fn prepare_scores(
        &self,
        state: &mut CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        objects: &Objects,
    ) -> Status {
        let cx = Context::at_rest(nodes, objects);
        let plugin = self.points.pre_score.as_ref();
        plugin.map_or_else(Status::success, |plugin| plugin.pre_score(&cx, state, pod, nodes.order()))
    }

    /// The raw scores of all nodes, all feasible; `None` if PreScore skips or fails, or there is no
    /// Score.
    pub fn raw_scores(&self, pod: &PodInfo, nodes: &Nodes) -> Option<Vec<i64>> {
        self.raw_scores_in(pod, nodes, &Objects::default())
    }

    /// The same with objects of other kinds.
    pub fn raw_scores_in(&self, pod: &PodInfo, nodes: &Nodes, objects: &Objects) -> Option<Vec<i64>> {
        self.scores_with_state(pod, nodes, objects).map(|(scores, _)| scores)
    }

    /// The raw score of a single node.
    pub fn score(&self, pod: &PodInfo, node: NodeInfo) -> i64 {
        let mut nodes = Nodes::default();
        let index = nodes.insert(node);
        nodes.set_order(vec![index]);
        self.raw_scores(pod, &nodes).expect("the plugin scores the pod")[0]
    }

    /// The normalised scores of all nodes, all feasible.
    pub fn scores(&self, pod: &PodInfo, nodes: &Nodes) -> Vec<i64> {
        self.scores_in(pod, nodes, &Objects::default()).expect("the plugin scores the pod")
    }

    /// The same with objects of other kinds; `None` if PreScore skips or fails, or there is no
    /// Score.
    pub fn scores_in(&self, pod: &PodInfo, nodes: &Nodes, objects: &Objects) -> Option<Vec<i64>> {
        let (mut scores, state) = self.scores_with_state(pod, nodes, objects)?;
        let plugin = self.points.score.as_ref()?;
        match plugin.normalization() {
            Normalize::None => {}
            Normalize::ByMax { reverse } => scores = by_max(&scores, reverse),
            Normalize::Custom => {
                assert!(plugin.normalize(&state, pod, &mut scores).is_success());
            }
        }
        Some(scores)
    }

    fn scores_with_state(
        &self,
        pod: &PodInfo,
        nodes: &Nodes,
        objects: &Objects,
    ) -> Option<(Vec<i64>, CycleState)> {
        let mut state = CycleState::new();
        if !self.prepare_scores(&mut state, pod, nodes, objects).is_success() {
            return None;
        }
        let plugin = self.points.score.as_ref()?;
        let cx = Context::at_rest(nodes, objects);
        let score = |node| plugin.score(&cx, &state, pod, node).expect("Score succeeds");
        let scores = nodes.iter().map(|(_, node)| score(node)).collect();
        Some((scores, state))
    }

    /// The events that the plugin registers.
    pub fn events(&self) -> Vec<EventRegistration> {
        let plugin = self.points.enqueue_extensions.as_ref();
        plugin.map_or_else(Vec::new, |plugin| Arc::clone(plugin).events_to_register())
    }

    /// The plugin's hint for an event; `None` if the plugin has not registered it.
    pub fn hint(
        &self,
        resource: EventResource,
        action: ActionType,
        pod: &PodInfo,
        change: &Change,
    ) -> Option<Result<QueueingHint, String>> {
        self.hint_in(&Objects::default(), resource, action, pod, change)
    }

    /// The same with objects of other kinds.
    pub fn hint_in(
        &self,
        objects: &Objects,
        resource: EventResource,
        action: ActionType,
        pod: &PodInfo,
        change: &Change,
    ) -> Option<Result<QueueingHint, String>> {
        let incoming = ClusterEvent::new(resource, action);
        let registration =
            self.events().into_iter().find(|registration| registration.event.matches(&incoming))?;
        Some(match registration.hint {
            Some(hint) => hint(&QueueContext { objects, preempting: &FxHashSet::default() }, pod, change),
            None => Ok(QueueingHint::Queue),
        })
    }

    /// The plugin's signature of a pod in an empty cluster.
    pub fn sign(&self, pod: &PodInfo) -> Signature {
        let mut signer = Signer::default();
        self.try_sign(pod, &mut signer).expect("the plugin signs the pod");
        signer.finish()
    }

    /// The same, appended to a signer; an error if the plugin does not sign the pod.
    pub fn try_sign(&self, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        self.sign_in(pod, &Nodes::default(), &Objects::default(), signer)
    }

    /// The same in a cluster.
    pub fn sign_in(
        &self,
        pod: &PodInfo,
        nodes: &Nodes,
        objects: &Objects,
        signer: &mut Signer,
    ) -> Result<(), Unsignable> {
        let cx = Context::at_rest(nodes, objects);
        self.points.sign.as_ref().map_or(Ok(()), |plugin| plugin.sign(&cx, pod, signer))
    }
}

/// Upstream's default normalisation, which [`Normalize::ByMax`] selects.
fn by_max(scores: &[i64], reverse: bool) -> Vec<i64> {
    let max = scores.iter().copied().max().unwrap_or_default();
    let share = |score: i64| if max == 0 { 0 } else { MAX_NODE_SCORE * score / max };
    let turned = |score: i64| if reverse { MAX_NODE_SCORE - score } else { score };
    scores.iter().map(|score| turned(share(*score))).collect()
}
