//! Lists: versions, limits, pages.

use super::*;

/// Runs these lists, closing each watch immediately so that the next list is due, without
/// watch-list. Returns the requested lists and the queued changes.
async fn requests(
    answers: Vec<Result<Page<Pod>, ListWatchError>>,
    options: ReflectorOptions,
) -> (Vec<Request>, Vec<String>) {
    let count = answers.len();
    let answers = Mutex::new(answers.into_iter());
    let source = Scripted::new(
        move |_, _| answers.lock().next().unwrap_or_else(|| Err(refused(500, "no more answers"))),
        |_, _| Ok(Script::end_after(vec![])),
    );
    let rig = Rig::with(source.clone(), ReflectorOptions { watch_list: false, ..options });
    sleep(120.0).await;
    let lists = source.requests().into_iter().filter(|request| !request.watch).take(count);
    (lists.collect(), rig.stop().await)
}

/// Returns the requested lists in short.
async fn lists(
    answers: Vec<Result<Page<Pod>, ListWatchError>>,
    options: ReflectorOptions,
) -> (Vec<String>, Vec<String>) {
    let (lists, queued) = requests(answers, options).await;
    (lists.iter().map(|request| request.summary().replace("list ", "")).collect(), queued)
}

fn page_to(version: &str, pods: &[(&str, &str)], token: &str) -> Page<Pod> {
    Page { continue_token: Some(token.to_owned()), ..page(version, pods) }
}

fn too_large() -> ListWatchError {
    let mut status = refusal(504, "Timeout");
    status.message = "Timeout: Too large resource version: 20, current: 10".to_owned();
    ListWatchError::Status(status)
}

#[tokio::test(start_paused = true)]
async fn expired_or_too_large_version_is_dropped_once_without_wait() {
    let answers = vec![
        Ok(page("10", &[])),
        Err(refused(410, "Expired")),
        Ok(page("20", &[])),
        Err(too_large()),
        Err(refused(500, "InternalError")),
        Ok(page("30", &[])),
        Ok(page("30", &[])),
    ];
    let (lists, _) = requests(answers, ReflectorOptions::default()).await;
    let expected =
        ["rv=0 limit=500", "rv=10", "rv= limit=500", "rv=20", "rv= limit=500", "rv= limit=500", "rv=30"]
            .map(|list| format!("list {list}"));
    assert_eq!(summaries(&lists), expected);
    let at_once: Vec<_> = lists.windows(2).map(|pair| pair[1].at == pair[0].at).collect();
    assert_eq!(at_once, [false, true, false, true, false, false], "no wait before the version is dropped");
}

