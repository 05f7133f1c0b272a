//! The writes of a scheduler in a run, to repeat them for other pods.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube_informers::protobuf::envelope;
use kube_informers::protobuf::wire::Writer;
use serde_json::{Value, json};

use crate::api::{Call, JSON, PROTOBUF, STRATEGIC_MERGE};
use crate::names::{Names, PodName};
use crate::watch::PodChange;

/// The writes of a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    writes: Vec<Write>,
}

/// The number of writes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Each is two writes: of the claim with a finalizer, and of its status.
    pub(crate) allocations: usize,
    pub(crate) bindings: usize,
    pub(crate) events: usize,
    pub(crate) patches: usize,
    pub(crate) deletes: usize,
}

/// The encoding of bodies. Patches have no protobuf form, and supercargo sends claims as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

#[derive(Clone, Debug)]
enum Write {
    /// To the claim of a pod of the turn.
    Allocate {
        pod: usize,
        allocation: Value,
    },
    ToPod {
        pod: Pod,
        write: PodWrite,
    },
}

#[derive(Clone, Debug)]
enum PodWrite {
    Bind { node: String },
    Event(Value),
    Patch { status: Value },
    Delete,
}

/// A pod of the turn by its index, or an existing pod with the same name in every run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pod {
    Measured(usize),
    Other(PodName),
}

impl Script {
    /// Derives the writes from the changes of pods and the events after the run. An event follows
    /// the change that it reports. `claims` has the claims of pods after the run; that of a pod was
    /// allocated right before the pod was bound.
    pub(crate) fn record(
        changes: &[(PodName, PodChange)],
        events: Vec<Value>,
        claims: &HashMap<usize, Value>,
        names: &Names,
    ) -> Self {
        let mut about: HashMap<Pod, Vec<Value>> = HashMap::new();
        for event in events {
            let text = |key: &str| event["regarding"][key].as_str().unwrap_or_default().to_owned();
            let pod = PodName { namespace: text("namespace"), name: text("name") };
            about.entry(Pod::of(pod, names)).or_default().push(event);
        }
        let mut writes = Vec::new();
        for (pod, change) in changes {
            let pod = Pod::of(pod.clone(), names);
            if let (Pod::Measured(pod), PodChange::Bound { .. }) = (&pod, change)
                && let Some(claim) = claims.get(pod)
            {
                let allocation = claim["status"]["allocation"].clone();
                writes.push(Write::Allocate { pod: *pod, allocation });
            }
            let write = match change {
                PodChange::Bound { node } => PodWrite::Bind { node: node.clone() },
                PodChange::Status(status) => PodWrite::Patch { status: status.clone() },
                PodChange::Deleted => PodWrite::Delete,
            };
            writes.push(Write::ToPod { pod: pod.clone(), write });
            let events = about.get_mut(&pod);
            // The last change takes the remaining events; a pod is bound only once.
            let taken = match (events, change) {
                (Some(events), PodChange::Status(_)) if events.len() > 1 => vec![events.remove(0)],
                (Some(events), PodChange::Bound { .. } | PodChange::Deleted) => std::mem::take(events),
                _ => Vec::new(),
            };
            writes.extend(
                taken
                    .into_iter()
                    .map(|event| Write::ToPod { pod: pod.clone(), write: PodWrite::Event(event) }),
            );
        }
        Self { writes }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for write in &self.writes {
            *match write {
                Write::Allocate { .. } => &mut counts.allocations,
                Write::ToPod { write: PodWrite::Bind { .. }, .. } => &mut counts.bindings,
                Write::ToPod { write: PodWrite::Event(_), .. } => &mut counts.events,
                Write::ToPod { write: PodWrite::Patch { .. }, .. } => &mut counts.patches,
                Write::ToPod { write: PodWrite::Delete, .. } => &mut counts.deletes,
            } += 1;
        }
        counts
    }

    /// The same writes for the pods of another run, which may have fewer, and for its claims. Each
    /// sequence is all writes about a pod: a nomination after the binding would be rejected.
    pub(crate) fn calls(
        &self,
        names: &Names,
        claims: &HashMap<usize, Value>,
        encoding: Encoding,
    ) -> Result<Vec<Vec<Call>>> {
        let exists = |write: &&Write| match write.pod() {
            Pod::Measured(index) => index < names.count,
            Pod::Other(_) => true,
        };
        let (mut places, mut sequences) = (HashMap::new(), Vec::<Vec<&Write>>::new());
        for write in self.writes.iter().filter(exists) {
            let place = *places.entry(write.pod()).or_insert(sequences.len());
            if place == sequences.len() {
                sequences.push(Vec::new());
            }
            sequences[place].push(write);
        }
        let calls = sequences.into_iter().map(|writes| {
            let calls = writes.into_iter().map(|write| match write {
                Write::Allocate { pod, allocation } => {
                    let claim = claims.get(pod).with_context(|| format!("pod {pod} has no claim"))?;
                    Ok(allocate(claim, allocation, &names.claim_path(*pod)))
                }
                Write::ToPod { pod, write } => Ok(vec![call(write, &pod.name(names), encoding)?]),
            });
            Ok(calls.collect::<Result<Vec<_>>>()?.concat())
        });
        calls.collect()
    }
}

