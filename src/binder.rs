//! Carries out bindings: PreBind and Bind plugins on the runtime, and the read that settles an uncertain one.

use std::any::Any;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{FutureExt as _, StreamExt as _};
use http::Method;
use parking_lot::Mutex;
use serde_json::Value;
use supercargo_framework::binding::{
    ApiCall, ApiError, BindOutcome, BindingCalls, BindingContext, BoxFuture, Certainty, Predicate, WaitError,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{PodInfo, Status, Text, Uid};
use supercargo_scheduler::{ExtenderSpec, Input, NamedBinder, PodRead, PreBindWork};
use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::backlog::Backlog;
use crate::extender::HttpExtenders;
use crate::owner::{Mailbox, Message};
use supercargo_client::api::{Api, Call, JSON, Submission};
use supercargo_codec::payload::Binding;

/// So many bindings at most talk to the API server or an extender at once. How many the API server takes it says itself.
const BINDINGS_IN_FLIGHT: usize = 200;
/// A pod's status patch that takes longer than this no longer keeps the pod from being bound.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Carries out bindings.
#[derive(Clone)]
pub(crate) struct Binder {
    api: Api,
    mailbox: Mailbox,
    extenders: HttpExtenders,
    in_flight: Arc<Semaphore>,
    backlog: Backlog,
    /// How to stop PreBind of a pod.
    pre_binding: Arc<Mutex<HashMap<Uid, CancellationToken>>>,
}

impl Binder {
    pub(crate) fn new(api: Api, mailbox: Mailbox, extenders: HttpExtenders) -> Self {
        let in_flight = Arc::new(Semaphore::new(BINDINGS_IN_FLIGHT));
        let backlog = Backlog::new(mailbox.clone());
        Self { api, mailbox, extenders, in_flight, backlog, pre_binding: Arc::default() }
    }

    /// Whether more bindings may be begun: not while too many wait for the API server.
    pub(crate) fn has_room(&self) -> bool {
        self.backlog.has_room()
    }

    /// What has been begun and waits for the API server.
    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog.clone()
    }

    /// Runs the groups one after the other, the plugins of a group side by side, until one fails.
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

    /// Makes PreBind of a pod give up.
    pub(crate) fn cancel_pre_bind(&self, uid: &Uid) {
        if let Some(token) = self.pre_binding.lock().get(uid) {
            token.cancel();
        }
    }

    /// Asks the extenders and then the plugins, in order, until one does not skip, once the pod's status patches have `settled`: one of an earlier
    /// attempt must not call a bound pod unschedulable. (PreBind does not wait: the patch that names the node the pod is
    /// expected on is sent just before it and has to get through.)
    pub(crate) fn bind(
        &self,
        pod: Arc<PodInfo>,
        node: Arc<str>,
        extenders: Vec<ExtenderSpec>,
        binders: Arc<[NamedBinder]>,
        settled: impl Future<Output = ()> + Send + 'static,
    ) {
        let (binder, begun) = (self.clone(), self.backlog.enter());
        tokio::spawn(async move {
            let _begun = begun;
            if timeout(SETTLE_TIMEOUT, settled).await.is_err() {
                tracing::warn!(pod = %pod.key(), "binding the pod while its status is still being patched");
            }
            // The semaphore is never closed, so there is always a permit to be had.
            let _permit = binder.in_flight.acquire().await;
            let cx = binder.context(CancellationToken::new());
            // Extenders are asked by other ways than the API server.
            let asked = match binder.api.may_send() {
                Ok(()) => ask_extenders(&binder.extenders, &extenders, &pod, &node).await,
                Err(error) => BindOutcome::Failed(error.error),
            };
            let (by, outcome) = match asked {
                BindOutcome::Skip => ask_binders(&cx, &pod, &node, &binders).await,
                outcome => (Text::EMPTY, outcome),
            };
            binder.mailbox.send(Input::Bound { pod: pod.uid.clone(), by, outcome });
        });
    }

    /// Asks the API server for the pod's node. Without a resourceVersion this is a quorum read.
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
                    tracing::warn!(%pod, error = %error.error, "cannot read the pod to settle its binding");
                    PodRead::Failed
                }
            };
            binder.mailbox.send(Input::PodRead { pod: uid, read });
        });
    }

    fn context(&self, cancelled: CancellationToken) -> BindingContext {
        let (api, mailbox, backlog) = (self.api.clone(), self.mailbox.clone(), self.backlog.clone());
        let calls = PluginCalls { api, mailbox, backlog, cancelled };
        BindingContext::new(Arc::new(calls))
    }
}

