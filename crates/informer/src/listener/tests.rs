//! A single listener.

use std::mem::size_of;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::*;
use crate::handler::HandlerFuncs;
use crate::testing::log::CaughtLog;
use crate::testing::settle;

struct Line {
    outbox: Outbox<usize>,
    failure: Arc<FirstFailure>,
    running: JoinHandle<()>,
}

impl Line {
    fn to(handler: HandlerFuncs<usize>, max_pending: usize) -> Self {
        let (sender, inbox) = mpsc::unbounded_channel();
        let failure = Arc::new(FirstFailure::new("v1/pods".into()));
        let progress = Arc::new(Progress::new("slow".into(), "v1/pods".into()));
        let listener = Listener {
            handler,
            inbox,
            progress: Arc::clone(&progress),
            policy: PanicPolicy::default(),
            failure: Arc::clone(&failure),
            last_report: None,
        };
        let running = tokio::spawn(listener.run());
        let outbox = Outbox { progress, sender, max_pending, failure: Arc::clone(&failure) };
        Self { outbox, failure, running }
    }

    fn send(&self, number: usize) {
        self.send_one(number, false);
    }

    fn send_one(&self, number: usize, is_in_initial_list: bool) {
        let change = Notification::Add { object: Arc::new(number), is_in_initial_list };
        self.outbox.send(Arc::new([Notice { change, sync: false }]), false, 1, is_in_initial_list);
    }

    fn registration(&self) -> Registration {
        Registration(Arc::clone(&self.outbox.progress))
    }

    async fn finish(self) {
        drop(self.outbox);
        self.running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn order_is_kept_with_one_and_many_pending_changes() {
    for pending in [1, 100_000] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let seeing = Arc::clone(&seen);
        let line = Line::to(HandlerFuncs::new().with_add(move |it, _| seeing.lock().push(**it)), usize::MAX);
        for round in 0..3 {
            // Nothing is delivered before this task waits.
            (0..pending).for_each(|number| line.send(round * pending + number));
            assert_eq!(line.registration().pending(), pending);
            settle().await;
            assert_eq!(line.registration().pending(), 0);
        }
        assert_eq!(line.registration().processed(), 3 * pending as u64);
        line.finish().await;
        assert!(seen.lock().iter().copied().eq(0..3 * pending));
    }
}

#[test]
fn a_pending_change_costs_40_bytes_for_all_handlers_together() {
    assert_eq!(size_of::<Notice<String>>(), 40);
    assert_eq!(size_of::<Notification<String>>(), 32);
    // The cost of a change that arrives alone: a message, and the two counters of its part.
    assert_eq!(size_of::<Message<String>>() + 2 * size_of::<usize>(), 40);
}

#[test]
fn a_listener_receives_unchanged_objects_only_in_its_resync() {
    let received = |number, sync| {
        let change = Notification::Add { object: Arc::new(number), is_in_initial_list: false };
        Notice { change, sync }
    };
    let changes: Changes<usize> = Arc::new([
        received(0, true),
        received(1, false),
        received(2, true),
        received(3, false),
        received(4, true),
    ]);
    for (syncing, expected) in [(false, vec![1, 3]), (true, vec![0, 1, 2, 3, 4])] {
        let mut shown = Shown::new(Arc::clone(&changes), syncing);
        let mut seen = Vec::new();
        while let Some(change) = shown.next() {
            seen.extend(change.object().map(|object| **object));
        }
        assert_eq!(seen, expected);
        assert!(shown.next().is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn an_early_handler_syncs_only_with_the_informer() {
    let line = Line::to(HandlerFuncs::new(), usize::MAX);
    line.send(1);
    settle().await;
    let registration = line.registration();
    assert!(registration.pending() == 0 && !registration.has_synced());
    line.outbox.mark_synced();
    registration.synced().await;
    line.finish().await;
}

/// A handler whose calls advance the clock by this much.
fn taking(duration: Duration) -> HandlerFuncs<usize> {
    HandlerFuncs::new().with_add(move |_, _| {
        // Advances the clock when first polled.
        let _ = tokio::time::advance(duration).now_or_never();
    })
}

#[tokio::test(start_paused = true)]
async fn only_slow_handlers_with_a_long_backlog_are_logged() {
    const MILLI: Duration = Duration::from_millis(1);
    let table = [
        (1024, 150 * MILLI, 0, 0),
        (1500, 100 * MILLI, 0, 0),
        // Below the threshold after 476 calls, which take 71.4 s: one report immediately, and one
        // every 10 s.
        (1500, 150 * MILLI, 476, 8),
        // Exactly the duration of twenty calls.
        (1500, 500 * MILLI, 476, 24),
        (1025, 101 * MILLI, 1, 1),
    ];
    for (backlog, duration, slow_calls, reports) in table {
        let log = CaughtLog::new();
        let line = Line::to(taking(duration), usize::MAX);
        (0..backlog).for_each(|number| line.send(number));
        let registration = line.registration();
        line.finish().await;
        assert_eq!(registration.slow_calls(), slow_calls, "{backlog} pending, {duration:?} each");
        let lines = log.lines();
        assert_eq!(lines.len(), reports, "{backlog} pending, {duration:?} each: {lines:#?}");
        if let Some(line) = lines.first() {
            for part in ["WARN slow event handler", "handler=slow", "informer=v1/pods"] {
                assert!(line.contains(part), "{line}");
            }
            assert!(line.contains(&format!("pending={backlog} took={duration:?}")), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_beyond_its_limit_is_removed_with_a_named_error() {
    let calls = Arc::new(Mutex::new(0));
    let calling = Arc::clone(&calls);
    let line = Line::to(HandlerFuncs::new().with_add(move |_, _| *calling.lock() += 1), 3);
    (0..3).for_each(|number| line.send(number));
    settle().await;
    assert!(line.failure.get().is_none() && *calls.lock() == 3, "the limit itself is allowed");
    let log = CaughtLog::new();
    (0..5).for_each(|number| line.send(number));
    let failure = InformerFailure::HandlerBehind { handler: "slow".to_owned(), limit: 3 };
    assert_eq!(line.failure.get(), Some(failure));
    let text = "event handler \"slow\" exceeds its limit of 3 pending changes";
    assert_eq!(
        panic_message(&line.failure.take_panic().unwrap()),
        format!("the informer of v1/pods failed: {text}")
    );
    assert_eq!(log.lines(), [format!("ERROR informer failed informer=v1/pods failure={text}")]);
    let registration = line.registration();
    registration.stopped().await;
    assert_eq!((*calls.lock(), registration.pending()), (3, 0), "the handler is not called again");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_pending_changes_leaves_initial_objects_out() {
    let _log = CaughtLog::new();
    let line = Line::to(HandlerFuncs::new(), 3);
    (0..10).for_each(|number| line.send_one(number, true));
    (0..3).for_each(|number| line.send(number));
    assert_eq!((line.registration().pending(), line.failure.get()), (13, None));
    settle().await;
    assert_eq!(line.registration().pending(), 0);
    (0..3).for_each(|number| line.send(number));
    assert_eq!(line.failure.get(), None, "the initial objects do not raise the limit for good");
    line.send(3);
    assert!(line.failure.get().is_some());
    line.finish().await;
}
