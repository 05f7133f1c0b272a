//! Column definitions.

use serde_json::{Value, json};

/// A column; upstream's `metav1.TableColumnDefinition`. There are no descriptions, because nothing
/// prints them.
#[derive(Debug)]
pub(super) struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    priority: u8,
}

pub(super) const NAME: Column = Column { name: "Name", kind: "string", format: "name", priority: 0 };
pub(super) const AGE: Column = text("Age");

pub(super) const fn text(name: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0 }
}

pub(super) const fn integer(name: &'static str) -> Column {
    Column { name, kind: "integer", format: "", priority: 0 }
}

pub(super) const fn boolean(name: &'static str) -> Column {
    Column { name, kind: "boolean", format: "", priority: 0 }
}

pub(super) const fn date(name: &'static str) -> Column {
    Column { name, kind: "date", format: "", priority: 0 }
}

/// Only printed by `-o wide`.
pub(super) const fn wide(name: &'static str) -> Column {
    text(name).wide()
}

impl Column {
    pub(super) const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// Marks the column's values as object names.
    pub(super) const fn of_names(mut self) -> Self {
        self.format = "name";
        self
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": "",
            "priority": self.priority,
        })
    }
}
