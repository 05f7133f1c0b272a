//! Fault injection.

use std::time::Duration;

use super::*;
use crate::faults::{Fault, Matcher, Rule};
use crate::status::Status;

fn creates() -> Matcher {
    Matcher { verb: "create".into(), resource: "configmaps".into(), ..Matcher::default() }
}

fn watches() -> Matcher {
    Matcher { verb: "watch".into(), ..Matcher::default() }
}

async fn exists(client: &Client, name: &str) -> bool {
    client.get(&format!("{CONFIG_MAPS}/{name}")).await.0 == StatusCode::OK
}

async fn create(client: &Client, name: &str) -> Result<StatusCode, Disconnect> {
    let answer = client.try_request(Method::POST, CONFIG_MAPS, "application/json", &config_map(name)).await;
    answer.map(|(status, _)| status)
}

#[tokio::test]
async fn faults_strike_before_or_after_the_effect() {
    let client = Client::new();
    let timeout = Status::timeout("too slow");
    for (name, fault, expected, takes_effect) in [
        ("a", Fault::Answer(Status::too_many_requests("busy", 3)), Ok(StatusCode::TOO_MANY_REQUESTS), false),
        ("b", Fault::AnswerAfter(timeout), Ok(StatusCode::GATEWAY_TIMEOUT), true),
        ("c", Fault::Reset, Err(Disconnect), false),
        ("d", Fault::ResetAfter, Err(Disconnect), true),
    ] {
        client.server.faults().add(Rule::new(creates(), fault).times(1));
        assert_eq!(create(&client, name).await, expected, "{name}");
        assert_eq!(exists(&client, name).await, takes_effect, "{name}");
    }
    assert_eq!(create(&client, "e").await, Ok(StatusCode::CREATED));
}

#[tokio::test]
async fn too_many_requests_sets_retry_after() {
    let client = Client::new();
    let busy = Fault::Answer(Status::too_many_requests("busy", 3));
    client.server.faults().add(Rule::new(Matcher::default(), busy));
    let response = client.send(Request::get(CONFIG_MAPS).body(Full::default()).unwrap()).await.unwrap();
    assert_eq!(response.headers()["retry-after"], "3");
}

#[tokio::test(start_paused = true)]
async fn delays_wait_and_drops_never_respond() {
    let client = Client::new();
    client.server.faults().add(Rule::new(creates(), Fault::Delay(Duration::from_secs(7))).times(1));
    let before = tokio::time::Instant::now();
    assert_eq!(create(&client, "a").await, Ok(StatusCode::CREATED));
    assert_eq!(before.elapsed(), Duration::from_secs(7));
    client.server.faults().add(Rule::new(creates(), Fault::Drop).times(1));
    let never = tokio::time::timeout(Duration::from_hours(1), create(&client, "b")).await;
    assert!(never.is_err());
    assert!(!exists(&client, "b").await);
}

#[tokio::test]
async fn watch_is_cut_cleanly_or_in_the_middle_of_an_event() {
    let client = Client::new();
    for mid_frame in [false, true] {
        client.server.faults().add(Rule::new(watches(), Fault::CutWatch { after: 1, mid_frame }).times(1));
        let version = client.server.resource_version();
        let mut events = client.watch(&format!("/api/v1/configmaps?watch=1&resourceVersion={version}")).await;
        for name in ["a", "b"] {
            create(&client, &format!("{name}-{mid_frame}")).await.unwrap();
        }
        assert!(events.next().await.is_some());
        assert_eq!(events.try_next().await, if mid_frame { Err(Disconnect) } else { Ok(None) });
        assert_eq!(events.buffer.is_empty(), !mid_frame);
    }
}

#[tokio::test]
async fn cut_watches_ends_running_watches() {
    let client = Client::new();
    let mut config_maps = client.watch("/api/v1/configmaps?watch=1&resourceVersion=1").await;
    let mut secrets = client.watch("/api/v1/secrets?watch=1&resourceVersion=1").await;
    let matcher = Matcher { resource: "configmaps".into(), ..Matcher::default() };
    client.server.cut_watches(matcher, false);
    assert_eq!(config_maps.next().await, None);
    client.create("/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await;
    assert_eq!(secrets.brief().await.unwrap().1, "s");
}

#[tokio::test]
async fn restart_ends_watches_and_may_drop_the_history() {
    for keep_history in [true, false] {
        let client = Client::new();
        create(&client, "a").await.unwrap();
        let mut events = client.watch("/api/v1/configmaps?watch=1&resourceVersion=1").await;
        events.next().await.unwrap();
        client.server.restart(keep_history);
        assert_eq!(events.try_next().await, Err(Disconnect));
        assert!(exists(&client, "a").await);
        let mut again = client.watch("/api/v1/configmaps?watch=1&resourceVersion=1").await;
        let expected = if keep_history { "ADDED" } else { "ERROR" };
        assert_eq!(again.next().await.unwrap()["type"], expected);
    }
}

#[tokio::test(start_paused = true)]
async fn bookmarks_can_be_suppressed() {
    let client = Client::new();
    client.server.faults().add(Rule::new(watches(), Fault::HoldBookmarks));
    let path = "/api/v1/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=90&resourceVersion=1";
    assert_eq!(client.watch(path).await.next().await, None);
}

#[tokio::test]
async fn restart_ends_pending_requests() {
    let client = Client::new();
    for fault in [Fault::Drop, Fault::Delay(Duration::from_hours(1))] {
        client.server.faults().add(Rule::new(creates(), fault).times(1));
        let restart = async {
            tokio::task::yield_now().await;
            client.server.restart(true);
        };
        let (answer, ()) = tokio::join!(create(&client, "a"), restart);
        assert_eq!(answer, Err(Disconnect));
        assert!(!exists(&client, "a").await);
    }
}
