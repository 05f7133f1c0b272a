//! The lister-watcher that talks to an API server.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use kube::core::response::StatusDetails;
use serde::Deserialize;
use tokio::task::coop;
use tokio::time::timeout;

use crate::json::{self, ListSplitter};
use crate::key::ObjectKey;
use crate::kind::{ContentType, DecodeError, Kind};
use crate::list_watch::{
    ListOptions, ListWatchError, ListerWatcher, Page, Undecodable, VersionMatch, WatchEvent, WatchStream,
};

/// How long to wait for an answer to begin, or for a list to go on: longer than the API server's own limit of
/// a minute on requests. Watches, once open, are timed by the reflector.
const SILENCE: Duration = Duration::from_secs(70);
/// How much of an error's body is read.
const MAX_ERROR_BODY: usize = 64 << 10;
/// A buffer that one large object stretched beyond this is given back.
const KEEP_BUFFER: usize = 1 << 20;

/// Which objects are asked for; both selectors in the API server's syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Such as `status.phase!=Succeeded,status.phase!=Failed`.
    pub fields: Option<String>,
    /// Such as `app=web,tier!=cache`.
    pub labels: Option<String>,
}

/// Lists and watches one resource through a [`kube::Client`], one namespace of it or all.
///
/// The client should be built with `default_retry = false`: kube's own retry layer repeats refused requests
/// for minutes underneath, during which the reflector neither sees nor reports any trouble.
pub struct KubeListWatch<K> {
    kind: Arc<K>,
    client: Client,
    namespace: Option<String>,
    selectors: Selectors,
    watch_list: bool,
}

impl<K: Kind> KubeListWatch<K> {
    /// All objects of the kind.
    pub fn new(client: Client, kind: Arc<K>) -> Self {
        Self { kind, client, namespace: None, selectors: Selectors::default(), watch_list: true }
    }

    /// Only the objects of one namespace; `None` is all. Means nothing for kinds without namespaces.
    pub fn namespace(mut self, namespace: Option<String>) -> Self {
        self.namespace = namespace;
        self
    }

    /// Only objects whose fields match.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.selectors.fields = Some(selector.into());
        self
    }

    /// Only objects whose labels match.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.selectors.labels = Some(selector.into());
        self
    }

    /// Changes the selectors.
    pub fn tweak(mut self, tweak: impl FnOnce(&mut Selectors)) -> Self {
        tweak(&mut self.selectors);
        self
    }

    /// Whether to ask for initial events in a watch, in place of a list. On by default; meant to be switched
    /// off for servers, often aggregated ones, that accept the request and do not honour it.
    pub fn watch_list(mut self, on: bool) -> Self {
        self.watch_list = on;
        self
    }

    fn request(&self, options: &ListOptions, watch: bool) -> Result<Request<Body>, ListWatchError> {
        let mut uri = self.kind.gvr().url_path(self.namespace.as_deref());
        append_query(&mut uri, &self.selectors, options, watch);
        let request = Request::get(uri)
            .header(ACCEPT, "application/json")
            // Servers may otherwise compress a watch in a way that holds events back.
            .header(ACCEPT_ENCODING, "identity")
            .body(Body::empty())?;
        Ok(request)
    }

    /// Sends, and returns the answer once it is clear that it is none of refusal.
    async fn send(&self, options: &ListOptions, watch: bool) -> Result<(ContentType, Body), ListWatchError> {
        let request = self.request(options, watch)?;
        let answer = timeout(SILENCE, self.client.send(request)).await;
        let answer = answer.map_err(|_| ListWatchError::Silent(SILENCE))?;
        let answer = answer.map_err(|error| ListWatchError::Transport(Box::new(error)))?;
        if !answer.status().is_success() {
            return Err(ListWatchError::Status(Box::new(refusal(answer).await)));
        }
        Ok((content_type(answer.headers())?, answer.into_body()))
    }

    async fn list_page(&self, options: &ListOptions) -> Result<Page<K::Object>, ListWatchError> {
        let (content_type, mut body) = self.send(options, false).await?;
        let mut splitter = ListSplitter::default();
        let (mut items, mut undecodable) = (Vec::new(), Vec::new());
        while let Some(data) = next_chunk(&mut body).await? {
            let mut chunk = data.as_ref();
            while let Some(bytes) = splitter.next_item(&mut chunk) {
                match self.kind.decode(content_type, bytes) {
                    Ok(item) => items.push(item),
                    Err(error) => undecodable.push(describe(bytes, error)),
                }
                coop::consume_budget().await;
            }
        }
        let envelope: Envelope =
            serde_json::from_slice(splitter.envelope()).map_err(ListWatchError::NotAList)?;
        Ok(Page {
            items,
            undecodable,
            resource_version: envelope.metadata.resource_version,
            continue_token: envelope.metadata.continue_token.filter(|token| !token.is_empty()),
        })
    }
}

