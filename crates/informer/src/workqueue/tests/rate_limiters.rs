use tokio::time::advance;

use super::*;
use crate::workqueue::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter,
    RateLimiter, WithMaxWaitRateLimiter, default_controller_rate_limiter,
};

fn waits(limiter: &mut impl RateLimiter<&'static str>, key: &'static str, count: usize) -> Vec<u128> {
    (0..count).map(|_| limiter.when(&key).as_millis()).collect()
}

fn exponential(base: Duration, max: Duration) -> ItemExponentialFailureRateLimiter<&'static str> {
    ItemExponentialFailureRateLimiter::new(base, max)
}

#[test]
fn delays_of_a_key_double_until_it_is_forgotten() {
    let mut limiter = exponential(ms(1), ms(1_000));
    assert_eq!(waits(&mut limiter, "one", 5), [1, 2, 4, 8, 16]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    assert_eq!(waits(&mut limiter, "two", 2), [1, 2], "keys have separate delays");
    assert_eq!(limiter.num_requeues(&"two"), 2);
    limiter.forget(&"one");
    assert_eq!((limiter.num_requeues(&"one"), limiter.num_requeues(&"two")), (0, 2));
    assert_eq!(waits(&mut limiter, "one", 1), [1]);
    assert_eq!(
        waits(&mut limiter, "long", 12)[8..],
        [256, 512, 1_000, 1_000],
        "the longest delay is the cap"
    );
}

#[test]
fn overflowing_delays_are_capped() {
    let caps = [(ms(1), ms(1_000_000)), (Duration::from_secs(1 << 40), Duration::MAX), (ms(9), ms(3))];
    for (base, max) in caps {
        let mut limiter = exponential(base, max);
        let mut last = Duration::ZERO;
        for failure in 0..1_000 {
            let wait = limiter.when(&"a");
            assert!(wait >= last && wait <= max, "{wait:?} after {last:?} at failure {failure}");
            last = wait;
        }
        assert_eq!(last, max);
    }
    let mut none = exponential(Duration::ZERO, ms(1_000));
    assert!((0..200).all(|_| none.when(&"a").is_zero()), "a zero delay stays zero");
}

#[test]
fn fast_attempts_are_followed_by_slow_ones() {
    let mut limiter = ItemFastSlowRateLimiter::new(ms(5), ms(10_000), 3);
    assert_eq!(waits(&mut limiter, "one", 5), [5, 5, 5, 10_000, 10_000]);
    assert_eq!(waits(&mut limiter, "two", 4), [5, 5, 5, 10_000]);
    assert_eq!(limiter.num_requeues(&"one"), 5);
    limiter.forget(&"one");
    assert_eq!((limiter.num_requeues(&"one"), limiter.num_requeues(&"two")), (0, 4));
    assert_eq!(waits(&mut limiter, "one", 1), [5]);
}

#[test]
fn max_of_limiters_uses_the_longest_delay_and_asks_all() {
    let mut limiter = MaxOfRateLimiter::new([
        Box::new(ItemFastSlowRateLimiter::new(ms(5), ms(3_000), 3)) as Box<dyn RateLimiter<_>>,
        Box::new(exponential(ms(1), ms(1_000))),
    ]);
    assert_eq!(waits(&mut limiter, "one", 5), [5, 5, 5, 3_000, 3_000]);
    assert_eq!(waits(&mut limiter, "two", 3), [5, 5, 5]);
    assert_eq!((limiter.num_requeues(&"one"), limiter.num_requeues(&"two")), (5, 3));
    limiter.forget(&"one");
    assert_eq!(limiter.num_requeues(&"one"), 0);
    assert_eq!(waits(&mut limiter, "one", 1), [5]);
    assert!(MaxOfRateLimiter::new([]).when(&"one").is_zero());
}

#[test]
fn delays_can_be_limited() {
    let mut limiter = WithMaxWaitRateLimiter::new(exponential(ms(1), ms(1_000_000)), ms(10));
    assert_eq!(waits(&mut limiter, "a", 6), [1, 2, 4, 8, 10, 10]);
    assert_eq!(limiter.num_requeues(&"a"), 6);
    limiter.forget(&"a");
    assert_eq!((limiter.num_requeues(&"a"), limiter.when(&"a")), (0, ms(1)));
}

#[tokio::test(start_paused = true)]
async fn a_bucket_allows_its_burst_then_one_retry_per_interval() {
    let mut bucket = BucketRateLimiter::new(10.0, 3);
    assert_eq!(waits(&mut bucket, "a", 5), [0, 0, 0, 100, 200]);
    advance(ms(250)).await;
    assert_eq!(waits(&mut bucket, "b", 2), [50, 150], "all keys share the bucket, including reserved tokens");
    advance(ms(60_000)).await;
    assert_eq!(waits(&mut bucket, "a", 4), [0, 0, 0, 100], "the bucket does not exceed its burst");
    RateLimiter::<&str>::forget(&mut bucket, &"a");
    assert_eq!(bucket.num_requeues(&"a"), 0);
    assert_eq!(waits(&mut bucket, "a", 1), [200], "forgetting has no effect");
}

#[tokio::test(start_paused = true)]
async fn buckets_with_extreme_rates_delay_forever_or_never() {
    for rate in [0.0, -1.0, f64::NAN, f64::NEG_INFINITY] {
        let mut bucket = BucketRateLimiter::new(rate, 1);
        let waits = [bucket.when(&"a"), bucket.when(&"a")];
        assert_eq!(waits, [Duration::ZERO, Duration::MAX], "{rate}");
        advance(ms(1_000_000)).await;
        assert_eq!(bucket.when(&"a"), Duration::MAX, "{rate}");
    }
    assert_eq!(BucketRateLimiter::new(10.0, 0).when(&"a"), Duration::MAX);
    assert_eq!(BucketRateLimiter::new(f64::INFINITY, 0).when(&"a"), Duration::ZERO);
    let mut slow = BucketRateLimiter::new(f64::MIN_POSITIVE, 1);
    assert_eq!([slow.when(&"a"), slow.when(&"a")], [Duration::ZERO, Duration::MAX]);
}

#[tokio::test(start_paused = true)]
async fn the_default_limiter_delays_one_key_and_many_keys() {
    let mut limiter = default_controller_rate_limiter::<u32>();
    let one: Vec<_> = (0..20).map(|_| limiter.when(&0).as_millis()).collect();
    assert_eq!(one[..5], [5, 10, 20, 40, 80]);
    assert_eq!(one[17..], [655_360, 1_000_000, 1_000_000]);
    let many: Vec<_> = (1..=90).map(|key| limiter.when(&key).as_millis()).collect();
    assert!(many[..80].iter().all(|wait| *wait == 5), "{many:?}");
    assert_eq!(many[80..83], [100, 200, 300], "the bucket of 100 is empty");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_key_follows_its_limiter_until_forgotten() {
    let queue = WorkQueue::builder().rate_limiter(exponential(ms(1), ms(1_000))).build();
    for wait in [1, 2, 4] {
        queue.add_rate_limited("one");
        let instant = Duration::from_nanos(1);
        advance(ms(wait).abs_diff(instant)).await;
        assert!(is_waiting(&queue));
        advance(instant).await;
        assert_eq!(*take(&queue), "one");
    }
    queue.add_rate_limited("two");
    assert_eq!((queue.num_requeues(&"one"), queue.num_requeues(&"two")), (3, 1));
    queue.add_rate_limited("one");
    queue.forget(&"one");
    assert_eq!(queue.num_requeues(&"one"), 0);
    advance(ms(8)).await;
    assert_eq!([*take(&queue), *take(&queue)], ["two", "one"], "a forgotten key is still delivered");
    queue.add_rate_limited("one");
    advance(ms(1)).await;
    let item = take(&queue);
    assert_eq!(item.num_requeues(), 1);
    item.add_rate_limited();
    assert_eq!(item.num_requeues(), 2);
    item.forget();
    assert_eq!(item.num_requeues(), 0);
}
