//! Objects as the API server's protobuf: the fields that the benchmark reads and writes.

use kube_informers::protobuf::wire::{Fields, Value, Writer, find_bytes};

/// The prefix of every object on the wire.
const MAGIC: &[u8] = b"k8s\0";

/// The first field with a number; an absent one is empty.
pub(crate) fn field(message: &[u8], number: u32) -> &[u8] {
    find_bytes(message, number).unwrap_or_default()
}

/// The first field with a number as text; an absent one is empty.
pub(crate) fn text(message: &[u8], number: u32) -> &str {
    std::str::from_utf8(field(message, number)).unwrap_or_default()
}

/// The messages of a repeated field. An invalid field ends the iteration.
pub(crate) fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    Fields::new(message).map_while(Result::ok).filter_map(move |field| match field {
        (found, Value::Bytes(bytes)) if found == number => Some(bytes),
        _ => None,
    })
}

/// The object after the prefix.
pub(crate) fn object(body: &[u8]) -> Option<&[u8]> {
    find_bytes(body.strip_prefix(MAGIC)?, 2)
}

/// An object with the prefix and its type, as the API server reads it.
pub(crate) fn body(version: &str, kind: &str, object: &Writer) -> Vec<u8> {
    let mut types = Writer::new();
    types.string(1, version).string(2, kind);
    let mut unknown = Writer::new();
    unknown.message(1, &types).message(2, object);
    [MAGIC, unknown.as_bytes()].concat()
}