/// `/api/v1/namespaces/<ns>/pods/<name><suffix>`
pub(crate) fn pod_path(pod: &PodKey, suffix: &str) -> String {
    format!("/api/v1/namespaces/{}/pods/{}{suffix}", pod.namespace, pod.name)
}

/// The first failure, or success. What fails makes the others of its group give up, and the next groups do not run.
async fn run_groups(binder: &Binder, token: &CancellationToken, groups: Vec<Vec<PreBindWork>>) -> Status {
    for group in groups {
        let token = token.child_token();
        let run = |PreBindWork { name, plugin, work }| {
            let cx = binder.context(token.clone());
            async move {
                let status = contained("PreBind", &name, async { plugin.pre_bind(cx, work).await }).await;
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

/// The first extender's outcome that counts. One that must not be ignored has the last word, whatever it is.
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
                tracing::info!(%extender, %pod, error, "skipping the extender in bind: it is ignorable");
            }
            // Whatever it says, the pod may have been bound.
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
        let outcome = contained("Bind", name, bind).await.unwrap_or_else(|message| {
            // Nobody knows how far it had got.
            BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message })
        });
        if outcome != BindOutcome::Skip {
            return (name.clone(), outcome);
        }
    }
    (Text::EMPTY, BindOutcome::Skip)
}

/// Runs a plugin. A panic becomes an error that names it: the scheduler waits for an answer, whatever happens.
async fn contained<T>(point: &str, plugin: &str, run: impl Future<Output = T>) -> Result<T, String> {
    let result = AssertUnwindSafe(run).catch_unwind().await;
    result.map_err(|panic| format!("plugin {plugin:?} panicked in {point}: {}", text_of(&*panic)))
}

/// What a panic said.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// What plugins may do while they bind.
struct PluginCalls {
    api: Api,
    mailbox: Mailbox,
    backlog: Backlog,
    cancelled: CancellationToken,
}

impl BindingCalls for PluginCalls {
    fn call(&self, call: ApiCall) -> BoxFuture<Result<Value, ApiError>> {
        let (api, backlog) = (self.api.clone(), self.backlog.clone());
        Box::pin(async move {
            let result = match &call {
                ApiCall::Bind { pod, uid, node } => {
                    let path = pod_path(pod, "/binding");
                    let object = &Binding { pod, uid, node };
                    let bind = Submission { method: Method::POST, path: &path, object };
                    api.submit(bind).await.map(|()| Value::Null)
                }
                ApiCall::Request { method, path, content_type, body } => {
                    // What a plugin asks for before the binding waits like the binding itself.
                    let _begun = backlog.enter();
                    let method = Method::from_bytes(method.as_bytes()).unwrap_or(Method::GET);
                    api.call(Call { method, path, content_type, body }).await
                }
            };
            result.map_err(|error| error.error)
        })
    }

