//! The interface between the reflector and an API server.

use std::error::Error;
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::core::Status;
use thiserror::Error;
use tokio::task::coop;

use crate::key::ObjectKey;
use crate::kind::{DecodeError, Kind};
use crate::reflector::Transform;

/// How the server interprets the resource version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum VersionMatch {
    /// Any state that is at least as new.
    NotOlderThan,
    /// Exactly this state.
    Exact,
}

/// Options of a request by the reflector. Selectors belong to the lister-watcher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListOptions {
    /// Empty requests the most recent state, "0" any state.
    pub resource_version: String,
    /// How to interpret `resource_version`, if not the default.
    pub version_match: Option<VersionMatch>,
    /// The maximum number of items per page.
    pub limit: Option<u32>,
    /// The next page's token, from the previous page.
    pub continue_token: Option<String>,
    /// Watch only: the server ends the watch after this time.
    pub timeout: Option<Duration>,
    /// Watch only: requests bookmarks.
    pub allow_bookmarks: bool,
    /// Watch only: starts with events for existing objects, whose end a bookmark marks.
    pub send_initial_events: bool,
}

impl ListOptions {
    /// A request at this resource version, with no other options.
    pub fn at(resource_version: impl Into<String>) -> Self {
        Self { resource_version: resource_version.into(), ..Self::default() }
    }
}

/// One page of a list.
#[derive(Debug)]
#[non_exhaustive]
pub struct Page<T> {
    /// The decoded items.
    pub items: Vec<T>,
    /// The items that could not be decoded.
    pub undecodable: Vec<Undecodable>,
    /// The resource version of the list.
    pub resource_version: String,
    /// The token of the next page, if any.
    pub continue_token: Option<String>,
}

impl<T> Page<T> {
    /// The only or the last page of a list, with these items.
    pub fn new(items: Vec<T>, resource_version: impl Into<String>) -> Self {
        let resource_version = resource_version.into();
        Self { items, undecodable: Vec::new(), resource_version, continue_token: None }
    }
}

/// An object that could not be decoded, with what is known about it.
///
/// If a source cannot read the key, it must fail the list or the watch instead: the informer would
/// take a stored object for deleted. Only an object of another type may lack its key.
#[derive(Debug)]
#[non_exhaustive]
pub struct Undecodable {
    /// The object's key.
    pub key: Option<ObjectKey>,
    /// The object's resource version, if its metadata could be read.
    pub resource_version: Option<String>,
    /// Why decoding failed.
    pub error: DecodeError,
}

impl Undecodable {
    /// An object that cannot be decoded because of this error.
    pub fn new(key: Option<ObjectKey>, resource_version: Option<String>, error: DecodeError) -> Self {
        Self { key, resource_version, error }
    }

    /// Whether this is no object of the kind at all. Such an item affects no object of the store.
    pub(crate) fn is_of_another_type(&self) -> bool {
        matches!(self.error, DecodeError::UnexpectedType { .. })
    }
}

/// One event of a watch.
#[derive(Debug)]
#[non_exhaustive]
pub enum WatchEvent<T> {
    /// A new object, or one that started to match the selectors.
    Added(T),
    /// A new state of an object.
    Modified(T),
    /// The last state of an object that was deleted or stopped matching the selectors.
    Deleted(T),
    /// Nothing else changed up to this resource version.
    Bookmark {
        /// The version from which a later watch can resume.
        resource_version: String,
        /// Whether the requested initial events end here.
        initial_events_end: bool,
    },
    /// The server ends this watch with an error.
    Error(Box<Status>),
    /// An event whose object could not be decoded. The watch continues.
    Undecodable {
        /// Whether the event was a deletion.
        deleted: bool,
        /// The object.
        item: Undecodable,
    },
}

/// The events of a watch. An error is the last item.
pub type WatchStream<T> = BoxStream<'static, Result<WatchEvent<T>, ListWatchError>>;

