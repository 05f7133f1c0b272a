//! Builders of pods, nodes and objects.

use std::sync::Arc;

use crate::affinity::{NodeAffinity, NodeSelectorTerm, PreferredTerm, RawRequirement};
use crate::labels::Labels;
use crate::node::{NodeImage, NodeRecord, annotations_hash};
use crate::objects::{Body, Object};
use crate::pod::{PodCondition, PodInfo, PodSpec, PodStatus, Uid, normalized_image_name};
use crate::ports::{HostPort, Protocol};
use crate::quantity;
use crate::requests::{ContainerRequests, RequestInputs, RequestOptions};
use crate::resource::{Resource, names};
use crate::taint::{Taint, TaintEffect, Toleration, TolerationOperator};
use crate::text::Text;

/// A pod `default/<name>` with UID `<name>`, one container without requests, and scheduler name
/// `supercargo`.
pub fn pod(name: &str) -> PodBuilder {
    PodBuilder {
        pod: PodInfo {
            namespace: "default".into(),
            name: name.into(),
            uid: name.into(),
            resource_version: "1".into(),
            generation: 1,
            terminating: false,
            labels: Labels::default(),
            annotations: Labels::default(),
            controller: None,
            raw: None,
            node_name: None,
            priority: 0,
            scheduling_gates: Box::default(),
            spec: Arc::default(),
            status_requests: None,
            status: PodStatus::default(),
        },
        spec: PodSpec { scheduler_name: "supercargo".into(), ..PodSpec::default() },
        requests: RequestInputs {
            containers: vec![ContainerRequests::default()],
            ..RequestInputs::default()
        },
        labels: Vec::new(),
        node_selector: Vec::new(),
        affinity: None,
        tolerations: Vec::new(),
        ports: Vec::new(),
        images: Vec::new(),
    }
}

/// An object of another kind.
pub fn object(resource: &Text, key: &str, body: Body) -> Object {
    Object {
        resource: resource.clone(),
        key: key.into(),
        uid: format!("uid-{key}").into(),
        resource_version: "1".into(),
        labels: Labels::default(),
        annotations: Labels::default(),
        terminating: false,
        controller: None,
        node_name: None,
        body,
    }
}

/// A node with 4 CPUs, 32 GiB and at most 110 pods.
pub fn node(name: &str) -> NodeBuilder {
    NodeBuilder {
        node: NodeRecord {
            name: name.into(),
            uid: name.into(),
            resource_version: "1".into(),
            ..Default::default()
        },
        labels: Vec::new(),
        annotations: Vec::new(),
        conditions: Vec::new(),
        taints: Vec::new(),
        images: Vec::new(),
        allocatable: Vec::new(),
    }
    .allocatable("cpu", "4")
    .allocatable("memory", "32Gi")
    .allocatable("pods", "110")
}

/// The amount of a quantity: milli-cores for CPU, whole units for other resources.
///
/// # Panics
/// If the text is not a quantity.
pub fn amount(name: &str, text: &str) -> i64 {
    let parsed = if name == names::CPU { quantity::milli_value(text) } else { quantity::value(text) };
    parsed.expect("the quantity is well-formed")
}

fn requirement(key: &str, operator: &str, values: &[&str]) -> RawRequirement {
    RawRequirement {
        key: key.into(),
        operator: operator.into(),
        values: values.iter().map(|value| Arc::from(*value)).collect(),
    }
}

/// Builds a [`PodInfo`].
#[derive(Clone, Debug)]
pub struct PodBuilder {
    pod: PodInfo,
    spec: PodSpec,
    requests: RequestInputs,
    labels: Vec<(Arc<str>, Arc<str>)>,
    node_selector: Vec<(Arc<str>, Arc<str>)>,
    affinity: Option<NodeAffinity>,
    tolerations: Vec<Toleration>,
    ports: Vec<HostPort>,
    images: Vec<Arc<str>>,
}

impl PodBuilder {
    /// The pod.
    pub fn build(self) -> PodInfo {
        let Self { mut pod, mut spec, requests, labels, node_selector, affinity, tolerations, ports, images } =
            self;
        spec.requests = requests.effective(RequestOptions::default());
        let without_pod_level =
            requests.effective(RequestOptions { skip_pod_level: true, ..Default::default() });
        spec.container_requests = (without_pod_level != spec.requests).then(|| Box::new(without_pod_level));
        let with_status = requests.effective(RequestOptions { use_status: true, ..Default::default() });
        pod.status_requests = (with_status != spec.requests).then(|| Arc::new(with_status));
        spec.node_selector = Labels::from(node_selector);
        spec.node_affinity = affinity;
        spec.tolerations = tolerations.into();
        spec.host_ports = ports.into();
        spec.images = images.into();
        pod.labels = Labels::from(labels);
        pod.spec = Arc::new(spec);
        pod
    }

