//! Pods and nodes with one enormous list each.
//!
//! The API server stores objects of up to 1.5 MiB, so a list can have a hundred thousand items.
//! Every user who may create pods can write one. Tests and benchmarks bound what such an object
//! costs.

mod claims;

use std::sync::Arc;

use super::{NodeBuilder, PodBuilder, node, object, pod};
use crate::affinity::{NodeAffinity, NodeSelectorTerm, NodeTerms, PreferredTerm, RawRequirement};
use crate::labels::Labels;
use crate::node::NodeRecord;
use crate::objects::{Body, CsiNode, CsiNodeDriver, Namespace, Object, resources};
use crate::pod::PodInfo;
use crate::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use crate::ports::{HostPort, Protocol};
use crate::resource::Resource;
use crate::selector::LabelSelector;
use crate::taint::{TaintEffect, Toleration, TolerationOperator};
use crate::topology_spread::TopologySpreadConstraint;
use crate::volume::{Volume, VolumeSource};

/// The size of the largest object that the API server stores, in bytes.
pub const MOST_BYTES: usize = 1536 << 10;

const HOSTNAME: &str = "kubernetes.io/hostname";

/// A list-like field of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodList {
    /// Required anti-affinity terms, each with its own topology key.
    AntiAffinityKeys,
    /// The same for required affinity.
    AffinityKeys,
    /// The same for preferred affinity.
    PreferredKeys,
    /// Required anti-affinity terms by hostname, each with its own selector, which matches every
    /// pod.
    Selectors,
    /// The same for preferred anti-affinity.
    PreferredSelectors,
    /// Required anti-affinity terms, each with its own selector of namespaces.
    NamespaceSelectors,
    /// Names of namespaces of one anti-affinity term.
    Namespaces,
    /// Values of one requirement of an anti-affinity selector.
    SelectorValues,
    /// Requirements of one anti-affinity selector, which every pod meets.
    SelectorRequirements,
    /// Required node affinity terms, each with its own key.
    NodeTerms,
    /// Required node affinity terms that name one label that all nodes have.
    NodeTermsOfOneKey,
    /// Preferred node affinity terms.
    PreferredNodeTerms,
    /// Values of one requirement of a node affinity term.
    NodeValues,
    /// Requirements of one node affinity term, which every node meets.
    NodeRequirements,
    /// Requirements on the names of nodes.
    NodeNames,
    /// `nodeSelector`.
    NodeSelector,
    /// Tolerations of taints that no node has.
    Tolerations,
    /// Hard spread constraints.
    HardConstraints,
    /// Soft spread constraints.
    SoftConstraints,
    /// Host ports.
    HostPorts,
    /// Claims, none of which exists.
    Claims,
    /// Claims with a volume each.
    BoundClaims,
    /// Claims for which volumes exist.
    DelayedClaims,
    /// Claims for which volumes are to be provisioned.
    ProvisionedClaims,
    /// One claim, many times, and then another.
    OneClaim,
    /// Disks that count against the limit of a CSI driver.
    Disks,
    /// One disk, many times, which the pod only reads.
    OneDisk,
    /// Containers with one image each.
    Containers,
    /// Extended resources.
    Resources,
    /// Labels.
    Labels,
    /// Labels, half of which the pod's own affinity terms name.
    LabelsAndTerms,
    /// Scheduling gates.
    Gates,
}

impl PodList {
    /// All lists.
    pub const ALL: [Self; 32] = [
        Self::AntiAffinityKeys,
        Self::AffinityKeys,
        Self::PreferredKeys,
        Self::Selectors,
        Self::PreferredSelectors,
        Self::NamespaceSelectors,
        Self::Namespaces,
        Self::SelectorValues,
        Self::SelectorRequirements,
        Self::NodeTerms,
        Self::NodeTermsOfOneKey,
        Self::PreferredNodeTerms,
        Self::NodeValues,
        Self::NodeRequirements,
        Self::NodeNames,
        Self::NodeSelector,
        Self::Tolerations,
        Self::HardConstraints,
        Self::SoftConstraints,
        Self::HostPorts,
        Self::Claims,
        Self::BoundClaims,
        Self::DelayedClaims,
        Self::ProvisionedClaims,
        Self::OneClaim,
        Self::Disks,
        Self::OneDisk,
        Self::Containers,
        Self::Resources,
        Self::Labels,
        Self::LabelsAndTerms,
        Self::Gates,
    ];

