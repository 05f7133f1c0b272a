//! Deletes objects: preconditions, grace periods, finalizers, propagation.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::update::is_ended;
use super::writer::{Deletion, Writer};
use crate::json::text_in;
use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::request::QueryOptions;
use crate::status::{Result, Status, StatusCause};
use crate::strategy;
use crate::strategy::meta::{FOREGROUND, ORPHAN};
use crate::strategy::pod::grace_period;
use crate::time::timestamp;

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They stay, without the owner.
    Orphan,
    /// They are deleted after the owner.
    Background,
    /// They are deleted before the owner.
    Foreground,
}

/// Upstream's `metav1.DeleteOptions`.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub(crate) grace: Option<i64>,
    pub(crate) propagation: Option<Propagation>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// The value of `orphanDependents`.
    pub(crate) orphans: Option<bool>,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Reads the options from the body, or from the query if there is no body.
    pub(crate) fn parse(body: Option<&Value>, query: &QueryOptions) -> Result<Self> {
        let Some(body) = body else {
            return Ok(Self {
                grace: query.number("gracePeriodSeconds")?,
                propagation: propagation(query.text("propagationPolicy"), query.flag("orphanDependents"))?,
                orphans: query.flag("orphanDependents"),
                dry_run: query.dry_run().map_err(invalid_options)?,
                ..Self::default()
            });
        };
        let owned = |value: &Value| value.as_str().map(str::to_owned);
        let dry_run = match body["dryRun"].as_array().map(Vec::as_slice) {
            None | Some([]) => query.dry_run().map_err(invalid_options)?,
            Some([one]) if one == "All" => true,
            Some(other) => {
                let cause = StatusCause::not_supported("dryRun", &other.to_vec().into(), &["All"]);
                return Err(invalid_options(cause));
            }
        };
        Ok(Self {
            grace: body["gracePeriodSeconds"].as_i64(),
            propagation: propagation(
                text_in(body, &["propagationPolicy"]),
                body["orphanDependents"].as_bool(),
            )?,
            uid: owned(&body["preconditions"]["uid"]),
            resource_version: owned(&body["preconditions"]["resourceVersion"]),
            orphans: body["orphanDependents"].as_bool(),
            dry_run,
        })
    }
}

fn propagation(policy: &str, orphans: Option<bool>) -> Result<Option<Propagation>> {
    if let Some(orphans) = orphans {
        if !policy.is_empty() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            return Err(invalid_options(StatusCause::invalid("propagationPolicy", &policy.into(), detail)));
        }
        return Ok(Some(if orphans { Propagation::Orphan } else { Propagation::Background }));
    }
    Ok(match policy {
        "" => None,
        "Orphan" => Some(Propagation::Orphan),
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        other => {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            return Err(invalid_options(StatusCause::not_supported(
                "propagationPolicy",
                &other.into(),
                &supported,
            )));
        }
    })
}

fn invalid_options(cause: StatusCause) -> Status {
    Status::invalid_of("meta.k8s.io", "DeleteOptions", "", vec![cause])
}

/// The result of a deletion.
pub(crate) struct Deleted {
    /// The object's last state, or its current state if it is still terminating.
    pub(crate) object: Arc<StoredObject>,
    /// Whether the object is removed.
    pub(crate) gone: bool,
    /// Whether the response is the object rather than a Status.
    pub(crate) answers_object: bool,
}

