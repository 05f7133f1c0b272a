//! Decodes API objects into the scheduler's records, and encodes the objects that supercargo
//! creates. Pods and nodes are read from protobuf or JSON, all other kinds from JSON.
//!
//! | module | content |
//! |---|---|
//! | `pod`, `node` | [`PodKind`] and [`NodeKind`]: decoders with their interners |
//! | `objects` | [`ObjectKind`]: all other kinds |
//! | `kind` | pods and nodes as kinds of an informer |
//! | `json`, `proto`, `text` | the two encodings of the slim types |
//! | `metadata`, `selector`, `volume_source` | parts that several kinds share |
//! | `intern`, `interners` | shared copies of equal values |
//! | `raw` | whole objects, for extenders, updates and unknown kinds |
//! | `error`, `json_path` | errors that name object and field |
//! | [`payload`] | encodes objects for requests |
//!
//! A typed pod takes tens of kilobytes, and most of it never matters to scheduling. So objects are
//! first read into slim types that borrow their strings from the document and have only the fields
//! that decisions depend on. These are converted to interned records at once: equal parts of pods
//! of one template are stored once.
//!
//! Reading is as lenient as the API: unknown fields are skipped, `null` means absent, and
//! enumerations have a variant for unknown values. As in Go, bytes of JSON that are not UTF-8 are
//! read as U+FFFD. Anything that would make a record wrong (an
//! invalid quantity, a field of another type, a missing name) is a [`WireError`] that names the
//! object and the field.

mod error;
mod intern;
mod interners;
mod json;
mod json_path;
mod kind;
mod metadata;
mod node;
mod objects;
pub mod payload;
mod pod;
mod proto;
mod raw;
mod selector;
#[cfg(test)]
mod tests;
mod text;
mod volume_source;

pub use error::{DecodeErrorKind, WireError};
pub use intern::Interner;
pub use node::NodeKind;
pub use objects::ObjectKind;
pub use pod::PodKind;
pub use proto::ProtoError;
