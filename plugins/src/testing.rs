//! Builders for tests, and drivers of in-tree plugins.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::event::Change;
use supercargo_framework::objects::{Body, Object, Objects, PersistentVolumeClaim, resources};
use supercargo_framework::testing::{self, PodBuilder, object};
use supercargo_framework::volume::{Volume, VolumeSource};
use supercargo_framework::{Features, NodeInfo, NodeRecord, Nodes, PodInfo};

/// The error that these arguments of a plugin cause, if any.
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

/// Nodes in this visiting order.
pub(crate) fn nodes(infos: impl IntoIterator<Item = NodeInfo>) -> Nodes {
    let mut nodes = Nodes::default();
    let order = infos.into_iter().map(|info| nodes.insert(info)).collect();
    nodes.set_order(order);
    nodes
}

/// The deletion of a pod.
pub(crate) fn pod_deleted(pod: PodInfo) -> Change {
    Change::Pod { old: Some(Arc::new(pod)), new: None }
}

/// The update of a pod.
pub(crate) fn pod_updated(old: PodInfo, new: PodInfo) -> Change {
    Change::Pod { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// The addition of a node.
pub(crate) fn node_added(node: NodeRecord) -> Change {
    Change::Node { old: None, new: Some(Arc::new(node)) }
}

/// The update of a node.
pub(crate) fn node_updated(old: NodeRecord, new: NodeRecord) -> Change {
    Change::Node { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// Objects of other kinds.
pub(crate) fn objects(list: impl IntoIterator<Item = Object>) -> Objects {
    let mut objects = Objects::default();
    for object in list {
        objects.insert(Arc::new(object));
    }
    objects
}

/// The addition of an object.
pub(crate) fn object_added(object: Object) -> Change {
    Change::Object { old: None, new: Some(Arc::new(object)) }
}

/// The update of an object.
pub(crate) fn object_updated(old: Object, new: Object) -> Change {
    Change::Object { old: Some(Arc::new(old)), new: Some(Arc::new(new)) }
}

/// The deletion of an object.
pub(crate) fn object_deleted(object: Object) -> Change {
    Change::Object { old: Some(Arc::new(object)), new: None }
}

/// A pod with these volumes.
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

/// A driver for an in-tree plugin.
pub(crate) struct Driver(testing::Driver);

impl Deref for Driver {
    type Target = testing::Driver;

    fn deref(&self) -> &testing::Driver {
        &self.0
    }
}

impl DerefMut for Driver {
    fn deref_mut(&mut self) -> &mut testing::Driver {
        &mut self.0
    }
}

impl Driver {
    /// The plugin with default arguments.
    pub(crate) fn new(plugin: &str) -> Self {
        Self::with_args(plugin, Value::Null)
    }

    /// The plugin with valid arguments.
    pub(crate) fn with_args(plugin: &str, args: Value) -> Self {
        Self::build(plugin, &args, &Features::default())
    }

    /// The plugin with these features.
    pub(crate) fn with_features(plugin: &str, features: &Features) -> Self {
        Self::build(plugin, &Value::Null, features)
    }

    fn build(plugin: &str, args: &Value, features: &Features) -> Self {
        let factory = crate::registry().get(plugin).expect("tests name plugins that exist");
        let built = factory(args, features).unwrap_or_else(|error| panic!("{plugin}: {error}"));
        Self(testing::Driver::new(built))
    }
}