impl Writer<'_> {
    /// Deletes an object, or marks it as terminating.
    pub(crate) fn delete(
        &mut self,
        kind: &Kind,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<Deleted> {
        let current = Arc::clone(self.state.get(kind, namespace, name)?);
        let mut object = current.value(kind);
        check_preconditions(kind, name, options, &object)?;
        strategy::of(kind).admit_delete(name)?;
        let marked = self.mark(kind, &mut object, options);
        let answer = |object: Arc<StoredObject>, gone: bool| Deleted {
            object,
            gone,
            answers_object: !gone || returns_deleted(kind),
        };
        match marked {
            Mark::Pending => return Ok(answer(current, false)),
            Mark::Going if !is_ended(kind, &object) => {
                if object == current.value(kind) {
                    return Ok(answer(current, false));
                }
                let object = self.keep(kind, object);
                if !self.dry_run {
                    self.follow(Deletion::Marked(kind.resource_key(), object.key()));
                }
                // The object may have had nothing to wait for.
                let gone = !self.dry_run && self.state.get(kind, namespace, name).is_err();
                return Ok(answer(object, gone));
            }
            // As upstream: watches see the mark of gracefully deleted objects even if the grace
            // period is zero.
            Mark::Going if is_graceful(kind) && !self.dry_run => {
                let marked = StoredObject::new(kind, object.clone(), self.state.store.next_version());
                self.state.store.put(&kind.resource_key(), Arc::new(marked));
            }
            Mark::Going | Mark::Now => {}
        }
        let last = Arc::new(StoredObject::new(kind, object, self.state.store.next_version()));
        if !self.dry_run {
            self.remove(kind, Arc::clone(&last));
        }
        Ok(answer(last, true))
    }

    /// Marks an object as terminating.
    fn mark(&self, kind: &Kind, object: &mut Value, options: &DeleteOptions) -> Mark {
        let graceful = is_graceful(kind);
        let deleting = object["metadata"].get("deletionTimestamp").is_some();
        let finalizers = finalizers(kind, object, options);
        let has_finalizers = !finalizers.is_empty() || namespace_waits(kind, object);
        let old = object["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        if deleting && graceful && old > 0 {
            let Some(grace) = options.grace.map(|grace| if grace < 0 { 1 } else { grace }) else {
                return Mark::Pending;
            };
            if grace >= old {
                return Mark::Pending;
            }
            self.shorten(object, old, grace);
        } else if !deleting {
            let grace = if graceful { grace_period(object, options.grace) } else { 0 };
            if !graceful && !has_finalizers {
                return Mark::Now;
            }
            self.stamp(object, grace);
            if kind.is_namespace() {
                object["status"]["phase"] = "Terminating".into();
            }
        }
        set_finalizers(object, finalizers);
        Mark::Going
    }

    fn stamp(&self, object: &mut Value, grace: i64) {
        let metadata = &mut object["metadata"];
        let until = self.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(self.now);
        metadata["deletionTimestamp"] = timestamp(until).into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
        if let Some(generation) = metadata["generation"].as_i64().filter(|generation| *generation > 0) {
            metadata["generation"] = (generation + 1).into();
        }
    }

    fn shorten(&self, object: &mut Value, old: i64, grace: i64) {
        let metadata = &mut object["metadata"];
        let until: Timestamp =
            metadata["deletionTimestamp"].as_str().and_then(|text| text.parse().ok()).unwrap_or(self.now);
        let moved = until.checked_sub(SignedDuration::from_secs(old - grace)).unwrap_or(self.now);
        // Not into the past; a graceful deletion stays graceful.
        let (until, grace) = if moved < self.now { (self.now, grace.min(1)) } else { (moved, grace) };
        metadata["deletionTimestamp"] = timestamp(until).into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
    }

    /// Removes an object, and cascades the deletion.
    pub(super) fn remove(&mut self, kind: &Kind, last: Arc<StoredObject>) {
        let definition = kind.is_definition().then(|| last.value(kind));
        self.state.store.remove(&kind.resource_key(), Arc::clone(&last));
        if let Some(definition) = definition {
            self.undefine(&definition);
        }
        self.follow(Deletion::Removed(Arc::clone(&last)));
        self.release_group(kind, &last);
    }

    /// Stops serving a custom resource, and removes its objects.
    fn undefine(&mut self, definition: &Value) {
        let (group, plural) =
            (text_in(definition, &["spec", "group"]), text_in(definition, &["spec", "names", "plural"]));
        let table = (group.into(), plural.into());
        let Some(kind) = self.state.registry.stored(&table).filter(|kind| kind.custom).cloned() else {
            return;
        };
        let all: Vec<Arc<StoredObject>> = match self.state.store.table(&table) {
            Some(table) => table.range("", None).cloned().collect(),
            None => Vec::new(),
        };
        // Their finalizers could not be removed later.
        for object in all {
            let last = StoredObject::new(&kind, object.value(&kind), self.state.store.next_version());
            self.remove(&kind, Arc::new(last));
        }
        self.state.registry.undefine(group, plural);
        self.state.store.retire_table(&table);
    }
}

