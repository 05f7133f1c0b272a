//! Watches with initial events instead of a list.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_default_watch_list_without_end_is_replaced_by_a_list() {
    let source = FakeSource::<Typed<Pod>>::typed().with_watch_list(WatchListSupport::NoEnd);
    source.apply(pod("a", ""));
    let rig = Rig::start(source.clone());
    sleep(59.0).await;
    assert_eq!(source.summaries(), ["watch-list rv="]);
    sleep(2.0).await;
    assert_eq!(source.summaries(), ["watch-list rv=", "list rv=0 limit=500", "watch rv=2"]);
    assert_eq!(source.watchers(), 1, "the first watch is released");
    source.apply(pod("b", ""));
    settle().await;
    assert_eq!(rig.stop().await, ["=2[a@2]", "+b@3"]);
}

#[tokio::test(start_paused = true)]
async fn initial_updates_and_deletions_are_applied() {
    let events = || {
        vec![
            WatchEvent::Added(pod("b", "2")),
            WatchEvent::Added(pod("a", "1")),
            bookmark("5", false),
            WatchEvent::Added(pod("c", "3")),
            WatchEvent::Modified(pod("a", "6")),
            WatchEvent::Deleted(pod("b", "7")),
            bookmark("8", true),
            WatchEvent::Modified(pod("c", "9")),
        ]
    };
    let source =
        Scripted::new(|_, _| unreachable!("no list is needed"), move |_, _| Ok(Script::stay_after(events())));
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(rig.status.version(), "9");
    assert_eq!(rig.stop().await, ["=8[a@6 c@3]", "~c@9"]);
}

#[tokio::test(start_paused = true)]
async fn too_many_requests_delays_a_watch_list_without_list() {
    let source = Scripted::new(
        |_, _| unreachable!("no list is needed"),
        |n, _| match n {
            0 => Err(refused(429, "TooManyRequests")),
            1 => Ok(Script::end_after(vec![WatchEvent::Error(refusal(429, "TooManyRequests"))])),
            _ => Ok(Script::stay_after(vec![bookmark("5", true)])),
        },
    );
    let rig = Rig::start(source.clone());
    sleep(10.0).await;
    assert_eq!(source.summaries(), ["watch-list rv="; 3]);
    assert_backoff(&source.requests(), 1);
    assert!(rig.errors.lock().is_empty());
    assert_eq!(rig.stop().await, ["=5[]"]);
}

