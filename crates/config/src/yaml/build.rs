//! Builds the tree from parser events.

use std::collections::BTreeMap;

use granit_parser::{ErrorKind, Event, Marker, Parser, ScalarStyle, Tag};

use super::{Content, Entry, Node, Position, SyntaxError, scalar};

/// Maximum depth. The deepest field of kube-scheduler's file is at level 12. The limit makes
/// recursion over the tree safe.
const DEEPEST: usize = 64;
/// Maximum number of values, counting those repeated by aliases, so that a few lines cannot expand
/// to gigabytes. A large file has hundreds.
const MOST_NODES: usize = 10_000;

/// Parses a text with a single document.
pub(crate) fn parse(text: &str) -> Result<Node, SyntaxError> {
    let options = granit_parser::options! {
        emit_comments: false,
        block_nesting_limit: DEEPEST,
        flow_nesting_limit: DEEPEST,
    };
    let mut builder = Builder::default();
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| not_yaml(error.kind(), position(error.marker())))?;
        builder.take(event, position(&span.start))?;
    }
    builder.finish()
}

/// Converts the parser's position.
fn position(marker: &Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

/// Converts the parser's error.
fn not_yaml(kind: &ErrorKind, at: Position) -> SyntaxError {
    match kind {
        ErrorKind::RecursionLimitExceeded => too_deep(at),
        kind => SyntaxError::new(at, format!("this is not YAML: {kind}")),
    }
}

fn too_deep(at: Position) -> SyntaxError {
    SyntaxError::new(at, format!("more than {DEEPEST} levels of lists and mappings"))
}

/// The state between events.
#[derive(Default)]
struct Builder {
    /// The open lists and mappings.
    open: Vec<Open>,
    /// Nodes that aliases can repeat.
    anchors: BTreeMap<usize, Node>,
    /// The number of nodes, including those of `anchors`.
    nodes: usize,
    /// The number of documents so far.
    documents: usize,
    /// The finished document.
    root: Option<Node>,
}

/// A list or mapping that has not ended.
struct Open {
    at: Position,
    anchor: usize,
    content: Content,
    /// The key whose value comes next.
    key: Option<(Key, Position)>,
    /// Values of merge keys.
    merged: Vec<Node>,
}

/// A key of a mapping.
enum Key {
    Field(String),
    Merge,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, at: Position) -> Result<(), SyntaxError> {
        match event {
            Event::DocumentStart(..) => self.begin_document(at),
            Event::Scalar(text, style, anchor, tag) => {
                let merge = text == "<<" && style == ScalarStyle::Plain && tag.is_none();
                if merge && self.begin_merge(at) {
                    return Ok(());
                }
                let content = scalar_content(&text, style, tag.as_deref())
                    .map_err(|message| SyntaxError::new(at, message))?;
                self.put(Node { at, content }, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin(at, anchor, Content::List(Vec::new()), tag.as_deref(), "seq")
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin(at, anchor, Content::Map(Vec::new()), tag.as_deref(), "map")
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(anchor) => self.repeat(anchor, at),
            _ => Ok(()),
        }
    }

    fn begin_document(&mut self, at: Position) -> Result<(), SyntaxError> {
        self.documents += 1;
        if self.documents > 1 {
            let message = "a second document begins here; a configuration is one document";
            return Err(SyntaxError::new(at, message));
        }
        Ok(())
    }

    fn begin(
        &mut self,
        at: Position,
        anchor: usize,
        content: Content,
        tag: Option<&Tag>,
        own_tag: &str,
    ) -> Result<(), SyntaxError> {
        if tag.is_some_and(|tag| !tag.is_yaml_core_schema_tag(own_tag)) {
            return Err(SyntaxError::new(at, "tags are not supported; remove it"));
        }
        self.open.push(Open { at, anchor, content, key: None, merged: Vec::new() });
        Ok(())
    }

    fn end(&mut self) -> Result<(), SyntaxError> {
        let Some(mut open) = self.open.pop() else {
            return Ok(());
        };
        if let Content::Map(entries) = &mut open.content {
            merge(entries, open.merged)?;
        }
        let (at, content) = (open.at, open.content);
        self.put(Node { at, content }, open.anchor)
    }

    /// Treats `<<` as a merge key if a key is expected.
    fn begin_merge(&mut self, at: Position) -> bool {
        match self.open.last_mut() {
            Some(open) if open.key.is_none() && matches!(open.content, Content::Map(_)) => {
                open.key = Some((Key::Merge, at));
                true
            }
            _ => false,
        }
    }

    /// Inserts a copy of an anchored node.
    fn repeat(&mut self, anchor: usize, at: Position) -> Result<(), SyntaxError> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err(SyntaxError::new(at, "an alias inside the value that it repeats"));
        };
        self.count(node.size(), at)?;
        if self.open.len() + node.height() > DEEPEST {
            return Err(too_deep(at));
        }
        self.put(node, 0)
    }

    /// Adds a finished node to the innermost open one.
    fn put(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        self.count(1, node.at)?;
        if anchor > 0 {
            self.count(node.size(), node.at)?;
            self.anchors.insert(anchor, node.clone());
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        match (&mut open.content, open.key.take()) {
            (Content::Map(entries), Some((Key::Field(key), key_at))) => {
                entries.push(Entry { key, key_at, value: node });
            }
            (Content::Map(_), Some((Key::Merge, _))) => open.merged.push(node),
            (Content::Map(_), None) => open.key = Some(field(node)?),
            (Content::List(items), _) => items.push(node),
            // Only lists and mappings can be open.
            _ => {}
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), SyntaxError> {
        self.nodes += nodes;
        if self.nodes > MOST_NODES {
            let message = format!("more than {MOST_NODES} values, counting what aliases repeat");
            return Err(SyntaxError::new(at, message));
        }
        Ok(())
    }

    fn finish(self) -> Result<Node, SyntaxError> {
        match self.root {
            Some(node) if !matches!(node.content, Content::Null) => Ok(node),
            _ => {
                let message = "the file is empty; it must hold a KubeSchedulerConfiguration";
                Err(SyntaxError::new(Position { line: 1, column: 1 }, message))
            }
        }
    }
}

/// Converts a node to a key.
fn field(node: Node) -> Result<(Key, Position), SyntaxError> {
    if let Content::String(key) = node.content {
        return Ok((Key::Field(key), node.at));
    }
    let message = format!("a key must be a string, this is {}", node.describe());
    Err(SyntaxError::new(node.at, message))
}

/// Adds the entries of merge keys. Existing keys take precedence.
fn merge(entries: &mut Vec<Entry>, merged: Vec<Node>) -> Result<(), SyntaxError> {
    for node in merged {
        match node.content {
            Content::Map(more) => {
                for entry in more {
                    if entries.iter().all(|present| present.key != entry.key) {
                        entries.push(entry);
                    }
                }
            }
            // A list of mappings is merged one by one. A nested list is not a mapping.
            Content::List(items) if items.iter().all(|item| matches!(item.content, Content::Map(_))) => {
                merge(entries, items)?;
            }
            _ => return Err(SyntaxError::new(node.at, "only mappings can be merged with <<")),
        }
    }
    Ok(())
}

/// The value of a scalar of any style.
fn scalar_content(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Content, String> {
    let string = || Content::String(text.to_owned());
    let Some(tag) = tag else {
        return if style == ScalarStyle::Plain { scalar::resolve(text) } else { Ok(string()) };
    };
    let tagged = |name| tag.is_yaml_core_schema_tag(name);
    if tagged("str") {
        return Ok(string());
    }
    match scalar::resolve(text)? {
        content @ Content::Null if tagged("null") => Ok(content),
        content @ Content::Bool(_) if tagged("bool") => Ok(content),
        content @ Content::Number(_) if tagged("int") || tagged("float") => Ok(content),
        _ => Err("the tag does not match the value; remove it".to_owned()),
    }
}
