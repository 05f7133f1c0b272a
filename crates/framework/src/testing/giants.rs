//! Pods, nodes and other objects with one enormous list each, as the API server sends them.
//!
//! The API server stores objects of up to 1.5 MiB, so a list can have a hundred thousand items.
//! Every user who may create pods can write one. Tests and benchmarks bound what such an object
//! costs, from its bytes to its binding.

mod claims;
mod devices;
mod plain;
mod selectors;

pub use self::devices::Hostile;
pub use self::plain::{objects, plain_node, plain_pod};

use serde_json::{Map, Value, json};

use self::plain::{namespace_name, node_name, pod_name};

/// The size of the largest object that the API server stores, in bytes.
pub const MOST_BYTES: usize = 1536 << 10;

const HOSTNAME: &str = "kubernetes.io/hostname";
/// A label in which all nodes differ.
const NUMBER: &str = "number";
/// The number of terms of one node or pod.
const A_FEW: usize = 9;
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";

/// A list-like field of a pod, or of an object that a pod's attempt reads.
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
    /// Tolerations of every taint with another effect than the nodes' taints have.
    TolerationsOfOneKey,
    /// Required node affinity terms about a label that every node has.
    NodeTermsOfPresentKey,
    /// Preferred node affinity terms about a label that every node has.
    PreferredTermsOfPresentKey,
    /// Required node affinity terms with a bound that the label of every node misses.
    NodeTermsOfBounds,
    /// Required node affinity terms about a label that every node has, a few for each node.
    NodeTermsOfEachNode,
    /// Required node affinity terms with bounds of a number in which all nodes differ.
    NodeTermsOfNumbers,
    /// Values of a preferred node affinity term that are no label values.
    InvalidValues,
    /// Requirements of one required anti-affinity term about a label that every pod has.
    RequirementsOfPresentKey,
    /// Required anti-affinity terms about a label that every pod has, a few for each pod.
    TermsOfEachPod,
    /// Required anti-affinity terms with one selector and topology keys of the nodes, by turns.
    TermsOfPresentKeys,
    /// Required anti-affinity terms, each with its own namespace and selector of namespaces.
    NamespacesAndSelectors,
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
    /// Claims with selectors and of several sizes, for which there are volumes or storage, but for
    /// the last one.
    MixedClaims,
    /// Claims with a selector each, over zonal volumes and those of single nodes, but for the last
    /// one.
    SelectingClaims,
    /// One claim with a volume, many times, and then another.
    OneClaim,
    /// One claim for which volumes exist, many times.
    OneDelayedClaim,
    /// One claim for which volumes are to be provisioned, many times.
    OneProvisionedClaim,
    /// Disks that count against the limit of a CSI driver.
    Disks,
    /// One disk, many times, which the pod only reads.
    OneDisk,
    /// One RBD image by a monitor each, which the pod only reads.
    Monitors,
    /// Containers with one image each.
    Containers,
    /// Extended resources of one container.
    Resources,
    /// Containers with an extended resource each.
    ContainerResources,
    /// The same for sidecars.
    SidecarResources,
    /// Labels.
    Labels,
    /// Labels, half of which the pod's own affinity terms name.
    LabelsAndTerms,
    /// Scheduling gates.
    Gates,
    /// Owners, the last of which is the controller.
    Owners,
    /// Resource claims by template, with their statuses.
    ResourceClaims,
    /// Requirements of the selector of one hard spread constraint, which every pod meets.
    SpreadRequirements,
    /// `matchLabelKeys` of one hard spread constraint, all of them labels of the pod.
    MatchLabelKeys,
    /// Labels by which a Service selects the pod.
    ServiceSelector,
    /// Requirements of the selector of the pod's ReplicaSet, which every pod meets.
    ReplicaSetRequirements,
    /// Requirements of the selector of a PodDisruptionBudget, which every pod meets. The pod fits
    /// on no node without preemption.
    BudgetRequirements,
    /// Pods that a PodDisruptionBudget counts as disrupted. The pod fits on no node without
    /// preemption.
    DisruptedPods,
    /// Node affinity terms of the volume of the pod's claim, each of another node.
    VolumeTerms,
    /// Requirements of the selector of the pod's claim, which every volume meets.
    ClaimRequirements,
    /// Topologies of the storage class of the pod's claim, which no node has.
    ClassTopologies,
    /// Requirements of the topology of the storage for the pod's claim, which every node meets.
    CapacityRequirements,
    /// CSI drivers of a node, the last of which has the volume of the pod's claim.
    NodeDrivers,
    /// Labels of the pod's namespace, which its affinity selects by the last one.
    NamespaceLabels,
    /// Node selector terms of the allocation of the pod's ResourceClaim, each of another node.
    AllocationTerms,
    /// Requirements of the node selector of the slice with the devices that the pod's
    /// ResourceClaim requests, which every node meets.
    SliceRequirements,
}

