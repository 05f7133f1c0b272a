//! Simulates the controller of resource claims: it creates claims from templates, and cleans up
//! after pods that are done.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::feed::{Feed, Update};
use super::objects::{Identity, Objects};
use super::timers::Timers;
use crate::json::{list, present, text, text_at, texts};
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::rest::Part;
use crate::server::Shared;
use crate::status::Result;
use crate::store::EventType;

/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// The annotation of a generated claim with the name of the pod's entry.
const POD_CLAIM: &str = "resource.kubernetes.io/pod-claim-name";
/// A claim cannot be reserved for more pods.
const MOST_CONSUMERS: usize = 256;
/// The longest base of a generated name, to which the server adds a hyphen and five characters.
const LONGEST_BASE: usize = 57;
/// The delay before a failed write, or a missing template, is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// A pod or claim to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Pod { namespace: Box<str>, name: Box<str> },
    Claim { namespace: Box<str>, name: Box<str> },
}

/// The controller.
#[derive(Debug)]
pub(super) struct Claims {
    objects: Objects,
    pod_kind: Arc<Kind>,
    claim_kind: Arc<Kind>,
    template_kind: Arc<Kind>,
    pod_feed: Feed,
    claim_feed: Feed,
    /// The claims that a pod owns or that are reserved for it, by its UID. It may have claims that
    /// no longer are.
    used_by: FxHashMap<Box<str>, BTreeSet<Key>>,
    queue: BTreeSet<Key>,
    later: Timers<Key>,
}

