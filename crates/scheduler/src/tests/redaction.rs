//! Captures with pseudonyms.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_codec::{NodeKind, ObjectKind, PodKind};
use supercargo_framework::Now;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodKey;
use supercargo_framework::testing::{node, pod};

use super::test_bed::{TestBed, all_plugins, options};
use crate::record::{Pseudonyms, RecordedCall, Redaction, RedactionError, restore};
use crate::{Effect, Fork, Input, NoCalls, Notification, Options, Scheduler};

/// The lines of a capture, and of the same with pseudonyms.
pub(super) struct Captures {
    pub(super) plain: String,
    pub(super) redacted: String,
    pub(super) pseudonyms: Pseudonyms,
}

impl Captures {
    /// Captures a state twice. Texts that plugins of the test know stay.
    pub(super) fn of(fork: &mut Fork, kept: &[&str]) -> Result<Self, RedactionError> {
        let mut redaction = Redaction::keeping(kept.iter().map(ToString::to_string));
        each_call(fork, |call| redaction.note(call))?;
        let pseudonyms = redaction.pseudonyms(|text| {
            let mut hasher = DefaultHasher::new();
            ("the secret of a test", text).hash(&mut hasher);
            hasher.finish()
        });
        let (mut plain, mut redacted) = (Vec::new(), Vec::new());
        each_call(fork, |call| {
            plain.extend(call.to_line().expect("it can be written"));
            redacted.extend(pseudonyms.call(call)?.to_line().expect("it can be written"));
            Ok(())
        })?;
        let text = |bytes| String::from_utf8(bytes).expect("JSON is UTF-8");
        Ok(Self { plain: text(plain), redacted: text(redacted), pseudonyms })
    }

    /// What both schedulers decide, in the names of the redacted one.
    pub(super) fn decisions(&self, options: impl Fn() -> Options) -> [Vec<String>; 2] {
        let plain = decisions(&self.plain, options(), &|name| self.pseudonyms.text(name));
        [plain, decisions(&self.redacted, options(), &str::to_owned)]
    }
}

fn each_call(
    fork: &mut Fork,
    mut each: impl FnMut(RecordedCall) -> Result<(), RedactionError>,
) -> Result<(), RedactionError> {
    let shown = fork.capture("text".to_owned(), |call| match each(call) {
        Ok(()) => ControlFlow::Continue(()),
        Err(error) => ControlFlow::Break(error),
    });
    match shown {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

/// What a scheduler decides about all pods of a capture, with other names.
fn decisions(capture: &str, options: Options, name: &dyn Fn(&str) -> String) -> Vec<String> {
    let (mut scheduler, mut options) = (None, Some(options));
    let configure = |_: &str| options.take().ok_or_else(|| "only one configuration".to_owned());
    let restored = restore(&mut scheduler, capture.as_bytes(), configure, None).unwrap();
    let (mut scheduler, mut now, mut lines) = (scheduler.unwrap(), restored.now, Vec::new());
    for _ in 0..4 {
        decide(&mut scheduler, now, &mut lines, name);
        let wait = Duration::from_secs(15);
        now = Now { wall: now.wall.plus(wait), monotonic: now.monotonic + wait };
        scheduler.handle(now, Input::Tick);
    }
    lines
}

fn decide(scheduler: &mut Scheduler, now: Now, lines: &mut Vec<String>, name: &dyn Fn(&str) -> String) {
    for _ in 0..100 {
        let tried = scheduler.schedule_one(now, &mut NoCalls);
        lines.extend(scheduler.take_effects().iter().filter_map(|effect| line(effect, name)));
        if !tried {
            return;
        }
    }
}

/// An effect without messages and resource versions; `None` for a condition, which has a message.
fn line(effect: &Effect, name: &dyn Fn(&str) -> String) -> Option<String> {
    let key = |key: &PodKey| format!("{}/{}", name(&key.namespace), name(&key.name));
    Some(match effect {
        Effect::StartPreBind { pod, node, .. } => format!("prepares {} on {}", key(&pod.key()), name(node)),
        Effect::Bind { pod, node, .. } => format!("binds {} to {}", key(&pod.key()), name(node)),
        Effect::Evict { victims, .. } => {
            format!("evicts {:?}", victims.iter().map(|victim| key(&victim.pod)).collect::<Vec<_>>())
        }
        Effect::PatchPodStatus(patch) => match &patch.nomination {
            Nomination::Override(node) => {
                format!("nominates {} for {:?}", key(&patch.pod), node.as_deref().map(name))
            }
            Nomination::Keep => return None,
        },
        Effect::RecordEvent(event) => format!("{} {}", event.reason, key(&event.pod)),
        Effect::PatchGroupStatus(patch) => format!("patches {}", name(&patch.group)),
        Effect::Write { resource, .. } => format!("writes {resource}"),
        Effect::CancelPreBind(_) => "cancels".to_owned(),
        Effect::ReadPod { pod, .. } => format!("reads {}", key(pod)),
    })
}

/// Fills `?` in a JSON text with markers, each another one.
fn marked(text: &str, count: &mut usize) -> Value {
    let mut pieces = text.split('?');
    let mut filled = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        *count += 1;
        filled.extend(["marker-", &count.to_string(), piece]);
    }
    serde_json::from_str(&filled).unwrap()
}

/// The annotation that a plugin declares.
const DECLARED: &str = "example.com/declared";

const NODE: &str = r#"{
    "metadata": {
        "name": "?", "uid": "?", "resourceVersion": "1",
        "labels": { "kubernetes.io/hostname": "?", "?": "?", "?/?": "?", "?.k8s.io/?": "?", "topology.kubernetes.io/zone": "?" },
        "annotations": { "example.com/declared": "?", "?": "?", "?.kubernetes.io": "?" }
    },
    "spec": { "taints": [{ "key": "?", "value": "?", "effect": "PreferNoSchedule" }] },
    "status": {
        "allocatable": { "cpu": "8", "memory": "8Gi", "pods": "9", "?/gpu": "2" },
        "conditions": [{ "type": "Ready", "status": "True" }, { "type": "?", "status": "False" }],
        "images": [{ "names": ["?/?:?"], "sizeBytes": 7 }]
    }
}"#;