impl PodList {
    /// All lists.
    pub const ALL: [Self; 66] = [
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
        Self::TolerationsOfOneKey,
        Self::NodeTermsOfPresentKey,
        Self::PreferredTermsOfPresentKey,
        Self::NodeTermsOfBounds,
        Self::NodeTermsOfEachNode,
        Self::NodeTermsOfNumbers,
        Self::InvalidValues,
        Self::RequirementsOfPresentKey,
        Self::TermsOfEachPod,
        Self::TermsOfPresentKeys,
        Self::NamespacesAndSelectors,
        Self::HostPorts,
        Self::Claims,
        Self::BoundClaims,
        Self::DelayedClaims,
        Self::ProvisionedClaims,
        Self::MixedClaims,
        Self::SelectingClaims,
        Self::OneClaim,
        Self::OneDelayedClaim,
        Self::OneProvisionedClaim,
        Self::Disks,
        Self::OneDisk,
        Self::Monitors,
        Self::Containers,
        Self::Resources,
        Self::ContainerResources,
        Self::SidecarResources,
        Self::Labels,
        Self::LabelsAndTerms,
        Self::Gates,
        Self::Owners,
        Self::ResourceClaims,
        Self::SpreadRequirements,
        Self::MatchLabelKeys,
        Self::ServiceSelector,
        Self::ReplicaSetRequirements,
        Self::BudgetRequirements,
        Self::DisruptedPods,
        Self::VolumeTerms,
        Self::ClaimRequirements,
        Self::ClassTopologies,
        Self::CapacityRequirements,
        Self::NodeDrivers,
        Self::NamespaceLabels,
        Self::AllocationTerms,
        Self::SliceRequirements,
    ];

