//! A capture with pseudonyms instead of names.
//!
//! ```text
//! capture ──notes──> Redaction ──with a keyed hash──> Pseudonyms ──> the calls of the same capture
//! ```
//!
//! Every text of a call is replaced, except those that this module knows to say nothing. A new
//! field is therefore hidden before anybody thinks of it. A text is split at `/`, `,` and `__`, and
//! equal parts have one pseudonym in the whole capture, so all references still hold. Pseudonyms
//! have the order of the texts, which breaks ties.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use supercargo_framework::objects::{
    Body, DeviceNodeSelector, DevicePlace, DeviceRequest, Object, RequestChoice,
};
use supercargo_framework::raw_object::RawObject;
use supercargo_framework::volume::VolumeSource;
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_redaction::{Words, is_amount, is_plain_version, redacted};
use thiserror::Error;

use super::{RecordedCall, SchedulerCall};
use crate::input::{Input, Notification};

/// What stands for a message.
const MESSAGE: &str = "(redacted)";
/// A text is split at these, one after the other.
const SEPARATORS: &[&str] = &["/", ",", "__"];
/// Fields that have messages.
const MESSAGES: &[&str] = &["message", "error", "invalid", "unsupported", "Failed", "Woken", "GaveUp"];
/// Fields below which a text that can be a quantity is one.
const AMOUNTS: &[&str] = &["capacity", "counters", "consumed"];
/// Lists of texts that are sorted.
const SORTED_TEXTS: &[&str] = &["required_features", "declared_features", "disrupted_pods"];
/// Lists of items that are sorted by their first text, or by their name.
const SORTED_ITEMS: &[&str] = &["scalars", "attributes", "capacity", "counters", "consumed", "images"];

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

/// Why a text cannot be replaced.
enum Problem {
    Selector(String),
    Version(String),
}

impl Problem {
    fn of(self, object: &str) -> RedactionError {
        let object = object.to_owned();
        match self {
            Self::Selector(part) => RedactionError::Selector { object, part },
            Self::Version(version) => RedactionError::Version { object, version },
        }
    }
}

/// The texts of a capture.
#[derive(Default)]
pub struct Redaction {
    words: Words,
    /// Texts that stay.
    kept: BTreeSet<String>,
    /// Parts of texts.
    parts: BTreeSet<String>,
    /// The names of claims that pods own, with those of the pod and of its volume.
    ephemeral: BTreeMap<String, (String, String)>,
    /// Values that are integers, by the key of their label or taint.
    integers: BTreeMap<String, BTreeSet<String>>,
    /// Keys whose values are compared by size.
    compared: BTreeSet<String>,
}

impl Redaction {
    /// These texts, such as the names of plugins, stay.
    pub fn keeping(kept: impl IntoIterator<Item = String>) -> Self {
        Self { kept: kept.into_iter().collect(), ..Self::default() }
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
        self.note_value(&to_value(&call, &name)?).map_err(|problem| problem.of(&name))
    }

    /// Notes the texts of a JSON value whose keys are the names of fields.
    fn note_value(&mut self, value: &Value) -> Result<(), Problem> {
        self.note_integers(value);
        let Self { words, parts, .. } = self;
        let mut note = |part: &str| {
            parts.insert(part.to_owned());
            part.to_owned()
        };
        let mut hide = |text: &str| split(text, words, &mut note);
        Walk { hide: &mut hide }.value(&mut value.clone(), "", false)
    }

    /// Notes the texts of a part of the configuration.
    pub fn note_setting(&mut self, value: &Value) {
        // Settings have neither selectors of devices nor their versions.
        let noted = self.note_value(value);
        debug_assert!(noted.is_ok());
    }

    fn note_ephemeral(&mut self, input: &Input, object: &str) -> Result<(), RedactionError> {
        let (Input::AssignedPod(Notification::Added(pod)) | Input::QueuedPod(Notification::Added(pod))) =
            input
        else {
            return Ok(());
        };
        for volume in &pod.spec.volumes {
            if volume.source == VolumeSource::Ephemeral {
                let names = (pod.name.to_string(), volume.name.to_string());
                let claim = format!("{}-{}", names.0, names.1);
                // Its pseudonym is made of theirs.
                if self.ephemeral.get(&claim).is_some_and(|known| *known != names) {
                    return Err(RedactionError::Ephemeral { object: object.to_owned() });
                }
                self.ephemeral.insert(claim, names);
            }
        }
        Ok(())
    }

    /// Notes which integers may be compared: values of labels and taints, and bounds.
    fn note_integers(&mut self, value: &Value) {
        match value {
            Value::Array(items) => {
                if let [Value::String(key), Value::String(value)] = &items[..] {
                    self.note_integer(key, value);
                }
                for item in items {
                    self.note_integers(item);
                }
            }
            Value::Object(fields) => {
                if let Some(key) = fields.get("key").and_then(Value::as_str) {
                    let values = fields.get("values").and_then(Value::as_array);
                    let texts = fields.get("value").into_iter().chain(values.into_iter().flatten());
                    texts.filter_map(Value::as_str).for_each(|text| self.note_integer(key, text));
                    if fields.get("operator").is_some_and(is_comparison) {
                        self.compared.insert(key.to_owned());
                    }
                }
                fields.values().for_each(|field| self.note_integers(field));
            }
            _ => {}
        }
    }

    fn note_integer(&mut self, key: &str, value: &str) {
        if value.parse::<i64>().is_ok() {
            self.integers.entry(key.to_owned()).or_default().insert(value.to_owned());
        }
    }