impl<K: Kind> ListerWatcher<K> for KubeListWatch<K> {
    fn list<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        Box::pin(self.list_page(options))
    }

    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        Box::pin(async move {
            let (content_type, body) = self.send(options, true).await?;
            let frames = Frames { body, buffer: Vec::new(), start: 0 };
            let start = (frames, Arc::clone(&self.kind));
            let events = stream::unfold(start, move |(mut frames, kind)| async move {
                // Decoding never waits, and a busy watch would otherwise keep the worker to itself.
                coop::consume_budget().await;
                let event = match frames.next().await {
                    Ok(frame) => Ok(decode_event(&*kind, content_type, frame?)),
                    Err(error) => Err(error),
                };
                Some((event, (frames, kind)))
            });
            Ok(events.boxed())
        })
    }

    fn supports_watch_list(&self) -> bool {
        self.watch_list
    }
}

/// Parameters in alphabetical order, as client-go sends them.
fn append_query(uri: &mut String, selectors: &Selectors, options: &ListOptions, watch: bool) {
    let flag = |on: bool| (watch && on).then(|| "true".to_owned());
    let version_match = options.version_match.map(|version_match| match version_match {
        VersionMatch::NotOlderThan => "NotOlderThan".to_owned(),
        VersionMatch::Exact => "Exact".to_owned(),
    });
    let version = Some(options.resource_version.clone()).filter(|version| !version.is_empty());
    let parameters = [
        ("allowWatchBookmarks", flag(options.allow_bookmarks)),
        ("continue", options.continue_token.clone()),
        ("fieldSelector", selectors.fields.clone()),
        ("labelSelector", selectors.labels.clone()),
        ("limit", options.limit.map(|limit| limit.to_string())),
        ("resourceVersion", version),
        ("resourceVersionMatch", version_match),
        ("sendInitialEvents", flag(options.send_initial_events)),
        ("timeoutSeconds", options.timeout.map(|timeout| timeout.as_secs().to_string())),
        ("watch", flag(true)),
    ];
    let mut separator = '?';
    for (name, value) in parameters {
        let Some(value) = value else { continue };
        uri.push(separator);
        uri.push_str(name);
        uri.push('=');
        percent_encode(uri, &value);
        separator = '&';
    }
}

fn percent_encode(out: &mut String, text: &str) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

/// An answer without a content type is taken for JSON, as everything was once.
fn content_type(headers: &HeaderMap) -> Result<ContentType, ListWatchError> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Ok(ContentType::Json);
    };
    let value = String::from_utf8_lossy(value.as_bytes());
    match value.split(';').next().map(str::trim) {
        Some("application/json") => Ok(ContentType::Json),
        _ => Err(ListWatchError::ContentType(value.into_owned())),
    }
}

async fn next_chunk(body: &mut Body) -> Result<Option<impl AsRef<[u8]> + use<>>, ListWatchError> {
    loop {
        let frame = timeout(SILENCE, body.frame()).await.map_err(|_| ListWatchError::Silent(SILENCE))?;
        let Some(frame) = frame else { return Ok(None) };
        let frame = frame.map_err(|error| ListWatchError::Body(Box::new(error)))?;
        if let Ok(data) = frame.into_data() {
            return Ok(Some(data));
        }
    }
}

/// What the server says about a refusal. Proxies in front of it do not speak `Status`; theirs is made up from
/// the HTTP status and the body's text.
async fn refusal(answer: Response<Body>) -> Status {
    let code = answer.status().as_u16();
    let wait = answer.headers().get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse::<u32>().ok());
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Ok(Some(chunk)) = next_chunk(&mut body).await {
        text.extend_from_slice(chunk.as_ref());
        if text.len() > MAX_ERROR_BODY {
            text.truncate(MAX_ERROR_BODY);
            break;
        }
    }
    let mut status: Status = serde_json::from_slice(&text)
        .unwrap_or_else(|_| Status::failure(String::from_utf8_lossy(&text).trim(), ""));
    if status.code == 0 {
        status.code = code;
    }
    if let Some(seconds) = wait {
        let empty = || StatusDetails {
            name: String::new(),
            group: String::new(),
            kind: String::new(),
            uid: String::new(),
            causes: Vec::new(),
            retry_after_seconds: 0,
        };
        status.details.get_or_insert_with(empty).retry_after_seconds = seconds;
    }
    status
}

