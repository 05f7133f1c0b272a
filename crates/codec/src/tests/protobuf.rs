//! Protobuf and JSON decode to the same record.

use proptest::prelude::*;
use serde::Serialize;
use serde_json::{Value, json};
use supercargo_apiserver::protobuf_message;

use super::{NODE, PENDING_POD, RUNNING_POD, TYPICAL_POD, generate, node_kind, pod_kind};

/// The object as JSON and as a message.
fn both(object: &impl Serialize, kind: &str) -> (Vec<u8>, Vec<u8>) {
    let mut object = serde_json::to_value(object).unwrap();
    object["apiVersion"] = json!("v1");
    object["kind"] = json!(kind);
    let message = protobuf_message(&object).unwrap();
    (serde_json::to_vec(&object).unwrap(), message.to_vec())
}

fn message(kind: &str, mut object: Value) -> Vec<u8> {
    object["metadata"] = json!({"namespace": "ns", "name": "p", "uid": "u"});
    both(&object, kind).1
}

#[test]
fn fixtures_decode_alike_in_both_encodings() {
    for json in [TYPICAL_POD, RUNNING_POD, PENDING_POD] {
        // Servers send whole seconds; so does protobuf.
        let json = std::str::from_utf8(json).unwrap().replace(".123456Z", "Z");
        let (json, message) = both(&serde_json::from_str::<Value>(&json).unwrap(), "Pod");
        assert_eq!(pod_kind().decode_protobuf(&message).unwrap(), pod_kind().decode(&json).unwrap());
    }
    let (json, message) = both(&serde_json::from_slice::<Value>(NODE).unwrap(), "Node");
    assert_eq!(node_kind().decode_protobuf(&message).unwrap(), node_kind().decode(&json).unwrap());
}

proptest! {
    #[test]
    fn random_pods_decode_alike_in_both_encodings(pod in generate::pod()) {
        let (json, message) = both(&pod, "Pod");
        prop_assert_eq!(pod_kind().decode_protobuf(&message).unwrap(), pod_kind().decode(&json).unwrap());
    }

    #[test]
    fn random_nodes_decode_alike_in_both_encodings(node in generate::node()) {
        let (json, message) = both(&node, "Node");
        prop_assert_eq!(node_kind().decode_protobuf(&message).unwrap(), node_kind().decode(&json).unwrap());
    }

    #[test]
    fn arbitrary_bytes_never_panic_in_pods_and_nodes(
        mut bytes in Just(both(&serde_json::from_slice::<Value>(RUNNING_POD).unwrap(), "Pod").1),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
        length in any::<prop::sample::Index>(),
    ) {
        for (at, byte) in flips {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(length.index(bytes.len() + 1));
        let _ = pod_kind().decode_protobuf(&bytes);
        let _ = node_kind().decode_protobuf(&bytes);
    }
}

#[test]
fn errors_name_a_truncated_pod_if_possible() {
    let whole = message("Pod", json!({"spec": {"nodeName": "n", "containers": [{"name": "c"}]}}));
    let broken = |length: usize| pod_kind().decode_protobuf(&whole[..length]).unwrap_err().to_string();
    assert_eq!(broken(whole.len() - 1), "pod ns/p: .: malformed protobuf: truncated message");
    assert_eq!(broken(1), "pod: .: malformed protobuf: truncated message");
}

#[test]
fn errors_of_malformed_messages_name_the_cause() {
    let metadata = message("Pod", json!({}));
    for (tail, error) in [
        (&b"\x10\x01"[..], "field 2 has the wrong type"),
        (b"\x13", "malformed protobuf: unsupported wire type"),
        (b"\x00\x00", "malformed protobuf: field number out of range"),
        (
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "malformed protobuf: varint of more than 64 bits",
        ),
        (b"\x12\xff\xff\xff\xff\x0f", "malformed protobuf: truncated message"),
    ] {
        let found = pod_kind().decode_protobuf(&[&metadata, tail].concat()).unwrap_err().to_string();
        assert_eq!(found, format!("pod ns/p: .: {error}"));
    }
    // Unknown fields, of fixed width or from a newer server.
    for tail in [&b"\xf9\x07\0\0\0\0\0\0\0\0"[..], b"\xfd\x07\0\0\0\0", b"\xfa\x07\x02hi", b"\xf8\x07\x01"] {
        assert!(pod_kind().decode_protobuf(&[&metadata, tail].concat()).is_ok(), "{tail:?}");
    }
}

#[test]
fn quantity_errors_in_protobuf_name_the_field() {
    let requests = json!({"requests": {"cpu": "lots"}});
    let pod = message("Pod", json!({"spec": {"containers": [{"name": "c", "resources": requests}]}}));
    let error = pod_kind().decode_protobuf(&pod).unwrap_err().to_string();
    assert!(
        error.starts_with("pod ns/p: spec.containers[0].resources.requests[cpu]: quantity \"lots\""),
        "{error}"
    );
}
