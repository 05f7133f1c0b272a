//! What a plugin can do during a binding cycle, independent of runtime and client.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::node::NodeRecord;
use crate::objects::Objects;
use crate::pod::{PodKey, Uid};
use crate::text::Text;

/// A future that owns what it needs.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send + 'static>>;

/// A request to the API server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ApiCall {
    /// POST to the pod's binding subresource.
    Bind {
        /// The pod.
        pod: PodKey,
        /// Its UID; the server rejects the binding of another pod of that name.
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

impl ApiCall {
    /// A request with a JSON body of this content type.
    pub fn request(
        method: &str,
        path: impl Into<Arc<str>>,
        content_type: &str,
        body: serde_json::Value,
    ) -> Self {
        let (method, path, content_type) = (method.into(), path.into(), content_type.into());
        Self::Request { method, path, content_type, body }
    }
}

/// The known outcome of a failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Certainty {
    /// The server rejected the request: nothing changed.
    Refused,
    /// The object does not exist.
    NotFound,
    /// The server reports a conflict, 409: the object has changed since the request was made.
    /// Another attempt of the same request may be what changed it.
    Conflict,
    /// The server may have executed it: a timeout, a broken connection or 5xx.
    Unknown,
}

/// The error of a request.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct ApiError {
    /// The known state of the object.
    pub certainty: Certainty,
    /// The server's error, or the client's if there was no response.
    pub message: String,
}

/// The error of a wait for a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WaitError {
    /// The deadline passed.
    #[error("timed out waiting for the condition")]
    TimedOut,
    /// The binding was cancelled.
    #[error("cancelled")]
    Cancelled,
}

/// The state of the informers, as a waiting binding sees it.
pub trait ClusterView {
    /// The objects of other kinds.
    fn objects(&self) -> &Objects;
    /// A node.
    fn node(&self, name: &str) -> Option<&NodeRecord>;
    /// Whether the pod still exists.
    fn has_pod(&self, pod: &PodKey, uid: &Uid) -> bool;
}

/// The condition of a wait.
pub type Predicate = Box<dyn Fn(&dyn ClusterView) -> bool + Send + 'static>;

/// What a plugin reports about a pod that is being bound, for events and metrics.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BindingReport {
    /// The pod.
    pub pod: Uid,
    /// What happened.
    pub what: Occurrence,
}

/// What happened during a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrence {
    /// A Normal event about the pod.
    Event {
        /// The reason.
        reason: Text,
        /// The action.
        action: Text,
        /// The text.
        note: String,
    },
    /// The server answered the creation of a ResourceClaim for extended resources.
    ClaimCreation {
        /// Whether the claim exists now.
        is_created: bool,
    },
    /// The wait for binding conditions of devices ended. It began with the pod's last event.
    DevicesAwaited(DevicesAwaited),
}

/// A wait for binding conditions of devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DevicesAwaited {
    /// How it ended.
    pub outcome: DeviceWait,
    /// The drivers of the pod's devices, one entry for each device.
    pub drivers: Vec<Arc<str>>,
    /// The drivers of those devices that name conditions.
    pub with_conditions: Vec<Arc<str>>,
}

/// How a wait for binding conditions of devices ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceWait {
    /// All conditions are true.
    Success,
    /// A failure condition is true.
    Failure,
    /// The conditions were not true in time.
    Timeout,
    /// Something else: a claim is gone, or the binding was cancelled.
    Error,
}

impl DeviceWait {
    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Timeout => "timeout",
            Self::Error => "error",
        }
    }
}

/// Calls that the program executes for PreBind and Bind plugins. One implementation runs on tokio,
/// another inline in a simulation.
pub trait BindingCalls: Send + Sync {
    /// Sends a request.
    fn call(&self, call: ApiCall) -> BoxFuture<Result<serde_json::Value, ApiError>>;
    /// Tells the scheduler the server's answer to a write of an object of this kind, so that the
    /// object is assumed until the informer shows that version or a newer one. The call returns at
    /// once; the scheduler knows before it learns how PreBind ended.
    fn written(&self, resource: &Text, answer: serde_json::Value);
    /// Reports to the scheduler. The call returns at once; the scheduler knows before it learns how
    /// PreBind ended.
    fn report(&self, report: BindingReport);
    /// Waits until the predicate holds. It is checked immediately, and whenever objects or nodes
    /// change or a pod is deleted.
    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>>;
    /// Resolves when the binding is cancelled, for example by preemption. Only during PreBind.
    fn cancelled(&self) -> BoxFuture<()>;
    /// Sleeps.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;
}

/// The calls that PreBind and Bind plugins can make.
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

/// The result of Bind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindOutcome {
    /// The pod is bound.
    Bound,
    /// This plugin does not bind the pod; the next plugin is called.
    Skip,
    /// The plugin rejects the pod for this reason. The pod is not bound, and no other plugin is
    /// called.
    Rejected(String),
    /// The request failed.
    Failed(ApiError),
}
