//! Decodes watch events from frames.

use super::meta::{Meta, identify};
use super::status::{self, unreadable_event};
use crate::json;
use crate::kind::{ContentType, DecodeError, Kind};
use crate::list_watch::WatchEvent;
use crate::protobuf;

/// Decodes the event in a frame. An object that fails to decode affects only itself if its name can
/// be read. Otherwise the event is an error of the watch, same as in client-go.
pub(super) fn decode_event<K: Kind>(
    kind: &K,
    content_type: ContentType,
    frame: &[u8],
) -> WatchEvent<K::Object> {
    let event = open(content_type, frame).and_then(|frame| frame.decode(kind));
    event.unwrap_or_else(|error| WatchEvent::Error(Box::new(unreadable_event(&error))))
}

/// What a frame holds.
struct Frame<'a> {
    event_type: &'a [u8],
    /// The encoding of the object, which can differ from the frame's.
    content_type: ContentType,
    object: &'a [u8],
}

fn open(content_type: ContentType, frame: &[u8]) -> Result<Frame<'_>, DecodeError> {
    match content_type {
        ContentType::Json => {
            let event = json::watch_event(frame);
            let (event_type, object) =
                event.ok_or_else(|| DecodeError::Invalid("not exactly one event".into()))?;
            let event_type = event_type.strip_prefix(b"\"").and_then(|name| name.strip_suffix(b"\""));
            Ok(Frame { event_type: event_type.unwrap_or_default(), content_type, object })
        }
        ContentType::Protobuf => {
            let (event_type, object) = protobuf::watch_event(frame)?;
            let (content_type, object) = protobuf::open_envelope(object)?;
            Ok(Frame { event_type, content_type, object })
        }
    }
}

impl Frame<'_> {
    fn decode<K: Kind>(self, kind: &K) -> Result<WatchEvent<K::Object>, DecodeError> {
        let decode = |deleted, event: fn(K::Object) -> WatchEvent<K::Object>| match kind
            .decode(self.content_type, self.object)
        {
            Ok(object) => Ok(event(object)),
            Err(error) => self.undecodable(deleted, error),
        };
        match self.event_type {
            b"ADDED" => decode(false, WatchEvent::Added),
            b"MODIFIED" => decode(false, WatchEvent::Modified),
            b"DELETED" => decode(true, WatchEvent::Deleted),
            b"BOOKMARK" => {
                let Meta { resource_version, initial_events_end, .. } =
                    Meta::read(self.content_type, self.object)?;
                Ok(WatchEvent::Bookmark { resource_version, initial_events_end })
            }
            b"ERROR" => Ok(WatchEvent::Error(Box::new(status::decode(self.content_type, self.object)?))),
            other => {
                let message = format!("unknown watch event type {:?}", String::from_utf8_lossy(other));
                self.undecodable(false, DecodeError::Invalid(message.into()))
            }
        }
    }

    fn undecodable<T>(&self, deleted: bool, error: DecodeError) -> Result<WatchEvent<T>, DecodeError> {
        let item = identify(self.content_type, self.object, error)?;
        Ok(WatchEvent::Undecodable { deleted, item })
    }
}
