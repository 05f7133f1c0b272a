//! All errors of a plugin's arguments.
//!
//! A plugin reports its first error only. What it rejects is removed, and it is asked again. A
//! plugin that reports wrong fields before missing ones thus names all that are wrong. Others would
//! hide the fields beside a required one, so a number gets a stand-in, unless that causes an error
//! elsewhere.

use std::fmt::Write as _;
use std::mem;

use serde_json::Value;
use supercargo_framework::registry::ArgsError;

/// Maximum number of times that a plugin is asked again.
const MOST_ROUNDS: usize = 100;

/// Numbers of which a plugin probably accepts one.
const STAND_INS: [u8; 3] = [0, 1, 100];

/// All errors of these arguments, of which `first` is the first.
pub(super) fn all(
    first: ArgsError,
    args: &Value,
    validate: impl Fn(&Value) -> Option<ArgsError>,
) -> Vec<ArgsError> {
    let mut rest = AcceptedArgs { args: args.clone(), ..AcceptedArgs::default() };
    let mut errors = Vec::new();
    let mut next = Some(first);
    for _ in 0..MOST_ROUNDS {
        let Some(ArgsError { path, message }) = next else { break };
        let original = rest.original(&path);
        if let Some(object) = rest.filled.take_if(|object| !is_within(&path, object)) {
            // The stand-in may be the cause.
            rest.remove(&object);
            next = validate(&rest.args);
            continue;
        }
        if !rest.removed.iter().any(|removed| is_within(removed, &original)) {
            errors.push(ArgsError { path: original, message });
        } else if rest.fill(&validate) {
            // An error at or above what was removed may only say that it is missing.
            next = validate(&rest.args);
            continue;
        }
        if !rest.remove(&path) {
            break;
        }
        next = validate(&rest.args);
    }
    errors
}

/// The arguments without what was rejected.
#[derive(Default)]
struct AcceptedArgs {
    args: Value,
    /// Paths in the arguments as they were given.
    removed: Vec<String>,
    /// The last number that was removed, and the arguments before.
    last_number: Option<(String, Value)>,
    /// The path of an object with a stand-in.
    filled: Option<String>,
}

impl AcceptedArgs {
    /// Removes the value at this path, or the nearest one above it that exists. False if that is
    /// the whole.
    fn remove(&mut self, path: &str) -> bool {
        let mut path = path;
        while !path.is_empty() {
            let original = self.original(path);
            let before = self.args.clone();
            if let Some(value) = replace(&mut self.args, path, None) {
                self.removed.push(original);
                let is_field = value.is_number() && !path.ends_with(']');
                self.last_number = is_field.then(|| (path.to_owned(), before));
                self.filled.take_if(|object| is_within(object, path));
                return true;
            }
            path = parent(path);
        }
        false
    }

    /// Puts a stand-in for the last number that was removed. False if the plugin would then reject
    /// more than a field beside it.
    fn fill(&mut self, validate: impl Fn(&Value) -> Option<ArgsError>) -> bool {
        let Some((path, before)) = self.last_number.take() else { return false };
        let object = parent(&path);
        let is_beside = |error: &ArgsError| {
            is_within(&error.path, object) && error.path != object && !is_within(&error.path, &path)
        };
        let filled = STAND_INS.map(|number| {
            let mut args = before.clone();
            replace(&mut args, &path, Some(number.into()));
            (validate(&args), args)
        });
        let mut fitting: Vec<_> =
            filled.into_iter().filter(|(rejected, _)| rejected.as_ref().is_none_or(is_beside)).collect();
        // Best is one that the plugin accepts without another error.
        fitting.sort_by_key(|(rejected, _)| rejected.is_some());
        let Some((_, args)) = fitting.into_iter().next() else { return false };
        self.args = args;
        self.filled = Some(object.to_owned());
        true
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

/// Replaces the value at a path, or removes it. Returns it, if it exists.
fn replace(value: &mut Value, path: &str, with: Option<Value>) -> Option<Value> {
    let path = path.strip_prefix('.').unwrap_or(path);
    match value {
        Value::Object(fields) => {
            // A key may contain dots, so match keys against the path instead of splitting the path.
            let key = fields.keys().find(|key| is_within(path, key)).cloned()?;
            match (&path[key.len()..], with) {
                ("", None) => fields.remove(&key),
                ("", Some(with)) => fields.insert(key, with),
                (rest, with) => replace(fields.get_mut(&key)?, rest, with),
            }
        }
        Value::Array(items) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            let index = index.parse::<usize>().ok()?;
            let item = items.get_mut(index)?;
            match (rest, with) {
                ("", None) => Some(items.remove(index)),
                ("", Some(with)) => Some(mem::replace(item, with)),
                (rest, with) => replace(item, rest, with),
            }
        }
        _ => None,
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

    /// Two required numbers; those of an item must be greater than those before.
    #[derive(Deserialize)]
    struct Point {
        x: i64,
        y: i64,
    }

    fn validate_points(args: &Value) -> Option<ArgsError> {
        let points: Vec<Point> = match serde_path_to_error::deserialize(&args["points"]) {
            Ok(points) => points,
            Err(error) => {
                let path = format!("points{}", error.path()).replace("points.", "points");
                return Some(ArgsError::new(path, error.inner().to_string()));
            }
        };
        let wrong = |i: usize, field: &str| Some(ArgsError::new(format!("points[{i}].{field}"), "wrong"));
        if let Some(i) = points.windows(2).position(|pair| pair[0].x >= pair[1].x) {
            return wrong(i + 1, "x");
        }
        points.iter().enumerate().find_map(|(i, point)| match point {
            Point { x, .. } if !(0..=100).contains(x) => wrong(i, "x"),
            Point { y, .. } if !(0..=10).contains(y) => wrong(i, "y"),
            _ => None,
        })
    }

    #[test]
    fn errors_beside_a_required_number_are_found_and_none_are_invented() {
        let cases: [(&[[i64; 2]], &[&str]); 8] = [
            (&[[101, 11]], &["points[0].x", "points[0].y"]),
            (&[[0, 0], [101, 11]], &["points[1].x", "points[1].y"]),
            (&[[-1, 11], [1, 1]], &["points[0].x", "points[0].y"]),
            // The stand-in is no smaller than the next.
            (&[[-1, 0], [0, 1]], &["points[0].x"]),
            (&[[-2, 11], [-1, 11], [0, 1]], &["points[0].x", "points[1].x"]),
            (&[[1, 11], [0, 0]], &["points[0].y", "points[1].x"]),
            (&[[0, 11], [50, 12]], &["points[0].y", "points[1].y"]),
            (&[[0, 0]], &[]),
        ];
        for (points, expected) in cases {
            let points: Vec<_> = points.iter().map(|[x, y]| json!({ "x": x, "y": y })).collect();
            let args = json!({ "points": points });
            let first = validate_points(&args);
            let errors = first.map(|first| all(first, &args, validate_points)).unwrap_or_default();
            let mut found: Vec<_> = errors.into_iter().map(|error| error.path).collect();
            found.sort();
            assert_eq!(found, expected, "{args}");
        }
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
