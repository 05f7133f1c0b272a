//! Event objects as sent to the API server.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::objects::GroupKind;
use supercargo_scheduler::{EventType, PodEvent};

use supercargo_codec::payload::{Payload, Writer, envelope, micro_time};

/// Longest stem of an event name: the limit less the dot and the time.
const LONGEST_STEM: usize = 253 - 17;

/// An event object. Many are kept in memory, so derived values are computed on demand.
pub(super) struct EventObject {
    event: PodEvent,
    name: String,
    created: Timestamp,
    hostname: Arc<str>,
}

/// Number of occurrences, and the time of the last one.
#[derive(Clone, Copy)]
pub(super) struct Count {
    pub(super) count: u32,
    pub(super) last_observed: Timestamp,
}

/// An event and, if it recurred, its series.
pub(super) struct EventWithSeries<'a> {
    pub(super) object: &'a EventObject,
    pub(super) series: Option<Count>,
}

/// The kind and the API version of a group, in events about its victims.
fn api_type(kind: GroupKind) -> (&'static str, &'static str) {
    match kind {
        GroupKind::Pods => ("PodGroup", "scheduling.k8s.io/v1beta1"),
        GroupKind::Groups => ("CompositePodGroup", "scheduling.k8s.io/v1alpha3"),
    }
}

impl EventObject {
    pub(super) fn new(event: PodEvent, created: Timestamp, hostname: Arc<str>) -> Self {
        Self { name: event_name(&event.pod.name, created), event, created, hostname }
    }

    pub(super) fn collection(&self) -> String {
        format!("/apis/events.k8s.io/v1/namespaces/{}/events", self.event.pod.namespace)
    }

    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.collection(), self.name)
    }

    fn reporting_instance(&self) -> String {
        format!("{}-{}", self.event.scheduler_name, self.hostname)
    }

    fn kind(&self) -> &'static str {
        if self.event.kind == EventType::Warning { "Warning" } else { "Normal" }
    }
}

impl Count {
    pub(super) fn json(self) -> Value {
        json!({"count": self.count, "lastObservedTime": micros(self.last_observed)})
    }
}

impl Payload for EventWithSeries<'_> {
    fn json(&self) -> Value {
        let EventObject { event, name, created, .. } = self.object;
        let mut body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": event.pod.namespace},
            "eventTime": micros(*created),
            "reportingController": event.scheduler_name,
            "reportingInstance": self.object.reporting_instance(),
            "action": event.action,
            "reason": event.reason,
            "regarding": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": event.pod.namespace,
                "name": event.pod.name,
                "uid": event.uid,
                "resourceVersion": event.resource_version,
            },
            "note": event.note,
            "type": self.object.kind(),
        });
        if let Some(group) = &event.related {
            let (kind, version) = api_type(group.kind);
            body["related"] = json!({
                "kind": kind,
                "apiVersion": version,
                "namespace": group.namespace,
                "name": group.name,
                "uid": group.uid,
                "resourceVersion": group.resource_version,
            });
        }
        if let Some(series) = self.series {
            body["series"] = series.json();
        }
        body
    }

    fn protobuf(&self) -> Vec<u8> {
        let EventObject { event, name, created, .. } = self.object;
        let mut metadata = Writer::new();
        metadata.string(1, name).string(3, &event.pod.namespace);
        let mut regarding = Writer::new();
        regarding
            .string(1, "Pod")
            .string(2, &event.pod.namespace)
            .string(3, &event.pod.name)
            .string(4, &event.uid.text());
        regarding.string(5, "v1").string(6, &event.resource_version);
        let mut body = Writer::new();
        body.message(1, &metadata).message(2, &micro_time(*created));
        if let Some(Count { count, last_observed }) = self.series {
            let mut series = Writer::new();
            series.varint(1, count.into()).message(2, &micro_time(last_observed));
            body.message(3, &series);
        }
        body.string(4, &event.scheduler_name).string(5, &self.object.reporting_instance());
        body.string(6, &event.action).string(7, &event.reason).message(8, &regarding);
        if let Some(group) = &event.related {
            let (kind, version) = api_type(group.kind);
            let mut related = Writer::new();
            related.string(1, kind).string(2, &group.namespace).string(3, &group.name);
            related.string(4, &group.uid.text()).string(5, version);
            related.string(6, &group.resource_version);
            body.message(9, &related);
        }
        body.string(10, &event.note).string(11, self.object.kind());
        envelope("events.k8s.io/v1", "Event", &body)
    }
}

/// `<pod>.<nanoseconds in hex>`, with the pod name truncated to fit the limit.
pub(super) fn event_name(pod: &str, now: Timestamp) -> String {
    let stem = pod.get(..LONGEST_STEM).unwrap_or(pod).trim_end_matches(['-', '.']);
    format!("{stem}.{:x}", now.as_nanosecond())
}

/// A time in the API's MicroTime format.
fn micros(time: Timestamp) -> String {
    format!("{time:.6}")
}
