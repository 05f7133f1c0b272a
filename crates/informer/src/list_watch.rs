//! Where objects come from: the seam between the reflector and an API server.

use std::error::Error;
use std::io;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use kube::core::Status;
use thiserror::Error;

use crate::key::ObjectKey;
use crate::kind::{DecodeError, Kind};

/// How the server is to understand the resource version of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Any state that is at least as new.
    NotOlderThan,
    /// Exactly that state.
    Exact,
}

/// What the reflector asks for. Selectors are the lister-watcher's own business.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Empty asks for the most recent state, "0" for any.
    pub resource_version: String,
    /// How `resource_version` is meant, where that is not implied.
    pub version_match: Option<VersionMatch>,
    /// How many items a page may have.
    pub limit: Option<u32>,
    /// Where the next page begins, as the page before said.
    pub continue_token: Option<String>,
    /// Watch only: the server is to end the watch after this.
    pub timeout: Option<Duration>,
    /// Watch only: bookmarks are welcome.
    pub allow_bookmarks: bool,
    /// Watch only: begin with what exists, and mark the end of that with a bookmark.
    pub send_initial_events: bool,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<T> {
    /// The items that could be decoded.
    pub items: Vec<T>,
    /// The items that could not.
    pub undecodable: Vec<Undecodable>,
    /// The state of the server that the list shows.
    pub resource_version: String,
    /// Set if there is another page.
    pub continue_token: Option<String>,
}

/// An object that could not be decoded, with what could be made out about it.
#[derive(Debug)]
pub struct Undecodable {
    /// The object's key, if its metadata could be read.
    pub key: Option<ObjectKey>,
    /// The object's resource version, likewise.
    pub resource_version: Option<String>,
    /// What is wrong with it.
    pub error: DecodeError,
}

impl Undecodable {
    /// Something else than an object of the kind, which says nothing about any.
    pub(crate) fn is_of_another_type(&self) -> bool {
        matches!(self.error, DecodeError::UnexpectedType { .. })
    }
}

/// One event of a watch.
#[derive(Debug)]
pub enum WatchEvent<T> {
    /// A new object, or one that began to match the selectors.
    Added(T),
    /// An object in a new state.
    Modified(T),
    /// The last state of an object that is gone or ceased to match.
    Deleted(T),
    /// No more events up to this resource version.
    Bookmark {
        /// Where a later watch can resume.
        resource_version: String,
        /// The initial events that were asked for end here.
        initial_events_end: bool,
    },
    /// The server gives up on this watch.
    Error(Box<Status>),
    /// An event that could not be decoded. The watch goes on.
    Undecodable {
        /// The event was a deletion.
        deleted: bool,
        /// Its object.
        item: Undecodable,
    },
}

/// The events of a watch. An error ends it.
pub type WatchStream<T> = BoxStream<'static, Result<WatchEvent<T>, ListWatchError>>;

/// Lists and watches one resource.
pub trait ListerWatcher<K: Kind>: Send + Sync + 'static {
    /// One page of a list.
    fn list<'a>(&'a self, options: &'a ListOptions)
    -> BoxFuture<'a, Result<Page<K::Object>, ListWatchError>>;

    /// Opens a watch.
    fn watch<'a>(
        &'a self,
        options: &'a ListOptions,
    ) -> BoxFuture<'a, Result<WatchStream<K::Object>, ListWatchError>>;

    /// Whether it makes sense to ask for initial events in a watch. A server that does not know them but
    /// does not refuse either is found out only by a timeout.
    fn supports_watch_list(&self) -> bool {
        true
    }
}