    /// A pod `default/<name>` with this many items.
    pub fn pod(self, name: &str, items: usize) -> Value {
        let all = |item: fn(usize) -> Value| list(items, item);
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "resourceVersion": "1",
                "labels": { "app": "giant" },
            },
            "spec": {
                "schedulerName": "supercargo",
                "containers": [{ "name": "c", "image": "giant", "resources": {} }],
            },
        });
        let (path, value) = match self {
            Self::AntiAffinityKeys => (ANTI_AFFINITY, all(|i| by_key(&key(i)))),
            Self::AffinityKeys => (AFFINITY, all(|i| by_key(&key(i)))),
            Self::PreferredKeys => (PREFERRED, all(|i| weighted(by_key(&key(i))))),
            Self::Selectors => (ANTI_AFFINITY, all(|i| without(&key(i)))),
            Self::PreferredSelectors => (PREFERRED_ANTI, all(|i| weighted(without(&key(i))))),
            Self::NamespaceSelectors => (ANTI_AFFINITY, all(of_team)),
            Self::Namespaces => (ANTI_AFFINITY, one(with(by_key(HOSTNAME), "namespaces", texts(items)))),
            Self::SelectorValues => (ANTI_AFFINITY, one(selecting(one(is_in("app", texts(items)))))),
            Self::SelectorRequirements => (ANTI_AFFINITY, one(selecting(all(|i| lacks(&key(i)))))),
            Self::NodeTerms => (NODE_TERMS, all(|i| node_term(has(&key(i))))),
            Self::NodeTermsOfOneKey => (NODE_TERMS, all(|i| node_term(is_in(HOSTNAME, json!([key(i)]))))),
            Self::PreferredNodeTerms => (
                "affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                all(|i| json!({ "weight": 1, "preference": node_term(has(&key(i))) })),
            ),
            Self::NodeValues => (NODE_TERMS, one(node_term(is_in(HOSTNAME, texts(items))))),
            Self::NodeRequirements => {
                (NODE_TERMS, one(json!({ "matchExpressions": all(|i| lacks(&key(i))) })))
            }
            Self::NodeTermsOfPresentKey => {
                (NODE_TERMS, all(|i| json!({ "matchExpressions": [has("zone"), has(&key(i))] })))
            }
            Self::PreferredTermsOfPresentKey => (
                "affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                all(|_| json!({ "weight": 1, "preference": node_term(has("zone")) })),
            ),
            Self::NodeTermsOfBounds => {
                let above =
                    |i: usize| json!({ "key": "cores", "operator": "Gt", "values": [(100 + i).to_string()] });
                (NODE_TERMS, list(items, |i| node_term(above(i))))
            }
            Self::NodeTermsOfEachNode => {
                let of = |i| is_in(HOSTNAME, json!([node_name(i / A_FEW)]));
                (NODE_TERMS, list(items, |i| json!({ "matchExpressions": [has("zone"), of(i)] })))
            }
            Self::TermsOfEachPod => {
                let of = |i| is_in(POD_NAME, json!([pod_name(i / A_FEW)]));
                (ANTI_AFFINITY, list(items, |i| selecting(json!([has("app"), of(i), lacks(&key(i))]))))
            }
            Self::TermsOfPresentKeys => {
                let keys = [HOSTNAME, "zone", "kubernetes.io/arch"];
                (ANTI_AFFINITY, list(items, |i| by_key(keys[i % keys.len()])))
            }
            Self::NamespacesAndSelectors => {
                (ANTI_AFFINITY, all(|i| with(of_team(i), "namespaces", json!([namespace_name(i)]))))
            }
            Self::NodeTermsOfNumbers => {
                let above = |i: usize| json!({ "key": NUMBER, "operator": "Gt", "values": [(i / A_FEW).to_string()] });
                (NODE_TERMS, list(items, |i| json!({ "matchExpressions": [has("none"), above(i)] })))
            }
            Self::InvalidValues => {
                let values = list(items, |i| Value::String(format!("!{i}")));
                (
                    "affinity/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution",
                    one(json!({ "weight": 1, "preference": node_term(is_in(HOSTNAME, values)) })),
                )
            }
            Self::RequirementsOfPresentKey => (ANTI_AFFINITY, one(selecting(all(|_| has("app"))))),
            Self::TolerationsOfOneKey => (
                "tolerations",
                all(|i| json!({ "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": i })),
            ),
            Self::NodeNames => {
                (NODE_TERMS, all(|i| json!({ "matchFields": [is_in("metadata.name", json!([key(i)]))] })))
            }
            Self::NodeSelector => ("nodeSelector", map(items, key, "")),
            Self::Tolerations => ("tolerations", all(|i| json!({ "key": key(i), "operator": "Exists" }))),
            Self::HardConstraints => (SPREAD, all(|i| constraint(i, "DoNotSchedule"))),
            Self::SoftConstraints => (SPREAD, all(|i| constraint(i, "ScheduleAnyway"))),
            Self::HostPorts => ("containers/0/ports", all(port)),
            Self::Claims
            | Self::BoundClaims
            | Self::DelayedClaims
            | Self::ProvisionedClaims
            | Self::MixedClaims
            | Self::SelectingClaims => ("volumes", all(|i| claim_volume(i, &key(i)))),
            Self::OneDelayedClaim | Self::OneProvisionedClaim => {
                ("volumes", all(|i| claim_volume(i, &key(0))))
            }
            Self::OneClaim => {
                ("volumes", list(items, |i| claim_volume(i, &key(usize::from(i + 1 == items)))))
            }
            Self::OneDisk => {
                let disk = json!({ "pdName": "disk", "readOnly": true });
                ("volumes", list(items, |i| json!({ "name": key(i), "gcePersistentDisk": disk })))
            }
            Self::Monitors => {
                let image = |i| json!({ "monitors": [key(i)], "image": "i", "pool": "p", "readOnly": true });
                ("volumes", list(items, |i| json!({ "name": key(i), "rbd": image(i) })))
            }
            Self::Disks => ("volumes", all(|i| json!({ "name": key(i), "cinder": { "volumeID": key(i) } }))),
            Self::Containers => ("containers", all(container)),
            Self::Resources => {
                let amounts = map(items, resource, "1");
                ("containers/0/resources", json!({ "requests": amounts, "limits": amounts }))
            }
            Self::ContainerResources => ("containers", all(with_resource)),
            Self::SidecarResources => {
                ("initContainers", all(|i| with(with_resource(i), "restartPolicy", "Always".into())))
            }
            Self::Labels | Self::ServiceSelector => return labelled(pod, items),
            Self::LabelsAndTerms => {
                pod = labelled(pod, items);
                (ANTI_AFFINITY, all(|i| term("zone", one(has(&key(2 * i))))))
            }
            Self::Gates => ("schedulingGates", all(|i| json!({ "name": key(i) }))),
            Self::ResourceClaims => {
                let claim = |i| json!({ "name": key(i), "resourceClaimName": key(i) });
                pod["status"] = json!({ "resourceClaimStatuses": list(items, claim) });
                ("resourceClaims", all(|i| json!({ "name": key(i), "resourceClaimTemplateName": "t" })))
            }
            Self::SpreadRequirements => {
                let every_pod = json!({ "matchExpressions": all(|i| lacks(&key(i))) });
                (SPREAD, one(with(constraint(0, "DoNotSchedule"), "labelSelector", every_pod)))
            }
            Self::MatchLabelKeys => {
                pod = labelled(pod, items);
                (SPREAD, one(with(constraint(0, "DoNotSchedule"), "matchLabelKeys", texts(items))))
            }
            Self::ReplicaSetRequirements => {
                pod["metadata"]["ownerReferences"] = one(with(owner(0, true), "name", "giant".into()));
                return pod;
            }
            Self::BudgetRequirements | Self::DisruptedPods => {
                ("containers/0/resources", json!({ "requests": { "cpu": "32" } }))
            }
            Self::VolumeTerms
            | Self::ClaimRequirements
            | Self::ClassTopologies
            | Self::CapacityRequirements
            | Self::NodeDrivers => ("volumes", one(claim_volume(0, &key(0)))),
            Self::NamespaceLabels => {
                let last = json!({ "matchExpressions": [has(&key(items - 1))] });
                (ANTI_AFFINITY, one(with(by_key(HOSTNAME), "namespaceSelector", last)))
            }
            Self::AllocationTerms | Self::SliceRequirements => {
                ("resourceClaims", one(json!({ "name": key(0), "resourceClaimName": key(0) })))
            }
            Self::Owners => {
                pod["metadata"]["ownerReferences"] = list(items, |i| owner(i, i + 1 == items));
                return pod;
            }
        };
        set(&mut pod["spec"], path, value);
        pod
    }

    /// Whether the list is in another object than the pod.
    pub fn is_beside_pod(self) -> bool {
        matches!(
            self,
            Self::ReplicaSetRequirements
                | Self::BudgetRequirements
                | Self::DisruptedPods
                | Self::VolumeTerms
                | Self::ClaimRequirements
                | Self::ClassTopologies
                | Self::CapacityRequirements
                | Self::NodeDrivers
                | Self::NamespaceLabels
                | Self::AllocationTerms
                | Self::SliceRequirements
        )
    }

    /// The objects that the items name or are part of.
    pub fn objects(self, items: usize) -> Vec<Value> {
        match self {
            Self::BoundClaims => claims::bound(items),
            Self::DelayedClaims => claims::delayed(items),
            Self::ProvisionedClaims => claims::provisioned(items),
            Self::MixedClaims => claims::mixed(items),
            Self::SelectingClaims => claims::selecting(items),
            Self::OneClaim => claims::bound(2),
            Self::OneDelayedClaim => claims::one_delayed(items),
            Self::OneProvisionedClaim => claims::provisioned(1),
            Self::ServiceSelector => selectors::service(items),
            Self::ReplicaSetRequirements => selectors::replica_set(items),
            Self::BudgetRequirements => selectors::budget(items),
            Self::DisruptedPods => selectors::disruptions(items),
            Self::VolumeTerms => claims::with_terms(items),
            Self::ClaimRequirements => claims::with_requirements(items),
            Self::ClassTopologies => claims::with_topologies(items),
            Self::CapacityRequirements => claims::with_storage(items),
            Self::NodeDrivers => claims::with_drivers(items),
            Self::NamespaceLabels => selectors::namespace(items),
            Self::AllocationTerms => devices::allocated(items),
            Self::SliceRequirements => devices::sliced(items),
            _ => Vec::new(),
        }
    }

    /// Whether the cost depends on the pods in the giant's namespace.
    pub fn concerns_namespace(self) -> bool {
        matches!(
            self,
            Self::SpreadRequirements
                | Self::MatchLabelKeys
                | Self::ServiceSelector
                | Self::ReplicaSetRequirements
                | Self::BudgetRequirements
                | Self::DisruptedPods
        )
    }
}

