//! Reads lists item by item as they arrive, without holding a whole list in memory.

use std::error::Error;

use super::frames::MAX_OBJECT;
use crate::json;
use crate::kind::ContentType;
use crate::protobuf;

type BoxError = Box<dyn Error + Send + Sync>;

/// The metadata of a list.
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}

/// Splits a list into items, in either encoding.
pub(super) enum Splitter {
    Json(json::ListSplitter),
    Protobuf(Box<protobuf::ListSplitter>),
}

impl Splitter {
    pub(super) fn new(content_type: ContentType) -> Self {
        match content_type {
            ContentType::Json => Self::Json(json::ListSplitter::new(MAX_OBJECT)),
            ContentType::Protobuf => Self::Protobuf(Box::new(protobuf::ListSplitter::new(MAX_OBJECT))),
        }
    }

    /// The next complete item. Advances `chunk` past the bytes read. `None` requests another chunk.
    pub(super) fn next_item(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, BoxError> {
        match self {
            Self::Json(splitter) => Ok(splitter.next_item(chunk)?),
            Self::Protobuf(splitter) => Ok(splitter.next_item(chunk)?),
        }
    }

    /// The list's metadata. Fails unless the list is complete.
    pub(super) fn finish(self) -> Result<ListMeta, BoxError> {
        let (resource_version, continue_token) = match self {
            Self::Json(splitter) => {
                let metadata = splitter.finish()?;
                (metadata.resource_version, metadata.continue_token)
            }
            Self::Protobuf(splitter) => {
                let metadata = splitter.finish()?;
                (metadata.resource_version, Some(metadata.continue_token))
            }
        };
        Ok(ListMeta { resource_version, continue_token: continue_token.filter(|token| !token.is_empty()) })
    }
}
