//! Decoding of kinds other than pods and nodes.

use kube_informers::{ContentType, GroupVersionResource, Kind as _};
use serde_json::{Value, json};
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::{
    Body, ClaimRef, CompositePodGroup, CsiDriver, CsiNode, CsiNodeDriver, CsiSource, GroupPolicy, GroupSpec,
    Namespace, Object, PersistentVolume, PersistentVolumeClaim, PodGroup, Untranslatable, VolumeMode,
    resources,
};
use supercargo_framework::pod_claims::{PodClaim, PodClaimName, PodClaimSource, PodClaimStatus};
use supercargo_framework::selector::LabelSelector;

use crate::ObjectKind;

fn kind(resource: &str) -> ObjectKind {
    ObjectKind::of(resource).unwrap()
}

/// Decodes an object `o` with these fields, in namespace `ns` if the kind is namespaced.
fn decode(kind: &ObjectKind, mut object: Value) -> Object {
    object["metadata"]["name"] = json!("o");
    if kind.gvr().namespaced {
        object["metadata"]["namespace"] = json!("ns");
    }
    kind.decode(object.to_string().as_bytes()).unwrap()
}

fn volume(spec: Value, labels: Value) -> PersistentVolume {
    let object = json!({"metadata": {"labels": labels}, "spec": spec});
    match decode(&kind("PersistentVolume"), object).body {
        Body::PersistentVolume(volume) => volume,
        other => panic!("{other:?}"),
    }
}

fn claim(object: Value) -> PersistentVolumeClaim {
    match decode(&kind("PersistentVolumeClaim"), object).body {
        Body::PersistentVolumeClaim(claim) => claim,
        other => panic!("{other:?}"),
    }
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs.iter().copied().collect()
}

#[test]
fn every_kind_has_its_resource_path() {
    let paths = [
        (resources::PERSISTENT_VOLUME, "/api/v1/persistentvolumes", false),
        (resources::PERSISTENT_VOLUME_CLAIM, "/api/v1/persistentvolumeclaims", true),
        (resources::STORAGE_CLASS, "/apis/storage.k8s.io/v1/storageclasses", false),
        (resources::CSI_NODE, "/apis/storage.k8s.io/v1/csinodes", false),
        (resources::CSI_DRIVER, "/apis/storage.k8s.io/v1/csidrivers", false),
        (resources::CSI_STORAGE_CAPACITY, "/apis/storage.k8s.io/v1/csistoragecapacities", true),
        (resources::VOLUME_ATTACHMENT, "/apis/storage.k8s.io/v1/volumeattachments", false),
        (resources::SERVICE, "/api/v1/services", true),
        (resources::REPLICATION_CONTROLLER, "/api/v1/replicationcontrollers", true),
        (resources::REPLICA_SET, "/apis/apps/v1/replicasets", true),
        (resources::STATEFUL_SET, "/apis/apps/v1/statefulsets", true),
        (resources::NAMESPACE, "/api/v1/namespaces", false),
        (resources::POD_DISRUPTION_BUDGET, "/apis/policy/v1/poddisruptionbudgets", true),
        (resources::RESOURCE_CLAIM, "/apis/resource.k8s.io/v1/resourceclaims", true),
        (resources::RESOURCE_SLICE, "/apis/resource.k8s.io/v1/resourceslices", false),
        (resources::DEVICE_CLASS, "/apis/resource.k8s.io/v1/deviceclasses", false),
        (resources::DEVICE_TAINT_RULE, "/apis/resource.k8s.io/v1/devicetaintrules", false),
        (resources::POD_GROUP, "/apis/scheduling.k8s.io/v1beta1/podgroups", true),
        (resources::COMPOSITE_POD_GROUP, "/apis/scheduling.k8s.io/v1alpha3/compositepodgroups", true),
    ];
    for (resource, path, namespaced) in paths {
        let kind = kind(&resource);
        assert_eq!((kind.gvr().url_path(None), kind.gvr().namespaced), (path.to_owned(), namespaced));
        assert_eq!(kind.resource(), &resource);
        let object = decode(&kind, json!({}));
        assert_eq!(object.resource, resource);
        let key = if namespaced { "ns/o" } else { "o" };
        assert_eq!((&*object.key, kind.key(&object).as_str()), (key, key));
    }
    assert!(ObjectKind::of("Secret").is_none());
}

