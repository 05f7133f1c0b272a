//! The pods, nodes and objects of histories.

use std::sync::Arc;

use supercargo_framework::affinity::RawRequirement;
use supercargo_framework::objects::{
    Body, CsiDriver, CsiNode, CsiNodeDriver, CsiSource, Namespace, Object, Service, VolumeAttachment,
    Workload, resources,
};
use supercargo_framework::pod_affinity::{PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm};
use supercargo_framework::selector::LabelSelector;
use supercargo_framework::taint::{TaintEffect, Toleration, TolerationOperator};
use supercargo_framework::testing::{PodBuilder, node, object, pod};
use supercargo_framework::topology_spread::TopologySpreadConstraint;
use supercargo_framework::{Labels, NodeRecord, Volume, VolumeSource};

pub(in crate::tests) use super::tally::APP;
use crate::tests::devices::{self, CLAIMS, GPU};
use crate::tests::volumes;

pub(in crate::tests) const ZONE: &str = "topology.kubernetes.io/zone";
pub(in crate::tests) const HOST: &str = "kubernetes.io/hostname";
/// A label with another value for each pod that has it.
pub(super) const UNIQUE: &str = "unique";
/// The label of nodes that is a number.
const CORES: &str = "cores";
/// The driver that inline disks of this kind are translated to.
const DRIVER: &str = "pd.csi.storage.gke.io";
const IMAGES: [&str; 3] = ["small", "large", "huge"];

/// The number of templates.
pub(in crate::tests) const TEMPLATES: usize = 40;
const NAMESPACES: [&str; 2] = ["default", "other"];

fn selector(app: &str) -> LabelSelector {
    let labels: Labels = [(APP, app)].into_iter().collect();
    LabelSelector::parse(&labels, []).unwrap()
}

fn term(app: &str, key: &str) -> PodAffinityTerm {
    PodAffinityTerm { selector: Some(selector(app)), topology_key: key.into(), ..PodAffinityTerm::default() }
}

/// The term for namespaces of the blue team.
fn across(app: &str, key: &str) -> PodAffinityTerm {
    let team = RawRequirement { key: "team".into(), operator: "In".into(), values: vec!["blue".into()] };
    let namespaces = LabelSelector::parse(&Labels::default(), [team]).unwrap();
    PodAffinityTerm { namespace_selector: Some(namespaces), ..term(app, key) }
}

fn weighted(weight: i32, term: PodAffinityTerm) -> Box<[WeightedPodAffinityTerm]> {
    Box::new([WeightedPodAffinityTerm { weight, term }])
}

fn near(pod: PodBuilder, affinity: PodAffinity) -> PodBuilder {
    pod.with_spec(|spec| spec.pod_affinity = Some(Box::new(affinity)))
}

fn spread(app: &str, key: &str, max_skew: i32, hard: bool) -> TopologySpreadConstraint {
    TopologySpreadConstraint {
        max_skew,
        topology_key: key.into(),
        hard,
        selector: Some(selector(app)),
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Box::default(),
    }
}

fn spreading(pod: PodBuilder, constraints: impl Into<Box<[TopologySpreadConstraint]>>) -> PodBuilder {
    pod.with_spec(|spec| spec.topology_spread = constraints.into())
}

fn with_volume(pod: PodBuilder, source: VolumeSource) -> PodBuilder {
    pod.with_spec(|spec| spec.volumes = [Volume { name: "data".into(), source }].into())
}

fn disk(pd_name: &str, read_only: bool) -> VolumeSource {
    VolumeSource::GcePersistentDisk { pd_name: pd_name.into(), read_only }
}

/// The pod with a shared read-only disk.
fn library(pod: PodBuilder) -> PodBuilder {
    with_volume(pod, disk("library", true))
}

/// The pod with a toleration for everything.
fn tolerant(pod: PodBuilder) -> PodBuilder {
    let (key, value, effect) = ("".into(), "".into(), None);
    pod.toleration(Toleration { key, operator: TolerationOperator::Exists, value, effect })
}

