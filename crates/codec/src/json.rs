//! Building blocks of the slim types: text, objects, lists and maps for which `null` means absent.
//!
//! serde's derive accepts `[]` for a struct and copies every `Option<Cow<str>>`. These types do
//! neither.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use supercargo_framework::steps;

/// Text that is borrowed from the document unless it contains escapes. Absent text is empty, as in
/// Go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Str<'a>(pub(super) Cow<'a, str>);

/// An object with the fields of `T`.
#[derive(Debug, Default, Hash)]
pub(super) struct Obj<T>(pub(super) T);

/// An array.
#[derive(Debug, Hash)]
pub(super) struct List<T>(pub(super) Vec<T>);

/// An object with string values, in document order.
#[derive(Debug, Default)]
pub(super) struct Pairs<'a>(pub(super) Vec<(Str<'a>, Str<'a>)>);

/// An object with values of one type, in document order.
#[derive(Debug)]
pub(super) struct Entries<'a, T>(pub(super) Vec<(Str<'a>, T)>);

/// The keys of an object, in document order. Values are skipped.
#[derive(Debug, Default)]
pub(super) struct Keys<'a>(pub(super) Vec<Str<'a>>);

impl<T> Default for List<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Default for Entries<'_, T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl Deref for Str<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T> Deref for Obj<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl Pairs<'_> {
    /// Keys and values in document order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl Str<'_> {
    /// The text; `None` if it is empty.
    pub(super) fn non_empty(&self) -> Option<&str> {
        Some(&**self).filter(|text| !text.is_empty())
    }

    #[cfg(test)]
    pub(super) fn is_borrowed(&self) -> bool {
        matches!(self.0, Cow::Borrowed(_))
    }
}

/// A visitor that deserializes `V` from its JSON type or from null.
struct Make<V>(PhantomData<V>);

fn make<'de, V, D>(deserializer: D) -> Result<V, D::Error>
where
    D: Deserializer<'de>,
    Make<V>: Visitor<'de, Value = V>,
{
    deserializer.deserialize_any(Make(PhantomData))
}

impl<'de: 'a, 'a> Deserialize<'de> for Str<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        make(deserializer)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Make<Str<'a>> {
    type Value = Str<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Str<'a>, E> {
        Ok(Str(Cow::Borrowed(text)))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Str<'a>, E> {
        Ok(Str(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E: Error>(self) -> Result<Str<'a>, E> {
        Ok(Str::default())
    }
}

impl<'de, T: Deserialize<'de> + Default> Deserialize<'de> for Obj<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        make(deserializer)
    }
}

impl<'de, T: Deserialize<'de> + Default> Visitor<'de> for Make<Obj<T>> {
    type Value = Obj<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Obj<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Obj)
    }

    fn visit_unit<E: Error>(self) -> Result<Obj<T>, E> {
        Ok(Obj::default())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for List<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        make(deserializer)
    }
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for Make<List<T>> {
    type Value = List<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<List<T>, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = seq.next_element()? {
            steps::add(1);
            elements.push(element);
        }
        Ok(List(elements))
    }

    fn visit_unit<E: Error>(self) -> Result<List<T>, E> {
        Ok(List::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        make(deserializer)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Make<Pairs<'a>> {
    type Value = Pairs<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs<'a>, A::Error> {
        let mut pairs = Vec::new();
        while let Some(pair) = map.next_entry()? {
            steps::add(1);
            pairs.push(pair);
        }
        Ok(Pairs(pairs))
    }

    fn visit_unit<E: Error>(self) -> Result<Pairs<'a>, E> {
        Ok(Pairs::default())
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Deserialize<'de> for Entries<'a, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        make(deserializer)
    }
}

impl<'de: 'a, 'a, T: Deserialize<'de>> Visitor<'de> for Make<Entries<'a, T>> {
    type Value = Entries<'a, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries<'a, T>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            steps::add(1);
            entries.push(entry);
        }
        Ok(Entries(entries))
    }

    fn visit_unit<E: Error>(self) -> Result<Entries<'a, T>, E> {
        Ok(Entries::default())
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Keys<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        make(deserializer)
    }
}

impl<'de: 'a, 'a> Visitor<'de> for Make<Keys<'a>> {
    type Value = Keys<'a>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Keys<'a>, A::Error> {
        let mut keys = Vec::new();
        while let Some((key, IgnoredAny)) = map.next_entry()? {
            keys.push(key);
        }
        Ok(Keys(keys))
    }

    fn visit_unit<E: Error>(self) -> Result<Keys<'a>, E> {
        Ok(Keys::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_borrowed_unless_it_has_escapes() {
        let document = r#"["plain", "a \"quoted\" \u00fc"]"#;
        let texts: List<Str<'_>> = serde_json::from_str(document).unwrap();
        assert_eq!(texts.iter().map(|text| &**text).collect::<Vec<_>>(), ["plain", "a \"quoted\" ü"]);
        assert_eq!(texts.iter().map(Str::is_borrowed).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn null_is_absent_and_arrays_are_not_objects() {
        assert_eq!(serde_json::from_str::<Str<'_>>("null").unwrap().non_empty(), None);
        assert!(serde_json::from_str::<List<Str<'_>>>("null").unwrap().is_empty());
        assert_eq!(serde_json::from_str::<Pairs<'_>>("null").unwrap().iter().count(), 0);
        assert!(serde_json::from_str::<Pairs<'_>>("[]").is_err());
        assert!(serde_json::from_str::<Obj<(i32,)>>("[1]").is_err());
    }
}
