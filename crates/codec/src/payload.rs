//! Objects that are sent, in protobuf or JSON.

use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_framework::pod::PodKey;

/// The content type of protobuf bodies.
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What stands before a protobuf body.
const MAGIC: &[u8] = b"k8s\0";

/// An object in both forms that the API server reads.
pub trait Payload: Sync {
    /// As JSON.
    fn json(&self) -> Value;
    /// As a whole protobuf body.
    fn protobuf(&self) -> Vec<u8>;
}

/// A binding (`v1`) of a pod to a node.
pub struct Binding<'a> {
    /// The pod to bind.
    pub pod: &'a PodKey,
    /// The server refuses to bind another pod of that name.
    pub uid: &'a Uid,
    /// The node it goes to.
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
        let mut metadata = Message::default();
        metadata.text(1, &self.pod.name).text(3, &self.pod.namespace).text(5, &self.uid.text());
        let mut target = Message::default();
        target.text(1, "Node").text(3, self.node);
        let mut binding = Message::default();
        binding.message(1, &metadata).message(2, &target);
        binding.enveloped("v1", "Binding")
    }
}

/// A protobuf message that is being written.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    /// A text. An empty one is left out, which says the same.
    pub fn text(&mut self, number: u32, text: &str) -> &mut Self {
        if text.is_empty() { self } else { self.bytes(number, text.as_bytes()) }
    }

    /// A nested message.
    pub fn message(&mut self, number: u32, message: &Self) -> &mut Self {
        self.bytes(number, &message.0)
    }

    /// A varint. Zero is written, too.
    pub fn number(&mut self, number: u32, value: u64) -> &mut Self {
        self.varint(u64::from(number) << 3);
        self.varint(value);
        self
    }

    /// A time, to the microsecond.
    pub fn micros(&mut self, number: u32, time: Timestamp) -> &mut Self {
        let micros = time.as_microsecond();
        let mut message = Self::default();
        // A negative number would be written as the two's complement that this is.
        message.number(1, micros.div_euclid(1_000_000) as u64);
        message.number(2, micros.rem_euclid(1_000_000) as u64 * 1_000);
        self.message(number, &message)
    }

    fn bytes(&mut self, number: u32, bytes: &[u8]) -> &mut Self {
        self.varint(u64::from(number) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// The body: this message, and before it what it is.
    pub fn enveloped(&self, api_version: &str, kind: &str) -> Vec<u8> {
        let mut meta = Self::default();
        meta.text(1, api_version).text(2, kind);
        let mut body = Self(Vec::with_capacity(self.0.len() + 64));
        body.0.extend_from_slice(MAGIC);
        body.message(1, &meta).message(2, self);
        body.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    #[derive(Clone, PartialEq, prost::Message)]
    struct Envelope {
        #[prost(message, optional, tag = "1")]
        meta: Option<Meta>,
        #[prost(bytes = "vec", tag = "2")]
        raw: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Meta {
        #[prost(string, tag = "1")]
        api_version: String,
        #[prost(string, tag = "2")]
        kind: String,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Sample {
        #[prost(string, tag = "1")]
        text: String,
        #[prost(uint64, tag = "16")]
        number: u64,
        #[prost(message, optional, tag = "3000")]
        time: Option<Time>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    struct Time {
        #[prost(int64, tag = "1")]
        seconds: i64,
        #[prost(int32, tag = "2")]
        nanos: i32,
    }

    proptest! {
        #[test]
        fn written_yaml_is_read_by_other_parsers(text in ".{0,300}", number: u64, micros in -1_000_000_000_000_i64..4_000_000_000_000_000) {
            let time = Timestamp::from_microsecond(micros).unwrap();
            let mut message = Message::default();
            message.text(1, &text).number(16, number).micros(3000, time);
            let body = message.enveloped("v1", "Sample");
            let body = body.strip_prefix(MAGIC).unwrap();
            let envelope = Envelope::decode(body).unwrap();
            prop_assert_eq!(envelope.meta, Some(Meta { api_version: "v1".to_owned(), kind: "Sample".to_owned() }));
            let sample = Sample::decode(&*envelope.raw).unwrap();
            prop_assert_eq!(&sample.text, &text);
            prop_assert_eq!(sample.number, number);
            let read = sample.time.unwrap();
            prop_assert!((0..1_000_000_000).contains(&read.nanos));
            prop_assert_eq!(read.seconds * 1_000_000 + i64::from(read.nanos) / 1_000, micros);
        }
    }
}
