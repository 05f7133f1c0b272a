//! Just enough of protobuf's encoding to find messages within messages without taking them apart.

use thiserror::Error;

/// Not protobuf, or not what it should be.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("malformed protobuf: {0}")]
pub(crate) struct Malformed(pub(crate) &'static str);

/// How a field's value is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WireType {
    Varint,
    Fixed64,
    Bytes,
    Fixed32,
}

/// A field's number and wire type out of its tag.
pub(super) fn tag(tag: u64) -> Result<(u32, WireType), Malformed> {
    let wire_type = match tag & 7 {
        0 => WireType::Varint,
        1 => WireType::Fixed64,
        2 => WireType::Bytes,
        5 => WireType::Fixed32,
        _ => return Err(Malformed("a wire type that Kubernetes does not use")),
    };
    match u32::try_from(tag >> 3) {
        Ok(number @ 1..=0x1fff_ffff) => Ok((number, wire_type)),
        _ => Err(Malformed("a field number out of range")),
    }
}

/// A varint that arrives byte by byte.
#[derive(Debug, Default)]
pub(super) struct Varint {
    value: u64,
    shift: u32,
}

impl Varint {
    /// The value, if this was its last byte; the next byte begins another.
    pub(super) fn push(&mut self, byte: u8) -> Result<Option<u64>, Malformed> {
        // The tenth byte has room for one bit.
        if self.shift == 63 && byte > 1 {
            return Err(Malformed("a number of more than 64 bits"));
        }
        self.value |= u64::from(byte & 0x7f) << self.shift;
        if byte & 0x80 == 0 {
            return Ok(Some(std::mem::take(self).value));
        }
        self.shift += 7;
        Ok(None)
    }

    /// Whether no varint has been begun.
    pub(super) fn is_empty(&self) -> bool {
        self.shift == 0
    }
}

/// The fields of a message in their order: their numbers and, of those that have a length, the bytes. What is
/// malformed is the last.
pub(crate) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut varint = Varint::default();
        while let Some((byte, rest)) = self.0.split_first() {
            self.0 = rest;
            if let Some(value) = varint.push(*byte)? {
                return Ok(value);
            }
        }
        Err(TOO_SHORT)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| TOO_SHORT)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u32, Option<&'a [u8]>), Malformed> {
        let (number, wire_type) = tag(self.varint()?)?;
        let bytes = match wire_type {
            WireType::Varint => self.varint().map(|_| None)?,
            WireType::Fixed64 => self.bytes(8).map(|_| None)?,
            WireType::Fixed32 => self.bytes(4).map(|_| None)?,
            WireType::Bytes => {
                let length = self.varint()?;
                Some(self.bytes(length)?)
            }
        };
        Ok((number, bytes))
    }
}

const TOO_SHORT: Malformed = Malformed("a message that ends too early");

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Option<&'a [u8]>), Malformed>;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_every_wire_type_are_told_apart() {
        let message = b"\x08\x96\x01\x12\x02hi\x19abcdefgh\x25abcd\xa2\x06\x00";
        let fields: Vec<_> = Fields::of(message).map(Result::unwrap).collect();
        assert_eq!(fields, [(1, None), (2, Some(&b"hi"[..])), (3, None), (4, None), (100, Some(&b""[..]))]);
    }

    #[test]
    fn what_is_malformed_is_an_error_and_the_end() {
        let largest = [&[0x08][..], &[0xff; 9], &[0x01]].concat();
        assert!(Fields::of(&largest).all(|field| field == Ok((1, None))));
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
            let fields: Vec<_> = Fields::of(message).collect();
            assert!(matches!(fields[..], [Err(Malformed(_))]), "{message:x?}: {fields:?}");
        }
    }
}
