//! Configuration: config maps, secrets, limit ranges and quotas.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::path::Path;
use super::pod::defaults::resource_list;
use super::traits::Strategy;
use super::{names, status};
use crate::json::{entries, flag, list_mut, object_mut, present, remove, restore, set_default, text};
use crate::status::StatusCause;

/// Config maps.
pub(crate) struct ConfigMap;

/// Secrets.
pub(crate) struct Secret;

/// Limits and defaults for the resources of a namespace's pods.
pub(crate) struct LimitRange;

/// The total resources that a namespace may use.
pub(crate) struct ResourceQuota;

const SIZE: usize = 1024 * 1024;
const IMMUTABLE: &str = "field is immutable when `immutable` is set";
const DATA: Path<'static> = Path::root("data");

impl Strategy for ConfigMap {
    fn validate(&self, map: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let mut size = 0;
        for (key, value) in entries(map, "data") {
            let path = DATA.key(key);
            path.invalid_all(key, names::config_key(key), &mut causes);
            if map["binaryData"].get(key).is_some() {
                causes.push(path.invalid(key, "duplicate of key present in binaryData"));
            }
            size += value.as_str().map_or(0, str::len);
        }
        let binary = Path::root("binaryData");
        for (key, value) in entries(map, "binaryData") {
            binary.key(key).invalid_all(key, names::config_key(key), &mut causes);
            size += decoded_length(value);
        }
        if size > SIZE {
            causes.push(Path::root("[]").too_long(SIZE));
        }
        causes
    }

    fn validate_update(&self, map: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = check_immutable(map, old, &["data", "binaryData"]);
        causes.extend(self.validate(map));
        causes
    }
}

impl Strategy for Secret {
    fn default(&self, secret: &mut Value) {
        let texts = secret.as_object_mut().and_then(|fields| fields.remove("stringData"));
        if let Some(Value::Object(texts)) = texts
            && let Some(data) = object_mut(secret, "data")
        {
            let encoded = texts.into_iter().filter_map(|(key, value)| Some((key, encode(value.as_str()?))));
            data.extend(encoded);
        }
    }

    fn prepare_for_create(&self, secret: &mut Value) {
        set_default(secret, "type", "Opaque");
    }

    fn prepare_for_update(&self, secret: &mut Value, old: &Value) {
        if text(secret, "type").is_empty() {
            restore(secret, old, "type");
        }
    }

    fn validate(&self, secret: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        let mut size = 0;
        for (key, value) in entries(secret, "data") {
            DATA.key(key).invalid_all(key, names::config_key(key), &mut causes);
            size += decoded_length(value);
        }
        if size > SIZE {
            causes.push(DATA.too_long(SIZE));
        }
        check_type(secret, &mut causes);
        causes
    }

    fn validate_update(&self, secret: &Value, old: &Value) -> Vec<StatusCause> {
        let mut causes = Vec::new();
        if text(secret, "type") != text(old, "type") {
            causes.push(Path::root("type").invalid(text(secret, "type"), "field is immutable"));
        }
        causes.extend(check_immutable(secret, old, &["data"]));
        causes.extend(self.validate(secret));
        causes
    }

    fn selectable_fields(&self) -> &'static [&'static str] {
        &["type"]
    }

    fn field(&self, secret: &Value, name: &str) -> String {
        match name {
            "type" => text(secret, "type").to_owned(),
            _ => String::new(),
        }
    }
}

fn encode(text: &str) -> Value {
    STANDARD.encode(text).into()
}

fn decoded_length(value: &Value) -> usize {
    let text = value.as_str().unwrap_or_default();
    text.trim_end_matches('=').len() * 3 / 4
}

fn check_immutable(object: &Value, old: &Value, fields: &[&str]) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if !flag(old, "immutable") {
        return causes;
    }
    if !flag(object, "immutable") {
        causes.push(Path::root("immutable").forbidden(IMMUTABLE));
    }
    for field in fields {
        if object.get(field) != old.get(field) {
            causes.push(Path::root(field).forbidden(IMMUTABLE));
        }
    }
    causes
}

/// Checks the keys that a type of secret requires.
fn check_type(secret: &Value, causes: &mut Vec<StatusCause>) {
    let null = Value::Null;
    let data = secret.get("data").unwrap_or(&null);
    let has = |key: &str| data.get(key).is_some();
    let mut require = |keys: &[&str]| {
        for key in keys.iter().filter(|key| !has(key)) {
            causes.push(DATA.key(key).required(""));
        }
    };
    match text(secret, "type") {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let metadata = Path::root("metadata");
            if text(&secret["metadata"]["annotations"], ACCOUNT).is_empty() {
                causes.push(metadata.child("annotations").key(ACCOUNT).required(""));
            }
        }
        "kubernetes.io/dockercfg" => require(&[".dockercfg"]),
        "kubernetes.io/dockerconfigjson" => require(&[".dockerconfigjson"]),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            require(&["username", "password"]);
        }
        "kubernetes.io/ssh-auth" if text(data, "ssh-privatekey").is_empty() => {
            causes.push(DATA.key("ssh-privatekey").required(""));
        }
        "kubernetes.io/tls" => require(&["tls.crt", "tls.key"]),
        _ => {}
    }
}

impl Strategy for LimitRange {
    fn default(&self, range: &mut Value) {
        object_mut(range, "spec");
        for limit in list_mut(&mut range["spec"], "limits") {
            for field in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
                resource_list(limit, field);
            }
            if text(limit, "type") == "Container" {
                default_limits(limit);
            }
        }
    }
}

/// Fills in a container's default limit from the maximum, and its default request from the limit or
/// the minimum.
fn default_limits(limit: &mut Value) {
    let amounts = |limit: &Value, field: &str| -> Map<String, Value> {
        present(limit, field).and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let mut default = amounts(limit, "default");
    let mut request = amounts(limit, "defaultRequest");
    for (name, amount) in amounts(limit, "max") {
        default.entry(name).or_insert(amount);
    }
    for (name, amount) in default.iter().map(|(name, amount)| (name.clone(), amount.clone())) {
        request.entry(name).or_insert(amount);
    }
    for (name, amount) in amounts(limit, "min") {
        request.entry(name).or_insert(amount);
    }
    for (field, amounts) in [("default", default), ("defaultRequest", request)] {
        if amounts.is_empty() {
            remove(limit, field);
        } else {
            limit[field] = amounts.into();
        }
    }
}

impl Strategy for ResourceQuota {
    fn default(&self, quota: &mut Value) {
        for field in ["spec", "status"] {
            object_mut(quota, field);
        }
        resource_list(&mut quota["spec"], "hard");
        for field in ["hard", "used"] {
            resource_list(&mut quota["status"], field);
        }
    }

    fn prepare_for_create(&self, quota: &mut Value) {
        quota["status"] = json!({});
    }

    fn prepare_for_update(&self, quota: &mut Value, old: &Value) {
        restore(quota, old, "status");
    }

    fn prepare_for_status_update(&self, quota: &mut Value, old: &Value) {
        status::only_status(quota, old);
    }
}
