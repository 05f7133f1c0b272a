//! Protobuf's wire format.

use super::error::{ProtobufError, Result};

/// The wire types.
pub(super) const VARINT: u32 = 0;
pub(super) const FIXED64: u32 = 1;
pub(super) const LENGTH: u32 = 2;
const GROUP_START: u32 = 3;
const FIXED32: u32 = 5;

pub(super) fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(low_bits(value) | 0x80);
        value >>= 7;
    }
    out.push(low_bits(value));
}

fn low_bits(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

/// The number of bytes of an encoded length.
pub(super) fn varint_len(length: usize) -> usize {
    let bits = usize::BITS - (length | 1).leading_zeros();
    bits.div_ceil(7) as usize
}

pub(super) fn tag(number: u32, wire_type: u32, out: &mut Vec<u8>) {
    varint(u64::from(number << 3 | wire_type), out);
}

pub(super) fn bytes(number: u32, value: &[u8], out: &mut Vec<u8>) {
    tag(number, LENGTH, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

pub(super) fn integer(number: u32, value: i64, out: &mut Vec<u8>) {
    tag(number, VARINT, out);
    varint(value.cast_unsigned(), out);
}

/// Writes a nested message. Its length precedes it but is known last: one byte is reserved, which
/// is usually enough.
pub(super) fn nested(
    number: u32,
    out: &mut Vec<u8>,
    message: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    tag(number, LENGTH, out);
    let at = out.len();
    out.push(0);
    message(out)?;
    let length = out.len() - at - 1;
    let extra = varint_len(length) - 1;
    if extra > 0 {
        out.resize(out.len() + extra, 0);
        out.copy_within(at + 1..at + 1 + length, at + 1 + extra);
    }
    let mut rest = length;
    for place in &mut out[at..at + extra] {
        *place = low_bits(rest as u64) | 0x80;
        rest >>= 7;
    }
    out[at + extra] = low_bits(rest as u64);
    Ok(())
}

/// The encoded value of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Datum<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a message, in wire order.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn read(&mut self) -> Result<(u32, Datum<'a>)> {
        let key = read_varint(&mut self.rest)?;
        let number = u32::try_from(key >> 3).map_err(|_| ProtobufError::Broken("illegal tag"))?;
        if number == 0 {
            return Err(ProtobufError::Broken("illegal tag"));
        }
        let datum = match u32::from(low_bits(key)) & 7 {
            VARINT => Datum::Varint(read_varint(&mut self.rest)?),
            FIXED64 => Datum::Fixed(u64::from_le_bytes(self.take_array()?)),
            FIXED32 => Datum::Fixed(u64::from(u32::from_le_bytes(self.take_array()?))),
            LENGTH => {
                let length = usize::try_from(read_varint(&mut self.rest)?).map_err(|_| TOO_SHORT)?;
                Datum::Bytes(self.take(length)?)
            }
            GROUP_START => return Err(ProtobufError::Broken("groups are not supported")),
            _ => return Err(ProtobufError::Broken("illegal wireType")),
        };
        Ok((number, datum))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(*taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Datum<'a>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let read = self.read();
        if read.is_err() {
            self.rest = &[];
        }
        Some(read)
    }
}

const TOO_SHORT: ProtobufError = ProtobufError::Broken("unexpected EOF");

pub(super) fn read_varint(rest: &mut &[u8]) -> Result<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(TOO_SHORT)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Broken("integer overflow"))
}

pub(super) fn text(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| ProtobufError::Broken("a string is not UTF-8"))
}
