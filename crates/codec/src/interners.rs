//! The interners that all kinds use, and the conversions that need them.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use supercargo_framework::labels::{Label, Labels};
use supercargo_framework::pod::OwnerRef;
use supercargo_framework::quantity;
use supercargo_framework::requests::ResourceList;
use supercargo_framework::resource::names;

use super::error::{DecodeErrorKind, FieldError};
use super::intern::{Fresh, Interner};
use super::json::{Pairs, Str};
use super::metadata::{DeclaredKeys, OwnerReference};

/// Interners of texts, label sets and owners.
#[derive(Debug, Default)]
pub(super) struct Interners {
    texts: Interner<str>,
    lists: Interner<[Arc<str>]>,
    label_sets: Interner<[Label]>,
    owners: Interner<OwnerRef>,
}

/// The shared copy of a sized value.
pub(super) fn share<T: Eq + Hash>(interner: &mut Interner<T>, value: T) -> Arc<T> {
    interner.intern(Fresh(value))
}

impl Interners {
    /// The shared copy of a text.
    pub(super) fn text(&mut self, text: &str) -> Arc<str> {
        self.texts.intern(text)
    }

    /// The shared copy of a text; `None` if it is empty.
    pub(super) fn optional_text(&mut self, text: &str) -> Option<Arc<str>> {
        (!text.is_empty()).then(|| self.text(text))
    }

    /// The shared copies of several texts.
    pub(super) fn texts(&mut self, texts: &[Str<'_>]) -> Box<[Arc<str>]> {
        texts.iter().map(|text| self.text(text)).collect()
    }

    /// The shared copy of a list of texts.
    pub(super) fn list(&mut self, texts: &[Str<'_>]) -> Arc<[Arc<str>]> {
        let texts = self.texts(texts);
        self.lists.intern(texts)
    }

    /// The shared copy of a label set, with shared keys and values.
    pub(super) fn labels<'p>(&mut self, pairs: impl Iterator<Item = (&'p str, &'p str)>) -> Labels {
        let shared = pairs.map(|(key, value)| (self.text(key), self.text(value)));
        let labels = shared.collect();
        Labels::shared(labels, |labels| self.label_sets.intern(labels))
    }

    /// The shared copy of the annotations that plugins declared.
    pub(super) fn annotations(&mut self, all: &Pairs<'_>, declared: &DeclaredKeys) -> Labels {
        self.labels(all.iter().filter(|(key, _)| declared.contains(key)))
    }

    /// A resource list in the scheduler's units: thousandths for CPU, whole units for all others.
    pub(super) fn resource_list(
        &mut self,
        list: &Pairs<'_>,
        path: fmt::Arguments<'_>,
    ) -> Result<ResourceList, FieldError> {
        list.iter()
            .map(|(name, quantity)| {
                let amount = if name == names::CPU {
                    quantity::milli_value(quantity)
                } else {
                    quantity::value(quantity)
                };
                let amount = amount.map_err(|error| {
                    FieldError::new(format_args!("{path}[{name}]"), DecodeErrorKind::Quantity(error))
                })?;
                Ok((self.text(name), amount))
            })
            .collect()
    }

    /// The shared copy of an owner.
    pub(super) fn owner(&mut self, owner: &OwnerReference<'_>) -> Arc<OwnerRef> {
        let owner = OwnerRef {
            api_version: self.text(&owner.api_version),
            kind: self.text(&owner.kind),
            name: self.text(&owner.name),
            uid: self.text(&owner.uid),
        };
        share(&mut self.owners, owner)
    }

    /// The number of interned values.
    pub(super) fn len(&self) -> usize {
        self.texts.len() + self.lists.len() + self.label_sets.len() + self.owners.len()
    }

    /// Drops unused values. Sets go before texts, because they hold texts.
    pub(super) fn sweep(&mut self) {
        self.lists.sweep();
        self.label_sets.sweep();
        self.owners.sweep();
        self.texts.sweep();
    }
}
