use super::*;
use crate::protobuf::wire::Writer;

fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut message = Writer::new();
    message.bytes(number, value);
    message.into_bytes()
}

fn metadata() -> Vec<u8> {
    field(1, &[field(2, b"7"), field(3, b"next")].concat())
}

fn types(kind: &str) -> Vec<u8> {
    field(1, &[field(1, b"v1"), field(2, kind.as_bytes())].concat())
}

/// A list in its envelope.
fn body(list: &[u8]) -> Vec<u8> {
    [MAGIC.to_vec(), types("PodList"), field(2, list), field(3, b""), field(4, b"")].concat()
}

fn split(body: &[u8], size: usize) -> Result<(Vec<Vec<u8>>, ListMeta), Malformed> {
    let mut splitter = ListSplitter::new(1000);
    let mut items = Vec::new();
    for mut chunk in body.chunks(size) {
        while let Some(item) = splitter.next_item(&mut chunk)? {
            items.push(item.to_vec());
        }
    }
    Ok((items, splitter.finish()?))
}

#[test]
fn protobuf_list_items_split_across_chunk_boundaries() {
    let large = [7; 300];
    // Between the items, unknown fields of every wire type.
    let unknown =
        [field(12, b"?"), vec![0x18, 0x96, 0x01, 0x21], vec![0; 8], vec![0x2d, 0, 0, 0, 0]].concat();
    let list =
        [metadata(), field(2, b"one"), unknown, field(2, b""), field(2, &large), field(2, b"last")].concat();
    let expected = [b"one".to_vec(), Vec::new(), large.to_vec(), b"last".to_vec()];
    let body = body(&list);
    for size in 1..=body.len() {
        let (items, metadata) = split(&body, size).unwrap();
        assert_eq!(items, expected, "chunks of {size}");
        assert_eq!((metadata.resource_version.as_str(), metadata.continue_token.as_str()), ("7", "next"));
    }
    // The metadata may also come last.
    let (items, _) = split(&self::body(&[field(2, b"one"), metadata()].concat()), 3).unwrap();
    assert_eq!(items, [b"one"]);
}

#[test]
fn truncated_or_invalid_protobuf_list_is_an_error() {
    let whole = body(&[metadata(), field(2, b"one")].concat());
    // Without the fields that Go writes after the list, nothing is missing.
    let list_ends = whole.len() - 4;
    for end in 0..whole.len() {
        let result = split(&whole[..end], 7);
        let complete = end == list_ends || end == list_ends + 2;
        assert_eq!(result.is_ok(), complete, "{end} of {}: {result:?}", whole.len());
    }
    let list = field(2, &metadata());
    let magic = MAGIC.to_vec();
    let beyond = [vec![0x12, 4], field(2, b"one")].concat();
    let endless = [vec![0x12, 20], vec![0x12, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f]].concat();
    for broken in [
        [b"k9s\0".to_vec(), list.clone()].concat(),
        [magic.clone(), types("Pod"), list.clone()].concat(),
        [magic.clone(), list.clone(), list.clone()].concat(),
        [magic.clone(), list.clone(), field(3, b"gzip")].concat(),
        [magic.clone(), list.clone(), field(4, b"application/json")].concat(),
        [magic.clone(), field(2, b"")].concat(),
        [magic.clone(), field(2, &field(2, b"one"))].concat(),
        [magic.clone(), field(2, &field(1, b"\x07"))].concat(),
        [magic.clone(), beyond].concat(),
        [magic.clone(), endless].concat(),
        body(&[metadata(), field(2, &[0; 1001])].concat()),
        magic,
    ] {
        for size in [1, 5, 2000] {
            assert!(split(&broken, size).is_err(), "{broken:x?}");
        }
    }
}
