//! Scans JSON to cut objects out of responses. A list is never held in memory as a whole, and a
//! malformed object affects only itself. Decoders validate the pieces.

use serde::Deserialize;
use serde::de::IgnoredAny;
use thiserror::Error;

use crate::buffer;

/// Tracks strings and nesting, byte by byte.
#[derive(Debug, Default)]
struct Scanner {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Scanner {
    fn step(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => {}
            }
        } else {
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

/// The top-level members `type` and `object` of a watch event. `None` unless the text is exactly
/// one JSON object: neither truncated nor two events merged by a loss.
pub(crate) fn watch_event(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii();
    let (mut event_type, mut object) = (None, None);
    let mut scanner = Scanner::default();
    let mut start = 1;
    let mut key: &[u8] = &[];
    let mut end = 0;
    for (at, &byte) in text.iter().enumerate() {
        let (depth, in_string) = (scanner.depth, scanner.in_string);
        if depth == 0 && (byte != b'{' || at > 0) {
            return None;
        }
        scanner.step(byte);
        if in_string || depth != 1 {
            continue;
        }
        match byte {
            b':' => {
                key = text[start..at].trim_ascii();
                start = at + 1;
            }
            b',' | b'}' => {
                let value = text[start..at].trim_ascii();
                match key {
                    b"\"type\"" => event_type = Some(value),
                    b"\"object\"" => object = Some(value),
                    _ => {}
                }
                start = at + 1;
                end = at + 1;
            }
            _ => {}
        }
    }
    (scanner.depth == 0 && end == text.len()).then_some((event_type?, object?))
}

/// Whether the text is one complete value, not a truncated one.
pub(crate) fn is_complete(text: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    for byte in text {
        scanner.step(*byte);
    }
    scanner.depth == 0 && !scanner.in_string && !text.trim_ascii().is_empty()
}

/// Why a text is not a list.
#[derive(Debug, Error)]
pub(crate) enum NotAList {
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    #[error("an item is not an object")]
    Junk,
    #[error("an item is too large")]
    TooLarge,
    #[error("too much text around the items")]
    LargeEnvelope,
}

/// What surrounds the items of a list.
#[derive(Deserialize)]
struct Envelope {
    metadata: ListMeta,
    /// Empty but required: without it, the items were not recognised.
    #[serde(rename = "items")]
    _items: IgnoredAny,
}

/// The metadata of a list.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ListMeta {
    #[serde(default)]
    pub(crate) resource_version: String,
    #[serde(default, rename = "continue")]
    pub(crate) continue_token: Option<String>,
}

/// The maximum size of the text around the items, far more than servers send.
const MAX_ENVELOPE: usize = 1 << 20;

/// Cuts the elements of the top-level array `items` out of a list that arrives in chunks.
#[derive(Debug)]
pub(crate) struct ListSplitter {
    scanner: Scanner,
    in_items: bool,
    item: Vec<u8>,
    item_done: bool,
    envelope: Vec<u8>,
    max_item: usize,
}

impl ListSplitter {
    /// `max_item` limits the size of an item in bytes.
    pub(crate) fn new(max_item: usize) -> Self {
        Self {
            scanner: Scanner::default(),
            in_items: false,
            item: Vec::new(),
            item_done: false,
            envelope: Vec::new(),
            max_item,
        }
    }

    /// The next complete item. Advances `chunk` past the bytes read. `None` requests another chunk.
    pub(crate) fn next_item(&mut self, chunk: &mut &[u8]) -> Result<Option<&[u8]>, NotAList> {
        if std::mem::take(&mut self.item_done) {
            buffer::clear(&mut self.item);
        }
        let bytes = *chunk;
        // The start of the current item within this chunk.
        let mut from = 0;
        for (at, &byte) in bytes.iter().enumerate() {
            let before = self.scanner.depth;
            self.scanner.step(byte);
            match (self.in_items, before, self.scanner.depth) {
                (false, 1, 2) if byte == b'[' && follows_items_key(&self.envelope) => {
                    self.envelope.push(byte);
                    self.in_items = true;
                }
                (false, ..) => self.envelope.push(byte),
                (true, 2, 1) => {
                    self.envelope.push(byte);
                    self.in_items = false;
                }
                (true, 2, 3) if byte == b'{' => from = at,
                (true, 2, 2) if byte == b',' || byte.is_ascii_whitespace() => {}
                (true, 2, _) => return Err(NotAList::Junk),
                (true, 3, 2) => {
                    self.item.extend_from_slice(&bytes[from..=at]);
                    self.item_done = true;
                    *chunk = &bytes[at + 1..];
                    return Ok(Some(&self.item));
                }
                (true, ..) => {}
            }
        }
        if self.in_items && self.scanner.depth > 2 {
            self.item.extend_from_slice(&bytes[from..]);
        }
        *chunk = &[];
        if self.envelope.len() > MAX_ENVELOPE {
            return Err(NotAList::LargeEnvelope);
        }
        if self.item.len() > self.max_item { Err(NotAList::TooLarge) } else { Ok(None) }
    }

