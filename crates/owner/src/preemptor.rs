//! Evicts the victims of preemption: sets a condition with the reason on each, and deletes it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::join_all;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_framework::pod::PodCondition;
use supercargo_scheduler::{Eviction, Input, VictimEviction};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use crate::binder::pod_path;
use crate::owner::Mailbox;
use crate::status_writer::{RETRY_DELAYS, condition_json, is_transient};
use supercargo_client::api::{Api, Call, CallError, JSON};

/// Maximum number of concurrent evictions.
const VICTIMS_IN_FLIGHT: usize = 16;

/// Carries out evictions.
#[derive(Clone)]
pub struct Preemptor {
    api: Api,
    mailbox: Mailbox,
    in_flight: Arc<Semaphore>,
}

impl Preemptor {
    /// A preemptor whose results go to the owner.
    pub fn new(api: Api, mailbox: Mailbox) -> Self {
        Self { api, mailbox, in_flight: Arc::new(Semaphore::new(VICTIMS_IN_FLIGHT)) }
    }

    /// Evicts the victims concurrently and sends the outcomes to the owner.
    pub fn evict(&self, preemption: u64, victims: Vec<VictimEviction>) {
        let preemptor = self.clone();
        tokio::spawn(async move {
            let outcomes = join_all(victims.iter().map(|victim| preemptor.evict_or_fail(victim))).await;
            preemptor.mailbox.send(Input::Evicted { preemption, outcomes });
        });
    }

    /// Never panics: the pending preemption waits for every outcome.
    async fn evict_or_fail(&self, victim: &VictimEviction) -> Eviction {
        // Cannot fail: the semaphore is never closed.
        let _permit = self.in_flight.acquire().await;
        match AssertUnwindSafe(evict(&self.api, victim)).catch_unwind().await {
            Ok(Ok(())) => {
                tracing::info!(pod = %victim.pod, "preempted pod");
                Eviction::Deleted
            }
            Ok(Err(error)) if is_gone(&error) => Eviction::Gone,
            Ok(Err(error)) => {
                tracing::warn!(pod = %victim.pod, error = %error.error, "cannot preempt pod");
                Eviction::Failed(error.error.message)
            }
            Err(_) => Eviction::Failed("preempting the pod panicked".to_owned()),
        }
    }
}

/// Sets the condition before it deletes the pod, so that watchers know the reason when the pod
/// terminates.
async fn evict(api: &Api, victim: &VictimEviction) -> Result<(), CallError> {
    if let Some(condition) = &victim.condition {
        patch(api, victim, &body(&victim.uid, condition)).await?;
    }
    delete(api, victim).await
}

fn body(uid: &Uid, condition: &PodCondition) -> Value {
    let mut disruption = condition_json("DisruptionTarget", condition);
    if let Some(disruption) = disruption.as_object_mut().filter(|_| condition.last_transition.is_none()) {
        disruption.remove("lastTransitionTime");
    }
    json!({"metadata": {"uid": uid}, "status": {"conditions": [disruption]}})
}

/// Retries a few times, as upstream.
async fn patch(api: &Api, victim: &VictimEviction, body: &Value) -> Result<(), CallError> {
    let path = pod_path(&victim.pod, "/status");
    let content_type = "application/strategic-merge-patch+json";
    let mut delays = RETRY_DELAYS.iter();
    loop {
        match api.write(Call { method: Method::PATCH, path: &path, content_type, body }).await {
            Err(error) if is_transient(&error) && !is_gone(&error) => match delays.next() {
                Some(delay) => sleep(*delay).await,
                None => return Err(error),
            },
            result => return result,
        }
    }
}

async fn delete(api: &Api, victim: &VictimEviction) -> Result<(), CallError> {
    let path = pod_path(&victim.pod, "");
    let body: Value = json!({
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": victim.uid},
    });
    api.write(Call { method: Method::DELETE, path: &path, content_type: JSON, body: &body }).await
}

