//! A minimal protobuf reader and writer.

/// The length-delimited fields of a message with their numbers. An invalid field ends the
/// iteration.
pub(crate) fn fields(mut message: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    std::iter::from_fn(move || {
        loop {
            let tag = varint(&mut message)?;
            match tag & 7 {
                0 => {
                    varint(&mut message)?;
                }
                1 => message = message.get(8..)?,
                2 => {
                    let length = usize::try_from(varint(&mut message)?).ok()?;
                    let (field, rest) = message.split_at_checked(length)?;
                    message = rest;
                    return Some((tag >> 3, field));
                }
                5 => message = message.get(4..)?,
                _ => return None,
            }
        }
    })
}

/// The first field with a number.
pub(crate) fn field(message: &[u8], number: u64) -> Option<&[u8]> {
    fields(message).find(|(found, _)| *found == number).map(|(_, field)| field)
}

/// The first field with a number as text; empty if it is missing.
pub(crate) fn text(message: &[u8], number: u64) -> &str {
    field(message, number).and_then(|field| std::str::from_utf8(field).ok()).unwrap_or_default()
}

fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = message.split_first()?;
        *message = rest;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            return Some(value);
        }
    }
    None
}

/// A message to write.
#[derive(Default)]
pub(crate) struct Message(Vec<u8>);

impl Message {
    pub(crate) fn bytes(mut self, number: u64, bytes: &[u8]) -> Self {
        self.varint(number << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    /// Appends a text unless it is empty.
    pub(crate) fn text(self, number: u64, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(number, text.as_bytes()) }
    }

    pub(crate) fn message(self, number: u64, message: &Self) -> Self {
        self.bytes(number, &message.0)
    }

    pub(crate) fn number(mut self, number: u64, value: u64) -> Self {
        self.varint(number << 3);
        self.varint(value);
        self
    }

    /// The message with the Kubernetes prefix and type, as the API server reads it.
    pub(crate) fn into_body(self, version: &str, kind: &str) -> Vec<u8> {
        let what = Self::default().text(1, version).text(2, kind);
        let unknown = Self::default().message(1, &what).message(2, &self);
        [MAGIC, &unknown.0].concat()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 128 {
            self.0.push(value as u8 | 128);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

/// The prefix of every object on the wire.
const MAGIC: &[u8] = b"k8s\0";

/// The object after the prefix.
pub(crate) fn object(body: &[u8]) -> Option<&[u8]> {
    field(body.strip_prefix(MAGIC)?, 2)
}