/// A pod of a template.
pub(in crate::tests) fn of_template(template: usize, name: &str) -> PodBuilder {
    let plain = || pod(name).label(APP, ["a", "b", "c"][template % 3]).request("cpu", "500m");
    let none = PodAffinity::default;
    match template {
        0 => pod(name),
        1 => plain().image("small").image("large"),
        2 => tolerant(library(plain())),
        3 => plain().request("memory", "1Gi").image("huge"),
        4 => library(plain().host_port(8080)),
        5 => plain().tolerates("dedicated", "x", TaintEffect::NoSchedule),
        6 => tolerant(plain()),
        7 => plain().node_selector("disk", "ssd"),
        8 => plain().image("small").required_affinity(ZONE, "In", &["z0", "z1"]),
        9 => {
            plain().preferred_affinity(10, "disk", "In", &["ssd"]).preferred_affinity(3, ZONE, "In", &["z1"])
        }
        10 => plain().image("large"),
        11 => plain().image("huge").image("small"),
        12 => {
            near(plain().image("huge"), PodAffinity { required_affinity: [term("a", ZONE)].into(), ..none() })
        }
        13 => near(
            plain().image("large"),
            PodAffinity { required_anti_affinity: [term("b", HOST)].into(), ..none() },
        ),
        14 => near(plain(), PodAffinity { required_anti_affinity: [term("c", ZONE)].into(), ..none() }),
        15 => near(
            library(plain()),
            PodAffinity { preferred_affinity: weighted(20, term("a", ZONE)), ..none() },
        ),
        16 => near(
            library(plain()),
            PodAffinity { preferred_anti_affinity: weighted(7, term("b", HOST)), ..none() },
        ),
        17 => near(plain(), PodAffinity { required_affinity: [across("a", HOST)].into(), ..none() }),
        18 => near(
            plain().namespace("other"),
            PodAffinity { required_anti_affinity: [across("a", HOST)].into(), ..none() },
        ),
        19 => near(plain(), PodAffinity { preferred_affinity: weighted(9, across("a", ZONE)), ..none() }),
        20 => spreading(plain().image("large").image("huge"), [spread("c", ZONE, 1, true)]),
        21 => spreading(plain(), [spread("a", HOST, 1, true), spread("a", ZONE, 2, true)]),
        22 => spreading(library(plain().image("small")), [spread("b", ZONE, 1, false)]),
        23 => spreading(plain(), [spread("c", HOST, 1, false), spread("c", ZONE, 3, false)]),
        24 => {
            let least = TopologySpreadConstraint { min_domains: Some(3), ..spread("a", ZONE, 1, true) };
            spreading(plain().required_affinity("disk", "In", &["ssd"]), [least])
        }
        25 => {
            let policies = TopologySpreadConstraint {
                honors_affinity: false,
                honors_taints: true,
                ..spread("b", ZONE, 1, true)
            };
            spreading(
                plain().node_selector("disk", "ssd"),
                [policies.clone(), TopologySpreadConstraint { hard: false, ..policies }],
            )
        }
        26 => library(plain()),
        27 => with_volume(plain(), disk("disk", false)),
        28 => tolerant(with_volume(plain(), VolumeSource::Claim("claim".into()))),
        29 => plain().image("small").image("large").image("huge").request("cpu", "3"),
        30 => plain().namespace("other"),
        31 => plain().required_field("metadata.name", "In", &["n1"]),
        32 => {
            let keyed = TopologySpreadConstraint {
                match_label_keys: [UNIQUE.into()].into(),
                ..spread("c", ZONE, 1, true)
            };
            spreading(plain(), [keyed])
        }
        33 => plain().required_affinity(CORES, "Gt", &["5"]),
        34 => plain().preferred_affinity(9, CORES, "Lt", &["6"]),
        35..=37 => devices::claiming(plain(), template % CLAIMS),
        // The pod's own claim, for one device or two.
        38..=39 => devices::claiming_named(plain(), name),
        _ => plain(),
    }
}

/// The shape of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tests) struct Shape {
    /// No zone if it is greater than the last one.
    pub(in crate::tests) zone: usize,
    pub(in crate::tests) cpu: usize,
    /// None, PreferNoSchedule, NoSchedule, or NoExecute and PreferNoSchedule.
    pub(in crate::tests) taint: usize,
    pub(in crate::tests) is_unschedulable: bool,
    pub(in crate::tests) has_ssd: bool,
    /// The images, by bit.
    pub(in crate::tests) images: usize,
    /// The maximum number of pods.
    pub(in crate::tests) pods: usize,
}

