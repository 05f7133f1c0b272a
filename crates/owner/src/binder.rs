//! Carries out bindings: runs PreBind and Bind plugins on the runtime, and reads pods whose binding
//! is uncertain.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindOutcome, BindingCalls, BindingContext, BindingReport, BoxFuture, Certainty,
    Predicate, WaitError,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{PodInfo, Status, Text, Uid, panic_text};
use supercargo_scheduler::{ExtenderSpec, Input, NamedBinder, PodRead, PreBindWork};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::extender::HttpExtenders;
use crate::owner::{Mailbox, Message};
use crate::status_writer::RETRY_DELAYS;
use supercargo_client::api::{Api, Call, CallError, JSON, Submission};
use supercargo_codec::ObjectKind;
use supercargo_codec::payload::Binding;

/// Maximum number of concurrent bindings. Requests to the API server have an adaptive limit in
/// addition.
const BINDINGS_IN_FLIGHT: usize = 200;
/// Longest time that a status patch delays the binding of its pod.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries out bindings.
#[derive(Clone)]
pub struct Binder {
    api: Api,
    mailbox: Mailbox,
    extenders: HttpExtenders,
    in_flight: Arc<Semaphore>,
    backlog: Backlog,
    /// Cancels PreBind of a pod.
    pre_binding: Arc<Mutex<HashMap<Uid, CancellationToken>>>,
}

impl Binder {
    /// A binder whose results go to the owner.
    pub fn new(api: Api, mailbox: Mailbox, extenders: HttpExtenders) -> Self {
        let in_flight = Arc::new(Semaphore::new(BINDINGS_IN_FLIGHT));
        let backlog = Backlog::new(mailbox.clone());
        Self { api, mailbox, extenders, in_flight, backlog, pre_binding: Arc::default() }
    }

    /// Whether more bindings may start: not while too many wait for the API server.
    pub fn has_room(&self) -> bool {
        self.backlog.has_room()
    }

    /// Whether requests may be sent now: not while the fence is closed.
    pub fn may_write(&self) -> bool {
        self.api.may_send().is_ok()
    }

    /// The bindings that wait for the API server.
    pub fn backlog(&self) -> Backlog {
        self.backlog.clone()
    }

    /// Runs the groups in sequence and the plugins of a group concurrently, until one fails.
    pub fn pre_bind(&self, pod: &Arc<PodInfo>, groups: Vec<Vec<PreBindWork>>) {
        let token = CancellationToken::new();
        self.pre_binding.lock().insert(pod.uid.clone(), token.clone());
        let (binder, uid) = (self.clone(), pod.uid.clone());
        tokio::spawn(async move {
            let status = run_groups(&binder, &token, groups).await;
            binder.pre_binding.lock().remove(&uid);
            binder.mailbox.send(Input::PreBound { pod: uid, status });
        });
    }

    /// Cancels PreBind of a pod.
    pub fn cancel_pre_bind(&self, uid: &Uid) {
        if let Some(token) = self.pre_binding.lock().get(uid) {
            token.cancel();
        }
    }

    /// Calls the extenders and then the plugins, in order, until one does not skip.
    ///
    /// Waits until the pod's status patches have `settled`: a patch of an earlier attempt must not
    /// mark a bound pod as unschedulable. PreBind does not wait, because the patch with the
    /// nominated node is sent right before it.
    pub fn bind(
        &self,
        pod: Arc<PodInfo>,
        node: Arc<str>,
        extenders: Vec<ExtenderSpec>,
        binders: Arc<[NamedBinder]>,
        settled: impl Future<Output = ()> + Send + 'static,
    ) {
        let (binder, entry) = (self.clone(), self.backlog.enter());
        tokio::spawn(async move {
            let _entry = entry;
            if timeout(SETTLE_TIMEOUT, settled).await.is_err() {
                tracing::warn!(pod = %pod.key(), "binding pod before its status patch has completed");
            }
            // Cannot fail: the semaphore is never closed.
            let _permit = binder.in_flight.acquire().await;
            let cx = binder.context(CancellationToken::new(), true);
            // Calls to extenders do not pass the fence of the API client.
            let outcome = match binder.api.may_send() {
                Ok(()) => ask_extenders(&binder.extenders, &extenders, &pod, &node).await,
                Err(error) => BindOutcome::Failed(error.error),
            };
            let (by, outcome) = match outcome {
                BindOutcome::Skip => ask_binders(&cx, &pod, &node, &binders).await,
                outcome => (Text::EMPTY, outcome),
            };
            binder.mailbox.send(Input::Bound { pod: pod.uid.clone(), by, outcome });
        });
    }

