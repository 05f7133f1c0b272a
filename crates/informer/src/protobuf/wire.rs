//! Protobuf's wire format: reads the fields of a message in place, and writes messages.
//!
//! [`Fields`] borrows from the message and copies nothing. Embedded messages are the bytes of their
//! field, and are read by another `Fields`. Malformed input is an error, never a panic.
//!
//! ```
//! use kube_informers::protobuf::wire::{Fields, Malformed, Value, Writer};
//!
//! /// The name and generation of an object's metadata.
//! fn read(metadata: &[u8]) -> Result<(&[u8], i64), Malformed> {
//!     let (mut name, mut generation) = (&[][..], 0);
//!     for field in Fields::new(metadata) {
//!         match field? {
//!             (1, Value::Bytes(bytes)) => name = bytes,
//!             (7, Value::Varint(number)) => generation = number as i64,
//!             _ => {}
//!         }
//!     }
//!     Ok((name, generation))
//! }
//!
//! let mut metadata = Writer::new();
//! metadata.string(1, "web").string(3, "shop").varint(7, 2);
//! assert_eq!(read(metadata.as_bytes()), Ok((&b"web"[..], 2)));
//! assert!(read(b"\x0a\x05web").is_err());
//! ```

use thiserror::Error;

/// Bytes that are not valid protobuf, or not the expected message.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed protobuf: {0}")]
pub struct Malformed(pub(crate) &'static str);

const TRUNCATED: Malformed = Malformed("truncated message");

/// The encoding of a field's value. Kubernetes does not use groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// Splits a tag into the field's number and wire type.
#[inline]
pub(super) fn split_tag(tag: u64) -> Result<(u32, WireType), Malformed> {
    let wire_type = match tag & 7 {
        0 => WireType::Varint,
        1 => WireType::Fixed64,
        2 => WireType::Bytes,
        5 => WireType::Fixed32,
        _ => return Err(Malformed("unsupported wire type")),
    };
    match u32::try_from(tag >> 3) {
        Ok(number @ 1..=0x1fff_ffff) => Ok((number, wire_type)),
        _ => Err(Malformed("field number out of range")),
    }
}

/// A varint that is read byte by byte.
#[derive(Debug, Default)]
pub(super) struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// Adds a byte. Returns the value if this byte is its last, and starts over.
    #[inline]
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        // The tenth byte has room for one bit.
        if self.shift == 63 && byte > 1 {
            return Err(Malformed("varint of more than 64 bits"));
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        if byte & 0x80 == 0 {
            return Ok(Some(std::mem::take(self).value));
        }
        self.shift += 7;
        Ok(None)
    }

    /// Whether the next byte is the first of a varint.
    pub(super) fn is_empty(&self) -> bool {
        self.shift == 0
    }
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// An integer, a boolean or an enumeration. `as i64` and `as i32` restore signed integers.
    Varint(u64),
    /// The bits of a `fixed64`, `sfixed64` or `double`.
    Fixed64(u64),
    /// A string, bytes, an embedded message, an entry of a map, or a packed list.
    Bytes(&'a [u8]),
    /// The bits of a `fixed32`, `sfixed32` or `float`.
    Fixed32(u32),
}

/// Iterates over the fields of a message, in order, as pairs of number and value.
///
/// An error is the last item.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// The fields of this message.
    #[inline]
    pub fn new(message: &'a [u8]) -> Self {
        Self(message)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, Malformed> {
        // Most tags and lengths take one byte.
        if let Some((&byte, rest)) = self.0.split_first()
            && byte < 0x80
        {
            self.0 = rest;
            return Ok(u64::from(byte));
        }
        let mut varint = Varint::default();
        for (at, &byte) in self.0.iter().enumerate() {
            if let Some(value) = varint.push(byte)? {
                self.0 = &self.0[at + 1..];
                return Ok(value);
            }
        }
        Err(TRUNCATED)
    }

    #[inline]
    fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.varint()?).map_err(|_| TRUNCATED)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(bytes)
    }

    #[inline]
    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or(TRUNCATED)?;
        self.0 = rest;
        Ok(*bytes)
    }

    #[inline]
    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let (number, wire_type) = split_tag(self.varint()?)?;
        let value = match wire_type {
            WireType::Varint => Value::Varint(self.varint()?),
            WireType::Fixed64 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            WireType::Bytes => Value::Bytes(self.bytes()?),
            WireType::Fixed32 => Value::Fixed32(u32::from_le_bytes(self.fixed()?)),
        };
        Ok((number, value))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

/// The bytes of the first field with this number, ignoring whatever follows it.
///
/// Returns `None` if the message has no such field, is malformed before it, or the field has no
/// [bytes](Value::Bytes).
pub fn find_bytes(message: &[u8], number: u32) -> Option<&[u8]> {
    let mut fields = Fields::new(message).map_while(Result::ok);
    match fields.find(|(found, _)| *found == number) {
        Some((_, Value::Bytes(bytes))) => Some(bytes),
        _ => None,
    }
}

