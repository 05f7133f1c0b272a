//! What happens to claims: every change of each, as a watch shows them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use supercargo_controlplane::Method;

use super::cluster::Cluster;

/// The claims of the scenarios' namespace.
pub(super) const PATH: &str = "/apis/resource.k8s.io/v1/namespaces/parity/resourceclaims";

/// The claim whose creation is the last event.
const LAST: &str = "last-claim";

/// The changes of each claim, by its name. A change has the new values of the fields that changed,
/// or `null`. Those of a claim that a scheduler creates start with its creation.
pub(super) type Claims = BTreeMap<String, Vec<Value>>;

/// The current version of the claims.
pub(super) fn version(cluster: &dyn Cluster) -> Result<String> {
    let list = cluster.request(Method::Get, &format!("{PATH}?limit=1"), None)?.json()?;
    let version = list.pointer("/metadata/resourceVersion").and_then(Value::as_str);
    Ok(version.context("a list has no version")?.to_owned())
}

/// The changes since a version. `uids` are UIDs of objects, by name.
pub(super) fn since<'a>(
    cluster: &dyn Cluster,
    version: &str,
    uids: impl Iterator<Item = (&'a String, &'a String)> + Clone,
) -> Result<Claims> {
    let last = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": LAST}, "spec": {}
    });
    cluster.request(Method::Post, PATH, Some(&last))?.json()?;
    let is_last = |event: &Value| event.pointer("/object/metadata/name").is_some_and(|name| name == LAST);
    let mut events = cluster.watch(&format!("{PATH}?watch=true&resourceVersion={version}"), &is_last)?;
    events.pop();
    let mut histories = BTreeMap::new();
    for event in &events {
        let (kind, claim) = (&event["type"], &event["object"]);
        ensure!(kind != "ERROR", "the watch of claims failed: {claim}");
        let history: &mut History = histories.entry(name(claim)?).or_default();
        history.add(if kind == "DELETED" { deleted() } else { state(claim) }, is_given(claim));
    }
    let mut shares = Vec::new();
    let named = |(name, history): (String, History)| {
        let changes = history.changes.into_iter().map(|change| normalized(change, uids.clone(), &mut shares));
        (name, changes.collect())
    };
    Ok(histories.into_iter().map(named).collect())
}

/// Its name. The suffix that the server generates is random.
fn name(claim: &Value) -> Result<String> {
    let text = |pointer| claim.pointer(pointer).and_then(Value::as_str);
    let generated = text("/metadata/generateName").map(|start| format!("{start}{{random}}"));
    generated.or_else(|| Some(text("/metadata/name")?.to_owned())).context("a claim has no name")
}

/// Whether the scenario, not a scheduler, has created it.
fn is_given(claim: &Value) -> bool {
    claim.pointer("/metadata/generateName").is_none()
}

/// What matters of a claim.
fn state(claim: &Value) -> Map<String, Value> {
    let fields = ["annotations", "deletionTimestamp", "finalizers", "labels", "ownerReferences"];
    let metadata = fields.map(|field| (field, claim.pointer(&format!("/metadata/{field}"))));
    let spec = [("spec", claim.get("spec"))];
    let status = ["allocation", "devices", "reservedFor"];
    let status = status.map(|field| (field, claim.pointer(&format!("/status/{field}"))));
    let fields = metadata.into_iter().chain(spec).chain(status);
    fields.filter_map(|(field, value)| Some((field.to_owned(), value?.clone()))).collect()
}

fn deleted() -> Map<String, Value> {
    Map::from_iter([("deleted".to_owned(), true.into())])
}

/// The versions of one claim.
#[derive(Default)]
struct History {
    last: Option<Map<String, Value>>,
    changes: Vec<Value>,
}

impl History {
    fn add(&mut self, state: Map<String, Value>, is_given: bool) {
        if self.last.is_some() || !is_given {
            let before = self.last.take().unwrap_or_default();
            let gone = before.keys().filter(|field| !state.contains_key(*field));
            let gone = gone.map(|field| (field.clone(), Value::Null));
            let new = state.iter().filter(|(field, value)| before.get(*field) != Some(*value));
            let change: Map<_, _> =
                gone.chain(new.map(|(field, value)| (field.clone(), value.clone()))).collect();
            if !change.is_empty() {
                self.changes.push(Value::Object(change));
            }
        }
        self.last = Some(state);
    }
}

/// Without random values: UIDs become names, IDs of shares are numbered in the order of their
/// appearance, and times are not compared.
fn normalized<'a>(
    value: Value,
    uids: impl Iterator<Item = (&'a String, &'a String)> + Clone,
    shares: &mut Vec<Value>,
) -> Value {
    match value {
        Value::Object(fields) => {
            let field = |(key, value): (String, Value)| {
                let value = match &*key {
                    "shareID" => format!("share {}", number(shares, value)).into(),
                    "allocationTimestamp" | "deletionTimestamp" => "{time}".into(),
                    _ => normalized(value, uids.clone(), shares),
                };
                (key, value)
            };
            fields.into_iter().map(field).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| normalized(item, uids.clone(), shares)).collect(),
        Value::String(text) => {
            let named = uids.clone().find(|(_, uid)| **uid == text);
            Value::String(named.map_or(text, |(name, _)| format!("{{uid of {name}}}")))
        }
        other => other,
    }
}

/// The position of a value among those known, counted from one.
fn number(known: &mut Vec<Value>, value: Value) -> usize {
    let position = known.iter().position(|known| *known == value);
    position.unwrap_or_else(|| {
        known.push(value);
        known.len() - 1
    }) + 1
}

#[test]
fn changes_of_a_claim_have_no_random_values() {
    let uid = ("p".to_owned(), "1-2".to_owned());
    let uids = [(&uid.0, &uid.1)];
    let claim = |share: &str| json!({"status": {"allocation": {"shareID": share}, "reservedFor": ["1-2"]}});
    let mut history = History::default();
    for version in [json!({}), claim("x"), claim("x"), claim("y"), json!({})] {
        history.add(state(&version), true);
    }
    history.add(deleted(), true);
    let mut shares = Vec::new();
    let changes = history.changes.into_iter();
    let changes: Vec<_> = changes.map(|change| normalized(change, uids.into_iter(), &mut shares)).collect();
    assert_eq!(
        changes,
        [
            json!({"allocation": {"shareID": "share 1"}, "reservedFor": ["{uid of p}"]}),
            json!({"allocation": {"shareID": "share 2"}}),
            json!({"allocation": null, "reservedFor": null}),
            json!({"deleted": true}),
        ]
    );
}
