//! Collects problems, so that all are reported together.

use super::error::{ConfigError, ConfigErrors, Position, Problem};

/// A field and its position.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldPosition {
    /// The position; `None` for values that are not in the file.
    pub(super) position: Option<Position>,
    /// The path of fields from the top of the file.
    pub(super) path: String,
}

impl FieldPosition {
    /// A field of this one, at the same position until a better one is known.
    pub(super) fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        // A quoted key may contain a line break, but an error is one line.
        let path = format!("{}{dot}{}", self.path, name.escape_debug());
        Self { position: self.position, path }
    }

    /// An item of this list, at the same position until a better one is known.
    pub(super) fn item(&self, index: usize) -> Self {
        Self { position: self.position, path: format!("{}[{index}]", self.path) }
    }

    /// The same field at a more precise position.
    pub(super) fn at(self, position: Position) -> Self {
        Self { position: Some(position), ..self }
    }
}

/// The problems found so far.
#[derive(Debug)]
pub(super) struct Report<'a> {
    file: &'a str,
    errors: Vec<ConfigError>,
}

impl<'a> Report<'a> {
    /// A report without problems.
    pub(super) fn new(file: &'a str) -> Self {
        Self { file, errors: Vec::new() }
    }

    /// Adds a problem. Problems in a repeated alias are added once.
    pub(super) fn add(&mut self, place: &FieldPosition, problem: Problem) {
        let is_repeated = |error: &ConfigError| {
            place.position.is_some() && error.position == place.position && error.problem == problem
        };
        if !self.errors.iter().any(is_repeated) {
            self.errors.push(ConfigError {
                file: self.file.to_owned(),
                position: place.position,
                path: place.path.clone(),
                problem,
            });
        }
    }

    /// Adds an invalid value.
    pub(super) fn invalid(&mut self, place: &FieldPosition, message: impl Into<String>) {
        self.add(place, Problem::Invalid(message.into()));
    }

    /// The number of errors so far, to detect new ones.
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// All errors, if there are any.
    pub(super) fn finish(self) -> Option<ConfigErrors> {
        ConfigErrors::of(self.errors)
    }
}
