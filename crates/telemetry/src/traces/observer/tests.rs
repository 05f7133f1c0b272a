//! Attempts with a manual clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_framework::testing::pod;
use supercargo_framework::{Code, PodInfo};
use supercargo_runtime::observer::{AttemptResult, Timespan};

use super::*;
use crate::traces::ids::Ids;

/// The constant wall clock, in nanoseconds since 1970.
const WALL: u64 = 1_700_000_000_000_000_000;

fn wall() -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(WALL)
}

/// A manual clock.
#[derive(Clone, Default)]
struct Hand(Arc<AtomicU64>);

impl Observer for Hand {
    fn observe(&self, _: Observation<'_>) {}

    fn time_point(&self) -> TimePoint {
        TimePoint(self.0.load(Ordering::Relaxed))
    }
}

/// An observer and its finished attempts.
struct TestBed {
    hand: Hand,
    observer: TracingObserver,
    attempts: mpsc::Receiver<Attempt>,
    drops: Drops,
}

fn took(from: u64, to: u64) -> Timespan {
    Timespan { from: TimePoint(from), to: TimePoint(to) }
}

impl TestBed {
    fn with(per_million: u32, waiting: usize) -> Self {
        let (hand, drops) = (Hand::default(), Drops::default());
        let (sender, attempts) = mpsc::channel(waiting);
        let inner = Box::new(hand.clone());
        let mut observer = TracingObserver::new(inner, per_million, sender, drops.clone()).with_wall(wall);
        observer.profiles(&[ObservedProfile {
            scheduler_name: "mine".into(),
            pre_filter: Vec::new(),
            filter: Vec::new(),
            pre_score: Vec::new(),
            score: Vec::new(),
        }]);
        Self { hand, observer, attempts, drops }
    }

    fn new() -> Self {
        Self::with(ALL, 100)
    }

    fn point(&self, pod: &PodInfo, point: Point, (from, to): (u64, u64)) {
        let (status, took) = (Code::Success, took(from, to));
        self.observer.observe(Observation::ExtensionPoint { profile: 0, pod, point, status, took });
    }

    fn plugin(&self, pod: &PodInfo, plugin: &str, point: Point, (from, to): (u64, u64)) {
        let (status, took) = (Code::Success, took(from, to));
        self.observer.observe(Observation::Plugin { pod, plugin, point, status, took });
    }

    fn end(&self, pod: &PodInfo, result: AttemptResult, message: &str, (from, to): (u64, u64)) {
        self.hand.0.store(to, Ordering::Relaxed);
        self.observer.observe(Observation::Attempt {
            profile: 0,
            result,
            pod,
            attempts: 3,
            node: (result == AttemptResult::Scheduled).then_some("n1"),
            message,
            since_first_attempt: None,
            after_flush: false,
            took: took(from, to),
        });
    }

    /// The spans of the first finished attempt.
    fn trace(&mut self) -> Vec<Value> {
        let attempt = self.attempts.try_recv().unwrap();
        let spans = attempt.spans(&mut Ids::default());
        assert_eq!(spans.len(), attempt.span_count());
        spans.into_iter().map(|span| serde_json::to_value(span).unwrap()).collect()
    }

    fn is_empty(&mut self) -> bool {
        self.attempts.try_recv().is_err()
    }
}

/// Names, times and parents of spans; `now` maps the observer's clock to the wall clock.
fn tree(spans: &[Value], now: u64) -> Vec<String> {
    let time = |of: &Value| of.as_str().unwrap().parse::<u64>().unwrap() - (WALL - now);
    let name_of = |id: &Value| {
        let parent = spans.iter().find(|span| span["spanId"] == *id);
        parent.map_or("", |parent| parent["name"].as_str().unwrap())
    };
    let line = |span: &Value| {
        let (from, to) = (time(&span["startTimeUnixNano"]), time(&span["endTimeUnixNano"]));
        format!("{} > {} {from}..{to}", name_of(&span["parentSpanId"]), span["name"].as_str().unwrap())
    };
    spans.iter().map(line).collect()
}

fn attribute<'a>(span: &'a Value, key: &str) -> Option<&'a Value> {
    let all = span["attributes"].as_array().unwrap();
    all.iter().find(|attribute| attribute["key"] == key).map(|attribute| &attribute["value"])
}

