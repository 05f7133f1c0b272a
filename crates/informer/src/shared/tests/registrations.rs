//! Handlers that are added, late or not, that sync, and that are removed.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_late_handler_misses_nothing_and_sees_nothing_twice() {
    let rig = Rig::new(&[]);
    let running = rig.run();
    let source = rig.source.clone();
    let storm = tokio::spawn(async move {
        for n in 0..2000 {
            let name = format!("p{}", n % 50);
            if n % 7 == 0 {
                source.delete(pod(&name));
            } else {
                source.apply(pod(&name));
            }
            tokio::task::yield_now().await;
        }
    });
    let mut logs = Vec::new();
    for _ in 0..20 {
        logs.push(rig.log(HandlerOptions::default()));
        for _ in 0..60 {
            tokio::task::yield_now().await;
        }
    }
    storm.await.unwrap();
    settle().await;
    for (log, registration) in &logs {
        assert_eq!(log.faults(), [""; 0]);
        assert_eq!(log.content(), rig.source.content());
        assert!(registration.has_synced() && registration.pending() == 0);
    }
    // The first handler was added before the storm, and received everything; the others received
    // the rest.
    let everything = logs[0].0.lines();
    for (log, _) in &logs {
        let lines = log.lines();
        let later: Vec<_> = lines.iter().skip_while(|line| line.ends_with("initial")).collect();
        assert!(everything.iter().rev().take(later.len()).rev().eq(later), "each later change, in order");
    }
    let initial = |log: &EventLog<Pods>| log.lines().iter().filter(|line| line.ends_with("initial")).count();
    assert!(logs.iter().skip(2).any(|(log, _)| initial(log) > 0), "some joined late");
    rig.stop(running).await;
}

#[tokio::test(start_paused = true)]
async fn a_registration_syncs_once_the_first_list_is_processed() {
    let rig = Rig::new(&["a", "b", "c"]);
    // Panics on the first object, and then pauses for 10 s.
    let first = AtomicBool::new(true);
    let handler = HandlerFuncs::<Pod>::new()
        .with_add(move |_, _| assert!(!first.swap(false, Ordering::Relaxed), "on purpose"));
    let options =
        HandlerOptions { panic_policy: PanicPolicy::SkipAfter(secs(10)), ..HandlerOptions::named("slow") };
    let slow = rig.informer.add_event_handler(handler, options).unwrap();
    let (log, quick) = rig.log(HandlerOptions::default());
    let _running = rig.run();
    rig.informer.synced().await;
    tokio::time::sleep(secs(9)).await;
    assert!(quick.has_synced() && !slow.has_synced(), "the store is ready, the slow handler is not");
    assert_eq!((quick.pending(), slow.pending(), log.lines().len()), (0, 3, 3));
    slow.synced().await;
    assert_eq!(slow.pending(), 0, "a handler syncs despite a panic");
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_syncs_after_its_initial_objects() {
    let rig = Rig::new(&["a"]);
    let _running = rig.run();
    rig.informer.synced().await;
    let (log, registration) = rig.log(HandlerOptions::default());
    assert!(!registration.has_synced());
    registration.synced().await;
    assert_eq!(log.take(), ["add ns/a 2 initial"]);
    rig.source.apply(pod("b"));
    settle().await;
    assert_eq!(log.take(), ["add ns/b 3"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_first_list_syncs_everything() {
    let rig = Rig::new(&[]);
    let (_, registration) = rig.log(HandlerOptions::default());
    let _running = rig.run();
    registration.synced().await;
    assert!(rig.informer.has_synced());
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_receives_nothing_more() {
    let rig = Rig::new(&["a"]);
    let (removed, registration) = rig.log(HandlerOptions::default());
    let (other, _) = rig.log(HandlerOptions::default());
    let _running = rig.run();
    settle().await;
    rig.source.apply(pod("b"));
    rig.informer.remove_event_handler(&registration);
    rig.informer.remove_event_handler(&registration);
    registration.stopped().await;
    rig.source.apply(pod("c"));
    settle().await;
    assert_eq!(removed.lines(), ["add ns/a 2 initial"]);
    assert_eq!(other.lines().len(), 3);
    assert_eq!(rig.informer.registrations().len(), 1);
    // A registration of another informer has no effect.
    let foreign = Rig::new(&[]);
    let (_, registration) = foreign.log(HandlerOptions::default());
    rig.informer.remove_event_handler(&registration);
    assert_eq!((rig.informer.registrations().len(), foreign.informer.registrations().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_handler_can_be_removed_during_its_pause() {
    let rig = Rig::new(&["a", "b"]);
    let handler = HandlerFuncs::<Pod>::new().with_add(|_, _| panic!("on purpose"));
    let options =
        HandlerOptions { panic_policy: PanicPolicy::SkipAfter(secs(3600)), ..HandlerOptions::default() };
    let registration = rig.informer.add_event_handler(handler, options).unwrap();
    let _running = rig.run();
    settle().await;
    let start = Instant::now();
    rig.informer.remove_event_handler(&registration);
    registration.stopped().await;
    assert!(start.elapsed() < secs(1) && registration.pending() == 0);
}

#[test]
fn handlers_are_added_and_removed_during_a_storm() {
    on_threads(4, async {
        let rig = Arc::new(Rig::new(&[]));
        let running = rig.run();
        let storm = Arc::clone(&rig);
        let storm = tokio::spawn(async move {
            for n in 0..5000 {
                let name = format!("p{}", n % 100);
                if n % 5 == 0 {
                    storm.source.delete(pod(&name));
                } else {
                    storm.source.apply(pod(&name));
                }
                if n % 50 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
        let workers = (0..8).map(|_| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move {
                for n in 0..30 {
                    let (log, registration) = rig.log(HandlerOptions::default());
                    tokio::task::yield_now().await;
                    if n % 2 == 0 {
                        registration.synced().await;
                    }
                    rig.informer.remove_event_handler(&registration);
                    registration.stopped().await;
                    assert_eq!(log.faults(), [""; 0]);
                }
            })
        });
        for worker in workers.collect::<Vec<_>>() {
            worker.await.unwrap();
        }
        storm.await.unwrap();
        let (log, registration) = rig.log(HandlerOptions::default());
        registration.synced().await;
        while log.content() != rig.source.content() {
            tokio::task::yield_now().await;
        }
        rig.stop(running).await;
        assert!(rig.informer.registrations().is_empty());
    });
}