/// Why a list failed, or a watch could not be opened or went on no longer.
#[derive(Debug, Error)]
pub enum ListWatchError {
    /// The server refused, and said why.
    #[error("the server refused with {} {}: {}", .0.code, .0.reason, .0.message)]
    Status(Box<Status>),
    /// The request did not reach the server, or the answer did not come back.
    #[error("no answer from the server: {}", with_causes(.0.as_ref()))]
    Transport(#[source] Box<dyn Error + Send + Sync>),
    /// The connection failed while the answer was read.
    #[error("the answer broke off: {}", with_causes(.0.as_ref()))]
    Body(#[source] Box<dyn Error + Send + Sync>),
    /// The server was silent for too long.
    #[error("the server was silent for {0:?}")]
    Silent(Duration),
    /// The server answered in an encoding that was not asked for.
    #[error("the server answered with content type {0:?}")]
    ContentType(String),
    /// The answer to a list is not a list.
    #[error("the answer is not a list: {0}")]
    NotAList(#[source] Box<dyn Error + Send + Sync>),
    /// The request could not be built, for example because of a malformed namespace.
    #[error("cannot build the request: {0}")]
    Request(#[from] http::Error),
}

impl ListWatchError {
    /// What the server said, if it was the server that refused.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            _ => None,
        }
    }

    /// The resource version asked for is not available any more: list anew.
    pub fn is_expired(&self) -> bool {
        self.status().is_some_and(is_expired)
    }

    /// The server asks for patience.
    pub fn is_too_many_requests(&self) -> bool {
        self.status().is_some_and(is_too_many_requests)
    }

    /// The server has not seen the resource version asked for yet.
    pub fn is_too_large_resource_version(&self) -> bool {
        self.status().is_some_and(is_too_large_resource_version)
    }

    /// The server can make nothing of the request.
    pub(crate) fn is_invalid(&self) -> bool {
        self.status().is_some_and(|status| matches!(status.code, 400 | 422))
    }

    /// Nobody listens at the server's address, as while it restarts.
    pub fn is_connection_refused(&self) -> bool {
        self.is_io(|kind| kind == io::ErrorKind::ConnectionRefused)
    }

    /// The connection was lost before the answer began, as when the server has just been killed.
    pub fn is_connection_lost(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
        self.is_io(|kind| matches!(kind, BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof))
    }

    fn is_io(&self, test: fn(io::ErrorKind) -> bool) -> bool {
        matches!(self, Self::Transport(cause) if has_io_error(cause.as_ref(), test))
    }

    /// The server will very likely answer the same request later.
    pub(crate) fn is_retriable(&self) -> bool {
        self.is_connection_refused() || self.is_too_many_requests()
    }
}

/// An error of the HTTP stack with what is below it. By themselves the upper ones say little more than that
/// something went wrong.
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
    // `source` of an I/O error passes over the error that it wraps.
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

/// How long the server asked to wait.
pub(crate) fn retry_after(status: &Status) -> Duration {
    let details = status.details.as_ref();
    Duration::from_secs(details.map_or(0, |details| u64::from(details.retry_after_seconds)))
}

/// Servers have spelled this in three ways: as a cause's reason, as a cause's message, and, oldest, in the
/// message of a timeout without causes.
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
    fn statuses_are_told_apart_by_code_or_reason() {
        assert!(status(json!({"code": 410})).is_expired());
        assert!(status(json!({"reason": "Expired"})).is_expired());
        assert!(status(json!({"reason": "TooManyRequests"})).is_too_many_requests());
        let patient = json!({"code": 429, "details": {"retryAfterSeconds": 7}});
        assert_eq!(retry_after(status(patient).status().unwrap()), Duration::from_secs(7));
        let error = status(json!({"code": 403, "reason": "Forbidden", "message": "no"}));
        assert_eq!(error.to_string(), "the server refused with 403 Forbidden: no");
        assert!(!error.is_expired() && !error.is_retriable());
    }

    #[test]
    fn a_refused_connection_is_found_below_other_errors() {
        let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
        let nested = kube::Error::Service(Box::new(io::Error::other(refused())));
        for cause in [Box::new(refused()) as Box<dyn Error + Send + Sync>, Box::new(nested)] {
            assert!(ListWatchError::Transport(cause).is_connection_refused());
        }
        let reset = ListWatchError::Transport(Box::new(io::Error::from(io::ErrorKind::ConnectionReset)));
        assert!(!reset.is_connection_refused() && reset.is_connection_lost());
    }
}
