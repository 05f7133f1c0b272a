//! The lister-watcher that talks to an API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use kube::Client;
use kube::client::Body;
use tokio::task::coop;
use tokio::time::timeout;

use crate::kind::{Accept, ContentType, DecodeError, Kind};
use crate::list_watch::{ListOptions, ListWatchError, ListerWatcher, Page, WatchEvent, WatchStream};
use crate::protobuf::MEDIA_TYPE;
use crate::reflector::Transform;

mod chunk;
mod event;
mod frames;
mod meta;
mod page;
mod request;
mod status;

use chunk::{SILENCE, next_chunk};
use event::decode_event;
use frames::{FrameError, Frames};
use meta::identify;
use page::{SplitError, Splitter};
use status::{refusal, unreadable_event};

/// The default maximum size of an object. etcd rejects objects of more than a few megabytes, and
/// their encoding on the wire is not much larger.
const MAX_OBJECT_SIZE: usize = 64 << 20;

/// Selects objects; both selectors have the API server's syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Selectors {
    /// A field selector, such as `status.phase!=Succeeded,status.phase!=Failed`.
    pub fields: Option<String>,
    /// A label selector, such as `app=web,tier!=cache`.
    pub labels: Option<String>,
}

/// Lists and watches one resource through a [`kube::Client`], in one namespace or all.
///
/// Build the client with `default_retry = false`. kube's retries hide failures from the reflector
/// for minutes.
///
/// Responses are decoded in their actual encoding, JSON or protobuf, whatever [`Kind::accept`]
/// prefers. After a server rejects the preferred form with 406, all requests ask for plain JSON.
///
/// Lists are decoded item by item as they arrive, so that lists and watches need memory for the
/// decoded objects and for one encoded object, whose size is limited.
pub struct KubeListWatch<K> {
    kind: Arc<K>,
    client: Client,
    namespace: Option<String>,
    selectors: Selectors,
    watch_list: bool,
    max_object_size: usize,
    /// The server has rejected the kind's preferred form.
    plain: AtomicBool,
}

impl<K: Kind> KubeListWatch<K> {
    /// Selects all objects of the kind.
    pub fn new(client: Client, kind: Arc<K>) -> Self {
        Self {
            kind,
            client,
            namespace: None,
            selectors: Selectors::default(),
            watch_list: true,
            max_object_size: MAX_OBJECT_SIZE,
            plain: AtomicBool::new(false),
        }
    }

    /// Selects one namespace, or all with `None`. Ignored for cluster-scoped kinds.
    pub fn namespace(mut self, namespace: Option<String>) -> Self {
        self.namespace = namespace;
        self
    }

    /// Selects objects by their fields, in addition to earlier selectors, such as a factory's.
    pub fn fields(mut self, selector: impl AsRef<str>) -> Self {
        add(&mut self.selectors.fields, selector.as_ref());
        self
    }

    /// Selects objects by their labels, in addition to earlier selectors, such as a factory's.
    pub fn labels(mut self, selector: impl AsRef<str>) -> Self {
        add(&mut self.selectors.labels, selector.as_ref());
        self
    }

    /// Changes the selectors, or replaces them.
    pub fn tweak(mut self, tweak: impl FnOnce(&mut Selectors)) -> Self {
        tweak(&mut self.selectors);
        self
    }

    /// Whether watches may ask for initial events instead of a list. Enabled by default. Disable it
    /// for servers, often aggregated ones, that accept such requests and ignore them.
    pub fn watch_list(mut self, on: bool) -> Self {
        self.watch_list = on;
        self
    }

    /// The maximum size of an encoded object in bytes, by default 64 MiB. A larger one fails the
    /// list with [`ListWatchError::TooLarge`], or ends the watch.
    pub fn max_object_size(mut self, bytes: usize) -> Self {
        self.max_object_size = bytes;
        self
    }

    pub(crate) fn kind(&self) -> &K {
        &self.kind
    }

    pub(crate) fn selectors(&self) -> &Selectors {
        &self.selectors
    }