/// A message under construction. Fields are written in the order of the calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// An empty message.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Writes a string. An empty one is omitted: readers take an absent string for an empty one.
    pub fn string(&mut self, number: u32, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.bytes(number, text.as_bytes()) }
    }

    /// Writes bytes, which may be empty.
    pub fn bytes(&mut self, number: u32, bytes: &[u8]) -> &mut Self {
        self.raw_varint(u64::from(number) << 3 | 2);
        self.raw_varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Writes an embedded message, which may be empty.
    pub fn message(&mut self, number: u32, message: &Self) -> &mut Self {
        self.bytes(number, &message.0)
    }

    /// Writes an integer, a boolean or an enumeration. Cast signed integers: `-1_i64 as u64`.
    pub fn varint(&mut self, number: u32, value: u64) -> &mut Self {
        self.raw_varint(u64::from(number) << 3);
        self.raw_varint(value);
        self
    }

    /// The message so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The finished message.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    fn raw_varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Sample {
        #[prost(string, tag = "1")]
        text: String,
        #[prost(int64, tag = "16")]
        number: i64,
        #[prost(message, optional, tag = "3000")]
        inner: Option<Inner>,
        #[prost(double, tag = "4")]
        double: f64,
        #[prost(fixed32, tag = "5")]
        fixed: u32,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Inner {
        #[prost(bytes = "vec", tag = "536870911")]
        bytes: Vec<u8>,
    }

    proptest! {
        #[test]
        fn prost_reads_what_the_writer_writes(text in ".{0,300}", number: i64, bytes: Vec<u8>) {
            let (mut message, mut inner) = (Writer::new(), Writer::new());
            inner.bytes(0x1fff_ffff, &bytes);
            message.string(1, &text).varint(16, number as u64).message(3000, &inner);
            let expected = Sample { text, number, inner: Some(Inner { bytes }), ..Sample::default() };
            prop_assert_eq!(Sample::decode(message.as_bytes()), Ok(expected));
        }

        #[test]
        fn fields_reads_what_prost_writes(text in ".{1,300}", number: i64, bytes in prop::collection::vec(0..=255_u8, 1..9), double in 0.5..1e9_f64, fixed in 1_u32..) {
            let inner = Inner { bytes };
            let sample = Sample { text, number, inner: Some(inner.clone()), double, fixed };
            let encoded = sample.encode_to_vec();
            let inner = inner.encode_to_vec();
            let mut fields: Vec<_> = Fields::new(&encoded).map(Result::unwrap).collect();
            fields.sort_by_key(|(number, _)| *number);
            let mut expected = vec![
                (1, Value::Bytes(sample.text.as_bytes())),
                (4, Value::Fixed64(double.to_bits())),
                (5, Value::Fixed32(fixed)),
                (16, Value::Varint(number as u64)),
                (3000, Value::Bytes(&inner)),
            ];
            // prost omits a number that is zero.
            expected.retain(|(_, value)| *value != Value::Varint(0));
            prop_assert_eq!(fields, expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let fields: Vec<_> = Fields::new(&bytes).collect();
            let errors = fields.iter().filter(|field| field.is_err()).count();
            prop_assert_eq!(errors, usize::from(fields.last().is_some_and(Result::is_err)));
        }
    }

    #[test]
    fn fields_have_the_values_of_their_wire_types() {
        let message = b"\x08\x96\x01\x12\x02hi\x19\x01\0\0\0\0\0\0\x80\x25\x02\0\0\0\xa2\x06\x00";
        let fields: Vec<_> = Fields::new(message).map(Result::unwrap).collect();
        assert_eq!(
            fields,
            [
                (1, Value::Varint(150)),
                (2, Value::Bytes(b"hi")),
                (3, Value::Fixed64(1 << 63 | 1)),
                (4, Value::Fixed32(2)),
                (100, Value::Bytes(b"")),
            ]
        );
    }

    #[test]
    fn malformed_messages_end_with_an_error() {
        let largest = [&[0x08][..], &[0xff; 9], &[0x01]].concat();
        assert!(Fields::new(&largest).all(|field| field == Ok((1, Value::Varint(u64::MAX)))));
        let too_large = [&[0x08][..], &[0xff; 9], &[0x02]].concat();
        let endless = [&[0x08][..], &[0xff; 20]].concat();
        for message in [
            &b"\x08"[..],
            b"\x08\x80",
            b"\x12\x05hi",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"\x19abc",
            b"\x0b\x0c",
            b"\x07",
            b"\x00\x01",
            &too_large,
            &endless,
        ] {
            let fields: Vec<_> = Fields::new(message).collect();
            assert!(matches!(fields[..], [Err(Malformed(_))]), "{message:x?}: {fields:?}");
        }
    }

    #[test]
    fn find_bytes_ignores_what_follows_the_field() {
        assert_eq!(find_bytes(b"\x08\x01\x12\x02hi\x0b", 2), Some(&b"hi"[..]));
        assert_eq!(find_bytes(b"\x0b\x12\x02hi", 2), None);
        assert_eq!(find_bytes(b"\x10\x01\x12\x02hi", 2), None);
        assert_eq!(find_bytes(b"\x12\x02hi", 1), None);
    }
}
