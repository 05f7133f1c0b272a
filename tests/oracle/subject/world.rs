//! Acts as the API server: a table of objects and a log of changes.

use std::collections::{BTreeMap, VecDeque};

use serde_json::{Map, Value, json};
use supercargo_framework::binding::{ApiCall, ApiError, Certainty};

use crate::oracle::answer::Write;
use crate::oracle::history::Reference;

/// The first versions of the scheduler's writes, and of those to pods; upstream's side uses the
/// same.
const FIRST_VERSION: u64 = 1_000_000;
const FIRST_POD_VERSION: u64 = 5_000_000;

/// Fields of a pod that an apply step does not change.
const LASTING: [(&str, &str); 3] =
    [("spec", "nodeName"), ("metadata", "deletionTimestamp"), ("metadata", "deletionGracePeriodSeconds")];

/// A change of an object: its new state, or its deletion.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) reference: Reference,
    pub(super) new: Option<Value>,
}

/// The objects of a cluster.
#[derive(Debug)]
pub(super) struct World {
    objects: BTreeMap<Reference, Value>,
    /// Changes that are not delivered yet.
    pub(super) changes: VecDeque<Changed>,
    /// Pods that the scheduler has deleted since the last step.
    pub(super) deleted: Vec<String>,
    /// The other writes since the last step.
    pub(super) writes: Vec<Write>,
    next_version: u64,
    next_pod_version: u64,
}

impl World {
    pub(super) fn new() -> Self {
        Self {
            objects: BTreeMap::new(),
            changes: VecDeque::new(),
            deleted: Vec::new(),
            writes: Vec::new(),
            next_version: FIRST_VERSION,
            next_pod_version: FIRST_POD_VERSION,
        }
    }

    pub(super) fn get(&self, reference: &Reference) -> Option<&Value> {
        self.objects.get(reference)
    }

    /// The version of the scheduler's next write to an object other than a pod.
    pub(super) fn next_version(&self) -> u64 {
        self.next_version
    }