    /// The size of an item in the API server's protobuf, in bytes: texts with tag and length, and
    /// each message around them. Names of items have seven bytes.
    fn bytes(self) -> usize {
        const MESSAGE: usize = 2;
        const NAME: usize = 9;
        const EXISTS: usize = 8;
        const DOES_NOT_EXIST: usize = 14;
        const HOST: usize = 24;
        match self {
            Self::AntiAffinityKeys | Self::AffinityKeys => 2 * MESSAGE + NAME,
            Self::PreferredKeys => 3 * MESSAGE + NAME + 2,
            Self::Selectors => 3 * MESSAGE + NAME + DOES_NOT_EXIST + HOST,
            Self::PreferredSelectors => 4 * MESSAGE + NAME + DOES_NOT_EXIST + HOST + 2,
            Self::NamespaceSelectors => 5 * MESSAGE + 6 + EXISTS + NAME + DOES_NOT_EXIST + HOST,
            Self::Namespaces | Self::SelectorValues | Self::NodeValues => NAME,
            Self::SelectorRequirements | Self::NodeRequirements => MESSAGE + NAME + DOES_NOT_EXIST,
            Self::NodeTerms => 2 * MESSAGE + NAME + EXISTS,
            Self::NodeTermsOfOneKey => 2 * MESSAGE + HOST + 4 + NAME,
            Self::PreferredNodeTerms => 3 * MESSAGE + NAME + EXISTS + 2,
            Self::NodeNames => 2 * MESSAGE + 15 + 4 + NAME,
            Self::NodeSelector | Self::Labels => MESSAGE + NAME + 2,
            Self::Tolerations => MESSAGE + NAME + EXISTS,
            Self::HardConstraints => 2 * MESSAGE + 2 + NAME + 15,
            Self::SoftConstraints => 2 * MESSAGE + 2 + NAME + 16,
            Self::HostPorts => MESSAGE + 4 + 4 + 5 + 10,
            Self::Claims
            | Self::BoundClaims
            | Self::DelayedClaims
            | Self::ProvisionedClaims
            | Self::OneClaim
            | Self::Disks => 3 * MESSAGE + 2 * NAME,
            Self::OneDisk => 3 * MESSAGE + 2 * NAME + 2,
            // With what the API server sets: paths and policies.
            Self::Containers => MESSAGE + NAME + NAME + 2 + 22 + 6 + 14,
            // In requests and limits.
            Self::Resources => 2 * (2 * MESSAGE + 21 + 3),
            Self::LabelsAndTerms => MESSAGE + NAME + 2 + 4 * MESSAGE + NAME + EXISTS + 6,
            Self::Gates => MESSAGE + NAME,
        }
    }

    /// The number of items of the largest list.
    pub fn most(self) -> usize {
        MOST_BYTES / self.bytes()
    }

    /// The objects that the items name, for kinds of items that exist.
    pub fn objects(self, items: usize) -> Vec<Object> {
        match self {
            Self::BoundClaims => claims::bound(items),
            Self::DelayedClaims => claims::delayed(items),
            Self::ProvisionedClaims => claims::provisioned(items),
            Self::OneClaim => claims::bound(2),
            _ => Vec::new(),
        }
    }