#[test]
fn metadata_keeps_what_plugins_read() {
    let metadata = json!({
        "uid": "u", "resourceVersion": "7", "deletionTimestamp": "2026-03-01T12:00:00Z", "labels": {"a": "b"},
        "annotations": {"pv.kubernetes.io/bind-completed": "yes", "kubectl.kubernetes.io/last-applied-configuration": "{}"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "pu", "controller": true}],
    });
    let object = decode(&kind("PersistentVolumeClaim"), json!({"metadata": metadata}));
    assert_eq!((&*object.uid, &*object.resource_version, object.terminating), ("u", "7", true));
    assert_eq!(object.labels, labels(&[("a", "b")]));
    assert_eq!(object.annotations, labels(&[("pv.kubernetes.io/bind-completed", "yes")]));
    assert_eq!(&*object.controller.unwrap().uid, "pu");
    let service = decode(&kind("Service"), json!({"metadata": {"annotations": {"a": "b"}}}));
    assert!(service.annotations.is_empty(), "no plugin reads a service's");
    assert!(!service.terminating);
}

#[test]
fn a_volume_is_read_with_every_field() {
    let affinity = json!({"required": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    ]}});
    let found = volume(
        json!({
            "capacity": {"storage": "1500m"}, "accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "volumeMode": "Block",
            "storageClassName": "fast", "volumeAttributesClassName": "gold",
            "claimRef": {"namespace": "ns", "name": "c", "uid": "cu"}, "nodeAffinity": affinity,
            "csi": {"driver": "d", "volumeHandle": "h"},
        }),
        json!({}),
    );
    assert_eq!((found.capacity, found.volume_mode), (2, VolumeMode::Block));
    assert_eq!(
        found.access_modes.iter().map(|mode| &**mode).collect::<Vec<_>>(),
        ["ReadWriteOnce", "ReadOnlyMany"]
    );
    assert_eq!((&*found.storage_class, found.attributes_class.as_deref()), ("fast", Some("gold")));
    let claim = ClaimRef { namespace: "ns".into(), name: "c".into(), uid: "cu".into() };
    assert_eq!(found.claim, Some(claim));
    assert_eq!(found.node_affinity.unwrap()[0].match_expressions.len(), 1);
    assert_eq!(found.csi, Some(CsiSource { driver: "d".into(), handle: "h".into(), migrated_from: None }));

    let bare = volume(json!({"hostPath": {"path": "/tmp"}}), json!({}));
    let raw = bare.raw.clone();
    assert_eq!(bare, PersistentVolume { raw, ..Default::default() });
    assert!(volume(json!({"nodeAffinity": {}}), json!({})).node_affinity.is_none());
    let nowhere = volume(json!({"nodeAffinity": {"required": {"nodeSelectorTerms": []}}}), json!({}));
    assert_eq!(nowhere.node_affinity.unwrap().len(), 0);
}

#[test]
fn in_tree_volume_sources_are_translated() {
    let zone = json!({"topology.kubernetes.io/zone": "us-east1-a"});
    let cases = [
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws:///vol-1"}}),
            "kubernetes.io/aws-ebs",
            "ebs.csi.aws.com",
            "vol-1",
        ),
        (
            json!({"gcePersistentDisk": {"pdName": "d"}}),
            "kubernetes.io/gce-pd",
            "pd.csi.storage.gke.io",
            "projects/UNSPECIFIED/zones/us-east1-a/disks/d",
        ),
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "/subscriptions/d", "kind": "Managed"}}),
            "kubernetes.io/azure-disk",
            "disk.csi.azure.com",
            "/subscriptions/d",
        ),
        (json!({"cinder": {"volumeID": "c"}}), "kubernetes.io/cinder", "cinder.csi.openstack.org", "c"),
        (
            json!({"portworxVolume": {"volumeID": "p"}}),
            "kubernetes.io/portworx-volume",
            "pxd.portworx.com",
            "p",
        ),
    ];
    for (spec, plugin, driver, handle) in cases {
        let expected =
            CsiSource { driver: driver.into(), handle: handle.into(), migrated_from: Some(plugin.into()) };
        assert_eq!(volume(spec.clone(), zone.clone()).csi, Some(expected), "{spec}");
    }
    let other = volume(json!({"nfs": {"server": "s"}}), zone);
    assert_eq!((other.csi, other.untranslatable), (None, None));
}