    /// Every object of a kind, by name.
    pub(super) fn list<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a Reference, &'a Value)> {
        self.objects.iter().filter(move |(reference, _)| reference.kind == kind)
    }

    /// Creates or replaces an object. Some fields are immutable.
    pub(super) fn apply(&mut self, mut object: Value) {
        let reference = Reference::of(&object);
        let known = self.objects.get(&reference);
        if known.is_some_and(|known| known["metadata"]["uid"] != object["metadata"]["uid"]) {
            self.delete(&reference);
        } else if let Some(known) = known.filter(|_| reference.kind == "Pod") {
            for (outer, inner) in LASTING {
                if !known[outer][inner].is_null() {
                    object[outer][inner] = known[outer][inner].clone();
                }
            }
        }
        self.see_version(&object);
        self.objects.insert(reference.clone(), object.clone());
        self.changes.push_back(Changed { reference, new: Some(object) });
    }

    /// Makes the scheduler's next versions newer than that of an object.
    fn see_version(&mut self, object: &Value) {
        let version = object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse().ok());
        if let Some(version) = version
            && (self.next_version..FIRST_POD_VERSION).contains(&version)
        {
            self.next_version = version + 1;
        }
    }

    pub(super) fn delete(&mut self, reference: &Reference) {
        if self.objects.remove(reference).is_some() {
            self.changes.push_back(Changed { reference: reference.clone(), new: None });
        }
    }

    /// A write of the scheduler: applies `change` with a new version. Returns `false` if the object
    /// does not exist.
    pub(super) fn write(&mut self, reference: &Reference, change: impl FnOnce(&mut Value)) -> bool {
        let Some(mut object) = self.objects.get(reference).cloned() else {
            return false;
        };
        change(&mut object);
        let version =
            if reference.kind == "Pod" { next(&mut self.next_pod_version) } else { self.new_version() };
        object["metadata"]["resourceVersion"] = json!(version);
        self.apply(object);
        true
    }

    /// The version of a write to an object other than a pod.
    pub(super) fn new_version(&mut self) -> String {
        next(&mut self.next_version)
    }

    /// The pod, if it has this UID.
    pub(super) fn pod_of(&self, reference: &Reference, uid: &str) -> Option<&Value> {
        self.get(reference).filter(|pod| pod["metadata"]["uid"] == *uid)
    }

    /// Evicts a pod. With a grace period, the pod only starts terminating.
    pub(super) fn evict(&mut self, pod: &Reference, now: jiff::Timestamp) {
        let Some(known) = self.get(pod).cloned() else { return };
        self.deleted.push(pod.key());
        let grace = known["spec"]["terminationGracePeriodSeconds"].as_i64().filter(|grace| *grace > 0);
        let Some(grace) = grace.filter(|_| known["spec"]["nodeName"].is_string()) else {
            return self.delete(pod);
        };
        if known["metadata"]["deletionTimestamp"].is_null() {
            let end = jiff::Timestamp::from_second(now.as_second() + grace).unwrap_or(now);
            self.write(pod, |pod| {
                pod["metadata"]["deletionTimestamp"] = json!(end.to_string());
                pod["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
            });
        }
    }

    /// Patches a condition of a PodGroup, unless the group is deleted or replaced.
    pub(super) fn patch_group(&mut self, key: &str, uid: &str, condition: impl FnOnce() -> Value) {
        let (namespace, name) = key.split_once('/').unwrap_or_default();
        let group = Reference::pod_group(namespace, name);
        if self.get(&group).is_none_or(|group| group["metadata"]["uid"] != *uid) {
            return;
        }
        // Its effect is among the groups of the answer.
        self.writes.push(Write {
            verb: "patch status".to_owned(),
            resource: "podgroups".to_owned(),
            name: name.to_owned(),
            body: Value::Null,
        });
        self.write(&group, |group| set_condition(group, condition()));
    }

    /// A request of a plugin during PreBind.
    pub(super) fn call(&mut self, call: ApiCall) -> Result<Value, ApiError> {
        match call {
            ApiCall::Bind { pod, uid, node } => {
                self.bind(&Reference::pod(&pod.namespace, &pod.name), &uid.text(), &node)
            }
            ApiCall::Request { method, path, content_type, body } => {
                self.request(&method, &path, &content_type, &body)
            }
        }
    }

    fn bind(&mut self, pod: &Reference, uid: &str, node: &str) -> Result<Value, ApiError> {
        let Some(known) = self.get(pod) else {
            return Err(not_found("pods", &pod.name));
        };
        let conflict = |why: String| {
            let message = format!("Operation cannot be fulfilled on pods \"{}\": {why}", pod.name);
            Err(ApiError { certainty: Certainty::Refused, message })
        };
        let known_uid = known["metadata"]["uid"].as_str().unwrap_or_default();
        if known_uid != uid {
            return conflict(format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: {known_uid}"
            ));
        }
        if !known["metadata"]["deletionTimestamp"].is_null() {
            return conflict(format!("pod {} is being deleted, cannot be assigned to a host", pod.name));
        }
        if let Some(node) = known["spec"]["nodeName"].as_str() {
            return conflict(format!("pod {} is already assigned to node {node:?}", pod.name));
        }
        if known["spec"]["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty()) {
            return conflict(format!("pod {} has non-empty .spec.schedulingGates", pod.name));
        }
        self.write(pod, |pod| {
            pod["spec"]["nodeName"] = json!(node);
            set_condition(pod, json!({ "type": "PodScheduled", "status": "True" }));
            remove(pod, "status", "nominatedNodeName");
        });
        Ok(json!({}))
    }

    /// Replaces a whole object, writes to a ResourceClaim, or tells a pod its claim.
    fn request(&mut self, method: &str, path: &str, kind: &str, body: &Value) -> Result<Value, ApiError> {
        if let Some(answer) = self.resource_claim_request(method, path, body) {
            return answer;
        }
        let status = &body["status"]["extendedResourceClaimStatus"];
        if method == "PATCH"
            && let ["api", "v1", "namespaces", namespace, "pods", name, "status"] =
                path.trim_start_matches('/').split('/').collect::<Vec<_>>()[..]
            && status.is_object()
        {
            let pod = Reference::pod(namespace, name);
            self.write(&pod, |pod| pod["status"]["extendedResourceClaimStatus"] = status.clone());
            return self.get(&pod).cloned().ok_or_else(|| not_found("pods", name));
        }
        let refused = |message: String| ApiError { certainty: Certainty::Refused, message };
        if method != "PUT" {
            return Err(refused(format!("the oracle does not know {method} {path} with {kind}")));
        }
        let reference = Reference::of(body);
        let resource = match reference.kind.as_str() {
            "PersistentVolume" => "persistentvolumes",
            "PersistentVolumeClaim" => "persistentvolumeclaims",
            other => return Err(refused(format!("the oracle does not know how to update a {other}"))),
        };
        self.writes.push(Write {
            verb: "update".to_owned(),
            resource: resource.to_owned(),
            name: reference.name.clone(),
            body: body.clone(),
        });
        let current = self.get(&reference).ok_or_else(|| not_found(resource, &reference.name))?;
        if current["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"] {
            return Err(modified(resource, &reference.name));
        }
        // An update without a change has no effect.
        if pruned(current) != pruned(body) {
            self.write(&reference, |object| *object = body.clone());
        }
        Ok(self.get(&reference).cloned().unwrap_or_default())
    }
}

fn next(counter: &mut u64) -> String {
    *counter += 1;
    (*counter - 1).to_string()
}

/// An object without nulls and empty fields.
pub(in crate::oracle) fn pruned(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (key.clone(), pruned(value)));
            let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
            fields.filter(|(_, value)| !value.is_null() && !is_empty(value)).collect()
        }
        Value::Array(items) => items.iter().map(pruned).collect(),
        other => other.clone(),
    }
}

/// The error of an update whose version is not the stored one.
pub(super) fn modified(resource: &str, name: &str) -> ApiError {
    let message = format!(
        "Operation cannot be fulfilled on {resource} {name:?}: the object has been modified; please apply your \
         changes to the latest version and try again"
    );
    ApiError { certainty: Certainty::Conflict, message }
}

pub(super) fn not_found(resource: &str, name: &str) -> ApiError {
    ApiError { certainty: Certainty::NotFound, message: format!("{resource} \"{name}\" not found") }
}

/// Removes a nested field.
pub(super) fn remove(object: &mut Value, outer: &str, inner: &str) {
    if let Some(fields) = object[outer].as_object_mut() {
        fields.remove(inner);
    }
}

/// Sets a condition of a pod or a group.
pub(super) fn set_condition(pod: &mut Value, condition: Value) {
    let conditions = &mut pod["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let conditions = conditions.as_array_mut().expect("it has just been made one");
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
