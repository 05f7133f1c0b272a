//! Errors of encoding and decoding.

/// Why a value cannot be converted to or from protobuf.
#[derive(Debug, thiserror::Error)]
pub enum ProtobufError {
    /// The object's kind has no messages.
    #[error("{kind:?} in version {api_version:?} has no protobuf")]
    NoMessage {
        /// The object's `apiVersion`.
        api_version: String,
        /// The object's kind.
        kind: String,
    },
    /// A value does not fit its field.
    #[error("{field}: {value} does not fit")]
    WrongType {
        /// The field's name.
        field: String,
        /// The value.
        value: String,
    },
    /// The body lacks the prefix.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NoPrefix,
    /// The message is truncated or malformed.
    #[error("proto: {0}")]
    Broken(&'static str),
    /// Embedded JSON is malformed.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

pub(super) type Result<T> = std::result::Result<T, ProtobufError>;