/// Lists and watches one resource.
pub trait ListerWatcher<K: Kind>: Send + Sync + 'static {
    /// Requests one page of a list.
    fn list<'a>(&'a self, options: &'a ListOptions)
    -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>>;

    /// Requests one page of a list, with transformed items.
    ///
    /// By default, the items are transformed once the page is complete. Sources that decode items
    /// one by one should transform each immediately, which saves memory.
    fn list_transformed<'a>(
        &'a self,
        options: &'a ListOptions,
        transform: &'a Transform<K::Object>,
    ) -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>> {
        Box::pin(async move {
            let mut page = self.list(options).await?;
            for item in &mut page.items {
                transform(item);
                coop::consume_budget().await;
            }
            Ok(page)
        })
    }

    /// Opens a watch.
    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>>;

    /// Whether watches may ask for initial events. A server that ignores the option, instead of
    /// rejecting it, is detected only by a timeout.
    fn supports_watch_list(&self) -> bool {
        true
    }
}

/// Why a list failed, or a watch failed to open or broke off.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ListWatchError {
    /// The server rejected the request with a `Status`.
    #[error("the server rejected the request: {} {}: {}", .0.code, .0.reason, .0.message)]
    Status(Box<Status>),
    /// The request or its response was lost.
    #[error("no response from the server: {}", with_causes(.0.as_ref()))]
    Transport(#[source] Box<dyn Error + Send + Sync>),
    /// The connection failed within the response.
    #[error("the response ended early: {}", with_causes(.0.as_ref()))]
    Body(#[source] Box<dyn Error + Send + Sync>),
    /// The server sent nothing for too long.
    #[error("no data from the server for {0:?}")]
    Silent(Duration),
    /// The response has an encoding that was not requested.
    #[error("unexpected content type {0:?} of the response")]
    ContentType(String),
    /// The response to a list is not a list.
    #[error("the response is not a list: {0}")]
    NotAList(#[source] Box<dyn Error + Send + Sync>),
    /// An object is larger than the source accepts.
    #[error("an object of {resource} is larger than {limit} bytes")]
    TooLarge {
        /// The resource, such as `v1/pods`.
        resource: String,
        /// The maximum size.
        limit: usize,
    },
    /// A list contains an object that can neither be decoded nor identified.
    #[error("an item of the list has no readable name: {0}")]
    UnnamedItem(#[source] DecodeError),
    /// The request could not be built, for example because of a malformed namespace.
    #[error("cannot build the request: {0}")]
    Request(#[from] http::Error),
}

impl ListWatchError {
    /// The server's `Status`, if it rejected the request.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The requested resource version has been compacted: list again.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(is_expired)
    }

    /// The server is overloaded and asks the client to wait.
    pub fn is_too_many_requests(&self) -> bool {
        self.status().is_some_and(is_too_many_requests)
    }

    /// The server has not reached the requested resource version yet.
    pub fn is_too_large_resource_version(&self) -> bool {
        self.status().is_some_and(is_too_large_resource_version)
    }

    /// The server rejects the request as invalid.
    pub(crate) fn is_invalid(&self) -> bool {
        self.status().is_some_and(|status| matches!(status.code, 400 | 422))
    }

    /// Nothing listens at the server's address, for example during a restart.
    pub fn is_connection_refused(&self) -> bool {
        self.is_io(|kind| kind == io::ErrorKind::ConnectionRefused)
    }

    /// The connection was lost before the response started, for example because the server was
    /// killed.
    pub fn is_connection_lost(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        self.is_io(|kind| matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
    }

    fn is_io(&self, test: fn(io::ErrorKind) -> bool) -> bool {
        matches!(self, Self::Transport(cause) if has_io_error(cause.as_ref(), test))
    }

    /// The same request is likely to succeed later.
    pub(crate) fn is_retriable(&self) -> bool {
        self.is_connection_refused() || self.is_too_many_requests()
    }
}

/// An HTTP error with its causes. The outer errors alone say little.
fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let below = error.to_string();
        if !text.contains(&below) {
            text.push_str(": ");
            text.push_str(&below);
        }
        cause = error.source();
    }
    text
}

fn has_io_error(error: &(dyn Error + 'static), test: fn(io::ErrorKind) -> bool) -> bool {
    let io_error = error.downcast_ref::<io::Error>();
    // `source` of an I/O error skips the error that it wraps.
    let wrapped = io_error.and_then(io::Error::get_ref);
    io_error.is_some_and(|error| test(error.kind()))
        || wrapped.is_some_and(|error| has_io_error(error, test))
        || error.source().is_some_and(|error| has_io_error(error, test))
}

pub(crate) fn is_expired(status: &Status) -> bool {
    status.code == 410 || status.reason == "Expired" || status.reason == "Gone"
}

pub(crate) fn is_too_many_requests(status: &Status) -> bool {
    status.code == 429 || status.reason == "TooManyRequests"
}

pub(crate) fn is_internal_error(status: &Status) -> bool {
    status.reason == "InternalError"
}

/// The wait that the server requests.
pub(crate) fn retry_after(status: &Status) -> Duration {
    let details = status.details.as_ref();
    Duration::from_secs(details.map_or(0, |details| u64::from(details.retry_after_seconds)))
}

/// Servers report this in three ways: as the reason of a cause, as the message of a cause, or, by
/// old servers, as the message of a timeout without causes.
fn is_too_large_resource_version(status: &Status) -> bool {
    const MESSAGE: &str = "Too large resource version";
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let timeout = status.code == 504 || status.reason == "Timeout";
    let mut causes = causes.map(|cause| (cause.reason.as_str(), cause.message.as_str()));
    causes.any(|(reason, message)| reason == "ResourceVersionTooLarge" || (timeout && message == MESSAGE))
        || (timeout && status.message.contains(MESSAGE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(value: serde_json::Value) -> ListWatchError {
        ListWatchError::Status(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn every_spelling_of_a_too_large_version_is_recognised() {
        let spellings = [
            json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"reason": "ResourceVersionTooLarge",
                "message": "Too large resource version"}]}}),
            json!({"code": 504, "reason": "Timeout", "details": {"causes": [{"message": "Too large resource version"}]}}),
            json!({"code": 504, "reason": "Timeout", "message": "Timeout: Too large resource version: 30, current: 20"}),
        ];
        for spelling in spellings {
            assert!(status(spelling.clone()).is_too_large_resource_version(), "{spelling}");
        }
        for other in [
            json!({"code": 504, "reason": "Timeout"}),
            json!({"code": 500, "message": "Too large resource version"}),
        ] {
            assert!(!status(other.clone()).is_too_large_resource_version(), "{other}");
        }
    }

    #[test]
    fn statuses_are_classified_by_code_or_reason() {
        assert!(status(json!({"code": 410})).is_expired());
        assert!(status(json!({"reason": "Expired"})).is_expired());
        assert!(status(json!({"reason": "TooManyRequests"})).is_too_many_requests());
        let patient = json!({"code": 429, "details": {"retryAfterSeconds": 7}});
        assert_eq!(retry_after(status(patient).status().unwrap()), Duration::from_secs(7));
        let error = status(json!({"code": 403, "reason": "Forbidden", "message": "no"}));
        assert_eq!(error.to_string(), "the server rejected the request: 403 Forbidden: no");
        assert!(!error.is_expired() && !error.is_retriable());
    }

    #[test]
    fn refused_connection_is_found_in_the_error_chain() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let nested = kube::Error::Service(Box::new(io::Error::other(refused())));
        for cause in [Box::new(refused()) as Box<dyn Error + Send + Sync>, Box::new(nested)] {
            assert!(ListWatchError::Transport(cause).is_connection_refused());
        }
        let reset = ListWatchError::Transport(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(!reset.is_connection_refused() && reset.is_connection_lost());
    }
}