fn claim_volume(i: usize, claim: &str) -> Value {
    json!({ "name": key(i), "persistentVolumeClaim": { "claimName": claim } })
}

const AFFINITY: &str = "affinity/podAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "affinity/podAffinity/preferredDuringSchedulingIgnoredDuringExecution";
const ANTI_AFFINITY: &str = "affinity/podAntiAffinity/requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED_ANTI: &str = "affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution";
const SPREAD: &str = "topologySpreadConstraints";
const NODE_TERMS: &str =
    "affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";

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

    /// A node with this many items.
    pub fn node(self, name: &str, items: usize) -> Value {
        let amounts = json!({ "cpu": "64", "memory": "512Gi", "pods": "110" });
        let mut node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": name, "uid": name, "resourceVersion": "1",
                "labels": { HOSTNAME: name, "zone": "a" },
            },
            "spec": {},
            "status": { "capacity": amounts, "allocatable": amounts },
        });
        match self {
            Self::Labels => return labelled(node, items),
            Self::Taints => {
                let taint = |i| json!({ "key": key(i), "effect": "PreferNoSchedule" });
                node["spec"]["taints"] = list(items, taint);
            }
            Self::Images => {
                let image = |i| json!({ "names": [format!("{}:latest", key(i))], "sizeBytes": 1 << 30 });
                node["status"]["images"] = list(items, image);
            }
            Self::Resources => {
                for amounts in ["capacity", "allocatable"] {
                    extend(&mut node["status"][amounts], map(items, resource, "1"));
                }
            }
        }
        node
    }
}

