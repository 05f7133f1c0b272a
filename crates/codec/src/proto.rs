//! Protobuf, read in place into the slim types: texts are borrowed from the message, fields that nobody reads are passed over.
//!
//! What Go writes differs from the JSON of the same object in one way: numbers and texts that are not pointers are written where
//! they are unset, as 0 and "". Slim types take empty texts for absent ones; where 0 must be absent, the table says so.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use thiserror::Error;

use super::json::{List, Obj, Pairs, Str};

/// Why bytes are no message of the type that was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtoError {
    /// The message ends within a field.
    #[error("the message breaks off")]
    Truncated,
    /// A number has more bits than there are.
    #[error("a number is too long")]
    Overlong,
    /// No field has this number or this encoding.
    #[error("field {0} is not encoded as a field can be")]
    Malformed(u64),
    /// The field has another encoding than the API gives it.
    #[error("field {0} has another type")]
    Mistyped(u32),
}

/// What is in a field.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Number(u64),
    /// A text, a message or an element of a map.
    Bytes(&'a [u8]),
    /// Of fixed width. Nothing that scheduling reads is.
    Fixed,
}

/// How a field was taken; `None` if its encoding is not the one that it should have.
pub(super) type Taken = Option<Result<(), ProtoError>>;

/// A type that knows which of a message's fields are its own.
pub(super) trait Message<'a> {
    /// Takes a field, or passes over one that is not its own.
    fn field(&mut self, number: u32, value: Value<'a>) -> Taken;
}

/// A part of a slim type that can be read from a field. A field that comes again adds to lists and replaces anything else, as far
/// as it says something.
pub(super) trait Field<'a> {
    fn set(&mut self, value: Value<'a>) -> Taken;
}

/// Says which field of a message is which of a slim type. In `as quantities` each value of a map is in a message of its own;
/// `as time` reads a time, and `as non_zero` takes 0 for absent.
macro_rules! message {
    ($name:ident { $($number:literal => $field:ident $(as $how:ident)?),+ $(,)? }) => {
        impl<'a> $crate::proto::Message<'a> for $name<'a> {
            $crate::proto::message!(@body $($number => $field $(as $how)?),+);
        }
    };
    ($name:ident, owned { $($number:literal => $field:ident $(as $how:ident)?),+ $(,)? }) => {
        impl<'a> $crate::proto::Message<'a> for $name {
            $crate::proto::message!(@body $($number => $field $(as $how)?),+);
        }
    };
    (@body $($number:literal => $field:ident $(as $how:ident)?),+) => {
        fn field(
            &mut self,
            number: u32,
            value: $crate::proto::Value<'a>,
        ) -> $crate::proto::Taken {
            match number {
                $($number => $crate::proto::message!(@take self.$field, value $(, $how)?),)+
                _ => Some(Ok(())),
            }
        }
    };
    (@take $place:expr, $value:expr) => { $crate::proto::Field::set(&mut $place, $value) };
    (@take $place:expr, $value:expr, $how:ident) => { $crate::proto::$how(&mut $place, $value) };
}
pub(super) use message;

/// Reads a whole message.
pub(super) fn read<'a, M: Message<'a> + Default>(bytes: &'a [u8]) -> Result<M, ProtoError> {
    let mut message = M::default();
    merge(&mut message, bytes)?;
    Ok(message)
}

pub(super) fn merge<'a, M: Message<'a>>(message: &mut M, mut bytes: &'a [u8]) -> Result<(), ProtoError> {
    while !bytes.is_empty() {
        let (number, value) = next(&mut bytes)?;
        message.field(number, value).unwrap_or(Err(ProtoError::Mistyped(number)))?;
    }
    Ok(())
}

/// The next field; `bytes` is shortened by it.
fn next<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Value<'a>), ProtoError> {
    let tag = varint(bytes)?;
    let number =
        u32::try_from(tag >> 3).ok().filter(|number| *number > 0).ok_or(ProtoError::Malformed(tag >> 3))?;
    let value = match tag & 7 {
        0 => Value::Number(varint(bytes)?),
        1 => fixed(bytes, 8)?,
        2 => {
            let length = usize::try_from(varint(bytes)?).map_err(|_| ProtoError::Truncated)?;
            Value::Bytes(split(bytes, length)?)
        }
        5 => fixed(bytes, 4)?,
        // Groups are of a time before Kubernetes.
        _ => return Err(ProtoError::Malformed(u64::from(number))),
    };
    Ok((number, value))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtoError> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(ProtoError::Truncated)?;
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(ProtoError::Overlong)
}

fn split<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], ProtoError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ProtoError::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

