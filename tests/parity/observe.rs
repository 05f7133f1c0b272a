//! The effects of a scheduler in the API: one [`PodSeen`] per pod, and the changes of each claim.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use supercargo_controlplane::Method;

use super::claims::Claims;
use super::cluster::Cluster;
use super::namespace::{NAMESPACE, pod_path};
use super::scheduler_kind::SchedulerKind;

/// The result of a scenario on one side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) pods: BTreeMap<String, PodSeen>,
    pub(super) claims: Claims,
}

/// The state of one pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct PodSeen {
    pub(super) node: Option<String>,
    /// The final scores of kube-scheduler, if several nodes were feasible.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) scores: BTreeMap<String, i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nominated_node_name: Option<String>,
    pub(super) generation: i64,
    pub(super) condition: Option<Condition>,
    /// The condition DisruptionTarget, with upstream's profile name in its message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) disruption: Option<Condition>,
    /// Whether it is terminating.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) terminating: bool,
    /// Which requests of its claim for extended resources are for which containers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) extended_resource_claim_status: Option<Value>,
    /// In the order of time.
    pub(super) events: Vec<Event>,
}

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Condition {
    pub(super) status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) observed_generation: Option<i64>,
}

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Event {
    #[serde(rename = "type")]
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) action: String,
    /// `{node}` stands for the pod's node in the note of its binding, and `{uid of p}` for UIDs of
    /// pods and related objects.
    pub(super) note: String,
    /// The name of the related pod or group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) related: Option<String>,
    /// Upstream's profile name.
    pub(super) controller: String,
    /// The count of its series.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub(super) times: u64,
    /// Deviations from the form of upstream's events: name, regarding, instance, time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) oddities: Vec<String>,
}

fn once() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

fn is_once(times: &u64) -> bool {
    *times == 1
}

impl PodSeen {
    /// The number of failed attempts.
    pub(super) fn failures(&self) -> u64 {
        self.count(|event| event.reason == "FailedScheduling")
    }

    /// The number of events, with their counts.
    pub(super) fn occurrences(&self) -> u64 {
        self.count(|_| true)
    }

    /// Whether its node, event and condition all report a binding.
    pub(super) fn is_bound(&self) -> bool {
        let condition = self.condition.as_ref();
        self.node.is_some()
            && condition.is_some_and(|condition| condition.status == "True")
            && self.events.iter().any(|event| event.reason == "Scheduled")
    }

    /// Whether the condition matches the last event, which is a failure. (Notes are truncated at
    /// 1024 bytes.)
    pub(super) fn is_told_of_its_failure(&self) -> bool {
        let (Some(condition), Some(event)) = (&self.condition, self.events.last()) else {
            return false;
        };
        let message = condition.message.as_deref().unwrap_or_default();
        event.reason == "FailedScheduling"
            && condition.status == "False"
            && message.starts_with(event.note.strip_suffix(" ...").unwrap_or(&event.note))
    }

    /// Replaces UIDs, which are random, by names.
    pub(super) fn name_pods(&mut self, uids: &BTreeMap<String, String>) {
        let message = self.condition.as_mut().and_then(|condition| condition.message.as_mut());
        for text in self.events.iter_mut().map(|event| &mut event.note).chain(message) {
            for (name, uid) in uids {
                *text = text.replace(uid, &format!("{{uid of {name}}}"));
            }
        }
    }

    fn count(&self, of: impl Fn(&Event) -> bool) -> u64 {
        let events = self.events.iter().filter(|event| of(event));
        events.map(|event| event.times).sum()
    }
}

/// The state of the pod with this UID. The pod may be deleted; its events stay.
pub(super) fn pod(cluster: &dyn Cluster, side: SchedulerKind, name: &str, uid: &str) -> Result<PodSeen> {
    let events = cluster.request(
        Method::Get,
        &format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"),
        None,
    )?;
    let events = events.json()?;
    let mut events: Vec<&Value> = items(&events)
        .filter(|event| event.pointer("/regarding/uid").and_then(Value::as_str) == Some(uid))
        .collect();
    events.sort_by_key(|event| text(event, "/eventTime"));
    let pod = cluster.request(Method::Get, &pod_path(name), None)?;
    let pod = if pod.status == 404 { Value::Null } else { pod.json()? };
    let node = some_text(&pod, "/spec/nodeName");
    Ok(PodSeen {
        scores: BTreeMap::new(),
        nominated_node_name: some_text(&pod, "/status/nominatedNodeName"),
        generation: pod.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
        condition: condition(&pod, side, "PodScheduled"),
        disruption: condition(&pod, side, "DisruptionTarget"),
        terminating: pod.pointer("/metadata/deletionTimestamp").is_some(),
        extended_resource_claim_status: extended_resource_claim_status(&pod, name),
        events: events
            .into_iter()
            .map(|seen| event(seen, side, name, node.as_deref()))
            .collect::<Result<_>>()?,
        node,
    })
}

