//! Pods and nodes from the API server's protobuf or JSON, and other kinds from its JSON, to the records that the scheduler
//! keeps.
//!
//! A typed pod weighs tens of kilobytes and most of it never matters to scheduling. So an object is read into a slim
//! type that borrows its strings from the document and knows only the fields that a decision can depend on, and is
//! turned at once into an interned record: what pods of one template have in common is stored once. [`PodKind`] and
//! [`NodeKind`] hold the interners.
//!
//! Reading is lenient where the API is: unknown fields are skipped, `null` means absent, and enumerations keep a
//! value for words this version does not know. What would make a record wrong (a quantity that is none, a field of
//! another type, no name) is a [`WireError`] that names the object and the field.

mod error;
mod intern;
mod interners;
mod json;
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
mod volume_source;

pub use error::{Fault, WireError};
pub use intern::{Fresh, Interner};
pub use node::NodeKind;
pub use objects::ObjectKind;
pub use pod::PodKind;
pub use proto::ProtoError;