const POD: &str = r#"{
    "metadata": {
        "name": "?", "namespace": "?", "uid": "?", "resourceVersion": "2",
        "labels": { "?": "?" }, "annotations": { "example.com/declared": "?", "?": "?" },
        "ownerReferences": [{ "apiVersion": "?/v1", "kind": "?", "name": "?", "uid": "?", "controller": true }]
    },
    "spec": {
        "schedulerName": "supercargo", "schedulingGates": [], "nodeSelector": {},
        "affinity": {
            "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [{
                "weight": 1,
                "preference": { "matchExpressions": [{ "key": "?", "operator": "In", "values": ["?"] }] }
            }] },
            "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{
                "topologyKey": "?", "namespaces": ["?"],
                "labelSelector": { "matchLabels": { "?": "?" } },
                "namespaceSelector": { "matchLabels": { "?": "?" } }
            }] }
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1, "topologyKey": "?", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": { "matchLabels": { "?": "?" } }, "matchLabelKeys": ["?"]
        }],
        "tolerations": [{ "key": "?", "operator": "Equal", "value": "?", "effect": "NoExecute" }],
        "containers": [{
            "name": "?", "image": "?/?:?", "command": ["?"], "env": [{ "name": "?", "value": "?" }],
            "resources": { "requests": { "cpu": "1", "?/gpu": "0" } },
            "ports": [{ "hostPort": 80, "hostIP": "?", "protocol": "TCP" }]
        }],
        "volumes": [
            { "name": "?", "emptyDir": {} }, { "name": "?", "csi": { "driver": "?" } },
            { "name": "?", "rbd": { "monitors": ["?"], "pool": "?", "image": "?" } },
            { "name": "?", "iscsi": { "targetPortal": "?", "iqn": "?", "lun": 1 } },
            { "name": "?", "gcePersistentDisk": { "pdName": "?" } },
            { "name": "?", "azureDisk": { "diskName": "?", "diskURI": "?/?" } }
        ]
    },
    "status": { "conditions": [{
        "type": "PodScheduled", "status": "False", "reason": "?", "message": "?"
    }], "nominatedNodeName": "?" }
}"#;

