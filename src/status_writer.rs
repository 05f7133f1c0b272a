//! Patches pod statuses: per pod one at a time and in order, the newest winning over one that has not been sent.

use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_scheduler::StatusPatch;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::binder::pod_path;
use crate::gauge::Gauge;
use supercargo_client::api::{Api, Call, CallError};

/// So many patches at most are under way.
const PATCHES_IN_FLIGHT: usize = 64;
/// Pauses between tries: upstream's default backoff.
pub(crate) const PAUSES: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// Something for the writer.
enum WriterMessage {
    Patch(StatusPatch),
    /// Forget what of this pod has not been sent, and say when nothing of it is under way.
    Settle {
        uid: Uid,
        done: oneshot::Sender<()>,
    },
}

/// Takes patches and never blocks.
#[derive(Clone)]
pub(crate) struct Patches {
    messages: mpsc::UnboundedSender<WriterMessage>,
    held: Gauge,
}

impl Patches {
    pub(crate) fn send(&self, patch: StatusPatch) {
        // When the writer has ended, so has the process.
        let _ = self.messages.send(WriterMessage::Patch(patch));
    }

    /// How many pods have a patch that waits or is under way.
    pub(crate) fn gauge(&self) -> Gauge {
        self.held.clone()
    }

    /// Drops the pod's patches that have not been sent, and waits for the one under way.
    ///
    /// A pod that is about to be bound needs this: what an earlier attempt had to say must not arrive after that. The
    /// order is that of the calls, whenever the future is polled.
    pub(crate) fn settle(&self, uid: &Uid) -> impl Future<Output = ()> + Send + use<> {
        let (done, settled) = oneshot::channel();
        let _ = self.messages.send(WriterMessage::Settle { uid: uid.clone(), done });
        async move {
            // A writer that has ended writes no more either.
            let _ = settled.await;
        }
    }
}

/// What is to be done for a pod.
#[derive(Default)]
struct PodWrites {
    /// What comes next.
    waiting: Option<StatusPatch>,
    /// There is a write under way; cancelling this keeps it from trying again.
    in_flight: Option<CancellationToken>,
    /// Who waits for that write to end.
    settling: Vec<oneshot::Sender<()>>,
}

/// Writes patches.
pub(crate) struct StatusWriter {
    api: Api,
    messages: mpsc::UnboundedReceiver<WriterMessage>,
    /// Pods with a patch that waits or is under way.
    pods: HashMap<Uid, PodWrites>,
    /// Pods whose turn comes when a place is free, in order. Some may have nothing to write any more.
    ready: VecDeque<Uid>,
    writes: JoinSet<Uid>,
    held: Gauge,
}

impl StatusWriter {
    pub(crate) fn new(api: Api) -> (Patches, Self) {
        let (sender, messages) = mpsc::unbounded_channel();
        let (pods, ready, held) = (HashMap::new(), VecDeque::new(), Gauge::default());
        let patches = Patches { messages: sender, held: held.clone() };
        (patches, Self { api, messages, pods, ready, writes: JoinSet::new(), held })
    }

    /// Writes until nobody can send any more, and then finishes what is left.
    pub(crate) async fn run(mut self) {
        let mut open = true;
        while open || !self.writes.is_empty() {
            self.held.set(self.pods.len());
            tokio::select! {
                message = self.messages.recv(), if open => match message {
                    Some(WriterMessage::Patch(patch)) => self.take(patch),
                    Some(WriterMessage::Settle { uid, done }) => self.settle(&uid, done),
                    None => open = false,
                },
                Some(written) = self.writes.join_next() => {
                    // Writes are never aborted and contain their panics, so each one tells whose it was.
                    if let Ok(uid) = written {
                        self.written(uid);
                    }
                }
            }
        }
    }

    fn take(&mut self, patch: StatusPatch) {
        let pod = self.pods.entry(patch.uid.clone()).or_default();
        match &mut pod.waiting {
            Some(waiting) => merge(waiting, patch),
            None => {
                let uid = patch.uid.clone();
                pod.waiting = Some(patch);
                // Otherwise its turn comes when the one under way has ended.
                if pod.in_flight.is_none() {
                    self.ready.push_back(uid);
                    self.fill();
                }
            }
        }
    }

