use std::fmt::{self, Write as _};

use tracing::field::{Field, Visit};
use tracing::span;

use super::*;
use crate::testing::settle;

#[tokio::test(start_paused = true)]
async fn a_failing_event_is_attempted_twelve_times_then_the_next() {
    let sink = ScriptedSink::new([Try::Fails; 12], Try::Succeeds);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    let recorder = broadcaster.new_recorder("test");
    recorder.record(pod("a"), event("First"));
    recorder.record(pod("a"), event("Second"));
    sleep(Duration::from_secs(200)).await;
    let tries = sink.tries();
    let times: Vec<_> = tries.iter().filter(|(_, reason)| reason == "First").map(|(at, _)| *at).collect();
    assert_eq!(times.len(), 12);
    for pair in times.windows(2) {
        assert!((10_000..=12_501).contains(&(pair[1] - pair[0])), "{times:?}");
    }
    let pauses: std::collections::BTreeSet<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(pauses.len() > 1, "they are not all alike: {times:?}");
    assert_eq!(tries[12..], [(times[11], "Second".to_owned())], "no pause after giving up");
    assert_eq!((sink.written(), broadcaster.failed()), (vec!["Second".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn unavailable_sinks_are_retried_and_rejected_events_dropped() {
    let sink = ScriptedSink::new([Try::Fails, Try::Fails, Try::Succeeds, Try::IsRejected], Try::Succeeds);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    let recorder = broadcaster.new_recorder("test");
    for reason in ["Late", "Malformed", "Fine"] {
        recorder.record(pod("a"), event(reason));
    }
    sleep(Duration::from_secs(30)).await;
    assert_eq!(sink.written(), ["Late", "Fine"]);
    let tries: Vec<_> = sink.tries().into_iter().map(|(_, reason)| reason).collect();
    assert_eq!(tries, ["Late", "Late", "Late", "Malformed", "Fine"]);
    assert_eq!((broadcaster.failed(), broadcaster.dropped()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_unrepresentable_pause_lasts_until_the_shutdown() {
    let sink = ScriptedSink::new([], Try::Fails);
    let options = EventOptions { pause: Duration::MAX, ..EventOptions::default() };
    let broadcaster = EventBroadcaster::with_options(options);
    broadcaster.start_recording_to_sink(sink.clone());
    broadcaster.new_recorder("test").record(pod("a"), event("First"));
    sleep(Duration::from_hours(24)).await;
    assert_eq!(sink.tries().len(), 1);
    assert!(broadcaster.shutdown(Duration::from_secs(1)).await);
    assert_eq!(broadcaster.failed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_sink_delays_neither_callers_nor_other_sinks() {
    let (hanging, other) = (ScriptedSink::new([], Try::Hangs), ScriptedSink::new([], Try::Succeeds));
    let broadcaster = EventBroadcaster::with_options(EventOptions { queue: 20, ..EventOptions::default() });
    broadcaster.start_recording_to_sink(hanging.clone());
    broadcaster.start_recording_to_sink(other.clone());
    let recorder = broadcaster.new_recorder("test");
    recorder.record(pod("a"), event("Hangs"));
    settle().await;
    for round in 0..5 {
        // Synchronous, so it cannot wait; the clock stands still meanwhile.
        for _ in 0..20 {
            recorder.record(pod("a"), event("More"));
        }
        settle().await;
        assert_eq!(broadcaster.dropped(), 20 * round, "one queue is full, the other is not");
    }
    assert_eq!(other.written().len(), 101);
    assert_eq!(hanging.tries().len(), 1);
    sleep(Duration::from_secs(80)).await;
    let tries = hanging.tries();
    assert!(tries[1..].iter().all(|(at, reason)| *at >= 40_000 && reason == "Hangs"), "{tries:?}");
    assert_eq!(tries.len(), 2, "a hanging attempt ends after 30 s, and the next follows 10 s later");
}

#[tokio::test(start_paused = true)]
async fn shutdown_writes_queued_events_with_one_attempt_each() {
    let sink = ScriptedSink::new([Try::Takes(ms(500)), Try::Fails], Try::Succeeds);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    let recorder = broadcaster.new_recorder("test");
    for reason in ["Slow", "Fails", "Fine"] {
        recorder.record(pod("a"), event(reason));
    }
    let start = Instant::now();
    assert!(broadcaster.shutdown(Duration::from_secs(5)).await);
    assert_eq!(start.elapsed(), ms(500), "no pauses between attempts");
    assert_eq!((sink.written(), broadcaster.failed()), (vec!["Slow".to_owned(), "Fine".to_owned()], 1));
    recorder.record(pod("a"), event("TooLate"));
    broadcaster.start_recording_to_sink(sink.clone());
    recorder.record(pod("a"), event("TooLate"));
    settle().await;
    assert_eq!((sink.tries().len(), broadcaster.dropped()), (3, 2));
    assert!(broadcaster.shutdown(Duration::ZERO).await, "there is nothing left to do");
}

#[tokio::test(start_paused = true)]
async fn shutdown_interrupts_a_pause() {
    let sink = ScriptedSink::new([], Try::Fails);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    broadcaster.new_recorder("test").record(pod("a"), event("Fails"));
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    assert!(broadcaster.shutdown(Duration::from_secs(5)).await);
    assert_eq!((start.elapsed(), sink.tries().len(), broadcaster.failed()), (Duration::ZERO, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn shutdown_respects_its_limit_and_leaves_no_task() {
    let sink = ScriptedSink::new([], Try::Hangs);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    broadcaster.new_recorder("test").record(pod("a"), event("Hangs"));
    let start = Instant::now();
    assert!(!broadcaster.shutdown(Duration::from_secs(5)).await);
    assert_eq!(start.elapsed(), Duration::from_secs(5));
    settle().await;
    assert_eq!(Arc::strong_count(&sink.0), 1, "the task has ended and dropped its sink");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_last_handle_still_writes_queued_events() {
    let sink = ScriptedSink::new([Try::Fails], Try::Succeeds);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    let recorder = broadcaster.new_recorder("test");
    drop(broadcaster);
    recorder.record(pod("a"), event("Last"));
    drop(recorder);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(sink.written(), ["Last"]);
    assert_eq!(Arc::strong_count(&sink.0), 1);
}

#[tokio::test]
async fn events_recorded_before_shutdown_are_written() {
    let sink = ScriptedSink::new([], Try::Succeeds);
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(sink.clone());
    std::thread::scope(|scope| {
        for thread in 0..100 {
            let recorder = broadcaster.new_recorder("test");
            scope.spawn(move || recorder.record(pod("a"), event(&thread.to_string())));
        }
    });
    assert!(broadcaster.shutdown(Duration::from_mins(1)).await);
    let mut written: Vec<u32> = sink.written().iter().map(|reason| reason.parse().unwrap()).collect();
    written.sort_unstable();
    assert!(written.into_iter().eq(0..100));
}

/// Captures the log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, "{field}={value:?} ");
    }
}

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("kube_informers::events")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(format!("{} ", event.metadata().level()));
        event.record(&mut line);
        self.0.lock().push(line.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn dropped_events_are_logged_at_powers_of_two() {
    let lines = Lines::default();
    crate::testing::log::ask_each_time();
    let _logging = tracing::subscriber::set_default(lines.clone());
    let broadcaster = EventBroadcaster::with_options(EventOptions { queue: 0, ..EventOptions::default() });
    for _ in 0..3 {
        broadcaster.start_recording_to_sink(ScriptedSink::new([], Try::Hangs));
    }
    let recorder = broadcaster.new_recorder("test");
    for _ in 0..100 {
        recorder.record(pod("a"), event("More"));
    }
    assert_eq!(broadcaster.dropped(), 297, "each sink has room for at least one event");
    let dropped = |line: &String| {
        let (_, rest) = line.split_once("dropped=").unwrap();
        rest.split_once(' ').unwrap().0.parse::<u64>().unwrap()
    };
    let dropped: Vec<_> = lines.0.lock().iter().map(dropped).collect();
    assert_eq!(dropped, [3, 6, 9, 18, 33, 66, 129, 258]);
}

#[tokio::test(start_paused = true)]
async fn events_are_logged_despite_a_slow_sink() {
    let lines = Lines::default();
    crate::testing::log::ask_each_time();
    let _logging = tracing::subscriber::set_default(lines.clone());
    let broadcaster = EventBroadcaster::new();
    broadcaster.start_recording_to_sink(ScriptedSink::new([], Try::Hangs));
    broadcaster.start_logging();
    broadcaster.new_recorder("test").record(pod("a"), event("Logged"));
    settle().await;
    let lines = lines.0.lock();
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in [
        "INFO",
        "event occurred",
        "reporter=\"test\"",
        "kind=\"Pod\"",
        "name=\"a\"",
        "type=Normal",
        "Logged it was",
    ] {
        assert!(lines[0].contains(part), "{part} in {}", lines[0]);
    }
}
