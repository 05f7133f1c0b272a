//! Collects problems, so that all of them are told at once.

use super::error::{ConfigError, ConfigErrors, Position, Problem};

/// A field and where it stands.
#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    /// Where in the file; `None` for what no file says.
    pub(super) position: Option<Position>,
    /// The path of fields from the top of the file.
    pub(super) path: String,
}

impl Place {
    /// A field of this one, as far as known at the same position.
    pub(super) fn field(&self, name: &str) -> Self {
        let dot = if self.path.is_empty() { "" } else { "." };
        // A quoted key can hold anything, but an error is one line.
        let path = format!("{}{dot}{}", self.path, name.escape_debug());
        Self { position: self.position, path }
    }

    /// An item of this list, as far as known at the same position.
    pub(super) fn item(&self, index: usize) -> Self {
        Self { position: self.position, path: format!("{}[{index}]", self.path) }
    }

    /// The same field, at a position that is known better.
    pub(super) fn at(self, position: Position) -> Self {
        Self { position: Some(position), ..self }
    }
}

/// The problems found so far.
#[derive(Debug)]
pub(super) struct Report<'a> {
    file: &'a str,
    errors: Vec<ConfigError>,
    warnings: Vec<ConfigError>,
}

impl<'a> Report<'a> {
    /// No problem yet.
    pub(super) fn new(file: &'a str) -> Self {
        Self { file, errors: Vec::new(), warnings: Vec::new() }
    }

    /// Adds a problem. What an alias repeats is told once: it stands in the file once.
    pub(super) fn add(&mut self, place: &Place, problem: Problem) {
        push(&mut self.errors, self.file, place, problem);
    }

    /// Adds what is to be known, and no reason to refuse the file.
    pub(super) fn warn(&mut self, place: &Place, problem: Problem) {
        push(&mut self.warnings, self.file, place, problem);
    }

    /// Adds a value that cannot be.
    pub(super) fn invalid(&mut self, place: &Place, message: impl Into<String>) {
        self.add(place, Problem::Invalid(message.into()));
    }

    /// How many problems there are, to see later whether there are more.
    pub(super) fn count(&self) -> usize {
        self.errors.len()
    }

    /// Every problem, if there is one, and every warning.
    pub(super) fn finish(self) -> (Option<ConfigErrors>, Vec<ConfigError>) {
        (ConfigErrors::of(self.errors), self.warnings)
    }
}

fn push(told: &mut Vec<ConfigError>, file: &str, place: &Place, problem: Problem) {
    let is_told = |error: &ConfigError| {
        place.position.is_some() && error.position == place.position && error.problem == problem
    };
    if !told.iter().any(is_told) {
        told.push(ConfigError {
            file: file.to_owned(),
            position: place.position,
            path: place.path.clone(),
            problem,
        });
    }
}