#[test]
fn spans_nest_from_attempt_to_points_to_plugins() {
    let (mut bed, pod) = (TestBed::new(), pod("p").namespace("ns").uid("u").build());
    bed.plugin(&pod, "Fit", Point::PreFilter, (110, 120));
    bed.point(&pod, Point::PreFilter, (100, 130));
    bed.plugin(&pod, "Fit", Point::Filter, (130, 140));
    bed.plugin(&pod, "Taints", Point::Filter, (140, 150));
    bed.plugin(&pod, "Fit", Point::Filter, (150, 165));
    bed.point(&pod, Point::Filter, (130, 170));
    bed.plugin(&pod, "Fit", Point::Filter, (175, 180));
    bed.point(&pod, Point::PostFilter, (170, 190));
    bed.point(&pod, Point::Bind, (200, 300));
    bed.plugin(&pod, "Binder", Point::Bind, (200, 300));
    bed.plugin(&pod, "Stray", Point::Reserve, (300, 301));
    bed.end(&pod, AttemptResult::Scheduled, "", (100, 310));
    let spans = bed.trace();
    let expected = [
        " > scheduling attempt 100..310",
        "scheduling attempt > PreFilter 100..130",
        "scheduling attempt > Filter 130..170",
        "scheduling attempt > PostFilter 170..190",
        "scheduling attempt > Bind 200..300",
        "PreFilter > Fit 110..120",
        "Filter > Fit 130..155",
        "Filter > Taints 140..150",
        "PostFilter > Fit 175..180",
        "Bind > Binder 200..300",
        "scheduling attempt > Stray 300..301",
    ];
    assert_eq!(tree(&spans, 310), expected);
    assert_eq!(attribute(&spans[6], "supercargo.calls"), Some(&json!({"intValue": "2"})));
    let is_one_trace = spans.iter().all(|span| span["traceId"] == spans[0]["traceId"]);
    assert!(is_one_trace && spans.iter().all(|span| span["status"].is_null()), "{spans:#?}");
    let text = |key: &str| attribute(&spans[0], key).map(|value| value["stringValue"].as_str().unwrap());
    assert_eq!(text("k8s.pod.name"), Some("p"));
    assert_eq!(text("k8s.namespace.name"), Some("ns"));
    assert_eq!(text("k8s.pod.uid"), Some("u"));
    assert_eq!(text("k8s.node.name"), Some("n1"));
    assert_eq!(text("supercargo.profile"), Some("mine"));
    assert_eq!(text("supercargo.result"), Some("scheduled"));
    assert_eq!(text("supercargo.message"), None);
    assert_eq!(attribute(&spans[0], "supercargo.attempt"), Some(&json!({"intValue": "3"})));
    assert!(bed.is_empty());
}

#[test]
fn attempts_of_two_pods_do_not_mix() {
    let mut bed = TestBed::new();
    let (one, other) = (pod("one").uid("1").build(), pod("other").uid("2").build());
    bed.point(&one, Point::Filter, (10, 20));
    bed.point(&other, Point::Filter, (20, 30));
    bed.point(&other, Point::Bind, (30, 40));
    bed.point(&one, Point::Bind, (20, 50));
    bed.end(&one, AttemptResult::Scheduled, "", (10, 50));
    bed.end(&other, AttemptResult::Scheduled, "", (20, 60));
    let (first, second) = (bed.trace(), bed.trace());
    let below = "scheduling attempt >";
    assert_eq!(
        tree(&first, 50),
        [" > scheduling attempt 10..50", &format!("{below} Filter 10..20"), &format!("{below} Bind 20..50")]
    );
    assert_eq!(
        tree(&second, 60),
        [" > scheduling attempt 20..60", &format!("{below} Filter 20..30"), &format!("{below} Bind 30..40")]
    );
    assert_ne!(first[0]["traceId"], second[0]["traceId"]);
}