/// The items of a list.
pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.get("items").and_then(Value::as_array).into_iter().flatten()
}

fn condition(pod: &Value, side: SchedulerKind, kind: &str) -> Option<Condition> {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array)?;
    let condition =
        conditions.iter().find(|condition| condition.get("type").and_then(Value::as_str) == Some(kind))?;
    Some(Condition {
        status: text(condition, "/status"),
        reason: some_text(condition, "/reason"),
        message: some_text(condition, "/message").map(|message| side.with_profiles(&message)),
        observed_generation: condition.get("observedGeneration").and_then(Value::as_i64),
    })
}

/// The suffix of the claim's name is random.
fn extended_resource_claim_status(pod: &Value, name: &str) -> Option<Value> {
    let mut status = pod.pointer("/status/extendedResourceClaimStatus")?.clone();
    let start = format!("{name}-extended-resources-");
    if text(&status, "/resourceClaimName").starts_with(&start) {
        status["resourceClaimName"] = format!("{start}{{random}}").into();
    }
    Some(status)
}

fn event(event: &Value, side: SchedulerKind, pod: &str, node: Option<&str>) -> Result<Event> {
    let controller = text(event, "/reportingController");
    let note = side.with_profiles(&text(event, "/note"));
    let related = some_text(event, "/related/name");
    let note = match (&related, some_text(event, "/related/uid")) {
        (Some(name), Some(uid)) => note.replace(&uid, &format!("{{uid of {name}}}")),
        _ => note,
    };
    let note = match node.and_then(|node| note.strip_suffix(&format!(" to {node}"))) {
        Some(start) if text(event, "/reason") == "Scheduled" => format!("{start} to {{node}}"),
        _ => note,
    };
    Ok(Event {
        kind: text(event, "/type"),
        reason: text(event, "/reason"),
        action: text(event, "/action"),
        note,
        controller: side.with_profiles(&controller),
        related,
        times: event.pointer("/series/count").and_then(Value::as_u64).unwrap_or(1),
        oddities: oddities(event, pod, &controller)?,
    })
}

/// The form of upstream's events, where this one deviates from it.
fn oddities(event: &Value, pod: &str, controller: &str) -> Result<Vec<String>> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").context("read the host's name")?;
    let name = text(event, "/metadata/name");
    let suffix = name.strip_prefix(&format!("{pod}.")).unwrap_or_default();
    let is_hex = !suffix.is_empty() && suffix.chars().all(|digit| digit.is_ascii_hexdigit());
    let has = |pointer: &str, value: &str| text(event, pointer) == value;
    let micros = |time: &str| time.split_once('.').is_some_and(|(_, rest)| rest.len() == 7);
    let rules = [
        (is_hex, "/metadata/name"),
        (has("/metadata/namespace", NAMESPACE), "/metadata/namespace"),
        (has("/regarding/kind", "Pod"), "/regarding/kind"),
        (has("/regarding/apiVersion", "v1"), "/regarding/apiVersion"),
        (has("/regarding/name", pod), "/regarding/name"),
        (has("/regarding/namespace", NAMESPACE), "/regarding/namespace"),
        (some_text(event, "/regarding/resourceVersion").is_some(), "/regarding/resourceVersion"),
        (has("/reportingInstance", &format!("{controller}-{}", host.trim())), "/reportingInstance"),
        (micros(&text(event, "/eventTime")), "/eventTime"),
        (event.get("related").is_none_or(is_whole), "/related"),
        (event.get("deprecatedCount").is_none(), "/deprecatedCount"),
        (event.pointer("/deprecatedSource/component").is_none(), "/deprecatedSource/component"),
    ];
    let broken = rules.iter().filter(|(kept, _)| !kept);
    Ok(broken
        .map(|(_, pointer)| {
            let value = event.pointer(pointer).unwrap_or(&Value::Null);
            format!("{pointer} is {value}")
        })
        .collect())
}

/// Whether a reference names a pod or a group completely.
fn is_whole(reference: &Value) -> bool {
    let fields = ["/name", "/uid", "/resourceVersion"];
    let kind = (text(reference, "/apiVersion"), text(reference, "/kind"));
    let kinds =
        ["v1 Pod", "scheduling.k8s.io/v1beta1 PodGroup", "scheduling.k8s.io/v1alpha3 CompositePodGroup"];
    kinds.contains(&&*format!("{} {}", kind.0, kind.1))
        && text(reference, "/namespace") == NAMESPACE
        && fields.iter().all(|field| some_text(reference, field).is_some())
}

fn text(value: &Value, pointer: &str) -> String {
    some_text(value, pointer).unwrap_or_default()
}

fn some_text(value: &Value, pointer: &str) -> Option<String> {
    let text = value.pointer(pointer).and_then(Value::as_str)?;
    (!text.is_empty()).then(|| text.to_owned())
}
