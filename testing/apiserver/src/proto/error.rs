//! Why an object has no message, or a message no object.

/// Why something is no protobuf.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object whose kind has no messages.
    #[error("{kind:?} in version {api_version:?} has no protobuf")]
    NoMessage {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's kind.
        kind: String,
    },
    /// A value that its field cannot hold.
    #[error("{field}: {value} does not fit")]
    WrongType {
        /// The field's name.
        field: String,
        /// The value.
        value: String,
    },
    /// A body without the prefix.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// A message that ends too early, or is not one.
    #[error("proto: {0}")]
    Broken(&'static str),
    /// JSON within a message that is none.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

pub(super) type Result<T> = std::result::Result<T, Error>;
