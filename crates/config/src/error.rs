//! What can be wrong with a configuration, and where.

use std::fmt;

use thiserror::Error;

/// A place in a file, counted from 1. Columns count characters.
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

/// What is wrong, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Problem {
    /// The file cannot be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// The text is not one YAML document, or one beyond the limits.
    #[error("{0}")]
    Syntax(String),
    /// Nothing of this name belongs here. Holds what to do instead.
    #[error("unknown field; {0}")]
    UnknownField(String),
    /// The field is set twice.
    #[error("duplicate field, first set at {first}; keep one of them")]
    DuplicateField {
        /// Where it is set first.
        first: Position,
    },
    /// The value is of another type.
    #[error("must be {wanted}, is {found}")]
    WrongType {
        /// What belongs here.
        wanted: &'static str,
        /// What is there.
        found: String,
    },
    /// The value is of the right type, but not a possible one.
    #[error("{0}")]
    Invalid(String),
    /// kube-scheduler has this, supercargo does not have it yet.
    #[error("{0} is known to kube-scheduler, but not supported by supercargo yet; remove it")]
    Unsupported(String),
    /// A plugin that is on by default in kube-scheduler and not here yet. Holds the plugin, and what becomes of pods that
    /// need it. A warning.
    #[error("{plugin} is not supported by supercargo yet: {consequence}")]
    Absent {
        /// The plugin.
        plugin: &'static str,
        /// What becomes of pods that need it.
        consequence: &'static str,
    },
    /// Neither supercargo nor kube-scheduler has a plugin of this name. Holds what to do instead.
    #[error("unknown plugin {name:?}; {help}")]
    UnknownPlugin {
        /// The name.
        name: String,
        /// What to do instead.
        help: String,
    },
    /// A plugin cannot work with its arguments. Holds what the plugin says.
    #[error("{0}")]
    Args(String),
}

/// One error in a configuration, or one warning about it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigError {
    /// The file, as it was named.
    pub file: String,
    /// Where in the file; `None` for the file as a whole.
    pub position: Option<Position>,
    /// The field, such as `profiles[0].schedulerName`; empty for the whole.
    pub path: String,
    /// What is wrong.
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

/// Everything that is wrong with a configuration, in the order of the file. Never empty.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors of a list, if there are any.
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