    fn wait_for(&self, predicate: Predicate, timeout: Duration) -> BoxFuture<Result<(), WaitError>> {
        let (told, answer) = oneshot::channel();
        self.mailbox.post(Message::WaitFor { predicate, timeout, told });
        let cancelled = self.cancelled.clone();
        Box::pin(async move {
            tokio::select! {
                () = cancelled.cancelled() => Err(WaitError::Cancelled),
                // The owner drops the sender only when it ends, and then everything does.
                outcome = answer => outcome.unwrap_or(Err(WaitError::Cancelled)),
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use supercargo_framework::plugin::{BindPlugin, PreBindPlugin, PreFlight};
    use supercargo_framework::testing::pod;
    use supercargo_framework::{Context, CycleState};

    use super::*;
    use supercargo_client::testing::answering;

    /// Panics when it is called, or later.
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

    /// Fails at once, or waits until it is told to give up.
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
    async fn what_fails_in_prebind_makes_its_group_give_up_and_ends_it() {
        let (binder, messages) = binder();
        let work = |name: &'static str, fails| PreBindWork {
            name: name.into(),
            plugin: Arc::new(Waits { fails }),
            work: Box::new(()),
        };
        let groups = vec![vec![work("A", false), work("B", true)], vec![work("C", false)]];
        binder.pre_bind(&Arc::new(pod("p").build()), groups);
        let Some(Input::PreBound { status, .. }) = told(&messages, Duration::from_secs(1)).await else {
            panic!("the scheduler is not told");
        };
        assert_eq!(status, Status::error("no").by("B"), "the first failure is the one that counts");
    }

    /// Leaves it to the next one.
    struct Skips;

    impl BindPlugin for Skips {
        fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
            Box::pin(std::future::ready(BindOutcome::Skip))
        }
    }

    /// Turns every pod down.
    struct Rejects;

    impl BindPlugin for Rejects {
        fn bind(&self, _: BindingContext, _: Arc<PodInfo>, _: Arc<str>) -> BoxFuture<BindOutcome> {
            Box::pin(std::future::ready(BindOutcome::Rejected("no".to_owned())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_bind_plugin_that_does_not_skip_is_named() {
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
            let Some(Input::Bound { by, outcome, .. }) = told(&messages, Duration::from_secs(1)).await else {
                panic!("the scheduler is not told");
            };
            assert_eq!((&*by, outcome), (expected, expected_outcome));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_extender_that_must_not_be_ignored_has_the_last_word_on_a_binding() {
        for (ignorable, expected) in [(true, "Fake"), (false, "")] {
            let (binder, messages) = binder();
            // It is not configured, so that it fails.
            let extender = ExtenderSpec { name: "x".into(), ignorable, binds: true, ..Default::default() };
            let pod = Arc::new(pod("p").build());
            let binders = Arc::from([named(Binds)]);
            binder.bind(pod, "n1".into(), vec![extender], binders, std::future::ready(()));
            let Some(Input::Bound { by, outcome, .. }) = told(&messages, Duration::from_secs(1)).await else {
                panic!("the scheduler is not told");
            };
            assert_eq!(&*by, expected);
            let message = "extender x is not configured".to_owned();
            let failed = BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message });
            assert_eq!(outcome, if ignorable { BindOutcome::Bound } else { failed });
        }
    }

    /// Binds at once.
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

    /// What the scheduler is told, or nothing if that takes longer than the time.
    async fn told(messages: &Receiver<Message>, within: Duration) -> Option<Input> {
        let input = async {
            loop {
                if let Ok(Message::Input(input)) = messages.try_recv() {
                    return *input;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(within, input).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_pre_bind_is_an_error_of_the_plugin() {
        for panics in [Panics::Before, Panics::Inside] {
            let (binder, messages) = binder();
            let work = PreBindWork { name: "Fake".into(), plugin: Arc::new(panics), work: Box::new(()) };
            binder.pre_bind(&Arc::new(pod("p").build()), vec![vec![work]]);
            let Some(Input::PreBound { pod, status }) = told(&messages, Duration::from_secs(1)).await else {
                panic!("{panics:?}: the scheduler is not told");
            };
            assert_eq!(pod, "p".into());
            assert_eq!(status, Status::error("plugin \"Fake\" panicked in PreBind: oh no").by("Fake"));
            assert!(binder.pre_binding.lock().is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_in_bind_leaves_the_binding_unknown() {
        for panics in [Panics::Before, Panics::Inside] {
            let (binder, messages) = binder();
            let binders = Arc::from([named(panics), named(Binds)]);
            binder.bind(Arc::new(pod("p").build()), "n1".into(), vec![], binders, std::future::ready(()));
            let Some(Input::Bound { pod, by, outcome }) = told(&messages, Duration::from_secs(1)).await
            else {
                panic!("{panics:?}: the scheduler is not told");
            };
            assert_eq!(pod, "p".into());
            let message = "plugin \"Fake\" panicked in Bind: oh no".to_owned();
            assert_eq!(&*by, "Fake");
            assert_eq!(outcome, BindOutcome::Failed(ApiError { certainty: Certainty::Unknown, message }));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn binding_waits_until_status_patches_have_settled() {
        let (binder, messages) = binder();
        let (done, settled) = oneshot::channel::<()>();
        let settled = settled.map(|_| ());
        binder.bind(Arc::new(pod("p").build()), "n1".into(), vec![], Arc::from([named(Binds)]), settled);
        assert!(told(&messages, SETTLE_TIMEOUT / 2).await.is_none());
        done.send(()).unwrap();
        assert!(told(&messages, Duration::from_secs(1)).await.is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_that_hangs_holds_up_binding_only_for_a_while() {
        let (binder, messages) = binder();
        let settled = std::future::pending();
        binder.bind(Arc::new(pod("p").build()), "n1".into(), vec![], Arc::from([named(Binds)]), settled);
        assert!(told(&messages, SETTLE_TIMEOUT / 2).await.is_none());
        assert!(told(&messages, SETTLE_TIMEOUT).await.is_some());
    }
}
