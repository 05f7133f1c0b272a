//! Splits the body of a watch into events: lines of JSON, or length-prefixed protobuf messages.

use http_body_util::BodyExt;
use kube::client::Body;

use crate::buffer;
use crate::json;
use crate::kind::ContentType;
use crate::list_watch::ListWatchError;

/// The size of a length prefix.
const LENGTH: usize = 4;

/// Why there is no next event.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The connection failed.
    Body(ListWatchError),
    /// An event exceeds the limit. Its length or its end may be corrupt.
    TooLarge,
}

/// The body of a watch. Buffers only bytes that have arrived and are not consumed yet.
pub(super) struct Frames {
    content_type: ContentType,
    max_event: usize,
    body: Body,
    buffer: Vec<u8>,
    /// The start of the unconsumed bytes in the buffer.
    start: usize,
    /// The end of the bytes searched for the current line's end.
    searched: usize,
    /// Some bodies must not be polled after their end.
    ended: bool,
}

impl Frames {
    /// `max_event` limits the size of an event in bytes.
    pub(super) fn new(content_type: ContentType, max_event: usize, body: Body) -> Self {
        Self { content_type, max_event, body, buffer: Vec::new(), start: 0, searched: 0, ended: false }
    }

    /// The next event; `None` at the end.
    pub(super) async fn next(&mut self) -> Result<Option<&[u8]>, FrameError> {
        loop {
            let frame = match self.content_type {
                ContentType::Json => self.line(),
                ContentType::Protobuf => self.message()?,
            };
            if let Some((from, to)) = frame {
                return Ok(Some(&self.buffer[from..to]));
            }
            self.make_room();
            if self.buffer.len() > self.max_event {
                return Err(FrameError::TooLarge);
            }
            if self.ended {
                return Ok(None);
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => {
                    self.ended = true;
                    return Err(FrameError::Body(ListWatchError::Body(Box::new(error))));
                }
                None => {
                    self.ended = true;
                    return Ok(self.rest());
                }
            }
        }
    }

    /// The range of the next non-empty line, if it is complete.
    fn line(&mut self) -> Option<(usize, usize)> {
        while let Some(length) = self.buffer[self.searched..].iter().position(|byte| *byte == b'\n') {
            let (from, to) = (self.start, self.searched + length);
            self.start = to + 1;
            self.searched = self.start;
            if !self.buffer[from..to].trim_ascii().is_empty() {
                return Some((from, to));
            }
        }
        self.searched = self.buffer.len();
        None
    }

    /// The range of the next message, if it is complete. Memory is never reserved from a length
    /// alone.
    fn message(&mut self) -> Result<Option<(usize, usize)>, FrameError> {
        let Some((length, rest)) = self.buffer[self.start..].split_first_chunk::<LENGTH>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if length > self.max_event {
            return Err(FrameError::TooLarge);
        }
        if rest.len() < length {
            return Ok(None);
        }
        let from = self.start + LENGTH;
        self.start = from + length;
        Ok(Some((from, self.start)))
    }

    fn make_room(&mut self) {
        self.buffer.drain(..self.start);
        self.searched = self.searched.saturating_sub(self.start);
        self.start = 0;
        if self.buffer.is_empty() {
            buffer::clear(&mut self.buffer);
        }
    }

    /// The last line may lack its line feed. A truncated event is dropped silently.
    fn rest(&mut self) -> Option<&[u8]> {
        self.start = self.buffer.len();
        self.searched = self.start;
        let whole = self.content_type == ContentType::Json && json::is_complete(&self.buffer);
        whole.then_some(&self.buffer[..])
    }
}
