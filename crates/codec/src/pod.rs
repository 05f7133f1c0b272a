//! Decodes pods.

mod pod_affinity;
mod requests;
mod slim;
mod spec;
mod status;
mod volumes;

use std::sync::Arc;

use parking_lot::Mutex;
use supercargo_framework::pod::{PodInfo, PodSpec, PodStatus, SharedStatus, Uid};
use supercargo_framework::requests::PodRequests;
use supercargo_framework::{Features, ResourceVersion};

use super::error::{FieldError, WireError, parse, parse_protobuf};
use super::intern::Interner;
use super::interners::{Interners, share};
use super::json::Obj;
use super::metadata::{DeclaredKeys, required};
use super::raw::untyped_text;
use super::text::text;

pub(crate) use self::slim::{ClaimStatus, Condition, WirePodClaim};

/// Decodes pods and shares equal parts of them.
#[derive(Debug)]
pub struct PodKind {
    annotations: DeclaredKeys,
    protobuf: bool,
    keeps_raw: bool,
    shared: Mutex<Shared>,
}

impl PodKind {
    /// A kind that keeps the annotations with these keys.
    pub fn new<K: Into<Arc<str>>>(annotations: impl IntoIterator<Item = K>) -> Self {
        Self {
            annotations: annotations.into_iter().collect(),
            protobuf: true,
            keeps_raw: false,
            shared: Mutex::default(),
        }
    }

    /// Whether to request protobuf, the default. JSON responses are always accepted.
    pub const fn protobuf(mut self, on: bool) -> Self {
        self.protobuf = on;
        self
    }

    /// Whether to keep the whole object of each pod as JSON, for extenders. Off by default. If on,
    /// JSON is requested.
    pub const fn keep_raw(mut self, on: bool) -> Self {
        self.keeps_raw = on;
        self
    }

    /// The features that affect requests and tolerations. Defaults to those of the current version.
    pub fn features(mut self, features: Features) -> Self {
        self.shared.get_mut().features = features;
        self
    }

    /// Whether protobuf is requested.
    pub(super) const fn asks_for_protobuf(&self) -> bool {
        self.protobuf && !self.keeps_raw
    }

    /// Decodes a pod in JSON.
    pub fn decode(&self, json: &[u8]) -> Result<PodInfo, WireError> {
        let json = &text(json);
        let pod: Obj<_> = parse("pod", json)?;
        let mut record = self.record(&pod)?;
        if self.keeps_raw {
            record.raw = Some(untyped_text("pod", json)?);
        }
        Ok(record)
    }

    /// Decodes a pod in protobuf, without its envelope.
    pub fn decode_protobuf(&self, message: &[u8]) -> Result<PodInfo, WireError> {
        self.record(&parse_protobuf("pod", message)?)
    }

    fn record(&self, pod: &slim::Pod<'_>) -> Result<PodInfo, WireError> {
        let metadata = &pod.metadata;
        self.shared
            .lock()
            .record(pod, &self.annotations)
            .map_err(|error| error.in_object("pod", &metadata.namespace, &metadata.name))
    }

    /// The number of interned values.
    pub fn interned(&self) -> usize {
        let shared = self.shared.lock();
        shared.common.len() + shared.specs.len() + shared.requests.len() + shared.statuses.len()
    }

    /// Drops unused values. Interners also do so as they grow.
    pub fn sweep(&self) {
        let mut shared = self.shared.lock();
        // Values first, because they hold texts.
        shared.specs.sweep();
        shared.requests.sweep();
        shared.statuses.sweep();
        shared.common.sweep();
    }
}

/// The interners of pods.
#[derive(Debug, Default)]
struct Shared {
    common: Interners,
    specs: Interner<PodSpec>,
    requests: Interner<PodRequests>,
    statuses: Interner<SharedStatus>,
    features: Features,
}

impl Shared {
    fn record(&mut self, pod: &slim::Pod<'_>, declared: &DeclaredKeys) -> Result<PodInfo, FieldError> {
        let (metadata, spec) = (&pod.metadata, &pod.spec);
        required("metadata.name", &metadata.name)?;
        required("metadata.namespace", &metadata.namespace)?;
        required("metadata.uid", &metadata.uid)?;
        let inputs = requests::counted(self.common.request_inputs(pod)?, &self.features);
        let limits = self.common.limits(spec)?;
        let shared_spec = PodSpec { limits, ..self.common.pod_spec(spec, &inputs, &self.features) };
        let status_requests = requests::with_status(&inputs, &shared_spec.requests, &self.features);
        let gates = spec.scheduling_gates.iter();
        Ok(PodInfo {
            namespace: self.common.text(&metadata.namespace),
            name: Arc::from(&*metadata.name),
            uid: Uid::from(&*metadata.uid),
            resource_version: ResourceVersion::from(&*metadata.resource_version),
            generation: metadata.generation.unwrap_or_default(),
            terminating: metadata.deletion_timestamp.non_empty().is_some(),
            labels: self.common.labels(metadata.labels.iter()),
            annotations: self.common.annotations(&metadata.annotations, declared),
            controller: metadata.controller().map(|owner| self.common.owner(owner)),
            node_name: self.common.optional_text(&spec.node_name),
            priority: spec.priority.unwrap_or_default(),
            scheduling_gates: gates.map(|gate| self.common.text(&gate.name)).collect(),
            spec: share(&mut self.specs, shared_spec),
            status_requests: status_requests.map(|requests| share(&mut self.requests, requests)),
            status: self.status(&pod.status)?,
            raw: None,
        })
    }
    fn status(&mut self, status: &slim::Status<'_>) -> Result<PodStatus, FieldError> {
        let shared = self.common.shared_status(status)?;
        Ok(PodStatus { start_time: status.started()?, shared: share(&mut self.statuses, shared) })
    }
}
