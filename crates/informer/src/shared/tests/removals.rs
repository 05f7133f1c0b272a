//! Removal during a call, before the start, after the end, and by the handler itself.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::*;

/// A handler that reports its calls, and waits for permission to return.
struct Gate {
    entered: Sender<String>,
    released: Receiver<()>,
}

/// The other side of a [`Gate`].
struct Keeper {
    entered: Receiver<String>,
    release: Sender<()>,
}

fn gate() -> (Gate, Keeper) {
    let ((entered, entering), (release, released)) = (channel(), channel());
    (Gate { entered, released }, Keeper { entered: entering, release })
}

impl Gate {
    fn pass(&self, pod: &Pod) {
        self.entered.send(pod.metadata.name.clone().unwrap()).unwrap();
        // An error means that the keeper is gone.
        let _ = self.released.recv();
    }

    fn handler(self) -> HandlerFuncs<Pod> {
        HandlerFuncs::new().with_add(move |pod: &Arc<Pod>, _| self.pass(pod))
    }
}

#[test]
fn only_shut_down_waits_for_the_call_in_progress() {
    on_threads(3, async {
        let rig = Rig::new(&["a", "b"]);
        let (gate, keeper) = gate();
        let registration = rig.informer.add_event_handler(gate.handler(), HandlerOptions::default()).unwrap();
        let running = rig.run();
        let keeper = tokio::task::spawn_blocking(move || {
            assert_eq!(keeper.entered.recv().unwrap(), "a");
            keeper
        });
        let keeper = keeper.await.unwrap();
        rig.informer.remove_event_handler(&registration);
        assert!(!registration.is_stopped(), "the call still runs");
        let mut shut_down = std::pin::pin!(rig.informer.shut_down_event_handler(&registration));
        tokio::select! {
            biased;
            () = &mut shut_down => panic!("it was to wait for the call"),
            () = tokio::task::yield_now() => {}
        }
        keeper.release.send(()).unwrap();
        shut_down.await;
        assert!(registration.is_stopped());
        assert!(keeper.entered.try_recv().is_err(), "nothing more is delivered");
        rig.stop(running).await;
    });
}

#[test]
fn a_late_handler_is_not_synced_while_its_first_call_runs() {
    on_threads(3, async {
        let rig = Rig::new(&["a"]);
        let (log, registration) = rig.log(HandlerOptions::default());
        assert!(!registration.has_synced() && log.lines().is_empty());
        let running = rig.run();
        registration.synced().await;
        let (gate, keeper) = gate();
        let late = EventLog::new(rig.source.kind());
        let both = FanOut::new().then(gate.handler()).then(late.clone());
        let registration = rig.informer.add_event_handler(both, HandlerOptions::default()).unwrap();
        let keeper = tokio::task::spawn_blocking(move || {
            assert_eq!(keeper.entered.recv().unwrap(), "a");
            keeper
        });
        let keeper = keeper.await.unwrap();
        rig.source.apply(pod("b"));
        assert!(!registration.has_synced());
        let Keeper { entered: _entered, release } = keeper;
        // Permanently: a handler that blocks its thread again could keep this task from running.
        drop(release);
        registration.synced().await;
        rig.stop(running).await;
        assert_eq!(late.lines(), ["add ns/a 2 initial", "add ns/b 3"]);
    });
}

#[test]
fn a_panic_after_the_removal_still_ends_the_informer() {
    on_threads(3, async {
        let rig = Rig::new(&["a"]);
        let (gate, keeper) = gate();
        let handler = HandlerFuncs::new().with_add(move |pod: &Arc<Pod>, _| {
            gate.pass(pod);
            std::panic::resume_unwind(Box::new("on purpose"));
        });
        let registration = rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
        let running = rig.run();
        let keeper = tokio::task::spawn_blocking(move || keeper.entered.recv().map(|_| keeper).unwrap());
        let keeper = keeper.await.unwrap();
        rig.informer.remove_event_handler(&registration);
        drop(keeper);
        assert!(running.await.unwrap_err().is_panic());
        registration.stopped().await;
    });
}

