//! Drives one plugin as a scheduler would, for tests.

use std::sync::Arc;

use rustc_hash::FxHashSet;
use serde_json::Value;
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::objects::{Body, Object, Objects, PersistentVolumeClaim, resources};
use supercargo_framework::plugin::{ExtensionPoints, MAX_NODE_SCORE, Normalize, PreFilter};
use supercargo_framework::signature::{Signature, Signer, Unsignable};
use supercargo_framework::testing::{PodBuilder, object};
use supercargo_framework::volume::{Volume, VolumeSource};
use supercargo_framework::{
    ActionType, ClusterEvent, Code, Context, CycleState, EventResource, Features, NodeInfo, NodeRecord,
    Nodes, Now, PodInfo, QueueContext, Status,
};

/// What is wrong with a plugin's arguments, if anything.
pub(crate) fn args_error(plugin: &str, args: Value) -> Option<String> {
    let factory = crate::registry().get(plugin).expect("tests name plugins that exist");
    factory(&args, &Features::default()).err().map(|error| error.to_string())
}

/// A node with pods on it.
pub(crate) fn node_info(node: NodeRecord, pods: impl IntoIterator<Item = PodInfo>) -> NodeInfo {
    let mut info = NodeInfo::new(Arc::new(node));
    for pod in pods {
        info.add_pod(Arc::new(pod));
    }
    info
}

/// All these nodes, in this order.
pub(crate) fn nodes(infos: impl IntoIterator<Item = NodeInfo>) -> Nodes {
    let mut nodes = Nodes::default();
    let order = infos.into_iter().map(|info| nodes.insert(info)).collect();
    nodes.set_order(order);
    nodes
}

/// A pod that is gone.
pub(crate) fn pod_deleted(pod: PodInfo) -> Change {
    Change::Pod { old: Some(Arc::new(pod)), new: None }
}

