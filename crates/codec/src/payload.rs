//! Encodes the objects that supercargo creates, as protobuf or JSON.

use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_framework::pod::PodKey;

pub use kube_informers::protobuf::wire::Writer;
pub use kube_informers::protobuf::{MEDIA_TYPE as PROTOBUF, envelope};

/// An object that can be sent to the API server in both encodings.
pub trait Payload: Sync {
    /// The object as JSON.
    fn json(&self) -> Value;
    /// The object as a protobuf body, including the envelope.
    fn protobuf(&self) -> Vec<u8>;
}

/// A `v1` Binding of a pod to a node.
pub struct Binding<'a> {
    /// The pod to bind.
    pub pod: &'a PodKey,
    /// The pod's UID. The server rejects the binding of another pod of that name.
    pub uid: &'a Uid,
    /// The name of the node.
    pub node: &'a str,
}

impl Payload for Binding<'_> {
    fn json(&self) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": self.pod.namespace, "name": self.pod.name, "uid": self.uid},
            "target": {"kind": "Node", "name": self.node},
        })
    }

    fn protobuf(&self) -> Vec<u8> {
        let mut metadata = Writer::new();
        metadata.string(1, &self.pod.name).string(3, &self.pod.namespace).string(5, &self.uid.text());
        let mut target = Writer::new();
        target.string(1, "Node").string(3, self.node);
        let mut binding = Writer::new();
        binding.message(1, &metadata).message(2, &target);
        envelope("v1", "Binding", &binding)
    }
}

/// A time as the message of a `MicroTime`: truncated to microseconds.
pub fn micro_time(time: Timestamp) -> Writer {
    let micros = time.as_microsecond();
    let mut message = Writer::new();
    // The cast to u64 is protobuf's encoding of negative numbers.
    message.varint(1, micros.div_euclid(1_000_000) as u64);
    message.varint(2, micros.rem_euclid(1_000_000) as u64 * 1_000);
    message
}

#[cfg(test)]
mod tests {
    use kube_informers::protobuf::wire::{Fields, Value};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn micro_time_keeps_microseconds(micros in -1_000_000_000_000_i64..4_000_000_000_000_000) {
            let message = micro_time(Timestamp::from_microsecond(micros).unwrap());
            let fields: Vec<_> = Fields::new(message.as_bytes()).map(Result::unwrap).collect();
            let [(1, Value::Varint(seconds)), (2, Value::Varint(nanos))] = fields[..] else {
                panic!("{fields:?}");
            };
            prop_assert!((0..1_000_000_000).contains(&nanos));
            prop_assert_eq!(seconds as i64 * 1_000_000 + nanos as i64 / 1_000, micros);
        }
    }
}
