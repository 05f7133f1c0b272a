//! Recorded responses of the real server (v1.37.2), in JSON and in protobuf.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) json: Value,
    protobuf: String,
}

impl Fixture {
    pub(crate) fn body(&self) -> Vec<u8> {
        STANDARD.decode(&self.protobuf).unwrap()
    }

    pub(crate) fn is_event(&self) -> bool {
        self.name.starts_with("watch ")
    }
}

pub(crate) fn all() -> Vec<Fixture> {
    serde_json::from_str(include_str!("fixtures.json")).unwrap()
}