/// An object of each kind.
const OBJECTS: [(&str, &str, &str); 17] = [
    (
        "v1",
        "PersistentVolume",
        r#""spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "?",
            "volumeAttributesClassName": "?", "claimRef": { "namespace": "?", "name": "?", "uid": "?" },
            "csi": { "driver": "?", "volumeHandle": "?" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [
                { "matchExpressions": [{ "key": "?", "operator": "In", "values": ["?"] }] }
            ] } }
        }, "status": { "phase": "Bound" }"#,
    ),
    (
        "v1",
        "PersistentVolumeClaim",
        r#""spec": {
            "volumeName": "?", "storageClassName": "?", "accessModes": ["ReadWriteOnce"],
            "selector": { "matchLabels": { "?": "?" } }, "resources": { "requests": { "storage": "1Gi" } }
        }, "status": { "phase": "Pending" }"#,
    ),
    (
        "storage.k8s.io/v1",
        "StorageClass",
        r#""provisioner": "?", "parameters": { "?": "?" }, "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [{ "matchLabelExpressions": [{ "key": "?", "values": ["?"] }] }]"#,
    ),
    (
        "storage.k8s.io/v1",
        "CSINode",
        r#""spec": { "drivers": [{ "name": "?", "nodeID": "?", "allocatable": { "count": 3 } }] }"#,
    ),
    ("storage.k8s.io/v1", "CSIDriver", r#""spec": { "storageCapacity": true }"#),
    (
        "storage.k8s.io/v1",
        "CSIStorageCapacity",
        r#""storageClassName": "?", "capacity": "1Gi", "nodeTopology": { "matchLabels": { "?": "?" } }"#,
    ),
    (
        "storage.k8s.io/v1",
        "VolumeAttachment",
        r#""spec": { "attacher": "?", "nodeName": "?", "source": { "persistentVolumeName": "?" } }"#,
    ),
    ("v1", "Service", r#""spec": { "selector": { "?": "?" } }"#),
    ("apps/v1", "ReplicaSet", r#""spec": { "selector": { "matchLabels": { "?": "?" } } }"#),
    ("apps/v1", "StatefulSet", r#""spec": { "selector": { "matchLabels": { "?": "?" } } }"#),
    ("v1", "Namespace", r#""spec": {}"#),
    (
        "policy/v1",
        "PodDisruptionBudget",
        r#""spec": { "selector": { "matchLabels": { "?": "?" } } },
        "status": { "disruptionsAllowed": 1, "disruptedPods": { "?": "2026-01-01T00:00:00Z" } }"#,
    ),
    (
        "resource.k8s.io/v1",
        "DeviceClass",
        r#""spec": {
            "selectors": [{ "cel": { "expression": "device.driver == '?' && device.attributes['?'].model in ['?']" } }],
            "config": [{ "opaque": { "driver": "?", "parameters": { "?": "?" } } }],
            "extendedResourceName": "?/gpu"
        }"#,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceSlice",
        r#""spec": {
            "driver": "?", "pool": { "name": "?", "generation": 1, "resourceSliceCount": 1 },
            "nodeSelector": { "nodeSelectorTerms": [
                { "matchFields": [{ "key": "metadata.name", "operator": "In", "values": ["?"] }] }
            ] },
            "devices": [{
                "name": "?",
                "attributes": {
                    "?/model": { "string": "?" }, "cores": { "int": 4 }, "driverVersion": { "version": "1.2.3" }
                },
                "capacity": { "memory": { "value": "80Gi" } },
                "taints": [{ "key": "?", "value": "?", "effect": "NoSchedule" }]
            }]
        }"#,
    ),
    (
        "resource.k8s.io/v1",
        "ResourceClaim",
        r#""spec": { "devices": {
            "requests": [{ "name": "?", "exactly": {
                "deviceClassName": "?", "allocationMode": "ExactCount", "count": 1,
                "selectors": [{ "cel": { "expression": "device.attributes['?'].model != '?'" } }],
                "tolerations": [{ "key": "?", "operator": "Equal", "value": "?", "effect": "NoSchedule" }]
            } }],
            "constraints": [{ "requests": ["?"], "matchAttribute": "?/?" }],
            "config": [{ "requests": ["?"], "opaque": { "driver": "?", "parameters": { "?": "?" } } }]
        } },
        "status": {
            "allocation": { "devices": { "results": [
                { "request": "?", "driver": "?", "pool": "?", "device": "?" }
            ] } },
            "reservedFor": [{ "resource": "pods", "name": "?", "uid": "?" }],
            "devices": [{ "driver": "?", "pool": "?", "device": "?", "conditions": [
                { "type": "?", "status": "True", "reason": "?", "message": "?" }
            ] }]
        }"#,
    ),
    (
        "resource.k8s.io/v1",
        "DeviceTaintRule",
        r#""spec": {
            "deviceSelector": { "driver": "?", "pool": "?", "device": "?" },
            "taint": { "key": "?", "value": "?", "effect": "NoSchedule" }
        }"#,
    ),
    (
        "scheduling.k8s.io/v1beta1",
        "PodGroup",
        r#""spec": {
            "schedulingPolicy": { "gang": { "minCount": 2 } },
            "schedulingConstraints": { "topology": [{ "key": "?" }] },
            "resourceClaims": [{ "name": "?", "resourceClaimName": "?" }]
        }"#,
    ),
];