    /// A true DisruptionTarget condition.
    pub fn disrupted(self, reason: &str, message: &str) -> Self {
        let condition = PodCondition {
            status: "True".into(),
            reason: reason.into(),
            message: message.into(),
            observed_generation: None,
            last_transition: None,
        };
        self.with(|pod| pod.status.disruption_target = Some(Box::new(condition)))
    }

    /// Changes any field of [`PodInfo`] without its own method.
    pub fn with(mut self, change: impl FnOnce(&mut PodInfo)) -> Self {
        change(&mut self.pod);
        self
    }

    /// Changes any field of [`PodSpec`] without its own method.
    pub fn with_spec(mut self, change: impl FnOnce(&mut PodSpec)) -> Self {
        change(&mut self.spec);
        self
    }

    /// The namespace.
    pub fn namespace(self, namespace: &str) -> Self {
        self.with(|pod| pod.namespace = namespace.into())
    }

    /// The UID.
    pub fn uid(self, uid: &str) -> Self {
        self.with(|pod| pod.uid = Uid::from(uid))
    }

    /// The resource version.
    pub fn resource_version(self, version: &str) -> Self {
        self.with(|pod| pod.resource_version = version.into())
    }

    /// The scheduler.
    pub fn scheduler(mut self, name: &str) -> Self {
        self.spec.scheduler_name = name.into();
        self
    }

    /// The node in `spec.nodeName`.
    pub fn node(self, name: &str) -> Self {
        self.with(|pod| pod.node_name = Some(name.into()))
    }

    /// The nominated node.
    pub fn nominated(self, name: &str) -> Self {
        self.with(|pod| pod.status.nominated_node_name = Some(name.into()))
    }

    /// The priority.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|pod| pod.priority = priority)
    }

    /// Marks the pod as terminating.
    pub fn terminating(self) -> Self {
        self.with(|pod| pod.terminating = true)
    }

    /// A scheduling gate.
    pub fn gate(self, name: &str) -> Self {
        self.with(|pod| {
            let gates = std::mem::take(&mut pod.scheduling_gates).into_vec();
            pod.scheduling_gates = gates.into_iter().chain([name.into()]).collect();
        })
    }

    /// The group.
    pub fn group(self, name: &str) -> Self {
        self.with_spec(|spec| {
            let rare = spec.rare.get_or_insert_default();
            rare.group = Some(name.into());
        })
    }

    /// A label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// A request of the last container.
    pub fn request(mut self, name: &str, quantity: &str) -> Self {
        if let Some(container) = self.requests.containers.last_mut() {
            container.requests.push((name.into(), amount(name, quantity)));
        }
        self
    }

    /// Another container.
    pub fn container(mut self) -> Self {
        self.requests.containers.push(ContainerRequests::default());
        self
    }

    /// A limit of the pod.
    pub fn limit(mut self, name: &str, quantity: &str) -> Self {
        self.spec.limits.get_or_insert_default().set(&name.into(), amount(name, quantity));
        self
    }

    /// An init container with one request.
    pub fn init_request(mut self, name: &str, quantity: &str) -> Self {
        let requests = vec![(name.into(), amount(name, quantity))];
        self.requests.init_containers.push(ContainerRequests { requests, ..Default::default() });
        self
    }

    /// A pod-level request.
    pub fn pod_level_request(mut self, name: &str, quantity: &str) -> Self {
        self.requests.pod_level.get_or_insert_default().push((name.into(), amount(name, quantity)));
        self
    }

    /// A TCP host port.
    pub fn host_port(mut self, port: i32) -> Self {
        self.ports.push(HostPort { ip: "".into(), protocol: Protocol::Tcp, port });
        self
    }

    /// An image of a container.
    pub fn image(mut self, name: &str) -> Self {
        self.images.push(normalized_image_name(name).into());
        self
    }

    /// A `nodeSelector` entry.
    pub fn node_selector(mut self, key: &str, value: &str) -> Self {
        self.node_selector.push((key.into(), value.into()));
        self
    }

    /// Another required node affinity term, with one requirement on a label.
    pub fn required_affinity(self, key: &str, operator: &str, values: &[&str]) -> Self {
        self.required_term(NodeSelectorTerm::parse(vec![requirement(key, operator, values)], vec![]))
    }

    /// Another required node affinity term, with one requirement on a field.
    pub fn required_field(self, key: &str, operator: &str, values: &[&str]) -> Self {
        self.required_term(NodeSelectorTerm::parse(vec![], vec![requirement(key, operator, values)]))
    }

    /// Another required node affinity term.
    pub fn required_term(mut self, term: NodeSelectorTerm) -> Self {
        let affinity = self.affinity.get_or_insert_default();
        let terms = affinity.required.take().unwrap_or_default();
        affinity.required = Some(terms.iter().cloned().chain([term]).collect());
        self
    }

    /// Another preferred node affinity term, with one requirement on a label.
    pub fn preferred_affinity(mut self, weight: i32, key: &str, operator: &str, values: &[&str]) -> Self {
        let affinity = self.affinity.get_or_insert_default();
        let term = NodeSelectorTerm::parse(vec![requirement(key, operator, values)], vec![]);
        let terms = std::mem::take(&mut affinity.preferred);
        affinity.preferred = terms.iter().cloned().chain([PreferredTerm { weight, term }]).collect();
        self
    }

    /// A toleration of one taint (`Equal`).
    pub fn tolerates(self, key: &str, value: &str, effect: TaintEffect) -> Self {
        self.toleration(Toleration {
            key: key.into(),
            operator: TolerationOperator::Equal,
            value: value.into(),
            effect: Some(effect),
        })
    }

    /// A toleration.
    pub fn toleration(mut self, toleration: Toleration) -> Self {
        self.tolerations.push(toleration);
        self
    }
}