    /// Reads the pod's node from the API server. Without a resourceVersion this is a quorum read.
    pub fn read(&self, pod: PodKey, uid: Uid) {
        let binder = self.clone();
        tokio::spawn(async move {
            let path = pod_path(&pod, "");
            let call = Call { method: Method::GET, path: &path, content_type: JSON, body: &Value::Null };
            let read = match binder.api.call(call).await {
                Ok(body) if body["metadata"]["uid"] != *uid.text() => PodRead::Gone,
                Ok(body) => PodRead::Exists(
                    body["spec"]["nodeName"].as_str().filter(|n| !n.is_empty()).map(Into::into),
                ),
                Err(error) if error.error.certainty == Certainty::NotFound => PodRead::Gone,
                Err(error) => {
                    tracing::warn!(%pod, error = %error.error, "cannot read the pod to determine whether it is bound");
                    PodRead::Failed
                }
            };
            binder.mailbox.send(Input::PodRead { pod: uid, read });
        });
    }

    /// Sends a request that writes an object of this kind, and then another one.
    /// A pod for which it is learns when that is over.
    pub fn write(
        &self,
        resource: Text,
        call: ApiCall,
        then: Option<ApiCall>,
        pod: Option<Uid>,
        retries: bool,
    ) {
        let (binder, cx) = (self.clone(), self.context(CancellationToken::new(), false));
        let object = object_path(&call);
        tokio::spawn(async move {
            let requests = async {
                cx.written(&resource, cx.call(call).await?);
                if let Some(then) = then {
                    cx.call(then).await?;
                }
                Ok::<_, ApiError>(())
            };
            let result = requests.await;
            if let Err(error) = &result {
                tracing::warn!(%resource, %error, "cannot write the object");
                if let (Certainty::Unknown, Some(path)) = (error.certainty, &object) {
                    read_back(&cx, &resource, path).await;
                }
            }
            if let Some(pod) = pod {
                binder.mailbox.send(Input::WriteEnded { pod, retry: retries && result.is_err() });
            }
        });
    }

    fn context(&self, cancelled: CancellationToken, has_begun: bool) -> BindingContext {
        let (api, mailbox, backlog) = (self.api.clone(), self.mailbox.clone(), self.backlog.clone());
        let calls = BinderCalls { api, mailbox, backlog, cancelled, has_begun: has_begun.into() };
        BindingContext::new(Arc::new(calls))
    }
}

/// `/api/v1/namespaces/<ns>/pods/<name><suffix>`
pub(crate) fn pod_path(pod: &PodKey, suffix: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{}{suffix}", pod.namespace, pod.name)
}

/// The path of the object that a request changes. Its status has a path below that.
fn object_path(call: &ApiCall) -> Option<Arc<str>> {
    match call {
        ApiCall::Request { path, .. } => Some(path.strip_suffix("/status").unwrap_or(path).into()),
        ApiCall::Bind { .. } => None,
    }
}

/// Reads an object after a write of which nobody knows whether it had an effect. The pod's next
/// attempt must not rely on an informer that does not show the effect yet.
async fn read_back(cx: &BindingContext, resource: &Text, path: &Arc<str>) {
    let mut delays = RETRY_DELAYS.iter();
    let mut delay = Duration::ZERO;
    loop {
        match cx.call(ApiCall::request("GET", Arc::clone(path), JSON, Value::Null)).await {
            Ok(object) => return cx.written(resource, object),
            Err(error) if error.certainty == Certainty::Unknown => {
                delay = delays.next().copied().unwrap_or(delay);
                sleep(delay).await;
            }
            // The object is gone, or this process does not lead.
            Err(_) => return,
        }
    }
}

/// The first failure, or success. A failure cancels the other plugins of its group and skips later
/// groups.
async fn run_groups(binder: &Binder, token: &CancellationToken, groups: Vec<Vec<PreBindWork>>) -> Status {
    for group in groups {
        let token = token.child_token();
        let run = |PreBindWork { name, plugin, work }| {
            let cx = binder.context(token.clone(), false);
            async move {
                let status = catch_panic("PreBind", &name, async { plugin.pre_bind(cx, work).await }).await;
                status.unwrap_or_else(Status::error).by(name)
            }
        };
        let mut runs: FuturesUnordered<_> = group.into_iter().map(run).collect();
        let mut failed = None;
        while let Some(status) = runs.next().await {
            if !status.is_success() && failed.is_none() {
                failed = Some(status);
                token.cancel();
            }
        }
        if let Some(failed) = failed {
            return failed;
        }
    }
    Status::success()
}

/// The outcome of the first extender that binds or is not ignorable.
async fn ask_extenders(
    calls: &HttpExtenders,
    extenders: &[ExtenderSpec],
    pod: &PodInfo,
    node: &str,
) -> BindOutcome {
    for extender in extenders {
        match calls.bind(extender, pod, node).await {
            Ok(()) => return BindOutcome::Bound,
            Err(error) if extender.ignorable => {
                let (extender, pod) = (&extender.name, pod.key());
                tracing::info!(%extender, %pod, error, "Skipping extender in bind as it returned error and has ignorable flag set");
            }
            // The extender may have bound the pod despite the error.
            Err(message) => {
                return BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message });
            }
        }
    }
    BindOutcome::Skip
}

