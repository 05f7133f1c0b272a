//! Watches in protobuf, byte by byte.

use prost::Message;

use super::*;
use crate::kind::GroupVersionResource;
use crate::metadata::Metadata;
use crate::protobuf::wire::Writer;
use crate::protobuf::{FieldsV1, MAGIC, ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf;stream=watch";

fn field(number: u32, value: &[u8]) -> Vec<u8> {
    let mut message = Writer::new();
    message.bytes(number, value);
    message.into_bytes()
}

/// An object in its envelope.
fn enveloped(object: &[u8], content_type: &str) -> Vec<u8> {
    let types = [field(1, b"v1"), field(2, b"Pod")].concat();
    [MAGIC.to_vec(), field(1, &types), field(2, object), field(3, b""), field(4, content_type.as_bytes())]
        .concat()
}

/// A length-prefixed event.
fn event(event_type: &str, object: &[u8]) -> Vec<u8> {
    let message = [field(1, event_type.as_bytes()), field(2, &field(1, object))].concat();
    [&(message.len() as u32).to_be_bytes()[..], &message].concat()
}

fn meta(name: &str, version: &str) -> ObjectMeta {
    ObjectMeta {
        name: name.to_owned(),
        namespace: "ns".to_owned(),
        resource_version: version.to_owned(),
        ..ObjectMeta::default()
    }
}

fn object(meta: &ObjectMeta) -> Vec<u8> {
    field(1, &meta.encode_to_vec())
}

fn named(name: &str, version: &str) -> Vec<u8> {
    enveloped(&object(&meta(name, version)), "")
}

fn marked(mark: &str) -> Vec<u8> {
    let mark = ("k8s.io/initial-events-end".to_owned(), mark.to_owned());
    let annotations = [mark, ("other".to_owned(), "x".to_owned())].into();
    enveloped(&object(&ObjectMeta { annotations, ..meta("", "3") }), "")
}

fn metadata_of_pods() -> Metadata {
    Metadata::new(GroupVersionResource::of::<Pod>())
}

async fn read(body: &[u8], chunk: usize) -> Vec<String> {
    let client = chunked_as(PROTOBUF, body.to_vec(), chunk);
    let source = KubeListWatch::new(client, Arc::new(metadata_of_pods()));
    let events = source.watch(&ListOptions::default()).await.unwrap();
    events
        .map(|event| describe(event, |object| object.metadata.name.clone().unwrap_or_default()))
        .collect()
        .await
}

#[tokio::test]
async fn protobuf_events_decode_across_chunk_boundaries() {
    // Valid metadata, followed by an invalid field.
    let broken = enveloped(&[object(&meta("x", "4")), vec![0xff]].concat(), "");
    let json = pod("j", "5").to_string();
    let status = [field(3, b"too old"), field(4, b"Expired"), vec![0x30, 0x9a, 0x03]].concat();
    let large =
        ObjectMeta { annotations: [("blob".to_owned(), "x".repeat(300))].into(), ..meta("large", "2") };
    let body = [
        event("ADDED", &named("a", "1")),
        event("MODIFIED", &enveloped(&object(&large), "")),
        event("BOOKMARK", &marked("false")),
        event("BOOKMARK", &marked("true")),
        event("MODIFIED", &broken),
        event("DELETED", &broken),
        event("ADDED", &enveloped(json.as_bytes(), "application/json")),
        event("SHRUGGED", &named("y", "4")),
        event("DELETED", &named("a", "5")),
        event("ERROR", &enveloped(&status, "")),
        event("ERROR", &enveloped(br#"{"code":429,"reason":"TooManyRequests"}"#, "application/json")),
        event("ADDED", &named("last", "6")),
    ]
    .concat();
    let expected = [
        "+a",
        "~large",
        "@3",
        "@3 end",
        "undecodable ns/x 4",
        "undecodable ns/x 4 deleted",
        "+j",
        "undecodable ns/y 4",
        "-a",
        "error 410 Expired",
        "error 429 TooManyRequests",
        "+last",
    ];
    for chunk in [1, 2, 3, 4, 5, 7, 64, 1000, body.len()] {
        assert_eq!(read(&body, chunk).await, expected, "chunks of {chunk}");
    }
    // A truncated event at the end is dropped silently.
    let last = body.len() - event("ADDED", &named("last", "6")).len();
    for end in last..body.len() {
        assert_eq!(read(&body[..end], 50).await, expected[..11]);
    }
}

#[tokio::test]
async fn protobuf_objects_above_codec_limits_are_read() {
    // tokio's codec rejects frames of more than 8 MB by default.
    let blob = [("blob".to_owned(), "x".repeat(9 << 20))].into();
    let large = enveloped(&object(&ObjectMeta { annotations: blob, ..meta("large", "1") }), "");
    let body = [event("ADDED", &large), event("ADDED", &named("small", "2"))].concat();
    assert_eq!(read(&body, 1 << 16).await, ["+large", "+small"]);
}

#[tokio::test]
async fn an_unreadable_protobuf_event_is_a_watch_error() {
    let good = event("ADDED", &named("a", "1"));
    let unnamed = enveloped(&field(2, b"no metadata"), "");
    for broken in [
        vec![0; 4],
        [0, 0, 0, 3, 0xff, 0xff, 0xff].to_vec(),
        event("ADDED", b"not in an envelope"),
        event("ADDED", &enveloped(&object(&meta("a", "1")), "application/yaml")),
        event("ADDED", &enveloped(b"\xff", "")),
        event("BOOKMARK", &unnamed),
        event("ERROR", &enveloped(b"\xff", "")),
    ] {
        let body = [good.clone(), broken.clone(), good.clone()].concat();
        assert_eq!(read(&body, 7).await, ["+a", "error 500 InternalError", "+a"], "{broken:x?}");
    }
    // After an impossible length, the next event cannot be found.
    let body = [good.clone(), vec![0x7f, 0xff, 0xff, 0xff], good].concat();
    assert_eq!(read(&body, 7).await, ["+a", "error 500 InternalError"]);
}

#[test]
fn metadata_decodes_equally_from_protobuf_and_json() {
    let time = |seconds| Some(Time { seconds, nanos: Some(0) });
    let owner = OwnerReference {
        kind: "Node".to_owned(),
        name: "n".to_owned(),
        uid: "u".to_owned(),
        api_version: "v1".to_owned(),
        controller: Some(false),
        block_owner_deletion: None,
    };
    let managed = ManagedFieldsEntry {
        manager: "m".to_owned(),
        operation: "Update".to_owned(),
        api_version: "v1".to_owned(),
        time: time(Some(1)),
        fields_type: "FieldsV1".to_owned(),
        fields_v1: Some(FieldsV1 { raw: br#"{"f:spec":{}}"#.to_vec() }),
        subresource: String::new(),
    };
    let message = ObjectMeta {
        generation: 3,
        creation_timestamp: time(Some(1_700_000_000)),
        deletion_grace_period_seconds: Some(0),
        labels: [("a".to_owned(), String::new())].into(),
        owner_references: vec![owner],
        finalizers: vec!["f".to_owned()],
        managed_fields: vec![managed],
        ..meta("a", "1")
    };
    let json = json!({"metadata": {
        "name": "a", "namespace": "ns", "resourceVersion": "1", "generation": 3,
        "creationTimestamp": "2023-11-14T22:13:20Z", "deletionGracePeriodSeconds": 0, "labels": {"a": ""},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": false}],
        "finalizers": ["f"],
        "managedFields": [{"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "time": "1970-01-01T00:00:01Z", "fieldsV1": {"f:spec": {}}}],
    }});
    let decode = |content_type, bytes: &[u8]| metadata_of_pods().decode(content_type, bytes);
    let from_json = decode(ContentType::Json, json.to_string().as_bytes()).unwrap();
    let from_protobuf = decode(ContentType::Protobuf, &object(&message)).unwrap();
    assert_eq!(from_protobuf.metadata, from_json.metadata);
    assert_eq!(from_protobuf.types, from_json.types);

    // Go writes the zero time as an empty message.
    let unset = ObjectMeta { creation_timestamp: time(None), ..meta("a", "1") };
    assert_eq!(decode(ContentType::Protobuf, &object(&unset)).unwrap().metadata.creation_timestamp, None);
    // Times and fields out of range.
    let late = ObjectMeta { deletion_timestamp: time(Some(i64::MAX)), ..meta("a", "1") };
    assert!(matches!(decode(ContentType::Protobuf, &object(&late)), Err(DecodeError::Invalid(_))));
    let mut mangled = message;
    mangled.managed_fields[0].fields_v1 = Some(FieldsV1 { raw: b"{".to_vec() });
    assert!(matches!(decode(ContentType::Protobuf, &object(&mangled)), Err(DecodeError::Json(_))));
}