impl Claims {
    /// `None` if the resources are not served.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Self> {
        let objects = Objects::new(shared, "kube-controller-manager");
        let kind = |resource: &str| objects.kind("resource.k8s.io", resource);
        let (claim_kind, template_kind) = (kind("resourceclaims")?, kind("resourceclaimtemplates")?);
        let pod_kind = objects.kind("", "pods")?;
        Some(Self {
            pod_feed: Feed::new(&objects, &pod_kind),
            claim_feed: Feed::new(&objects, &claim_kind),
            objects,
            pod_kind,
            claim_kind,
            template_kind,
            used_by: FxHashMap::default(),
            queue: BTreeSet::new(),
            later: Timers::new(),
        })
    }

    pub(super) async fn run(mut self) {
        loop {
            if self.read() {
                tokio::task::yield_now().await;
                continue;
            }
            while let Some(key) = self.later.take(Instant::now()) {
                self.queue.insert(key);
            }
            if let Some(key) = self.queue.pop_first() {
                self.reconcile(&key);
                tokio::task::yield_now().await;
                continue;
            }
            tokio::select! {
                () = self.pod_feed.changed() => {}
                () = self.claim_feed.changed() => {}
                () = self.later.due() => {}
            }
        }
    }

    /// Reads a batch of changes of claims and of pods. Returns whether there were any.
    fn read(&mut self) -> bool {
        let claims = self.claim_feed.read();
        let any_claims = !matches!(claims, Update::None);
        match claims {
            Update::None => {}
            Update::All(claims) => {
                for claim in &claims {
                    self.claim_changed(claim);
                }
            }
            Update::Changes(changes) => {
                for change in changes.iter().filter(|change| change.event != EventType::Deleted) {
                    self.claim_changed(&change.object);
                }
            }
        }
        match self.pod_feed.read() {
            Update::None => return any_claims,
            Update::All(pods) => {
                // Any pod may be gone.
                self.queue.extend(self.used_by.values().flatten().cloned());
                for pod in &pods {
                    self.pod_changed(pod);
                }
            }
            Update::Changes(changes) => {
                for change in changes {
                    if change.event == EventType::Deleted {
                        self.queue.extend(self.used_by.remove(&change.object.uid).unwrap_or_default());
                    } else {
                        self.pod_changed(&change.object);
                    }
                }
            }
        }
        true
    }

    fn claim_changed(&mut self, claim: &StoredObject) {
        let key = Key::Claim { namespace: claim.namespace.clone(), name: claim.name.clone() };
        let value = claim.value(&self.claim_kind);
        let consumers = list(&value["status"], "reservedFor").iter().map(|one| text(one, "uid"));
        for uid in consumers.chain(claim.owners.iter().map(|uid| &**uid)) {
            self.used_by.entry(uid.into()).or_default().insert(key.clone());
        }
        self.queue.insert(key);
    }

    fn pod_changed(&mut self, pod: &StoredObject) {
        if !names_claims(pod) && !self.used_by.contains_key(&pod.uid) {
            return;
        }
        self.queue.insert(Key::Pod { namespace: pod.namespace.clone(), name: pod.name.clone() });
        if is_done(pod) {
            self.queue.extend(self.used_by.get(&pod.uid).into_iter().flatten().cloned());
        }
    }

    fn reconcile(&mut self, key: &Key) {
        let result = match key {
            Key::Pod { namespace, name } => self.reconcile_pod(namespace, name),
            Key::Claim { namespace, name } => self.reconcile_claim(namespace, name),
        };
        if let Err(status) = result {
            tracing::debug!(message = status.message, "cannot reconcile resource claims");
            self.later.set(Instant::now() + RETRY, key.clone());
        }
    }

    /// Creates the claims that a pod lacks, and reserves claims for a pod that no scheduler placed.
    fn reconcile_pod(&self, namespace: &str, name: &str) -> Result<()> {
        let Some(object) = self.objects.get(&self.pod_kind, namespace, name).filter(|pod| !pod.deleting)
        else {
            return Ok(());
        };
        let mut pod = object.value(&self.pod_kind);
        let mut created = Vec::new();
        for entry in list(&pod["spec"], "resourceClaims") {
            if let Some(claim) = self.claim_from_template(&pod, entry)? {
                created.push((text(entry, "name").to_owned(), claim));
            }
        }
        if !created.is_empty() {
            let identity = Identity::of(&pod);
            let updated = self.objects.update(&self.pod_kind, &identity, Part::Status, |pod| {
                for (entry, claim) in &created {
                    set_claim_status(pod, entry, claim);
                }
            })?;
            pod = updated.value(&self.pod_kind);
        }
        if !text_at(&pod, "/spec/nodeName").is_empty() && !is_done(&object) {
            self.reserve_for(&pod)?;
        }
        Ok(())
    }

    /// The name of the claim for an entry, if it was missing.
    fn claim_from_template(&self, pod: &Value, entry: &Value) -> Result<Option<Box<str>>> {
        let Some(template) = present(entry, "resourceClaimTemplateName").and_then(Value::as_str) else {
            return Ok(None);
        };
        let namespace = text_at(pod, "/metadata/namespace");
        if let Some(status) = status_of(pod, text(entry, "name")) {
            let claim = text(status, "resourceClaimName");
            if claim.is_empty() || self.objects.get(&self.claim_kind, namespace, claim).is_some() {
                return Ok(None);
            }
        }
        if let Some(claim) = self.claim_of_entry(pod, text(entry, "name")) {
            return Ok(Some(claim));
        }
        let missing = || crate::status::Status::not_found(&self.template_kind, template);
        let template = self.objects.get(&self.template_kind, namespace, template).ok_or_else(missing)?;
        let claim = generated(pod, text(entry, "name"), &template.value(&self.template_kind));
        Ok(Some(self.objects.create(&self.claim_kind, namespace, claim)?.name.clone()))
    }

    /// A claim that was created for an entry before, whose name did not reach the pod.
    fn claim_of_entry(&self, pod: &Value, entry: &str) -> Option<Box<str>> {
        let claims = self.used_by.get(text_at(pod, "/metadata/uid"))?;
        claims.iter().find_map(|key| {
            let Key::Claim { namespace, name } = key else { return None };
            let claim =
                self.objects.get(&self.claim_kind, namespace, name).filter(|claim| !claim.deleting)?;
            let value = claim.value(&self.claim_kind);
            let is_owned = owning_pod(&value)?.1 == text_at(pod, "/metadata/uid");
            (is_owned && text(&value["metadata"]["annotations"], POD_CLAIM) == entry)
                .then(|| claim.name.clone())
        })
    }

    /// Reserves the allocated claims of a pod on a node.
    fn reserve_for(&self, pod: &Value) -> Result<()> {
        let metadata = &pod["metadata"];
        let (namespace, uid) = (text(metadata, "namespace"), text(metadata, "uid"));
        for entry in list(&pod["spec"], "resourceClaims") {
            let given = present(entry, "resourceClaimName").and_then(Value::as_str);
            let status = status_of(pod, text(entry, "name")).unwrap_or(&Value::Null);
            let name = given.unwrap_or_else(|| text(status, "resourceClaimName"));
            let Some(claim) = self.objects.get(&self.claim_kind, namespace, name) else { continue };
            let claim = claim.value(&self.claim_kind);
            let consumers = list(&claim["status"], "reservedFor");
            let is_reserved = consumers.iter().any(|consumer| text(consumer, "uid") == uid);
            if present(&claim["status"], "allocation").is_none()
                || is_reserved
                || consumers.len() >= MOST_CONSUMERS
            {
                continue;
            }
            let consumer = json!({ "resource": "pods", "name": metadata["name"], "uid": uid });
            let consumers: Vec<Value> = consumers.iter().cloned().chain([consumer]).collect();
            self.objects.update(&self.claim_kind, &Identity::of(&claim), Part::Status, |claim| {
                claim["status"]["reservedFor"] = consumers.into();
            })?;
        }
        Ok(())
    }

    /// Drops the reservations of pods that are done. An unused claim is deallocated, and deleted if
    /// it was generated.
    fn reconcile_claim(&self, namespace: &str, name: &str) -> Result<()> {
        let Some(object) = self.objects.get(&self.claim_kind, namespace, name) else { return Ok(()) };
        let claim = object.value(&self.claim_kind);
        let identity = Identity::of(&claim);
        let consumers = list(&claim["status"], "reservedFor");
        let is_left = |consumer: &&Value| self.is_consumer_left(namespace, consumer);
        let left: Vec<Value> = consumers.iter().filter(is_left).cloned().collect();
        let is_unused = left.is_empty();
        let is_protected = texts(&claim["metadata"], "finalizers").any(|finalizer| finalizer == FINALIZER);
        let loses_consumers = left.len() < consumers.len();
        if loses_consumers || (is_protected && object.deleting && is_unused) {
            self.objects.update(&self.claim_kind, &identity, Part::Status, |claim| {
                set_consumers(&mut claim["status"], left, is_protected);
            })?;
            if is_protected && is_unused {
                self.objects.update(&self.claim_kind, &identity, Part::Main, drop_finalizer)?;
            }
        }
        let owner = owning_pod(&claim).filter(|_| is_unused && !object.deleting);
        // It may have gone before its claim came, which the garbage collector would notice.
        let is_gone = |(pod, uid): (&str, &str)| {
            let pod = self.objects.get(&self.pod_kind, namespace, pod);
            pod.is_none_or(|pod| &*pod.uid != uid || is_done(&pod))
        };
        if owner.is_some_and(is_gone) {
            self.objects.delete(&self.claim_kind, &identity, None)?;
        }
        Ok(())
    }

    fn is_consumer_left(&self, namespace: &str, consumer: &Value) -> bool {
        if !text(consumer, "apiGroup").is_empty() || text(consumer, "resource") != "pods" {
            return true;
        }
        let pod = self.objects.get(&self.pod_kind, namespace, text(consumer, "name"));
        pod.is_some_and(|pod| *pod.uid == *text(consumer, "uid") && !is_done(&pod))
    }
}