/// The outcome of the first plugin that does not skip, and its name.
async fn ask_binders(
    cx: &BindingContext,
    pod: &Arc<PodInfo>,
    node: &Arc<str>,
    binders: &[NamedBinder],
) -> (Text, BindOutcome) {
    for NamedBinder { name, plugin } in binders {
        let bind = async { plugin.bind(cx.clone(), Arc::clone(pod), Arc::clone(node)).await };
        let outcome = catch_panic("Bind", name, bind).await.unwrap_or_else(|message| {
            // The plugin may have bound the pod before it panicked.
            BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message })
        });
        if outcome != BindOutcome::Skip {
            return (name.clone(), outcome);
        }
    }
    (Text::EMPTY, BindOutcome::Skip)
}

/// Posts a binding. A refused connection is retried at upstream's intervals, because the server has
/// not seen the request. Upstream retries 500 and 503, too: the pod may be bound after these, so
/// it is read first.
async fn post(api: &Api, binding: &Binding<'_>) -> Result<(), CallError> {
    let path = pod_path(binding.pod, "/binding");
    let mut delays = RETRY_DELAYS.iter();
    loop {
        let bind = Submission { method: Method::POST, path: &path, object: binding };
        match api.submit(bind).await {
            Err(error) if error.connection_refused => match delays.next() {
                Some(delay) => sleep(*delay).await,
                None => return Err(error),
            },
            result => return result,
        }
    }
}

/// Runs a plugin. A panic becomes an error with its name, because the scheduler waits for an
/// outcome.
async fn catch_panic<T>(point: &str, plugin: &str, run: impl Future<Output = T>) -> Result<T, String> {
    let result = AssertUnwindSafe(run).catch_unwind().await;
    result.map_err(|panic| format!("plugin {plugin:?} panicked in {point}: {}", panic_text(&*panic)))
}

/// Calls that plugins may make during a binding.
struct BinderCalls {
    api: Api,
    mailbox: Mailbox,
    backlog: Backlog,
    cancelled: CancellationToken,
    /// Whether the pod's requests have begun. The first ones of a thousand pods with claims must
    /// not delay the binding of the first pod.
    has_begun: AtomicBool,
}

impl BinderCalls {
    /// The client for the next request.
    fn next(&self) -> Api {
        if self.has_begun.swap(true, Ordering::Relaxed) { self.api.continuing() } else { self.api.clone() }
    }

    /// Lets the owner wait. It drops the sender only when the process stops.
    fn post_wait(&self, predicate: Predicate, timeout: Duration) -> oneshot::Receiver<Result<(), WaitError>> {
        let (done, answer) = oneshot::channel();
        self.mailbox.post(Message::WaitFor { predicate, timeout, done });
        answer
    }
}

impl BindingCalls for BinderCalls {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let (api, backlog) = (self.next(), self.backlog.clone());
        Box::pin(async move {
            let result = match &call {
                ApiCall::Bind { pod, uid, node } => {
                    post(&api, &Binding { pod, uid, node }).await.map(|()| Value::Null)
                }
                ApiCall::Request { method, path, content_type, body } => {
                    // Requests of PreBind plugins count like bindings.
                    let _entry = backlog.enter();
                    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
                    api.call(Call { method, path, content_type, body }).await
                }
            };
            result.map_err(|error| error.error)
        })
    }

    fn written(&self, resource: &Text, answer: Value) {
        let kind = ObjectKind::of(resource).ok_or_else(|| "the kind is unknown".to_owned());
        let object =
            kind.and_then(|kind| kind.decode(answer.to_string().as_bytes()).map_err(|e| e.to_string()));
        match object {
            Ok(object) => self.mailbox.send(Input::Written(Arc::new(object))),
            // The informer will show it.
            Err(error) => tracing::warn!(%resource, %error, "cannot read the answer to a write"),
        }
    }

    fn report(&self, report: BindingReport) {
        self.mailbox.send(Input::BindingReport(report));
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        let (answer, cancelled) = (self.post_wait(predicate, timeout), self.cancelled.clone());
        Box::pin(async move {
            tokio::select! {
                () = cancelled.cancelled() => Err(WaitError::Cancelled),
                // The owner drops the sender only when the process stops.
                outcome = answer => outcome.unwrap_or(Err(WaitError::Cancelled)),
            }
        })
    }

    fn cancelled(&self) -> BoxFuture<()> {
        let cancelled = self.cancelled.clone();
        Box::pin(async move { cancelled.cancelled().await })
    }

    /// By the scheduler's clock, which a test or a simulation may move.
    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let answer = self.post_wait(Box::new(|_| false), duration);
        Box::pin(async move {
            if answer.await.is_err() {
                // The owner has stopped.
                sleep(duration).await;
            }
        })
    }
}

#[cfg(test)]
mod tests;
