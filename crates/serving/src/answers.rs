//! A cache of the API server's review results, so that frequent scrapes cost it nothing, and the
//! lines in which requests wait for reviews.
//!
//! Callers whose last review was good have a line of their own, and their results are evicted last.
//! So strangers with made-up tokens get in the way of each other only.
//!
//! A cache library such as moka would not make this smaller: expiry per entry, coalesced requests
//! and a bound are some forty lines.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::{OnceCell, Semaphore};
use tokio::time::{Instant, timeout};

use super::review::{ReviewError, TIMEOUT};

/// Maximum number of reviews in flight per line: made-up tokens must not overload the API server.
const MAX_IN_FLIGHT: usize = 16;
/// Maximum number of requests that wait per line, in addition to those in flight.
const MAX_WAITING: usize = 64;

/// The key of a request: a hash, because tokens must not stay in memory longer than their request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key([u8; 32]);

impl Key {
    /// The key of this request.
    pub(super) fn of(question: &[u8]) -> Self {
        let mut key = [0; 32];
        key.copy_from_slice(digest(&SHA256, question).as_ref());
        Self(key)
    }
}

/// A cached result. Concurrent requests with the same key wait for it.
struct Entry<T> {
    /// The result and its expiry.
    result: OnceCell<(T, Instant)>,
    /// Whether the result before this one was good.
    was_good: bool,
}

/// Where requests wait for reviews.
struct ReviewQueue {
    places: Semaphore,
    in_flight: Semaphore,
}

impl Default for ReviewQueue {
    fn default() -> Self {
        let places = Semaphore::new(MAX_IN_FLIGHT + MAX_WAITING);
        Self { places, in_flight: Semaphore::new(MAX_IN_FLIGHT) }
    }
}

/// A bounded cache of results, each with its own time to live.
pub(super) struct Answers<T> {
    kept: Mutex<HashMap<Key, Arc<Entry<T>>, RandomState>>,
    most: usize,
    /// Whether a result speaks for the caller.
    is_good: fn(&T) -> bool,
    known: ReviewQueue,
    strangers: ReviewQueue,
}

impl<T: Clone> Answers<T> {
    pub(super) fn new(most: usize, is_good: fn(&T) -> bool) -> Self {
        Self {
            kept: Mutex::default(),
            most,
            is_good,
            known: ReviewQueue::default(),
            strangers: ReviewQueue::default(),
        }
    }

    /// The cached result, or the result of `ask`, which returns its time to live. Errors are not
    /// cached.
    pub(super) async fn get(
        &self,
        key: Key,
        ask: impl Future<Output = Result<(T, Duration), ReviewError>>,
    ) -> Result<T, ReviewError> {
        let line = match self.cached(&key) {
            Ok(answer) => return Ok(answer),
            Err(line) => line,
        };
        let _place = line.places.try_acquire().map_err(|_| ReviewError::Busy)?;
        let entry = self.entry(key);
        let answer = entry.result.get_or_try_init(|| async {
            let permit = timeout(TIMEOUT, line.in_flight.acquire()).await;
            // The semaphore is never closed.
            let _permit = permit.map_err(|_| ReviewError::Late)?;
            let (answer, time_to_live) = ask.await?;
            Ok((answer, Instant::now() + time_to_live))
        });
        answer.await.map(|(answer, _)| answer.clone())
    }

    /// The valid result of this key, or the line in which to wait for one.
    fn cached(&self, key: &Key) -> Result<T, &ReviewQueue> {
        let kept = self.kept.lock();
        let Some(entry) = kept.get(key) else { return Err(&self.strangers) };
        match entry.result.get() {
            Some((answer, until)) if Instant::now() < *until => Ok(answer.clone()),
            _ if self.speaks_for_caller(entry) => Err(&self.known),
            _ => Err(&self.strangers),
        }
    }

    /// The valid entry of this key, or a new one.
    fn entry(&self, key: Key) -> Arc<Entry<T>> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        let last = kept.get(&key);
        if let Some(entry) = last.filter(|entry| is_current(entry, now)) {
            return Arc::clone(entry);
        }
        let was_good = last.is_some_and(|entry| self.speaks_for_caller(entry));
        kept.remove(&key);
        if kept.len() >= self.most {
            self.make_room(&mut kept, now);
        }
        let entry = Arc::new(Entry { result: OnceCell::new(), was_good });
        kept.insert(key, Arc::clone(&entry));
        entry
    }

    /// Evicts what is no longer needed, or else one entry. The map's order is random, so callers
    /// cannot choose which one.
    fn make_room(&self, kept: &mut HashMap<Key, Arc<Entry<T>>, RandomState>, now: Instant) {
        kept.retain(|_, entry| is_current(entry, now) || self.speaks_for_caller(entry));
        if kept.len() < self.most {
            return;
        }
        let worst =
            kept.iter().min_by_key(|(_, entry)| (self.speaks_for_caller(entry), is_current(entry, now)));
        if let Some(worst) = worst.map(|(key, _)| *key) {
            kept.remove(&worst);
        }
    }

    fn speaks_for_caller(&self, entry: &Entry<T>) -> bool {
        entry.result.get().map_or(entry.was_good, |(answer, _)| (self.is_good)(answer))
    }
}

