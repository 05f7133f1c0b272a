//! The path of an invalid field. A path is built while descending and only formatted for an error,
//! so that validating a valid object does not allocate.

use std::fmt;

use serde_json::Value;

use crate::status::StatusCause;

/// The path of a field, for example `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: FieldStep<'a>,
}

#[derive(Clone, Copy, Debug)]
enum FieldStep<'a> {
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A top-level field.
    pub(crate) const fn root(name: &'a str) -> Self {
        Self { parent: None, step: FieldStep::Child(name) }
    }

    /// A field of this object.
    pub(crate) const fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: FieldStep::Child(name) }
    }

    /// An item of this list.
    pub(crate) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: FieldStep::Index(index) }
    }

    /// A value of this map.
    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: FieldStep::Key(key) }
    }

    /// The field is required.
    pub(crate) fn required(&self, detail: &str) -> StatusCause {
        StatusCause::required(self.to_string(), detail)
    }

    /// The value is invalid.
    pub(crate) fn invalid(&self, value: impl Into<Value>, detail: &str) -> StatusCause {
        StatusCause::invalid(self.to_string(), &value.into(), detail)
    }

    /// The value is a duplicate.
    pub(crate) fn duplicate(&self, value: impl Into<Value>) -> StatusCause {
        StatusCause::duplicate(self.to_string(), &value.into())
    }

    /// The field must not be set or changed.
    pub(crate) fn forbidden(&self, detail: &str) -> StatusCause {
        StatusCause::forbidden(self.to_string(), detail)
    }

    /// The value refers to something that does not exist.
    pub(crate) fn not_found(&self, value: impl Into<Value>, detail: &str) -> StatusCause {
        let (shown, colon) = (value.into(), if detail.is_empty() { "" } else { ": " });
        StatusCause {
            reason: "FieldValueNotFound",
            message: format!("Not found: {shown}{colon}{detail}"),
            field: self.to_string(),
        }
    }

    /// The value is not a supported one. As upstream, the error lists the supported values in the
    /// order given.
    pub(crate) fn not_supported(&self, value: impl Into<Value>, supported: &[&str]) -> StatusCause {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", value.into(), supported.join(", "));
        StatusCause { reason: "FieldValueNotSupported", message, field: self.to_string() }
    }

    /// The value exceeds the limit in bytes.
    pub(crate) fn too_long(&self, limit: usize) -> StatusCause {
        StatusCause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {limit} bytes"),
            field: self.to_string(),
        }
    }

    /// Adds an error for each thing that is wrong with a value.
    pub(crate) fn invalid_all<'m>(
        &self,
        value: &str,
        wrong: impl IntoIterator<Item = std::borrow::Cow<'m, str>>,
        causes: &mut Vec<StatusCause>,
    ) {
        causes.extend(wrong.into_iter().map(|detail| self.invalid(value, &detail)));
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            write!(f, "{parent}")?;
        }
        match self.step {
            FieldStep::Child(name) if self.parent.is_none() => f.write_str(name),
            FieldStep::Child(name) => write!(f, ".{name}"),
            FieldStep::Index(index) => write!(f, "[{index}]"),
            FieldStep::Key(key) => write!(f, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_formatted_as_upstream_does() {
        let spec = Path::root("spec");
        let containers = spec.child("containers");
        let first = containers.index(0);
        let limits = first.child("limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.containers[0].limits[cpu]");
    }

    #[test]
    fn supported_values_keep_their_order() {
        let cause = Path::root("effect").not_supported("Never", &["NoSchedule", "NoExecute"]);
        assert_eq!(
            cause.message,
            r#"Unsupported value: "Never": supported values: "NoSchedule", "NoExecute""#
        );
    }
}