fn all(inner: &str) -> String {
    format!(
        r#"{{ "metadata": {{
            "name": "?", "namespace": "?", "uid": "?", "resourceVersion": "3", "labels": {{ "?": "?" }},
            "annotations": {{ "?": "?" }}
        }}, {inner} }}"#
    )
}

/// A cluster whose every name is a marker, and the number of them.
fn cluster_of_markers() -> (TestBed, usize) {
    let mut bed = TestBed::of(Options { timeline_memory: 1 << 20, ..options(all_plugins(Vec::new())) });
    let mut count = 0;
    let node = NodeKind::new([DECLARED]).decode(marked(NODE, &mut count).to_string().as_bytes()).unwrap();
    bed.handle(Input::Node(Notification::Added(Arc::new(node))));
    for (api_version, kind, inner) in OBJECTS {
        let mut value = marked(&all(inner), &mut count);
        let decoder = ObjectKind::of_type(api_version, kind).unwrap();
        if ["StorageClass", "CSINode", "DeviceClass", "ResourceSlice", "Namespace", "PersistentVolume"]
            .contains(&kind)
        {
            value["metadata"]["namespace"] = Value::Null;
        }
        let object = decoder.decode(value.to_string().as_bytes()).unwrap();
        bed.handle(Input::Object(Notification::Added(Arc::new(object))));
    }
    // One is refused before the capture, one has a node, and one waits for its first attempt.
    for (cpu, node) in [("64", json!(null)), ("1", json!("marker-1")), ("1", json!(null))] {
        let mut value = marked(POD, &mut count);
        value["spec"]["nodeName"] = node.clone();
        value["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!(cpu);
        let pod = Arc::new(PodKind::new([DECLARED]).decode(value.to_string().as_bytes()).unwrap());
        let added = Notification::Added(pod);
        bed.handle(if node.is_null() { Input::QueuedPod(added) } else { Input::AssignedPod(added) });
        if cpu == "64" {
            bed.cycle();
        }
    }
    (bed, count)
}

#[test]
fn no_name_is_left_in_a_redacted_capture() {
    let (bed, count) = cluster_of_markers();
    assert!(count > 200, "{count} markers");
    let mut fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
    let captures = Captures::of(&mut fork, &[]).unwrap();
    let found = (1..=count).filter(|number| captures.plain.contains(&format!("marker-{number}"))).count();
    assert!(found > 150, "the capture has {found} of {count} names");
    let lines: Vec<&str> = captures.redacted.lines().filter(|line| line.contains("marker")).collect();
    assert!(lines.is_empty(), "{lines:#?}");
    // The form is the same, and every line can be read.
    let [plain, redacted] = captures.decisions(|| options(all_plugins(Vec::new())));
    assert_eq!(plain, redacted);
    assert!(plain.iter().any(|line| line.starts_with("binds ")), "{plain:?}");
    for known in ["kubernetes.io/hostname", "topology.kubernetes.io/zone", "\"cpu\"", "80Gi", "1.2.3"] {
        let is_there = |text: &str| text.contains(known);
        assert_eq!(is_there(&captures.redacted), is_there(&captures.plain), "{known}");
    }
}

#[test]
fn equal_names_have_equal_pseudonyms_in_their_order() {
    let (bed, _) = cluster_of_markers();
    let mut fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
    let Captures { pseudonyms, .. } = Captures::of(&mut fork, &[]).unwrap();
    let [one, two, ten] = ["marker-1", "marker-2", "marker-10"].map(|name| pseudonyms.text(name));
    assert!(one < ten && ten < two, "{one} {ten} {two}");
    assert_eq!(pseudonyms.text("marker-1/marker-2"), format!("{one}/{two}"));
    assert_eq!(pseudonyms.text("marker-1__marker-2"), format!("{one}__{two}"));
    assert_eq!(pseudonyms.text("nobody"), "(redacted)", "it is not in the capture");
}

#[test]
fn integers_that_are_compared_stay() {
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    for (name, generation) in [("a", "5"), ("b", "17")] {
        let node = node(name).label("generation", generation).label("account", "123456789012");
        bed.node(node);
    }
    let term = json!([{ "matchExpressions": [{ "key": "generation", "operator": "Gt", "values": ["7"] }] }]);
    let required = json!({ "nodeSelectorTerms": term });
    let affinity = json!({ "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": required } });
    let pod = json!({
        "metadata": { "name": "p", "namespace": "default", "uid": "u" },
        "spec": { "schedulerName": "supercargo", "affinity": affinity, "containers": [{ "name": "c" }] },
    });
    let pod = PodKind::new([DECLARED]).decode(pod.to_string().as_bytes()).unwrap();
    bed.handle(Input::QueuedPod(Notification::Added(Arc::new(pod))));
    let mut fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
    let captures = Captures::of(&mut fork, &[]).unwrap();
    assert!(captures.redacted.contains("\"17\"") && !captures.redacted.contains("123456789012"));
    let [plain, redacted] = captures.decisions(|| options(all_plugins(Vec::new())));
    assert_eq!(plain, redacted);
    let node = captures.pseudonyms.text("b");
    assert!(plain.iter().any(|line| line.starts_with("binds ") && line.ends_with(&node)), "{plain:?}");
}

