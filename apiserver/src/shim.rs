//! Stands in for parts that are still being written.
#![allow(missing_docs, unused_variables)]
use crate::kinds::Kind;
use crate::schema::TypeId;
use crate::status::{Cause, Result, Status};
use crate::strategy::{Lookup, Strategy};
use jiff::Timestamp;
use serde_json::Value;

pub fn prune(id: TypeId, o: &mut Value) -> std::result::Result<Vec<String>, TypeError> {
    Ok(Vec::new())
}
#[derive(Debug)]
pub struct TypeError;
impl TypeError {
    pub fn message(&self, a: &str, b: &str) -> String {
        String::new()
    }
}
impl std::fmt::Display for TypeError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Ok(())
    }
}
pub struct FieldValidation;
impl FieldValidation {
    pub fn parse(t: &str) -> Option<Self> {
        Some(Self)
    }
    pub fn act(self, u: &[String], v: &str, k: &str) -> std::result::Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}
pub mod event {
    use serde_json::Value;
    pub fn to_core(_: &mut Value) {}
    pub fn to_events_v1(_: &mut Value) {}
}
pub fn validate_metadata(kind: &Kind, s: &dyn Strategy, o: &Value) -> Vec<Cause> {
    Vec::new()
}
pub fn validate_metadata_update(kind: &Kind, s: &dyn Strategy, o: &Value, old: &Value) -> Vec<Cause> {
    Vec::new()
}
pub fn may_delete(kind: &Kind, o: &Value) -> Result<()> {
    Ok(())
}
pub mod pod {
    use super::*;
    pub fn bind(pod: &mut Value, b: &Value, o: &dyn Lookup) -> Result<()> {
        pod["spec"]["nodeName"] = b["target"]["name"].clone();
        Ok(())
    }
    pub fn evict(pod: &Value, o: &dyn Lookup) -> Result<Option<Value>> {
        Ok(None)
    }
}
pub mod scale {
    use super::*;
    pub fn scale_of(o: &Value, k: &Kind) -> Value {
        Value::Null
    }
    pub fn set_scale(o: &mut Value, s: &Value, k: &Kind) -> Result<()> {
        Ok(())
    }
}
pub mod reviews {
    use super::*;
    pub fn answer(k: &Kind, o: Value, user: &str, groups: &[&str]) -> Result<Value> {
        Ok(o)
    }
}
pub mod proto {
    use super::*;
    pub fn encode(t: TypeId, v: &Value) -> Vec<u8> {
        Vec::new()
    }
    pub fn encode_object(v: &Value) -> Vec<u8> {
        Vec::new()
    }
    pub fn decode_object(b: &[u8]) -> std::result::Result<Value, String> {
        Err("no".into())
    }
    pub fn envelope(k: &Kind, m: &[u8]) -> Vec<u8> {
        m.to_vec()
    }
    pub fn list_envelope(k: &Kind, meta: &Value, items: &[bytes::Bytes]) -> Vec<u8> {
        Vec::new()
    }
    pub fn watch_frame(out: &mut Vec<u8>, event: &str, object: &[u8]) {}
}
pub fn apply(
    current: Option<&Value>,
    config: &Value,
    kind: &Kind,
    manager: &str,
    sub: &str,
    force: bool,
    now: Timestamp,
) -> Result<Value> {
    Ok(config.clone())
}
pub fn manager_required() -> Status {
    Status::bad_request("")
}
pub fn record_update(
    old: Option<&Value>,
    new: &mut Value,
    kind: &Kind,
    manager: &str,
    sub: &str,
    now: Timestamp,
) {
}
pub fn is_managed(v: &Value) -> bool {
    false
}
