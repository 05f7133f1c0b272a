//! Patches pod statuses: per pod one at a time and in order, the newest winning over one that has not been sent.

use std::collections::HashMap;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_scheduler::StatusPatch;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::api::{Api, Call, CallError};
use crate::binder::pod_path;

/// So many patches at most are under way.
const PATCHES_IN_FLIGHT: usize = 64;
/// Pauses between tries: upstream's default backoff.
const PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Takes patches and never blocks.
#[derive(Clone)]
pub(crate) struct Patches(mpsc::UnboundedSender<StatusPatch>);

impl Patches {
    pub(crate) fn send(&self, patch: StatusPatch) {
        // When the writer has ended, so has the process.
        let _ = self.0.send(patch);
    }
}

/// Writes patches.
pub(crate) struct StatusWriter {
    api: Api,
    patches: mpsc::UnboundedReceiver<StatusPatch>,
    /// Pods that are being patched, with what comes next.
    next: HashMap<Uid, Option<StatusPatch>>,
    /// Pods whose turn comes when a place is free, in order.
    ready: std::collections::VecDeque<StatusPatch>,
    writes: JoinSet<Uid>,
}

impl StatusWriter {
    pub(crate) fn new(api: Api) -> (Patches, Self) {
        let (sender, patches) = mpsc::unbounded_channel();
        let ready = std::collections::VecDeque::new();
        (Patches(sender), Self { api, patches, next: HashMap::new(), ready, writes: JoinSet::new() })
    }

    /// Writes until nobody can send any more, and then finishes what is left.
    pub(crate) async fn run(mut self) {
        let mut open = true;
        while open || !self.writes.is_empty() {
            tokio::select! {
                patch = self.patches.recv(), if open => match patch {
                    Some(patch) => self.take(patch),
                    None => open = false,
                },
                Some(written) = self.writes.join_next() => {
                    if let Ok(uid) = written {
                        self.written(&uid);
                    }
                }
            }
        }
    }

    fn take(&mut self, patch: StatusPatch) {
        match self.next.get_mut(&patch.uid) {
            Some(Some(waiting)) => merge(waiting, patch),
            Some(next) => *next = Some(patch),
            None => {
                self.next.insert(patch.uid.clone(), None);
                self.ready.push_back(patch);
                self.fill();
            }
        }
    }

    fn written(&mut self, uid: &Uid) {
        match self.next.get_mut(uid).and_then(Option::take) {
            Some(patch) => self.ready.push_back(patch),
            None => {
                self.next.remove(uid);
            }
        }
        self.fill();
    }

    fn fill(&mut self) {
        while self.writes.len() < PATCHES_IN_FLIGHT {
            let Some(patch) = self.ready.pop_front() else {
                return;
            };
            let api = self.api.clone();
            self.writes.spawn(async move {
                write(&api, &patch).await;
                patch.uid
            });
        }
    }
}

/// Lets the later patch win, field by field.
fn merge(waiting: &mut StatusPatch, later: StatusPatch) {
    waiting.condition = later.condition.or(waiting.condition.take());
    if later.nomination != Nomination::Keep {
        waiting.nomination = later.nomination;
    }
}

async fn write(api: &Api, patch: &StatusPatch) {
    let path = pod_path(&patch.pod, "/status");
    let body = body(patch);
    let content_type = "application/strategic-merge-patch+json";
    for pause in PAUSES.iter().map(Some).chain([None]) {
        let Err(error) =
            api.call(Call { method: Method::PATCH, path: &path, content_type, body: &body }).await
        else {
            return;
        };
        match (pause, is_passing(&error)) {
            (Some(pause), true) => sleep(*pause).await,
            // The pod is gone, or another has taken its name: there is nobody left to tell.
            _ if error.status == Some(StatusCode::NOT_FOUND)
                || error.status == Some(StatusCode::CONFLICT) =>
            {
                return;
            }
            // While the server is away every pod's patch fails; the informers say that it is.
            _ if error.connection_refused => {
                tracing::debug!(pod = %patch.pod, error = %error.error, "cannot patch the pod's status");
                return;
            }
            _ => {
                tracing::warn!(pod = %patch.pod, error = %error.error, "cannot patch the pod's status");
                return;
            }
        }
    }
}