impl Write {
    fn pod(&self) -> Pod {
        match self {
            Self::Allocate { pod, .. } => Pod::Measured(*pod),
            Self::ToPod { pod, .. } => pod.clone(),
        }
    }
}

impl Pod {
    fn of(pod: PodName, names: &Names) -> Self {
        names.index(&pod).map_or(Self::Other(pod), Self::Measured)
    }

    fn name(&self, names: &Names) -> PodName {
        match self {
            Self::Measured(index) => names.pod(*index),
            Self::Other(pod) => pod.clone(),
        }
    }
}

/// The writes of a claim's allocation and reservation: first a finalizer, then the status.
fn allocate(claim: &Value, allocation: &Value, path: &str) -> Vec<Call> {
    let mut claim = claim.clone();
    claim["apiVersion"] = json!("resource.k8s.io/v1");
    claim["kind"] = json!("ResourceClaim");
    let owner = claim["metadata"]["ownerReferences"][0].clone();
    if let Some(metadata) = claim["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.insert("finalizers".to_owned(), json!(["resource.kubernetes.io/delete-protection"]));
    }
    let protected = claim.to_string();
    claim["status"] = json!({
        "allocation": allocation,
        "reservedFor": [{"resource": "pods", "name": owner["name"], "uid": owner["uid"]}],
    });
    // Its version follows from the answer to the first write, which is not read.
    if let Some(metadata) = claim["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
    vec![Call::put(path, JSON, protected), Call::put(format!("{path}/status"), JSON, claim.to_string())]
}

fn call(write: &PodWrite, pod: &PodName, encoding: Encoding) -> Result<Call> {
    let PodName { namespace, name } = pod;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let object = |path: String, json: &dyn Fn() -> Value, protobuf: &dyn Fn() -> Result<Vec<u8>>| {
        Ok(match encoding {
            Encoding::Json => Call::post(path, JSON, json().to_string()),
            Encoding::Protobuf => Call::post(path, PROTOBUF, protobuf()?),
        })
    };
    match write {
        PodWrite::Bind { node } => {
            let json = || {
                json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
                    "target": {"kind": "Node", "name": node},
                })
            };
            let protobuf = || {
                let (mut target, mut binding) = (Writer::new(), Writer::new());
                target.string(1, "Node").string(3, node);
                binding.message(1, &metadata(namespace, name)).message(2, &target);
                Ok(envelope("v1", "Binding", &binding))
            };
            object(format!("{path}/binding"), &json, &protobuf)
        }
        PodWrite::Event(event) => {
            let event = renamed(event, pod);
            let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            object(path, &|| event.clone(), &|| event_message(&event))
        }
        PodWrite::Patch { status } => {
            Ok(Call::patch(format!("{path}/status"), STRATEGIC_MERGE, status.to_string()))
        }
        PodWrite::Delete => Ok(Call::delete(path)),
    }
}

/// A recorded event for another pod.
fn renamed(event: &Value, pod: &PodName) -> Value {
    let mut event = event.clone();
    // The suffix after the last dot distinguishes the events of a pod.
    let unique = event["metadata"]["name"].as_str().and_then(|name| name.rsplit('.').next()).unwrap_or("0");
    event["metadata"] = json!({"name": format!("{}.{unique}", pod.name), "namespace": pod.namespace});
    event["regarding"]["name"] = json!(pod.name);
    // The server derives the deprecated fields.
    if let Some(fields) = event.as_object_mut() {
        fields.retain(|key, _| !key.starts_with("deprecated"));
    }
    event
}

fn metadata(namespace: &str, name: &str) -> Writer {
    let mut metadata = Writer::new();
    metadata.string(1, name).string(3, namespace);
    metadata
}

/// An event (events.k8s.io/v1) in protobuf.
fn event_message(event: &Value) -> Result<Vec<u8>> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let time: Timestamp = text("/eventTime").parse()?;
    let (mut seconds, mut regarding, mut message) = (Writer::new(), Writer::new(), Writer::new());
    seconds.varint(1, time.as_second() as u64).varint(2, time.subsec_nanosecond() as u64);
    let keys = ["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion"];
    for (number, key) in (1..).zip(keys) {
        regarding.string(number, text(&format!("/regarding/{key}")));
    }
    message
        .message(1, &metadata(text("/metadata/namespace"), text("/metadata/name")))
        .message(2, &seconds)
        .string(4, text("/reportingController"))
        .string(5, text("/reportingInstance"))
        .string(6, text("/action"))
        .string(7, text("/reason"))
        .message(8, &regarding)
        .string(10, text("/note"))
        .string(11, text("/type"));
    Ok(envelope("events.k8s.io/v1", "Event", &message))
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            (self.allocations, "allocations (2 writes each)"),
            (self.bindings, "bindings"),
            (self.events, "events"),
            (self.patches, "patches"),
            (self.deletes, "deletes"),
        ];
        let mut out = String::new();
        for (count, what) in parts.into_iter().filter(|(count, _)| *count > 0) {
            if !out.is_empty() {
                out.push_str(", ");
            }
            write!(out, "{count} {what}")?;
        }
        f.write_str(&out)
    }
}
