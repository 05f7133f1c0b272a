//! Tests of the binder.

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

#[tokio::test(start_paused = true)]
async fn an_object_is_read_after_a_write_of_unknown_effect() {
    let path = "/apis/resource.k8s.io/v1/namespaces/ns/resourceclaims/c";
    for (answers, reads) in [(vec![500, 503], 2), (vec![409], 0), (vec![504, 403], 1)] {
        let (mailbox, messages) = Mailbox::new();
        let (api, requests) = answering(answers);
        let binder = Binder::new(api, mailbox, HttpExtenders::default());
        let call = ApiCall::request("PUT", format!("{path}/status"), JSON, json!({}));
        binder.write(resources::RESOURCE_CLAIM, call, None, Some("p".into()), true);
        let ended = next_input(&messages, Duration::from_secs(1)).await;
        assert!(matches!(ended, Some(Input::WriteEnded { retry: true, .. })), "{ended:?}");
        let sent: Vec<_> = requests.all().into_iter().map(|(method, path, _)| (method, path)).collect();
        let mut expected = vec![("PUT".to_owned(), format!("{path}/status"))];
        expected.resize(1 + reads, ("GET".to_owned(), path.to_owned()));
        assert_eq!(sent, expected);
    }
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
