use std::cell::{Cell, RefCell};

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::workqueue::parallelize_until;

#[tokio::test(start_paused = true)]
async fn every_piece_runs_once_within_the_worker_limit() {
    // Pieces, workers, pieces per chunk, and the expected concurrency.
    let cases = [
        (1_000, 10, 1, 10),
        (1_000, 10, 10, 10),
        (1_000, 10, 100, 10),
        (1_000, 10, 999, 2),
        (3, 10, 1, 3),
        (10, 3, 4, 3),
        (10, 1, 1, 1),
        (7, 0, 0, 1),
        (usize::from(u8::MAX), usize::MAX, usize::MAX, 1),
        (0, 10, 1, 0),
    ];
    for (pieces, workers, chunk_size, at_once) in cases {
        let counts = RefCell::new(vec![0; pieces]);
        let (running, most) = (Cell::new(0), Cell::new(0));
        parallelize_until(&CancellationToken::new(), workers, pieces, chunk_size, async |piece| {
            running.set(running.get() + 1);
            most.set(most.get().max(running.get()));
            tokio::time::sleep(ms(10)).await;
            counts.borrow_mut()[piece] += 1;
            running.set(running.get() - 1);
        })
        .await;
        assert!(counts.borrow().iter().all(|count| *count == 1), "{pieces} by {workers} and {chunk_size}");
        assert_eq!(most.get(), at_once, "{pieces} by {workers} and {chunk_size}");
    }
}

#[tokio::test(start_paused = true)]
async fn pieces_of_a_chunk_run_in_order_on_one_worker() {
    let order = RefCell::new(Vec::new());
    let start = Instant::now();
    parallelize_until(&CancellationToken::new(), 2, 5, 2, async |piece| {
        order.borrow_mut().push((start.elapsed().as_millis(), piece));
        tokio::time::sleep(ms(10)).await;
    })
    .await;
    assert_eq!(order.into_inner(), [(0, 0), (0, 2), (10, 1), (10, 3), (20, 4)]);
}

#[tokio::test(start_paused = true)]
async fn cancellation_finishes_started_pieces_and_starts_no_more() {
    let stop = CancellationToken::new();
    let (begun, finished) = (Mutex::new(0), Mutex::new(0));
    parallelize_until(&stop, 3, 100, 10, async |piece| {
        *begun.lock() += 1;
        tokio::time::sleep(ms(10)).await;
        if piece == 1 {
            stop.cancel();
        }
        tokio::time::sleep(ms(1)).await;
        *finished.lock() += 1;
    })
    .await;
    assert_eq!((*begun.lock(), *finished.lock()), (6, 6), "two pieces for each of three workers");

    let none = Cell::new(0);
    parallelize_until(&stop, 3, 100, 1, async |_| none.set(none.get() + 1)).await;
    assert_eq!(none.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn pieces_can_run_in_spawned_tasks() {
    let spawned = tokio::spawn(async {
        let names = ["a", "b", "c"];
        let done = Mutex::new(Vec::new());
        parallelize_until(&CancellationToken::new(), 2, names.len(), 1, async |piece| {
            let length = tokio::spawn(async move { names[piece].len() }).await.unwrap();
            done.lock().push(length);
        })
        .await;
        done.into_inner().len()
    });
    assert_eq!(spawned.await.unwrap(), 3);
}