/// The node of a number, in a cluster of `zones` zones.
pub(in crate::tests) fn of_shape(number: usize, version: usize, shape: Shape, zones: usize) -> NodeRecord {
    let name = format!("n{number}");
    let mut node = node(&name)
        .resource_version(&version.to_string())
        .label(HOST, &name)
        .label(CORES, &shape.cpu.to_string())
        .allocatable("cpu", &shape.cpu.to_string())
        .allocatable("pods", &shape.pods.to_string());
    if number.is_multiple_of(2) {
        node = node.allocatable(GPU, "3");
    }
    if shape.zone < zones {
        node = node.zone(&format!("z{}", shape.zone));
    }
    node = match shape.taint {
        1 => node.taint("soft", "x", TaintEffect::PreferNoSchedule),
        2 => node.taint("dedicated", "x", TaintEffect::NoSchedule),
        3 => node.taint("dedicated", "y", TaintEffect::NoExecute).taint(
            "soft",
            "y",
            TaintEffect::PreferNoSchedule,
        ),
        4 => node.taint("soft", "x", TaintEffect::PreferNoSchedule).taint(
            "more",
            "y",
            TaintEffect::PreferNoSchedule,
        ),
        _ => node,
    };
    if shape.is_unschedulable {
        node = node.unschedulable();
    }
    if shape.has_ssd {
        node = node.label("disk", "ssd");
    }
    for (image, name) in IMAGES.iter().enumerate().filter(|(image, _)| shape.images >> image & 1 == 1) {
        node = node.image(&format!("{name}:latest"), 200_000_000 << image);
    }
    node.build()
}

/// The number of other objects.
pub(super) const OBJECTS: usize = 21;

/// Another object in one of its versions. Objects of one node belong to the node of this number.
pub(super) fn of_kind(kind: usize, version: usize, node: usize) -> Object {
    let is_odd = version % 2 == 1;
    let team: Labels = is_odd.then_some(("team", "blue")).into_iter().collect();
    let new = match kind {
        0 | 1 => {
            let selector: Labels = [(APP, if is_odd { "a" } else { "b" })].into_iter().collect();
            object(
                &resources::SERVICE,
                ["default/web", "other/web"][kind],
                Body::Service(Service { selector: selector.into() }),
            )
        }
        2 | 3 => {
            let namespace =
                object(&resources::NAMESPACE, NAMESPACES[kind - 2], Body::Namespace(Namespace {}));
            Object { labels: team, ..namespace }
        }
        4..=8 => {
            let limit = Some((version % 3) as i32);
            let drivers = [CsiNodeDriver { name: DRIVER.into(), limit }].into();
            object(&resources::CSI_NODE, &format!("n{node}"), Body::CsiNode(CsiNode { drivers }))
        }
        9 => {
            let body = CsiDriver { prevents_scheduling_if_missing: is_odd, ..CsiDriver::default() };
            object(&resources::CSI_DRIVER, DRIVER, Body::CsiDriver(body))
        }
        10 => {
            let volume_name = Some(Arc::from("v"));
            let body = VolumeAttachment { attacher: DRIVER.into(), volume_name, inline: None };
            let key = format!("attachment{}", version % 3);
            let attachment = object(&resources::VOLUME_ATTACHMENT, &key, Body::VolumeAttachment(body));
            Object { node_name: Some(format!("n{node}").into()), ..attachment }
        }
        11 => volumes::class(),
        12 => {
            let mut volume = volumes::volume("1", is_odd.then_some("claim"));
            if let Body::PersistentVolume(body) = &mut volume.body {
                body.csi = Some(CsiSource { driver: DRIVER.into(), handle: "v".into(), migrated_from: None });
            }
            volume
        }
        13 => volumes::claim("claim", "1", if is_odd { "v" } else { "" }),
        15 => devices::any_slice(node, version),
        16 => devices::class(is_odd),
        17..=19 => devices::claim(kind - 17, version, is_odd.then_some(node)),
        20 => devices::taint_rule(node, is_odd),
        _ => {
            let selector = Some(selector(if is_odd { "a" } else { "b" }));
            object(&resources::REPLICA_SET, "default/owner", Body::Workload(Workload { selector }))
        }
    };
    Object { resource_version: version.to_string().into(), ..new }
}