/// A pod that changed.
pub(crate) fn pod_updated(old: PodInfo, new: PodInfo) -> Change {
    Change::Pod { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// A new node.
pub(crate) fn node_added(node: NodeRecord) -> Change {
    Change::Node { old: None, new: Some(Arc::new(node)) }
}

/// A node that changed.
pub(crate) fn node_updated(old: NodeRecord, new: NodeRecord) -> Change {
    Change::Node { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// These objects.
pub(crate) fn objects(list: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in list {
        objects.insert(Arc::new(object));
    }
    objects
}

/// An object that is new.
pub(crate) fn object_added(object: Object) -> Change {
    Change::Object { old: None, new: Some(Arc::new(object)) }
}

/// An object that changed.
pub(crate) fn object_updated(old: Object, new: Object) -> Change {
    Change::Object { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// An object that is gone.
pub(crate) fn object_deleted(object: Object) -> Change {
    Change::Object { old: Some(Arc::new(object)), new: None }
}

/// The pod with these volumes.
pub(crate) fn with_volumes(pod: PodBuilder, volumes: &[(&str, VolumeSource)]) -> PodInfo {
    let volume =
        |(name, source): &(&str, VolumeSource)| Volume { name: (*name).into(), source: source.clone() };
    pod.with_spec(|spec| spec.volumes = volumes.iter().map(volume).collect()).build()
}

/// A volume of a claim.
pub(crate) fn claim_source(name: &str) -> VolumeSource {
    VolumeSource::Claim(name.into())
}

/// A claim `namespace/name`, bound to a volume unless its name is empty.
pub(crate) fn claim(key: &str, class: &str, volume: &str) -> Object {
    let body = PersistentVolumeClaim {
        storage_class: class.into(),
        volume_name: volume.into(),
        ..PersistentVolumeClaim::default()
    };
    object(&resources::PERSISTENT_VOLUME_CLAIM, key, Body::PersistentVolumeClaim(body))
}

/// One plugin, built from arguments.
pub(crate) struct Driver {
    pub(crate) points: ExtensionPoints,
}

impl Driver {
    /// The plugin without arguments.
    pub(crate) fn new(plugin: &str) -> Self {
        Self::with_args(plugin, Value::Null)
    }

    /// The plugin with arguments that must be good.
    pub(crate) fn with_args(plugin: &str, args: Value) -> Self {
        let factory = crate::registry().get(plugin).expect("tests name plugins that exist");
        let plugin = factory(&args, &Features::default()).unwrap_or_else(|error| panic!("{plugin}: {error}"));
        Self { points: plugin.extension_points() }
    }

    /// The plugin with these features.
    pub(crate) fn with_features(plugin: &str, features: &Features) -> Self {
        let factory = crate::registry().get(plugin).expect("tests name plugins that exist");
        let plugin = factory(&Value::Null, features).unwrap_or_else(|error| panic!("{plugin}: {error}"));
        Self { points: plugin.extension_points() }
    }

    /// The answer of PreFilter, without nodes.
    pub(crate) fn pre_filter(&self, pod: &PodInfo) -> PreFilter {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        self.run_pre_filter(&Context::new(&nodes, &objects, &[], Now::default()), &mut CycleState::new(), pod)
    }

    fn run_pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        let plugin = self.points.pre_filter.as_ref().expect("the plugin pre-filters");
        plugin.pre_filter(cx, state, pod)
    }

    /// The verdict on one node: PreFilter where the plugin has it, then Filter.
    pub(crate) fn filter(&self, pod: &PodInfo, node: &NodeInfo) -> Status {
        let (nodes, objects) = (Nodes::default(), Objects::default());
        self.verdict(&Context::new(&nodes, &objects, &[], Now::default()), pod, node)
    }

    /// The verdict on every node of a cluster.
    pub(crate) fn verdicts(&self, pod: &PodInfo, nodes: &Nodes, objects: &Objects) -> Vec<Status> {
        let cx = Context::new(nodes, objects, &[], Now::default());
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
        match &self.points.filter {
            Some(plugin) => {
                let status = plugin.filter(cx, &state, pod, node);
                let keeps_word = status.code() != Code::Error || !plugin.never_fails(cx, &state, pod);
                assert!(keeps_word, "it never fails, it says: {status:?}");
                status
            }
            None => Status::success(),
        }
    }

    /// The normalised scores of all nodes of a cluster; `None` when PreScore leaves the plugin out.
    pub(crate) fn scores_in(&self, pod: &PodInfo, nodes: &Nodes, objects: &Objects) -> Option<Vec<i64>> {
        let cx = Context::new(nodes, objects, &[], Now::default());
        let mut state = CycleState::new();
        if let Some(plugin) = &self.points.pre_score
            && !plugin.pre_score(&cx, &mut state, pod, nodes.order()).is_success()
        {
            return None;
        }
        let plugin = self.points.score.as_ref()?;
        let mut scores: Vec<_> = nodes
            .iter()
            .map(|(_, node)| plugin.score(&cx, &state, pod, node).expect("in-tree scores do not fail"))
            .collect();
        match plugin.normalization() {
            Normalize::None => {}
            Normalize::ByMax { reverse } => scores = by_max(&scores, reverse),
            Normalize::ByRange | Normalize::Custom => {
                assert!(plugin.normalize(&state, pod, &mut scores).is_success());
            }
        }
        Some(scores)
    }

    /// The answer of PreScore.
    pub(crate) fn pre_score(&self, pod: &PodInfo, nodes: &Nodes) -> Status {
        let objects = Objects::default();
        let cx = Context::new(nodes, &objects, &[], Now::default());
        match &self.points.pre_score {
            Some(plugin) => plugin.pre_score(&cx, &mut CycleState::new(), pod, nodes.order()),
            None => Status::success(),
        }
    }

    /// The raw scores of all nodes; `None` when PreScore leaves the plugin out or fails, or there is no Score.
    pub(crate) fn raw_scores(&self, pod: &PodInfo, nodes: &Nodes) -> Option<Vec<i64>> {
        let objects = Objects::default();
        let cx = Context::new(nodes, &objects, &[], Now::default());
        let mut state = CycleState::new();
        if let Some(plugin) = &self.points.pre_score
            && !plugin.pre_score(&cx, &mut state, pod, nodes.order()).is_success()
        {
            return None;
        }
        let plugin = self.points.score.as_ref()?;
        let scores = nodes
            .iter()
            .map(|(_, node)| plugin.score(&cx, &state, pod, node).expect("in-tree scores do not fail"));
        Some(scores.collect())
    }

    /// The raw score of a lone node.
    pub(crate) fn score(&self, pod: &PodInfo, node: NodeInfo) -> i64 {
        self.raw_scores(pod, &nodes([node])).expect("the plugin scores")[0]
    }

    /// The normalised scores of all nodes.
    pub(crate) fn scores(&self, pod: &PodInfo, nodes: &Nodes) -> Vec<i64> {
        let scores = self.raw_scores(pod, nodes).expect("the plugin scores");
        let plugin = self.points.score.as_ref().expect("the plugin scores");
        match plugin.normalization() {
            Normalize::None => scores,
            Normalize::ByMax { reverse } => by_max(&scores, reverse),
            Normalize::ByRange | Normalize::Custom => {
                panic!("no in-tree plugin of this crate normalises by itself")
            }
        }
    }

    /// The events that the plugin asks for.
    pub(crate) fn events(&self) -> Vec<EventRegistration> {
        match &self.points.enqueue_extensions {
            Some(plugin) => Arc::clone(plugin).events_to_register(),
            None => Vec::new(),
        }
    }

    /// What the plugin makes of an event; `None` when it does not hear of it.
    pub(crate) fn hint(
        &self,
        resource: EventResource,
        action: ActionType,
        pod: &PodInfo,
        change: &Change,
    ) -> Option<Result<QueueingHint, String>> {
        self.hint_in(&Objects::default(), resource, action, pod, change)
    }

    /// The same where there are other objects.
    pub(crate) fn hint_in(
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

    /// What the plugin's answers depend on.
    pub(crate) fn sign(&self, pod: &PodInfo) -> Signature {
        let mut signer = Signer::default();
        self.try_sign(pod, &mut signer).expect("the plugin signs");
        signer.finish()
    }

    /// The same where nothing else is there; an error when the plugin does not sign the pod.
    pub(crate) fn try_sign(&self, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        self.sign_in(pod, &Nodes::default(), &Objects::default(), signer)
    }

    /// The same in a cluster.
    pub(crate) fn sign_in(
        &self,
        pod: &PodInfo,
        nodes: &Nodes,
        objects: &Objects,
        signer: &mut Signer,
    ) -> Result<(), Unsignable> {
        let cx = Context::new(nodes, objects, &[], Now::default());
        self.points.sign.as_ref().map_or(Ok(()), |plugin| plugin.sign(&cx, pod, signer))
    }
}

/// Upstream's default normalisation, as `Normalize::ByMax` promises it.
fn by_max(scores: &[i64], reverse: bool) -> Vec<i64> {
    let max = scores.iter().copied().max().unwrap_or_default();
    let share = |score: i64| if max == 0 { 0 } else { MAX_NODE_SCORE * score / max };
    let turned = |score: i64| if reverse { MAX_NODE_SCORE - score } else { score };
    scores.iter().map(|score| turned(share(*score))).collect()
}
