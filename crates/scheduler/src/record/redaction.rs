//! A capture with pseudonyms instead of names.
//!
//! ```text
//! capture ──notes──> Redaction ──with a keyed hash──> Pseudonyms ──> the calls of the same capture
//! ```
//!
//! Every text of a call is replaced, except those that are known to say nothing. A new
//! field is therefore hidden before anybody thinks of it. A text is split at `/`, `,` and `__`, and
//! equal parts have one pseudonym in the whole capture, so all references still hold. Pseudonyms
//! have the order of the texts, which breaks ties.

use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::objects::{
    Body, DeviceNodeSelector, DevicePlace, DeviceRequest, Object, RequestChoice,
};
use supercargo_framework::raw_object::RawObject;
use supercargo_framework::volume::VolumeSource;
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_redaction::{Problem, Texts};
use thiserror::Error;

use super::{RecordedCall, SchedulerCall};
use crate::input::{Input, Notification};

/// Why a capture cannot be redacted.
#[derive(Debug, Error)]
pub enum RedactionError {
    /// A selector of devices looks into texts, or is too long.
    #[error("a CEL selector of {object} cannot be redacted because of {part}")]
    Selector {
        /// The object.
        object: String,
        /// The part of the expression.
        part: String,
    },
    /// A version has words, whose order decides.
    #[error("{object} has the version {version}, which cannot be redacted")]
    Version {
        /// The object.
        object: String,
        /// The version.
        version: String,
    },
    /// The name of a claim can be that of two ephemeral volumes.
    #[error("{object} cannot be redacted: another pod's ephemeral volume has a claim of the same name")]
    Ephemeral {
        /// The pod.
        object: String,
    },
    /// A call does not have the form of a call any more.
    #[error("{object} cannot be redacted: {source}")]
    Form {
        /// The object.
        object: String,
        /// The cause.
        source: serde_json::Error,
    },
}

fn error_of(object: &str, problem: Problem) -> RedactionError {
    let object = object.to_owned();
    match problem {
        Problem::Selector(part) => RedactionError::Selector { object, part },
        Problem::Version(version) => RedactionError::Version { object, version },
    }
}

/// The texts of a capture.
#[derive(Default)]
pub struct Redaction(Texts);

impl Redaction {
    /// These texts, such as the names of plugins, stay.
    pub fn keeping(kept: impl IntoIterator<Item = String>) -> Self {
        Self(Texts::keeping(kept))
    }

    /// Notes the texts of a call. For the configuration of a begin, see
    /// [`note_setting`](Self::note_setting).
    pub fn note(&mut self, call: RecordedCall) -> Result<(), RedactionError> {
        if matches!(call.call, SchedulerCall::Begin(..)) {
            return Ok(());
        }
        let name = name_of(&call.call);
        let call = RecordedCall { call: without_raw(call.call), ..call };
        if let SchedulerCall::Handle(input) = &call.call {
            self.note_ephemeral(input, &name)?;
        }
        self.0.note(&to_value(&call, &name)?).map_err(|problem| error_of(&name, problem))
    }

    /// Notes the texts of a part of the configuration.
    pub fn note_setting(&mut self, value: &Value) {
        // Settings have neither selectors of devices nor their versions.
        let noted = self.0.note(value);
        debug_assert!(noted.is_ok());
    }

    fn note_ephemeral(&mut self, input: &Input, object: &str) -> Result<(), RedactionError> {
        let (Input::AssignedPod(Notification::Added(pod)) | Input::QueuedPod(Notification::Added(pod))) =
            input
        else {
            return Ok(());
        };
        let mut ephemeral = pod.spec.volumes.iter().filter(|volume| volume.source == VolumeSource::Ephemeral);
        // The name of the claim is made of both.
        if ephemeral.all(|volume| self.0.note_joined(&pod.name, &volume.name)) {
            Ok(())
        } else {
            Err(RedactionError::Ephemeral { object: object.to_owned() })
        }
    }

    /// A pseudonym for each text. `hash` must depend on a secret of this capture.
    pub fn pseudonyms(self, hash: impl Fn(&str) -> u64) -> Pseudonyms {
        Pseudonyms(self.0.pseudonyms(hash))
    }
}

/// The pseudonyms of a capture.
pub struct Pseudonyms(supercargo_redaction::Pseudonyms);