#[tokio::test(start_paused = true)]
async fn handler_shut_down_returns_at_once_without_a_call() {
    let rig = Rig::new(&["a"]);
    let (_, before) = rig.log(HandlerOptions::default());
    let (_, during) = rig.log(HandlerOptions::default());
    let (_, after) = rig.log(HandlerOptions::default());
    let foreign = Rig::new(&[]);
    let (_, of_another) = foreign.log(HandlerOptions::default());
    let start = Instant::now();
    rig.informer.shut_down_event_handler(&before).await;
    rig.informer.shut_down_event_handler(&of_another).await;
    assert!(before.is_stopped() && !of_another.is_stopped());
    let running = rig.run();
    rig.informer.synced().await;
    rig.informer.shut_down_event_handler(&during).await;
    assert!(during.is_stopped() && !after.is_stopped());
    rig.stop(running).await;
    rig.informer.shut_down_event_handler(&after).await;
    rig.informer.shut_down_event_handler(&after).await;
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_handler_registered_twice_receives_changes_twice() {
    let rig = Rig::new(&["a"]);
    let calls = Arc::new(AtomicUsize::new(0));
    let register = || {
        let calls = Arc::clone(&calls);
        let handler = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
            calls.fetch_add(1, Ordering::Relaxed);
        });
        rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap()
    };
    let (first, second) = (register(), register());
    let _running = rig.run();
    settle().await;
    assert_eq!(calls.load(Ordering::Relaxed), 2);
    rig.informer.remove_event_handler(&first);
    rig.source.apply(pod("b"));
    settle().await;
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert!(first.is_stopped() && !second.is_stopped());
}

#[tokio::test(start_paused = true)]
async fn a_handler_may_remove_itself_and_add_another() {
    let rig = Rig::new(&["a", "b"]);
    let log = EventLog::new(rig.source.kind());
    let own = Arc::new(Mutex::new(None::<Registration>));
    let (registration, informer, successor) = (Arc::clone(&own), Arc::downgrade(&rig.informer), log.clone());
    let handler = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
        let informer = informer.upgrade().unwrap();
        informer.remove_event_handler(&registration.lock().take().expect("only one call"));
        informer.add_event_handler(successor.clone(), HandlerOptions::default()).unwrap();
    });
    *own.lock() = Some(rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap());
    let running = rig.run();
    settle().await;
    // A store has no order.
    let mut received = log.take();
    received.sort();
    assert_eq!(received, ["add ns/a 2 initial", "add ns/b 3 initial"]);
    rig.stop(running).await;
}

/// A handler that uses its informer when it is dropped.
struct Parting(std::sync::Weak<SharedInformer<Pods>>, Arc<AtomicBool>);

impl Drop for Parting {
    fn drop(&mut self) {
        let informer = self.0.upgrade().unwrap();
        self.1.store(informer.registrations().is_empty(), Ordering::Relaxed);
    }
}

#[test]
fn a_handler_may_use_the_informer_while_it_is_dropped() {
    on_threads(2, async {
        for run in [false, true] {
            let rig = Rig::new(&[]);
            let gone = Arc::new(AtomicBool::new(false));
            let parting = Parting(Arc::downgrade(&rig.informer), Arc::clone(&gone));
            let handler = HandlerFuncs::<Pod>::new().with_add(move |_, _| {
                let _keep = &parting;
            });
            let registration = rig.informer.add_event_handler(handler, HandlerOptions::default()).unwrap();
            if run {
                let _running = rig.run();
                rig.informer.synced().await;
            }
            rig.informer.shut_down_event_handler(&registration).await;
            assert!(gone.load(Ordering::Relaxed), "the handler is dropped before it counts as stopped");
        }
    });
}

#[tokio::test(start_paused = true)]
async fn handlers_of_a_dropped_informer_are_stopped_before_the_start() {
    let rig = Rig::new(&["a"]);
    let (_, registration) = rig.log(HandlerOptions::default());
    drop(rig);
    assert!(registration.is_stopped());
}
