//! The reflector's log.

use std::io;

use super::*;
use crate::testing::log::CaughtLog;

/// Starts a reflector without an error handler.
fn start(source: Scripted<Pod>, options: ReflectorOptions) -> JoinHandle<()> {
    let reflector =
        Reflector::new(Arc::new(Typed::<Pod>::new()), Arc::new(source), queue(), Arc::default(), options);
    tokio::spawn(reflector.run(CancellationToken::new()))
}

#[tokio::test(start_paused = true)]
async fn missing_end_of_initial_events_is_logged_when_quiet() {
    let log = CaughtLog::new();
    let watch = |_, _: &_| {
        let script = Script::stay_after(vec![]);
        let script = script.then(Duration::from_secs(12), WatchEvent::Added(pod("a", "1")));
        let script = script.then(Duration::from_secs(6), WatchEvent::Added(pod("b", "2")));
        Ok(script.then(Duration::from_secs(27), bookmark("5", true)))
    };
    let source = Scripted::new(|_, _| unreachable!("no list is needed"), watch);
    start(source, ReflectorOptions { initial_events_timeout: None, ..ReflectorOptions::default() });
    sleep(120.0).await;
    let warnings = log.lines_of("WARN");
    // At 10, 20, 30 and 40 seconds; at 20 the last event was two seconds ago. Nothing after the
    // end.
    let expected = [
        ("WARN no initial events or final bookmark yet", "elapsed=10"),
        ("WARN no more initial events", "quiet=1"),
        ("WARN no more initial events", "quiet=2"),
    ];
    assert_eq!(warnings.len(), expected.len(), "{warnings:?}");
    for (warning, (message, age)) in warnings.iter().zip(expected) {
        assert!(warning.starts_with(message) && warning.contains(age), "{warning}");
        assert!(warning.contains("v1/pods"), "{warning}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_error_handler_errors_are_logged() {
    let log = CaughtLog::new();
    let source = Scripted::new(
        |n, _| if n == 0 { Err(refused(403, "Forbidden")) } else { Ok(page("10", &[])) },
        |n, _| if n == 0 { Err(refused(410, "Expired")) } else { Ok(Script::stay_after(vec![])) },
    );
    start(source, ReflectorOptions { watch_list: false, ..ReflectorOptions::default() });
    sleep(30.0).await;
    let errors = log.lines_of("ERROR");
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].contains("v1/pods")
            && errors[0].contains("failed to list: the server rejected the request: 403")
    );
    let expired = log.lines_of("DEBUG");
    assert!(
        expired.iter().any(|line| line.contains("failed to watch: the server rejected the request: 410")),
        "{expired:?}"
    );
    assert!(log.lines_of("WARN").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_replaces_the_log() {
    let log = CaughtLog::new();
    let source = Scripted::new(|_, _| Err(refused(403, "Forbidden")), |_, _| Err(refused(422, "Invalid")));
    let rig = Rig::start(source);
    settle().await;
    assert_eq!(
        *rig.errors.lock(),
        ["v1/pods: failed to list: the server rejected the request: 403 Forbidden: test refusal 403"]
    );
    assert!(log.lines_of("ERROR").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_very_short_watch_is_logged() {
    let log = CaughtLog::new();
    let source = Scripted::new(
        |_, _| Ok(page("10", &[])),
        |n, _| Ok(if n == 0 { Script::end_after(vec![]) } else { Script::stay_after(vec![]) }),
    );
    start(source, ReflectorOptions { watch_list: false, ..ReflectorOptions::default() });
    sleep(30.0).await;
    let warnings = log.lines_of("WARN");
    assert!(warnings.len() == 1 && warnings[0].contains("very short watch"), "{warnings:?}");
}

#[tokio::test(start_paused = true)]
async fn watch_errors_are_warnings_except_expired() {
    for (code, reason, level, message) in [
        (410, "Expired", "DEBUG", "watch expired"),
        (500, "InternalError", "WARN", "watch ended with an error"),
    ] {
        let log = CaughtLog::new();
        let watch = move |n, _: &_| {
            let events = if n == 0 { vec![WatchEvent::Error(refusal(code, reason))] } else { vec![] };
            Ok(Script::stay_after(events))
        };
        let source = Scripted::new(|_, _| Ok(page("10", &[])), watch);
        start(source, ReflectorOptions { watch_list: false, ..ReflectorOptions::default() });
        sleep(30.0).await;
        let mut lines = log.lines_of("WARN");
        lines.extend(log.lines_of("DEBUG"));
        assert!(lines.len() == 1 && lines[0].starts_with(&format!("{level} {message}")), "{lines:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn lines_about_an_unreachable_server_have_their_own_target() {
    let timed_out = || ListWatchError::Transport(io::Error::from(io::ErrorKind::TimedOut).into());
    let cases: [(fn() -> ListWatchError, bool); 4] = [
        (connection_refused, true),
        (timed_out, true),
        (|| refused(429, "TooManyRequests"), false),
        (|| refused(403, "Forbidden"), false),
    ];
    for (error, is_unreachable) in cases {
        let log = CaughtLog::new();
        let source = Scripted::new(move |_, _| Err(error()), move |_, _| Err(error()));
        let running = start(source, ReflectorOptions::default());
        sleep(10.0).await;
        running.abort();
        let lines = [log.lines_of("WARN"), log.lines_of("ERROR")].concat();
        assert!(!lines.is_empty(), "{}", error());
        for line in lines {
            assert_eq!(line.ends_with(" (unreachable)"), is_unreachable, "{line}");
        }
    }
}
