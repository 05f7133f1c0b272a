//! A small cluster with storage.
#![allow(clippy::unnecessary_wraps)] // what is made here goes into fields that are optional

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::label_terms::LabelTerms;
use supercargo_framework::objects::{
    Body, ClaimRef, CsiDriver, CsiNode, CsiStorageCapacity, Object, Objects, PersistentVolume,
    PersistentVolumeClaim, StorageClass, Untranslatable, annotations, resources,
};
use supercargo_framework::plugin::{ExtensionPoints, PreFilter};
use supercargo_framework::raw_object::RawObject;
use supercargo_framework::testing::{NodeBuilder, PodBuilder, node_info, nodes, object, pod};
use supercargo_framework::{
    Command, Context, CycleState, Features, LabelSelector, Labels, NodeSelectorTerm, Nodes, PodInfo, Status,
    Volume, VolumeSource,
};

use super::super::from_args;

/// A class without provisioner that waits for the first consumer.
pub(super) const LOCAL: &str = "local";
/// A class of the same kind with the provisioner [`DRIVER`].
pub(super) const DYNAMIC: &str = "dynamic";
/// A class with immediate binding.
pub(super) const IMMEDIATE: &str = "immediate";
/// A CSI driver.
pub(super) const DRIVER: &str = "csi.example.com";

/// A pod that uses claims of these names.
pub(super) fn pod_with(claims: &[&str]) -> PodBuilder {
    let volumes = claims.iter().map(|name| Volume {
        name: format!("volume-{name}").into(),
        source: VolumeSource::Claim((*name).into()),
    });
    let volumes = volumes.collect();
    pod("p").with_spec(|spec| spec.volumes = volumes)
}

/// A pod with an ephemeral volume `scratch`.
pub(super) fn pod_with_ephemeral() -> PodBuilder {
    let volume = Volume { name: "scratch".into(), source: VolumeSource::Ephemeral };
    pod("p").with_spec(|spec| spec.volumes = [volume].into())
}

fn raw(name: &str) -> RawObject {
    json!({"metadata": {"name": name, "resourceVersion": "1"}, "spec": {}}).into()
}

/// An available volume of 10 bytes in class [`LOCAL`].
pub(super) fn volume(name: &str, change: impl FnOnce(&mut PersistentVolume)) -> Object {
    let mut body = PersistentVolume {
        capacity: 10,
        access_modes: ["ReadWriteOnce".into()].into(),
        storage_class: LOCAL.into(),
        phase: "Available".into(),
        raw: raw(name),
        ..Default::default()
    };
    change(&mut body);
    object(&resources::PERSISTENT_VOLUME, name, Body::PersistentVolume(body))
}

/// Upstream's error for [`untranslatable`].
pub(super) const UNTRANSLATABLE: &str =
    "could not translate pv: kind(Dedicated) is not supported in csi migration";

/// A volume with an in-tree source that has no CSI equivalent.
pub(super) fn untranslatable(name: &str) -> Object {
    let error = "kind(Dedicated) is not supported in csi migration".into();
    let source = Untranslatable { plugin: "kubernetes.io/azure-disk".into(), error };
    volume(name, |volume| volume.untranslatable = Some(source))
}

/// A pending claim on 5 bytes of class [`LOCAL`] in the namespace `default`.
pub(super) fn claim(name: &str, change: impl FnOnce(&mut PersistentVolumeClaim)) -> Object {
    let mut body = PersistentVolumeClaim {
        storage_class: LOCAL.into(),
        access_modes: ["ReadWriteOnce".into()].into(),
        request: Some(5),
        phase: "Pending".into(),
        raw: raw(name),
        ..Default::default()
    };
    change(&mut body);
    let key = format!("default/{name}");
    object(&resources::PERSISTENT_VOLUME_CLAIM, &key, Body::PersistentVolumeClaim(body))
}

