//! Object keys, `namespace/name` or `name`, and deleted objects.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

use thiserror::Error;

use crate::kind::Kind;

/// The identity of an object within its kind: `namespace/name`, or `name` when it has no namespace.
///
/// Cheap to clone, and equal to its text: maps with `ObjectKey` keys support lookups by `&str`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey(Arc<str>);

/// A map by key. Users choose the names of objects, so hashes must not be predictable: the standard
/// library's hasher has its own seed for every map.
pub(crate) type KeyMap<V> = HashMap<ObjectKey, V>;
/// A set of keys, with the same hasher.
pub(crate) type KeySet = HashSet<ObjectKey>;

/// A text that is not an object key.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// More than one `/`: neither `name` nor `namespace/name`.
    #[error("unexpected key format: {0:?}")]
    TooManyParts(String),
}

impl ObjectKey {
    /// The key of an object in `namespace`; without one (`None` or empty) the key is the bare name.
    pub fn new(namespace: Option<&str>, name: &str) -> Self {
        match namespace {
            Some(namespace) if !namespace.is_empty() => {
                // Nearly all keys fit into this buffer, so that only the shared text is allocated.
                let mut short = [0; 128];
                let length = namespace.len() + 1 + name.len();
                if let Some(text) = short.get_mut(..length) {
                    let (head, tail) = text.split_at_mut(namespace.len());
                    head.copy_from_slice(namespace.as_bytes());
                    tail[0] = b'/';
                    tail[1..].copy_from_slice(name.as_bytes());
                    if let Ok(text) = str::from_utf8(text) {
                        return Self(text.into());
                    }
                }
                Self(format!("{namespace}/{name}").into())
            }
            _ => Self(name.into()),
        }
    }

    /// Parses `namespace/name` or `name`.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        if text.bytes().filter(|byte| *byte == b'/').count() > 1 {
            return Err(KeyError::TooManyParts(text.to_owned()));
        }
        Ok(Self(text.into()))
    }

    /// Takes the text as the key, without validation; same as client-go's `ExplicitKey`.
    pub fn explicit(text: &str) -> Self {
        Self(text.into())
    }

    /// Whether `text` is the key of the object with this name in `namespace` (see
    /// [`new`](Self::new)).
    pub fn is_text_of(text: &str, namespace: Option<&str>, name: &str) -> bool {
        match namespace {
            Some(namespace) if !namespace.is_empty() => {
                let rest = text.strip_prefix(namespace).and_then(|rest| rest.strip_prefix('/'));
                rest == Some(name)
            }
            _ => text == name,
        }
    }

    /// The namespace, if the key has one.
    pub fn namespace(&self) -> Option<&str> {
        self.0.split_once('/').map(|(namespace, _)| namespace)
    }

    /// The name.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for ObjectKey {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ObjectKey {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A deleted object.
#[derive(Debug)]
pub enum Deleted<T> {
    /// The watch delivered the deletion, with the object's final state.
    Known(Arc<T>),
    /// The deletion was missed and detected later (a tombstone). The final state is unknown.
    FinalStateUnknown {
        /// The key of the deleted object.
        key: ObjectKey,
        /// The last known state, which may be stale.
        last: Option<Arc<T>>,
    },
}

impl<T> Deleted<T> {
    /// The key of the deleted object. A tombstone's own key takes precedence over its object. Same
    /// as client-go's `DeletionHandlingMetaNamespaceKeyFunc`.
    pub fn key<K: Kind<Object = T>>(&self, kind: &K) -> ObjectKey {
        match self {
            Self::Known(object) => kind.key(object),
            Self::FinalStateUnknown { key, .. } => key.clone(),
        }
    }

    /// The final state or, for a tombstone, the last known one.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Known(object) => Some(object),
            Self::FinalStateUnknown { last, .. } => last.as_ref(),
        }
    }

    /// Whether this is a tombstone, whose object may be stale.
    pub fn is_final_state_unknown(&self) -> bool {
        matches!(self, Self::FinalStateUnknown { .. })
    }
}

// A derived implementation would require `T: Clone`; cloning the `Arc` does not.
impl<T> Clone for Deleted<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Known(object) => Self::Known(Arc::clone(object)),
            Self::FinalStateUnknown { key, last } => {
                Self::FinalStateUnknown { key: key.clone(), last: last.clone() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;
    use crate::kind::Typed;

    #[test]
    fn a_key_splits_into_namespace_and_name() {
        for (namespace, name, text) in [
            (Some("ns"), "a", "ns/a"),
            (None, "a", "a"),
            (Some(""), "a", "a"),
            (Some("ns"), "a.b-c", "ns/a.b-c"),
        ] {
            let key = ObjectKey::new(namespace, name);
            assert_eq!(key.as_str(), text);
            assert_eq!(key.namespace(), namespace.filter(|namespace| !namespace.is_empty()));
            assert_eq!(key.name(), name);
            assert!(ObjectKey::is_text_of(text, namespace, name));
            assert!(!ObjectKey::is_text_of(&format!("{text}x"), namespace, name));
            assert!(!ObjectKey::is_text_of(text, Some("other"), name));
            assert_eq!(ObjectKey::parse(text), Ok(key));
        }
    }

    #[test]
    fn a_key_with_two_slashes_is_rejected() {
        assert_eq!(ObjectKey::parse("a/b/c"), Err(KeyError::TooManyParts("a/b/c".to_owned())));
    }

    #[test]
    fn a_tombstone_without_an_object_has_none() {
        let deleted = Deleted::<u8>::FinalStateUnknown { key: ObjectKey::new(None, "a"), last: None };
        assert!(deleted.object().is_none() && deleted.is_final_state_unknown());
        assert_eq!(Deleted::Known(Arc::new(1)).clone().object(), Some(&Arc::new(1)));
    }

    #[test]
    fn a_deleted_object_has_the_key_of_the_stored_one() {
        let maps = Typed::<ConfigMap>::new();
        let mut map = ConfigMap::default();
        map.metadata.name = Some("a".to_owned());
        map.metadata.namespace = Some("ns".to_owned());
        let map = Arc::new(map);
        assert_eq!(Deleted::Known(Arc::clone(&map)).key(&maps).as_str(), "ns/a");
        // A tombstone's own key takes precedence, even if it is malformed.
        for text in ["ns/a", "b", "odd/key/of/many/parts", ""] {
            for last in [Some(Arc::clone(&map)), None] {
                let key = ObjectKey::explicit(text);
                let deleted = Deleted::FinalStateUnknown { key, last };
                assert_eq!(deleted.key(&maps).as_str(), text);
            }
        }
        let mut node = Node::default();
        node.metadata.name = Some("n".to_owned());
        let nodes = Typed::<Node>::new();
        let key = Deleted::Known(Arc::new(node)).key(&nodes);
        assert_eq!((key.namespace(), key.name()), (None, "n"));
    }
}
