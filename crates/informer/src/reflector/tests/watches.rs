//! Plain watches, and how they end.

use super::*;

#[tokio::test(start_paused = true)]
async fn too_many_requests_delays_the_watch_without_relist() {
    let watch = |n: usize, _: &_| match n {
        1 | 2 => Err(refused(429, "TooManyRequests")),
        3 => Ok(Script::end_after(vec![WatchEvent::Error(refusal(429, "TooManyRequests"))])),
        _ => Ok(Script::stay_after(vec![])),
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), no_watch_list(watch));
    let rig = Rig::start(source.clone());
    sleep(30.0).await;
    let expected =
        ["watch-list rv=", "list rv=0 limit=500", "watch rv=10", "watch rv=10", "watch rv=10", "watch rv=10"];
    assert_eq!(source.summaries(), expected);
    assert_backoff(&source.requests()[2..], 1);
    assert!(rig.errors.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_watch_extends_the_backoff() {
    let watch = |n: usize, _: &_| match n {
        1 => {
            let mut status = refusal(429, "TooManyRequests");
            let details = serde_json::json!({"retryAfterSeconds": 20});
            status.details = Some(serde_json::from_value(details).unwrap());
            Err(ListWatchError::Status(status))
        }
        _ => Ok(Script::stay_after(vec![])),
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), no_watch_list(watch));
    let _rig = Rig::start(source.clone());
    sleep(30.0).await;
    assert_eq!(source.requests()[3].at.as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn twenty_seconds_of_refused_connections_cause_no_list() {
    let source = FakeSource::<Typed<Pod>>::typed();
    source.apply(pod("a", ""));
    let rig = Rig::start(source.clone());
    sleep(5.0).await;
    for _ in 0..64 {
        source.fail_watch(connection_refused());
    }
    source.close_watches();
    sleep(20.0).await;
    assert!(rig.status.last_error().is_some());
    let attempts = source.requests().len();
    assert!((4..8).contains(&attempts), "{:?}", source.summaries());
    source.serve_watches();
    source.apply(pod("b", ""));
    sleep(30.0).await;
    let requests = source.summaries();
    assert_eq!(requests[0], "watch-list rv=");
    assert!(requests[1..].iter().all(|request| request == "watch rv=2"), "{requests:?}");
    assert!(rig.errors.lock().is_empty() && rig.status.last_error().is_none());
    assert_eq!(rig.stop().await, ["=2[a@2]", "+b@3"]);
}

#[tokio::test(start_paused = true)]
async fn compaction_during_an_outage_costs_exactly_one_relist() {
    let source = FakeSource::<Typed<Pod>>::typed().with_watch_list(WatchListSupport::Refused);
    source.apply(pod("a", ""));
    source.apply(pod("b", ""));
    let rig = Rig::start(source.clone());
    sleep(5.0).await;
    source.delete_silently(pod("a", ""));
    source.reset_watch();
    sleep(60.0).await;
    let expected = [
        "watch-list rv=",
        "list rv=0 limit=500",
        "watch rv=3",
        "watch rv=3",
        "watch-list rv=3",
        "list rv=3",
        "watch rv=5",
    ];
    assert_eq!(source.summaries(), expected);
    assert_eq!(rig.stop().await, ["=3[a@2 b@3]", "=5[b@3]"]);
}

#[tokio::test(start_paused = true)]
async fn a_returning_server_with_expired_history_is_listed_soon() {
    let watch = |n: usize, _: &_| match n {
        1 => Ok(Script::end_after(vec![WatchEvent::Bookmark {
            resource_version: "11".into(),
            initial_events_end: false,
        }])),
        // By the sixth refusal, the waits have grown to half a minute.
        2..=7 => Err(connection_refused()),
        8 => Ok(Script::end_after(vec![WatchEvent::Error(refusal(410, "Expired"))])),
        _ => Ok(Script::stay_after(vec![])),
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), no_watch_list(watch));
    let _rig = Rig::start(source.clone());
    sleep(300.0).await;
    let requests = source.requests();
    let back = requests.iter().rposition(|request| request.summary() == "list rv=11").unwrap();
    let relisted = requests[back].at.saturating_sub(requests[back - 2].at);
    assert!(relisted < Duration::from_secs(2), "{relisted:?}: {:?}", source.summaries());
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_ends_shortly_after_its_timeout() {
    let source = FakeSource::<Typed<Pod>>::typed();
    let _rig = Rig::start(source.clone());
    settle().await;
    let timeout = source.requests()[0].options.timeout.unwrap();
    tokio::time::sleep(timeout + Duration::from_millis(4990)).await;
    assert_eq!(source.requests().len(), 1);
    sleep(0.1).await;
    assert_eq!(source.summaries(), ["watch-list rv=", "watch rv=1"]);
}

#[tokio::test(start_paused = true)]
async fn an_internal_error_relists_without_a_retry_window() {
    let script = || {
        no_watch_list(|_, _| Ok(Script::end_after(vec![WatchEvent::Error(refusal(500, "InternalError"))])))
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), script());
    let _rig = Rig::start(source.clone());
    settle().await;
    assert_eq!(source.requests().len(), 3);
    let watch = |n: usize, _: &_| {
        let error = WatchEvent::Error(refusal(500, "InternalError"));
        Ok(if n < 5 { Script::end_after(vec![error]) } else { Script::stay_after(vec![]) })
    };
    let patient = Scripted::new(|_, _| Ok(page("10", &[])), no_watch_list(watch));
    let options =
        ReflectorOptions { internal_error_retry: Duration::from_secs(30), ..ReflectorOptions::default() };
    let _rig = Rig::with(patient.clone(), options);
    settle().await;
    assert_eq!(
        patient.summaries()[1..],
        ["list rv=0 limit=500", "watch rv=10", "watch rv=10", "watch rv=10", "watch rv=10", "watch rv=10"]
    );
}

#[tokio::test(start_paused = true)]
async fn unordered_first_events_do_not_advance_the_version() {
    let watch = |_, options: &ListOptions| {
        assert_eq!(options.resource_version, "");
        Ok(Script::stay_after(vec![WatchEvent::Added(pod("b", "9")), WatchEvent::Added(pod("a", "3"))]))
    };
    let source = Scripted::new(|_, _| Ok(page("", &[])), no_watch_list(watch));
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(rig.status.version(), "");
    assert_eq!(rig.stop().await, ["=[]", "+b@9", "+a@3"]);
}

#[tokio::test(start_paused = true)]
async fn after_unordered_events_the_version_advances_again() {
    let modified = || WatchEvent::Modified(pod("a", "12"));
    let deleted = || WatchEvent::Deleted(pod("a", "12"));
    for (event, version) in [(modified(), "13"), (deleted(), "13"), (bookmark("12", false), "13")] {
        let event = Mutex::new(Some(event));
        let watch = move |_, _: &_| {
            let first = WatchEvent::Added(pod("a", "3"));
            let event = event.lock().take().expect("one watch is enough");
            Ok(Script::stay_after(vec![first, event, WatchEvent::Added(pod("b", "13"))]))
        };
        let source = Scripted::new(|_, _| Ok(page("0", &[])), no_watch_list(watch));
        let rig = Rig::start(source);
        settle().await;
        assert_eq!(rig.status.version(), version);
    }
}

#[tokio::test(start_paused = true)]
async fn the_sync_version_is_the_last_events() {
    let events = || {
        let events = [
            WatchEvent::Modified(pod("a", "20")),
            // Even from a late object.
            WatchEvent::Added(pod("b", "10")),
            bookmark("30", false),
            WatchEvent::Deleted(pod("a", "40")),
            // A watch cannot resume from an empty version.
            bookmark("", false),
        ];
        let second = Duration::from_secs(1);
        events.into_iter().fold(Script::stay_after(vec![]), |script, event| script.then(second, event))
    };
    let source =
        Scripted::new(|_, _| Ok(page("10", &[("a", "10")])), no_watch_list(move |_, _| Ok(events())));
    let rig = Rig::start(source);
    sleep(0.5).await;
    let mut versions = Vec::new();
    for _ in 0..6 {
        versions.push(rig.status.version());
        sleep(1.0).await;
    }
    assert_eq!(versions, ["10", "20", "10", "30", "40", "40"]);
    assert_eq!(rig.stop().await, ["=10[a@10]", "~a@20", "+b@10", "@30", "-a@40", "@"]);
}

#[tokio::test(start_paused = true)]
async fn watch_timeouts_are_random_within_the_configured_range() {
    for (shortest, range) in [(1, 300..600), (300, 300..600), (1800, 1800..3600)] {
        let source = Scripted::new(|_, _| Ok(page("10", &[])), |_, _| Ok(Script::end_after(vec![])));
        let options = ReflectorOptions {
            min_watch_timeout: Duration::from_secs(shortest),
            ..ReflectorOptions::default()
        };
        let rig = Rig::with(source.clone(), options);
        sleep(600.0).await;
        rig.stop().await;
        let timeouts = source.requests().into_iter().filter_map(|request| request.options.timeout);
        assert!(timeouts.map(|timeout| timeout.as_secs()).all(|seconds| range.contains(&seconds)));
    }
}

#[tokio::test(start_paused = true)]
async fn lost_connections_cost_no_list_for_a_while() {
    let lost = || {
        let reset = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        Err(ListWatchError::Transport(Box::new(reset)))
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), no_watch_list(move |_, _| lost()));
    let rig = Rig::start(source.clone());
    sleep(20.0).await;
    let requests = source.summaries();
    assert!(
        requests.len() > 4 && requests[2..].iter().all(|request| request == "watch rv=10"),
        "{requests:?}"
    );
    assert!(rig.errors.lock().is_empty());
    sleep(300.0).await;
    assert!(source.summaries().contains(&"list rv=10".to_owned()));
    assert!(!rig.errors.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_second_of_undecodable_events_is_not_very_short() {
    let watch = |n, _: &_| {
        let item =
            Undecodable { key: None, resource_version: None, error: DecodeError::Invalid("broken".into()) };
        let unreadable = WatchEvent::Undecodable { deleted: false, item };
        Ok(if n == 0 {
            Script::end_after(vec![]).then(Duration::from_secs(1), unreadable)
        } else {
            Script::stay_after(vec![])
        })
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), watch);
    let options = ReflectorOptions { watch_list: false, ..ReflectorOptions::default() };
    let _rig = Rig::with(source.clone(), options);
    sleep(60.0).await;
    assert_eq!(source.summaries(), ["list rv=0 limit=500", "watch rv=10", "watch rv=10"]);
}