/// A claim in the class [`DYNAMIC`].
pub(super) fn dynamic_claim(name: &str) -> Object {
    claim(name, |claim| claim.storage_class = DYNAMIC.into())
}

/// A claim that is completely bound to a volume.
pub(super) fn bound_claim(name: &str, volume: &str) -> Object {
    let claim = claim(name, |claim| claim.volume_name = volume.into());
    annotated(claim, annotations::BIND_COMPLETED, "yes")
}

pub(super) fn annotated(object: Object, key: &str, value: &str) -> Object {
    let all = object.annotations.iter().map(|(key, value)| (key.clone(), value.clone()));
    let annotations = all.chain([(key.into(), value.into())]).collect();
    Object { annotations, ..object }
}

pub(super) fn labelled(object: Object, key: &str, value: &str) -> Object {
    Object { labels: [(key, value)].into_iter().collect(), ..object }
}

pub(super) fn class(name: &str, provisioner: &str, waits: Option<bool>) -> Object {
    let body = StorageClass {
        provisioner: provisioner.into(),
        waits_for_first_consumer: waits,
        ..Default::default()
    };
    object(&resources::STORAGE_CLASS, name, Body::StorageClass(body))
}

/// A term of `allowedTopologies`: keys with their values.
pub(super) type Term<'a> = &'a [(&'a str, &'a [&'a str])];

/// The class [`DYNAMIC`] with `allowedTopologies`.
pub(super) fn dynamic_class_for(terms: &[Term<'_>]) -> Object {
    let term = |term: &Term<'_>| {
        let one_of = |(key, values): &(&str, &[&str])| one_of(key, values);
        NodeSelectorTerm::parse(term.iter().map(one_of).collect(), Vec::new())
    };
    let body = StorageClass {
        provisioner: DRIVER.into(),
        waits_for_first_consumer: Some(true),
        allowed_topologies: terms.iter().map(term).collect(),
        ..Default::default()
    };
    object(&resources::STORAGE_CLASS, DYNAMIC, Body::StorageClass(body))
}

/// [`DRIVER`], with or without storage capacity.
pub(super) fn csi_driver(storage_capacity: bool) -> Object {
    let body = CsiDriver { storage_capacity, ..Default::default() };
    object(&resources::CSI_DRIVER, DRIVER, Body::CsiDriver(body))
}

/// A capacity of the class [`DYNAMIC`] in a zone.
pub(super) fn storage(name: &str, zone: Option<&str>, capacity: Option<i64>, max: Option<i64>) -> Object {
    let topology = zone.map(|zone| selector("zone", zone));
    let body = CsiStorageCapacity {
        storage_class: DYNAMIC.into(),
        node_topology: topology,
        capacity,
        maximum_volume_size: max,
    };
    object(&resources::CSI_STORAGE_CAPACITY, &format!("storage/{name}"), Body::CsiStorageCapacity(body))
}

/// The CSINode of a node with these migrated in-tree plugins.
pub(super) fn csi_node(name: &str, migrated: &str) -> Object {
    let node = object(&resources::CSI_NODE, name, Body::CsiNode(CsiNode::default()));
    annotated(node, annotations::MIGRATED_PLUGINS, migrated)
}

pub(super) fn selector(key: &str, value: &str) -> LabelSelector {
    LabelSelector::parse(&[(key, value)].into_iter().collect::<Labels>(), []).unwrap()
}

/// A volume's node affinity on one label.
pub(super) fn affinity(key: &str, values: &[&str]) -> Option<LabelTerms> {
    Some([NodeSelectorTerm::parse(vec![one_of(key, values)], vec![])].into())
}

fn one_of(key: &str, values: &[&str]) -> RawRequirement {
    let values = values.iter().map(|value| Arc::from(*value)).collect();
    RawRequirement { key: key.into(), operator: "In".into(), values }
}

/// A `claimRef` to a claim in namespace `default`.
pub(super) fn claim_ref(name: &str, uid: &str) -> Option<ClaimRef> {
    Some(ClaimRef { namespace: "default".into(), name: name.into(), uid: uid.into() })
}

/// The plugin in a cluster.
pub(super) struct World {
    pub(super) objects: Objects,
    pub(super) nodes: Nodes,
    pub(super) points: ExtensionPoints,
}

impl World {
    /// The default classes, with these objects and nodes.
    pub(super) fn new(
        objects: impl IntoIterator<Item = Object>,
        nodes: impl IntoIterator<Item = NodeBuilder>,
    ) -> Self {
        Self::with(&Value::Null, &Features::default(), objects, nodes)
    }

    /// The same with arguments and features.
    pub(super) fn with(
        args: &Value,
        features: &Features,
        given: impl IntoIterator<Item = Object>,
        given_nodes: impl IntoIterator<Item = NodeBuilder>,
    ) -> Self {
        let mut objects = Objects::default();
        let classes = [
            class(LOCAL, "kubernetes.io/no-provisioner", Some(true)),
            class(DYNAMIC, DRIVER, Some(true)),
            class(IMMEDIATE, DRIVER, Some(false)),
        ];
        for object in classes.into_iter().chain(given) {
            objects.insert(Arc::new(object));
        }
        let points = from_args(args, features).unwrap().extension_points();
        let infos = given_nodes.into_iter().map(|node| node_info(node.build(), []));
        Self { objects, nodes: nodes(infos), points }
    }

    pub(super) fn context(&self) -> Context<'_> {
        Context::at_rest(&self.nodes, &self.objects)
    }

    pub(super) fn pre_filter(&self, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        self.points.pre_filter.as_ref().unwrap().pre_filter(&self.context(), state, pod)
    }

    /// PreFilter's rejection.
    pub(super) fn rejection(&self, pod: &PodInfo) -> Option<Status> {
        match self.pre_filter(&mut CycleState::new(), pod) {
            PreFilter::Reject(status) => Some(status),
            _ => None,
        }
    }

    /// The state after a PreFilter that does not reject the pod.
    pub(super) fn state(&self, pod: &PodInfo) -> CycleState {
        let mut state = CycleState::new();
        let answer = self.pre_filter(&mut state, pod);
        assert!(matches!(answer, PreFilter::AllNodes | PreFilter::Skip), "{answer:?}");
        state
    }

    /// The reasons of each node; none if it is feasible.
    pub(super) fn reasons(&self, pod: &PodInfo) -> Vec<String> {
        let state = self.state(pod);
        let filter = self.points.filter.as_ref().unwrap();
        let verdicts =
            self.nodes.iter().map(|(_, node)| filter.filter(&self.context(), &state, pod, node).message());
        verdicts.collect()
    }

    /// Whether each node is feasible.
    pub(super) fn feasible(&self, pod: &PodInfo) -> Vec<bool> {
        self.reasons(pod).iter().map(String::is_empty).collect()
    }

    /// Reserves, and executes the commands.
    pub(super) fn reserve(&mut self, pod: &PodInfo, node: &str) -> CycleState {
        let mut state = self.state(pod);
        let cx = self.context();
        let status = self.points.reserve.as_ref().unwrap().reserve(&cx, &mut state, pod, &node.into());
        assert_eq!(status, Status::success());
        let commands = cx.take_commands();
        self.execute(commands);
        state
    }

    /// Gives back.
    pub(super) fn unreserve(&mut self, state: &mut CycleState, pod: &PodInfo, node: &str) {
        let cx = self.context();
        self.points.reserve.as_ref().unwrap().unreserve(&cx, state, pod, &node.into());
        let commands = cx.take_commands();
        self.execute(commands);
    }

    fn execute(&mut self, commands: Vec<Command>) {
        for command in commands {
            match command {
                Command::Assume(object) => assert!(self.objects.assume(object)),
                Command::Restore(object) => self.objects.restore(&object),
                other => panic!("unexpected {other:?}"),
            }
        }
    }
}
