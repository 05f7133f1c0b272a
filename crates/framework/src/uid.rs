//! UIDs of pods.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A pod's UID, never reused for another pod.
///
/// API servers assign UUIDs, which are stored as 128-bit numbers: tables with a UID per pod are
/// read on every event. Any other text is valid, too.
#[derive(Clone, PartialEq, Eq)]
pub struct Uid(Repr);

/// A UUID is never a [`Repr::Text`], so equal texts have equal representations.
#[derive(Clone, PartialEq, Eq)]
enum Repr {
    Uuid([u8; 16]),
    Text(Arc<str>),
}

/// The length of a UUID.
const LENGTH: usize = 36;
/// The positions of its hyphens.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uid {
    /// Whether the UID equals this text.
    pub fn is(&self, text: &str) -> bool {
        match &self.0 {
            Repr::Uuid(bytes) => read(text).is_some_and(|read| read == *bytes),
            Repr::Text(own) => **own == *text,
        }
    }

    /// The UID as text.
    pub fn text(&self) -> UidText<'_> {
        UidText(match &self.0 {
            Repr::Uuid(bytes) => Written::Uuid(written(bytes)),
            Repr::Text(text) => Written::Text(text),
        })
    }
}

/// A UID as text, formatted on demand: store the UID, not this.
#[derive(Debug)]
pub struct UidText<'a>(Written<'a>);

#[derive(Debug)]
enum Written<'a> {
    Uuid([u8; LENGTH]),
    Text(&'a str),
}

impl Deref for UidText<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            // Digits and hyphens are valid UTF-8.
            Written::Uuid(bytes) => std::str::from_utf8(bytes).unwrap_or_default(),
            Written::Text(text) => text,
        }
    }
}

/// The number of a UUID in canonical form: lower case, with hyphens.
fn read(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; LENGTH] = text.as_bytes().try_into().ok()?;
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; 16];
    let mut at = 0;
    for byte in &mut bytes {
        if HYPHENS.contains(&at) {
            if text[at] != b'-' {
                return None;
            }
            at += 1;
        }
        *byte = digit(text[at])? << 4 | digit(text[at + 1])?;
        at += 2;
    }
    Some(bytes)
}

fn written(bytes: &[u8; 16]) -> [u8; LENGTH] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; LENGTH];
    let mut at = 0;
    for byte in bytes {
        at += usize::from(HYPHENS.contains(&at));
        text[at] = DIGITS[usize::from(byte >> 4)];
        text[at + 1] = DIGITS[usize::from(byte & 15)];
        at += 2;
    }
    text
}

impl Hash for Uid {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        match &self.0 {
            Repr::Uuid(bytes) => state.write_u128(u128::from_be_bytes(*bytes)),
            Repr::Text(text) => text.hash(state),
        }
    }
}

/// The order of the texts.
impl Ord for Uid {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            // Letters sort after digits, as their values do.
            (Repr::Uuid(a), Repr::Uuid(b)) => a.cmp(b),
            _ => self.text().cmp(&other.text()),
        }
    }
}

impl PartialOrd for Uid {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Uid").field(&&*self.text()).finish()
    }
}

impl From<&str> for Uid {
    fn from(uid: &str) -> Self {
        Self(read(uid).map_or_else(|| Repr::Text(uid.into()), Repr::Uuid))
    }
}

impl Serialize for Uid {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for Uid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Arc::<str>::deserialize(deserializer)?;
        Ok(Self(read(&text).map_or(Repr::Text(text), Repr::Uuid)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const UUID: &str = "0b8b1c9e-5f07-4a00-8000-0123456789ab";

    #[test]
    fn uuids_are_inline_and_round_trip() {
        let uid = Uid::from(UUID);
        assert!(matches!(uid.0, Repr::Uuid(_)));
        assert_eq!((&*uid.text(), uid.to_string().as_str()), (UUID, UUID));
        assert_eq!(format!("{uid:?}"), format!("Uid({UUID:?})"));
        assert!(uid.is(UUID) && !uid.is("another"));
        assert_eq!(serde_json::to_string(&uid).unwrap(), format!("{UUID:?}"));
    }

    #[test]
    fn non_canonical_uuids_are_kept_as_text() {
        for text in [
            "",
            "a",
            "0B8B1C9E-5F07-4A00-8000-0123456789AB",
            "0b8b1c9e5f074a0080000123456789ab",
            "0b8b1c9e-5f07-4a00-8000-0123456789ag",
            "0b8b1c9e-5f07-4a00-80000-123456789ab",
            "0b8b1c9e_5f07_4a00_8000_0123456789ab",
        ] {
            let uid = Uid::from(text);
            assert!(matches!(uid.0, Repr::Text(_)), "{text}");
            assert_eq!(&*uid.text(), text);
        }
    }

    fn text() -> impl Strategy<Value = String> {
        prop_oneof!["[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "[0-9a-g-]{0,37}"]
    }

    proptest! {
        #[test]
        fn uids_compare_like_their_texts(a in text(), b in text()) {
            let (one, other) = (Uid::from(&*a), Uid::from(&*b));
            prop_assert_eq!(&*one.text(), &*a);
            prop_assert_eq!(one.cmp(&other), a.cmp(&b));
            prop_assert_eq!(one == other, a == b);
            prop_assert_eq!(one.is(&b), a == b);
            let back: Uid = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
            prop_assert_eq!(back, one);
        }
    }
}
