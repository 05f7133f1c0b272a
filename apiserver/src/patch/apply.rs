//! Server-side apply.

use serde_json::Value;

use super::decode;
use crate::status::{Result, Status};

pub(super) fn parse(body: &[u8]) -> Result<Value> {
    decode(body).map_err(|why| Status::bad_request(format!("error decoding YAML: {why}")))
}
