//! Normalizes responses to what two servers must agree on.

use std::collections::HashMap;

use serde_json::{Map, Value, json};

/// Names for values that each server chooses. A value has the same name throughout a table, so that
/// references to the same object or version are compared, too.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The UIDs by object name, in order of appearance.
    uids: HashMap<String, Vec<String>>,
    /// The resource versions, likewise.
    versions: HashMap<String, Vec<String>>,
    /// The name of each UID.
    called: HashMap<String, String>,
}

/// The keys of items in lists and tables.
const ITEMS: [&str; 2] = ["items", "rows"];

impl Names {
    /// Replaces the values that a server chooses.
    pub(super) fn normalize(&mut self, value: &mut Value) {
        if let Value::Object(fields) = value {
            let is_list = ITEMS.iter().any(|items| fields.contains_key(*items));
            let is_table = fields.get("kind").is_some_and(|kind| kind == "Table");
            if is_list && let Some(metadata) = fields.get_mut("metadata") {
                own_version(metadata);
            }
            if is_table {
                ages(fields);
            }
            generated_name(fields);
            self.identity(fields);
        }
        self.each_field(value);
    }

    /// Normalizes the events of a watch. Bookmarks other than the one that ends the initial events
    /// are dropped, because their timing varies.
    pub(super) fn normalize_events(&mut self, events: &mut Vec<Value>) {
        events.retain(|event| {
            let annotations = &event["object"]["metadata"]["annotations"];
            event["type"] != "BOOKMARK" || annotations["k8s.io/initial-events-end"] == "true"
        });
        for event in events {
            if event["type"].is_null() {
                // A response that is not a watch is an object.
                self.normalize(event);
                continue;
            }
            let is_bookmark = event["type"] == "BOOKMARK";
            let object = &mut event["object"];
            if is_bookmark {
                own_version(&mut object["metadata"]);
            }
            self.normalize(object);
        }
    }

    fn each_field(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("managedFields");
                for (key, value) in fields.iter_mut() {
                    self.field(key, value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.normalize(item)),
            _ => {}
        }
    }

    fn field(&mut self, key: &str, value: &mut Value) {
        match (key, &*value) {
            ("continue", Value::String(token)) if !token.is_empty() => *value = json!("<continue>"),
            ("clusterIP", Value::String(ip)) if ip.starts_with("10.") => *value = json!("<ip>"),
            ("clusterIPs", Value::Array(_)) => *value = json!("<ips>"),
            ("nodePort", Value::Number(_)) => *value = json!("<port>"),
            (_, Value::String(text)) => *value = json!(self.text(text)),
            _ => self.normalize(value),
        }
    }

    /// Replaces UID and resource version, in metadata and references.
    fn identity(&mut self, fields: &mut Map<String, Value>) {
        let name = fields.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let version = text(fields.get("resourceVersion"));
        if !version.is_empty() && version.bytes().all(|letter| letter.is_ascii_digit()) {
            let number = numbered(&mut self.versions, &name, &version);
            fields.insert("resourceVersion".to_owned(), json!(format!("<version {number} of {name}>")));
        }
        let uid = text(fields.get("uid"));
        if is_uid(&uid) {
            let called = format!("<uid {} of {name}>", numbered(&mut self.uids, &name, &uid));
            let called = self.called.entry(uid).or_insert(called);
            fields.insert("uid".to_owned(), json!(called));
        }
    }

    /// Replaces times, UIDs and resource versions within a text.
    pub(super) fn text(&self, text: &str) -> String {
        if is_time(text) {
            return "<time>".to_owned();
        }
        if text.starts_with('<') {
            // The text is already a name.
            return text.to_owned();
        }
        if text.starts_with("127.0.0.1:") {
            return "<server>".to_owned();
        }
        if !text.contains('-') && !text.contains("ersion") {
            return text.to_owned();
        }
        let words =
            text.split_inclusive(|letter: char| !(letter.is_ascii_alphanumeric() || ":-.".contains(letter)));
        let mut normal = String::with_capacity(text.len());
        let mut after_version = false;
        for word in words {
            let core = word.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
            let rest = &word[core.len()..];
            let number = core.bytes().all(|letter| letter.is_ascii_digit());
            if is_uid(core) {
                normal.push_str(self.called.get(core).map_or("<uid>", String::as_str));
                normal.push_str(rest);
            } else if is_time(core) {
                normal.push_str("<time>");
                normal.push_str(rest);
            } else if after_version && number && !core.is_empty() {
                normal.push_str("<version>");
                normal.push_str(rest);
            } else {
                normal.push_str(word);
            }
            // For example `too old resource version: 1 (205)` or `ResourceVersion in precondition:
            // 1`.
            after_version |= core.to_ascii_lowercase().contains("version");
        }
        normal
    }
}