/// Builds a [`NodeRecord`].
#[derive(Clone, Debug)]
pub struct NodeBuilder {
    node: NodeRecord,
    labels: Vec<(Arc<str>, Arc<str>)>,
    annotations: Vec<(Arc<str>, Arc<str>)>,
    conditions: Vec<(Arc<str>, Arc<str>)>,
    taints: Vec<Taint>,
    images: Vec<NodeImage>,
    allocatable: Vec<(Arc<str>, i64)>,
}

impl NodeBuilder {
    /// The node.
    pub fn build(self) -> NodeRecord {
        let Self { mut node, labels, annotations, conditions, taints, mut images, allocatable } = self;
        images.sort_by(|a, b| a.name.cmp(&b.name));
        node.labels = labels.into();
        node.annotations_hash = annotations_hash(annotations.iter().map(|(key, value)| (&**key, &**value)));
        node.annotations = annotations.into();
        node.conditions = conditions.into();
        node.taints = taints.into();
        node.images = images.into();
        let allocatable = allocatable.iter().map(|(name, amount)| (name, *amount));
        node.allocatable = Arc::new(Resource::of_node(allocatable));
        node
    }

    /// The resource version.
    pub fn resource_version(mut self, version: &str) -> Self {
        self.node.resource_version = version.into();
        self
    }

    /// A label.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.into(), value.into()));
        self
    }

    /// The zone label.
    pub fn zone(self, zone: &str) -> Self {
        self.label("topology.kubernetes.io/zone", zone)
    }

    /// An annotation.
    pub fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.push((key.into(), value.into()));
        self
    }

    /// A condition.
    pub fn condition(mut self, kind: &str, status: &str) -> Self {
        self.conditions.push((kind.into(), status.into()));
        self
    }

    /// A taint.
    pub fn taint(mut self, key: &str, value: &str, effect: TaintEffect) -> Self {
        self.taints.push(Taint { key: key.into(), value: value.into(), effect });
        self
    }

    /// Cordons the node.
    pub fn unschedulable(mut self) -> Self {
        self.node.unschedulable = true;
        self
    }

    /// An allocatable resource. Of several amounts the last counts.
    pub fn allocatable(mut self, name: &str, quantity: &str) -> Self {
        self.allocatable.push((name.into(), amount(name, quantity)));
        self
    }

    /// An image on the node.
    pub fn image(mut self, name: &str, size: i64) -> Self {
        self.images.push(NodeImage { name: name.into(), size });
        self
    }
}