enum Mark {
    /// The object can be removed at once.
    Now,
    /// The object is marked as terminating, and may have to wait.
    Going,
    /// The object is already terminating, and the request does not shorten its grace period.
    Pending,
}

/// The object's finalizers under this propagation policy.
fn finalizers(kind: &Kind, object: &Value, options: &DeleteOptions) -> Vec<Value> {
    let listed = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let is_said = listed.iter().any(|one| one == ORPHAN || one == FOREGROUND);
    let default = (orphans_by_default(kind) && !is_said).then_some(Propagation::Orphan);
    let Some(policy) = options.propagation.or(default) else { return listed };
    let mut finalizers: Vec<Value> =
        listed.into_iter().filter(|one| one != ORPHAN && one != FOREGROUND).collect();
    match policy {
        Propagation::Orphan => finalizers.push(ORPHAN.into()),
        Propagation::Foreground => finalizers.push(FOREGROUND.into()),
        Propagation::Background => {}
    }
    finalizers
}

/// Whether objects of a kind have a grace period.
fn is_graceful(kind: &Kind) -> bool {
    kind.resource == "pods" && !kind.custom
}

fn namespace_waits(kind: &Kind, object: &Value) -> bool {
    kind.is_namespace()
        && object["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

fn set_finalizers(object: &mut Value, finalizers: Vec<Value>) {
    if !finalizers.is_empty() {
        object["metadata"]["finalizers"] = finalizers.into();
    } else if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("finalizers");
    }
}

fn check_preconditions(kind: &Kind, name: &str, options: &DeleteOptions, object: &Value) -> Result<()> {
    let uid = text_in(object, &["metadata", "uid"]);
    let version = text_in(object, &["metadata", "resourceVersion"]);
    let why = match (&options.uid, &options.resource_version) {
        (Some(wanted), _) if wanted != uid => format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then recreated"
        ),
        (_, Some(wanted)) if wanted != version => format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might have been modified"
        ),
        _ => return Ok(()),
    };
    let mut status = Status::conflict(kind, name, why);
    // In this error, upstream uses the kind instead of the resource.
    status.message = status.message.replacen(&kind.qualified(), &kind_and_group(kind), 1);
    status.details.kind = kind.kind.to_string();
    Err(status)
}

fn kind_and_group(kind: &Kind) -> String {
    if kind.group.is_empty() { kind.kind.to_string() } else { format!("{}.{}", kind.kind, kind.group) }
}

impl Deleted {
    /// The Status in the response, if the response is not the object.
    pub(crate) fn status(&self, kind: &Kind) -> Value {
        let mut details =
            json!({"name": &*self.object.name, "kind": kind.resource, "uid": &*self.object.uid});
        if !kind.group.is_empty() {
            details["group"] = kind.group.as_ref().into();
        }
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
    }
}

/// Whether the response to a deletion is the object rather than a Status.
fn returns_deleted(kind: &Kind) -> bool {
    matches!(
        &*kind.resource,
        "csidrivers"
            | "csinodes"
            | "deviceclasses"
            | "namespaces"
            | "persistentvolumeclaims"
            | "persistentvolumes"
            | "pods"
            | "podtemplates"
            | "resourceclaims"
            | "resourceclaimtemplates"
            | "resourcequotas"
            | "resourceslices"
            | "serviceaccounts"
            | "services"
            | "storageclasses"
            | "volumeattachments"
    ) && !kind.custom
}

/// Whether dependents are orphaned by default.
fn orphans_by_default(kind: &Kind) -> bool {
    !kind.custom
        && matches!((&*kind.group, &*kind.resource), ("batch", "jobs") | ("", "replicationcontrollers"))
}
