//! Reads typed values from the YAML tree. Wrong values are reported, and reading continues.

use super::error::Problem;
use super::report::{FieldPosition, Report};
use super::suggest;
use super::yaml::{Content, Entry, Node};

/// A value and its place.
#[derive(Clone, Debug)]
pub(super) struct Cursor<'a> {
    pub(super) place: FieldPosition,
    pub(super) node: &'a Node,
}

/// A mapping and its place.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    pub(super) place: FieldPosition,
    entries: &'a [Entry],
}

impl<'a> Cursor<'a> {
    /// The top of a file.
    pub(super) fn top(node: &'a Node) -> Self {
        let place = FieldPosition::default().at(node.at);
        Self { place, node }
    }

    /// A mapping. Reports fields other than `known`.
    pub(super) fn object(&self, known: &[&str], report: &mut Report<'_>) -> Option<Object<'a>> {
        let Content::Map(entries) = &self.node.content else {
            return self.wrong_type("a mapping", report);
        };
        for entry in entries {
            if !known.contains(&entry.key.as_str()) {
                let place = self.place.field(&entry.key).at(entry.key_at);
                let help = suggest::field(&entry.key, known);
                report.add(&place, Problem::UnknownField(help));
            }
        }
        let place = self.place.clone();
        Some(Object { place, entries })
    }

    /// The items of a list.
    pub(super) fn items(&self, report: &mut Report<'_>) -> Vec<Cursor<'a>> {
        let Content::List(items) = &self.node.content else {
            return self.wrong_type("a list", report).unwrap_or_default();
        };
        let item =
            |(index, node): (usize, &'a Node)| Cursor { place: self.place.item(index).at(node.at), node };
        items.iter().enumerate().map(item).collect()
    }

    /// A string.
    pub(super) fn string(&self, report: &mut Report<'_>) -> Option<&'a str> {
        match &self.node.content {
            Content::String(value) => Some(value),
            Content::Bool(_) | Content::Number(_) => self.wrong_type("a string (put it in quotes)", report),
            _ => self.wrong_type("a string", report),
        }
    }

    /// A boolean.
    pub(super) fn boolean(&self, report: &mut Report<'_>) -> Option<bool> {
        match &self.node.content {
            Content::Bool(value) => Some(*value),
            _ => self.wrong_type("true or false", report),
        }
    }

    /// An integer of 64 bits.
    pub(super) fn long(&self, report: &mut Report<'_>) -> Option<i64> {
        let value = match &self.node.content {
            Content::Number(number) => number.as_i64().or_else(|| whole(number.as_f64()?)),
            _ => None,
        };
        value.or_else(|| self.wrong_type("an integer", report))
    }

    /// An integer of 32 bits.
    pub(super) fn integer(&self, report: &mut Report<'_>) -> Option<i32> {
        let value = self.long(report)?;
        let integer = i32::try_from(value).ok();
        integer.or_else(|| self.wrong_type("an integer of 32 bits", report))
    }

    /// A number.
    pub(super) fn number(&self, report: &mut Report<'_>) -> Option<f32> {
        let value = match &self.node.content {
            Content::Number(number) => number.as_f64().map(|value| value as f32),
            _ => None,
        };
        let finite = value.filter(|value| value.is_finite());
        finite.or_else(|| self.wrong_type("a number of 32 bits", report))
    }

    fn wrong_type<T>(&self, wanted: &'static str, report: &mut Report<'_>) -> Option<T> {
        let found = self.node.describe();
        report.add(&self.place, Problem::WrongType { wanted, found });
        None
    }
}

impl<'a> Object<'a> {
    /// A field. Null counts as absent, as in Go's JSON decoding.
    pub(super) fn get(&self, name: &str) -> Option<Cursor<'a>> {
        let entry = self.entries.iter().find(|entry| entry.key == name)?;
        let place = self.place.field(name).at(entry.at());
        let node = &entry.value;
        (!matches!(node.content, Content::Null)).then_some(Cursor { place, node })
    }

    /// A required field.
    pub(super) fn require(&self, name: &str, report: &mut Report<'_>) -> Option<Cursor<'a>> {
        let found = self.get(name);
        if found.is_none() {
            report.invalid(&self.place.field(name), "is missing");
        }
        found
    }
}

/// Reports duplicate keys of all mappings.
pub(super) fn report_duplicates(cursor: &Cursor<'_>, report: &mut Report<'_>) {
    match &cursor.node.content {
        Content::List(_) => {
            for item in cursor.items(report) {
                report_duplicates(&item, report);
            }
        }
        Content::Map(entries) => {
            let mut first = std::collections::BTreeMap::new();
            for entry in entries {
                let place = cursor.place.field(&entry.key).at(entry.key_at);
                let first = *first.entry(&entry.key).or_insert(entry.key_at);
                if first != entry.key_at {
                    report.add(&place, Problem::DuplicateField { first });
                }
                let node = &entry.value;
                report_duplicates(&Cursor { place, node }, report);
            }
        }
        _ => {}
    }
}

/// An integer that is written as a float, such as `1e3`.
fn whole(value: f64) -> Option<i64> {
    // Above 2^53 a float does not represent every integer.
    (value.fract() == 0.0 && value.abs() < 9e15).then_some(value as i64)
}
