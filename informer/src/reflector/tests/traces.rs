//! The reference traces of client-go, by the names they go by there.

use super::*;

#[tokio::test(start_paused = true)]
async fn g1_a_watch_that_closes_at_once_is_a_relist_after_a_growing_wait() {
    let source = Scripted::new(
        |_, _| Ok(page("10", &[("a", "1")])),
        no_watch_list(|_, _| Ok(Script::end_after(vec![]))),
    );
    let rig = Rig::start(source.clone());
    sleep(29.0).await;
    let requests = source.requests();
    assert!([4, 5].contains(&(requests.len() / 3)), "{requests:?}");
    let first = ["watch-list rv=", "list rv=0 limit=500", "watch rv=10"];
    let later = ["watch-list rv=10", "list rv=10", "watch rv=10"];
    assert_eq!(summaries(&requests[..3]), first);
    requests[3..].chunks(3).for_each(|cycle| assert_eq!(summaries(cycle), later));
    assert_backoff(&requests, 3);
    for request in requests.iter().filter(|request| request.watch) {
        let seconds = request.options.timeout.unwrap().as_secs();
        assert!((300..600).contains(&seconds) && request.options.allow_bookmarks);
    }
    assert_eq!(requests[0].options.version_match, Some(VersionMatch::NotOlderThan));
    assert!(rig.errors.lock().is_empty());
    assert_eq!(rig.status.version(), "10");
}

#[tokio::test(start_paused = true)]
async fn g3_a_410_at_the_start_of_a_watch_is_an_error_and_a_relist() {
    let source = Scripted::new(
        |_, _| Ok(page("10", &[("a", "1")])),
        no_watch_list(|_, _| Err(refused(410, "Expired"))),
    );
    let rig = Rig::start(source.clone());
    sleep(29.0).await;
    let requests = source.requests();
    assert_eq!(requests.len() / 3, rig.errors.lock().len());
    let later = ["watch-list rv=10", "list rv=10", "watch rv=10"];
    requests[3..].chunks(3).for_each(|cycle| assert_eq!(summaries(cycle), later));
    assert_backoff(&requests, 3);
}

#[tokio::test(start_paused = true)]
async fn g5_a_410_within_a_watch_is_a_relist_from_the_last_version_and_no_error() {
    let watch = |n: usize, _: &_| {
        let expired = WatchEvent::Error(refusal(410, "Expired"));
        Ok(if n == 1 { Script::end_after(vec![expired]) } else { Script::stay_after(vec![]) })
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[("a", "1")])), no_watch_list(watch));
    let rig = Rig::start(source.clone());
    sleep(30.0).await;
    let requests = source.requests();
    let expected = [
        "watch-list rv=",
        "list rv=0 limit=500",
        "watch rv=10",
        "watch-list rv=10",
        "list rv=10",
        "watch rv=10",
    ];
    assert_eq!(summaries(&requests), expected);
    assert_backoff(&requests, 3);
    assert!(rig.errors.lock().is_empty());
    assert_eq!(rig.stop().await, ["=10[a@1]", "=10[a@1]"]);
}

#[tokio::test(start_paused = true)]
async fn g8_lists_that_always_fail_are_tried_ever_more_rarely() {
    let source = Scripted::new(
        |_, _| Err(refused(500, "InternalError")),
        no_watch_list(|_, _| Ok(Script::stay_after(vec![]))),
    );
    let rig = Rig::start(source.clone());
    sleep(1800.0).await;
    let requests = source.requests();
    requests
        .chunks(2)
        .for_each(|cycle| assert_eq!(summaries(cycle), ["watch-list rv=", "list rv=0 limit=500"]));
    assert_backoff(&requests, 2);
    let errors = rig.errors.lock().clone();
    assert_eq!(errors.len(), requests.len() / 2);
    assert_eq!(
        errors[0],
        "v1/pods: failed to list: the server refused with 500 InternalError: test refusal 500"
    );
    assert!(rig.status.last_error().is_some_and(|error| error.contains("500")));
    assert!(rig.stop().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn g9_a_watch_that_said_something_is_taken_up_again_at_once() {
    let watch = |n: usize, _: &_| {
        Ok(if n <= 3 {
            Script::end_after(vec![bookmark(&(101 + n).to_string(), false)])
        } else {
            Script::stay_after(vec![])
        })
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[("a", "1")])), no_watch_list(watch));
    let rig = Rig::start(source.clone());
    sleep(30.0).await;
    let expected = [
        "watch-list rv=",
        "list rv=0 limit=500",
        "watch rv=10",
        "watch rv=102",
        "watch rv=103",
        "watch rv=104",
    ];
    assert_eq!(source.summaries(), expected);
    assert!(source.requests().iter().all(|request| request.at < Duration::from_millis(10)));
    assert_eq!(rig.status.version(), "104");
    assert_eq!(rig.stop().await, ["=10[a@1]", "@102", "@103", "@104"]);
}

#[tokio::test(start_paused = true)]
async fn g10_a_watch_list_that_works_is_the_only_request() {
    let source = Scripted::new(
        |_, _| unreachable!("no list is needed"),
        |_, _| Ok(Script::stay_after(vec![WatchEvent::Added(pod("a", "1")), bookmark("12", true)])),
    );
    let rig = Rig::start(source.clone());
    sleep(30.0).await;
    assert_eq!(source.summaries(), ["watch-list rv="]);
    assert_eq!(rig.status.version(), "12");
    assert_eq!(rig.stop().await, ["=12[a@1]"]);
}