fn fixed<'a>(bytes: &mut &[u8], width: usize) -> Result<Value<'a>, ProtoError> {
    split(bytes, width).map(|_| Value::Fixed)
}

/// Bad text is mended as the API server mends it when it writes JSON.
fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

impl<'a> Field<'a> for Str<'a> {
    fn set(&mut self, value: Value<'a>) -> Taken {
        let Value::Bytes(bytes) = value else { return None };
        *self = Self(text(bytes));
        Some(Ok(()))
    }
}

impl<'a> Field<'a> for Option<Str<'a>> {
    fn set(&mut self, value: Value<'a>) -> Taken {
        self.get_or_insert_default().set(value)
    }
}

macro_rules! number {
    ($type:ty, $from:expr) => {
        impl<'a> Field<'a> for Option<$type> {
            fn set(&mut self, value: Value<'a>) -> Taken {
                let Value::Number(number) = value else { return None };
                *self = Some($from(number));
                Some(Ok(()))
            }
        }
    };
}

// Negative numbers are written in ten bytes whatever their width.
number!(i32, |number| number as i32);
number!(i64, |number| number as i64);
number!(bool, |number| number != 0);

impl<'a, T: Message<'a>> Field<'a> for Obj<T> {
    fn set(&mut self, value: Value<'a>) -> Taken {
        let Value::Bytes(bytes) = value else { return None };
        Some(merge(&mut self.0, bytes))
    }
}

impl<'a, T: Message<'a> + Default> Field<'a> for Option<Obj<T>> {
    fn set(&mut self, value: Value<'a>) -> Taken {
        self.get_or_insert_default().set(value)
    }
}

impl<'a, T: Field<'a> + Default> Field<'a> for List<T> {
    fn set(&mut self, value: Value<'a>) -> Taken {
        let mut element = T::default();
        let taken = element.set(value)?;
        self.0.push(element);
        Some(taken)
    }
}

impl<'a> Field<'a> for IgnoredAny {
    fn set(&mut self, _: Value<'a>) -> Taken {
        Some(Ok(()))
    }
}

impl<'a> Field<'a> for Option<IgnoredAny> {
    fn set(&mut self, _: Value<'a>) -> Taken {
        *self = Some(IgnoredAny);
        Some(Ok(()))
    }
}

/// An element of a map of texts.
#[derive(Default)]
struct TextEntry<'a> {
    key: Str<'a>,
    value: Str<'a>,
}

message!(TextEntry { 1 => key, 2 => value });

impl<'a> Field<'a> for Pairs<'a> {
    fn set(&mut self, value: Value<'a>) -> Taken {
        let Value::Bytes(bytes) = value else { return None };
        Some(read(bytes).map(|TextEntry { key, value }| self.0.push((key, value))))
    }
}

/// A message with a text in field 1, as quantities are.
#[derive(Default)]
struct Quantity<'a> {
    string: Str<'a>,
}

message!(Quantity { 1 => string });

#[derive(Default)]
struct QuantityEntry<'a> {
    key: Str<'a>,
    value: Obj<Quantity<'a>>,
}

message!(QuantityEntry { 1 => key, 2 => value });

/// An element of a map of quantities. One without a text is 0, as in Go.
pub(super) fn quantities<'a>(pairs: &mut Pairs<'a>, value: Value<'a>) -> Taken {
    let Value::Bytes(bytes) = value else { return None };
    Some(read::<QuantityEntry<'a>>(bytes).map(|QuantityEntry { key, value }| {
        let amount = value.0.string;
        let amount = if amount.is_empty() { Str(Cow::Borrowed("0")) } else { amount };
        pairs.0.push((key, amount));
    }))
}

#[derive(Default)]
struct Seconds {
    seconds: Option<i64>,
    nanos: Option<i32>,
}

message!(Seconds, owned { 1 => seconds, 2 => nanos });

/// A time, as JSON has it. The zero time is none, as in Go; so is one that no calendar has.
pub(super) fn time<'a>(text: &mut Str<'a>, value: Value<'a>) -> Taken {
    let Value::Bytes(bytes) = value else { return None };
    Some(read::<Seconds>(bytes).map(|Seconds { seconds, nanos }| {
        let (seconds, nanos) = (seconds.unwrap_or_default(), nanos.unwrap_or_default());
        let zero = seconds == 0 && nanos == 0;
        let time = jiff::Timestamp::new(seconds, nanos).ok().filter(|_| !zero);
        *text = time.map_or_else(Str::default, |time| Str(Cow::Owned(time.to_string())));
    }))
}

/// A number of which 0 is absent.
pub(super) fn non_zero(number: &mut Option<i64>, value: Value<'_>) -> Taken {
    let taken = number.set(value);
    *number = number.filter(|number| *number != 0);
    taken
}