/// `apiVersion` and `kind` of an object.
pub fn type_of(object: &Value) -> [&str; 2] {
    ["apiVersion", "kind"].map(|field| object[field].as_str().unwrap_or_default())
}

fn cluster_object(version: &str, kind: &str, name: &str) -> Value {
    let metadata = json!({ "name": name, "uid": format!("{kind} {name}"), "resourceVersion": "1" });
    json!({ "apiVersion": version, "kind": kind, "metadata": metadata })
}

fn namespaced(version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = cluster_object(version, kind, name);
    object["metadata"]["namespace"] = namespace.into();
    object
}

/// The name of an item: seven bytes.
fn key(i: usize) -> String {
    format!("k{i:06}")
}

fn resource(i: usize) -> String {
    format!("example.com/{}", key(i))
}

fn list(items: usize, item: impl FnMut(usize) -> Value) -> Value {
    (0..items).map(item).collect()
}

fn one(item: Value) -> Value {
    Value::Array(vec![item])
}

fn texts(items: usize) -> Value {
    list(items, |i| Value::String(key(i)))
}

fn map(items: usize, key: fn(usize) -> String, value: &str) -> Value {
    Value::Object((0..items).map(|i| (key(i), value.into())).collect())
}

/// Sets a nested field of `object`; `path` is separated by slashes and may name items of lists.
fn set(object: &mut Value, path: &str, value: Value) {
    let place = path.split('/').fold(object, |place, step| match step.parse::<usize>() {
        Ok(index) => &mut place[index],
        Err(_) => &mut place[step],
    });
    *place = value;
}

