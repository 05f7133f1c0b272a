//! Traces of a scheduler, sent to a collector on loopback.

use serde_json::{Value, json};
use supercargo_framework::Now;
use supercargo_framework::binding::BindOutcome;
use supercargo_framework::testing::{node, pod};
use supercargo_scheduler::{Effect, Input, NoCalls, Notification, Scheduler, Unobserved};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::*;
use supercargo_config::Catalog;
use supercargo_owner::options::scheduler_options;
use supercargo_telemetry::metrics::Metrics;
use supercargo_telemetry::traces::{Traced, traced};

/// The head of a request in lower case, and its body.
type Request = (String, Value);

/// A collector that accepts every request.
async fn listen() -> (String, UnboundedReceiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, received) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                while let Some(request) = read(&mut stream).await {
                    let _ = sender.send(request);
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                    stream.write_all(answer).await.unwrap();
                }
            });
        }
    });
    (url, received)
}

/// The next request, after all of it has arrived.
async fn read(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    loop {
        if let Some((head, body)) = String::from_utf8_lossy(&bytes).split_once("\r\n\r\n") {
            let head = head.to_lowercase();
            let length: usize = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
            if body.len() >= length {
                return Some((head, serde_json::from_str(body).ok()?));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Binds a pod, and fails to find a node for another.
fn schedule(scheduler: &mut Scheduler) {
    let node = node("n1").allocatable("cpu", "4").allocatable("pods", "10").build();
    scheduler.handle(Now::default(), Input::Node(Notification::Added(Arc::new(node))));
    for (name, cpu) in [("small", "1"), ("large", "8")] {
        let pod = pod(name).uid(name).scheduler("supercargo").request("cpu", cpu).build();
        scheduler.handle(Now::default(), Input::QueuedPod(Notification::Added(Arc::new(pod))));
        scheduler.schedule_one(Now::default(), &mut NoCalls);
        for effect in scheduler.take_effects() {
            if let Effect::Bind { pod, .. } = effect {
                let (pod, by) = (pod.uid.clone(), "DefaultBinder".into());
                scheduler.handle(Now::default(), Input::Bound { pod, by, outcome: BindOutcome::Bound });
            }
        }
    }
}

fn root<'a>(spans: &'a [Value], pod: &str) -> &'a Value {
    let name = json!({"key": "k8s.pod.name", "value": {"stringValue": pod}});
    let is_it = |span: &&Value| span["attributes"].as_array().unwrap().contains(&name);
    spans.iter().find(is_it).unwrap_or_else(|| panic!("{pod} is not in {spans:#?}"))
}

fn names_below<'a>(spans: &'a [Value], parent: &Value) -> Vec<&'a str> {
    let below = spans.iter().filter(|span| span["parentSpanId"] == parent["spanId"]);
    below.map(|span| span["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn traces_are_posted_below_the_path_of_the_endpoint() {
    let (url, mut received) = listen().await;
    let endpoint = Some(format!("{url}/tenant/").parse().unwrap());
    let options = TraceOptions { tracing_endpoint: endpoint, ..TraceOptions::default() };
    let config = supercargo_config::Config::default_with(&Catalog::in_tree()).unwrap();
    let metrics = Metrics::new(&config.features);
    let observer = metrics.observer(Box::new(Unobserved));
    let Traced { observer, sending } = traced(collector(&options, "host").unwrap(), &metrics, observer);
    let mut scheduler = Scheduler::new(scheduler_options(&config)).unwrap().with_observer(observer);
    schedule(&mut scheduler);
    drop(scheduler);
    sending.unwrap().await.unwrap();

    let (head, body) = received.recv().await.unwrap();
    assert!(head.starts_with("post /tenant/v1/traces http/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let spans = body.pointer("/resourceSpans/0/scopeSpans/0/spans").unwrap().as_array().unwrap();
    let of_bound = names_below(spans, root(spans, "small"));
    for point in ["Filter", "Score", "Reserve", "Permit", "PreBind", "Bind"] {
        assert!(of_bound.contains(&point), "{point} is not in {of_bound:?}");
    }
    assert!(!of_bound.contains(&"PostBind"));
    let of_failed = root(spans, "large");
    let reported = of_failed["attributes"].to_string();
    assert!(reported.contains("unschedulable") && reported.contains("Insufficient cpu"), "{reported}");
    let post_filter =
        spans.iter().find(|span| span["name"] == "PostFilter" && span["parentSpanId"] == of_failed["spanId"]);
    assert!(names_below(spans, post_filter.unwrap()).contains(&"DefaultPreemption"));
    let text = metrics.encode().await;
    for reason in ["unfinished", "queue_full", "not_taken"] {
        let line = format!("supercargo_trace_spans_dropped_total{{reason=\"{reason}\"}} 0");
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[test]
fn tracing_is_off_without_an_endpoint() {
    let config = supercargo_config::Config::default_with(&Catalog::in_tree()).unwrap();
    let metrics = Metrics::new(&config.features);
    let collector = collector(&TraceOptions::default(), "host").unwrap();
    assert!(traced(collector, &metrics, Box::new(Unobserved)).sending.is_none());
}