fn is_passing(error: &CallError) -> bool {
    let passing = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE, StatusCode::CONFLICT];
    error.connection_refused || error.status.is_some_and(|status| passing.contains(&status))
}

/// The patch: conditions merge by type, and the UID keeps it from another pod of that name.
fn body(patch: &StatusPatch) -> Value {
    let mut status = serde_json::Map::new();
    if let Some(condition) = &patch.condition {
        status.insert("conditions".into(), json!([condition_json(condition)]));
    }
    if let Nomination::Override(node) = &patch.nomination {
        status.insert("nominatedNodeName".into(), json!(node));
    }
    json!({"metadata": {"uid": patch.uid}, "status": status})
}

fn condition_json(condition: &PodCondition) -> Value {
    let transition = condition.last_transition.and_then(|at| Timestamp::from_microsecond(at.0).ok());
    json!({
        "type": "PodScheduled",
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastProbeTime": null,
        "lastTransitionTime": transition.map(|at| format!("{at:.0}")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Requests, answering};
    use supercargo_framework::pod::PodKey;

    fn patch(uid: &str, message: &str, nomination: Nomination) -> StatusPatch {
        StatusPatch {
            pod: PodKey { namespace: "ns".into(), name: "pod".into() },
            uid: uid.into(),
            condition: Some(PodCondition {
                status: "False".into(),
                reason: "Unschedulable".into(),
                message: message.into(),
                observed_generation: Some(3),
                last_transition: Some(supercargo_framework::Timestamp(1_700_000_000_000_000)),
            }),
            nomination,
        }
    }

    async fn written(patches: Vec<StatusPatch>, statuses: Vec<u16>) -> Requests {
        let (api, requests) = answering(statuses);
        let (sender, writer) = StatusWriter::new(api);
        for patch in patches {
            sender.send(patch);
        }
        drop(sender);
        writer.run().await;
        requests
    }

    #[tokio::test(start_paused = true)]
    async fn a_patch_has_the_condition_and_clears_the_nomination() {
        let requests = written(vec![patch("u1", "why", Nomination::Override(None))], vec![200]).await;
        let [(method, path, body)] = &requests.all()[..] else { panic!("{requests:?}") };
        assert_eq!((method.as_str(), path.as_str()), ("PATCH", "/api/v1/namespaces/ns/pods/pod/status"));
        assert_eq!(body["metadata"]["uid"], "u1");
        assert_eq!(body["status"]["nominatedNodeName"], Value::Null);
        assert!(body["status"].as_object().unwrap().contains_key("nominatedNodeName"));
        let condition = &body["status"]["conditions"][0];
        assert_eq!(condition["lastTransitionTime"], "2023-11-14T22:13:20Z");
        assert_eq!(condition["observedGeneration"], 3);
    }

    #[tokio::test(start_paused = true)]
    async fn patches_of_one_pod_keep_their_order_and_the_newest_replaces_one_not_sent() {
        let patches = vec![
            patch("u1", "first", Nomination::Keep),
            patch("u1", "second", Nomination::Override(Some("n1".into()))),
            patch("u1", "third", Nomination::Keep),
        ];
        let requests = written(patches, vec![]).await;
        let all = requests.all();
        let messages: Vec<_> =
            all.iter().map(|(.., body)| &body["status"]["conditions"][0]["message"]).collect();
        assert_eq!(messages, ["first", "third"]);
        assert_eq!(all[1].2["status"]["nominatedNodeName"], "n1", "what the newest does not speak of stays");
    }

    #[tokio::test(start_paused = true)]
    async fn passing_failures_are_tried_again_three_times() {
        assert_eq!(
            written(vec![patch("u1", "a", Nomination::Keep)], vec![500, 503, 200]).await.all().len(),
            3
        );
        assert_eq!(written(vec![patch("u1", "a", Nomination::Keep)], vec![500; 9]).await.all().len(), 4);
        assert_eq!(written(vec![patch("u1", "a", Nomination::Keep)], vec![404]).await.all().len(), 1);
        assert_eq!(written(vec![patch("u1", "a", Nomination::Keep)], vec![422]).await.all().len(), 1);
    }
}