/// Whether the entry is valid or being requested.
fn is_current<T>(entry: &Arc<Entry<T>>, now: Instant) -> bool {
    match entry.result.get() {
        Some((_, until)) => now < *until,
        None => Arc::strong_count(entry) > 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::FutureExt as _;
    use futures::future::join_all;

    use super::*;

    const SHORT: Duration = Duration::from_secs(10);

    /// Even numbers are good.
    fn answers(most: usize) -> Answers<usize> {
        Answers::new(most, |number| number.is_multiple_of(2))
    }

    fn key(question: impl ToString) -> Key {
        Key::of(question.to_string().as_bytes())
    }

    async fn asked(answers: &Answers<usize>, question: &str, count: &AtomicUsize) -> usize {
        let ask = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok((count.fetch_add(1, Ordering::SeqCst), SHORT))
        };
        answers.get(key(question), ask).await.unwrap()
    }

    /// Gives this answer at once.
    async fn received(answers: &Answers<usize>, question: impl ToString, answer: usize) -> usize {
        answers.get(key(question), async { Ok((answer, SHORT)) }).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_coalesced_and_results_expire() {
        let (answers, count) = (answers(10), AtomicUsize::new(0));
        let both = tokio::join!(asked(&answers, "a", &count), asked(&answers, "a", &count));
        assert_eq!(both, (0, 0));
        assert_eq!(asked(&answers, "b", &count).await, 1);
        tokio::time::advance(Duration::from_secs(8)).await;
        assert_eq!(asked(&answers, "a", &count).await, 0);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(asked(&answers, "a", &count).await, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_cache_is_bounded() {
        let (answers, count) = (answers(3), AtomicUsize::new(0));
        for question in 0..20 {
            asked(&answers, &question.to_string(), &count).await;
            assert!(answers.kept.lock().len() <= 3);
        }
        assert_eq!(asked(&answers, "19", &count).await, 19, "the newest is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_not_cached() {
        let answers = answers(3);
        assert_eq!(answers.get(key("x"), async { Err(ReviewError::Late) }).await, Err(ReviewError::Late));
        assert_eq!(received(&answers, "x", 7).await, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn good_results_stay_however_many_strangers_come() {
        let answers = answers(10);
        received(&answers, "good", 2).await;
        for stranger in 0..100 {
            received(&answers, stranger, 1).await;
        }
        assert_eq!(received(&answers, "good", 4).await, 2);
        // Of good results, the expired ones are evicted first.
        tokio::time::advance(SHORT).await;
        for number in 0..9 {
            received(&answers, number, 6).await;
        }
        received(&answers, "another", 6).await;
        for number in 0..9 {
            assert_eq!(received(&answers, number, 8).await, 6);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_wait_in_a_bounded_line_of_their_own() {
        let answers = answers(1000);
        received(&answers, "good", 2).await;
        tokio::time::advance(SHORT).await;
        let in_flight = AtomicUsize::new(0);
        let hanging = |question| {
            let ask = async {
                in_flight.fetch_add(1, Ordering::SeqCst);
                std::future::pending().await
            };
            answers.get(key(question), ask)
        };
        let mut line = Box::pin(join_all((0..MAX_IN_FLIGHT + MAX_WAITING).map(hanging)));
        assert!(line.as_mut().now_or_never().is_none());
        assert_eq!(in_flight.load(Ordering::SeqCst), MAX_IN_FLIGHT);
        let kept = answers.kept.lock().len();
        assert_eq!(hanging(999).await, Err(ReviewError::Busy));
        assert_eq!(answers.kept.lock().len(), kept, "a request that is turned away leaves nothing");
        // The same question costs no review, but waits, too.
        assert_eq!(hanging(0).await, Err(ReviewError::Busy));
        assert_eq!(received(&answers, "good", 4).await, 4, "known callers have another line");
        let late = tokio::time::timeout(TIMEOUT + Duration::from_secs(1), line.as_mut()).await;
        assert!(late.is_err(), "reviews in flight have a timeout elsewhere");
        drop(line);
        assert_eq!(received(&answers, "now there is room", 1).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_review_does_not_make_a_known_caller_a_stranger() {
        let answers = answers(3);
        received(&answers, "good", 2).await;
        for _ in 0..2 {
            tokio::time::advance(SHORT).await;
            answers.get(key("good"), async { Err(ReviewError::Late) }).await.unwrap_err();
            assert!(answers.entry(key("good")).was_good);
        }
        received(&answers, "good", 1).await;
        tokio::time::advance(SHORT).await;
        assert!(!answers.entry(key("good")).was_good, "a bad result counts");
    }
}
