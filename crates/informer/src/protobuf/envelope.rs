//! The envelopes that Kubernetes puts around messages: `runtime.Unknown`, and `metav1.WatchEvent`
//! in watches.

use kube::core::Status as KubeStatus;
use prost::Message;

use super::meta;
use super::wire::{Fields, Malformed, Value, Writer};
use crate::kind::{ContentType, DecodeError};

/// The media type of protobuf bodies.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// The first bytes of an enveloped object.
pub const MAGIC: &[u8; 4] = b"k8s\0";

impl From<Malformed> for DecodeError {
    fn from(malformed: Malformed) -> Self {
        Self::Invalid(Box::new(malformed))
    }
}

/// Puts a message into the envelope that the API server reads: [`MAGIC`] and a `runtime.Unknown`.
pub fn envelope(api_version: &str, kind: &str, message: &Writer) -> Vec<u8> {
    let mut types = Writer::new();
    types.string(1, api_version).string(2, kind);
    let mut unknown = Writer::new();
    unknown.message(1, &types).message(2, message);
    [MAGIC, unknown.as_bytes()].concat()
}

/// Takes the object out of its envelope, together with the object's own encoding.
pub fn open_envelope(bytes: &[u8]) -> Result<(ContentType, &[u8]), Malformed> {
    let unknown = bytes.strip_prefix(MAGIC).ok_or(Malformed("not a Kubernetes object"))?;
    let (mut object, mut content_type) = (None, ContentType::Protobuf);
    for field in Fields::new(unknown) {
        match field? {
            (2, Value::Bytes(raw)) => object = Some(raw),
            (3, Value::Bytes(encoding)) => check_encoding(encoding)?,
            (4, Value::Bytes(name)) => content_type = self::content_type(name)?,
            _ => {}
        }
    }
    // Go omits the bytes of a message without set fields.
    Ok((content_type, object.unwrap_or_default()))
}

/// Servers write the empty string: they compress responses, not objects.
pub(super) fn check_encoding(encoding: &[u8]) -> Result<(), Malformed> {
    if encoding.is_empty() { Ok(()) } else { Err(Malformed("unsupported content encoding")) }
}

/// The encoding of the object in an envelope. The default is the envelope's.
pub(super) fn content_type(name: &[u8]) -> Result<ContentType, Malformed> {
    match name {
        b"" => Ok(ContentType::Protobuf),
        b"application/json" => Ok(ContentType::Json),
        name if name == MEDIA_TYPE.as_bytes() => Ok(ContentType::Protobuf),
        _ => Err(Malformed("unknown content type")),
    }
}

/// The type of a watch event and its object, still in the object's envelope.
pub fn watch_event(message: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut event_type, mut extension) = (None, None);
    for field in Fields::new(message) {
        match field? {
            (1, Value::Bytes(name)) => event_type = Some(name),
            (2, Value::Bytes(raw)) => extension = Some(raw),
            _ => {}
        }
    }
    let event_type = event_type.ok_or(Malformed("event without type"))?;
    let mut object = None;
    for field in Fields::new(extension.ok_or(Malformed("event without object"))?) {
        if let (1, Value::Bytes(raw)) = field? {
            object = Some(raw);
        }
    }
    Ok((event_type, object.ok_or(Malformed("event without object"))?))
}

/// Decodes a `metav1.Status`.
pub(crate) fn status(message: &[u8]) -> Result<KubeStatus, DecodeError> {
    Ok(meta::Status::decode(message)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_has_its_objects_encoding() {
        let enveloped =
            |rest: &[u8]| [&MAGIC[..], b"\x0a\x05\x0a\x00\x12\x01X\x12\x02{}\x1a\x00", rest].concat();
        for (rest, expected) in [
            (&b""[..], Ok((ContentType::Protobuf, &b"{}"[..]))),
            (b"\x22\x00", Ok((ContentType::Protobuf, b"{}"))),
            (b"\x22\x23application/vnd.kubernetes.protobuf", Ok((ContentType::Protobuf, b"{}"))),
            (b"\x22\x10application/json", Ok((ContentType::Json, b"{}"))),
            (b"\x22\x10application/yaml", Err(Malformed("unknown content type"))),
            (b"\x1a\x04gzip", Err(Malformed("unsupported content encoding"))),
        ] {
            assert_eq!(open_envelope(&enveloped(rest)), expected);
        }
        assert_eq!(open_envelope(MAGIC), Ok((ContentType::Protobuf, &b""[..])));
        for not_enveloped in [&b""[..], b"k8s", b"{}"] {
            assert!(open_envelope(not_enveloped).is_err());
        }
    }

    #[test]
    fn an_envelope_can_be_opened() {
        let mut pod = Writer::new();
        pod.string(1, "hi");
        let body = envelope("v1", "Pod", &pod);
        assert_eq!(open_envelope(&body), Ok((ContentType::Protobuf, pod.as_bytes())));
        assert_eq!(body, b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12\x04\x0a\x02hi");
    }

    #[test]
    fn an_event_has_a_type_and_an_object() {
        assert_eq!(watch_event(b"\x0a\x05ADDED\x12\x04\x0a\x02hi"), Ok((&b"ADDED"[..], &b"hi"[..])));
        for broken in [&b""[..], b"\x0a\x05ADDED", b"\x12\x04\x0a\x02hi", b"\x0a\x05ADDED\x12\x00"] {
            assert!(watch_event(broken).is_err(), "{broken:x?}");
        }
    }
}
