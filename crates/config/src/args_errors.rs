//! All errors of a plugin's arguments.
//!
//! A plugin reports its first error only. What it rejects is removed, and it is asked again.

use std::fmt::Write as _;

use serde_json::Value;
use supercargo_framework::registry::ArgsError;

/// Maximum number of times that a plugin is asked again.
const MOST_ROUNDS: usize = 100;

/// All errors of these arguments, of which `first` is the first.
pub(super) fn all(
    first: ArgsError,
    args: &Value,
    validate: impl Fn(&Value) -> Option<ArgsError>,
) -> Vec<ArgsError> {
    let mut rest = AcceptedArgs { args: args.clone(), removed: Vec::new() };
    let mut errors = Vec::new();
    let mut next = Some(first);
    while let Some(ArgsError { path, message }) = next {
        let original = rest.original(&path);
        // An error at or above what was removed may only say that it is missing.
        if !rest.removed.iter().any(|removed| is_within(removed, &original)) {
            errors.push(ArgsError { path: original, message });
        }
        if rest.removed.len() == MOST_ROUNDS || !rest.remove(&path) {
            break;
        }
        next = validate(&rest.args);
    }
    errors
}

/// The arguments without what was rejected.
struct AcceptedArgs {
    args: Value,
    /// Paths in the arguments as they were given.
    removed: Vec<String>,
}

impl AcceptedArgs {
    /// Removes the value at this path, or the nearest one above it that exists. False if that is
    /// the whole.
    fn remove(&mut self, path: &str) -> bool {
        let mut path = path;
        while !path.is_empty() {
            let original = self.original(path);
            if remove(&mut self.args, path) {
                self.removed.push(original);
                return true;
            }
            path = parent(path);
        }
        false
    }

    /// The path in the arguments as they were given: items before it may have been removed.
    fn original(&self, path: &str) -> String {
        let mut original = String::new();
        for part in path.split_inclusive(']') {
            let item = part.strip_suffix(']').and_then(|part| part.rsplit_once('['));
            let item = item.and_then(|(list, index)| Some((list, index.parse::<usize>().ok()?)));
            let Some((list, mut index)) = item else {
                original.push_str(part);
                continue;
            };
            original.push_str(list);
            let of_item = |removed: &String| {
                removed.strip_prefix(&original)?.strip_prefix('[')?.strip_suffix(']')?.parse::<usize>().ok()
            };
            let mut earlier: Vec<usize> = self.removed.iter().filter_map(of_item).collect();
            earlier.sort_unstable();
            for removed in earlier {
                index += usize::from(removed <= index);
            }
            // Writing to a string cannot fail.
            let _ = write!(original, "[{index}]");
        }
        original
    }
}

/// Whether `path` is `above` or below it.
fn is_within(path: &str, above: &str) -> bool {
    let rest = path.strip_prefix(above);
    above.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// The path of the value that contains this one.
fn parent(path: &str) -> &str {
    &path[..path.rfind(['.', '[']).unwrap_or(0)]
}

fn remove(value: &mut Value, path: &str) -> bool {
    let path = path.strip_prefix('.').unwrap_or(path);
    match value {
        Value::Object(fields) => {
            // A key may contain dots, so match keys against the path instead of splitting the path.
            let found = fields.keys().find(|key| is_within(path, key)).cloned();
            let Some(key) = found else { return false };
            match &path[key.len()..] {
                "" => fields.remove(&key).is_some(),
                rest => fields.get_mut(&key).is_some_and(|value| remove(value, rest)),
            }
        }
        Value::Array(items) => {
            let item = path.strip_prefix('[').and_then(|path| path.split_once(']'));
            let Some((index, rest)) = item.and_then(|(index, rest)| Some((index.parse().ok()?, rest))) else {
                return false;
            };
            match (items.get_mut::<usize>(index), rest) {
                (None, _) => false,
                (Some(_), "") => {
                    items.remove(index);
                    true
                }
                (Some(value), rest) => remove(value, rest),
            }
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;
    use supercargo_framework::registry::decode_args;

    use super::*;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Args {
        #[serde(default)]
        size: u8,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Deserialize)]
    struct Item {
        name: String,
        #[serde(default)]
        weight: i64,
    }

    fn validate(args: &Value) -> Option<ArgsError> {
        let args: Args = match decode_args(args) {
            Ok(args) => args,
            Err(error) => return Some(error),
        };
        if args.size > 10 {
            return Some(ArgsError::new("size", "too large"));
        }
        let negative = args.items.iter().position(|item| item.weight < 0 || item.name.is_empty());
        let bad = args.names.iter().position(|name| name.contains('!'));
        negative
            .map(|i| ArgsError::new(format!("items[{i}].weight"), "negative"))
            .or_else(|| bad.map(|i| ArgsError::new(format!("names[{i}]"), "bad")))
    }

    fn paths(args: &Value) -> Vec<String> {
        all(validate(args).unwrap(), args, validate).into_iter().map(|error| error.path).collect()
    }

    #[test]
    fn errors_of_several_fields_and_items_are_found() {
        let mixed = json!({ "size": 11, "sise": 1, "names": ["!", "a", 7, "!b"],
                            "items": [{ "name": 1 }, { "name": "a", "weight": -1 }, { "name": "b", "weight": -1 }] });
        let mut found = paths(&mixed);
        found.sort();
        let expected = [
            "items[0].name",
            "items[1].weight",
            "items[2].weight",
            "names[0]",
            "names[2]",
            "names[3]",
            "sise",
            "size",
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn errors_about_the_whole_end_the_search() {
        let whole = |_: &Value| Some(ArgsError::new("", "no"));
        assert_eq!(all(ArgsError::new("", "no"), &json!({ "a": 1 }), whole).len(), 1);
        // A plugin that rejects everything, whatever is removed.
        let field = |_: &Value| Some(ArgsError::new("a.b", "no"));
        assert_eq!(all(ArgsError::new("a.b", "no"), &json!({ "a": { "b": 1 } }), field).len(), 1);
    }
}