    /// The list's metadata. Fails unless the list is complete.
    pub(crate) fn finish(self) -> Result<ListMeta, NotAList> {
        let envelope: Envelope = serde_json::from_slice(&self.envelope)?;
        Ok(envelope.metadata)
    }
}

/// Whether a `[` at this position opens the value of the key `items`.
fn follows_items_key(before: &[u8]) -> bool {
    let key = before.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
    let rest = key.and_then(|key| key.strip_suffix(b"\"items\"")).map(<[u8]>::trim_ascii_end);
    rest.is_some_and(|rest| rest.ends_with(b"{") || rest.ends_with(b","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watch_event_members_are_found_among_others() {
        let object = r#"{"type":"x","s":"}\"{","a":[1,{}]}"#;
        let text = format!(r#" {{"z":{{"type":1}}, "type" : "ADDED", "object":{object},"y":1 }} "#);
        assert_eq!(watch_event(text.as_bytes()), Some((&b"\"ADDED\""[..], object.as_bytes())));
    }

    #[test]
    fn incomplete_or_multiple_events_are_none() {
        let event = r#"{"type":"A","object":{"a":{}}}"#;
        assert!(watch_event(event.as_bytes()).is_some());
        let mut broken = vec![
            "nonsense".to_owned(),
            "{}".to_owned(),
            r#"{"type":"A"}"#.to_owned(),
            r#"{"object":{}}"#.to_owned(),
            format!("{event}{event}"),
            format!("{event}x"),
            format!("x{event}"),
            format!("[{event}]"),
        ];
        broken.extend((0..event.len()).map(|end| event[..end].to_owned()));
        for text in broken {
            assert_eq!(watch_event(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn truncated_json_is_not_complete() {
        for (text, complete) in
            [("{}", true), ("{\"a\":\"}\"}", true), ("{\"a\":\"}", false), ("{[}", false), (" ", false)]
        {
            assert_eq!(is_complete(text.as_bytes()), complete, "{text}");
        }
    }

    /// The items and metadata of a list that arrives in chunks of this size.
    fn split(list: &[u8], size: usize) -> Result<(Vec<String>, ListMeta), NotAList> {
        let mut splitter = ListSplitter::new(64);
        let mut items = Vec::new();
        for mut chunk in list.chunks(size) {
            while let Some(item) = splitter.next_item(&mut chunk)? {
                items.push(String::from_utf8(item.to_vec()).unwrap());
            }
        }
        Ok((items, splitter.finish()?))
    }

    #[test]
    fn json_list_items_split_across_chunk_boundaries() {
        let list =
            br#"{"kind":"L", "x":{"items":[{"no":1}]}, "items" : [ {"a":"]}\\\"{"} ,{"b":[[],{"c":{}}]},{}],
            "metadata":{"resourceVersion":"7","continue":"c","y":[{}]}}"#;
        for size in 1..list.len() {
            let (items, metadata) = split(list, size).unwrap();
            assert_eq!(items, [r#"{"a":"]}\\\"{"}"#, r#"{"b":[[],{"c":{}}]}"#, "{}"], "chunks of {size}");
            assert_eq!(
                (metadata.resource_version.as_str(), metadata.continue_token.as_deref()),
                ("7", Some("c"))
            );
        }
    }

    #[test]
    fn truncated_or_malformed_json_list_is_an_error() {
        let of = |items: &str| format!(r#"{{"metadata":{{"resourceVersion":"7"}},{items}}}"#);
        for items in ["[]", "null", "[{}]", " [ {} , {} ] "] {
            assert!(split(of(&format!(r#""items":{items}"#)).as_bytes(), 5).is_ok(), "{items}");
        }
        let large = format!(r#""items":[{{"a":"{}"}}]"#, "x".repeat(100));
        for broken in [
            r#""itemt":[{}]"#,
            r#""items":[{}x{}]"#,
            r#""items":[{},"{}"]"#,
            r#""items":[{},[]]"#,
            r#""items":[{}}"#,
            r#""items":[{}"#,
            &large,
        ] {
            assert!(split(of(broken).as_bytes(), 5).is_err(), "{broken}");
        }
        assert!(split(br#"{"items":[]}"#, 5).is_err(), "no metadata");
    }
}
