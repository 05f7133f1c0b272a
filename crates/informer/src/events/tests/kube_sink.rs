use k8s_openapi::api::events::v1::Event as Written;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use supercargo_apiserver::ApiServer;
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;

use super::*;

struct World {
    server: ApiServer,
    events: Api<Written>,
    broadcaster: EventBroadcaster,
}

impl World {
    fn new() -> Self {
        let server = ApiServer::default();
        let client = Client::new(server.service(), "default");
        let broadcaster = EventBroadcaster::new();
        broadcaster.start_recording_to_sink(KubeSink::new(client.clone()));
        Self { server, events: Api::namespaced(client, "default"), broadcaster }
    }

    /// Records an event, and waits until it must have been written.
    async fn record(&self, name: &str, reason: &str) {
        self.broadcaster.new_recorder("test").record(pod(name), event(reason));
        sleep(Duration::from_mins(1)).await;
    }

    /// The object, reason and series count of each event.
    async fn written(&self) -> Vec<(String, String, Option<i32>)> {
        let events = self.events.list(&ListParams::default()).await.unwrap();
        let brief = |event: Written| {
            let name = event.regarding.and_then(|regarding| regarding.name).unwrap_or_default();
            (name, event.reason.unwrap_or_default(), event.series.map(|series| series.count))
        };
        let mut written: Vec<_> = events.into_iter().map(brief).collect();
        written.sort();
        written
    }
}

fn written(name: &str, reason: &str, count: Option<i32>) -> (String, String, Option<i32>) {
    (name.to_owned(), reason.to_owned(), count)
}

fn events(verb: &str) -> Matcher {
    Matcher { verb: verb.to_owned(), resource: "events".to_owned(), ..Matcher::default() }
}

#[tokio::test(start_paused = true)]
async fn an_event_repeated_within_the_window_becomes_a_series() {
    let world = World::new();
    world.record("a", "Pulled").await;
    assert_eq!(world.written().await, [written("a", "Pulled", None)]);
    world.record("a", "Pulled").await;
    assert_eq!(
        world.written().await,
        [written("a", "Pulled", Some(2))],
        "one object, and what it stands for"
    );
    world.record("a", "Pulled").await;
    world.record("b", "Pulled").await;
    world.record("a", "Started").await;
    let expected =
        [written("a", "Pulled", Some(3)), written("a", "Started", None), written("b", "Pulled", None)];
    assert_eq!(world.written().await, expected);

    let event = world.events.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert_eq!(event.reporting_controller.as_deref(), Some("test"));
    assert_eq!((event.type_.as_deref(), event.action.as_deref()), (Some("Normal"), Some("Testing")));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_event_is_created_again_when_repeated() {
    let world = World::new();
    world.record("a", "Pulled").await;
    let name =
        world.events.list(&ListParams::default()).await.unwrap().items[0].metadata.name.clone().unwrap();
    world.events.delete(&name, &DeleteParams::default()).await.unwrap();
    world.record("a", "Pulled").await;
    assert_eq!(world.written().await, [written("a", "Pulled", None)]);
    world.record("a", "Pulled").await;
    assert_eq!(world.written().await, [written("a", "Pulled", Some(2))]);
    assert_eq!(world.broadcaster.failed(), 0);
}

#[tokio::test(start_paused = true)]
async fn events_are_retried_when_the_server_is_unavailable() {
    let world = World::new();
    let faults = world.server.faults();
    faults.add(Rule::new(events("create"), Fault::Reset).times(1));
    faults.add(Rule::new(events("create"), Fault::Answer(Status::too_many_requests("later", 1))).times(1));
    world.record("a", "Pulled").await;
    assert_eq!(world.written().await, [written("a", "Pulled", None)]);

    let reset = faults.add(Rule::new(events("patch"), Fault::Reset).times(1));
    world.record("a", "Pulled").await;
    assert_eq!(world.written().await, [written("a", "Pulled", Some(2))]);
    assert_eq!((faults.remaining(reset), world.broadcaster.failed()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn rejected_events_are_not_retried() {
    let world = World::new();
    let forbidden = Status { code: http::StatusCode::FORBIDDEN, ..Status::timeout("no") };
    let refusals = [Status::timeout("an answer like any other, unless it says when to come back"), forbidden];
    for status in refusals {
        let rule =
            Rule::new(events("create"), Fault::Answer(Status { details: Box::default(), ..status })).times(2);
        let rule = world.server.faults().add(rule);
        world.record("a", "Pulled").await;
        assert_eq!(world.server.faults().remaining(rule), 1, "it received one request");
        world.server.faults().remove(rule);
    }
    let elsewhere = ObjectReference { namespace: Some("nowhere".to_owned()), ..pod("a") };
    world.broadcaster.new_recorder("test").record(elsewhere, event("Pulled"));
    sleep(Duration::from_mins(1)).await;
    assert_eq!((world.written().await, world.broadcaster.failed()), (Vec::new(), 3));
}

#[tokio::test(start_paused = true)]
async fn two_sinks_keep_separate_series() {
    let (one, other) = (World::new(), World::new());
    let client = Client::new(other.server.service(), "default");
    one.record("a", "Pulled").await;
    one.broadcaster.start_recording_to_sink(KubeSink::new(client));
    one.record("a", "Pulled").await;
    assert_eq!(one.written().await, [written("a", "Pulled", Some(2))]);
    assert_eq!(other.written().await, [written("a", "Pulled", None)]);
}