    /// A pod `default/<name>` with this many items.
    pub fn pod(self, name: &str, items: usize) -> PodInfo {
        let labelled = pod(name).label("app", "giant");
        match self {
            Self::AntiAffinityKeys => with_affinity(labelled, |affinity| {
                affinity.required_anti_affinity = terms(items, |i| by_key(&key(i)));
            }),
            Self::AffinityKeys => with_affinity(labelled, |affinity| {
                affinity.required_affinity = terms(items, |i| by_key(&key(i)));
            }),
            Self::PreferredKeys => with_affinity(labelled, |affinity| {
                affinity.preferred_affinity = terms(items, |i| weighted(by_key(&key(i))));
            }),
            Self::Selectors => with_affinity(labelled, |affinity| {
                affinity.required_anti_affinity = terms(items, |i| without(&key(i)));
            }),
            Self::PreferredSelectors => with_affinity(labelled, |affinity| {
                affinity.preferred_anti_affinity = terms(items, |i| weighted(without(&key(i))));
            }),
            Self::NamespaceSelectors => with_affinity(labelled, |affinity| {
                affinity.required_anti_affinity = terms(items, |i| PodAffinityTerm {
                    namespace_selector: Some(selector([
                        requirement("team", "Exists", vec![]),
                        requirement(&key(i), "DoesNotExist", vec![]),
                    ])),
                    ..by_key(HOSTNAME)
                });
            }),
            Self::Namespaces => with_affinity(labelled, |affinity| {
                let namespaces = (0..items).map(|i| Arc::from(key(i))).collect();
                let term = PodAffinityTerm { namespaces, ..by_key(HOSTNAME) };
                affinity.required_anti_affinity = [term].into();
            }),
            Self::SelectorValues => with_affinity(labelled, |affinity| {
                let values = (0..items).map(key).collect();
                let term = PodAffinityTerm {
                    selector: Some(selector([requirement("app", "In", values)])),
                    ..by_key(HOSTNAME)
                };
                affinity.required_anti_affinity = [term].into();
            }),
            Self::SelectorRequirements => with_affinity(labelled, |affinity| {
                let selector =
                    Some(selector((0..items).map(|i| requirement(&key(i), "DoesNotExist", vec![]))));
                affinity.required_anti_affinity = [PodAffinityTerm { selector, ..by_key(HOSTNAME) }].into();
            }),
            Self::NodeRequirements => with_node_affinity(labelled, |affinity| {
                let all = (0..items).map(|i| requirement(&key(i), "DoesNotExist", vec![])).collect();
                affinity.required = Some([NodeSelectorTerm::parse(all, vec![])].into());
            }),
            Self::NodeTerms => with_node_terms(labelled, items, |i| requirement(&key(i), "Exists", vec![])),
            Self::NodeTermsOfOneKey => {
                with_node_terms(labelled, items, |i| requirement(HOSTNAME, "In", vec![key(i)]))
            }
            Self::PreferredNodeTerms => with_node_affinity(labelled, |affinity| {
                affinity.preferred = (0..items)
                    .map(|i| PreferredTerm {
                        weight: 1,
                        term: node_term(requirement(&key(i), "Exists", vec![])),
                    })
                    .collect();
            }),
            Self::NodeValues => {
                let values = (0..items).map(key).collect();
                with_node_affinity(labelled, |affinity| {
                    affinity.required = Some([node_term(requirement(HOSTNAME, "In", values))].into());
                })
            }
            Self::NodeNames => with_node_affinity(labelled, |affinity| {
                let named = |i| vec![requirement("metadata.name", "In", vec![key(i)])];
                let terms = (0..items).map(|i| NodeSelectorTerm::parse(vec![], named(i)));
                affinity.required = Some(terms.collect());
            }),
            Self::NodeSelector => labelled.with_spec_of_build(|spec| {
                spec.node_selector = (0..items).map(|i| (key(i), "")).collect();
            }),
            Self::Tolerations => labelled.with_spec_of_build(|spec| {
                spec.tolerations = (0..items).map(|i| toleration(&key(i))).collect();
            }),
            Self::HardConstraints => with_constraints(labelled, items, true),
            Self::SoftConstraints => with_constraints(labelled, items, false),
            Self::HostPorts => {
                labelled.with_spec_of_build(|spec| spec.host_ports = (0..items).map(port).collect())
            }
            Self::Claims | Self::BoundClaims | Self::DelayedClaims | Self::ProvisionedClaims => {
                with_volumes(labelled, items, |i| VolumeSource::Claim(key(i).into()))
            }
            Self::OneClaim => with_volumes(labelled, items, |i| {
                VolumeSource::Claim(key(usize::from(i + 1 == items)).into())
            }),
            Self::Disks => with_volumes(labelled, items, |i| VolumeSource::Cinder(key(i).into())),
            Self::OneDisk => with_volumes(labelled, items, |_| VolumeSource::GcePersistentDisk {
                pd_name: "disk".into(),
                read_only: true,
            }),
            Self::Containers => labelled.with_spec_of_build(|spec| {
                spec.images = (0..items).map(|i| Arc::from(format!("{}:latest", key(i)))).collect();
                spec.image_containers = items;
            }),
            Self::Resources => labelled.with_spec_of_build(|spec| {
                let names: Vec<Arc<str>> =
                    (0..items).map(|i| format!("example.com/{}", key(i)).into()).collect();
                spec.requests.resource = Resource::of(names.iter().map(|name| (name, 1)));
            }),
            Self::Labels => with_labels(labelled.build(), items),
            Self::LabelsAndTerms => {
                let selects = |i| selector([requirement(&key(2 * i), "Exists", vec![])]);
                let giant = with_affinity(labelled, |affinity| {
                    let term = |i| PodAffinityTerm { selector: Some(selects(i)), ..by_key("zone") };
                    affinity.required_anti_affinity = terms(items, term);
                });
                with_labels(giant, items)
            }
            Self::Gates => labelled
                .with(|pod| pod.scheduling_gates = (0..items).map(|i| key(i).into()).collect())
                .build(),
        }
    }
}