/// Whether the pod is gone, or another pod has its name. A conflict with another writer does not
/// count.
fn is_gone(error: &CallError) -> bool {
    let says = |what: &str| error.error.message.contains(what);
    match error.status {
        Some(StatusCode::NOT_FOUND) => true,
        Some(StatusCode::CONFLICT) => says("UID in "),
        Some(StatusCode::UNPROCESSABLE_ENTITY) => says("metadata.uid: "),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::Receiver;

    use supercargo_framework::Timestamp;
    use supercargo_framework::binding::{ApiError, Certainty};
    use supercargo_framework::pod::PodKey;

    use super::*;
    use crate::owner::Message;
    use supercargo_client::testing::{Requests, answering};

    fn victim(name: &str, since: Option<i64>) -> VictimEviction {
        VictimEviction {
            pod: PodKey { namespace: "ns".into(), name: name.into() },
            uid: format!("uid-{name}").as_str().into(),
            condition: Some(PodCondition {
                status: "True".into(),
                reason: "PreemptionByScheduler".into(),
                message: "supercargo: preempting to accommodate a higher priority pod".into(),
                observed_generation: Some(2),
                last_transition: since.map(Timestamp),
            }),
        }
    }

    async fn outcomes(inbox: &Receiver<Message>) -> Vec<Eviction> {
        loop {
            if let Ok(Message::Input(input)) = inbox.try_recv() {
                match *input {
                    Input::Evicted { preemption: 7, outcomes } => return outcomes,
                    other => panic!("{other:?}"),
                }
            }
            sleep(RETRY_DELAYS[0]).await;
        }
    }

    async fn evicted(victims: Vec<VictimEviction>, statuses: Vec<u16>) -> (Vec<Eviction>, Requests) {
        let (api, requests) = answering(statuses);
        let (mailbox, inbox) = Mailbox::new();
        Preemptor::new(api, mailbox).evict(7, victims);
        (outcomes(&inbox).await, requests)
    }

    #[tokio::test(start_paused = true)]
    async fn victim_gets_a_condition_and_is_deleted() {
        let (outcomes, requests) =
            evicted(vec![victim("v", Some(1_700_000_000_000_000))], vec![200, 200]).await;
        assert_eq!(outcomes, [Eviction::Deleted]);
        let all = requests.all();
        let calls: Vec<_> = all.iter().map(|(method, path, _)| format!("{method} {path}")).collect();
        assert_eq!(
            calls,
            ["PATCH /api/v1/namespaces/ns/pods/v/status", "DELETE /api/v1/namespaces/ns/pods/v"]
        );
        let condition = &all[0].2["status"]["conditions"][0];
        assert_eq!(condition["type"], "DisruptionTarget");
        assert_eq!(condition["reason"], "PreemptionByScheduler");
        assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:13:20Z");
        assert_eq!(all[0].2["metadata"]["uid"], "uid-v");
        assert_eq!(all[1].2["preconditions"]["uid"], "uid-v");
    }

    #[tokio::test(start_paused = true)]
    async fn condition_without_transition_keeps_its_transition_time() {
        let (_, requests) = evicted(vec![victim("v", None)], vec![]).await;
        let condition = requests.all()[0].2["status"]["conditions"][0].clone();
        assert!(!condition.as_object().unwrap().contains_key("lastTransitionTime"), "{condition}");
    }

    #[tokio::test(start_paused = true)]
    async fn victim_that_has_its_condition_is_only_deleted() {
        let known = VictimEviction { condition: None, ..victim("v", None) };
        let (outcomes, requests) = evicted(vec![known], vec![200]).await;
        assert_eq!(outcomes, [Eviction::Deleted]);
        let calls: Vec<_> = requests.all().into_iter().map(|(method, ..)| method).collect();
        assert_eq!(calls, ["DELETE"]);
    }

    #[tokio::test(start_paused = true)]
    async fn outcome_follows_from_the_responses() {
        let failed = |code: u16| Eviction::Failed(code.to_string());
        let cases = [
            ("gone before the patch", vec![404], Eviction::Gone, 1),
            ("gone before the deletion", vec![200, 404], Eviction::Gone, 2),
            ("conflict", vec![409, 409, 200, 200], Eviction::Deleted, 4),
            ("permanent conflict", vec![409; 4], failed(409), 4),
            ("transient error", vec![500, 503, 200, 200], Eviction::Deleted, 4),
            ("permanent error", vec![500; 4], failed(500), 4),
            ("patch forbidden", vec![403], failed(403), 1),
            ("deletion forbidden", vec![200, 403], failed(403), 2),
            ("error of the deletion", vec![200, 500], failed(500), 2),
        ];
        for (name, statuses, expected, calls) in cases {
            let (mut outcomes, requests) = evicted(vec![victim("v", None)], statuses).await;
            if let Eviction::Failed(message) = &mut outcomes[0] {
                // The message starts with the status code.
                message.truncate(3);
            }
            assert_eq!((outcomes, requests.all().len()), (vec![expected], calls), "{name}");
        }
    }

    #[test]
    fn conflict_means_gone_only_if_the_uid_differs() {
        let (conflict, invalid) = (StatusCode::CONFLICT, StatusCode::UNPROCESSABLE_ENTITY);
        let start = "Operation cannot be fulfilled on pods \"v\": ";
        let precondition = "Precondition failed: UID in precondition: a, UID in object meta: b";
        let deletion = "the UID in the precondition (a) does not match the UID in record (b).";
        let cases = [
            (conflict, format!("{start}{precondition}"), true),
            (conflict, format!("{start}{deletion}"), true),
            (conflict, format!("{start}the object has been modified"), false),
            (invalid, "Pod \"v\" is invalid: metadata.uid: Invalid value: \"a\"".to_owned(), true),
            (invalid, "Pod \"v\" is invalid: status: Invalid value: \"a\"".to_owned(), false),
        ];
        for (status, message, expected) in cases {
            let error = CallError {
                error: ApiError { certainty: Certainty::Unknown, message: message.clone() },
                status: Some(status),
                connection_refused: false,
                retry_after: None,
            };
            assert_eq!(is_gone(&error), expected, "{message}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_victim_has_its_own_outcome() {
        let victims = ["a", "b"].map(|name| victim(name, None)).into();
        let (outcomes, requests) = evicted(victims, vec![404]).await;
        assert_eq!((outcomes, requests.all().len()), (vec![Eviction::Gone, Eviction::Deleted], 3));
    }
}