/// Such as a version damaged in transit: requests with it would fail forever.
#[tokio::test(start_paused = true)]
async fn a_version_rejected_as_invalid_is_dropped() {
    let answers = vec![
        Err(refused(400, "BadRequest")),
        Ok(page("q0", &[])),
        Err(refused(400, "BadRequest")),
        Ok(page("20", &[])),
        Ok(page("20", &[])),
    ];
    let (requests, _) = lists(answers, ReflectorOptions::default()).await;
    // A rejected first list has another reason.
    assert_eq!(requests, ["rv=0 limit=500", "rv=0 limit=500", "rv=q0", "rv= limit=500", "rv=20"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_page_falls_back_to_a_whole_list() {
    let answers = vec![
        Ok(page_to("10", &[("a", "1")], "C1")),
        Ok(page_to("10", &[("b", "2")], "C2")),
        Ok(page("10", &[("c", "3")])),
        Ok(page_to("20", &[("a", "1")], "C3")),
        Err(refused(410, "Expired")),
        Ok(page("21", &[("d", "4")])),
    ];
    let (requests, deltas) =
        lists(answers, ReflectorOptions { page_size: Some(4), ..ReflectorOptions::default() }).await;
    let expected = [
        "rv=0 limit=4",
        "rv= limit=4 continue=C1",
        "rv= limit=4 continue=C2",
        "rv=10 limit=4",
        "rv= limit=4 continue=C3",
        "rv=10",
    ];
    assert_eq!(requests, expected);
    assert_eq!(deltas, ["=10[a@1 b@2 c@3]", "=21[d@4]"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_watch_cache_is_always_asked_for_pages() {
    let answers =
        vec![Ok(page_to("10", &[], "C")), Ok(page("10", &[])), Ok(page("11", &[])), Ok(page("12", &[]))];
    let (requests, _) = lists(answers, ReflectorOptions::default()).await;
    assert_eq!(
        requests,
        ["rv=0 limit=500", "rv= limit=500 continue=C", "rv=10 limit=500", "rv=11 limit=500"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_list_in_pages_has_the_version_of_its_first_page() {
    let answers = vec![
        Ok(page_to("10", &[("a", "1")], "C")),
        Ok(page("13", &[("b", "12")])),
        Ok(page_to("14", &[], "C")),
        Err(refused(410, "Expired")),
        Ok(page("15", &[("a", "1")])),
        Ok(page("16", &[])),
    ];
    let (requests, deltas) = lists(answers, ReflectorOptions::default()).await;
    let expected = [
        "rv=0 limit=500",
        "rv= limit=500 continue=C",
        "rv=10 limit=500",
        "rv= limit=500 continue=C",
        "rv=10",
        "rv=15 limit=500",
    ];
    assert_eq!(requests, expected);
    assert_eq!(deltas, ["=10[a@1 b@12]", "=15[a@1]", "=16[]"]);
}

#[tokio::test(start_paused = true)]
async fn pages_of_the_most_recent_state_do_not_imply_no_cache() {
    let answers = vec![
        Ok(page("10", &[])),
        Err(refused(410, "Expired")),
        Ok(page_to("20", &[], "C")),
        Ok(page("20", &[])),
        Ok(page("30", &[])),
    ];
    let (requests, _) = lists(answers, ReflectorOptions::default()).await;
    assert_eq!(requests, ["rv=0 limit=500", "rv=10", "rv= limit=500", "rv= limit=500 continue=C", "rv=20"]);
}

#[tokio::test(start_paused = true)]
async fn any_other_failure_of_a_list_keeps_the_version() {
    let answers = vec![Ok(page("10", &[])), Err(refused(500, "InternalError")), Ok(page("10", &[]))];
    let (requests, _) = lists(answers, ReflectorOptions::default()).await;
    assert_eq!(requests, ["rv=0 limit=500", "rv=10", "rv=10"]);
}

#[tokio::test(start_paused = true)]
async fn expired_pages_of_a_first_list_still_reveal_a_missing_cache() {
    let answers = vec![
        Ok(page_to("10", &[], "C")),
        Err(refused(410, "Expired")),
        Ok(page("11", &[])),
        Ok(page("12", &[])),
    ];
    let (requests, _) = lists(answers, ReflectorOptions::default()).await;
    assert_eq!(requests, ["rv=0 limit=500", "rv= limit=500 continue=C", "rv=0", "rv=11 limit=500"]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_a_list_extends_the_backoff() {
    let source = Scripted::new(
        |n, _| match n {
            0 | 1 => {
                let mut status = refusal(429, "TooManyRequests");
                // The second time for longer than a server could mean.
                let details = serde_json::json!({"retryAfterSeconds": if n == 0 { 20 } else { u32::MAX }});
                status.details = Some(serde_json::from_value(details).unwrap());
                Err(ListWatchError::Status(status))
            }
            _ => Ok(page("10", &[])),
        },
        no_watch_list(|_, _| Ok(Script::stay_after(vec![]))),
    );
    let rig =
        Rig::with(source.clone(), ReflectorOptions { watch_list: false, ..ReflectorOptions::default() });
    sleep(120.0).await;
    let requests = source.requests();
    let at: Vec<_> = requests.iter().map(|request| request.at.as_secs()).collect();
    assert_eq!(at, [0, 20, 80, 80], "{:?}", summaries(&requests));
    assert_eq!(rig.errors.lock().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_page_that_has_not_expired_fails_the_list() {
    let answers = vec![
        Ok(page_to("10", &[("a", "1")], "C")),
        Err(refused(500, "InternalError")),
        Ok(page("11", &[("b", "2")])),
    ];
    let (requests, deltas) = lists(answers, ReflectorOptions::default()).await;
    assert_eq!(requests, ["rv=0 limit=500", "rv= limit=500 continue=C", "rv=0 limit=500"]);
    assert_eq!(deltas, ["=11[b@2]"]);
}

#[tokio::test(start_paused = true)]
async fn a_page_is_transformed_before_the_next_is_requested() {
    let (transform, calls) = counting();
    let transformed = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&transformed);
    let list = move |n, _: &_| {
        seen.lock().push(calls.load(Ordering::Relaxed));
        match n {
            0 => Ok(page_to("10", &[("a", "1"), ("b", "2")], "C1")),
            1 => Ok(page_to("10", &[("c", "3")], "C2")),
            _ => Ok(page("10", &[])),
        }
    };
    let source = Scripted::new(list, |_, _| Ok(Script::stay_after(vec![])));
    let options = ReflectorOptions { watch_list: false, ..ReflectorOptions::default() };
    let rig = Rig::transforming(source, options, Some(transform));
    settle().await;
    assert_eq!(rig.stop().await, ["=10[a@1 b@2 c@3]"]);
    assert_eq!(*transformed.lock(), [0, 2, 3]);
}
