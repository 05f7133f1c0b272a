//! Responses that are damaged in transit.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use http::header::CONTENT_TYPE;
use http::{Request, Response};
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Api, Client};
use kube_informers::{ContentType, Kind, KubeListWatch, ListOptions, ListerWatcher};
use proptest::collection::vec;
use proptest::prelude::*;
use tower::ServiceExt;

use super::kinds::{Asking, config_maps};
use super::server::{Server, config_map, create};

/// A change to the bytes of a response.
#[derive(Clone, Debug)]
pub(crate) enum Harm {
    /// Changes bits of a byte.
    Flip(u8),
    /// Removes this many bytes.
    Drop(usize),
    /// Inserts these bytes.
    Insert(Vec<u8>),
    /// Duplicates this many bytes.
    Duplicate(usize),
    /// Drops the rest.
    Truncate,
}

/// The damage to a response, and the sizes of its chunks, repeatedly.
#[derive(Clone, Debug)]
pub(crate) struct Damage {
    /// By offset in the response, in order.
    pub(crate) harms: Vec<(usize, Harm)>,
    pub(crate) chunks: Vec<usize>,
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        4 => (1_u8..=255).prop_map(Harm::Flip),
        2 => (1_usize..40).prop_map(Harm::Drop),
        // Includes the structural bytes of both encodings.
        2 => prop_oneof![
            vec(any::<u8>(), 1..12),
            Just(b"\n".to_vec()), Just(b"}".to_vec()), Just(b"]}".to_vec()), Just(b"\"".to_vec()),
            Just(vec![0xff; 4]), Just(vec![0, 0, 0, 0]), Just(vec![0x12, 0xff, 0xff, 0xff, 0x1f]),
        ].prop_map(Harm::Insert),
        2 => (1_usize..200).prop_map(Harm::Duplicate),
        1 => Just(Harm::Truncate),
    ]
}

/// Damage within the first bytes of a response; none for about every third response.
pub(crate) fn damage(within: usize) -> impl Strategy<Value = Damage> {
    let harms = prop_oneof![1 => Just(Vec::new()), 2 => vec((0..within, harm()), 1..4)];
    (harms, vec(prop_oneof![1_usize..9, 1_usize..600], 1..6)).prop_map(|(mut harms, chunks)| {
        harms.sort_by_key(|(at, _)| *at);
        Damage { harms, chunks }
    })
}

/// Applies a damage to a stream of bytes.
#[derive(Debug)]
pub(crate) struct Damager {
    damage: Damage,
    at: usize,
    dropping: usize,
    chunk: usize,
    pub(crate) over: bool,
}

impl Damager {
    pub(crate) fn new(mut damage: Damage) -> Self {
        damage.harms.reverse();
        Self { damage, at: 0, dropping: 0, chunk: 0, over: false }
    }

    /// The damaged bytes, in chunks.
    pub(crate) fn damage(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        for (index, byte) in bytes.iter().enumerate() {
            let mut byte = *byte;
            while !self.over && self.damage.harms.last().is_some_and(|(at, _)| *at <= self.at) {
                match self.damage.harms.pop().map(|(_, harm)| harm) {
                    Some(Harm::Flip(bits)) => byte ^= bits,
                    Some(Harm::Drop(count)) => self.dropping += count,
                    Some(Harm::Insert(more)) => out.extend(more),
                    Some(Harm::Duplicate(count)) => out.extend(bytes[index..].iter().take(count)),
                    Some(Harm::Truncate) => self.over = true,
                    None => {}
                }
            }
            self.at += 1;
            if self.over {
                break;
            }
            if self.dropping > 0 {
                self.dropping -= 1;
            } else {
                out.push(byte);
            }
        }
        let mut chunks = Vec::new();
        let mut rest = out.as_slice();
        while !rest.is_empty() {
            let size = self.damage.chunks[self.chunk % self.damage.chunks.len()].min(rest.len());
            self.chunk += 1;
            chunks.push(rest[..size].to_vec());
            rest = &rest[size..];
        }
        chunks
    }

    /// Leaves the rest undamaged.
    pub(crate) fn relent(&mut self) {
        self.damage.harms.clear();
        self.dropping = 0;
    }
}