/// Cuts a watch's body into lines. There is no limit on their length but the largest object's.
struct Frames {
    body: Body,
    buffer: Vec<u8>,
    /// Where the part of the buffer that was not handed out yet begins.
    start: usize,
}

impl Frames {
    /// The next line that is not empty; `None` at the end.
    async fn next(&mut self) -> Result<Option<&[u8]>, ListWatchError> {
        let mut searched = self.start;
        loop {
            if let Some(length) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.start..searched + length;
                self.start = line.end + 1;
                searched = self.start;
                if self.buffer[line.clone()].trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(&self.buffer[line]));
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            searched = self.buffer.len();
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP_BUFFER {
                self.buffer = Vec::new();
            }
            match self.body.frame().await {
                Some(Ok(frame)) => {
                    if let Some(data) = frame.data_ref() {
                        self.buffer.extend_from_slice(data);
                    }
                }
                Some(Err(error)) => return Err(ListWatchError::Body(Box::new(error))),
                None => return Ok(self.take_rest()),
            }
        }
    }

    /// The last line may lack its end; one that broke off is not worth a complaint.
    fn take_rest(&mut self) -> Option<&[u8]> {
        self.start = self.buffer.len();
        json::is_complete(&self.buffer).then_some(&self.buffer[..])
    }
}

fn decode_event<K: Kind>(kind: &K, content_type: ContentType, frame: &[u8]) -> WatchEvent<K::Object> {
    let object = json::member(frame, "object").unwrap_or_default();
    let event_type = json::member(frame, "type").unwrap_or_default();
    let decode = |deleted, event: fn(K::Object) -> WatchEvent<K::Object>| {
        kind.decode(content_type, object).map_or_else(|error| undecodable(object, deleted, error), event)
    };
    match event_type {
        b"\"ADDED\"" => decode(false, WatchEvent::Added),
        b"\"MODIFIED\"" => decode(false, WatchEvent::Modified),
        b"\"DELETED\"" => decode(true, WatchEvent::Deleted),
        b"\"BOOKMARK\"" => match serde_json::from_slice::<PartialObject>(object) {
            Ok(PartialObject { metadata }) => WatchEvent::Bookmark {
                initial_events_end: metadata
                    .annotations
                    .is_some_and(|annotations| annotations.initial_events_end),
                resource_version: metadata.resource_version,
            },
            Err(error) => undecodable(object, false, error.into()),
        },
        b"\"ERROR\"" => match serde_json::from_slice(object) {
            Ok(status) => WatchEvent::Error(status),
            Err(error) => undecodable(object, false, error.into()),
        },
        other => {
            let message = format!("unknown watch event type {}", String::from_utf8_lossy(other));
            undecodable(object, false, DecodeError::Invalid(message.into()))
        }
    }
}

fn undecodable<T>(object: &[u8], deleted: bool, error: DecodeError) -> WatchEvent<T> {
    WatchEvent::Undecodable { deleted, item: describe(object, error) }
}

/// Names an object whose decoding failed, if at least its metadata is sound.
fn describe(bytes: &[u8], error: DecodeError) -> Undecodable {
    let metadata = serde_json::from_slice(bytes)
        .map_or_else(|_| PartialMeta::default(), |PartialObject { metadata }| metadata);
    let key = Some(metadata.name).filter(|name| !name.is_empty());
    Undecodable {
        key: key.map(|name| ObjectKey::new(metadata.namespace.as_deref(), &name)),
        resource_version: Some(metadata.resource_version).filter(|version| !version.is_empty()),
        error,
    }
}

#[derive(Deserialize)]
struct Envelope {
    metadata: ListMeta,
    #[serde(default, rename = "kind", deserialize_with = "not_a_table")]
    _kind: (),
}

/// A table has rows and no items, so it would pass for an empty list.
fn not_a_table<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("Table") => Err(serde::de::Error::custom("tables are not supported")),
        _ => Ok(()),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    #[serde(default)]
    resource_version: String,
    #[serde(default, rename = "continue")]
    continue_token: Option<String>,
}

#[derive(Deserialize)]
struct PartialObject {
    metadata: PartialMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PartialMeta {
    name: String,
    namespace: Option<String>,
    resource_version: String,
    annotations: Option<BookmarkAnnotations>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct BookmarkAnnotations {
    #[serde(rename = "k8s.io/initial-events-end", deserialize_with = "is_true")]
    initial_events_end: bool,
}

/// The annotation counts only with the value "true".
fn is_true<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(String::deserialize(deserializer)? == "true")
}

#[cfg(test)]
mod tests;
