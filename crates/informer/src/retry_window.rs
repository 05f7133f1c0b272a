//! Limits how long a repeated failure is retried.

use std::time::Duration;

use tokio::time::Instant;

/// A failure after this time without failures opens a new window.
const QUIET: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(crate) struct RetryWindow {
    length: Duration,
    first: Option<Instant>,
    last: Option<Instant>,
}

impl RetryWindow {
    /// A window of zero length allows no retries.
    pub(crate) fn new(length: Duration) -> Self {
        Self { length, first: None, last: None }
    }

    /// Notes a failure, and returns whether to retry.
    pub(crate) fn may_retry(&mut self) -> bool {
        let now = Instant::now();
        if self.length.is_zero() {
            return false;
        }
        if self.last.is_none_or(|last| now - last >= QUIET) {
            self.first = Some(now);
        }
        self.last = Some(now);
        if self.first.is_some_and(|first| now - first <= self.length) {
            return true;
        }
        (self.first, self.last) = (None, None);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn retries_end_with_the_window_until_a_quiet_minute() {
        assert!(!RetryWindow::new(Duration::ZERO).may_retry());
        let mut window = RetryWindow::new(Duration::from_secs(30));
        let mut at = async |wait| {
            tokio::time::sleep(Duration::from_secs(wait)).await;
            window.may_retry()
        };
        assert_eq!(
            [at(0).await, at(20).await, at(10).await, at(1).await, at(1).await],
            [true, true, true, false, true]
        );
        assert!(at(60).await, "a new window");
        assert!(at(30).await, "the end of the window");
    }
}
