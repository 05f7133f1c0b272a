//! Where in an object something is wrong. A path is built while walking down and only written out when there is something to
//! say, so that checks of sound objects cost no allocations.

use std::fmt;

use serde_json::Value;

use crate::status::Cause;

/// A field of an object, as `spec.containers[0].name`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Child(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub(crate) const fn root(name: &'a str) -> Self {
        Self { parent: None, step: Step::Child(name) }
    }

    /// A field of what is here.
    pub(crate) const fn child(&'a self, name: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Child(name) }
    }

    /// An item of the list that is here.
    pub(crate) const fn index(&'a self, index: usize) -> Self {
        Self { parent: Some(self), step: Step::Index(index) }
    }

    /// A value of the map that is here.
    pub(crate) const fn key(&'a self, key: &'a str) -> Self {
        Self { parent: Some(self), step: Step::Key(key) }
    }

    /// It must be there.
    pub(crate) fn required(&self, detail: &str) -> Cause {
        Cause::required(self.to_string(), detail)
    }

    /// It cannot be that.
    pub(crate) fn invalid(&self, value: impl Into<Value>, detail: &str) -> Cause {
        Cause::invalid(self.to_string(), &value.into(), detail)
    }

    /// It is there twice.
    pub(crate) fn duplicate(&self, value: impl Into<Value>) -> Cause {
        Cause::duplicate(self.to_string(), &value.into())
    }

    /// It must not be there, or not be changed.
    pub(crate) fn forbidden(&self, detail: &str) -> Cause {
        Cause::forbidden(self.to_string(), detail)
    }

    /// It refers to what is not there.
    pub(crate) fn not_found(&self, value: impl Into<Value>, detail: &str) -> Cause {
        let (shown, colon) = (value.into(), if detail.is_empty() { "" } else { ": " });
        Cause {
            reason: "FieldValueNotFound",
            message: format!("Not found: {shown}{colon}{detail}"),
            field: self.to_string(),
        }
    }

    /// It is none of those that can be. They are named in the order given, as upstream does.
    pub(crate) fn not_supported(&self, value: impl Into<Value>, supported: &[&str]) -> Cause {
        let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", value.into(), supported.join(", "));
        Cause { reason: "FieldValueNotSupported", message, field: self.to_string() }
    }

    /// It is longer than that, in bytes.
    pub(crate) fn too_long(&self, limit: usize) -> Cause {
        Cause {
            reason: "FieldValueTooLong",
            message: format!("Too long: may not be more than {limit} bytes"),
            field: self.to_string(),
        }
    }

    /// All that is wrong with a value, each as a cause.
    pub(crate) fn invalid_all<'m>(
        &self,
        value: &str,
        wrong: impl IntoIterator<Item = std::borrow::Cow<'m, str>>,
        causes: &mut Vec<Cause>,
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
            Step::Child(name) if self.parent.is_none() => f.write_str(name),
            Step::Child(name) => write!(f, ".{name}"),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_as_upstream_writes_it() {
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