#[tokio::test(start_paused = true)]
async fn a_broken_watch_list_starts_over_from_nothing() {
    let source = Scripted::new(
        |_, _| unreachable!("no list is needed"),
        |n, _| {
            Ok(match n {
                0 => Script::end_after(vec![WatchEvent::Added(pod("a", "1"))]),
                _ => Script::stay_after(vec![WatchEvent::Added(pod("b", "2")), bookmark("5", true)]),
            })
        },
    );
    let rig = Rig::start(source.clone());
    sleep(10.0).await;
    assert_eq!(source.summaries(), ["watch-list rv="; 2]);
    assert_eq!(rig.stop().await, ["=5[b@2]"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_list_requests_the_most_recent_state() {
    let source = Scripted::new(
        |_, _| unreachable!("no list is needed"),
        |n, options| {
            Ok(match n {
                0 => Script::end_after(vec![bookmark("5", true)]),
                1 => {
                    assert_eq!(options.resource_version, "5");
                    return Err(refused(410, "Expired"));
                }
                _ => Script::stay_after(vec![bookmark("9", true)]),
            })
        },
    );
    let rig = Rig::start(source.clone());
    sleep(10.0).await;
    assert_eq!(source.summaries(), ["watch-list rv=", "watch-list rv=5", "watch-list rv="]);
    assert_eq!(rig.stop().await, ["=5[]", "=9[]"]);
}

#[tokio::test(start_paused = true)]
async fn always_expired_responses_do_not_loop() {
    let source = Scripted::new(|_, _| Err(refused(410, "Expired")), |_, _| Err(refused(410, "Expired")));
    let rig = Rig::start(source.clone());
    sleep(30.0).await;
    assert!(source.requests().len() < 30, "{:?}", source.summaries());
    assert!(rig.errors.lock().len() >= 4);
}

#[tokio::test(start_paused = true)]
async fn a_synced_watch_list_continues_as_a_plain_watch() {
    let source = FakeSource::<Typed<Pod>>::typed();
    source.apply(pod("a", ""));
    let rig = Rig::start(source.clone());
    settle().await;
    source.apply(pod("b", ""));
    sleep(2.0).await;
    source.close_watches();
    settle().await;
    source.delete(pod("a", ""));
    settle().await;
    assert_eq!(source.summaries(), ["watch-list rv=", "watch rv=3"]);
    assert_eq!(rig.stop().await, ["=2[a@2]", "+b@3", "-a@4"]);
}

#[tokio::test(start_paused = true)]
async fn without_watch_list_a_list_precedes_the_watch() {
    let source = FakeSource::<Typed<Pod>>::typed();
    let options = ReflectorOptions { watch_list: false, ..ReflectorOptions::default() };
    let _rig = Rig::with(source.clone(), options);
    settle().await;
    assert_eq!(source.summaries(), ["list rv=0 limit=500", "watch rv=1"]);
}

#[tokio::test(start_paused = true)]
async fn any_other_watch_list_failure_falls_back_to_a_list() {
    type Failure = fn() -> Result<Script<Pod>, ListWatchError>;
    let failures: [Failure; 7] = [
        || Err(refused(422, "Invalid")),
        || Err(refused(403, "Forbidden")),
        || Err(refused(500, "InternalError")),
        || Err(ListWatchError::ContentType("text/html".to_owned())),
        || {
            Err(ListWatchError::Transport(Box::new(std::io::Error::from(
                std::io::ErrorKind::ConnectionReset,
            ))))
        },
        || Ok(Script::end_after(vec![])),
        || {
            let error = WatchEvent::Error(refusal(500, "InternalError"));
            Ok(Script::stay_after(vec![WatchEvent::Added(pod("gone", "1")), error]))
        },
    ];
    for failure in failures {
        let source = Scripted::new(
            |_, _| Ok(page("10", &[("a", "1")])),
            move |_, options| {
                if options.send_initial_events { failure() } else { Ok(Script::stay_after(vec![])) }
            },
        );
        let rig = Rig::start(source.clone());
        settle().await;
        assert_eq!(source.summaries(), ["watch-list rv=", "list rv=0 limit=500", "watch rv=10"]);
        assert!(rig.errors.lock().is_empty());
        assert_eq!(rig.stop().await, ["=10[a@1]"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_synced_watch_list_that_expires_ends_the_cycle() {
    let synced = || vec![bookmark("2", true), WatchEvent::Added(pod("a", "4"))];
    for within_the_stream in [true, false] {
        let watch = move |n: usize, _: &_| match (n, within_the_stream) {
            (0, true) => {
                let expired = WatchEvent::Error(refusal(410, "Expired"));
                Ok(Script::stay_after(synced()).then(Duration::from_millis(10), expired))
            }
            (0, false) => Ok(Script::end_after(synced())),
            (1, false) => Err(refused(410, "Expired")),
            _ => Ok(Script::stay_after(vec![])),
        };
        let source = Scripted::new(|_, _| unreachable!("no list is needed"), watch);
        let rig = Rig::start(source.clone());
        sleep(30.0).await;
        let mut requests = source.summaries();
        if !within_the_stream {
            assert_eq!(requests.remove(1), "watch rv=4");
        }
        assert_eq!(requests, ["watch-list rv=", "watch-list rv=4"]);
        assert!(source.requests().last().unwrap().at > Duration::from_millis(800), "after a wait");
        // Only a watch that could not be opened is an error.
        assert_eq!(rig.errors.lock().len(), usize::from(!within_the_stream));
        assert_eq!(rig.stop().await, ["=2[]", "+a@4"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_that_always_breaks_off_does_not_loop() {
    let source = Scripted::new(
        |_, _| unreachable!("no list is needed"),
        |_, _| Ok(Script::end_after(vec![WatchEvent::Added(pod("a", "1"))])),
    );
    let _rig = Rig::start(source.clone());
    sleep(30.0).await;
    assert!(source.requests().len() <= 6, "{:?}", source.summaries());
    assert_backoff(&source.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_watch_list_broken_after_a_second_is_retried_at_once() {
    let watch = |n, _: &_| {
        let script = Script::end_after(vec![WatchEvent::Added(pod("a", "1"))]);
        Ok(match n {
            0 => script.then(Duration::from_secs(1), bookmark("2", false)),
            1 => script.then(Duration::from_secs(20), bookmark("2", false)),
            _ => Script::stay_after(vec![bookmark("5", true)]),
        })
    };
    let source = Scripted::new(|_, _| unreachable!("no list is needed"), watch);
    let _rig = Rig::start(source.clone());
    sleep(60.0).await;
    let at: Vec<_> = source.requests().iter().map(|request| request.at.as_secs_f64()).collect();
    assert_eq!(at, [0.0, 1.0, 21.0]);
}

#[tokio::test(start_paused = true)]
async fn only_a_watch_list_sets_version_match() {
    let source = FakeSource::<Typed<Pod>>::typed();
    let _rig = Rig::start(source.clone());
    sleep(2.0).await;
    source.close_watches();
    settle().await;
    let meant: Vec<_> = source.requests().iter().map(|request| request.options.version_match).collect();
    assert_eq!(meant, [Some(VersionMatch::NotOlderThan), None]);
}

#[tokio::test(start_paused = true)]
async fn initial_events_are_transformed_as_they_arrive() {
    let (transform, calls) = counting();
    let watch = |_, _: &_| {
        let script = Script::stay_after(vec![WatchEvent::Added(pod("a", "1"))]);
        Ok(script.then(Duration::from_secs(10), bookmark("5", true)))
    };
    let source = Scripted::new(|_, _| unreachable!("no list is needed"), watch);
    let rig = Rig::transforming(source, ReflectorOptions::default(), Some(transform));
    sleep(5.0).await;
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    sleep(6.0).await;
    assert_eq!((calls.load(Ordering::Relaxed), rig.stop().await), (1, vec!["=5[a@1]".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn initial_events_time_out_when_they_pause_not_when_they_are_many() {
    // Five objects at intervals of 50 s, then a pause.
    let source = |pause| {
        let watch = move |_, options: &ListOptions| {
            let slow = (0..5).fold(Script::stay_after(vec![]), |script, n| {
                script.then(Duration::from_secs(50), WatchEvent::Added(pod(&format!("p{n}"), "1")))
            });
            let slow = slow.then(Duration::from_secs(pause), bookmark("5", true));
            Ok(if options.send_initial_events { slow } else { Script::stay_after(vec![]) })
        };
        Scripted::new(|_, _| Ok(page("9", &[])), watch)
    };
    for (pause, requests, content) in [
        (50, &["watch-list rv="][..], "=5[p0@1 p1@1 p2@1 p3@1 p4@1]"),
        (70, &["watch-list rv=", "list rv=0 limit=500", "watch rv=9"], "=9[]"),
    ] {
        let source = source(pause);
        let rig = Rig::start(source.clone());
        sleep(315.0).await;
        assert_eq!(source.summaries(), requests);
        assert_eq!(rig.stop().await, [content]);
    }
}

/// A server that ignores the option sends the events of a busy resource forever.
#[tokio::test(start_paused = true)]
async fn initial_events_that_outlast_their_watch_are_replaced_by_a_list() {
    let watch = |_, options: &ListOptions| {
        let busy = (0..100).fold(Script::stay_after(vec![]), |script, n| {
            script.then(Duration::from_secs(30), WatchEvent::Modified(pod("a", &n.to_string())))
        });
        Ok(if options.send_initial_events { busy } else { Script::stay_after(vec![]) })
    };
    let source = Scripted::new(|_, _| Ok(page("100", &[("a", "99")])), watch);
    let rig = Rig::start(source.clone());
    // A watch lasts for five to ten minutes.
    sleep(620.0).await;
    assert_eq!(source.summaries()[..3], ["watch-list rv=", "list rv=0 limit=500", "watch rv=100"]);
    assert_eq!(rig.stop().await, ["=100[a@99]"]);
}
