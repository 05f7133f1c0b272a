//! Reads protobuf messages into the slim types. Texts are borrowed from the message; unknown fields
//! are skipped.
//!
//! Go's protobuf differs from its JSON in one way: unset numbers and strings that are not pointers
//! are written as 0 and "". The slim types treat empty texts as absent. The field table
//! marks the fields where 0 means absent.

use std::borrow::Cow;

use kube_informers::protobuf::wire::{Fields, Malformed, Value};
use serde::de::IgnoredAny;
use supercargo_framework::steps;
use thiserror::Error;

use super::json::{List, Obj, Pairs, Str};
use super::text::text;

/// Why bytes are not the expected message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProtoError {
    /// The bytes are not valid protobuf.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// The field has a wire type that the API does not give it.
    #[error("field {0} has the wrong type")]
    Mistyped(u32),
}

/// The result of reading a field; `None` if the field has another wire type than expected.
pub(super) type FieldResult = Option<Result<(), ProtoError>>;

/// A type that can be read from a message.
pub(super) trait ProtoMessage<'a> {
    /// Reads a field, or skips an unknown one.
    fn field(&mut self, number: u32, value: Value<'a>) -> FieldResult;
}

/// A type that can be read from a field. A repeated field extends lists, merges messages, and
/// replaces other values.
pub(super) trait Field<'a> {
    fn set(&mut self, value: Value<'a>) -> FieldResult;
}

/// Maps field numbers to the fields of a slim type. `as quantities` reads a map of quantities, each
/// in a message. `as time` reads a time, and `as non_zero` treats 0 as absent.
macro_rules! message {
    ($name:ident { $($number:literal => $field:ident $(as $how:ident)?),+ $(,)? }) => {
        impl<'a> $crate::proto::ProtoMessage<'a> for $name<'a> {
            $crate::proto::message!(@body $($number => $field $(as $how)?),+);
        }
    };
    ($name:ident, owned { $($number:literal => $field:ident $(as $how:ident)?),+ $(,)? }) => {
        impl<'a> $crate::proto::ProtoMessage<'a> for $name {
            $crate::proto::message!(@body $($number => $field $(as $how)?),+);
        }
    };
    (@body $($number:literal => $field:ident $(as $how:ident)?),+) => {
        fn field(
            &mut self,
            number: u32,
            value: kube_informers::protobuf::wire::Value<'a>,
        ) -> $crate::proto::FieldResult {
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

/// Reads a message.
pub(super) fn read<'a, M: ProtoMessage<'a> + Default>(bytes: &'a [u8]) -> Result<M, ProtoError> {
    let mut message = M::default();
    merge(&mut message, bytes)?;
    Ok(message)
}

/// Reads the fields of a message into `message`. An error keeps the fields before it.
pub(super) fn merge<'a, M: ProtoMessage<'a>>(message: &mut M, bytes: &'a [u8]) -> Result<(), ProtoError> {
    for field in Fields::new(bytes) {
        steps::add(1);
        let (number, value) = field?;
        message.field(number, value).unwrap_or(Err(ProtoError::Mistyped(number)))?;
    }
    Ok(())
}

impl<'a> Field<'a> for Str<'a> {
    fn set(&mut self, value: Value<'a>) -> FieldResult {
        let Value::Bytes(bytes) = value else { return None };
        *self = Self(text(bytes));
        Some(Ok(()))
    }
}

impl<'a> Field<'a> for Option<Str<'a>> {
    fn set(&mut self, value: Value<'a>) -> FieldResult {
        self.get_or_insert_default().set(value)
    }
}

macro_rules! number {
    ($type:ty, $from:expr) => {
        impl<'a> Field<'a> for Option<$type> {
            fn set(&mut self, value: Value<'a>) -> FieldResult {
                let Value::Varint(number) = value else { return None };
                *self = Some($from(number));
                Some(Ok(()))
            }
        }
    };
}

// Casts suffice: negative numbers are sign-extended to 64 bits.
number!(i32, |number| number as i32);
number!(i64, |number| number as i64);
number!(bool, |number| number != 0);

impl<'a, T: ProtoMessage<'a>> Field<'a> for Obj<T> {
    fn set(&mut self, value: Value<'a>) -> FieldResult {
        let Value::Bytes(bytes) = value else { return None };
        Some(merge(&mut self.0, bytes))
    }
}

impl<'a, T: ProtoMessage<'a> + Default> Field<'a> for Option<Obj<T>> {
    fn set(&mut self, value: Value<'a>) -> FieldResult {
        self.get_or_insert_default().set(value)
    }
}

impl<'a, T: Field<'a> + Default> Field<'a> for List<T> {
    fn set(&mut self, value: Value<'a>) -> FieldResult {
        let mut element = T::default();
        let taken = element.set(value)?;
        self.0.push(element);
        Some(taken)
    }
}

impl<'a> Field<'a> for IgnoredAny {
    fn set(&mut self, _: Value<'a>) -> FieldResult {
        Some(Ok(()))
    }
}

impl<'a> Field<'a> for Option<IgnoredAny> {
    fn set(&mut self, _: Value<'a>) -> FieldResult {
        *self = Some(IgnoredAny);
        Some(Ok(()))
    }
}

/// An entry of a map of texts.
#[derive(Default)]
struct TextEntry<'a> {
    key: Str<'a>,
    value: Str<'a>,
}

message!(TextEntry { 1 => key, 2 => value });

impl<'a> Field<'a> for Pairs<'a> {
    fn set(&mut self, value: Value<'a>) -> FieldResult {
        let Value::Bytes(bytes) = value else { return None };
        Some(read(bytes).map(|TextEntry { key, value }| self.0.push((key, value))))
    }
}

/// A quantity: a message with a text in field 1.
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

/// Reads an entry of a map of quantities. Empty text is 0, as in Go.
pub(super) fn quantities<'a>(pairs: &mut Pairs<'a>, value: Value<'a>) -> FieldResult {
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

/// Reads a time in JSON's format. The zero time is absent, as in Go; so is a time out of range.
pub(super) fn time<'a>(text: &mut Str<'a>, value: Value<'a>) -> FieldResult {
    let Value::Bytes(bytes) = value else { return None };
    Some(read::<Seconds>(bytes).map(|Seconds { seconds, nanos }| {
        let (seconds, nanos) = (seconds.unwrap_or_default(), nanos.unwrap_or_default());
        let zero = seconds == 0 && nanos == 0;
        let time = jiff::Timestamp::new(seconds, nanos).ok().filter(|_| !zero);
        *text = time.map_or_else(Str::default, |time| Str(Cow::Owned(time.to_string())));
    }))
}

/// Reads a number, treating 0 as absent.
pub(super) fn non_zero(number: &mut Option<i64>, value: Value<'_>) -> FieldResult {
    let taken = number.set(value);
    *number = number.filter(|number| *number != 0);
    taken
}
