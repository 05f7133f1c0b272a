//! Lists, item by item as they come: memory never holds one as a whole.

use std::error::Error;

use super::frames::MAX_OBJECT;
use crate::json;
use crate::kind::ContentType;
use crate::protobuf;

type BoxError = Box<dyn Error + Send + Sync>;

/// What is said about a list.
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}

/// Cuts the items out of a list in either encoding.
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

    /// The next item that is complete; `chunk` is shortened by what was read. `None` asks for more.
    pub(super) fn next_item(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, BoxError> {
        match self {
            Self::Json(splitter) => Ok(splitter.next_item(chunk)?),
            Self::Protobuf(splitter) => Ok(splitter.next_item(chunk)?),
        }
    }

    /// The list's metadata, if the list was all there.
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
