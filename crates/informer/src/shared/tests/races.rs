//! Concurrent operations on several threads.

use super::*;
use crate::backoff::random;

/// A handler that counts existing objects, and its count.
fn balance() -> (HandlerFuncs<Pod>, Arc<AtomicUsize>) {
    let balance = Arc::new(AtomicUsize::new(0));
    let (added, deleted) = (Arc::clone(&balance), Arc::clone(&balance));
    let handler = HandlerFuncs::new()
        .with_add(move |_, _| {
            added.fetch_add(1, Ordering::Relaxed);
        })
        .with_delete(move |_| assert_ne!(deleted.fetch_sub(1, Ordering::Relaxed), 0));
    (handler, balance)
}

#[test]
fn a_hundred_workers_add_and_remove_handlers_until_the_informer_stops() {
    on_threads(4, async {
        let rig = Arc::new(Rig::new(&[]));
        let running = rig.run();
        let workers = (0..100).map(|n| {
            let rig = Arc::clone(&rig);
            tokio::spawn(async move {
                let mut mine = Vec::new();
                // Until adding fails.
                for round in 0.. {
                    let (checker, balance) = balance();
                    let Ok(registration) = rig.informer.add_event_handler(checker, HandlerOptions::default())
                    else {
                        break;
                    };
                    mine.push((balance, registration));
                    if mine.len() > 1 {
                        let (_, registration) = mine.swap_remove((n + round) % mine.len());
                        rig.informer.remove_event_handler(&registration);
                    }
                    tokio::task::yield_now().await;
                }
                for (balance, registration) in mine {
                    registration.stopped().await;
                    assert_eq!(balance.load(Ordering::Relaxed), rig.informer.store().len());
                }
            })
        });
        let workers: Vec<_> = workers.collect();
        let mut random = random(Some(1));
        for n in 0..10_000_u32 {
            let pod = pod(&format!("p{}", random.usize(..50)));
            if random.usize(..3) == 0 {
                rig.source.delete(pod);
            } else {
                rig.source.apply(pod);
            }
            if n % 20 == 0 {
                tokio::task::yield_now().await;
            }
        }
        rig.stop(running).await;
        for worker in workers {
            worker.await.unwrap();
        }
        assert!(rig.informer.registrations().is_empty());
    });
}

#[test]
fn settings_and_handlers_can_race_the_start() {
    on_threads(4, async {
        for _ in 0..200 {
            let rig = Arc::new(Rig::new(&["a"]));
            let transformed = Arc::new(AtomicUsize::new(0));
            let setter = {
                let (rig, transformed) = (Arc::clone(&rig), Arc::clone(&transformed));
                tokio::spawn(async move {
                    let transform = move |_: &mut Pod| {
                        transformed.fetch_add(1, Ordering::Relaxed);
                    };
                    let set = rig.informer.set_transform(transform);
                    let _ = rig.informer.set_watch_error_handler(Arc::new(|_, _| {}));
                    set.is_ok()
                })
            };
            let adder = {
                let rig = Arc::clone(&rig);
                tokio::spawn(async move { rig.log(HandlerOptions::default()) })
            };
            let running = rig.run();
            let (log, registration) = adder.await.unwrap();
            registration.synced().await;
            assert_eq!(log.lines(), ["add ns/a 2 initial"]);
            assert_eq!(transformed.load(Ordering::Relaxed), usize::from(setter.await.unwrap()));
            rig.stop(running).await;
        }
    });
}
