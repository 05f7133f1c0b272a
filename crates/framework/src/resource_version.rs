//! The version of an object.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An object's `resourceVersion`: a text that is only compared for equality. The numbers of API
/// servers are stored inline.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Repr);

/// A short text is never a [`Repr::Long`], and unused bytes are 0, so equal texts have equal
/// representations.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Repr {
    Short { length: u8, bytes: [u8; SHORT] },
    Long(Arc<str>),
}

/// The bytes that fit in three words with a length; a 64-bit number has at most 20 digits.
const SHORT: usize = 22;

impl Deref for ResourceVersion {
    type Target = str;

    fn deref(&self) -> &str {
        match &self.0 {
            // Copied from a valid text.
            Repr::Short { length, bytes } => {
                bytes.get(..usize::from(*length)).map_or("", |text| std::str::from_utf8(text).unwrap_or(""))
            }
            Repr::Long(text) => text,
        }
    }
}

impl From<&str> for ResourceVersion {
    fn from(text: &str) -> Self {
        let mut bytes = [0; SHORT];
        match bytes.get_mut(..text.len()) {
            Some(place) => {
                place.copy_from_slice(text.as_bytes());
                Self(Repr::Short { length: text.len() as u8, bytes })
            }
            None => Self(Repr::Long(text.into())),
        }
    }
}

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl Serialize for ResourceVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

impl<'de> Deserialize<'de> for ResourceVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::from(&*Arc::<str>::deserialize(deserializer)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_longest_number_is_inline() {
        let version = ResourceVersion::from(u64::MAX.to_string().as_str());
        assert!(matches!(version.0, Repr::Short { .. }));
        assert_eq!(size_of::<ResourceVersion>(), 24);
    }

    proptest! {
        #[test]
        fn texts_round_trip(one in "[0-9é]{0,30}", other in "[0-9é]{0,30}") {
            let version = ResourceVersion::from(one.as_str());
            prop_assert_eq!(&*version, one.as_str());
            prop_assert_eq!(version == ResourceVersion::from(other.as_str()), one == other);
            let json = serde_json::to_string(&version).unwrap();
            prop_assert_eq!(&json, &serde_json::to_string(&one).unwrap());
            prop_assert_eq!(serde_json::from_str::<ResourceVersion>(&json).unwrap(), version);
        }
    }
}
