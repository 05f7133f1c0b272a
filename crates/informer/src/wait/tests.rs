//! Waiting, under a paused clock.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::*;
use crate::testing::log::CaughtLog;

/// Three conditions: met after 10 s, after a given time or never, and immediately.
fn three(second: Option<u64>) -> Vec<DoneChecker<'static>> {
    let middle = async move {
        match second {
            Some(secs) => sleep(Duration::from_secs(secs)).await,
            None => std::future::pending().await,
        }
    };
    vec![
        DoneChecker::new("first", sleep(Duration::from_secs(10))),
        DoneChecker::new("second", middle),
        DoneChecker::new("last", async {}),
    ]
}

async fn after(secs: u64, cause: &'static str) -> &'static str {
    sleep(Duration::from_secs(secs)).await;
    cause
}

#[tokio::test(start_paused = true)]
async fn conditions_are_awaited_concurrently_and_logged_when_met() {
    let log = CaughtLog::new();
    let start = Instant::now();
    wait_for("my-caches", three(Some(5)), after(60, "never")).await.unwrap();
    assert_eq!(start.elapsed().as_secs(), 10);
    let done = |instance| format!("INFO done waiting what=\"my-caches\" instance=\"{instance}\"");
    let waiting = "INFO waiting what=\"my-caches\"".to_owned();
    assert_eq!(log.lines(), [waiting, done("last"), done("second"), done("first")]);
}

#[tokio::test(start_paused = true)]
async fn wait_for_nothing_returns_at_once_and_unnamed_waits_log_nothing() {
    let log = CaughtLog::new();
    wait_for("", three(Some(5)), after(60, "never")).await.unwrap();
    wait_for("", [], after(60, "never")).await.unwrap();
    wait_for("", three(None), after(60, "patience")).await.unwrap_err();
    assert_eq!(log.lines(), Vec::<String>::new());
    let start = Instant::now();
    wait_for("my-caches", [], after(60, "never")).await.unwrap();
    assert!(start.elapsed().is_zero());
    assert_eq!(log.lines(), ["INFO waiting what=\"my-caches\""]);
}

#[tokio::test(start_paused = true)]
async fn giving_up_reports_unmet_conditions_and_the_cause() {
    let table: [(u64, &'static str, &[&str]); 3] = [
        (60, "deadline exceeded", &["second"]),
        (5, "go fish", &["first", "second"]),
        // Given up from the start; met conditions still count.
        (0, "cancelled", &["first", "second"]),
    ];
    for (patience, cause, missing) in table {
        let log = CaughtLog::new();
        let start = Instant::now();
        let give_up = async {
            if patience > 0 {
                sleep(Duration::from_secs(patience)).await;
            }
            std::io::Error::other(cause)
        };
        let error = wait_for("my-caches", three(None), give_up).await.unwrap_err();
        assert_eq!(start.elapsed().as_secs(), patience);
        assert_eq!(error.unfinished, missing);
        let text = format!("gave up waiting for my-caches: {}: {cause}", missing.join(", "));
        assert_eq!(error.to_string(), text);
        assert!(error.cause.downcast_ref::<std::io::Error>().is_some(), "the cause is unchanged");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some(cause));
        let last = log.lines().pop().unwrap();
        assert_eq!(
            last,
            format!("INFO gave up waiting what=\"my-caches\" cause={cause} instances={missing:?}")
        );
        assert!(log.lines().iter().any(|line| line.contains("\"last\"")), "{:?}", log.lines());
    }
    let never = ["b", "c", "a"].map(|name| DoneChecker::new(name, std::future::pending()));
    let error = wait_for("all", never, after(60, "deadline exceeded")).await.unwrap_err();
    assert_eq!(error.unfinished, ["a", "b", "c"]);
}
