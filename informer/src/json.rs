//! Just enough of JSON's structure to cut objects out of what the server sends, so that a list is never held
//! as a whole and one broken object spoils only itself. The pieces are judged by whoever decodes them.

/// Follows strings and nesting, byte by byte.
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

/// The bytes of a top-level member of a JSON object.
pub(crate) fn member<'a>(object: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut scanner = Scanner::default();
    let mut start = 0;
    let mut wanted = false;
    for (at, &byte) in object.iter().enumerate() {
        let (depth, in_string) = (scanner.depth, scanner.in_string);
        scanner.step(byte);
        if in_string {
            continue;
        }
        match (byte, depth) {
            (b'{', 0) => start = at + 1,
            (b':', 1) => {
                let key = object[start..at].trim_ascii();
                wanted =
                    key.strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\"")) == Some(name.as_bytes());
                start = at + 1;
            }
            (b',' | b'}', 1) => {
                if wanted {
                    return Some(object[start..at].trim_ascii());
                }
                start = at + 1;
            }
            _ => {}
        }
    }
    None
}

/// Whether the text is one whole value, as opposed to one that broke off.
pub(crate) fn is_complete(text: &[u8]) -> bool {
    let mut scanner = Scanner::default();
    for byte in text {
        scanner.step(*byte);
    }
    scanner.depth == 0 && !scanner.in_string && !text.trim_ascii().is_empty()
}

/// Cuts the elements of the top-level array `items` out of a list that arrives in chunks.
#[derive(Debug, Default)]
pub(crate) struct ListSplitter {
    scanner: Scanner,
    in_items: bool,
    item: Vec<u8>,
    item_done: bool,
    envelope: Vec<u8>,
}

impl ListSplitter {
    /// The next item that is complete; `chunk` is shortened by what was read. `None` asks for more.
    pub(crate) fn next_item(&mut self, chunk: &mut &[u8]) -> Option<&[u8]> {
        if std::mem::take(&mut self.item_done) {
            self.item.clear();
        }
        let bytes = *chunk;
        // Where the part of the current item that lies in this chunk begins.
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
                (true, 2, 3) => from = at,
                (true, 3, 2) => {
                    self.item.extend_from_slice(&bytes[from..=at]);
                    self.item_done = true;
                    *chunk = &bytes[at + 1..];
                    return Some(&self.item);
                }
                (true, ..) => {}
            }
        }
        if self.in_items && self.scanner.depth > 2 {
            self.item.extend_from_slice(&bytes[from..]);
        }
        *chunk = &[];
        None
    }

    /// What surrounds the items, with `items` empty.
    pub(crate) fn envelope(&self) -> &[u8] {
        &self.envelope
    }
}

/// Whether a `[` here opens the value of the key `items`.
fn follows_items_key(before: &[u8]) -> bool {
    let key = before.trim_ascii_end().strip_suffix(b":").map(<[u8]>::trim_ascii_end);
    let rest = key.and_then(|key| key.strip_suffix(b"\"items\"")).map(<[u8]>::trim_ascii_end);
    rest.is_some_and(|rest| rest.ends_with(b"{") || rest.ends_with(b","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_whatever_surrounds_them() {
        let frame = br#" {"type" : "ADDED", "object":{"type":"x","s":"}\"{","a":[1,{}]},"z":1 }"#;
        assert_eq!(member(frame, "type"), Some(&b"\"ADDED\""[..]));
        assert_eq!(member(frame, "object"), Some(&br#"{"type":"x","s":"}\"{","a":[1,{}]}"#[..]));
        assert_eq!(member(frame, "z"), Some(&b"1"[..]));
        for (text, name) in
            [(&b"{}"[..], "type"), (b"nonsense", "type"), (br#"{"type":"A"#, "type"), (frame, "s")]
        {
            assert_eq!(member(text, name), None);
        }
    }

    #[test]
    fn a_text_that_broke_off_is_not_complete() {
        for (text, complete) in
            [("{}", true), ("{\"a\":\"}\"}", true), ("{\"a\":\"}", false), ("{[}", false), (" ", false)]
        {
            assert_eq!(is_complete(text.as_bytes()), complete, "{text}");
        }
    }

    #[test]
    fn items_are_cut_out_wherever_the_chunks_end() {
        let list =
            br#"{"kind":"L", "x":{"items":[{"no":1}]}, "items" : [ {"a":"]}\\\"{"} ,{"b":[[],{"c":{}}]},{}],
            "metadata":{"resourceVersion":"7","y":[{}]}}"#;
        for size in 1..list.len() {
            let mut splitter = ListSplitter::default();
            let mut items = Vec::new();
            for mut chunk in list.chunks(size) {
                while let Some(item) = splitter.next_item(&mut chunk) {
                    items.push(String::from_utf8(item.to_vec()).unwrap());
                }
            }
            assert_eq!(items, [r#"{"a":"]}\\\"{"}"#, r#"{"b":[[],{"c":{}}]}"#, "{}"], "chunks of {size}");
            let envelope: serde_json::Value = serde_json::from_slice(splitter.envelope()).unwrap();
            assert_eq!(envelope["metadata"]["resourceVersion"], "7");
            assert_eq!(envelope["items"], serde_json::json!([]));
            assert_eq!(envelope["x"]["items"][0]["no"], 1);
        }
    }
}