/// Whether a pod may have claims. Parsing every pod would cost more.
fn names_claims(pod: &StoredObject) -> bool {
    std::str::from_utf8(pod.body()).is_ok_and(|body| body.contains("\"resourceClaims\""))
}

/// Whether a pod has ended or will never run.
fn is_done(pod: &StoredObject) -> bool {
    matches!(pod.field("status.phase"), "Succeeded" | "Failed")
        || (pod.deleting && pod.field("spec.nodeName").is_empty())
}

/// The name and UID of the pod that controls a claim.
fn owning_pod(claim: &Value) -> Option<(&str, &str)> {
    let owners = list(&claim["metadata"], "ownerReferences").iter();
    let mut pods = owners.filter(|owner| owner["controller"] == true && text(owner, "kind") == "Pod");
    pods.find(|owner| text(owner, "apiVersion") == "v1")
        .map(|owner| (text(owner, "name"), text(owner, "uid")))
}

/// The entry of a pod's status with the claim for an entry of its spec.
pub(super) fn status_of<'a>(pod: &'a Value, entry: &str) -> Option<&'a Value> {
    list(&pod["status"], "resourceClaimStatuses").iter().find(|status| text(status, "name") == entry)
}

/// Sets the claim of an entry, keeping the entries in order of their names.
fn set_claim_status(pod: &mut Value, entry: &str, claim: &str) {
    let mut statuses = list(&pod["status"], "resourceClaimStatuses").to_vec();
    statuses.retain(|status| text(status, "name") != entry);
    statuses.push(json!({ "name": entry, "resourceClaimName": claim }));
    statuses.sort_by(|a, b| text(a, "name").cmp(text(b, "name")));
    pod["status"]["resourceClaimStatuses"] = statuses.into();
}

fn set_consumers(status: &mut Value, left: Vec<Value>, is_protected: bool) {
    let Some(fields) = status.as_object_mut() else { return };
    if left.is_empty() {
        fields.remove("reservedFor");
        if is_protected {
            fields.remove("allocation");
        }
    } else {
        fields.insert("reservedFor".to_owned(), left.into());
    }
}

fn drop_finalizer(claim: &mut Value) {
    let left = texts(&claim["metadata"], "finalizers").filter(|finalizer| *finalizer != FINALIZER);
    claim["metadata"]["finalizers"] = left.map(Value::from).collect::<Vec<_>>().into();
}

/// The claim for an entry of a pod.
fn generated(pod: &Value, entry: &str, template: &Value) -> Value {
    let (spec, metadata) = (&template["spec"], &pod["metadata"]);
    let mut annotations = spec["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(POD_CLAIM.to_owned(), entry.into());
    json!({
        "metadata": {
            "generateName": base_name(text(metadata, "name"), entry),
            "annotations": annotations,
            "labels": spec["metadata"]["labels"],
            "ownerReferences": [{
                "apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"],
                "controller": true,
            }],
        },
        "spec": spec["spec"],
    })
}

/// The base of the name of a claim. Too long a pair of names is cut in proportion.
fn base_name(pod: &str, entry: &str) -> String {
    let whole = format!("{pod}-{entry}-");
    if whole.len() <= LONGEST_BASE {
        return whole;
    }
    let cut = |name: &str| name[..name.len() * LONGEST_BASE / whole.len()].to_owned();
    format!("{}-{}", cut(pod), cut(entry))
}