/// A client whose responses consist of these chunks.
fn answered(content_type: ContentType, chunks: Vec<Vec<u8>>) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| {
        let chunks = chunks.clone();
        // A body can build its frames, whose type is not a dependency of this crate.
        let frames = stream::iter(chunks).then(async |chunk| Body::from(chunk).frame().await.unwrap());
        let name = match content_type {
            ContentType::Json => "application/json",
            _ => "application/vnd.kubernetes.protobuf",
        };
        let answer = Response::builder().header(CONTENT_TYPE, name).body(StreamBody::new(frames));
        async move { Ok::<_, Infallible>(answer.unwrap()) }
    });
    Client::new(service, "default")
}

/// The decoded response in short, and its number of events or items.
async fn read<K: Kind<Object: std::fmt::Debug>>(
    kind: K,
    watch: bool,
    content_type: ContentType,
    chunks: Vec<Vec<u8>>,
) -> (String, usize) {
    let source = KubeListWatch::new(answered(content_type, chunks), Arc::new(kind));
    if watch {
        let events = source.watch(&ListOptions::default()).await.unwrap();
        let events: Vec<_> = events.map(|event| format!("{event:?}")).collect().await;
        (events.join("\n"), events.len())
    } else {
        match source.list(&ListOptions::default()).await {
            Ok(page) => {
                let count = page.items.len() + page.undecodable.len();
                (format!("{page:?}"), count)
            }
            Err(error) => (format!("failed: {error}"), 0),
        }
    }
}

/// The responses of the API server to a list and a watch, in each encoding.
async fn samples() -> Vec<(bool, ContentType, Vec<u8>)> {
    let server = Server::new();
    let maps = Api::<ConfigMap>::default_namespaced(server.admin.clone());
    for name in ["a", "b", "c", "d"] {
        create(&maps, config_map(name, "ä\"{}[]\\ \n")).await;
    }
    let mut samples = Vec::new();
    for watch in [false, true] {
        for (content_type, accept) in [
            (ContentType::Json, "application/json"),
            (ContentType::Protobuf, "application/vnd.kubernetes.protobuf"),
        ] {
            let query = if watch {
                "?watch=true&sendInitialEvents=true&allowWatchBookmarks=true\
                 &resourceVersionMatch=NotOlderThan&timeoutSeconds=1"
            } else {
                ""
            };
            let request = Request::get(format!("/api/v1/configmaps{query}")).header("accept", accept);
            let answer = server.api.service().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
            let bytes = answer.into_body().collect().await.unwrap().to_bytes().to_vec();
            samples.push((watch, content_type, bytes));
        }
    }
    samples
}

fn cases(normally: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(normally)
}

/// The default number of cases; `PROPTEST_CASES` overrides it.
pub(crate) fn config(normally: u32) -> ProptestConfig {
    ProptestConfig { cases: cases(normally), failure_persistence: None, ..ProptestConfig::default() }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

thread_local! {
    /// The responses are the same for all cases.
    static SAMPLES: Vec<(bool, ContentType, Vec<u8>)> = runtime().block_on(samples());
}

proptest! {
    #![proptest_config(config(400))]

    /// Reading damaged bytes ends without a panic, and with a plausible number of objects. The
    /// decoded objects of undamaged bytes do not depend on the chunks.
    #[test]
    fn damaged_responses_never_panic_or_hang(sample in 0_usize..4, damage in damage(3000)) {
        let (watch, content_type, bytes) = SAMPLES.with(|samples| samples[sample].clone());
        let (whole, count, damaged, damaged_count) = runtime().block_on(async {
            let made = async {
                let (whole, count) = read(Asking::json(config_maps()), watch, content_type, vec![bytes.clone()]).await;
                let chunks = Damager::new(damage.clone()).damage(&bytes);
                let (damaged, damaged_count) = read(config_maps(), watch, content_type, chunks).await;
                (whole, count, damaged, damaged_count)
            };
            // By a clock that is paused during all work.
            tokio::time::timeout(Duration::from_hours(1), made).await.unwrap()
        });
        prop_assert!(count >= 4 && !whole.contains("failed"), "{whole}");
        if damage.harms.is_empty() {
            prop_assert_eq!(whole, damaged);
        } else {
            prop_assert!(damaged_count <= bytes.len(), "{}", damaged);
        }
    }
}
