//! Errors in a configuration, and their positions.

use std::fmt;

use thiserror::Error;

/// A position in a file, counted from 1. Columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A problem, and how to fix it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The text is not a single YAML document, or exceeds a limit.
    #[error("{0}")]
    Syntax(String),
    /// Unknown field. Holds a suggestion.
    #[error("unknown field; {0}")]
    UnknownField(String),
    /// The field is set twice.
    #[error("duplicate field, first set at {first}; keep one of them")]
    DuplicateField {
        /// Where it is set first.
        first: Position,
    },
    /// The value has the wrong type.
    #[error("must be {wanted}, is {found}")]
    WrongType {
        /// The expected type.
        wanted: &'static str,
        /// The value found.
        found: String,
    },
    /// The value has the right type but is invalid.
    #[error("{0}")]
    Invalid(String),
    /// kube-scheduler supports this, supercargo does not yet.
    #[error("{0} is known to kube-scheduler, but not supported by supercargo yet; remove it")]
    Unsupported(String),
    /// Neither supercargo nor kube-scheduler has a plugin of this name.
    #[error("unknown plugin {name:?}; {help}")]
    UnknownPlugin {
        /// The name.
        name: String,
        /// A suggestion.
        help: String,
    },
    /// A plugin rejects its arguments. Holds its message.
    #[error("{0}")]
    Args(String),
}

/// One error in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// The file name as given.
    pub file: String,
    /// The position; `None` for the file as a whole.
    pub position: Option<Position>,
    /// The field, such as `profiles[0].schedulerName`; empty for the file as a whole.
    pub path: String,
    /// The problem.
    pub problem: Problem,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file)?;
        if let Some(position) = self.position {
            write!(f, "{position}:")?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.problem)
    }
}

/// All errors of a configuration, sorted by position. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The sorted errors, if there are any.
    pub(super) fn of(mut errors: Vec<ConfigError>) -> Option<Self> {
        errors.sort_by_key(|error| error.position);
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// The errors.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl fmt::Display for ConfigErrors {
    /// One line for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{error}")?;
        }
        Ok(())
    }
}