fn numbered(all: &mut HashMap<String, Vec<String>>, name: &str, value: &str) -> usize {
    let known = all.entry(name.to_owned()).or_default();
    let place = known.iter().position(|known| known == value).unwrap_or(known.len());
    if place == known.len() {
        known.push(value.to_owned());
    }
    place + 1
}

/// Drops the version of a list or bookmark, which concurrent tables change.
fn own_version(metadata: &mut Value) {
    if let Some(version) = metadata.get_mut("resourceVersion")
        && version.as_str().is_some_and(|version| !version.is_empty())
    {
        *version = json!("<store's version>");
    }
}

/// Replaces the name generated from `metadata.generateName`.
fn generated_name(fields: &mut Map<String, Value>) {
    let Some(prefix) = fields.get("generateName").and_then(Value::as_str).map(str::to_owned) else { return };
    let Some(name) = fields.get_mut("name") else { return };
    let suffix = name.as_str().and_then(|name| name.strip_prefix(prefix.as_str())).unwrap_or_default();
    if suffix.len() == 5 {
        *name = json!(format!("{prefix}<suffix>"));
    }
}

/// Replaces the ages in a table.
fn ages(table: &mut Map<String, Value>) {
    let Some(rows) = table.get_mut("rows").and_then(Value::as_array_mut) else { return };
    for cell in rows.iter_mut().filter_map(|row| row["cells"].as_array_mut()).flatten() {
        if cell.as_str().is_some_and(is_age) {
            *cell = json!("<age>");
        }
    }
}

/// For example `5s` or `2m10s`.
pub(super) fn is_age(text: &str) -> bool {
    let mut digits = false;
    let all = text.chars().all(|letter| {
        let unit = matches!(letter, 's' | 'm' | 'h' | 'd' | 'y') && digits;
        digits = letter.is_ascii_digit();
        unit || digits
    });
    all && !digits && !text.is_empty()
}

/// For example `2026-01-01T00:00:00Z`, with or without a fraction.
fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20
        && bytes[4] == b'-'
        && bytes[10] == b'T'
        && bytes[13] == b':'
        && bytes.ends_with(b"Z")
        && bytes[..4].iter().all(u8::is_ascii_digit)
}

/// For example `f81d4fae-7dec-11d0-a765-00a0c91e6bf6`.
pub(super) fn is_uid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [8, 4, 4, 4, 12] && text.bytes().all(|letter| letter == b'-' || letter.is_ascii_hexdigit())
}

/// Keeps only the list items with one of these names.
pub(super) fn keep_named(value: &mut Value, names: &[String]) {
    match value {
        Value::Array(items) => {
            let name = |item: &Value| {
                let places =
                    [&item["name"], &item["metadata"]["name"], &item["resource"], &item["groupVersion"]];
                places.iter().find_map(|name| name.as_str().map(str::to_owned))
            };
            items.retain(|item| name(item).is_none_or(|name| names.contains(&name)));
            for item in items {
                keep_named(item, names);
            }
        }
        Value::Object(fields) => fields.values_mut().for_each(|field| keep_named(field, names)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_object_has_the_same_name() {
        let mut names = Names::default();
        let uid = "f81d4fae-7dec-11d0-a765-00a0c91e6bf6";
        let mut first = json!({"name": "a", "uid": uid, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"});
        names.normalize(&mut first);
        let expected = json!({"name": "a", "uid": "<uid 1 of a>", "resourceVersion": "<version 1 of a>", "creationTimestamp": "<time>"});
        assert_eq!(first, expected);
        assert_eq!(
            names.text(&format!("UID in precondition: a-b, UID in object meta: {uid}")),
            "UID in precondition: a-b, UID in object meta: <uid 1 of a>"
        );
        assert_eq!(
            names.text("too old resource version: 1 (205)"),
            "too old resource version: <version> (<version>)"
        );
        assert_eq!(names.text("must be at most 63 characters"), "must be at most 63 characters");
    }

    #[test]
    fn ages_are_distinguished_from_other_texts() {
        assert!(is_age("5s") && is_age("2m10s") && is_age("4d"));
        assert!(!is_age("5") && !is_age("s") && !is_age("") && !is_age("ds") && !is_age("1/1"));
    }

    #[test]
    fn only_the_suffix_of_generated_names_is_replaced() {
        let mut object = json!({"metadata": {"generateName": "a-", "name": "a-x7v2p"}});
        Names::default().normalize(&mut object);
        assert_eq!(object["metadata"]["name"], "a-<suffix>");
    }
}