    fn settle(&mut self, uid: &Uid, done: oneshot::Sender<()>) {
        if let Some(pod) = self.pods.get_mut(uid) {
            pod.waiting = None;
            if let Some(in_flight) = &pod.in_flight {
                in_flight.cancel();
                pod.settling.push(done);
                return;
            }
            self.pods.remove(uid);
        }
        // Whoever has stopped waiting does not mind, here and below.
        let _ = done.send(());
    }

    fn written(&mut self, uid: Uid) {
        if let Some(pod) = self.pods.get_mut(&uid) {
            pod.in_flight = None;
            for done in pod.settling.drain(..) {
                let _ = done.send(());
            }
            if pod.waiting.is_some() {
                self.ready.push_back(uid);
            } else {
                self.pods.remove(&uid);
            }
        }
        self.fill();
    }

    fn fill(&mut self) {
        while self.writes.len() < PATCHES_IN_FLIGHT {
            let Some(uid) = self.ready.pop_front() else {
                return;
            };
            // A pod that was settled and has failed again stands in line twice.
            let Some(pod) = self.pods.get_mut(&uid).filter(|pod| pod.in_flight.is_none()) else {
                continue;
            };
            if let Some(patch) = pod.waiting.take() {
                let last_try = CancellationToken::new();
                pod.in_flight = Some(last_try.clone());
                self.writes.spawn(contained_write(self.api.clone(), patch, last_try));
            }
        }
    }
}

/// Writes a patch and returns whose it was, whatever happens: the pod's next one waits for that.
async fn contained_write(api: Api, patch: StatusPatch, last_try: CancellationToken) -> Uid {
    if AssertUnwindSafe(write(&api, &patch, &last_try)).catch_unwind().await.is_err() {
        tracing::error!(pod = %patch.pod, "patching the pod's status panicked");
    }
    patch.uid
}

/// Lets the later patch win, field by field.
fn merge(waiting: &mut StatusPatch, later: StatusPatch) {
    waiting.condition = later.condition.or(waiting.condition.take());
    if later.nomination != Nomination::Keep {
        waiting.nomination = later.nomination;
    }
}

