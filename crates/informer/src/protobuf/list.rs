//! Splits a list that arrives in chunks into its items.

use prost::Message;

use super::envelope::{MAGIC, check_encoding, content_type};
use super::meta::ListMeta;
use super::wire::{Fields, Malformed, Value, Varint, WireType, split_tag};
use crate::buffer;
use crate::kind::ContentType;

/// The maximum size of the list's metadata and of the envelope's fields, far more than servers
/// send.
const MAX_METADATA: u64 = 1 << 20;

/// The position within the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Within the magic bytes, after this many.
    Magic(usize),
    Tag,
    Length(u32),
    /// Within a varint that is skipped.
    Varint,
    Value(Role, u64),
}

/// The purpose of a value, whose remaining length is beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Skipped,
    /// A field of the envelope.
    Outer(u32),
    Metadata,
    Item,
}

/// Splits a list into its items, and reads its metadata.
#[derive(Debug)]
pub(crate) struct ListSplitter {
    state: State,
    varint: Varint,
    /// The remaining bytes of the list's own message, once it has started.
    list_left: Option<u64>,
    list_seen: bool,
    buffer: Vec<u8>,
    item_done: bool,
    metadata: Option<ListMeta>,
    max_item: u64,
}

impl ListSplitter {
    /// `max_item` limits the size of an item in bytes.
    pub(crate) fn new(max_item: usize) -> Self {
        Self {
            state: State::Magic(0),
            varint: Varint::default(),
            list_left: None,
            list_seen: false,
            buffer: Vec::new(),
            item_done: false,
            metadata: None,
            max_item: max_item as u64,
        }
    }

    /// The next complete item. Advances `chunk` past the bytes read. `None` requests another chunk.
    pub(crate) fn next_item(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, Malformed> {
        if std::mem::take(&mut self.item_done) {
            buffer::clear(&mut self.buffer);
        }
        while let Some((&byte, rest)) = chunk.split_first() {
            if let State::Value(role, left) = self.state {
                let length = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
                let (value, rest) = chunk.split_at(length);
                *chunk = rest;
                if role != Role::Skipped {
                    self.buffer.extend_from_slice(value);
                }
                self.count(length as u64)?;
                self.state = State::Value(role, left - length as u64);
            } else {
                *chunk = rest;
                self.count(1)?;
                self.byte(byte)?;
            }
            if let State::Value(role, 0) = self.state {
                self.state = State::Tag;
                self.value(role)?;
            }
            if self.list_left == Some(0) {
                self.end_of_list()?;
            }
            if self.item_done {
                return Ok(Some(&self.buffer));
            }
        }
        Ok(None)
    }

    /// The list's metadata. Fails unless the list is complete.
    pub(crate) fn finish(self) -> Result<ListMeta, Malformed> {
        let between = self.state == State::Tag && self.varint.is_empty() && self.list_left.is_none();
        if !between || !self.list_seen {
            return Err(Malformed("truncated list"));
        }
        self.metadata.ok_or(Malformed("list without metadata"))
    }

    /// Subtracts bytes from the remaining length of the list.
    fn count(&mut self, bytes: u64) -> Result<(), Malformed> {
        if let Some(left) = &mut self.list_left {
            *left = left.checked_sub(bytes).ok_or(BEYOND)?;
        }
        Ok(())
    }

    /// Processes a byte outside a value.
    fn byte(&mut self, byte: u8) -> Result<(), Malformed> {
        if let State::Magic(at) = self.state {
            if byte != MAGIC[at] {
                return Err(Malformed("not a Kubernetes object"));
            }
            self.state = if at + 1 == MAGIC.len() { State::Tag } else { State::Magic(at + 1) };
            return Ok(());
        }
        let Some(number) = self.varint.push(byte)? else { return Ok(()) };
        self.state = match self.state {
            State::Tag => match split_tag(number)? {
                (_, WireType::Varint) => State::Varint,
                (field, WireType::Bytes) => State::Length(field),
                (_, WireType::Fixed64) => State::Value(Role::Skipped, 8),
                (_, WireType::Fixed32) => State::Value(Role::Skipped, 4),
            },
            State::Length(field) => self.begin(field, number)?,
            State::Varint | State::Magic(_) | State::Value(..) => State::Tag,
        };
        Ok(())
    }

    /// The state after the length of a field.
    fn begin(&mut self, field: u32, length: u64) -> Result<State, Malformed> {
        let role = match (self.list_left, field) {
            (None, 2) if self.list_seen => return Err(Malformed("more than one list")),
            (None, 2) => {
                self.list_seen = true;
                self.list_left = Some(length);
                return Ok(State::Tag);
            }
            (None, 1 | 3 | 4) => Role::Outer(field),
            (Some(left), _) if length > left => return Err(BEYOND),
            (Some(_), 1) => Role::Metadata,
            (Some(_), 2) => Role::Item,
            _ => Role::Skipped,
        };
        match role {
            Role::Item if length > self.max_item => Err(TOO_LARGE),
            Role::Outer(_) | Role::Metadata if length > MAX_METADATA => Err(Malformed("metadata too large")),
            _ => Ok(State::Value(role, length)),
        }
    }

    /// Processes a complete value.
    fn value(&mut self, role: Role) -> Result<(), Malformed> {
        let value = self.buffer.as_slice();
        match role {
            Role::Skipped => return Ok(()),
            Role::Item => {
                self.item_done = true;
                return Ok(());
            }
            Role::Metadata => {
                let metadata = ListMeta::decode(value);
                self.metadata = Some(metadata.map_err(|_| Malformed("invalid list metadata"))?);
            }
            Role::Outer(1) => check_kind(value)?,
            Role::Outer(3) => check_encoding(value)?,
            Role::Outer(4) if content_type(value)? != ContentType::Protobuf => {
                return Err(Malformed("list in JSON instead of protobuf"));
            }
            Role::Outer(_) => {}
        }
        buffer::clear(&mut self.buffer);
        Ok(())
    }

    /// Ends the list's message. Its last field must end with it.
    fn end_of_list(&mut self) -> Result<(), Malformed> {
        if self.state != State::Tag || !self.varint.is_empty() {
            return Err(BEYOND);
        }
        self.list_left = None;
        Ok(())
    }
}

/// The kinds of all lists end in `List`.
fn check_kind(types: &[u8]) -> Result<(), Malformed> {
    for field in Fields::new(types) {
        if let (2, Value::Bytes(kind)) = field?
            && !kind.is_empty()
            && !kind.ends_with(b"List")
        {
            return Err(Malformed("not a list"));
        }
    }
    Ok(())
}

/// An item exceeds the limit.
pub(crate) const TOO_LARGE: Malformed = Malformed("an item is too large");
const BEYOND: Malformed = Malformed("field beyond the end of its message");

#[cfg(test)]
mod tests;
