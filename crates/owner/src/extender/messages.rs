//! Requests to extenders and their responses: JSON with Go's field names.
//!
//! Whole pods and nodes are inserted as received from the API server. Responses are parsed like in
//! Go: field names are case-insensitive; unknown fields and anything after the first value are
//! ignored.

use std::sync::Arc;

use serde_json::{Value, json};
use supercargo_framework::plugin::Candidate;
use supercargo_framework::{NodeRecord, PodInfo};
use supercargo_scheduler::{ExtenderAnswer, ExtenderVictims};

/// ExtenderArgs.
pub(super) fn nodes_args(pod: &PodInfo, nodes: &[Arc<NodeRecord>], by_name: bool) -> Vec<u8> {
    let mut text = String::from("{\"Pod\":");
    push_pod(&mut text, pod);
    if by_name {
        let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
        text.push_str(",\"Nodes\":null,\"NodeNames\":");
        text.push_str(&json!(names).to_string());
    } else {
        text.push_str(",\"Nodes\":{\"metadata\":{},\"items\":");
        push_list(&mut text, nodes, |text, node| push_node(text, node));
        text.push_str("},\"NodeNames\":null");
    }
    text.push('}');
    text.into_bytes()
}

/// ExtenderPreemptionArgs.
pub(super) fn preemption_args(pod: &PodInfo, candidates: &[Candidate], by_name: bool) -> Vec<u8> {
    let mut text = String::from("{\"Pod\":");
    push_pod(&mut text, pod);
    text.push_str(if by_name {
        ",\"NodeNameToVictims\":null,\"NodeNameToMetaVictims\":{"
    } else {
        ",\"NodeNameToMetaVictims\":null,\"NodeNameToVictims\":{"
    });
    for (position, Candidate { node, victims, pdb_violations }) in candidates.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        text.push_str(&json!(node).to_string());
        text.push_str(":{\"Pods\":");
        push_list(&mut text, victims, |text, victim| {
            if by_name {
                text.push_str(&json!({ "UID": victim.uid }).to_string());
            } else {
                push_pod(text, victim);
            }
        });
        text.push_str(",\"NumPDBViolations\":");
        text.push_str(&pdb_violations.to_string());
        text.push('}');
    }
    text.push_str("}}");
    text.into_bytes()
}

/// ExtenderBindingArgs.
pub(super) fn binding_args(pod: &PodInfo, node: &str) -> Vec<u8> {
    let args = json!({
        "PodName": pod.name,
        "PodNamespace": pod.namespace,
        "PodUID": pod.uid,
        "Node": node,
    });
    args.to_string().into_bytes()
}

fn push_list<T>(text: &mut String, items: &[T], push: impl Fn(&mut String, &T)) {
    text.push('[');
    for (position, item) in items.iter().enumerate() {
        if position > 0 {
            text.push(',');
        }
        push(text, item);
    }
    text.push(']');
}

fn push_pod(text: &mut String, pod: &PodInfo) {
    match &pod.raw {
        Some(raw) => text.push_str(raw),
        // Only pods that did not come from an informer have no raw JSON.
        None => text.push_str(&described_pod(pod).to_string()),
    }
}

fn push_node(text: &mut String, node: &NodeRecord) {
    match &node.raw {
        Some(raw) => text.push_str(raw),
        None => {
            let labels = json!(labels(&node.labels));
            let metadata = json!({ "name": node.name, "uid": node.uid, "labels": labels });
            text.push_str(&json!({ "metadata": metadata }).to_string());
        }
    }
}

fn described_pod(pod: &PodInfo) -> Value {
    json!({
        "metadata": {
            "name": pod.name,
            "namespace": pod.namespace,
            "uid": pod.uid,
            "resourceVersion": pod.resource_version,
            "labels": labels(&pod.labels),
        },
        "spec": {
            "schedulerName": pod.spec.scheduler_name,
            "nodeName": pod.node_name,
            "priority": pod.priority,
        },
    })
}

