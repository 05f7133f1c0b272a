//! Label selectors, for reads of stores.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use kube::core::{Expression, SelectorExt};
use thiserror::Error;

mod parser;

/// The labels of an object.
pub type Labels = BTreeMap<String, String>;

/// An object whose labels a [`Selector`] can read. Implemented for every [`kube::Resource`];
/// implement it for your own objects to [select](crate::Lister::select) them.
pub trait Labelled {
    /// The labels, if any.
    fn labels(&self) -> Option<&Labels>;
}

impl<T: kube::Resource> Labelled for T {
    fn labels(&self) -> Option<&Labels> {
        self.meta().labels.as_ref()
    }
}

/// A label selector: everything, nothing, or requirements; same as client-go's `labels.Selector`.
///
/// Parse it from the API server's syntax, or build it from [`kube::core::Expression`]s:
///
/// ```
/// use kube_informers::Selector;
///
/// let selector: Selector = "app in (web, api), tier!=cache, !canary, generation>3".parse()?;
/// let labels = [("app", "web"), ("generation", "4")].map(|(key, value)| (key.to_owned(), value.to_owned()));
/// assert!(selector.matches(&labels.into()));
/// assert!("app=".parse::<Selector>()?.matches(&[("app".to_owned(), String::new())].into()));
/// assert!("app in web".parse::<Selector>().is_err());
/// # Ok::<(), kube_informers::SelectorError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Inner);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Inner {
    Nothing,
    All(Vec<Requirement>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Expression(Expression),
    GreaterThan(String, i64),
    LessThan(String, i64),
}

/// A text that is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{text:?} is not a label selector: {why}")]
pub struct SelectorError {
    text: String,
    why: String,
}

impl Selector {
    /// The empty selector, which selects everything.
    pub fn everything() -> Self {
        Self(Inner::All(Vec::new()))
    }

    /// The selector that matches nothing. It has no text in the API server's syntax.
    pub fn nothing() -> Self {
        Self(Inner::Nothing)
    }

    /// Whether the selector matches everything, so that labels need not be read.
    pub fn is_everything(&self) -> bool {
        matches!(&self.0, Inner::All(requirements) if requirements.is_empty())
    }

    /// Whether the selector matches nothing, so that objects need not be read.
    pub fn is_nothing(&self) -> bool {
        matches!(self.0, Inner::Nothing)
    }

    /// Whether these labels match.
    pub fn matches(&self, labels: &Labels) -> bool {
        match &self.0 {
            Inner::Nothing => false,
            Inner::All(requirements) => requirements.iter().all(|requirement| requirement.matches(labels)),
        }
    }

    /// Whether this object matches.
    pub fn selects(&self, object: &impl Labelled) -> bool {
        static NONE: Labels = Labels::new();
        self.is_everything() || self.matches(object.labels().unwrap_or(&NONE))
    }
}

impl Requirement {
    fn matches(&self, labels: &Labels) -> bool {
        let number = |key| labels.get(key).and_then(|value| value.parse::<i64>().ok());
        match self {
            Self::Expression(expression) => expression.matches(labels),
            Self::GreaterThan(key, bound) => number(key).is_some_and(|number| number > *bound),
            Self::LessThan(key, bound) => number(key).is_some_and(|number| number < *bound),
        }
    }
}

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        match parser::parse(text) {
            Ok(requirements) => Ok(Self(Inner::All(requirements))),
            Err(why) => Err(SelectorError { text: text.to_owned(), why }),
        }
    }
}

/// The selector in the API server's syntax. [`Selector::nothing`] has no such text, and is written
/// as `<nothing>`, which the server rejects. The empty text would match everything.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner::All(requirements) = &self.0 else {
            return f.write_str("<nothing>");
        };
        for (at, requirement) in requirements.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match requirement {
                Requirement::Expression(expression) => expression.fmt(f)?,
                Requirement::GreaterThan(key, bound) => write!(f, "{key}>{bound}")?,
                Requirement::LessThan(key, bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

impl FromIterator<Expression> for Selector {
    fn from_iter<I: IntoIterator<Item = Expression>>(expressions: I) -> Self {
        Self(Inner::All(expressions.into_iter().map(Requirement::Expression).collect()))
    }
}

/// Converts a [`kube::core::Selector`], built from the label selector in an object's spec. Empty
/// ones match everything in both types.
impl From<kube::core::Selector> for Selector {
    fn from(selector: kube::core::Selector) -> Self {
        selector.into_iter().collect()
    }
}

fn one_of(values: impl IntoIterator<Item = String>) -> BTreeSet<String> {
    values.into_iter().collect()
}

#[cfg(test)]
mod tests;
