//! Handlers that panic or are slow.

use super::*;
use crate::testing::log::CaughtLog;

#[test]
fn a_slow_handler_delays_no_other_handler() {
    on_threads(2, async {
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let (enter, entered) = std::sync::mpsc::channel::<()>();
        let rig = Rig::new(&["a"]);
        let slow = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
            let _ = enter.send(());
            let _ = blocked.recv();
        });
        let slow = rig.informer.add_event_handler(slow, HandlerOptions::default()).unwrap();
        let (log, quick) = rig.log(HandlerOptions::default());
        let running = rig.run();
        quick.synced().await;
        // Yielding is not enough: this task could be queued behind the handler that blocks its
        // thread.
        tokio::task::spawn_blocking(move || entered.recv().unwrap()).await.unwrap();
        for n in 0..3000 {
            rig.source.apply(pod(&format!("p{n}")));
        }
        while log.lines().len() < 3001 {
            tokio::task::yield_now().await;
        }
        assert!(slow.pending() > 2000 && !slow.has_synced());
        release.send(()).unwrap();
        drop(release);
        rig.stop(running).await;
        assert_eq!(
            (slow.pending(), slow.processed()),
            (0, 3001),
            "changes read before the end are delivered"
        );
    });
}

#[tokio::test(start_paused = true)]
async fn a_handler_with_skip_policy_continues_after_the_pause() {
    let rig = Rig::new(&[]);
    let calls = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&calls);
    let start = Instant::now();
    let handler = HandlerFuncs::new().with_add(move |pod: &Arc<Pod>, _| {
        seen.lock().push((pod.metadata.name.clone().unwrap(), start.elapsed().as_secs()));
        assert_ne!(pod.metadata.name.as_deref(), Some("b"), "on purpose");
    });
    let options =
        HandlerOptions { panic_policy: PanicPolicy::SkipAfter(secs(1)), ..HandlerOptions::default() };
    rig.informer.add_event_handler(handler, options).unwrap();
    let running = rig.run();
    for name in ["a", "b", "c"] {
        rig.source.apply(pod(name));
    }
    tokio::time::sleep(secs(5)).await;
    let expected = [("a", 0), ("b", 0), ("c", 1)].map(|(name, at)| (name.to_owned(), at));
    assert_eq!(*calls.lock(), expected);
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_propagated_handler_panic_ends_the_informer() {
    let rig = Rig::new(&["a"]);
    let handler = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let (log, _) = rig.log(HandlerOptions::default());
    let panic = rig.run().await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(log.lines().len(), 1, "the other handler receives everything");
    assert_eq!(rig.source.watchers(), 0);
    let failure =
        InformerFailure::HandlerPanicked { handler: String::new(), message: "on purpose".to_owned() };
    assert_eq!(rig.informer.failure(), Some(failure));
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_known_before_other_handlers_have_drained() {
    let rig = Rig::new(&["a"]);
    // Busy for an hour, in the only way a handler can be while the clock is paused.
    let busy = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    let hour =
        HandlerOptions { panic_policy: PanicPolicy::SkipAfter(secs(3600)), ..HandlerOptions::named("busy") };
    rig.informer.add_event_handler(busy, hour).unwrap();
    let broken = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    rig.informer.add_event_handler(broken, HandlerOptions::named("broken")).unwrap();
    let running = rig.run();
    let start = Instant::now();
    let failure = rig.informer.failed().await;
    assert_eq!(failure.to_string(), "event handler \"broken\" panicked: on purpose");
    assert!(start.elapsed() < secs(1) && !rig.informer.is_stopped());
    assert!(running.await.unwrap_err().is_panic());
    assert!(start.elapsed() >= secs(3600), "run itself waits for the handlers");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_transform_ends_the_informer() {
    let rig = Rig::new(&["a"]);
    rig.informer.set_transform(|_| panic!("on purpose")).unwrap();
    assert!(rig.run().await.unwrap_err().is_panic());
    assert!(rig.informer.is_stopped());
    assert_eq!(rig.informer.failed().await.to_string(), "panicked: on purpose");
}

#[tokio::test(start_paused = true)]
async fn a_panicking_index_function_ends_the_informer() {
    let rig = Rig::new(&["a"]);
    let index: IndexFn<Pod> = Arc::new(|_, _, _| panic!("on purpose"));
    rig.informer.add_indexers([("index".to_owned(), index)].into()).unwrap();
    let (_, registration) = rig.log(HandlerOptions::default());
    assert!(rig.run().await.unwrap_err().is_panic());
    assert!(registration.is_stopped() && !rig.informer.has_synced());
    assert_eq!(rig.informer.failed().await.to_string(), "panicked: on purpose");
    assert_eq!(rig.source.watchers(), 0);
}

#[tokio::test(start_paused = true)]
async fn repeated_panics_pause_a_second_each_and_log_the_handler() {
    let log = CaughtLog::new();
    let rig = Rig::new(&["a", "b", "c", "d", "e"]);
    let start = Instant::now();
    let registrations = ["simple", "many"].map(|name| {
        let handler = HandlerFuncs::<Pod>::new().with_add(move |pod, _| {
            std::panic::resume_unwind(Box::new(format!("{name} {}", pod.metadata.name.as_deref().unwrap())))
        });
        let panic_policy = PanicPolicy::SkipAfter(secs(1));
        let options = HandlerOptions { panic_policy, ..HandlerOptions::named(name) };
        rig.informer.add_event_handler(handler, options).unwrap()
    });
    let running = rig.run();
    for registration in &registrations {
        registration.synced().await;
        assert_eq!((registration.panics(), registration.processed()), (5, 5));
    }
    assert!(start.elapsed() >= secs(4), "{:?}", start.elapsed());
    for name in ["simple", "many"] {
        for pod in ["a", "b", "c", "d", "e"] {
            let line = format!(
                "ERROR event handler panicked; skipping the change handler={name} informer=v1/pods panic=\"{name} {pod}\""
            );
            assert_eq!(log.lines().iter().filter(|it| **it == line).count(), 1, "{line}\n{:#?}", log.lines());
        }
    }
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_handler_beyond_its_limit_ends_the_informer() {
    let rig = Rig::new(&["a", "b", "c"]);
    let stuck = HandlerFuncs::<Pod>::new().with_add(|_, _| std::panic::resume_unwind(Box::new("on purpose")));
    let panic_policy = PanicPolicy::SkipAfter(secs(3600));
    let options = HandlerOptions { panic_policy, max_pending: Some(4), ..HandlerOptions::named("stuck") };
    let stuck = rig.informer.add_event_handler(stuck, options).unwrap();
    let (log, _) = rig.log(HandlerOptions::default());
    let running = rig.run();
    settle().await;
    for name in ["d", "e", "f", "g"] {
        rig.source.apply(pod(name));
    }
    settle().await;
    assert!(stuck.pending() == 3 + 4 && !running.is_finished());
    let before = Instant::now();
    rig.source.apply(pod("h"));
    let panic = running.await.unwrap_err().into_panic();
    let text =
        "the informer of v1/pods failed: event handler \"stuck\" exceeds its limit of 4 pending changes";
    assert_eq!(panic.downcast_ref::<String>().map(String::as_str), Some(text));
    assert!(before.elapsed() < secs(1), "run does not wait for the stuck handler");
    assert_eq!(log.content(), rig.source.content(), "the other handlers receive everything");
}

#[test]
fn run_does_not_wait_for_a_stuck_handler_beyond_its_limit() {
    on_threads(3, async {
        let rig = Rig::new(&["a"]);
        // Kept until the end: the call never returns.
        let (_release, blocked) = std::sync::mpsc::channel::<()>();
        let (enter, entered) = std::sync::mpsc::channel::<()>();
        let stuck = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
            enter.send(()).unwrap();
            let _ = blocked.recv();
        });
        let options = HandlerOptions { max_pending: Some(2), ..HandlerOptions::named("stuck") };
        let stuck = rig.informer.add_event_handler(stuck, options).unwrap();
        let (log, other) = rig.log(HandlerOptions::default());
        let running = rig.run();
        // Wait on a separate thread: a task that the handler wakes could be queued on the thread
        // that it blocks.
        tokio::task::spawn_blocking(move || entered.recv().unwrap()).await.unwrap();
        for name in ["b", "c", "d"] {
            rig.source.apply(pod(name));
        }
        let panic = running.await.unwrap_err().into_panic();
        assert!(panic.downcast_ref::<String>().unwrap().contains("\"stuck\""));
        assert_eq!(log.content(), rig.source.content(), "the other handlers receive everything");
        assert!(other.is_stopped() && !stuck.is_stopped());
    });
}

#[test]
fn a_blocking_handler_on_its_own_thread_blocks_no_worker() {
    on_threads(1, async {
        let rig = Rig::new(&["a"]);
        let (release, blocked) = std::sync::mpsc::channel::<()>();
        let (enter, entered) = std::sync::mpsc::channel();
        let blocking = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
            let _ = enter.send(std::thread::current().name().map(str::to_owned));
            let _ = blocked.recv();
        });
        let options = HandlerOptions { own_thread: true, ..HandlerOptions::named("blocking") };
        let blocking = rig.informer.add_event_handler(blocking, options).unwrap();
        let (log, quick) = rig.log(HandlerOptions::default());
        let running = rig.run();
        // The only worker waits for the thread, and would wait forever for one of its own tasks.
        quick.synced().await;
        assert_eq!(entered.recv().unwrap().as_deref(), Some("blocking"));
        rig.source.apply(pod("b"));
        while log.lines().len() < 2 {
            tokio::task::yield_now().await;
        }
        assert!(!blocking.has_synced());
        drop(release);
        rig.stop(running).await;
        assert!(blocking.is_stopped() && blocking.processed() == 2);
    });
}