fn labels(labels: &supercargo_framework::Labels) -> Value {
    labels
        .iter()
        .map(|(key, value)| (key.to_string(), json!(&**value)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// The first JSON value of a body.
fn first_value(body: &[u8]) -> Result<Value, String> {
    let mut values = serde_json::Deserializer::from_slice(body).into_iter();
    match values.next() {
        Some(value) => value.map_err(|error| format!("invalid answer: {error}")),
        // Go's error text.
        None => Err("EOF".to_owned()),
    }
}

/// An object of the response, for reading its fields.
struct Fields<'a>(Option<&'a serde_json::Map<String, Value>>);

impl<'a> Fields<'a> {
    /// Null counts as an object without fields.
    fn of(value: &'a Value, what: &str) -> Result<Self, String> {
        match value {
            Value::Object(fields) => Ok(Self(Some(fields))),
            Value::Null => Ok(Self(None)),
            other => Err(format!("invalid answer: {what} is no object but {}", kind_of(other))),
        }
    }

    /// A field, unless it is null. Of several that differ only in case, the last one wins.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let mut fields = self.0.into_iter().flatten();
        let found = fields.rfind(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Result<&'a str, String> {
        match self.get(name) {
            None => Ok(""),
            Some(Value::String(text)) => Ok(text),
            Some(other) => Err(format!("invalid answer: {name} is no string but {}", kind_of(other))),
        }
    }

    fn number(&self, name: &str) -> Result<i64, String> {
        let Some(value) = self.get(name) else { return Ok(0) };
        value.as_i64().ok_or_else(|| format!("invalid answer: {name} is no integer but {value}"))
    }

    fn list(&self, name: &str) -> Result<&'a [Value], String> {
        match self.get(name) {
            None => Ok(&[]),
            Some(value) => as_list(value, name),
        }
    }
}

fn as_list<'a>(value: &'a Value, what: &str) -> Result<&'a [Value], String> {
    match value {
        Value::Array(items) => Ok(items),
        Value::Null => Ok(&[]),
        other => Err(format!("invalid answer: {what} is no list but {}", kind_of(other))),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The error that the extender reports.
fn reported_error(fields: &Fields<'_>) -> Result<(), String> {
    match fields.text("Error")? {
        "" => Ok(()),
        error => Err(error.to_owned()),
    }
}

/// ExtenderFilterResult.
pub(super) fn filtered(
    body: &[u8],
    asked: &[Arc<NodeRecord>],
    by_name: bool,
    url_prefix: &str,
) -> Result<ExtenderAnswer, String> {
    let value = first_value(body)?;
    let fields = Fields::of(&value, "the answer")?;
    reported_error(&fields)?;
    let nodes = match (fields.get("NodeNames").filter(|_| by_name), fields.get("Nodes")) {
        (Some(names), _) => kept_by_name(as_list(names, "NodeNames")?, asked, url_prefix)?,
        (None, Some(nodes)) => kept_nodes(nodes)?,
        (None, None) => Vec::new(),
    };
    let failed = reasons(&fields, "FailedNodes")?;
    let failed_and_unresolvable = reasons(&fields, "FailedAndUnresolvableNodes")?;
    Ok(ExtenderAnswer::Filtered { nodes, failed, failed_and_unresolvable })
}

fn kept_by_name(
    names: &[Value],
    asked: &[Arc<NodeRecord>],
    url_prefix: &str,
) -> Result<Vec<Arc<str>>, String> {
    let asked: std::collections::BTreeSet<&str> = asked.iter().map(|node| &*node.name).collect();
    let known = |name: &Value| {
        let name = name.as_str().ok_or_else(|| {
            format!("invalid answer: an item of NodeNames is no string but {}", kind_of(name))
        })?;
        if asked.contains(name) {
            return Ok(Arc::from(name));
        }
        Err(format!(
            "extender {url_prefix:?} claims a filtered node {name:?} which is not found in the input node list"
        ))
    };
    names.iter().map(known).collect()
}

fn kept_nodes(nodes: &Value) -> Result<Vec<Arc<str>>, String> {
    let name = |node: &Value| {
        let metadata = Fields::of(node, "a node")?.get("metadata").unwrap_or(&Value::Null);
        Fields::of(metadata, "a node's metadata")?.text("name").map(Arc::from)
    };
    Fields::of(nodes, "Nodes")?.list("items")?.iter().map(name).collect()
}

/// FailedNodesMap, by name.
fn reasons(fields: &Fields<'_>, name: &str) -> Result<Vec<(Arc<str>, String)>, String> {
    let Some(value) = fields.get(name) else { return Ok(Vec::new()) };
    let Some(map) = Fields::of(value, name)?.0 else { return Ok(Vec::new()) };
    let reason = |(node, reason): (&String, &Value)| match reason {
        Value::String(reason) => Ok((Arc::from(node.as_str()), reason.clone())),
        Value::Null => Ok((Arc::from(node.as_str()), String::new())),
        other => Err(format!("invalid answer: a reason in {name} is no string but {}", kind_of(other))),
    };
    let mut reasons = map.iter().map(reason).collect::<Result<Vec<_>, String>>()?;
    reasons.sort();
    Ok(reasons)
}

/// HostPriorityList.
pub(super) fn prioritized(body: &[u8]) -> Result<ExtenderAnswer, String> {
    let value = first_value(body)?;
    let score = |item: &Value| {
        let fields = Fields::of(item, "an item of the answer")?;
        Ok((Arc::from(fields.text("Host")?), fields.number("Score")?))
    };
    let scores = as_list(&value, "the answer")?.iter().map(score).collect::<Result<_, String>>()?;
    Ok(ExtenderAnswer::Prioritized(scores))
}

/// ExtenderPreemptionResult, by node.
pub(super) fn preempted(body: &[u8]) -> Result<ExtenderAnswer, String> {
    const VICTIMS: &str = "NodeNameToMetaVictims";
    let value = first_value(body)?;
    let fields = Fields::of(&value, "the answer")?;
    let nodes = Fields::of(fields.get(VICTIMS).unwrap_or(&Value::Null), VICTIMS)?;
    let uid = |pod: &Value| Fields::of(pod, "a victim")?.text("UID").map(Into::into);
    let victims = |(node, victims): (&String, &Value)| {
        let fields = Fields::of(victims, "a node's victims")?;
        Ok(ExtenderVictims {
            node: Arc::from(node.as_str()),
            victims: fields.list("Pods")?.iter().map(uid).collect::<Result<_, String>>()?,
            pdb_violations: fields.number("NumPDBViolations")?,
        })
    };
    let mut agreed = nodes.0.into_iter().flatten().map(victims).collect::<Result<Vec<_>, String>>()?;
    agreed.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(ExtenderAnswer::Preempted(agreed))
}

/// ExtenderBindingResult.
pub(super) fn bound(body: &[u8]) -> Result<(), String> {
    let value = first_value(body)?;
    reported_error(&Fields::of(&value, "the answer")?)
}

#[cfg(test)]
mod tests;
