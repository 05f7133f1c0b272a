//! Handlers that panic or take their time.

use super::*;

#[tokio::test]
async fn a_slow_handler_holds_up_no_one_else() {
    // On the real clock: the slow handler blocks its thread, so it needs one of its own.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    let (release, blocked) = std::sync::mpsc::channel::<()>();
    let task = runtime.spawn(async move {
        let rig = Rig::new(&["a"]);
        let slow = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
            let _ = blocked.recv();
        });
        let slow = rig.informer.add_event_handler(slow, HandlerOptions::default()).unwrap();
        let (log, quick) = rig.log(HandlerOptions::default());
        let running = rig.run();
        quick.synced().await;
        for n in 0..3000 {
            rig.source.apply(pod(&format!("p{n}")));
        }
        while log.lines().len() < 3001 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(slow.pending() > 2000 && !slow.has_synced());
        release.send(()).unwrap();
        drop(release);
        rig.stop(running).await;
        assert_eq!(slow.pending(), 0, "what had been read was delivered before the end");
    });
    tokio::time::timeout(secs(60), task).await.unwrap().unwrap();
    runtime.shutdown_background();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_may_skip_goes_on_after_the_pause() {
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
async fn a_panic_that_is_not_to_be_skipped_ends_the_informer_with_it() {
    let rig = Rig::new(&["a"]);
    let handler = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
    let (log, _) = rig.log(HandlerOptions::default());
    let panic = rig.run().await.unwrap_err().into_panic();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
    assert_eq!(log.lines().len(), 1, "the other handler was served to the end");
    assert_eq!(rig.source.watchers(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_transform_that_panics_ends_the_informer_with_it() {
    let rig = Rig::new(&["a"]);
    rig.informer.set_transform(|_| panic!("on purpose")).unwrap();
    assert!(rig.run().await.unwrap_err().is_panic());
    assert!(rig.informer.is_stopped());
}