impl Pseudonyms {
    /// The call with pseudonyms. The configuration of a begin stays: redact it before.
    pub fn call(&self, call: RecordedCall) -> Result<RecordedCall, RedactionError> {
        if matches!(call.call, SchedulerCall::Begin(..)) {
            return Ok(call);
        }
        let name = name_of(&call.call);
        let call = RecordedCall { call: without_raw(call.call), ..call };
        let mut value = to_value(&call, &name)?;
        self.0.replace(&mut value).map_err(|problem| error_of(&name, problem))?;
        // A tag that this module does not know would be hidden, too.
        serde_json::from_value(value).map_err(|source| RedactionError::Form { object: name, source })
    }

    /// A part of the configuration with pseudonyms.
    pub fn setting(&self, mut value: Value) -> Value {
        let hidden = self.0.replace(&mut value);
        debug_assert!(hidden.is_ok());
        value
    }

    /// What stands for a text.
    pub fn text(&self, text: &str) -> String {
        self.0.text(text)
    }
}

fn to_value(call: &RecordedCall, name: &str) -> Result<Value, RedactionError> {
    serde_json::to_value(call).map_err(|source| RedactionError::Form { object: name.to_owned(), source })
}

/// What a call is about, for people.
fn name_of(call: &SchedulerCall) -> String {
    let SchedulerCall::Handle(input) = call else { return "the log".to_owned() };
    match &**input {
        Input::Object(Notification::Added(object)) => format!("{} {}", object.resource, object.key),
        Input::Node(Notification::Added(node)) => format!("node {}", node.name),
        Input::AssignedPod(Notification::Added(pod)) | Input::QueuedPod(Notification::Added(pod)) => {
            format!("pod {}", pod.key())
        }
        _ => "the log".to_owned(),
    }
}

/// The call without objects as the API has them. They are only written back, and the keys of their
/// fields can be anything.
fn without_raw(call: SchedulerCall) -> SchedulerCall {
    match call {
        SchedulerCall::Handle(input) => SchedulerCall::Handle(Box::new(match *input {
            Input::Object(Notification::Added(object)) => {
                Input::Object(Notification::Added(Arc::new(object_without_raw(&object))))
            }
            Input::Node(Notification::Added(node)) => {
                // The hash would confirm a guess.
                let node = NodeRecord { raw: None, annotations_hash: 0, ..NodeRecord::clone(&node) };
                Input::Node(Notification::Added(Arc::new(node)))
            }
            Input::AssignedPod(Notification::Added(pod)) => {
                Input::AssignedPod(Notification::Added(pod_without_raw(&pod)))
            }
            Input::QueuedPod(Notification::Added(pod)) => {
                Input::QueuedPod(Notification::Added(pod_without_raw(&pod)))
            }
            other => other,
        })),
        SchedulerCall::Remember(memory) => {
            SchedulerCall::Remember(Box::new(memory.with_allocations(object_without_raw)))
        }
        other => other,
    }
}

fn pod_without_raw(pod: &PodInfo) -> Arc<PodInfo> {
    Arc::new(PodInfo { raw: None, ..pod.clone() })
}

fn object_without_raw(object: &Object) -> Object {
    let mut object = object.clone();
    match &mut object.body {
        Body::PersistentVolume(body) => body.raw = RawObject::default(),
        Body::PersistentVolumeClaim(body) => body.raw = RawObject::default(),
        Body::ResourceSlice(slice) => {
            clear_place(&mut slice.place);
            slice.devices.iter_mut().for_each(|device| clear_place(&mut device.place));
        }
        Body::DeviceClass(class) => class.config = Box::default(),
        Body::ResourceClaim(claim) => {
            claim.raw = Arc::default();
            claim.config.iter_mut().for_each(|config| config.raw = Arc::default());
            for request in &mut claim.requests {
                clear_requests(&mut request.choice);
            }
            if let Some(allocation) = &mut claim.allocation {
                allocation.raw = Arc::default();
                allocation.node_selector.iter_mut().for_each(clear);
            }
        }
        Body::Other(whole) => *whole = Arc::default(),
        _ => {}
    }
    object
}

fn clear_place(place: &mut DevicePlace) {
    if let DevicePlace::Selector(selector) = place {
        clear(selector);
    }
}

fn clear(selector: &mut DeviceNodeSelector) {
    selector.raw = Arc::default();
}

fn clear_requests(choice: &mut RequestChoice) {
    let requests: &mut [DeviceRequest] = match choice {
        RequestChoice::Unknown => &mut [],
        RequestChoice::Exactly(request) => std::slice::from_mut(request),
        RequestChoice::FirstAvailable(requests) => requests,
    };
    for toleration in requests.iter_mut().flat_map(|request| &mut request.tolerations) {
        toleration.raw = Arc::default();
    }
}
