//! Carries out bindings: PreBind and Bind plugins on the runtime, and the read that settles an uncertain one.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};
use supercargo_framework::binding::{
    ApiCall, ApiError, BindOutcome, BindingCalls, BindingContext, BoxFuture, Certainty, Predicate, WaitError,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{PodInfo, Status, Uid};
use supercargo_scheduler::{Input, NamedBinder, PodRead, PreBindWork};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Call};
use crate::owner::{Mailbox, Message};

/// So many bindings at most talk to the API server at once.
const BINDINGS_IN_FLIGHT: usize = 128;

/// Carries out bindings.
#[derive(Clone)]
pub(crate) struct Binder {
    api: Api,
    mailbox: Mailbox,
    in_flight: Arc<Semaphore>,
    /// How to stop PreBind of a pod.
    pre_binding: Arc<Mutex<HashMap<Uid, CancellationToken>>>,
}

impl Binder {
    pub(crate) fn new(api: Api, mailbox: Mailbox) -> Self {
        let in_flight = Arc::new(Semaphore::new(BINDINGS_IN_FLIGHT));
        Self { api, mailbox, in_flight, pre_binding: Arc::default() }
    }

    /// Runs the groups one after the other, the plugins of a group side by side, until one fails.
    pub(crate) fn pre_bind(&self, pod: &Arc<PodInfo>, groups: Vec<Vec<PreBindWork>>) {
        let token = CancellationToken::new();
        self.pre_binding.lock().insert(pod.uid.clone(), token.clone());
        let (binder, uid) = (self.clone(), pod.uid.clone());
        tokio::spawn(async move {
            let cx = binder.context(token);
            let status = run_groups(&cx, groups).await;
            binder.pre_binding.lock().remove(&uid);
            binder.mailbox.send(Input::PreBound { pod: uid, status });
        });
    }

    /// Makes PreBind of a pod give up.
    pub(crate) fn cancel_pre_bind(&self, uid: &Uid) {
        if let Some(token) = self.pre_binding.lock().get(uid) {
            token.cancel();
        }
    }

    /// Asks the plugins in order until one does not skip.
    pub(crate) fn bind(&self, pod: Arc<PodInfo>, node: Arc<str>, binders: Arc<[NamedBinder]>) {
        let binder = self.clone();
        tokio::spawn(async move {
            // The semaphore is never closed, so there is always a permit to be had.
            let _permit = binder.in_flight.acquire().await;
            let cx = binder.context(CancellationToken::new());
            let mut outcome = BindOutcome::Skip;
            for NamedBinder { plugin, .. } in &*binders {
                outcome = plugin.bind(cx.clone(), Arc::clone(&pod), Arc::clone(&node)).await;
                if outcome != BindOutcome::Skip {
                    break;
                }
            }
            binder.mailbox.send(Input::Bound { pod: pod.uid.clone(), outcome });
        });
    }

    /// Asks the API server for the pod's node. Without a resourceVersion this is a quorum read.
    pub(crate) fn read(&self, pod: PodKey, uid: Uid) {
        let binder = self.clone();
        tokio::spawn(async move {
            let path = pod_path(&pod, "");
            let call = Call { method: Method::GET, path: &path, content_type: JSON, body: &Value::Null };
            let read = match binder.api.call(call).await {
                Ok(body) if body["metadata"]["uid"] != *uid.0 => PodRead::Gone,
                Ok(body) => PodRead::Exists(
                    body["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()).map(Into::into),
                ),
                Err(error) if error.error.certainty == Certainty::NotFound => PodRead::Gone,
                Err(error) => {
                    tracing::warn!(%pod, error = %error.error, "cannot read the pod to settle its binding");
                    PodRead::Failed
                }
            };
            binder.mailbox.send(Input::PodRead { pod: uid, read });
        });
    }

    fn context(&self, cancelled: CancellationToken) -> BindingContext {
        let calls = ShellCalls { api: self.api.clone(), mailbox: self.mailbox.clone(), cancelled };
        BindingContext::new(Arc::new(calls))
    }
}

const JSON: &str = "application/json";

/// `/api/v1/namespaces/<ns>/pods/<name><suffix>`
pub(crate) fn pod_path(pod: &PodKey, suffix: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{}{suffix}", pod.namespace, pod.name)
}

async fn run_groups(cx: &BindingContext, groups: Vec<Vec<PreBindWork>>) -> Status {
    for group in groups {
        let runs = group.into_iter().map(|PreBindWork { name, plugin, work }| {
            let cx = cx.clone();
            async move { plugin.pre_bind(cx, work).await.by(name) }
        });
        let statuses = futures::future::join_all(runs).await;
        if let Some(failed) = statuses.into_iter().find(|status| !status.is_success()) {
            return failed;
        }
    }
    Status::success()
}

/// What plugins may do while they bind.
struct ShellCalls {
    api: Api,
    mailbox: Mailbox,
    cancelled: CancellationToken,
}

impl BindingCalls for ShellCalls {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let api = self.api.clone();
        Box::pin(async move {
            let result = match &call {
                ApiCall::Bind { pod, uid, node } => {
                    let path = pod_path(pod, "/binding");
                    let body = json!({
                        "apiVersion": "v1",
                        "kind": "Binding",
                        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": uid},
                        "target": {"kind": "Node", "name": node},
                    });
                    api.call(Call { method: Method::POST, path: &path, content_type: JSON, body: &body })
                        .await
                }
                ApiCall::Request { method, path, content_type, body } => {
                    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
                    api.call(Call { method, path, content_type, body }).await
                }
            };
            result.map_err(|error| error.error)
        })
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        let (met, wait) = oneshot::channel();
        self.mailbox.post(Message::WaitFor { predicate, met });
        let cancelled = self.cancelled.clone();
        Box::pin(async move {
            tokio::select! {
                () = cancelled.cancelled() => Err(WaitError::Cancelled),
                // The owner drops the sender only when it ends, and then everything does.
                met = wait => met.map_err(|_| WaitError::Cancelled),
                () = tokio::time::sleep(timeout) => Err(WaitError::TimedOut),
            }
        })
    }

    fn cancelled(&self) -> BoxFuture<()> {
        let cancelled = self.cancelled.clone();
        Box::pin(async move { cancelled.cancelled().await })
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        Box::pin(tokio::time::sleep(duration))
    }
}
