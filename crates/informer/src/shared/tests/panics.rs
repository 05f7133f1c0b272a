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
}

#[tokio::test(start_paused = true)]
async fn a_panicking_transform_ends_the_informer() {
    let rig = Rig::new(&["a"]);
    rig.informer.set_transform(|_| panic!("on purpose")).unwrap();
    assert!(rig.run().await.unwrap_err().is_panic());
    assert!(rig.informer.is_stopped());
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
    rig.source.apply(pod("d"));
    settle().await;
    assert!(stuck.pending() == 4 && !running.is_finished());
    let before = Instant::now();
    rig.source.apply(pod("e"));
    let panic = running.await.unwrap_err().into_panic();
    let text = "event handler \"stuck\" of v1/pods exceeds its limit of 4 pending changes";
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
        rig.source.apply(pod("b"));
        rig.source.apply(pod("c"));
        let panic = running.await.unwrap_err().into_panic();
        assert!(panic.downcast_ref::<String>().unwrap().contains("\"stuck\""));
        assert_eq!(log.content(), rig.source.content(), "the other handlers receive everything");
        assert!(other.is_stopped() && !stuck.is_stopped());
    });
}
