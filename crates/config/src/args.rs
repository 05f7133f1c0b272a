//! Plugin arguments, and the positions of errors in them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use supercargo_framework::registry::ArgsError;

use super::cursor::Cursor;
use super::error::Problem;
use super::file::{API_VERSION, wrong_type};
use super::profile_file::FileArgs;
use super::report::{FieldPosition, Report};
use super::yaml::{Content, Node};

/// Upstream's arguments carry a type; plugins here do not see it.
const TYPE_FIELDS: &[&str] = &["apiVersion", "kind"];

/// The arguments of one plugin.
#[derive(Clone, Debug)]
pub(super) struct Args<'a> {
    /// The value that the plugin receives.
    pub(super) value: Value,
    /// Their place in the file.
    pub(super) place: FieldPosition,
    node: Option<&'a Node>,
}

/// The arguments of a profile, by plugin.
pub(super) fn read<'a>(configs: &[FileArgs<'a>], report: &mut Report<'_>) -> BTreeMap<String, Args<'a>> {
    let mut all = BTreeMap::new();
    for config in configs {
        let args = read_one(config, report);
        if all.insert(config.name.clone(), args).is_some() {
            report.invalid(&config.place, format!("{} is configured twice; keep one", config.name));
        }
    }
    all
}

/// Sets an argument of a plugin, overriding the file.
pub(super) fn set(all: &mut BTreeMap<String, Args<'_>>, plugin: &str, field: &str, value: Value) {
    let none = || Args { value: Value::Object(Map::new()), place: FieldPosition::default(), node: None };
    let args = all.entry(plugin.to_owned()).or_insert_with(none);
    if let Value::Object(fields) = &mut args.value {
        fields.insert(field.to_owned(), value);
    }
}

fn read_one<'a>(config: &FileArgs<'a>, report: &mut Report<'_>) -> Args<'a> {
    let none = || Value::Object(Map::new());
    let Some(cursor) = &config.args else {
        return Args { value: none(), place: config.args_place.clone(), node: None };
    };
    let mut value = cursor.node.to_json();
    if let Value::Object(fields) = &mut value {
        check_type(&config.name, cursor, report);
        fields.retain(|field, _| !TYPE_FIELDS.contains(&field.as_str()));
    } else {
        let found = cursor.node.describe();
        let wanted = "a mapping";
        report.add(&cursor.place, Problem::WrongType { wanted, found });
        value = none();
    }
    Args { value, place: config.args_place.clone(), node: Some(cursor.node) }
}

fn check_type(plugin: &str, cursor: &Cursor<'_>, report: &mut Report<'_>) {
    let wanted = [API_VERSION.to_owned(), format!("{plugin}Args")];
    for (field, wanted) in TYPE_FIELDS.iter().zip(wanted) {
        let Some((place, node)) = child(cursor.node, &cursor.place, field) else {
            continue;
        };
        let found = Cursor { place, node };
        if let Some(text) = found.string(report).filter(|text| *text != wanted) {
            report.invalid(&found.place, wrong_type(text, &wanted));
        }
    }
}

fn child<'a>(node: &'a Node, place: &FieldPosition, field: &str) -> Option<(FieldPosition, &'a Node)> {
    let Content::Map(entries) = &node.content else {
        return None;
    };
    let entry = entries.iter().find(|entry| entry.key == field)?;
    Some((place.field(field).at(entry.at()), &entry.value))
}

impl Args<'_> {
    /// Converts a plugin's error to a problem at the place that it names.
    pub(super) fn problem(&self, error: &ArgsError) -> (FieldPosition, Problem) {
        // Serde's wording. Point at the key of an unknown field, and at the value for any other
        // error.
        let wrong_key = error.message.starts_with("unknown field");
        let position = self.node.and_then(|node| locate(node, &error.path, wrong_key));
        let dot = if error.path.is_empty() || error.path.starts_with('[') { "" } else { "." };
        let place = FieldPosition {
            position: position.or(self.place.position),
            path: format!("{}{dot}{}", self.place.path, error.path),
        };
        (place, Problem::Args(error.message.clone()))
    }
}

/// The position of the deepest existing field on a path.
fn locate(node: &Node, path: &str, wrong_key: bool) -> Option<super::Position> {
    let path = path.strip_prefix('.').unwrap_or(path);
    match &node.content {
        Content::Map(entries) => {
            // A key may contain dots, so match keys against the path instead of splitting the path.
            let found = entries.iter().find_map(|entry| {
                let rest = path.strip_prefix(entry.key.as_str())?;
                (rest.is_empty() || rest.starts_with(['.', '['])).then_some((entry, rest))
            });
            let (entry, rest) = found?;
            let here = if wrong_key { entry.key_at } else { entry.at() };
            locate(&entry.value, rest, wrong_key).or(Some(here))
        }
        Content::List(items) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let item = items.get(index.parse::<usize>().ok()?)?;
            locate(item, rest, wrong_key).or(Some(item.at))
        }
        _ => None,
    }
}
