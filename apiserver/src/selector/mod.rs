//! Label and field selectors, as they stand in a query.

mod field;
mod label;

use crate::object::Object;
use crate::status::Result;
use crate::strategy::Strategy;
use field::FieldSelector;
use label::LabelSelector;

/// What a list or watch asks for.
#[derive(Debug, Default)]
pub(crate) struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

impl Selector {
    /// Reads both selectors. Fields that the kind does not offer are refused.
    pub(crate) fn parse(labels: &str, fields: &str, strategy: &dyn Strategy) -> Result<Self> {
        Ok(Self { labels: LabelSelector::parse(labels)?, fields: FieldSelector::parse(fields, strategy)? })
    }

    /// Whether everything matches.
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Whether an object matches.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.fields.matches(object) && self.labels.matches(&object.labels)
    }

    /// The same, for one object only. A selector for another name is refused.
    pub(crate) fn named(self, name: &str) -> Result<Self> {
        Ok(Self { fields: self.fields.named(name)?, ..self })
    }
}
