//! A single leader with failures of its lease and its connection.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use supercargo_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::super::elector::LossReason;
use super::super::{Fence, Leadership};
use super::world::{
    Candidate, EVENTS, Fate, HOLD, LEASE, LEASE_DURATION, RETRY_PERIOD, TIMING, Trip, ask, notes, spec,
};
use crate::api::{Api, Call, JSON};
use crate::host::Host;

/// A candidate that leads.
async fn leader(server: &ApiServer) -> Candidate {
    let candidate = Candidate::start(server, TIMING, true);
    candidate.until_it_leads().await;
    candidate
}

/// When the last renewal was sent.
fn last_renewal(leadership: &Leadership) -> Instant {
    leadership.last_renewal.unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_lease_and_its_events_are_as_client_go_writes_them() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    let identity = leader.identity();
    let mut lease = spec(&server).await;
    let acquired = lease["acquireTime"].clone();
    assert_eq!(lease["renewTime"].take(), acquired);
    let expected = json!({
        "holderIdentity": identity,
        "leaseDurationSeconds": 15,
        "acquireTime": acquired,
        "renewTime": null,
        "leaseTransitions": 0,
    });
    assert_eq!(lease, expected);

    leader.connection.take_requests();
    sleep(RETRY_PERIOD * 3 + RETRY_PERIOD / 2).await;
    assert_eq!(leader.connection.take_requests(), ["PUT", "PUT", "PUT"], "it is renewed without being read");
    let renewed = spec(&server).await;
    assert_eq!(renewed["acquireTime"], acquired);
    assert_ne!(renewed["renewTime"], acquired);

    leader.resign().await;
    let released = spec(&server).await;
    assert_eq!(
        (&released["holderIdentity"], &released["leaseDurationSeconds"], &released["leaseTransitions"]),
        (&json!(""), &json!(1), &json!(0))
    );
    assert_eq!(
        notes(&server).await,
        [format!("{identity} became leader"), format!("{identity} stopped leading")]
    );
    let event = ask(&server, Method::GET, EVENTS, &Value::Null).await["items"][0].take();
    let uid = ask(&server, Method::GET, LEASE, &Value::Null).await["metadata"]["uid"].take();
    for (field, value) in [
        ("/type", json!("Normal")),
        ("/reason", json!("LeaderElection")),
        ("/reportingController", json!("supercargo")),
        ("/regarding/apiVersion", json!("coordination.k8s.io/v1")),
        ("/regarding/kind", json!("Lease")),
        ("/regarding/name", json!("supercargo")),
        ("/regarding/uid", uid),
    ] {
        assert_eq!(event.pointer(field), Some(&value), "{field}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_for_a_while_is_waited_for() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    sleep(RETRY_PERIOD * 5 / 2).await;
    leader.connection.close(true);
    // The last renewal was a second ago.
    sleep(HOLD.saturating_sub(Duration::from_secs(4))).await;
    leader.connection.close(false);
    sleep(LEASE_DURATION * 4).await;
    assert!(leader.leads() && leader.fence.is_open());
    assert_eq!(spec(&server).await["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_server_stops_before_others_may_lead() {
    for hangs in [false, true] {
        let server = ApiServer::default();
        let leader = leader(&server).await;
        sleep(RETRY_PERIOD * 5 / 2).await;
        if hangs {
            leader.connection.hang();
        } else {
            leader.connection.close(true);
        }
        let end = last_renewal(&leader.leadership.borrow()) + HOLD;
        let loss = leader.task.await.unwrap().unwrap();
        assert!(matches!(loss.why, LossReason::NotRenewed { .. }), "{}", loss.why);
        let late = Instant::now().checked_duration_since(end).unwrap();
        assert!(late < Duration::from_millis(10), "{late:?}");
        assert!(!leader.fence.is_open() && !leader.leadership.borrow().is_leader);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_or_late_is_no_loss() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    let late = Trip { there: Duration::from_secs(6), ..Trip::default() };
    let [lost_there, lost_back] =
        [Fate::LostThere, Fate::LostBack].map(|fate| Trip { fate, ..Trip::default() });
    leader.connection.plan([late, Trip::default(), lost_back, lost_there, Trip::default(), lost_there]);
    sleep(LEASE_DURATION * 4).await;
    assert!(leader.leads() && leader.fence.is_open());
    leader.resign().await;
    assert_eq!(spec(&server).await["leaseTransitions"], 0);
}

/// Resigns while updates need this long to arrive, and the first `conflicts` of them are overtaken.
/// Returns the requests and the time until the end.
async fn resigned(server: &ApiServer, there: Duration, conflicts: usize) -> (Vec<String>, Duration) {
    let leader = leader(server).await;
    sleep(RETRY_PERIOD / 2).await;
    let connection = leader.connection.clone();
    let slow = Trip { there, ..Trip::default() };
    connection.plan([slow, Trip::default(), slow, Trip::default(), slow]);
    connection.take_requests();
    let overtake = async {
        for number in 0..conflicts {
            sleep(there / 2).await;
            let label = json!({"metadata": {"labels": {"number": number.to_string()}}});
            ask(server, Method::PATCH, LEASE, &label).await;
            sleep(there / 2).await;
        }
    };
    let began = Instant::now();
    let resign = async {
        leader.resign().await;
        began.elapsed()
    };
    let (took, ()) = tokio::join!(resign, overtake);
    (connection.take_requests(), took)
}

#[tokio::test(start_paused = true)]
async fn a_release_is_tried_again_after_every_conflict() {
    let server = ApiServer::default();
    let (requests, took) = resigned(&server, Duration::from_secs(1), 2).await;
    assert_eq!(requests, ["PUT", "GET", "PUT", "GET", "PUT"]);
    assert_eq!(took.as_secs(), 3);
    assert_eq!(spec(&server).await["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_release_is_given_up_at_the_renew_deadline() {
    let server = ApiServer::default();
    let (_, took) = resigned(&server, Duration::from_secs(4), 3).await;
    assert_eq!(took.as_secs(), TIMING.renew_deadline.as_secs());
    assert_ne!(spec(&server).await["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn other_fields_of_the_lease_are_preserved() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    ask(&server, Method::PATCH, LEASE, &label).await;
    leader.connection.take_requests();
    sleep(RETRY_PERIOD * 2 + RETRY_PERIOD / 2).await;
    assert_eq!(leader.connection.take_requests(), ["PUT", "GET", "PUT", "PUT"], "the first is rejected");
    assert!(leader.leads() && leader.fence.is_open());
    // Also just before the release.
    ask(&server, Method::PATCH, LEASE, &json!({"metadata": {"labels": {"c": "d"}}})).await;
    leader.resign().await;
    let lease = ask(&server, Method::GET, LEASE, &Value::Null).await;
    assert_eq!(lease["metadata"]["labels"], json!({"a": "b", "c": "d"}));
    assert_eq!(lease["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_is_deleted_is_made_again() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    ask(&server, Method::DELETE, LEASE, &Value::Null).await;
    sleep(RETRY_PERIOD + Duration::from_millis(10)).await;
    assert!(leader.leads() && leader.fence.is_open());
    assert_eq!(spec(&server).await["holderIdentity"], *leader.identity());
}

#[tokio::test(start_paused = true)]
async fn a_cleared_lease_is_retaken_and_a_stolen_one_is_lost() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    let names = |holder: &str| json!({"spec": {"holderIdentity": holder}});
    ask(&server, Method::PATCH, LEASE, &names("")).await;
    sleep(RETRY_PERIOD + Duration::from_millis(10)).await;
    assert!(leader.leads());
    let lease = spec(&server).await;
    assert_eq!(
        (&lease["holderIdentity"], &lease["leaseTransitions"]),
        (&json!(leader.identity()), &json!(1))
    );

    ask(&server, Method::PATCH, LEASE, &names("somebody")).await;
    let edited = Instant::now();
    let loss = leader.task.await.unwrap().unwrap();
    assert_eq!(loss.why.to_string(), "somebody holds lease kube-system/supercargo now");
    assert!(edited.elapsed() <= RETRY_PERIOD, "{:?}", edited.elapsed());
    assert!(!leader.fence.is_open());
    assert_eq!(
        spec(&server).await["holderIdentity"],
        "somebody",
        "another candidate's lease is not released"
    );
}

#[tokio::test(start_paused = true)]
async fn a_leader_suspended_past_its_lease_sends_nothing() {
    for nap in [HOLD, LEASE_DURATION * 10] {
        let server = ApiServer::default();
        let leader = leader(&server).await;
        sleep(RETRY_PERIOD / 2).await;
        leader.sleep(nap);
        leader.connection.take_requests();
        sleep(nap.saturating_sub(Duration::from_millis(1))).await;
        // While it is suspended: the fence blocks tasks that wake before the elector.
        assert!(!leader.fence.is_open());
        let loss = leader.task.await.unwrap().unwrap();
        assert!(matches!(loss.why, LossReason::NotRenewed { .. }), "{}", loss.why);
        assert_eq!(leader.connection.take_requests(), [""; 0]);
    }
    // A leader that was suspended for less time continues.
    let server = ApiServer::default();
    let leader = leader(&server).await;
    leader.sleep(HOLD.saturating_sub(Duration::from_secs(1)));
    sleep(LEASE_DURATION * 2).await;
    assert!(leader.leads() && leader.fence.is_open());
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_by_an_api_behind_a_closed_fence() {
    let (api, requests) = crate::testing::answering(vec![]);
    let fence = Fence::new(Host::local().clock);
    let api: Api = api.behind(Some(fence.clone()));
    let call = || api.call(Call { method: Method::POST, path: "/x", content_type: JSON, body: &Value::Null });
    let error = call().await.unwrap_err();
    assert_eq!(error.error.message, "not sent: this scheduler does not lead");
    fence.open_for(HOLD, fence.moment());
    call().await.unwrap();
    sleep(HOLD).await;
    assert!(call().await.is_err(), "its lease has expired");
    fence.open_for(HOLD, fence.moment());
    fence.release();
    assert!(!fence.is_open() && fence.for_events().is_open());
    fence.close();
    assert!(call().await.is_err() && !fence.for_events().is_open());
    assert_eq!(requests.all().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn health_check_fails_only_for_a_long_overdue_leader() {
    let server = ApiServer::default();
    let leader = leader(&server).await;
    let leading = leader.leadership.borrow().clone();
    let last = last_renewal(&leading);
    let tolerated = LEASE_DURATION + Duration::from_secs(20);
    assert_eq!(leading.check(last + tolerated), Ok(()));
    let overdue = leading.check(last + tolerated + Duration::from_millis(1)).unwrap_err();
    assert_eq!(overdue.to_string(), "failed election to renew leadership on lease supercargo");
    let waiting = Leadership { is_leader: false, ..leading };
    assert_eq!(waiting.check(last + tolerated * 10), Ok(()));
}