    /// A pseudonym for each text. `hash` must depend on a secret of this capture.
    pub fn pseudonyms(self, hash: impl Fn(&str) -> u64) -> Pseudonyms {
        let Self { words, mut kept, parts, ephemeral, mut integers, compared } = self;
        kept.extend(compared.iter().filter_map(|key| integers.remove(key)).flatten());
        let width = parts.len().to_string().len();
        let pseudonym = |rank: usize, part: &str| format!("p{rank:0width$}x{:06x}", hash(part) & 0xff_ffff);
        let numbered = parts.into_iter().enumerate();
        let parts = numbered.map(|(rank, part)| (pseudonym(rank, &part).into(), part));
        let parts = parts.map(|(pseudonym, part)| (part, pseudonym)).collect();
        Pseudonyms { words, kept, parts, ephemeral }
    }
}

/// `Gt` or `Lt`, with or without its bound.
fn is_comparison(operator: &Value) -> bool {
    let is = |text: &str| matches!(text, "Gt" | "Lt");
    operator.as_str().is_some_and(is)
        || operator.as_object().is_some_and(|fields| fields.keys().any(|name| is(name)))
}

/// The pseudonyms of a capture.
pub struct Pseudonyms {
    words: Words,
    kept: BTreeSet<String>,
    parts: BTreeMap<String, Arc<str>>,
    ephemeral: BTreeMap<String, (String, String)>,
}

impl Pseudonyms {
    /// The call with pseudonyms. The configuration of a begin stays: redact it before.
    pub fn call(&self, call: RecordedCall) -> Result<RecordedCall, RedactionError> {
        if matches!(call.call, SchedulerCall::Begin(..)) {
            return Ok(call);
        }
        let name = name_of(&call.call);
        let call = RecordedCall { call: without_raw(call.call), ..call };
        let mut value = to_value(&call, &name)?;
        let mut hide = |text: &str| self.text(text);
        Walk { hide: &mut hide }.value(&mut value, "", false).map_err(|problem| problem.of(&name))?;
        // A tag that this module does not know would be hidden, too.
        serde_json::from_value(value).map_err(|source| RedactionError::Form { object: name, source })
    }

    /// A part of the configuration with pseudonyms.
    pub fn setting(&self, mut value: Value) -> Value {
        let mut hide = |text: &str| self.text(text);
        let hidden = Walk { hide: &mut hide }.value(&mut value, "", false);
        debug_assert!(hidden.is_ok());
        value
    }

    /// What stands for a text.
    pub fn text(&self, text: &str) -> String {
        split(text, &self.words, &mut |part| self.part(part))
    }

    fn part(&self, part: &str) -> String {
        if self.kept.contains(part) {
            return part.to_owned();
        }
        if let Some((pod, volume)) = self.ephemeral.get(part) {
            return format!("{}-{}", self.text(pod), self.text(volume));
        }
        let pseudonym = self.parts.get(part).map_or(MESSAGE, |pseudonym| pseudonym);
        // Such domains belong to no extended resource.
        let domain = if part.ends_with("kubernetes.io") { ".kubernetes.io" } else { "" };
        format!("{pseudonym}{domain}")
    }
}

/// The text with other parts, unless it is known.
fn split(text: &str, words: &Words, part: &mut dyn FnMut(&str) -> String) -> String {
    fn join(
        text: &str,
        (words, separators): (&Words, &[&str]),
        part: &mut dyn FnMut(&str) -> String,
    ) -> String {
        if words.has(text) {
            return text.to_owned();
        }
        let Some((separator, rest)) = separators.split_first() else { return part(text) };
        let parts: Vec<_> = text.split(separator).map(|piece| join(piece, (words, rest), part)).collect();
        parts.join(separator)
    }
    join(text, (words, SEPARATORS), part)
}

/// Replaces the texts of a value.
struct Walk<'a> {
    hide: &'a mut dyn FnMut(&str) -> String,
}

impl Walk<'_> {
    /// `field` is the name of the innermost field around the value.
    fn value(&mut self, value: &mut Value, field: &str, has_amounts: bool) -> Result<(), Problem> {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => *text = self.text(text, field, has_amounts)?,
            Value::Array(items) => {
                items.iter_mut().try_for_each(|item| self.value(item, field, has_amounts))?;
                if SORTED_TEXTS.contains(&field) {
                    items.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
                } else if SORTED_ITEMS.contains(&field) {
                    items.sort_by(|one, other| name_of_item(one).cmp(&name_of_item(other)));
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    self.value(value, name, has_amounts || AMOUNTS.contains(&&**name))?;
                }
            }
        }
        Ok(())
    }

    fn text(&mut self, text: &str, field: &str, has_amounts: bool) -> Result<String, Problem> {
        let is_version = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        match field {
            _ if MESSAGES.contains(&field) && !text.is_empty() => Ok(MESSAGE.to_owned()),
            _ if has_amounts && is_amount(text) => Ok(text.to_owned()),
            "resource_version" if is_version(text) => Ok(text.to_owned()),
            "Version" if is_plain_version(text) => Ok(text.to_owned()),
            "Version" => Err(Problem::Version(text.to_owned())),
            "selectors" => redacted(text, self.hide).map_err(Problem::Selector),
            _ => Ok((self.hide)(text)),
        }
    }
}

/// What an item is sorted by. A list of texts, such as the images of a pod, stays as it is.
fn name_of_item(item: &Value) -> Option<&str> {
    item[0].as_str().or_else(|| item["name"].as_str())
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
