//! Label and field selectors in queries.

mod field;
mod label;

use crate::kinds::Kind;
use crate::object::StoredObject;
use crate::request::QueryOptions;
use crate::status::Result;
use crate::strategy;
use field::FieldSelector;
use label::LabelSelector;

/// The selectors of a list or watch.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selector {
    /// Parses both selectors. Fields that the kind does not support are rejected.
    pub(crate) fn parse(kind: &Kind, query: &QueryOptions) -> Result<Self> {
        let labels = LabelSelector::parse(query.text("labelSelector"))?;
        let fields = FieldSelector::parse(query.text("fieldSelector"), strategy::of(kind), kind.custom)?;
        Ok(Self { labels, fields })
    }

    /// Whether the selector matches everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether the selector matches an object.
    pub(crate) fn matches(&self, object: &StoredObject) -> bool {
        self.fields.matches(object) && self.labels.matches(&object.labels)
    }
}