/// A list-like field of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeList {
    /// Labels.
    Labels,
    /// Taints.
    Taints,
    /// Images.
    Images,
    /// Extended resources.
    Resources,
}

impl NodeList {
    /// All lists.
    pub const ALL: [Self; 4] = [Self::Labels, Self::Taints, Self::Images, Self::Resources];

    /// The number of items of the largest list.
    pub fn most(self) -> usize {
        let bytes = match self {
            Self::Labels => 2 + 9 + 2,
            Self::Taints => 2 + 9 + 18,
            Self::Images => 2 + 16 + 5,
            // In capacity and allocatable.
            Self::Resources => 2 * (4 + 21 + 3),
        };
        MOST_BYTES / bytes
    }

    /// A node with this many items.
    pub fn node(self, name: &str, items: usize) -> NodeRecord {
        let labelled = node(name).label(HOSTNAME, name).label("zone", "a");
        let each = |node, add: fn(NodeBuilder, usize) -> NodeBuilder| (0..items).fold(node, add).build();
        match self {
            Self::Labels => each(labelled, |node, i| node.label(&key(i), "")),
            Self::Taints => each(labelled, |node, i| node.taint(&key(i), "", TaintEffect::PreferNoSchedule)),
            Self::Images => each(labelled, |node, i| node.image(&format!("{}:latest", key(i)), 1 << 30)),
            Self::Resources => {
                let names: Vec<Arc<str>> =
                    (0..items).map(|i| format!("example.com/{}", key(i)).into()).collect();
                let mut node = labelled.build();
                let basic =
                    ["cpu", "memory", "pods"].map(|name| (Arc::from(name), node.allocatable.get(name)));
                let all = names.iter().map(|name| (name, 1)).chain(basic.iter().map(|(name, n)| (name, *n)));
                node.allocatable = Arc::new(Resource::of(all));
                node
            }
        }
    }
}

/// The name of an item: seven bytes.
fn key(i: usize) -> String {
    format!("k{i:06}")
}

fn requirement(key: &str, operator: &str, values: Vec<String>) -> RawRequirement {
    let values = values.into_iter().map(Arc::from).collect();
    RawRequirement { key: key.into(), operator: operator.into(), values }
}

fn selector(requirements: impl IntoIterator<Item = RawRequirement>) -> LabelSelector {
    LabelSelector::parse(&Labels::default(), requirements).expect("the requirements are valid")
}

/// A term that selects every pod of the namespace.
fn by_key(key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(LabelSelector::default()),
        topology_key: key.into(),
        ..PodAffinityTerm::default()
    }
}

/// A term by hostname for pods without a label.
fn without(key: &str) -> PodAffinityTerm {
    PodAffinityTerm {
        selector: Some(selector([requirement(key, "DoesNotExist", vec![])])),
        ..by_key(HOSTNAME)
    }
}

fn weighted(term: PodAffinityTerm) -> WeightedPodAffinityTerm {
    WeightedPodAffinityTerm { weight: 1, term }
}

fn terms<T>(items: usize, term: impl FnMut(usize) -> T) -> Box<[T]> {
    (0..items).map(term).collect()
}

fn node_term(requirement: RawRequirement) -> NodeSelectorTerm {
    NodeSelectorTerm::parse(vec![requirement], vec![])
}

fn toleration(key: &str) -> Toleration {
    Toleration { key: key.into(), operator: TolerationOperator::Exists, value: "".into(), effect: None }
}

fn port(i: usize) -> HostPort {
    let (address, number) = (i / 60_000, i % 60_000);
    HostPort {
        ip: format!("10.0.0.{}", address + 1).into(),
        protocol: Protocol::Tcp,
        port: number as i32 + 1,
    }
}

fn with_affinity(pod: PodBuilder, change: impl FnOnce(&mut PodAffinity)) -> PodInfo {
    let mut affinity = PodAffinity::default();
    change(&mut affinity);
    pod.with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity))).build()
}

