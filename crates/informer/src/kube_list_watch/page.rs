//! Reads lists item by item as they arrive, without holding a whole list in memory.

use std::error::Error;

use crate::json;
use crate::kind::ContentType;
use crate::protobuf::wire::Malformed;
use crate::protobuf::{self, TOO_LARGE};

type BoxError = Box<dyn Error + Send + Sync>;

/// The metadata of a list.
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    pub(super) continue_token: Option<String>,
}

/// Why there is no next item.
pub(super) enum SplitError {
    /// An item exceeds the limit.
    TooLarge,
    /// The response is not a list.
    NotAList(BoxError),
}

impl From<json::NotAList> for SplitError {
    fn from(error: json::NotAList) -> Self {
        match error {
            json::NotAList::TooLarge => Self::TooLarge,
            error => Self::NotAList(error.into()),
        }
    }
}

impl From<Malformed> for SplitError {
    fn from(error: Malformed) -> Self {
        if error == TOO_LARGE { Self::TooLarge } else { Self::NotAList(error.into()) }
    }
}

/// Splits a list into items, in either encoding.
pub(super) enum Splitter {
    Json(json::ListSplitter),
    Protobuf(Box<protobuf::ListSplitter>),
}

impl Splitter {
    /// `max_item` limits the size of an item in bytes.
    pub(super) fn new(content_type: ContentType, max_item: usize) -> Self {
        match content_type {
            ContentType::Json => Self::Json(json::ListSplitter::new(max_item)),
            ContentType::Protobuf => Self::Protobuf(Box::new(protobuf::ListSplitter::new(max_item))),
        }
    }

    /// The next complete item. Advances `chunk` past the bytes read. `None` requests another chunk.
    pub(super) fn next_item(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, SplitError> {
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
