//! A configuration inside a ConfigMap, as it is often kept.

use super::file::KIND;
use super::yaml::{Content, Node};

/// The key and text of the configuration in a ConfigMap; `None` for any other object.
pub(super) fn data(root: &Node) -> Option<Result<(&str, &str), String>> {
    let is_config_map = matches!(text(root, "kind"), Some("ConfigMap"));
    is_config_map.then(|| configuration(root))
}

fn configuration(root: &Node) -> Result<(&str, &str), String> {
    let entries = match field(root, "data").map(|data| &data.content) {
        Some(Content::Map(entries)) => &entries[..],
        _ => &[],
    };
    let texts = entries.iter().filter_map(|entry| match &entry.value.content {
        Content::String(text) => Some((entry.key.as_str(), text.as_str())),
        _ => None,
    });
    let found: Vec<_> = texts.filter(|(_, text)| text.contains(KIND)).collect();
    match &found[..] {
        [one] => Ok(*one),
        [] => Err(format!("the data of this ConfigMap holds no {KIND}")),
        several => {
            let keys: Vec<&str> = several.iter().map(|(key, _)| *key).collect();
            Err(format!("the data of this ConfigMap holds several: {}; extract one", keys.join(", ")))
        }
    }
}

fn field<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let Content::Map(entries) = &node.content else { return None };
    entries.iter().find(|entry| entry.key == name).map(|entry| &entry.value)
}

fn text<'a>(node: &'a Node, name: &str) -> Option<&'a str> {
    match &field(node, name)?.content {
        Content::String(text) => Some(text),
        _ => None,
    }
}
