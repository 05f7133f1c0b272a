//! Changes of volumes and claims by a binding.

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::raw_object::{field, members, typed};

use supercargo_framework::hash_seed::HashSeed;
use supercargo_framework::objects::{
    Body, ClaimRef, Object, ObjectBody, PersistentVolume, PersistentVolumeClaim, annotations,
};
use supercargo_framework::{Labels, Numbering};

use super::delayed::holds;
use super::find::PodVolumes;

/// The changes that a pod's binding makes to volumes and claims.
pub(super) struct Changes {
    /// Volumes with their new claim.
    pub(super) bindings: Box<[Binding]>,
    /// Claims with the selected node to provision a volume for.
    pub(super) provisions: Box<[Arc<Object>]>,
}

/// A volume for a claim.
pub(super) struct Binding {
    /// The volume as it is to be.
    pub(super) volume: Arc<Object>,
    /// Whether the object changed.
    pub(super) is_new: bool,
    /// The claim.
    pub(super) claim: Arc<Object>,
}

impl Changes {
    /// The changes that bind these volumes for a pod on this node.
    pub(super) fn for_node(found: &PodVolumes<'_>, node: &Arc<str>, seed: &HashSeed) -> Self {
        let bindings = found.bindings.iter().map(|(delayed, volume)| {
            let bound = bind(volume, &delayed.claim);
            Binding {
                is_new: bound.is_some(),
                volume: bound.map_or_else(|| Arc::clone(volume), Arc::new),
                claim: Arc::clone(&delayed.claim),
            }
        });
        // A claim that the pod names tens of thousands of times is copied once.
        let mut known = Numbering::new(seed, found.provisions.len());
        let mut selected: Vec<Arc<Object>> = Vec::new();
        let mut selection = Selection::of(node);
        let provisions = found.provisions.iter().map(|(delayed, _)| {
            let number = known.number(Arc::as_ptr(&delayed.claim));
            if number == selected.len() {
                selected.push(selection.select(&delayed.claim));
            }
            Arc::clone(&selected[number])
        });
        Self { bindings: bindings.collect(), provisions: provisions.collect() }
    }

    /// The objects to assume.
    pub(super) fn assumed(&self) -> impl Iterator<Item = &Arc<Object>> {
        let volumes = self.bindings.iter().filter(|binding| binding.is_new).map(|binding| &binding.volume);
        volumes.chain(&self.provisions)
    }

    /// The objects to take back.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.bindings.iter().map(|binding| &binding.volume).chain(&self.provisions)
    }
}

/// The volume bound to the claim; `None` if it is already. A volume that was not bound by a user
/// gets the bound-by-controller annotation.
fn bind(volume: &Object, claim: &Object) -> Option<Object> {
    let body = PersistentVolume::of(&volume.body)?;
    let is_bound = holds(body, claim);
    let refers = is_bound && body.claim.as_ref().is_some_and(|holder| holder.uid == claim.uid);
    let is_annotated = is_bound || volume.annotations.get(annotations::BOUND_BY_CONTROLLER).is_some();
    if refers && is_annotated {
        return None;
    }
    let mut bound = volume.clone();
    if !refers {
        let (namespace, name) = (claim.namespace().into(), claim.name().into());
        let claim = Some(ClaimRef { namespace, name, uid: Arc::clone(&claim.uid) });
        bound.body = Body::PersistentVolume(PersistentVolume { claim, ..body.clone() });
    }
    if !is_annotated {
        bound.annotations = annotated(&bound.annotations, annotations::BOUND_BY_CONTROLLER, &"yes".into());
    }
    Some(bound)
}

/// The node that claims get, with the last annotations that were made of it: most claims share
/// theirs.
struct Selection<'a> {
    node: &'a Arc<str>,
    last: Option<(Labels, Labels)>,
}

impl<'a> Selection<'a> {
    fn of(node: &'a Arc<str>) -> Self {
        Self { node, last: None }
    }

    /// The claim with the selected node: itself if it has it.
    fn select(&mut self, claim: &Arc<Object>) -> Arc<Object> {
        if claim.annotations.get(annotations::SELECTED_NODE) == Some(self.node) {
            return Arc::clone(claim);
        }
        let known = self.last.take().filter(|(before, _)| *before == claim.annotations);
        let (before, after) = known.unwrap_or_else(|| {
            let after = annotated(&claim.annotations, annotations::SELECTED_NODE, self.node);
            (claim.annotations.clone(), after)
        });
        let selected = Object { annotations: after.clone(), ..(**claim).clone() };
        self.last = Some((before, after));
        Arc::new(selected)
    }
}

fn annotated(annotations: &Labels, key: &str, value: &Arc<str>) -> Labels {
    let others = annotations.iter().filter(|(other, _)| &***other != key);
    let all = others.map(|(key, value)| (Arc::clone(key), Arc::clone(value)));
    all.chain([(key.into(), Arc::clone(value))]).collect()
}

/// A PUT: the object's API path, and the API object.
///
/// The bodies of assumed objects keep the API object as it was read. A pod may have tens of
/// thousands of claims, so each is put together only when it is written.
pub(super) struct PutRequest {
    pub(super) path: String,
    pub(super) object: Value,
}

impl PutRequest {
    /// Writes a volume with its claim.
    pub(super) fn volume(volume: &Object, claim: &Object) -> Option<Self> {
        let body = PersistentVolume::of(&volume.body)?;
        let mut object = typed(body.raw.value(), "v1", "PersistentVolume");
        if object["spec"]["claimRef"]["uid"] != *claim.uid {
            let reference = json!({
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": claim.namespace(),
                "name": claim.name(),
                "uid": claim.uid,
                "resourceVersion": claim.resource_version,
            });
            field(&mut object, "spec").insert("claimRef".to_owned(), reference);
        }
        write_annotation(&mut object, volume, annotations::BOUND_BY_CONTROLLER);
        Some(Self { path: format!("/api/v1/persistentvolumes/{}", volume.name()), object })
    }

    /// Writes a claim with its selected node.
    pub(super) fn claim(claim: &Object) -> Option<Self> {
        let body = PersistentVolumeClaim::of(&claim.body)?;
        let mut object = typed(body.raw.value(), "v1", "PersistentVolumeClaim");
        write_annotation(&mut object, claim, annotations::SELECTED_NODE);
        let (namespace, name) = (claim.namespace(), claim.name());
        Some(Self { path: format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}"), object })
    }
}

/// Sets the annotation to the value that the assumed object has, if any.
fn write_annotation(raw: &mut Value, assumed: &Object, key: &str) {
    if let Some(value) = assumed.annotations.get(key) {
        let annotations = field(raw, "metadata").entry("annotations").or_insert(Value::Null);
        members(annotations).insert(key.to_owned(), json!(value));
    }
}