#[test]
fn in_tree_sources_without_an_equivalent_have_upstreams_error() {
    let disk = || json!({"gcePersistentDisk": {"pdName": "d"}});
    let cases = [
        (
            json!({"azureDisk": {"diskName": "d", "diskURI": "u", "kind": "Dedicated"}}),
            "",
            "kubernetes.io/azure-disk",
            "kind(Dedicated) is not supported in csi migration",
        ),
        (
            json!({"awsElasticBlockStore": {"volumeID": "aws://zone/nonsense"}}),
            "",
            "kubernetes.io/aws-ebs",
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume (aws://zone/nonsense)",
        ),
        (
            disk(),
            "a__b",
            "kubernetes.io/gce-pd",
            "failed to get region from zones: zone in unexpected format, expected: {locale}-{region}-{zone}, got: a",
        ),
        (
            disk(),
            "us-west1-b__us-east1-a",
            "kubernetes.io/gce-pd",
            "failed to get region from zones: multiple or no regions gotten from zones, got: \
             map[us-east1:{} us-west1:{}]",
        ),
    ];
    for (spec, zones, plugin, error) in cases {
        let found = volume(spec.clone(), json!({"topology.kubernetes.io/zone": zones}));
        let expected = Untranslatable { plugin: plugin.into(), error: error.into() };
        assert_eq!((found.csi, found.untranslatable), (None, Some(expected)), "{spec}");
    }
}

#[test]
fn a_claim_is_read_with_every_field() {
    let found = claim(json!({
        "spec": {
            "volumeName": "v", "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem",
            "volumeAttributesClassName": "gold", "resources": {"requests": {"storage": "1Gi"}},
            "selector": {"matchLabels": {"a": "b"}},
        },
        "status": {"phase": "Bound"},
    }));
    assert_eq!((&*found.volume_name, &*found.storage_class, &*found.phase), ("v", "fast", "Bound"));
    assert_eq!((found.request, found.volume_mode), (Some(1 << 30), VolumeMode::Filesystem));
    assert_eq!((found.access_modes.len(), found.attributes_class.as_deref()), (1, Some("gold")));
    assert!(found.selector.unwrap().matches(&labels(&[("a", "b")])));
    let nothing = claim(json!({"spec": {"resources": {"requests": {"storage": "0"}}}}));
    assert_eq!(nothing.request, Some(0), "to ask for nothing is not the same as not to ask");
    let bare = claim(json!({}));
    assert_eq!((bare.request, &bare.selector, &*bare.storage_class), (None, &None, ""));
}

#[test]
fn the_class_annotation_takes_precedence_over_the_field() {
    let annotated = json!({"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}});
    let object = json!({"metadata": annotated, "spec": {"storageClassName": "new"}});
    assert_eq!(&*claim(object.clone()).storage_class, "old");
    let Body::PersistentVolume(volume) = decode(&kind("PersistentVolume"), object).body else { panic!() };
    assert_eq!(&*volume.storage_class, "old");
}

#[test]
fn an_invalid_selector_of_a_claim_matches_no_volume() {
    let expression = json!({"key": "a", "operator": "Gt", "values": ["1"]});
    let selector = claim(json!({"spec": {"selector": {"matchExpressions": [expression]}}})).selector.unwrap();
    assert!(
        !selector.matches(&Labels::default()) && !selector.matches(&labels(&[("a", "2"), ("nothing", "")]))
    );
}

#[test]
fn volumes_and_claims_are_kept_whole_for_updates() {
    for resource in ["PersistentVolume", "PersistentVolumeClaim"] {
        let object = json!({"metadata": {"managedFields": [{"manager": "m"}], "labels": {"a": "b"}}, "spec": {"future": [1]}});
        let raw = match decode(&kind(resource), object).body {
            Body::PersistentVolume(volume) => volume.raw,
            Body::PersistentVolumeClaim(claim) => claim.raw,
            other => panic!("{other:?}"),
        };
        let mut expected = json!({"apiVersion": "v1", "kind": resource, "spec": {"future": [1]}});
        expected["metadata"] = json!({"labels": {"a": "b"}, "name": "o"});
        if resource == "PersistentVolumeClaim" {
            expected["metadata"]["namespace"] = json!("ns");
        }
        assert_eq!(raw.value(), expected);
    }
}

#[test]
fn the_binding_mode_of_a_class_is_optional() {
    let class = |object: Value| match decode(&kind("storage.k8s.io/StorageClass"), object).body {
        Body::StorageClass(class) => class,
        other => panic!("{other:?}"),
    };
    for (mode, waits) in
        [(json!("WaitForFirstConsumer"), Some(true)), (json!("Immediate"), Some(false)), (json!(null), None)]
    {
        assert_eq!(class(json!({"volumeBindingMode": mode})).waits_for_first_consumer, waits, "{mode}");
    }
    let expressions = json!([{"key": "zone", "values": ["a", "b"]}]);
    let found = class(json!({
        "provisioner": "p", "parameters": {"type": "ssd"}, "allowedTopologies": [{"matchLabelExpressions": expressions}, {}],
    }));
    assert_eq!((&*found.provisioner, &found.parameters), ("p", &labels(&[("type", "ssd")])));
    let [zones, nowhere] = &*found.allowed_topologies else { panic!("{found:?}") };
    assert_eq!(&*zones.match_expressions[0].key, "zone");
    assert_eq!(*zones.match_expressions[0].values, ["a".into(), "b".into()]);
    assert!(nowhere.is_empty());
}

#[test]
fn a_csi_node_has_volume_limits_by_driver() {
    let annotations = json!({"storage.alpha.kubernetes.io/migrated-plugins": "kubernetes.io/gce-pd"});
    let drivers = json!([{"name": "a", "nodeID": "n", "allocatable": {"count": 3}}, {"name": "b", "allocatable": {}}, {"name": "c"}]);
    let node = decode(
        &kind("storage.k8s.io/CSINode"),
        json!({"metadata": {"annotations": annotations}, "spec": {"drivers": drivers}}),
    );
    assert_eq!(node.node_name.as_deref(), Some("o"));
    assert_eq!(node.annotations.len(), 1);
    let driver = |name: &str, limit| CsiNodeDriver { name: name.into(), limit };
    let drivers = [driver("a", Some(3)), driver("b", None), driver("c", None)].into();
    assert_eq!(node.body, Body::CsiNode(CsiNode { drivers }));
}

#[test]
fn a_csi_driver_is_read_with_every_field() {
    let driver = |spec| match decode(&kind("storage.k8s.io/CSIDriver"), json!({"spec": spec})).body {
        Body::CsiDriver(driver) => (driver.storage_capacity, driver.prevents_scheduling_if_missing),
        other => panic!("{other:?}"),
    };
    assert_eq!(driver(json!({"storageCapacity": true})), (true, false));
    assert_eq!(driver(json!({"preventPodSchedulingIfMissing": true})), (false, true));
    let bare = CsiDriver::default();
    assert_eq!(driver(json!({})), (bare.storage_capacity, bare.prevents_scheduling_if_missing));
}

#[test]
fn a_capacity_selects_nodes_or_none() {
    let capacity = |object| match decode(&kind("storage.k8s.io/CSIStorageCapacity"), object).body {
        Body::CsiStorageCapacity(capacity) => capacity,
        other => panic!("{other:?}"),
    };
    let found = capacity(
        json!({"storageClassName": "fast", "nodeTopology": {}, "capacity": "1Ki", "maximumVolumeSize": "1"}),
    );
    assert_eq!(
        (&*found.storage_class, found.capacity, found.maximum_volume_size),
        ("fast", Some(1024), Some(1))
    );
    assert_eq!(found.node_topology, Some(LabelSelector::default()));
    let invalid = json!({"matchExpressions": [{"key": "a", "operator": "Gt"}]});
    assert_eq!(capacity(json!({"nodeTopology": invalid})).node_topology, None);
    let bare = capacity(json!({}));
    assert_eq!((bare.capacity, bare.maximum_volume_size, bare.node_topology), (None, None, None));
}

#[test]
fn an_attachment_has_a_volume_name_or_an_inline_volume() {
    let attachment = |source: Value| {
        let spec = json!({"attacher": "d", "nodeName": "n1", "source": source});
        let object = decode(&kind("storage.k8s.io/VolumeAttachment"), json!({"spec": spec}));
        assert_eq!(object.node_name.as_deref(), Some("n1"));
        match object.body {
            Body::VolumeAttachment(attachment) => attachment,
            other => panic!("{other:?}"),
        }
    };
    let named = attachment(json!({"persistentVolumeName": "v"}));
    assert_eq!((&*named.attacher, named.volume_name.as_deref(), named.inline), ("d", Some("v"), None));
    let inline = attachment(json!({"inlineVolumeSpec": {"awsElasticBlockStore": {"volumeID": "vol-1"}}}));
    assert_eq!(inline.volume_name, None);
    assert_eq!(&*inline.inline.unwrap().handle, "vol-1");
}

#[test]
fn selectors_of_workloads_are_parsed() {
    let selects = |resource: &str, spec: Value| match decode(&kind(resource), json!({"spec": spec})).body {
        Body::Workload(workload) => workload.selector,
        Body::PodDisruptionBudget(budget) => budget.selector,
        other => panic!("{other:?}"),
    };
    let web = labels(&[("app", "web"), ("x", "y")]);
    assert!(selects("ReplicationController", json!({"selector": {"app": "web"}})).unwrap().matches(&web));
    assert_eq!(selects("ReplicationController", json!({"selector": {}})), None);
    for resource in ["apps/ReplicaSet", "apps/StatefulSet", "policy/PodDisruptionBudget"] {
        let selector = json!({"selector": {"matchLabels": {"app": "web"}}});
        assert!(selects(resource, selector).unwrap().matches(&web), "{resource}");
        assert_eq!(selects(resource, json!({})), None, "{resource}");
        let invalid = json!({"selector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}});
        assert_eq!(selects(resource, invalid), None, "{resource}");
    }
    let Body::Service(service) = decode(&kind("Service"), json!({"spec": {"selector": {"app": "web"}}})).body
    else {
        panic!()
    };
    assert_eq!(*service.selector.labels(), labels(&[("app", "web")]));
}

#[test]
fn budgets_have_allowed_and_current_disruptions() {
    let status = json!({"disruptionsAllowed": 2, "disruptedPods": {"b": "2026-03-01T12:00:00Z", "a": null}});
    let Body::PodDisruptionBudget(budget) =
        decode(&kind("policy/PodDisruptionBudget"), json!({"status": status})).body
    else {
        panic!()
    };
    assert_eq!((budget.disruptions_allowed, budget.missing_pods), (2, 0));
    assert_eq!(budget.disrupted_pods.iter().map(|name| &**name).collect::<Vec<_>>(), ["a", "b"]);
}

#[test]
fn a_budget_that_is_short_has_the_pods_that_are_missing() {
    for (current, desired, missing) in [(1, 4, 3), (4, 1, 0), (i32::MIN, i32::MAX, i32::MAX)] {
        let status = json!({"disruptionsAllowed": 0, "currentHealthy": current, "desiredHealthy": desired});
        let body = decode(&kind("policy/PodDisruptionBudget"), json!({"status": status})).body;
        let Body::PodDisruptionBudget(budget) = body else { panic!() };
        assert_eq!(budget.missing_pods, missing);
    }
}

#[test]
fn a_namespace_keeps_only_metadata() {
    let namespace = decode(&kind("Namespace"), json!({"metadata": {"labels": {"a": "b"}}, "spec": {}}));
    assert_eq!((namespace.labels, namespace.body), (labels(&[("a", "b")]), Body::Namespace(Namespace {})));
}

#[test]
fn objects_of_unknown_kinds_are_kept_whole() {
    let gvr = GroupVersionResource::namespaced("example.com", "v1", "widgets");
    let widgets = ObjectKind::dynamic("widgets.v1.example.com".into(), gvr);
    let mut widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "spec": {"size": 3.5}});
    widget["metadata"] = json!({"name": "w", "namespace": "ns", "resourceVersion": "7", "managedFields": []});
    let object = widgets.decode(widget.to_string().as_bytes()).unwrap();
    assert_eq!((&*object.resource, &*object.key), ("widgets.v1.example.com", "ns/w"));
    assert_eq!((widgets.key(&object).as_str(), widgets.resource_version(&object)), ("ns/w", "7"));
    widget["metadata"].as_object_mut().unwrap().remove("managedFields");
    let Body::Other(whole) = &object.body else { panic!("{:?}", object.body) };
    assert_eq!(**whole, widget);
}

#[test]
fn errors_name_the_object_and_the_field() {
    for (resource, object, expected) in [
        (
            "PersistentVolume",
            json!({"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "lots"}}}),
            "PersistentVolume v: spec.capacity[storage]: quantity \"lots\"",
        ),
        (
            "PersistentVolumeClaim",
            json!({"metadata": {"name": "c", "namespace": "ns"}, "spec": {"resources": {"requests": {"storage": "?"}}}}),
            "PersistentVolumeClaim ns/c: spec.resources.requests[storage]: quantity \"?\"",
        ),
        (
            "storage.k8s.io/CSIStorageCapacity",
            json!({"metadata": {"name": "c", "namespace": "ns"}, "maximumVolumeSize": "x"}),
            "storage.k8s.io/CSIStorageCapacity ns/c: maximumVolumeSize: quantity \"x\"",
        ),
        ("Service", json!({"metadata": {"namespace": "ns"}}), "Service ns/: metadata.name: missing or empty"),
        ("Service", json!({"metadata": {"name": "s"}}), "Service s: metadata.namespace: missing or empty"),
        (
            "Service",
            json!({"metadata": {"name": "s", "namespace": "ns"}, "spec": {"selector": 3}}),
            "Service ns/s: spec.selector: invalid type",
        ),
    ] {
        let error = kind(resource).decode(object.to_string().as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn other_kinds_are_read_as_json_only() {
    let kind = kind("Service");
    assert!(!kind.accept().protobuf);
    assert!(kubernetes_decode(&kind, ContentType::Protobuf).is_err());
    assert!(kubernetes_decode(&kind, ContentType::Json).is_ok());
}

fn kubernetes_decode(
    kind: &ObjectKind,
    content_type: ContentType,
) -> Result<Object, kube_informers::DecodeError> {
    kube_informers::Kind::decode(kind, content_type, br#"{"metadata": {"name": "s", "namespace": "ns"}}"#)
}

#[test]
fn dropped_objects_release_interned_values() {
    let kind = kind("apps/ReplicaSet");
    let selector = json!({"matchLabels": {"app": "web"}});
    let objects: Vec<_> = (0..20).map(|_| decode(&kind, json!({"spec": {"selector": selector}}))).collect();
    assert!(kind.interned() > 0);
    drop(objects);
    kind.sweep();
    assert_eq!(kind.interned(), 0);
}

#[test]
fn a_pod_group_is_read_with_every_field() {
    let group = |object: Value| match decode(&kind("scheduling.k8s.io/PodGroup"), object).body {
        Body::PodGroup(group) => group,
        other => panic!("{other:?}"),
    };
    let condition = json!({
        "type": "PodGroupInitiallyScheduled", "status": "False", "reason": "Unschedulable", "message": "m",
        "lastTransitionTime": "2026-03-01T12:00:00Z",
    });
    let read = group(json!({
        "spec": {
            "parentCompositePodGroupName": "parent",
            "schedulingPolicy": {"gang": {"minCount": 3}},
            "schedulingConstraints": {"topology": [{"key": "rack"}]},
            "disruptionMode": {"all": {}},
            "priority": 7,
            "preemptionPolicy": "Never",
            "resourceClaims": [
                {"name": "one", "resourceClaimName": "c"},
                {"name": "other", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {
            "conditions": [{"type": "Other", "status": "True"}, condition],
            "resourceClaimStatuses": [{"name": "other", "resourceClaimName": "d"}],
        },
    }));
    let known = read.initially_scheduled.as_ref().unwrap();
    assert_eq!((&*known.status, &*known.reason, &*known.message), ("False", "Unschedulable", "m"));
    assert!(known.last_transition.is_some());
    let spec = GroupSpec {
        policy: GroupPolicy::Gang(3),
        parent: Some("parent".into()),
        topology_key: Some("rack".into()),
        has_empty_constraints: false,
        is_disrupted_whole: true,
        priority: 7,
        never_preempts: Some(true),
        created: 0,
    };
    let entry = |name: &str, source| PodClaim { name: name.into(), source };
    let expected = PodGroup {
        spec,
        initially_scheduled: read.initially_scheduled.clone(),
        claims: Box::new([
            entry("one", PodClaimSource::Claim("c".into())),
            entry("other", PodClaimSource::Template("t".into())),
        ]),
        claim_statuses: Box::new([PodClaimStatus { name: "other".into(), claim: Some("d".into()) }]),
    };
    assert_eq!(read, expected);
    let names: Vec<_> = read.claims.iter().map(|claim| read.claim_name(claim)).collect();
    assert_eq!(names, [PodClaimName::Given(&"c".into()), PodClaimName::Generated(&"d".into())]);
    let basic = json!({"spec": {"schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}}}});
    assert_eq!(group(basic), PodGroup::default());
    assert_eq!(group(json!({})), PodGroup::default());
    let constrained = |constraints| group(json!({"spec": {"schedulingConstraints": constraints}})).spec;
    for (constraints, expected) in [(json!({}), true), (json!({"topology": []}), true), (json!(null), false)]
    {
        assert_eq!(constrained(constraints).has_constraints(), expected);
    }
    let of_groups = json!({"spec": {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}});
    assert_eq!(group(of_groups).spec.policy, GroupPolicy::Gang(0), "the field of another kind");
}

#[test]
fn a_composite_pod_group_is_read_with_every_field() {
    let kind = kind("scheduling.k8s.io/CompositePodGroup");
    let read = decode(
        &kind,
        json!({
            "metadata": {"creationTimestamp": "1970-01-01T00:01:00Z"},
            "spec": {
                "parentCompositePodGroupName": "parent",
                "schedulingPolicy": {"gang": {"minGroupCount": 2}},
                "schedulingConstraints": {"topology": [{"key": "zone"}]},
                "disruptionMode": {"all": {}},
                "priority": 7,
                "preemptionPolicy": "PreemptLowerPriority",
            },
        }),
    );
    let spec = GroupSpec {
        policy: GroupPolicy::Gang(2),
        parent: Some("parent".into()),
        topology_key: Some("zone".into()),
        has_empty_constraints: false,
        is_disrupted_whole: true,
        priority: 7,
        never_preempts: Some(false),
        created: 60,
    };
    assert_eq!(read.body, Body::CompositePodGroup(CompositePodGroup { spec }));
}
