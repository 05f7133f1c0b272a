//! What Kubernetes puts around messages: `runtime.Unknown`, and `metav1.WatchEvent` in watches.

use kube::core::Status as KubeStatus;
use prost::Message;

use super::meta;
use super::wire::{Fields, Malformed};
use crate::kind::{ContentType, DecodeError};

/// What an object's bytes begin with.
pub(crate) const MAGIC: &[u8; 4] = b"k8s\0";

impl From<Malformed> for DecodeError {
    fn from(malformed: Malformed) -> Self {
        Self::Invalid(Box::new(malformed))
    }
}

/// Takes the object out of its envelope, and says how it is encoded itself.
pub(crate) fn open(bytes: &[u8]) -> Result<(ContentType, &[u8]), Malformed> {
    let unknown = bytes.strip_prefix(MAGIC).ok_or(Malformed("not an object of Kubernetes"))?;
    let (mut object, mut content_type) = (None, ContentType::Protobuf);
    for field in Fields::of(unknown) {
        match field? {
            (2, Some(raw)) => object = Some(raw),
            (3, Some(encoding)) => check_encoding(encoding)?,
            (4, Some(name)) => content_type = self::content_type(name)?,
            _ => {}
        }
    }
    // Nothing at all is how Go writes a message in which nothing is set.
    Ok((content_type, object.unwrap_or_default()))
}

/// Servers write the empty string: they compress answers, not objects.
pub(super) fn check_encoding(encoding: &[u8]) -> Result<(), Malformed> {
    if encoding.is_empty() { Ok(()) } else { Err(Malformed("an object in a content encoding")) }
}

/// How the object in an envelope is encoded. Unspecified is like the envelope.
pub(super) fn content_type(name: &[u8]) -> Result<ContentType, Malformed> {
    match name {
        b"" | b"application/vnd.kubernetes.protobuf" => Ok(ContentType::Protobuf),
        b"application/json" => Ok(ContentType::Json),
        _ => Err(Malformed("an object of unknown content type")),
    }
}

/// The type and, still in its envelope, the object of a watch's event.
pub(crate) fn watch_event(message: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (mut event_type, mut extension) = (None, None);
    for field in Fields::of(message) {
        match field? {
            (1, Some(name)) => event_type = Some(name),
            (2, Some(raw)) => extension = Some(raw),
            _ => {}
        }
    }
    let event_type = event_type.ok_or(Malformed("an event without type"))?;
    let mut object = None;
    for field in Fields::of(extension.ok_or(Malformed("an event without object"))?) {
        if let (1, Some(raw)) = field? {
            object = Some(raw);
        }
    }
    Ok((event_type, object.ok_or(Malformed("an event without object"))?))
}

/// The metadata's bytes of an object, whatever comes after them.
pub(crate) fn metadata(object: &[u8]) -> Option<&[u8]> {
    Fields::of(object).map_while(Result::ok).find_map(|field| match field {
        (1, metadata) => metadata,
        _ => None,
    })
}

/// A `metav1.Status`.
pub(crate) fn status(message: &[u8]) -> Result<KubeStatus, DecodeError> {
    Ok(meta::Status::decode(message)?.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_says_how_its_object_is_encoded() {
        let envelope =
            |rest: &[u8]| [&MAGIC[..], b"\x0a\x05\x0a\x00\x12\x01X\x12\x02{}\x1a\x00", rest].concat();
        for (rest, expected) in [
            (&b""[..], Ok((ContentType::Protobuf, &b"{}"[..]))),
            (b"\x22\x00", Ok((ContentType::Protobuf, b"{}"))),
            (b"\x22\x23application/vnd.kubernetes.protobuf", Ok((ContentType::Protobuf, b"{}"))),
            (b"\x22\x10application/json", Ok((ContentType::Json, b"{}"))),
            (b"\x22\x10application/yaml", Err(Malformed("an object of unknown content type"))),
            (b"\x1a\x04gzip", Err(Malformed("an object in a content encoding"))),
        ] {
            assert_eq!(open(&envelope(rest)), expected);
        }
        assert_eq!(open(MAGIC), Ok((ContentType::Protobuf, &b""[..])));
        assert!(open(b"").is_err() && open(b"k8s").is_err() && open(b"{}").is_err());
    }

    #[test]
    fn an_event_has_a_type_and_an_object() {
        assert_eq!(watch_event(b"\x0a\x05ADDED\x12\x04\x0a\x02hi"), Ok((&b"ADDED"[..], &b"hi"[..])));
        for broken in [&b""[..], b"\x0a\x05ADDED", b"\x12\x04\x0a\x02hi", b"\x0a\x05ADDED\x12\x00"] {
            assert!(watch_event(broken).is_err(), "{broken:x?}");
        }
    }
}