/// Tries until it is written, there is no hope, or the try under way shall be the last.
async fn write(api: &Api, patch: &StatusPatch, last_try: &CancellationToken) {
    let path = pod_path(&patch.pod, "/status");
    let body = body(patch);
    let content_type = "application/strategic-merge-patch+json";
    for pause in PAUSES.iter().map(Some).chain([None]) {
        let Err(error) =
            api.write(Call { method: Method::PATCH, path: &path, content_type, body: &body }).await
        else {
            return;
        };
        match (pause, is_passing(&error)) {
            (Some(pause), true) => {
                if last_try.run_until_cancelled(sleep(*pause)).await.is_none() {
                    tracing::debug!(pod = %patch.pod, error = %error.error, "no longer patching the pod's status");
                    return;
                }
            }
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

/// Whether the same patch may be taken a moment later.
pub(crate) fn is_passing(error: &CallError) -> bool {
    let passing = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE, StatusCode::CONFLICT];
    error.connection_refused || error.status.is_some_and(|status| passing.contains(&status))
}

/// The patch: conditions merge by type, and the UID keeps it from another pod of that name.
fn body(patch: &StatusPatch) -> Value {
    let mut status = serde_json::Map::new();
    if let Some(condition) = &patch.condition {
        status.insert("conditions".into(), json!([condition_json("PodScheduled", condition)]));
    }
    if let Nomination::Override(node) = &patch.nomination {
        status.insert("nominatedNodeName".into(), json!(node));
    }
    json!({"metadata": {"uid": patch.uid}, "status": status})
}

/// A condition of this type as the API has it.
pub(crate) fn condition_json(kind: &str, condition: &PodCondition) -> Value {
    let transition = condition.last_transition.and_then(|at| Timestamp::from_microsecond(at.0).ok());
    json!({
        "type": kind,
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
    use std::sync::Arc;

    use http_body_util::BodyExt as _;
    use kube::client::Body;
    use parking_lot::Mutex;
    use supercargo_framework::pod::PodKey;
    use tokio::time::Instant;

    use super::*;
    use supercargo_client::testing::{Requests, answering};

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

    /// An API server that takes a second for each answer, and remembers whom it has answered.
    fn slow() -> (Api, Arc<Mutex<Vec<String>>>) {
        let answered = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&answered);
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let log = Arc::clone(&log);
            async move {
                let body = request.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
                let body: Value = serde_json::from_slice(&body).map_err(|error| error.to_string())?;
                sleep(Duration::from_secs(1)).await;
                let message = body["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
                log.lock().push(message.to_owned());
                Ok::<_, String>(http::Response::new(Body::from(b"{}".to_vec())))
            }
        });
        (Api::with_client(kube::Client::new(service, "default")), answered)
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

    #[tokio::test(start_paused = true)]
    async fn settling_drops_what_has_not_been_sent() {
        let (api, answered) = slow();
        let (sender, writer) = StatusWriter::new(api);
        for filler in 0..PATCHES_IN_FLIGHT {
            sender.send(patch(&format!("filler {filler}"), "filler", Nomination::Keep));
        }
        sender.send(patch("u1", "in line", Nomination::Keep));
        sender.send(patch("filler 0", "next", Nomination::Keep));
        let settled = [sender.settle(&"u1".into()), sender.settle(&"filler 0".into())];
        drop(sender);
        tokio::join!(writer.run(), futures::future::join_all(settled));
        assert_eq!(*answered.lock(), vec!["filler"; PATCHES_IN_FLIGHT]);
    }

    #[tokio::test(start_paused = true)]
    async fn settling_waits_for_the_patch_under_way() {
        let (api, answered) = slow();
        let (sender, writer) = StatusWriter::new(api);
        sender.send(patch("u1", "under way", Nomination::Keep));
        let settled = sender.settle(&"u1".into());
        sender.send(patch("u1", "later", Nomination::Keep));
        drop(sender);
        let written_before = async {
            settled.await;
            answered.lock().clone()
        };
        let ((), written_before) = tokio::join!(writer.run(), written_before);
        assert_eq!(written_before, ["under way"]);
        assert_eq!(*answered.lock(), ["under way", "later"], "what comes after the settling is written");
    }

    #[tokio::test(start_paused = true)]
    async fn settling_keeps_a_failed_patch_from_being_tried_again() {
        let (api, requests) = answering(vec![500; 9]);
        let (sender, writer) = StatusWriter::new(api);
        sender.send(patch("u1", "a", Nomination::Keep));
        let settled = sender.settle(&"u1".into());
        drop(sender);
        tokio::join!(writer.run(), settled);
        assert_eq!(requests.all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn settling_a_pod_with_nothing_pending_ends_at_once() {
        let (api, answered) = slow();
        let (sender, writer) = StatusWriter::new(api);
        sender.send(patch("another", "a", Nomination::Keep));
        let settled = sender.settle(&"u1".into());
        let begin = Instant::now();
        let waited = async {
            settled.await;
            drop(sender);
            begin.elapsed()
        };
        let ((), waited) = tokio::join!(writer.run(), waited);
        assert_eq!(waited, Duration::ZERO);
        assert_eq!(*answered.lock(), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_that_fails_again_after_it_was_settled_is_patched_once() {
        let (api, answered) = slow();
        let (sender, writer) = StatusWriter::new(api);
        for filler in 0..PATCHES_IN_FLIGHT {
            sender.send(patch(&format!("filler {filler}"), "filler", Nomination::Keep));
        }
        sender.send(patch("u1", "before", Nomination::Keep));
        let settled = sender.settle(&"u1".into());
        sender.send(patch("u1", "after", Nomination::Keep));
        drop(sender);
        tokio::join!(writer.run(), settled);
        assert_eq!(answered.lock()[PATCHES_IN_FLIGHT..], ["after"]);
    }
}