#[test]
fn the_claim_of_an_ephemeral_volume_stays_the_pods() {
    use supercargo_framework::{Volume, VolumeSource};
    let mut bed = TestBed::of(options(all_plugins(Vec::new())));
    let volume = Volume { name: "scratch".into(), source: VolumeSource::Ephemeral };
    bed.pod(pod("web-0").with_spec(|spec| spec.volumes = [volume].into()));
    let mut claim = super::volumes::claim("web-0-scratch", "1", "");
    claim.uid = "c".into();
    bed.handle(Input::Object(Notification::Added(Arc::new(claim))));
    let mut fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
    let Captures { pseudonyms, redacted, .. } = Captures::of(&mut fork, &[]).unwrap();
    let claim = format!("{}-{}", pseudonyms.text("web-0"), pseudonyms.text("scratch"));
    assert_eq!(pseudonyms.text("web-0-scratch"), claim);
    assert!(redacted.contains(&format!("\"default/{claim}\"")), "{redacted}");

    // A claim of this name could be that of either pod.
    let volume = Volume { name: "0-scratch".into(), source: VolumeSource::Ephemeral };
    bed.pod(
        pod("web")
            .with(|pod| pod.namespace = "other".into())
            .with_spec(|spec| spec.volumes = [volume].into()),
    );
    let mut fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
    let Err(error) = Captures::of(&mut fork, &[]) else { panic!("it is redacted") };
    let other = "another pod's ephemeral volume has a claim of the same name";
    assert!(error.to_string().ends_with(&format!(" cannot be redacted: {other}")), "{error}");
}

#[test]
fn a_selector_or_a_version_that_says_too_much_is_refused() {
    let refused = |resource: (&str, &str), spec: &Value| {
        let mut bed = TestBed::of(options(all_plugins(Vec::new())));
        let object = json!({ "metadata": { "name": "x", "uid": "x" }, "spec": spec });
        let decoder = ObjectKind::of_type(resource.0, resource.1).unwrap();
        let object = decoder.decode(object.to_string().as_bytes()).unwrap();
        bed.handle(Input::Object(Notification::Added(Arc::new(object))));
        let mut fork = bed.scheduler.fork(bed.now, options(all_plugins(Vec::new()))).unwrap();
        Captures::of(&mut fork, &[]).map(|captures| captures.redacted).unwrap_err().to_string()
    };
    let expression = json!({ "expression": "device.driver.startsWith('gpu')" });
    assert_eq!(
        refused(("resource.k8s.io/v1", "DeviceClass"), &json!({ "selectors": [{ "cel": expression }] })),
        "a CEL selector of resource.k8s.io/DeviceClass x cannot be redacted because of `startsWith`"
    );
    let device = json!({ "name": "d", "attributes": { "v": { "version": "1.0.0-team" } } });
    let pool = json!({ "name": "p", "generation": 1, "resourceSliceCount": 1 });
    let slice = json!({ "driver": "d", "pool": pool, "allNodes": true, "devices": [device] });
    assert_eq!(
        refused(("resource.k8s.io/v1", "ResourceSlice"), &slice),
        "resource.k8s.io/ResourceSlice x has the version 1.0.0-team, which cannot be redacted"
    );
}