fn with_node_affinity(pod: PodBuilder, change: impl FnOnce(&mut NodeAffinity)) -> PodInfo {
    let mut affinity = NodeAffinity::default();
    change(&mut affinity);
    pod.with_spec_of_build(|spec| spec.node_affinity = Some(affinity))
}

fn with_node_terms(pod: PodBuilder, items: usize, requirement: impl Fn(usize) -> RawRequirement) -> PodInfo {
    with_node_affinity(pod, |affinity| {
        let terms: NodeTerms<_> = (0..items).map(|i| node_term(requirement(i))).collect();
        affinity.required = Some(terms);
    })
}

fn with_constraints(pod: PodBuilder, items: usize, hard: bool) -> PodInfo {
    let constraint = |i| TopologySpreadConstraint {
        max_skew: 1,
        // The first is on the nodes.
        topology_key: if i == 0 { "zone".into() } else { key(i).into() },
        hard,
        selector: Some(selector([requirement("app", "In", vec!["giant".into()])])),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    };
    pod.with_spec(|spec| spec.topology_spread = (0..items).map(constraint).collect()).build()
}

fn with_volumes(pod: PodBuilder, items: usize, source: impl Fn(usize) -> VolumeSource) -> PodInfo {
    let volume = |i| Volume { name: key(i).into(), source: source(i) };
    pod.with_spec(|spec| spec.volumes = (0..items).map(volume).collect()).build()
}

fn with_labels(pod: PodInfo, items: usize) -> PodInfo {
    let own = (0..items).map(|i| (Arc::from(key(i)), Arc::default()));
    let all = own.chain(pod.labels.iter().map(|(key, value)| (Arc::clone(key), Arc::clone(value))));
    PodInfo { labels: all.collect(), ..pod }
}

impl PodBuilder {
    /// The pod, with a field of the spec that the builder sets itself.
    fn with_spec_of_build(self, change: impl FnOnce(&mut crate::pod::PodSpec)) -> PodInfo {
        let mut pod = self.build();
        change(Arc::make_mut(&mut pod.spec));
        pod
    }
}

/// A node as clusters have them: labels, a taint of each kind.
pub fn plain_node(i: usize) -> NodeRecord {
    let (name, zone) = (format!("node-{i}"), ["a", "b", "c"][i % 3]);
    let labelled = node(&name)
        .label(HOSTNAME, &name)
        .label("zone", zone)
        .label("topology.kubernetes.io/zone", zone)
        .label("kubernetes.io/arch", "amd64")
        .label("kubernetes.io/os", "linux")
        .label("node.kubernetes.io/instance-type", "large")
        .taint("dedicated", "giants", TaintEffect::PreferNoSchedule);
    // One in eight is reserved.
    let reserved = |node: NodeBuilder| node.taint("reserved", "", TaintEffect::NoSchedule);
    let node = if i % 8 == 7 { reserved(labelled) } else { labelled };
    node.allocatable("cpu", "32").allocatable("memory", "256Gi").image("app:latest", 1 << 30).build()
}

/// The pod on node `i`: one of a workload of ten, with a host port, in one of `namespaces`.
pub fn plain_pod(i: usize, namespaces: usize) -> PodBuilder {
    pod(&format!("plain-{i}"))
        .namespace(&namespace_name(i / 10 % namespaces))
        .label("app", &format!("app-{}", i / 10))
        .request("cpu", "100m")
        .image("app")
        .host_port(9100)
}

/// The objects around giants: namespaces of a team, and the CSI drivers of nodes.
pub fn objects(nodes: usize, namespaces: usize) -> impl Iterator<Item = Object> {
    let namespaces = (0..namespaces).map(|i| {
        let name = namespace_name(i);
        let labels = [("team", "blue"), ("kubernetes.io/metadata.name", &name)].into_iter().collect();
        Object { labels, ..object(&resources::NAMESPACE, &name, Body::Namespace(Namespace {})) }
    });
    let driver = || CsiNodeDriver { name: "cinder.csi.openstack.org".into(), limit: Some(25) };
    let csi_nodes = (0..nodes).map(move |i| {
        let body = CsiNode { drivers: [driver()].into() };
        object(&resources::CSI_NODE, &format!("node-{i}"), Body::CsiNode(body))
    });
    namespaces.chain(csi_nodes)
}

fn namespace_name(i: usize) -> String {
    if i == 0 { "default".to_owned() } else { format!("namespace-{i}") }
}
