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
pub(crate) struct Binder {
    api: Api,
    mailbox: Mailbox,
    extenders: HttpExtenders,
    in_flight: Arc<Semaphore>,
    backlog: Backlog,
    /// Cancels PreBind of a pod.
    pre_binding: Arc<Mutex<HashMap<Uid, CancellationToken>>>,
}

impl Binder {
    pub(crate) fn new(api: Api, mailbox: Mailbox, extenders: HttpExtenders) -> Self {
        let in_flight = Arc::new(Semaphore::new(BINDINGS_IN_FLIGHT));
        let backlog = Backlog::new(mailbox.clone());
        Self { api, mailbox, extenders, in_flight, backlog, pre_binding: Arc::default() }
    }

    /// Whether more bindings may start: not while too many wait for the API server.
    pub(crate) fn has_room(&self) -> bool {
        self.backlog.has_room()
    }

    /// Whether requests may be sent now: not while the fence is closed.
    pub(crate) fn may_write(&self) -> bool {
        self.api.may_send().is_ok()
    }

    /// The bindings that wait for the API server.
    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog.clone()
    }

    /// Runs the groups in sequence and the plugins of a group concurrently, until one fails.
    pub(crate) fn pre_bind(&self, pod: &Arc<PodInfo>, groups: Vec<Vec<PreBindWork>>) {
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
    pub(crate) fn cancel_pre_bind(&self, uid: &Uid) {
        if let Some(token) = self.pre_binding.lock().get(uid) {
            token.cancel();
        }
    }

    /// Calls the extenders and then the plugins, in order, until one does not skip.
    ///
    /// Waits until the pod's status patches have `settled`: a patch of an earlier attempt must not
    /// mark a bound pod as unschedulable. PreBind does not wait, because the patch with the
    /// nominated node is sent right before it.
    pub(crate) fn bind(
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
    pub(crate) fn read(&self, pod: PodKey, uid: Uid) {
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
    pub(crate) fn write(
        &self,
        resource: Text,
        call: ApiCall,
        then: Option<ApiCall>,
        pod: Option<Uid>,
        retries: bool,
    ) {
        let (binder, cx) = (self.clone(), self.context(CancellationToken::new(), false));
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
    /// Whether the pod's requests have begun. The first ones of a thousand pods with claims must not
    /// delay the binding of the first pod.
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
mod tests {
    use std::any::Any;
    use std::sync::mpsc::Receiver;

    use serde_json::json;
    use supercargo_framework::objects::resources;
    use supercargo_framework::plugin::{BindPlugin, PreBindPlugin, PreFlight};
    use supercargo_framework::testing::pod;
    use supercargo_framework::{Context, CycleState};

    use super::*;
    use supercargo_client::testing::answering;

    /// Panics when called, or when its future is polled.
    #[derive(Clone, Copy, Debug)]
    enum Panics {
        Before,
        Inside,
    }

    impl Panics {
        fn future<T: 'static>(self) -> BoxFuture<T> {
            match self {
                Self::Before => panic!("oh no"),
                Self::Inside => Box::pin(async { panic!("oh no") }),
            }
        }
    }

    impl PreBindPlugin for Panics {
        fn pre_flight(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &Arc<str>) -> PreFlight {
            unreachable!("this is the cycle's")
        }

        fn pre_bind(&self, _: BindingContext, _: Box<dyn Any + Send>) -> BoxFuture<Status> {
            self.future()
        }
    }

    impl BindPlugin for Panics {
        fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
            self.future()
        }
    }

    /// Fails immediately, or waits until cancelled.
    struct Waits {
        fails: bool,
    }

    impl PreBindPlugin for Waits {
        fn pre_flight(&self, _: &Context<'_>, _: &CycleState, _: &PodInfo, _: &Arc<str>) -> PreFlight {
            unreachable!("this is the cycle's")
        }

        fn pre_bind(&self, cx: BindingContext, _: Box<dyn Any + Send>) -> BoxFuture<Status> {
            let fails = self.fails;
            Box::pin(async move {
                if fails {
                    return Status::error("no");
                }
                cx.cancelled().await;
                Status::error("gave up")
            })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failure_in_pre_bind_cancels_its_group_and_skips_later_groups() {
        let (binder, messages) = binder();
        let work = |name: &'static str, fails| PreBindWork {
            name: name.into(),
            plugin: Arc::new(Waits { fails }),
            work: Box::new(()),
        };
        let groups = vec![vec![work("A", false), work("B", true)], vec![work("C", false)]];
        binder.pre_bind(&Arc::new(pod("p").build()), groups);
        let Some(Input::PreBound { status, .. }) = next_input(&messages, Duration::from_secs(1)).await else {
            panic!("no input");
        };
        assert_eq!(status, Status::error("no").by("B"), "the first failure is reported");
    }

    /// Skips every pod.
    struct Skips;

    impl BindPlugin for Skips {
        fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
            Box::pin(std::future::ready(BindOutcome::Skip))
        }
    }

    /// Rejects every pod.
    struct Rejects;

    impl BindPlugin for Rejects {
        fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
            Box::pin(std::future::ready(BindOutcome::Rejected("no".to_owned())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn first_bind_plugin_that_does_not_skip_is_reported() {
        let another = NamedBinder { name: "Another".into(), plugin: Arc::new(Skips) };
        let strict = NamedBinder { name: "Strict".into(), plugin: Arc::new(Rejects) };
        let cases: [(Vec<NamedBinder>, &str, BindOutcome); 4] = [
            (vec![another.clone(), named(Binds)], "Fake", BindOutcome::Bound),
            (vec![named(Binds), another.clone()], "Fake", BindOutcome::Bound),
            (vec![strict, named(Binds)], "Strict", BindOutcome::Rejected("no".to_owned())),
            (vec![another], "", BindOutcome::Skip),
        ];
        for (binders, expected, expected_outcome) in cases {
            let (binder, messages) = binder();
            let pod = Arc::new(pod("p").build());
            binder.bind(pod, "n1".into(), vec![], binders.into(), std::future::ready(()));
            let Some(Input::Bound { by, outcome, .. }) = next_input(&messages, Duration::from_secs(1)).await
            else {
                panic!("no input");
            };
            assert_eq!((&*by, outcome), (expected, expected_outcome));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_an_ignorable_extender_falls_back_to_bind_plugins() {
        for (ignorable, expected) in [(true, "Fake"), (false, "")] {
            let (binder, messages) = binder();
            // Fails because it is not configured.
            let extender = ExtenderSpec { name: "x".into(), ignorable, binds: true, ..Default::default() };
            let pod = Arc::new(pod("p").build());
            let binders = Arc::from([named(Binds)]);
            binder.bind(pod, "n1".into(), vec![extender], binders, std::future::ready(()));
            let Some(Input::Bound { by, outcome, .. }) = next_input(&messages, Duration::from_secs(1)).await
            else {
                panic!("no input");
            };
            assert_eq!(&*by, expected);
            let message = "extender x is not configured".to_owned();
            let failed = BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message });
            assert_eq!(outcome, if ignorable { BindOutcome::Bound } else { failed });
        }
    }

    /// Binds every pod.
    struct Binds;

    impl BindPlugin for Binds {
        fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
            Box::pin(std::future::ready(BindOutcome::Bound))
        }
    }

    fn binder() -> (Binder, Receiver<Message>) {
        let (mailbox, messages) = Mailbox::new();
        (Binder::new(answering(vec![]).0, mailbox, HttpExtenders::default()), messages)
    }

    fn named(plugin: impl BindPlugin) -> NamedBinder {
        NamedBinder { name: "Fake".into(), plugin: Arc::new(plugin) }
    }

    /// The next input to the scheduler, if it arrives in time.
    async fn next_input(messages: &Receiver<Message>, within: Duration) -> Option<Input> {
        let input = async {
            loop {
                if let Ok(Message::Input(input)) = messages.try_recv() {
                    return *input;
                }
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(within, input).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn panic_in_pre_bind_is_an_error_of_the_plugin() {
        for panics in [Panics::Before, Panics::Inside] {
            let (binder, messages) = binder();
            let work = PreBindWork { name: "Fake".into(), plugin: Arc::new(panics), work: Box::new(()) };
            binder.pre_bind(&Arc::new(pod("p").build()), vec![vec![work]]);
            let Some(Input::PreBound { pod, status }) = next_input(&messages, Duration::from_secs(1)).await
            else {
                panic!("{panics:?}: no input");
            };
            assert_eq!(pod, "p".into());
            assert_eq!(status, Status::error("plugin \"Fake\" panicked in PreBind: oh no").by("Fake"));
            assert!(binder.pre_binding.lock().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn panic_in_bind_leaves_the_outcome_unknown() {
        for panics in [Panics::Before, Panics::Inside] {
            let (binder, messages) = binder();
            let binders = Arc::from([named(panics), named(Binds)]);
            binder.bind(Arc::new(pod("p").build()), "n1".into(), vec![], binders, std::future::ready(()));
            let Some(Input::Bound { pod, by, outcome }) = next_input(&messages, Duration::from_secs(1)).await
            else {
                panic!("{panics:?}: no input");
            };
            assert_eq!(pod, "p".into());
            let message = "plugin \"Fake\" panicked in Bind: oh no".to_owned();
            assert_eq!(&*by, "Fake");
            assert_eq!(outcome, BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answers_to_writes_reach_the_scheduler_if_they_can_be_read() {
        let (binder, messages) = binder();
        let cx = binder.context(CancellationToken::new(), true);
        cx.written(&Text::from("no-kind"), json!({}));
        cx.written(&resources::RESOURCE_CLAIM, json!({"metadata": {"name": "unreadable"}}));
        let claim = json!({"metadata": {"name": "c", "namespace": "ns", "resourceVersion": "7"}});
        cx.written(&resources::RESOURCE_CLAIM, claim);
        let Some(Input::Written(claim)) = next_input(&messages, Duration::from_secs(1)).await else {
            panic!("no input");
        };
        assert_eq!((&*claim.key, &*claim.resource_version), ("ns/c", "7"));
        assert!(next_input(&messages, Duration::from_secs(1)).await.is_none());
    }

    /// How a server answers binds, one after the other. It refuses connections without a status.
    async fn bound(answers: &[Option<u16>]) -> (Result<Value, Certainty>, usize, Duration) {
        let (left, sent) = (Arc::new(Mutex::new(answers.to_vec())), Arc::new(Mutex::new(0)));
        let log = Arc::clone(&sent);
        let service = tower::service_fn(move |_: http::Request<kube::client::Body>| {
            *log.lock() += 1;
            let mut left = left.lock();
            let answer = if left.is_empty() { Some(201) } else { left.remove(0) };
            std::future::ready(match answer {
                None => Err(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)),
                Some(status) => {
                    let body = kube::client::Body::from(b"{}".to_vec());
                    Ok(http::Response::builder().status(status).body(body).unwrap())
                }
            })
        });
        let api = Api::with_client(kube::Client::new(service, "default"));
        let binder = Binder::new(api, Mailbox::new().0, HttpExtenders::default());
        let pod = pod("p").build();
        let bind = ApiCall::Bind { pod: pod.key(), uid: pod.uid.clone(), node: "n1".into() };
        let began = tokio::time::Instant::now();
        let result = binder.context(CancellationToken::new(), true).call(bind).await;
        let sent = *sent.lock();
        (result.map_err(|error| error.certainty), sent, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn bind_is_sent_again_only_after_a_refused_connection() {
        let none = || Ok(Value::Null);
        let ms = Duration::from_millis;
        assert_eq!(bound(&[Some(201)]).await, (none(), 1, ms(0)));
        assert_eq!(bound(&[None, None, Some(201)]).await, (none(), 3, ms(60)));
        assert_eq!(bound(&[None; 9]).await, (Err(Certainty::Refused), 4, ms(310)));
        for code in [500, 503, 504, 409] {
            let certainty = if code == 409 { Certainty::Conflict } else { Certainty::Unknown };
            assert_eq!(bound(&[Some(code)]).await, (Err(certainty), 1, ms(0)), "{code}");
            assert_eq!(bound(&[None, Some(code)]).await, (Err(certainty), 2, ms(10)));
        }
        assert_eq!(bound(&[Some(403)]).await, (Err(Certainty::Refused), 1, ms(0)));
    }

    #[tokio::test(start_paused = true)]
    async fn sleep_ends_when_the_owner_says_that_time_has_passed() {
        let (binder, messages) = binder();
        let mut asleep = binder.context(CancellationToken::new(), true).sleep(Duration::from_secs(1));
        assert!(timeout(Duration::from_mins(1), &mut asleep).await.is_err(), "by the tokio clock");
        let Ok(Message::WaitFor { timeout: longest, done, .. }) = messages.try_recv() else { panic!() };
        assert_eq!(longest, Duration::from_secs(1));
        done.send(Err(WaitError::TimedOut)).unwrap();
        timeout(Duration::ZERO, asleep).await.expect("it has ended");

        drop(messages);
        let began = tokio::time::Instant::now();
        binder.context(CancellationToken::new(), true).sleep(Duration::from_secs(1)).await;
        assert_eq!(began.elapsed(), Duration::from_secs(1), "without an owner");
    }

    #[tokio::test(start_paused = true)]
    async fn bind_waits_until_status_patches_have_settled() {
        let (binder, messages) = binder();
        let (done, settled) = oneshot::channel::<()>();
        let settled = settled.map(|_| ());
        binder.bind(Arc::new(pod("p").build()), "n1".into(), vec![], Arc::from([named(Binds)]), settled);
        assert!(next_input(&messages, SETTLE_TIMEOUT / 2).await.is_none());
        done.send(()).unwrap();
        assert!(next_input(&messages, Duration::from_secs(1)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_status_patch_delays_bind_only_up_to_the_timeout() {
        let (binder, messages) = binder();
        let settled = std::future::pending();
        binder.bind(Arc::new(pod("p").build()), "n1".into(), vec![], Arc::from([named(Binds)]), settled);
        assert!(next_input(&messages, SETTLE_TIMEOUT / 2).await.is_none());
        assert!(next_input(&messages, SETTLE_TIMEOUT).await.is_some());
    }
}
