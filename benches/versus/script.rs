//! The writes of a scheduler in a run, to repeat them for other pods.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::api::{Call, JSON, PROTOBUF, STRATEGIC_MERGE};
use crate::names::{Names, PodName};
use crate::proto::Message;
use crate::watch::Change;

/// The writes of a run, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    writes: Vec<Write>,
}

/// The number of writes of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) bindings: usize,
    pub(crate) events: usize,
    pub(crate) patches: usize,
    pub(crate) deletes: usize,
}

/// The encoding of bodies. Patches have no protobuf form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

#[derive(Clone, Debug)]
enum Write {
    Bind { pod: Pod, node: String },
    Event { pod: Pod, event: Value },
    Patch { pod: Pod, status: Value },
    Delete { pod: Pod },
}

/// A pod of the turn by its index, or an existing pod with the same name in every run.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Pod {
    Measured(usize),
    Other(PodName),
}

impl Script {
    /// Derives the writes from the changes of pods and the events after the run. An event follows
    /// the change that it reports.
    pub(crate) fn record(changes: &[(PodName, Change)], events: Vec<Value>, names: &Names) -> Self {
        let mut about: HashMap<Pod, Vec<Value>> = HashMap::new();
        for event in events {
            let text = |key: &str| event["regarding"][key].as_str().unwrap_or_default().to_owned();
            let pod = PodName { namespace: text("namespace"), name: text("name") };
            about.entry(Pod::of(pod, names)).or_default().push(event);
        }
        let mut writes = Vec::new();
        for (pod, change) in changes {
            let pod = Pod::of(pod.clone(), names);
            writes.push(match change {
                Change::Bound { node } => Write::Bind { pod: pod.clone(), node: node.clone() },
                Change::Status(status) => Write::Patch { pod: pod.clone(), status: status.clone() },
                Change::Deleted => Write::Delete { pod: pod.clone() },
            });
            let events = about.get_mut(&pod);
            // The last change takes the remaining events; a pod is bound only once.
            let taken = match (events, change) {
                (Some(events), Change::Status(_)) if events.len() > 1 => vec![events.remove(0)],
                (Some(events), Change::Bound { .. } | Change::Deleted) => std::mem::take(events),
                _ => Vec::new(),
            };
            writes.extend(taken.into_iter().map(|event| Write::Event { pod: pod.clone(), event }));
        }
        Self { writes }
    }

    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for write in &self.writes {
            *match write {
                Write::Bind { .. } => &mut counts.bindings,
                Write::Event { .. } => &mut counts.events,
                Write::Patch { .. } => &mut counts.patches,
                Write::Delete { .. } => &mut counts.deletes,
            } += 1;
        }
        counts
    }

    /// The same writes for the pods of another run, which may have fewer.
    pub(crate) fn calls(&self, names: &Names, encoding: Encoding) -> Result<Vec<Call>> {
        let of = |write: &Write| {
            let pod = match write {
                Write::Bind { pod, .. }
                | Write::Event { pod, .. }
                | Write::Patch { pod, .. }
                | Write::Delete { pod } => pod,
            };
            match pod {
                Pod::Measured(index) if *index >= names.count => None,
                Pod::Measured(index) => Some(names.pod(*index)),
                Pod::Other(pod) => Some(pod.clone()),
            }
        };
        self.writes.iter().filter_map(|write| Some(call(write, &of(write)?, encoding))).collect()
    }
}

impl Pod {
    fn of(pod: PodName, names: &Names) -> Self {
        names.index(&pod).map_or(Self::Other(pod), Self::Measured)
    }
}

fn call(write: &Write, pod: &PodName, encoding: Encoding) -> Result<Call> {
    let PodName { namespace, name } = pod;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    let object = |path: String, json: &dyn Fn() -> Value, protobuf: &dyn Fn() -> Result<Vec<u8>>| {
        Ok(match encoding {
            Encoding::Json => Call::post(path, JSON, json().to_string()),
            Encoding::Protobuf => Call::post(path, PROTOBUF, protobuf()?),
        })
    };
    match write {
        Write::Bind { node, .. } => {
            let json = || {
                json!({
                    "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, "namespace": namespace},
                    "target": {"kind": "Node", "name": node},
                })
            };
            let protobuf = || {
                let target = Message::default().text(1, "Node").text(3, node);
                let binding = Message::default().message(1, &metadata(namespace, name)).message(2, &target);
                Ok(binding.into_body("v1", "Binding"))
            };
            object(format!("{path}/binding"), &json, &protobuf)
        }
        Write::Event { event, .. } => {
            let event = renamed(event, pod);
            let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
            object(path, &|| event.clone(), &|| event_message(&event))
        }
        Write::Patch { status, .. } => {
            Ok(Call::patch(format!("{path}/status"), STRATEGIC_MERGE, status.to_string()))
        }
        Write::Delete { .. } => Ok(Call::delete(path)),
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

fn metadata(namespace: &str, name: &str) -> Message {
    Message::default().text(1, name).text(3, namespace)
}

/// An event (events.k8s.io/v1) in protobuf.
fn event_message(event: &Value) -> Result<Vec<u8>> {
    let text = |pointer: &str| event.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let time: MicroTime = text("/eventTime").parse()?;
    let time = Message::default().number(1, time.seconds).number(2, time.nanos);
    let regarding =
        [(1, "kind"), (2, "namespace"), (3, "name"), (4, "uid"), (5, "apiVersion"), (6, "resourceVersion")];
    let regarding = regarding.into_iter().fold(Message::default(), |message, (number, key)| {
        message.text(number, text(&format!("/regarding/{key}")))
    });
    let message = Message::default()
        .message(1, &metadata(text("/metadata/namespace"), text("/metadata/name")))
        .message(2, &time)
        .text(4, text("/reportingController"))
        .text(5, text("/reportingInstance"))
        .text(6, text("/action"))
        .text(7, text("/reason"))
        .message(8, &regarding)
        .text(10, text("/note"))
        .text(11, text("/type"));
    Ok(message.into_body("events.k8s.io/v1", "Event"))
}

/// A moment as `2026-01-31T12:34:56.123456Z`.
struct MicroTime {
    seconds: u64,
    nanos: u64,
}

impl std::str::FromStr for MicroTime {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
            let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
            let numbers = |text: &str, by: char| {
                text.split(by).map(|part| part.parse::<u64>().ok()).collect::<Option<Vec<_>>>()
            };
            let ([year, month, day], [hour, minute, second]) = (
                <[u64; 3]>::try_from(numbers(date, '-')?).ok()?,
                <[u64; 3]>::try_from(numbers(time, ':')?).ok()?,
            );
            let mut digits = fraction.to_owned();
            while digits.len() < 9 {
                digits.push('0');
            }
            let days = days_since_1970(year, month, day)?;
            Some(Self {
                seconds: ((days * 24 + hour) * 60 + minute) * 60 + second,
                nanos: digits.parse().ok()?,
            })
        };
        parse().with_context(|| format!("{text:?} is no time"))
    }
}

fn days_since_1970(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let lengths = [31, if leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months = usize::try_from(month.checked_sub(1)?).ok()?;
    let before: u64 = lengths.get(..months)?.iter().sum();
    let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
    Some(years + before + day.checked_sub(1)?)
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
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