fn extend(object: &mut Value, more: Value) {
    if let (Some(fields), Value::Object(more)) = (object.as_object_mut(), more) {
        fields.extend::<Map<_, _>>(more);
    }
}

fn with(mut object: Value, field: &str, value: Value) -> Value {
    object[field] = value;
    object
}

fn labelled(mut object: Value, items: usize) -> Value {
    extend(&mut object["metadata"]["labels"], map(items, key, ""));
    object
}

fn has(key: &str) -> Value {
    json!({ "key": key, "operator": "Exists" })
}

fn lacks(key: &str) -> Value {
    json!({ "key": key, "operator": "DoesNotExist" })
}

fn is_in(key: &str, values: Value) -> Value {
    json!({ "key": key, "operator": "In", "values": values })
}

/// A term that selects pods by these requirements.
fn term(topology_key: &str, requirements: Value) -> Value {
    json!({ "labelSelector": { "matchExpressions": requirements }, "topologyKey": topology_key })
}

/// A term that selects every pod of the namespace.
fn by_key(key: &str) -> Value {
    json!({ "labelSelector": {}, "topologyKey": key })
}

fn selecting(requirements: Value) -> Value {
    term(HOSTNAME, requirements)
}

/// A term by hostname for pods without a label.
fn without(key: &str) -> Value {
    selecting(one(lacks(key)))
}

/// A term by hostname for all pods of the namespaces of a team.
fn of_team(i: usize) -> Value {
    let selector = json!({ "matchExpressions": [has("team"), lacks(&key(i))] });
    with(by_key(HOSTNAME), "namespaceSelector", selector)
}

fn weighted(term: Value) -> Value {
    json!({ "weight": 1, "podAffinityTerm": term })
}

fn node_term(requirement: Value) -> Value {
    json!({ "matchExpressions": [requirement] })
}

fn constraint(i: usize, when: &str) -> Value {
    json!({
        "maxSkew": 1,
        // The first is on the nodes.
        "topologyKey": if i == 0 { "zone".to_owned() } else { key(i) },
        "whenUnsatisfiable": when,
        "labelSelector": { "matchLabels": { "app": "giant" } },
    })
}

fn port(i: usize) -> Value {
    let (address, number) = (i / 60_000, i % 60_000 + 1);
    let ip = format!("10.0.0.{}", address + 1);
    json!({ "containerPort": 1, "hostPort": number, "hostIP": ip, "protocol": "TCP" })
}

/// A container with what the API server sets.
fn container(i: usize) -> Value {
    json!({
        "name": key(i), "image": format!("{}:latest", key(i)), "resources": {},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    })
}

fn with_resource(i: usize) -> Value {
    let amounts = json!({ resource(i): "1" });
    with(container(i), "resources", json!({ "requests": amounts, "limits": amounts }))
}

fn owner(i: usize, is_controller: bool) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": key(i), "uid": key(i),
        "controller": is_controller,
    })
}