    fn request(
        &self,
        options: &ListOptions,
        watch: bool,
        accept: Accept,
    ) -> Result<Request<Body>, ListWatchError> {
        let mut uri = self.kind.gvr().url_path(self.namespace.as_deref());
        request::append_query(&mut uri, &self.selectors, options, watch);
        let request = Request::get(uri)
            .header(ACCEPT, request::accept_header(accept, watch))
            // Compression can make servers buffer the events of a watch.
            .header(ACCEPT_ENCODING, "identity")
            .body(Body::empty())?;
        Ok(request)
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, ListWatchError> {
        let answer = timeout(SILENCE, self.client.send(request)).await;
        let answer = answer.map_err(|_| ListWatchError::Silent(SILENCE))?;
        answer.map_err(|error| ListWatchError::Transport(Box::new(error)))
    }

    /// Sends a request and returns a successful response.
    async fn send(&self, options: &ListOptions, watch: bool) -> Result<(ContentType, Body), ListWatchError> {
        let plain = Accept::default();
        let accept = if self.plain.load(Ordering::Relaxed) { plain } else { self.kind.accept() };
        let mut answer = self.answer(self.request(options, watch, accept)?).await?;
        // Every header ends with plain JSON, but some servers reject a header for its first
        // entries.
        if answer.status() == StatusCode::NOT_ACCEPTABLE && accept != plain {
            tracing::debug!(resource = %self.kind.gvr(), "the server supports only plain JSON");
            self.plain.store(true, Ordering::Relaxed);
            answer = self.answer(self.request(options, watch, plain)?).await?;
        }
        if !answer.status().is_success() {
            return Err(ListWatchError::Status(Box::new(refusal(answer).await)));
        }
        Ok((content_type(answer.headers())?, answer.into_body()))
    }

    fn too_large(&self) -> ListWatchError {
        ListWatchError::TooLarge { resource: self.kind.gvr().to_string(), limit: self.max_object_size }
    }

    fn split_error(&self, error: SplitError) -> ListWatchError {
        match error {
            SplitError::TooLarge => self.too_large(),
            SplitError::NotAList(error) => ListWatchError::NotAList(error),
        }
    }

    async fn list_page(
        &self,
        options: &ListOptions,
        transform: Option<&Transform<K::Object>>,
    ) -> Result<Page<K::Object>, ListWatchError> {
        let (content_type, mut body) = self.send(options, false).await?;
        let mut splitter = Splitter::new(content_type, self.max_object_size);
        let (mut items, mut undecodable) = (Vec::new(), Vec::new());
        while let Some(data) = next_chunk(&mut body).await? {
            let mut chunk = data.as_ref();
            while let Some(bytes) = splitter.next_item(&mut chunk).map_err(|error| self.split_error(error))? {
                match self.kind.decode(content_type, bytes) {
                    Ok(mut item) => {
                        if let Some(transform) = transform {
                            transform(&mut item);
                        }
                        items.push(item);
                    }
                    Err(error) => undecodable
                        .push(identify(content_type, bytes, error).map_err(ListWatchError::UnnamedItem)?),
                }
                coop::consume_budget().await;
            }
        }
        let metadata = splitter.finish().map_err(ListWatchError::NotAList)?;
        Ok(Page {
            items,
            undecodable,
            resource_version: metadata.resource_version,
            continue_token: metadata.continue_token,
        })
    }
}

impl<K: Kind> ListerWatcher<K> for KubeListWatch<K> {
    fn list<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        Box::pin(self.list_page(options, None))
    }

    fn list_transformed<'a>(
        &'a self,
        options: &'a ListOptions,
        transform: &'a Transform<K::Object>,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        Box::pin(self.list_page(options, Some(transform)))
    }

    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>> {
        Box::pin(async move {
            let (content_type, body) = self.send(options, true).await?;
            let frames = Frames::new(content_type, self.max_object_size, body);
            let too_large = DecodeError::Invalid(self.too_large().into());
            let start = (frames, Arc::clone(&self.kind), too_large);
            let events = stream::unfold(Some(start), move |state| async move {
                let (mut frames, kind, too_large) = state?;
                // Decoding never waits, so a busy watch would otherwise monopolize the worker.
                coop::consume_budget().await;
                match frames.next().await {
                    Ok(frame) => {
                        let event = decode_event(&*kind, content_type, frame?);
                        Some((Ok(event), Some((frames, kind, too_large))))
                    }
                    Err(FrameError::Body(error)) => Some((Err(error), None)),
                    // The following frames can no longer be found.
                    Err(FrameError::TooLarge) => {
                        Some((Ok(WatchEvent::Error(Box::new(unreadable_event(&too_large)))), None))
                    }
                }
            });
            Ok(events.boxed())
        })
    }

    fn supports_watch_list(&self) -> bool {
        self.watch_list
    }
}

/// Requires a second selector, too. Both kinds of selectors are lists of requirements.
fn add(selector: &mut Option<String>, second: &str) {
    let first = selector.get_or_insert_default();
    if !first.is_empty() && !second.is_empty() {
        first.push(',');
    }
    first.push_str(second);
}

/// A response without a content type counts as JSON.
fn content_type(headers: &HeaderMap) -> Result<ContentType, ListWatchError> {
    let Some(value) = headers.get(CONTENT_TYPE) else {
        return Ok(ContentType::Json);
    };
    let value = String::from_utf8_lossy(value.as_bytes());
    match value.split(';').next().map(str::trim) {
        Some("application/json") => Ok(ContentType::Json),
        Some(MEDIA_TYPE) => Ok(ContentType::Protobuf),
        _ => Err(ListWatchError::ContentType(value.into_owned())),
    }
}

#[cfg(test)]
mod tests;
