//! A watch's connection is released once, however the watch ends.

use super::*;

type Answer = Result<Script<Pod>, ListWatchError>;
type OnWatch = Box<dyn Fn(usize, &ListOptions) -> Answer + Send + Sync>;

fn source(on_watch: impl Fn(usize, &ListOptions) -> Answer + Send + Sync + 'static) -> Scripted<Pod> {
    Scripted::new(|_, _| Ok(page("10", &[("a", "1")])), on_watch)
}

/// The number of open watches after this time. Asserts that none remains open after the stop, and
/// that none is released twice.
async fn open_after(seconds: f64, on_watch: OnWatch) -> usize {
    let source = source(on_watch);
    let rig = Rig::start(source.clone());
    sleep(seconds).await;
    let (opened, released) = source.opened_and_released();
    assert!(opened > 0);
    rig.stop().await;
    let (opened_in_all, released_in_all) = source.opened_and_released();
    assert_eq!((opened_in_all, released_in_all), (opened, opened));
    opened - released
}

fn error(code: u16, reason: &str) -> WatchEvent<Pod> {
    WatchEvent::Error(refusal(code, reason))
}

/// The server keeps the watch open.
fn stay_after(event: WatchEvent<Pod>) -> Script<Pod> {
    Script::stay_after(vec![event])
}

fn quiet() -> Script<Pod> {
    Script::stay_after(vec![])
}

#[tokio::test(start_paused = true)]
async fn stopping_releases_the_watch_in_every_phase() {
    let cases: [OnWatch; 3] = [
        Box::new(|_, _| Ok(stay_after(bookmark("5", true)))),
        Box::new(|_, _| Ok(stay_after(WatchEvent::Added(pod("a", "1"))))),
        Box::new(no_watch_list(|_, _| Ok(quiet()))),
    ];
    for on_watch in cases {
        assert_eq!(open_after(1.0, on_watch).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_failed_is_released_before_the_wait() {
    let cases: [OnWatch; 5] = [
        Box::new(no_watch_list(|_, _| Ok(stay_after(error(410, "Expired"))))),
        Box::new(no_watch_list(|_, _| Ok(stay_after(error(429, "TooManyRequests"))))),
        Box::new(no_watch_list(|_, _| Ok(Script::end_after(vec![])))),
        Box::new(|_, _| Ok(stay_after(error(429, "TooManyRequests")))),
        Box::new(|_, _| Ok(Script::end_after(vec![WatchEvent::Added(pod("a", "1"))]))),
    ];
    for on_watch in cases {
        assert_eq!(open_after(0.5, on_watch).await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_is_released_before_the_next_is_opened() {
    let refused_events: OnWatch = Box::new(|_, options| {
        Ok(if options.send_initial_events { stay_after(error(500, "InternalError")) } else { quiet() })
    });
    let closed: OnWatch = Box::new(|n, _| match n {
        0 => Ok(Script::end_after(vec![bookmark("5", true), bookmark("6", false)])),
        1..4 => Ok(Script::end_after(vec![bookmark("7", false)])),
        _ => Ok(quiet()),
    });
    let overdue: OnWatch = Box::new(|_, _| Ok(quiet()));
    let silent: OnWatch = Box::new(|_, _| Ok(stay_after(bookmark("5", true))));
    for (seconds, on_watch) in [(0.1, refused_events), (0.1, closed), (61.0, overdue), (700.0, silent)] {
        assert_eq!(open_after(seconds, on_watch).await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_transform_releases_the_watch_and_the_queue() {
    let source =
        source(|_, _| Ok(Script::stay_after(vec![bookmark("5", true), WatchEvent::Added(pod("a", "6"))])));
    let queue = queue();
    let reflector = Reflector::new(
        Arc::new(Typed::<Pod>::new()),
        Arc::new(source.clone()),
        Arc::clone(&queue),
        Arc::default(),
        ReflectorOptions::default(),
    );
    let reflector = reflector.with_transform(Some(Arc::new(|_: &mut Pod| panic!("on purpose"))));
    let run = tokio::spawn(reflector.run(CancellationToken::new()));
    assert!(run.await.unwrap_err().is_panic());
    assert_eq!(source.opened_and_released(), (1, 1));
    assert!(queue.pop_batch().await.is_some(), "changes read before the stop");
    assert!(queue.pop_batch().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reflector_stopped_before_it_runs_sends_no_request() {
    let source = source(|_, _| Ok(Script::stay_after(vec![])));
    let reflector = Reflector::new(
        Arc::new(Typed::<Pod>::new()),
        Arc::new(source.clone()),
        queue(),
        Arc::default(),
        ReflectorOptions::default(),
    );
    let stop = CancellationToken::new();
    stop.cancel();
    reflector.run(stop).await;
    assert!(source.requests().is_empty());
}
