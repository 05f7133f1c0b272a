//! Sets of field paths for `metadata.managedFields`: upstream's `fieldpath.Set` and its JSON form,
//! FieldsV1.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PathElement {
    /// An object's field or a map's key.
    Field(String),
    /// A list item identified by these fields, which are sorted by name.
    Key(Vec<(String, Scalar)>),
    /// An item of a list of scalars, identified by its value.
    Item(Scalar),
    /// A list item identified by its index.
    Index(i64),
}

/// A value that identifies an item.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Scalar(pub(super) Value);

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Set {
    /// The paths of length one.
    members: BTreeSet<PathElement>,
    /// The longer paths, grouped by first step. No set is empty.
    children: BTreeMap<PathElement, Set>,
}

impl Eq for Scalar {}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        fn rank(value: &Value) -> u8 {
            match value {
                Value::Number(_) => 0,
                Value::String(_) => 1,
                Value::Bool(_) => 2,
                Value::Array(_) => 3,
                Value::Object(_) => 4,
                Value::Null => 5,
            }
        }
        match (&self.0, &other.0) {
            (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => one.as_f64().unwrap_or_default().total_cmp(&other.as_f64().unwrap_or_default()),
            },
            (Value::String(one), Value::String(other)) => one.cmp(other),
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            (one, other) => rank(one).cmp(&rank(other)).then_with(|| one.to_string().cmp(&other.to_string())),
        }
    }
}

impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(key) => {
                f.write_char('[')?;
                for (i, (name, value)) in key.iter().enumerate() {
                    let comma = if i > 0 { "," } else { "" };
                    write!(f, "{comma}{name}={}", value.0)?;
                }
                f.write_char(']')
            }
            Self::Item(value) => write!(f, "[={}]", value.0),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

impl PathElement {
    pub(super) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    /// The key in FieldsV1.
    fn to_key(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => {
                let key: Map<String, Value> =
                    key.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
                format!("k:{}", Value::Object(key))
            }
            Self::Item(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn from_key(key: &str) -> Option<Self> {
        let (kind, content) = key.split_at_checked(2)?;
        match kind {
            "f:" => Some(Self::field(content)),
            "k:" => {
                let key: BTreeMap<String, Value> = serde_json::from_str(content).ok()?;
                Some(Self::Key(key.into_iter().map(|(name, value)| (name, Scalar(value))).collect()))
            }
            "v:" => Some(Self::Item(Scalar(serde_json::from_str(content).ok()?))),
            "i:" => Some(Self::Index(content.parse().ok()?)),
            _ => None,
        }
    }
}

impl Set {
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<PathElement> = path.iter().map(|name| PathElement::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.is_empty()
    }

    /// Inserts a path, unless it is empty: an object as a whole has no owner.
    pub(super) fn insert(&mut self, path: &[PathElement]) {
        match path {
            [] => {}
            [last] => drop(self.members.insert(last.clone())),
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn insert_member(&mut self, step: PathElement) {
        self.members.insert(step);
    }

    /// Inserts a set below a step, unless it is empty.
    pub(super) fn insert_child(&mut self, step: PathElement, child: Set) {
        if !child.is_empty() {
            self.children.insert(step, child);
        }
    }

    pub(super) fn has_member(&self, step: &PathElement) -> bool {
        self.members.contains(step)
    }

    pub(super) fn below(&self, step: &PathElement) -> Option<&Set> {
        self.children.get(step)
    }

    pub(super) fn members(&self) -> impl Iterator<Item = &PathElement> {
        self.members.iter()
    }

    pub(super) fn children(&self) -> impl Iterator<Item = (&PathElement, &Set)> {
        self.children.iter()
    }

    pub(super) fn contains(&self, path: &[PathElement]) -> bool {
        match path {
            [] => false,
            [last] => self.members.contains(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|child| child.contains(rest)),
        }
    }

    pub(super) fn union(mut self, other: &Self) -> Self {
        self.add(other);
        self
    }

    fn add(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (step, child) in &other.children {
            match self.children.get_mut(step) {
                Some(own) => own.add(child),
                None => drop(self.children.insert(step.clone(), child.clone())),
            }
        }
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        let mut both =
            Self { members: self.members.intersection(&other.members).cloned().collect(), ..Self::default() };
        for (step, child) in &self.children {
            if let Some(other) = other.children.get(step) {
                both.insert_child(step.clone(), child.intersection(other));
            }
        }
        both
    }

    pub(super) fn difference(&self, other: &Self) -> Self {
        let mut rest =
            Self { members: self.members.difference(&other.members).cloned().collect(), ..Self::default() };
        for (step, child) in &self.children {
            let child = match other.children.get(step) {
                Some(other) => child.difference(other),
                None => child.clone(),
            };
            rest.insert_child(step.clone(), child);
        }
        rest
    }

    /// The difference, without any path below a removed one.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut rest =
            Self { members: self.members.difference(&other.members).cloned().collect(), ..Self::default() };
        for (step, child) in self.children.iter().filter(|(step, _)| !other.members.contains(*step)) {
            let child = match other.children.get(step) {
                Some(other) => child.without(other),
                None => child.clone(),
            };
            rest.insert_child(step.clone(), child);
        }
        rest
    }

    /// All paths, each before the ones below it.
    pub(super) fn paths(&self) -> Vec<Vec<PathElement>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<PathElement>, paths: &mut Vec<Vec<PathElement>>) {
        for member in &self.members {
            prefix.push(member.clone());
            paths.push(prefix.clone());
            prefix.pop();
        }
        for (step, child) in &self.children {
            prefix.push(step.clone());
            child.collect(prefix, paths);
            prefix.pop();
        }
    }

    /// Encodes the set as FieldsV1.
    pub(super) fn to_json(&self) -> Value {
        let mut fields = Map::new();
        for member in &self.members {
            fields.insert(member.to_key(), Value::Object(Map::new()));
        }
        for (step, child) in &self.children {
            let mut below = child.to_json();
            if self.members.contains(step) {
                below["."] = Value::Object(Map::new());
            }
            fields.insert(step.to_key(), below);
        }
        Value::Object(fields)
    }

    /// Decodes FieldsV1; `None` if it is malformed.
    pub(super) fn from_json(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, below) in fields.as_object()?.iter().filter(|(key, _)| *key != ".") {
            let step = PathElement::from_key(key)?;
            let below_fields = below.as_object()?;
            if below_fields.is_empty() || below_fields.contains_key(".") {
                set.members.insert(step.clone());
            }
            set.insert_child(step, Self::from_json(below)?);
        }
        Some(set)
    }
}

/// A path as upstream prints it: `.spec.containers[name="a"].image`.
pub(super) fn shown(path: &[PathElement]) -> String {
    let mut text = String::new();
    for step in path {
        // Writing to a String cannot fail.
        let _ = write!(text, "{step}");
    }
    text
}
