//! The waits of the reflector, and what resets them.

use super::*;

/// The waits of a watch whose connection is refused this often, and the number of lists.
async fn outage(refusals: usize, backoff: BackoffPolicy) -> (Vec<Duration>, usize) {
    let source = Scripted::new(
        |_, _| Ok(page("10", &[])),
        move |n, _| if n < refusals { Err(connection_refused()) } else { Ok(Script::stay_after(vec![])) },
    );
    let options =
        ReflectorOptions { watch_list: false, backoff, seed: Some(1), ..ReflectorOptions::default() };
    let rig = Rig::with(source.clone(), options);
    sleep(60.0).await;
    assert!(rig.errors.lock().is_empty());
    let (watches, lists): (Vec<_>, Vec<_>) = source.requests().into_iter().partition(|request| request.watch);
    assert_eq!(watches.len(), refusals + 1);
    (watches.windows(2).map(|pair| pair[1].at.saturating_sub(pair[0].at)).collect(), lists.len())
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[tokio::test(start_paused = true)]
async fn a_custom_backoff_policy_is_followed_exactly() {
    let policy =
        BackoffPolicy { initial: millis(10), max: millis(100), jitter: 0.0, ..BackoffPolicy::default() };
    let (waits, lists) = outage(6, policy).await;
    assert_eq!(waits, [10, 20, 40, 80, 100, 100].map(millis));
    assert_eq!(lists, 1);
}

#[tokio::test(start_paused = true)]
async fn refused_connections_back_off_and_cost_one_list() {
    let policy = BackoffPolicy { initial: millis(1), max: millis(50), ..BackoffPolicy::default() };
    // 1+2+4+8+16, and the same with 32 and 34 times 50: at least this, and less than twice this.
    // The clock rounds each wait up to a millisecond.
    for (refusals, least) in [(5, 31), (40, 1763)] {
        let (waits, lists) = outage(refusals, policy).await;
        let total: Duration = waits.iter().sum();
        assert!((millis(least)..millis(2 * least + refusals as u64)).contains(&total), "{total:?}");
        assert!(waits[6.min(refusals - 1)..].iter().all(|wait| *wait <= millis(101)));
        assert_eq!(lists, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn nonsensical_backoff_numbers_are_harmless() {
    let odd = [
        BackoffPolicy { factor: f64::NAN, jitter: f64::NAN, ..BackoffPolicy::default() },
        BackoffPolicy { factor: -1.0, jitter: -7.0, ..BackoffPolicy::default() },
        BackoffPolicy {
            factor: 1e300,
            jitter: f64::INFINITY,
            max: Duration::MAX,
            ..BackoffPolicy::default()
        },
        BackoffPolicy {
            initial: Duration::MAX,
            max: Duration::MAX,
            reset: Duration::MAX,
            ..BackoffPolicy::default()
        },
    ];
    for backoff in odd {
        let source = Scripted::new(
            |n, _| if n == 0 { Err(refused(500, "InternalError")) } else { Ok(page("10", &[])) },
            |n, _| if n < 3 { Err(connection_refused()) } else { Ok(Script::stay_after(vec![])) },
        );
        let options = ReflectorOptions {
            backoff,
            initial_events_timeout: Some(Duration::MAX),
            min_watch_timeout: Duration::MAX,
            internal_error_retry: Duration::MAX,
            seed: Some(1),
            ..ReflectorOptions::default()
        };
        let rig = Rig::with(source.clone(), options);
        sleep(3600.0).await;
        assert!(!source.requests().is_empty());
        rig.stop().await;
    }
}

/// How often a watch that ends with an internal error after a second is resumed before a list. The
/// tenth error can follow a quiet minute.
async fn retries(window: u64, quiet_minute: bool) -> usize {
    let source = Scripted::new(
        |_, _| Ok(page("10", &[])),
        move |n, _| {
            let quiet = if quiet_minute && n == 9 { 60 } else { 0 };
            let error = WatchEvent::Error(refusal(500, "InternalError"));
            Ok(Script::end_after(vec![]).then(Duration::from_secs(quiet + 1), error))
        },
    );
    let options = ReflectorOptions {
        watch_list: false,
        internal_error_retry: Duration::from_secs(window),
        ..ReflectorOptions::default()
    };
    let rig = Rig::with(source.clone(), options);
    sleep(200.0).await;
    rig.stop().await;
    let requests = source.requests();
    requests.iter().skip(1).take_while(|request| request.watch).count() - 1
}

#[tokio::test(start_paused = true)]
async fn internal_errors_are_retried_within_their_window() {
    assert_eq!([retries(0, false).await, retries(30, false).await, retries(30, true).await], [0, 31, 40]);
}

#[tokio::test(start_paused = true)]
async fn two_minutes_without_failure_reset_the_backoff() {
    let watch = |n: usize, _: &_| {
        let expired = WatchEvent::Error(refusal(410, "Expired"));
        Ok(match n {
            // Very short watches.
            0..5 => Script::end_after(vec![]),
            5 => Script::end_after(vec![]).then(Duration::from_secs(121), expired),
            _ => Script::stay_after(vec![]),
        })
    };
    let source = Scripted::new(|_, _| Ok(page("10", &[])), watch);
    let options = ReflectorOptions { watch_list: false, seed: Some(1), ..ReflectorOptions::default() };
    let _rig = Rig::with(source.clone(), options);
    sleep(300.0).await;
    let requests = source.requests();
    assert_eq!(requests.len(), 14, "{:?}", source.summaries());
    assert_backoff(&requests[..12], 2);
    let wait = requests[12].at.saturating_sub(requests[10].at + Duration::from_secs(121));
    assert!((millis(800)..=millis(1601)).contains(&wait), "{wait:?}");
}

#[tokio::test(start_paused = true)]
async fn failing_lists_back_off() {
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
        "v1/pods: failed to list: the server rejected the request: 500 InternalError: test refusal 500"
    );
    assert!(rig.status.last_error().is_some_and(|error| error.contains("500")));
    assert!(rig.stop().await.is_empty());
}
