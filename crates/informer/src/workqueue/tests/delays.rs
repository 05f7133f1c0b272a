use tokio::time::{Instant, advance};

use super::*;

/// The next keys, each with the time at which a waiting worker received it.
async fn arrivals(
    queue: &WorkQueue<&'static str>,
    since: Instant,
    count: usize,
) -> Vec<(&'static str, u128)> {
    let mut arrivals = Vec::new();
    for _ in 0..count {
        let item = queue.get().await.expect("a key");
        arrivals.push((*item, since.elapsed().as_millis()));
    }
    arrivals
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_is_handed_out_exactly_when_due() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(50));
    assert!(queue.is_empty() && is_waiting(&queue));
    advance(ms(49)).await;
    assert!(is_waiting(&queue));
    advance(ms(1)).await;
    assert_eq!(queue.len(), 1, "no worker had to wait for it");
    drop(take(&queue));
    // Far beyond client-go's check every 10 s.
    advance(ms(60_000)).await;
    assert!(is_waiting(&queue), "once");
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_delays_applies() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("later, then earlier", ms(70));
    queue.add_after("later, then earlier", ms(30));
    queue.add_after("earlier, then later", ms(50));
    queue.add_after("earlier, then later", ms(90));
    let expected = [("later, then earlier", 30), ("earlier, then later", 50)];
    assert_eq!(arrivals(&queue, start, 2).await, expected);
    advance(ms(100)).await;
    assert!(is_waiting(&queue), "later due times are discarded");
    // A key that was delivered can be delayed again.
    queue.add_after("earlier, then later", ms(40));
    assert_eq!(arrivals(&queue, Instant::now(), 1).await, [("earlier, then later", 40)]);
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_arrive_in_order_of_due_time() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    for (key, delay) in [("c", 300), ("a", 100), ("d", 300), ("b", 200), ("far", u64::MAX)] {
        queue.add_after(key, ms(delay));
    }
    queue.add_after("never", Duration::MAX);
    let expected = [("a", 100), ("b", 200), ("c", 300), ("d", 300)];
    assert_eq!(arrivals(&queue, start, 4).await, expected);
    assert!(is_waiting(&queue));
}

#[tokio::test(start_paused = true)]
async fn due_keys_precede_keys_added_later() {
    let queue = WorkQueue::new();
    queue.add_after("late", ms(20));
    queue.add_after("early", ms(10));
    advance(ms(30)).await;
    queue.add("now");
    assert_eq!([*take(&queue), *take(&queue), *take(&queue)], ["early", "late", "now"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_waiting_for_a_late_key_wakes_for_an_earlier_one() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    queue.add_after("late", ms(1_000));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { arrivals(&queue, start, 3).await }
    });
    crate::testing::settle().await;
    queue.add_after("early", ms(9));
    queue.add_after("at once", Duration::ZERO);
    assert_eq!(worker.await.unwrap(), [("at once", 1), ("early", 10), ("late", 1_000)]);
}

#[tokio::test(start_paused = true)]
async fn two_delays_ending_together_wake_two_workers() {
    let queue = WorkQueue::new();
    let start = Instant::now();
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let item = queue.get().await.unwrap();
                // Kept, so that neither worker receives both.
                tokio::time::sleep(ms(100)).await;
                (*item, start.elapsed().as_millis())
            })
        })
        .collect();
    crate::testing::settle().await;
    queue.add_after("a", ms(19));
    queue.add_after("b", ms(19));
    for (worker, key) in workers.into_iter().zip(["a", "b"]) {
        assert_eq!(worker.await.unwrap(), (key, 120));
    }
}

#[tokio::test(start_paused = true)]
async fn a_delay_may_end_while_its_key_is_processed() {
    let queue = WorkQueue::new();
    queue.add("a");
    let item = take(&queue);
    item.add_after(ms(10));
    advance(ms(20)).await;
    assert!(is_waiting(&queue));
    drop(item);
    assert_eq!(*take(&queue), "a");
}

#[tokio::test(start_paused = true)]
async fn shut_down_discards_delayed_keys() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(10));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { queue.get().await.is_none() }
    });
    crate::testing::settle().await;
    queue.shut_down();
    assert!(worker.await.unwrap(), "the worker does not wait for the due time");
    queue.add_after("b", ms(1));
    queue.add_after("c", Duration::ZERO);
    advance(ms(20)).await;
    assert!(is_at_its_end(&queue));
    assert_eq!(queue.metrics().retries, 1, "keys due after the shutdown are dropped");
}