#[test]
fn unschedulable_attempts_are_not_errors() {
    let (mut bed, pod) = (TestBed::new(), pod("p").uid("u").build());
    bed.end(&pod, AttemptResult::Unschedulable, "0/3 nodes are available", (0, 10));
    let root = &bed.trace()[0];
    assert_eq!(attribute(root, "supercargo.message").unwrap()["stringValue"], "0/3 nodes are available");
    assert!(root["status"].is_null() && attribute(root, "k8s.node.name").is_none());
    bed.end(&pod, AttemptResult::Error, "it broke", (20, 30));
    let root = &bed.trace()[0];
    assert_eq!(root["status"], json!({"code": 2, "message": "it broke"}));
    assert_eq!(attribute(root, "supercargo.message"), None);
}

#[test]
fn aborted_attempts_leave_nothing_to_the_next_one() {
    let (mut bed, pod) = (TestBed::new(), pod("p").uid("u").build());
    bed.plugin(&pod, "Fit", Point::Filter, (11, 12));
    bed.point(&pod, Point::Filter, (10, 20));
    bed.point(&pod, Point::Filter, (100, 110));
    bed.end(&pod, AttemptResult::Scheduled, "", (100, 200));
    let expected = [" > scheduling attempt 100..200", "scheduling attempt > Filter 100..110"];
    assert_eq!(tree(&bed.trace(), 200), expected);
    assert_eq!(bed.drops.unfinished.get(), 2);
}

#[test]
fn points_outside_an_attempt_are_ignored() {
    let (mut bed, pod) = (TestBed::new(), pod("p").uid("u").build());
    bed.point(&pod, Point::PreEnqueue, (1, 2));
    bed.plugin(&pod, "Gates", Point::PreEnqueue, (1, 2));
    bed.end(&pod, AttemptResult::Scheduled, "", (3, 10));
    bed.point(&pod, Point::PostBind, (11, 12));
    assert_eq!(bed.trace().len(), 1);
    assert_eq!(bed.observer.open_attempts.borrow_mut().take(&pod.uid).count(), 0);
}

#[test]
fn sampling_rate_0_records_nothing() {
    let (mut bed, pod) = (TestBed::with(0, 100), pod("p").uid("u").build());
    bed.point(&pod, Point::Filter, (10, 20));
    assert_eq!(bed.observer.open_attempts.borrow_mut().take(&pod.uid).count(), 0);
    bed.end(&pod, AttemptResult::Scheduled, "", (10, 20));
    assert!(bed.is_empty());
}

#[test]
fn all_attempts_of_a_sampled_pod_are_recorded() {
    let mut bed = TestBed::with(ALL / 2, 10_000);
    for number in 0..1000 {
        let pod = pod(&format!("pod-{number}")).uid(&format!("uid-{number}")).build();
        for _ in 0..2 {
            bed.point(&pod, Point::Filter, (10, 20));
            bed.end(&pod, AttemptResult::Unschedulable, "", (10, 20));
        }
    }
    let mut traces = 0;
    while let Ok(attempt) = bed.attempts.try_recv() {
        assert_eq!(attempt.span_count(), 2);
        traces += 1;
    }
    assert!(traces % 2 == 0 && (600..1400).contains(&traces), "{traces}");
}

#[test]
fn a_full_queue_drops_and_counts_new_attempts() {
    let (mut bed, pod) = (TestBed::with(ALL, 1), pod("p").uid("u").build());
    bed.end(&pod, AttemptResult::Scheduled, "", (0, 10));
    bed.point(&pod, Point::Filter, (10, 20));
    bed.end(&pod, AttemptResult::Scheduled, "", (10, 20));
    assert_eq!(bed.drops.queue_full.get(), 2);
    assert_eq!(bed.trace().len(), 1);
    assert!(bed.is_empty());
}
