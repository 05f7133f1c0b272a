//! Collectors with scripted responses and a paused clock.

use futures::FutureExt as _;
use supercargo_framework::Code;
use supercargo_framework::pod::PodKey;
use supercargo_runtime::observer::{AttemptResult, Point, TimePoint, Timespan};
use tokio::time::Instant;

use super::*;
use crate::traces::attempt_record::{AttemptRecord, TimedPoint};
use supercargo_client::testing::{Requests, answering_client};
use supercargo_client::transport::Transport;

/// An attempt with this number of spans.
fn attempt(spans: usize) -> Attempt {
    let took = Timespan { from: TimePoint(0), to: TimePoint(1) };
    let mut parts = AttemptRecord::default();
    for _ in 1..spans {
        parts.add_point(TimedPoint { point: Point::Filter, status: Code::Success, took });
    }
    Attempt {
        pod: PodKey { namespace: "ns".into(), name: "p".into() },
        uid: "u".into(),
        profile: "mine".into(),
        number: 1,
        result: AttemptResult::Scheduled,
        node: None,
        message: "".into(),
        took,
        parts,
        epoch: 0,
    }
}

/// An exporter and its channel.
struct TestBed {
    exporter: Exporter,
    sender: mpsc::Sender<Attempt>,
    requests: Requests,
    not_taken: Arc<Counter>,
}

/// Sends by this client.
fn sending_by(client: kube::Client) -> SendRequest {
    let transport = Transport::from(client);
    Arc::new(move |request| {
        let transport = transport.clone();
        async move { transport.send(request).await.map_err(|error| error.to_string()) }.boxed()
    })
}

/// A collector that responds with these statuses in turn, and then with 200.
fn bed(statuses: Vec<u16>) -> TestBed {
    let (client, requests) = answering_client(statuses);
    let (sender, attempts) = mpsc::channel(1000);
    let not_taken = Arc::<Counter>::default();
    let exporter = Exporter::new(sending_by(client), "host", attempts, Arc::clone(&not_taken));
    TestBed { exporter, sender, requests, not_taken }
}

/// The number of spans in each request.
fn sizes(requests: &Requests) -> Vec<usize> {
    let spans = |(method, path, body): (String, String, serde_json::Value)| {
        assert_eq!((&*method, &*path), ("POST", "/v1/traces"));
        let spans = body.pointer("/resourceSpans/0/scopeSpans/0/spans").unwrap();
        spans.as_array().unwrap().len()
    };
    requests.all().into_iter().map(spans).collect()
}

#[tokio::test(start_paused = true)]
async fn spans_are_sent_in_batches_and_flushed_at_the_end() {
    let TestBed { exporter, sender, requests, not_taken } = bed(Vec::new());
    for _ in 0..100 {
        sender.send(attempt(12)).await.unwrap();
    }
    drop(sender);
    exporter.run().await;
    assert_eq!(sizes(&requests).iter().sum::<usize>(), 1200);
    assert!(sizes(&requests).iter().all(|size| *size <= BATCH), "{:?}", sizes(&requests));
    assert_eq!(not_taken.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn incomplete_batches_are_sent_after_a_delay() {
    let TestBed { exporter, sender, requests, .. } = bed(Vec::new());
    let task = tokio::spawn(exporter.run());
    let began = Instant::now();
    sender.send(attempt(3)).await.unwrap();
    while requests.all().is_empty() {
        sleep(Duration::from_millis(10)).await;
    }
    assert!(began.elapsed() <= PERIOD + Duration::from_millis(20), "{:?}", began.elapsed());
    assert_eq!(sizes(&requests), [3]);
    drop(sender);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn spans_are_resent_to_a_busy_collector() {
    let TestBed { exporter, sender, requests, not_taken } = bed(vec![503, 429, 502, 504]);
    sender.send(attempt(2)).await.unwrap();
    drop(sender);
    let began = Instant::now();
    exporter.run().await;
    assert_eq!(began.elapsed(), PAUSES.iter().sum::<Duration>());
    let bodies = requests.all();
    assert_eq!(bodies.len(), 5);
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]));
    assert_eq!(not_taken.get(), 0);
}

#[tokio::test(start_paused = true)]
async fn rejected_spans_are_dropped_and_counted() {
    for (statuses, expected) in [(vec![400], 2), (vec![503; 5], 6)] {
        let TestBed { exporter, sender, requests, not_taken } = bed(statuses);
        sender.send(attempt(BATCH)).await.unwrap();
        sender.send(attempt(1)).await.unwrap();
        drop(sender);
        exporter.run().await;
        assert_eq!(requests.all().len(), expected);
        assert_eq!(not_taken.get(), BATCH as u64);
        assert_eq!(sizes(&requests).last(), Some(&1));
    }
}

#[test]
fn retry_after_of_a_collector_is_bounded() {
    let wait = |value: &str| {
        let answer = Response::builder().status(503).header("retry-after", value).body(Bytes::new());
        match outcome(answer.unwrap()) {
            Err(Failure::Passing(_, wait)) => wait,
            _ => panic!("it passes"),
        }
    };
    assert_eq!(wait("7"), Some(Duration::from_secs(7)));
    assert_eq!(wait("86400"), Some(LONGEST_RETRY_AFTER));
    assert_eq!(wait("Wed, 21 Oct 2026 07:28:00 GMT"), None);
}
