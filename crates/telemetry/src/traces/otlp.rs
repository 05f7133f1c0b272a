//! The OTLP message for spans, in JSON.
//!
//! As the protocol specifies, ids are hexadecimal, 64-bit numbers are strings, and enumerations are
//! numbers. As in all protobuf JSON, default values may be omitted.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value as Json;

use super::ids::{SpanId, TraceId};

/// The path for traces, relative to the collector's address.
pub(super) const PATH: &str = "/v1/traces";

/// The names of the service and of the instrumentation scope.
const NAME: &str = "supercargo";
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// SPAN_KIND_INTERNAL.
const INTERNAL: u8 = 1;
/// STATUS_CODE_ERROR.
const ERROR: u8 = 2;

/// ExportTraceServiceRequest.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: &'a Resource,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: &'a [Span],
}

#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

impl<'a> Request<'a> {
    pub(super) fn new(resource: &'a Resource, spans: &'a [Span]) -> Self {
        let scope = Scope { name: NAME, version: VERSION };
        Self { resource_spans: [ResourceSpans { resource, scope_spans: [ScopeSpans { scope, spans }] }] }
    }
}

/// The source of the spans.
#[derive(Serialize)]
pub(super) struct Resource {
    attributes: Vec<Attribute>,
}

impl Resource {
    /// This process, identified by its host name.
    pub(super) fn of_process(instance: &str) -> Self {
        let attributes = vec![
            Attribute::text("service.name", NAME),
            Attribute::text("service.version", VERSION),
            Attribute::text("service.instance.id", instance),
        ];
        Self { attributes }
    }
}

/// A span.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the protocol's names")]
pub(super) struct Span {
    pub(super) trace_id: TraceId,
    pub(super) span_id: SpanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) parent_span_id: Option<SpanId>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    #[serde(serialize_with = "as_text")]
    pub(super) start_time_unix_nano: u64,
    #[serde(serialize_with = "as_text")]
    pub(super) end_time_unix_nano: u64,
    pub(super) attributes: Vec<Attribute>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<Failed>,
}

/// All spans are internal: none is a call to another service.
#[derive(Debug)]
pub(super) struct SpanKind;

impl Serialize for SpanKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u8(INTERNAL)
    }
}

/// The status of a failed span; others have none.
#[derive(Debug, Serialize)]
pub(super) struct Failed {
    code: u8,
    #[serde(skip_serializing_if = "str::is_empty")]
    message: Box<str>,
}

impl Failed {
    pub(super) fn with(message: impl Into<Box<str>>) -> Self {
        Self { code: ERROR, message: message.into() }
    }
}

/// An attribute of a span.
#[derive(Debug, Serialize)]
pub(super) struct Attribute {
    key: &'static str,
    value: Value,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
enum Value {
    StringValue(Box<str>),
    IntValue(#[serde(serialize_with = "as_text")] u64),
}

impl Attribute {
    pub(super) fn text(key: &'static str, text: impl Into<Box<str>>) -> Self {
        Self { key, value: Value::StringValue(text.into()) }
    }

    pub(super) fn number(key: &'static str, number: impl Into<u64>) -> Self {
        Self { key, value: Value::IntValue(number.into()) }
    }
}

fn as_text<S: Serializer>(number: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(number)
}

/// The number of rejected spans in an ExportTraceServiceResponse, and the reason.
pub(super) fn rejected(answer: &[u8]) -> Option<(usize, String)> {
    let answer: Json = serde_json::from_slice(answer).ok()?;
    let partial = answer.get("partialSuccess")?;
    let spans = match partial.get("rejectedSpans")? {
        Json::String(text) => text.parse().ok()?,
        number => number.as_u64()?,
    };
    let why = partial.get("errorMessage").and_then(Json::as_str).unwrap_or_default();
    (spans > 0).then(|| (spans as usize, why.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use serde_json::json;

    use super::*;

    fn number(number: u64) -> NonZeroU64 {
        NonZeroU64::new(number).unwrap()
    }

    #[test]
    fn the_message_follows_the_protocol() {
        let trace_id = TraceId(number(0x5b8e_fff7_9803_8103), number(0xd269_b633_813f_c60c));
        let root = Span {
            trace_id,
            span_id: SpanId(number(0xeee1_9b7e_c3c1_b174)),
            parent_span_id: None,
            name: "whole".into(),
            kind: SpanKind,
            start_time_unix_nano: 1_544_712_660_000_000_000,
            end_time_unix_nano: 1_544_712_661_000_000_000,
            attributes: vec![Attribute::number("calls", 7_u32)],
            status: Some(Failed::with("it broke")),
        };
        let part = Span {
            trace_id,
            span_id: SpanId(number(0xb)),
            parent_span_id: Some(root.span_id),
            name: "part".into(),
            kind: SpanKind,
            start_time_unix_nano: 1_544_712_660_000_000_000,
            end_time_unix_nano: 1_544_712_660_000_000_001,
            attributes: Vec::new(),
            status: None,
        };
        let spans = [root, part];
        let message = serde_json::to_value(Request::new(&Resource::of_process("host"), &spans)).unwrap();
        let text = |key: &str, text: &str| json!({"key": key, "value": {"stringValue": text}});
        let version = env!("CARGO_PKG_VERSION");
        let expected = json!({
            "resourceSpans": [{
                "resource": {
                    "attributes": [
                        text("service.name", "supercargo"),
                        text("service.version", version),
                        text("service.instance.id", "host"),
                    ],
                },
                "scopeSpans": [{
                    "scope": {"name": "supercargo", "version": version},
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "whole",
                            "kind": 1,
                            "startTimeUnixNano": "1544712660000000000",
                            "endTimeUnixNano": "1544712661000000000",
                            "attributes": [{"key": "calls", "value": {"intValue": "7"}}],
                            "status": {"code": 2, "message": "it broke"},
                        },
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "000000000000000b",
                            "parentSpanId": "eee19b7ec3c1b174",
                            "name": "part",
                            "kind": 1,
                            "startTimeUnixNano": "1544712660000000000",
                            "endTimeUnixNano": "1544712660000000001",
                            "attributes": [],
                        },
                    ],
                }],
            }],
        });
        assert_eq!(message, expected);
    }

    #[test]
    fn rejected_spans_are_read_from_the_response() {
        let answer = |partial: Json| rejected(json!({ "partialSuccess": partial }).to_string().as_bytes());
        let some = Some((3, "too old".to_owned()));
        assert_eq!(answer(json!({"rejectedSpans": "3", "errorMessage": "too old"})), some);
        assert_eq!(answer(json!({"rejectedSpans": 3, "errorMessage": "too old"})), some);
        assert_eq!(answer(json!({"rejectedSpans": "1"})), Some((1, String::new())));
        assert_eq!(answer(json!({"rejectedSpans": "0", "errorMessage": "a hint"})), None);
        for answer in ["", "{}", "ok", r#"{"partialSuccess":{}}"#] {
            assert_eq!(rejected(answer.as_bytes()), None, "{answer}");
        }
    }
}
