//! Storms: many concurrent changes, with faults, and every queue.

use tokio::task::JoinSet;

use super::*;
use crate::backoff::random;
use crate::listener::HandlerOptions;
use crate::shared::{InformerOptions, SharedInformer};

/// A writer. It shares the names of objects with the other writers.
async fn hammer(source: FakeSource<Pods>, seed: u64) {
    let mut random = random(Some(seed));
    let mut below = |bound: f64| (random.f64() * bound) as u32;
    for _ in 0..150 {
        let object = pod(&char::from_u32(u32::from('a') + below(12.0)).unwrap().to_string());
        match below(20.0) {
            0..=8 => source.apply(object),
            9..=14 => source.delete(object),
            15 => source.apply_silently(object),
            16 => source.delete_silently(object),
            17 => source.bookmark(),
            18 => source.close_watches(),
            _ => source.reset_watch(),
        }
        match below(4.0) {
            0 => tokio::time::sleep(Duration::from_millis(below(700.0).into())).await,
            1 => {}
            _ => tokio::task::yield_now().await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_queue_converges_after_a_storm_of_changes() {
    for (queue, seed) in KINDS.into_iter().zip(1..) {
        let source = FakeSource::<Pods>::typed();
        let stop = CancellationToken::new();
        let (log, shared_log) = (EventLog::new(source.kind()), EventLog::new(source.kind()));
        let private = ControllerOptions { resync: secs(2), ..options(queue) };
        let private = Controller::new(source.kind(), source.clone(), log.clone(), private);
        let shared = InformerOptions { resync: secs(1), queue, ..InformerOptions::default() };
        let shared = SharedInformer::new(source.kind(), source.clone(), shared);
        shared.add_event_handler(shared_log.clone(), HandlerOptions::default()).unwrap();
        let mut informers = JoinSet::new();
        informers.spawn(Arc::clone(&private).run(stop.clone()));
        informers.spawn(Arc::clone(&shared).run(stop.clone()));
        let mut storm = JoinSet::new();
        for n in 0..3 {
            storm.spawn(hammer(source.clone(), 10 * seed + n));
        }
        storm.join_all().await;
        // Silent changes become visible with a list.
        source.reset_watch();
        tokio::time::sleep(secs(120)).await;
        stop.cancel();
        informers.join_all().await;
        for (log, store) in [(log, private.store()), (shared_log, shared.store())] {
            assert_eq!(log.faults(), [""; 0], "{queue:?}");
            assert_eq!(log.content(), source.content(), "{queue:?}");
            assert_eq!(store.len(), source.content().len());
            let received = log.lines();
            assert!(received.len() > 150, "a storm, not a breeze: {}", received.len());
        }
        assert_eq!(source.watchers(), 0);
    }
}
