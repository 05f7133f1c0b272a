//! A cache of the API server's review results, so that frequent scrapes cost it nothing.
//!
//! A cache library such as moka would not make this smaller: expiry per entry, coalesced requests
//! and a bound are some forty lines.

use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use tokio::sync::OnceCell;
use tokio::time::Instant;

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

/// A result and its expiry. Concurrent requests with the same key wait for it.
type Entry<T> = OnceCell<(T, Instant)>;

/// A bounded cache of results, each with its own time to live.
pub(super) struct Answers<T> {
    kept: Mutex<HashMap<Key, Arc<Entry<T>>, RandomState>>,
    most: usize,
}

impl<T: Clone> Answers<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { kept: Mutex::default(), most }
    }

    /// The cached result, or the result of `ask`, which returns its time to live. Errors are not
    /// cached.
    pub(super) async fn get<E>(
        &self,
        key: Key,
        ask: impl Future<Output = Result<(T, Duration), E>>,
    ) -> Result<T, E> {
        let entry = self.entry(key);
        let answer = entry.get_or_try_init(|| async {
            let (answer, time_to_live) = ask.await?;
            Ok((answer, Instant::now() + time_to_live))
        });
        answer.await.map(|(answer, _)| answer.clone())
    }

    fn entry(&self, key: Key) -> Arc<Entry<T>> {
        let now = Instant::now();
        let mut kept = self.kept.lock();
        if let Some(entry) = kept.get(&key).filter(|entry| holds(entry, now)) {
            return Arc::clone(entry);
        }
        if kept.len() >= self.most {
            kept.retain(|_, entry| holds(entry, now));
        }
        // The cache is full of valid entries. The map's order is random, so users cannot choose
        // which entry is evicted.
        let too_many = (kept.len() + 1).saturating_sub(self.most);
        let gone: Vec<Key> = kept.keys().take(too_many).copied().collect();
        for key in gone {
            kept.remove(&key);
        }
        let entry = Arc::<Entry<T>>::default();
        kept.insert(key, Arc::clone(&entry));
        entry
    }
}

/// Whether the entry is valid or being requested.
fn holds<T>(entry: &Arc<Entry<T>>, now: Instant) -> bool {
    match entry.get() {
        Some((_, until)) => now < *until,
        None => Arc::strong_count(entry) > 1,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const SHORT: Duration = Duration::from_secs(10);

    async fn asked(answers: &Answers<usize>, question: &str, count: &AtomicUsize) -> usize {
        let ask = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok::<_, Infallible>((count.fetch_add(1, Ordering::SeqCst), SHORT))
        };
        answers.get(Key::of(question.as_bytes()), ask).await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_are_coalesced_and_results_expire() {
        let (answers, count) = (Answers::new(10), AtomicUsize::new(0));
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
        let (answers, count) = (Answers::new(3), AtomicUsize::new(0));
        for question in 0..20 {
            asked(&answers, &question.to_string(), &count).await;
            assert!(answers.kept.lock().len() <= 3);
        }
        assert_eq!(asked(&answers, "19", &count).await, 19, "the newest is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn errors_are_not_cached() {
        let answers = Answers::<u8>::new(3);
        let key = Key::of(b"x");
        assert_eq!(answers.get(key, async { Err("away") }).await, Err("away"));
        assert_eq!(answers.get(key, async { Ok::<_, &str>((7, SHORT)) }).await, Ok(7));
    }
}
