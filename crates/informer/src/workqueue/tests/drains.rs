use super::*;
use crate::testing::settle;

fn drain(queue: &WorkQueue<&'static str>) -> tokio::task::JoinHandle<()> {
    let queue = queue.clone();
    tokio::spawn(async move { queue.shut_down_with_drain().await })
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_waiting_and_processed_keys() {
    let queue = WorkQueue::new();
    for key in ["a", "b", "c"] {
        queue.add(key);
    }
    let (a, b) = (take(&queue), take(&queue));
    let drained = drain(&queue);
    settle().await;
    assert!(queue.is_shutting_down());
    queue.add("d");
    drop(a);
    drop(b);
    settle().await;
    assert!(!drained.is_finished(), "c was added before the end");
    let c = take(&queue);
    assert!(is_at_its_end(&queue), "d was not");
    settle().await;
    assert!(!drained.is_finished(), "c is processed");
    drop(c);
    drained.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_plain_shut_down_leaves_waiting_keys_to_workers() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let a = take(&queue);
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move {
            drop(queue.get().await);
            queue.get().await.is_none()
        }
    });
    queue.shut_down();
    assert!(waiting.await.unwrap(), "b first, then the end");
    drop(a);
    assert!(is_at_its_end(&queue));
}

#[tokio::test(start_paused = true)]
async fn a_plain_shut_down_ends_waiting_drains() {
    let queue = WorkQueue::new();
    queue.add("a");
    queue.add("b");
    let a = take(&queue);
    let drained = drain(&queue);
    settle().await;
    assert!(!drained.is_finished());
    queue.shut_down();
    drained.await.unwrap();
    drop(a);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_processed_is_still_drained() {
    let queue = WorkQueue::new();
    queue.add("a");
    let first = take(&queue);
    queue.add("a");
    let drained = drain(&queue);
    settle().await;
    drop(first);
    settle().await;
    assert!(!drained.is_finished(), "the key is queued once more");
    let second = take(&queue);
    queue.add("a");
    drop(second);
    drained.await.unwrap();
    assert!(is_at_its_end(&queue));
}

#[tokio::test(start_paused = true)]
async fn draining_an_empty_queue_returns_at_once_and_wakes_workers() {
    let queue = WorkQueue::<&'static str>::new();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    settle().await;
    queue.shut_down_with_drain().await;
    for waiting in waiting {
        assert!(waiting.await.unwrap());
    }
    queue.shut_down_with_drain().await;
}
