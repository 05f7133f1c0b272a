//! What a plugin may do while a pod is bound, without knowing of a runtime or a client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::node::NodeRecord;
use crate::objects::Objects;
use crate::pod::{PodKey, Uid};

/// A future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ApiCall {
    /// POST to the pod's binding subresource.
    Bind {
        /// The pod.
        pod: PodKey,
        /// Its UID; the server refuses to bind another pod of that name.
        uid: Uid,
        /// The node.
        node: Arc<str>,
    },
    /// Any other request, with a JSON body.
    Request {
        /// The HTTP method.
        method: Arc<str>,
        /// The path with query.
        path: Arc<str>,
        /// The content type of the body.
        content_type: Arc<str>,
        /// The body.
        body: serde_json::Value,
    },
}

/// What is known after a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Certainty {
    /// The server refused: nothing changed.
    Refused,
    /// The object is gone.
    NotFound,
    /// The server may have carried it out: a time-out, a connection that broke, 409 or 5xx.
    Unknown,
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ApiError {
    /// What is known of the state of the object.
    pub certainty: Certainty,
    /// The error in the server's words, or the client's when there was no answer.
    pub message: String,
}

/// Why waiting for a condition ended without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitError {
    /// The deadline passed.
    #[error("timed out waiting for the condition")]
    TimedOut,
    /// The binding was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// What a binding that waits can see of the cluster, as the informers have it.
pub trait Cluster {
    /// The objects of other kinds.
    fn objects(&self) -> &Objects;
    /// A node.
    fn node(&self, name: &str) -> Option<&NodeRecord>;
    /// Whether the pod still exists.
    fn has_pod(&self, pod: &PodKey, uid: &Uid) -> bool;
}

/// Decides whether waiting is over.
pub type Predicate = Box<dyn Fn(&dyn Cluster) -> bool + Send + 'static>;

/// What the shell does for a plugin that binds. One implementation runs on tokio, another inline in a simulation.
pub trait BindingCalls: Send + Sync {
    /// Sends a request.
    fn call(&self, call: ApiCall) -> BoxFuture<Result<serde_json::Value, ApiError>>;
    /// Waits until the predicate holds, checked at once and whenever objects or nodes change or a pod goes.
    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>>;
    /// Resolves when the binding is cancelled, for example by preemption. Never before PreBind, never after it.
    fn cancelled(&self) -> BoxFuture<()>;
    /// Sleeps.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;
}

/// What PreBind and Bind plugins work with.
#[derive(Clone)]
pub struct BindingContext(Arc<dyn BindingCalls>);

impl BindingContext {
    /// Wraps an implementation.
    pub fn new(calls: Arc<dyn BindingCalls>) -> Self {
        Self(calls)
    }
}

impl std::ops::Deref for BindingContext {
    type Target = dyn BindingCalls;

    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

/// How binding ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindOutcome {
    /// The pod is bound.
    Bound,
    /// This plugin does not bind the pod; the next one is asked.
    Skip,
    /// It turns the pod down, for this reason. The pod is not bound, and no other plugin is asked.
    Rejected(String),
    /// It failed.
    Failed(ApiError),
}
