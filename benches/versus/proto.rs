//! Objects as the API server's protobuf: the fields that the benchmark reads and writes.

use kube_informers::protobuf::open_envelope;
use kube_informers::protobuf::wire::{Fields, Value, find_bytes};

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

/// The object in its envelope.
pub(crate) fn object(body: &[u8]) -> Option<&[u8]> {
    open_envelope(body).ok().map(|(_, object)| object)
}
