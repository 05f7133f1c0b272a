use tokio::time::advance;

use super::*;
use crate::workqueue::Histogram;

#[tokio::test(start_paused = true)]
async fn queue_metrics_follow_a_key() {
    let queue = WorkQueue::builder().name("pods").build();
    queue.add("a");
    let metrics = queue.metrics();
    assert_eq!((&*metrics.name, metrics.depth, metrics.adds, metrics.retries), ("pods", 1, 1, 0));
    advance(ms(50)).await;
    queue.add("a");
    assert_eq!(queue.metrics().adds, 1, "an add without effect does not count");

    let item = take(&queue);
    let metrics = queue.metrics();
    assert_eq!((metrics.depth, metrics.queue_duration.count()), (0, 1));
    assert_eq!(metrics.queue_duration.sum(), ms(50), "since the first add");

    advance(ms(25)).await;
    queue.add("a");
    let metrics = queue.metrics();
    assert_eq!((metrics.depth, metrics.adds, queue.len()), (1, 2, 0), "processed and queued again");
    assert_eq!((metrics.unfinished_work, metrics.longest_running_processor), (ms(25), ms(25)));

    drop(item);
    let metrics = queue.metrics();
    assert_eq!((metrics.work_duration.count(), metrics.work_duration.sum()), (1, ms(25)));
    assert_eq!((metrics.unfinished_work, metrics.longest_running_processor), (ms(0), ms(0)));

    advance(ms(10)).await;
    drop(take(&queue));
    let metrics = queue.metrics();
    assert_eq!(metrics.queue_duration.sum(), ms(60), "the wait for the worker counts");
    assert_eq!((metrics.depth, metrics.work_duration.count()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn unfinished_work_is_measured_during_drains_too() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let a = take(&queue);
    advance(ms(300)).await;
    let b = take(&queue);
    advance(ms(100)).await;
    queue.shut_down();
    let metrics = queue.metrics();
    assert_eq!((metrics.unfinished_work, metrics.longest_running_processor), (ms(500), ms(400)));
    drop(a);
    assert_eq!(queue.metrics().longest_running_processor, ms(100));
    drop(b);
    assert_eq!(queue.metrics().unfinished_work, ms(0));
}

#[tokio::test(start_paused = true)]
async fn delayed_adds_count_as_retries_and_wait_since_due() {
    let queue = WorkQueue::new();
    queue.add_after("a", ms(500));
    queue.add_after("a", ms(400));
    queue.add_rate_limited("b");
    queue.add_after("c", Duration::ZERO);
    let metrics = queue.metrics();
    assert_eq!(
        (metrics.retries, metrics.adds, metrics.depth),
        (4, 1, 1),
        "a key that is not due is not in the queue"
    );
    advance(ms(405)).await;
    assert_eq!(queue.metrics().adds, 3);
    for waited in [405, 400, 5] {
        let before = queue.metrics().queue_duration.sum();
        drop(take(&queue));
        assert_eq!(queue.metrics().queue_duration.sum(), before + ms(waited));
    }
}

#[test]
fn histogram_bounds_are_inclusive_powers_of_ten() {
    let mut histogram = Histogram::default();
    let durations = [
        Duration::ZERO,
        Duration::from_nanos(10),
        Duration::from_nanos(11),
        ms(1),
        ms(999),
        Duration::from_secs(10),
        Duration::from_secs(11),
    ];
    for duration in durations {
        histogram.observe(duration);
    }
    let counts: Vec<_> = histogram.cumulative().map(|(_, count)| count).collect();
    assert_eq!(counts, [2, 3, 3, 3, 3, 4, 4, 4, 5, 6]);
    assert_eq!((histogram.count(), histogram.sum()), (7, durations.iter().sum()));
    assert!(histogram.cumulative().map(|(bound, _)| bound).eq(Histogram::BOUNDS));
}
