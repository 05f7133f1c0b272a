//! YAML as a tree with positions.
//!
//! The tree has the values that kube-scheduler reads from the same text: JSON's types, with the
//! booleans of YAML 1.1. Duplicate keys are kept, because their paths are not known here. Aliases
//! and merge keys are resolved; resolved values keep the position of their definition.

mod build;
mod emit;
mod scalar;

pub(super) use build::parse;
pub use emit::write;

use super::error::Position;

/// Why a text is not a valid tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    /// The position.
    pub(super) at: Position,
    /// The problem.
    pub(super) message: String,
}

impl SyntaxError {
    fn new(at: Position, message: impl Into<String>) -> Self {
        Self { at, message: message.into() }
    }
}

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Node {
    /// Where it begins.
    pub(super) at: Position,
    /// Its content.
    pub(super) content: Content,
}

/// The content of a node.
#[derive(Clone, Debug)]
pub(super) enum Content {
    Null,
    Bool(bool),
    Number(serde_json::Number),
    String(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) key_at: Position,
    pub(super) value: Node,
}

impl Entry {
    /// The position for errors in the value: the value if it begins on the line of its key, else (a
    /// block below the key, an alias) the key.
    pub(super) fn at(&self) -> Position {
        if self.value.at.line == self.key_at.line { self.value.at } else { self.key_at }
    }
}

impl Node {
    /// The node as JSON. The first of duplicate keys wins.
    pub(super) fn to_json(&self) -> serde_json::Value {
        use serde_json::Value;
        match &self.content {
            Content::Null => Value::Null,
            Content::Bool(value) => Value::Bool(*value),
            Content::Number(value) => Value::Number(value.clone()),
            Content::String(value) => Value::String(value.clone()),
            Content::List(items) => items.iter().map(Node::to_json).collect(),
            Content::Map(entries) => {
                let pairs = entries.iter().rev();
                pairs.map(|entry| (entry.key.clone(), entry.value.to_json())).collect()
            }
        }
    }

    /// Describes the node for an error message.
    pub(super) fn describe(&self) -> String {
        match &self.content {
            Content::Null => "null".to_owned(),
            Content::Bool(value) => format!("the boolean {value}"),
            Content::Number(value) => format!("the number {value}"),
            Content::String(value) => format!("the string {}", shortened(value)),
            Content::List(_) => "a list".to_owned(),
            Content::Map(_) => "a mapping".to_owned(),
        }
    }

    /// The number of nodes, including this one.
    fn size(&self) -> usize {
        match &self.content {
            Content::List(items) => 1 + items.iter().map(Node::size).sum::<usize>(),
            Content::Map(entries) => 1 + entries.iter().map(|entry| entry.value.size()).sum::<usize>(),
            _ => 1,
        }
    }

    /// The number of nested levels of lists and mappings.
    fn height(&self) -> usize {
        let below = match &self.content {
            Content::List(items) => items.iter().map(Node::height).max(),
            Content::Map(entries) => entries.iter().map(|entry| entry.value.height()).max(),
            _ => return 0,
        };
        1 + below.unwrap_or(0)
    }
}

/// A quoted string, truncated to fit on a line.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 40;
    if text.chars().count() <= LONGEST {
        return format!("{text:?}");
    }
    let beginning: String = text.chars().take(LONGEST).collect();
    format!("{beginning:?}…")
}
