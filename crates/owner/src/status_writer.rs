//! Patches the statuses of pods and of their groups: one patch per object at a time, in order. A
//! new patch replaces one that has not been sent.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use http::{Method, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};
use supercargo_framework::Uid;
use supercargo_framework::plugin::Nomination;
use supercargo_framework::pod::PodCondition;
use supercargo_scheduler::{GroupPatch, StatusPatch};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::binder::pod_path;
use crate::gauge::Gauge;
use supercargo_client::api::{Api, Call, CallError};

/// Maximum number of patches in flight.
const PATCHES_IN_FLIGHT: usize = 64;
/// Delays between attempts: upstream's default backoff.
pub(crate) const RETRY_DELAYS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(50), Duration::from_millis(250)];

/// A message to the writer.
enum WriterMessage {
    Patch(Patch),
    /// Drops the pod's patch that has not been sent, and waits for the one in flight.
    Settle {
        uid: Uid,
        done: oneshot::Sender<()>,
    },
}

/// A patch of a status.
enum Patch {
    Pod(StatusPatch),
    Group(GroupPatch),
}

impl Patch {
    fn uid(&self) -> &Uid {
        match self {
            Self::Pod(patch) => &patch.uid,
            Self::Group(patch) => &patch.uid,
        }
    }

    /// Merges a later patch of the same object, whose fields take precedence.
    fn merge(&mut self, later: Self) {
        match (self, later) {
            (Self::Pod(waiting), Self::Pod(later)) => merge(waiting, later),
            (waiting, later) => *waiting = later,
        }
    }

    fn path(&self) -> String {
        match self {
            Self::Pod(patch) => pod_path(&patch.pod, "/status"),
            Self::Group(patch) => {
                let (namespace, name) = patch.group.split_once('/').unwrap_or_default();
                format!("/apis/scheduling.k8s.io/v1beta1/namespaces/{namespace}/podgroups/{name}/status")
            }
        }
    }

    fn body(&self) -> Value {
        match self {
            Self::Pod(patch) => body(patch),
            Self::Group(patch) => {
                let condition = json!({
                    "type": "PodGroupInitiallyScheduled",
                    "status": patch.condition.status,
                    "reason": patch.condition.reason,
                    "message": patch.condition.message,
                    "lastTransitionTime": transition_json(&patch.condition),
                });
                json!({"metadata": {"uid": patch.uid}, "status": {"conditions": [condition]}})
            }
        }
    }
}

/// The object's kind and name, for logs.
impl fmt::Display for Patch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(patch) => write!(f, "pod {}", patch.pod),
            Self::Group(patch) => write!(f, "PodGroup {}", patch.group),
        }
    }
}

/// Sends patches to the writer. Never blocks.
#[derive(Clone)]
pub struct Patches {
    messages: mpsc::UnboundedSender<WriterMessage>,
    held: Gauge,
}

impl Patches {
    /// Queues a patch of a pod's status.
    pub fn send(&self, patch: StatusPatch) {
        // The writer ends only with the process.
        let _ = self.messages.send(WriterMessage::Patch(Patch::Pod(patch)));
    }

    /// Queues a patch of a PodGroup's status.
    pub fn send_group(&self, patch: GroupPatch) {
        // The same.
        let _ = self.messages.send(WriterMessage::Patch(Patch::Group(patch)));
    }

    /// Number of pods with a patch that is queued or in flight.
    pub fn gauge(&self) -> Gauge {
        self.held.clone()
    }

    /// Drops the pod's patch that has not been sent, and waits for the one in flight.
    ///
    /// Called before a pod is bound: the status of an earlier attempt must not arrive after the
    /// binding. Takes effect at the call, not when the future is polled.
    pub fn settle(&self, uid: &Uid) -> impl Future<Output = ()> + Send + use<> {
        let (done, settled) = oneshot::channel();
        let _ = self.messages.send(WriterMessage::Settle { uid: uid.clone(), done });
        async move {
            // A writer that has ended sends nothing either.
            let _ = settled.await;
        }
    }
}

/// The patches of a pod.
#[derive(Default)]
struct PodWrites {
    /// The next patch.
    waiting: Option<Patch>,
    /// Set while a patch is in flight. Cancelling it prevents retries.
    in_flight: Option<CancellationToken>,
    /// Callers that wait for the patch in flight.
    settling: Vec<oneshot::Sender<()>>,
}

/// Writes patches.
pub struct StatusWriter {
    api: Api,
    messages: mpsc::UnboundedReceiver<WriterMessage>,
    /// Pods with a patch that is queued or in flight.
    pods: HashMap<Uid, PodWrites>,
    /// Pods with a queued patch, in order. May contain pods whose patch was dropped.
    ready: VecDeque<Uid>,
    writes: JoinSet<Uid>,
    held: Gauge,
}

impl StatusWriter {
    /// What sends patches to the writer, and the writer.
    pub fn new(api: Api) -> (Patches, Self) {
        let (sender, messages) = mpsc::unbounded_channel();
        let (pods, ready, held) = (HashMap::new(), VecDeque::new(), Gauge::default());
        let patches = Patches { messages: sender, held: held.clone() };
        (patches, Self { api, messages, pods, ready, writes: JoinSet::new(), held })
    }

    /// Writes until all senders are gone, and then flushes.
    pub async fn run(mut self) {
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
                    // Always Ok: writes are never aborted, and their panics are caught.
                    if let Ok(uid) = written {
                        self.written(uid);
                    }
                }
            }
        }
    }

    fn take(&mut self, patch: Patch) {
        let pod = self.pods.entry(patch.uid().clone()).or_default();
        match &mut pod.waiting {
            Some(waiting) => waiting.merge(patch),
            None => {
                let uid = patch.uid().clone();
                pod.waiting = Some(patch);
                // Otherwise it is queued when the patch in flight completes.
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
        // The caller may have stopped waiting, here and below.
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
            // A pod that was settled and has failed again is queued twice.
            let Some(pod) = self.pods.get_mut(&uid).filter(|pod| pod.in_flight.is_none()) else {
                continue;
            };
            if let Some(patch) = pod.waiting.take() {
                let last_try = CancellationToken::new();
                pod.in_flight = Some(last_try.clone());
                self.writes.spawn(write_or_log_panic(self.api.clone(), patch, last_try));
            }
        }
    }
}

/// Writes a patch and returns the UID of its object, even after a panic: the object's next patch
/// waits for it.
async fn write_or_log_panic(api: Api, patch: Patch, last_try: CancellationToken) -> Uid {
    if AssertUnwindSafe(write(&api, &patch, &last_try)).catch_unwind().await.is_err() {
        tracing::error!(object = %patch, "status patch panicked");
    }
    patch.uid().clone()
}

/// Merges patches; fields of the later one take precedence.
fn merge(waiting: &mut StatusPatch, later: StatusPatch) {
    waiting.condition = later.condition.or(waiting.condition.take());
    if later.nomination != Nomination::Keep {
        waiting.nomination = later.nomination;
    }
}

/// Writes a patch at once, without regard to others.
pub async fn write_now(api: &Api, patch: &StatusPatch) {
    write(api, &Patch::Pod(patch.clone()), &CancellationToken::new()).await;
}

/// Retries until the patch is written, the error is permanent, or `last_try` is cancelled.
async fn write(api: &Api, patch: &Patch, last_try: &CancellationToken) {
    let (path, body) = (patch.path(), patch.body());
    let content_type = "application/strategic-merge-patch+json";
    for delay in RETRY_DELAYS.iter().map(Some).chain([None]) {
        let Err(error) =
            api.write(Call { method: Method::PATCH, path: &path, content_type, body: &body }).await
        else {
            return;
        };
        match (delay, is_transient(&error)) {
            (Some(delay), true) => {
                if last_try.run_until_cancelled(sleep(*delay)).await.is_none() {
                    tracing::debug!(object = %patch, error = %error.error, "dropping outdated status patch");
                    return;
                }
            }
            // The object is gone, or another one has its name.
            _ if error.status == Some(StatusCode::NOT_FOUND)
                || error.status == Some(StatusCode::CONFLICT) =>
            {
                return;
            }
            // During an outage every patch fails; the informers log the outage.
            _ if error.connection_refused => {
                tracing::debug!(object = %patch, error = %error.error, "cannot patch status");
                return;
            }
            _ => {
                tracing::warn!(object = %patch, error = %error.error, "cannot patch status");
                return;
            }
        }
    }
}

/// Whether a retry may succeed.
pub(crate) fn is_transient(error: &CallError) -> bool {
    let transient =
        [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE, StatusCode::CONFLICT];
    error.connection_refused || error.status.is_some_and(|status| transient.contains(&status))
}

/// The body: conditions merge by type, and the UID protects another pod of the same name.
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

/// A pod condition in the API's JSON format.
pub(crate) fn condition_json(kind: &str, condition: &PodCondition) -> Value {
    json!({
        "type": kind,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": condition.observed_generation,
        "lastProbeTime": null,
        "lastTransitionTime": transition_json(condition),
    })
}

fn transition_json(condition: &PodCondition) -> Option<String> {
    let transition = Timestamp::from_microsecond(condition.last_transition?.0).ok()?;
    Some(format!("{transition:.0}"))
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

    /// An API server that responds after a second and records the messages of patches.
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
    async fn patch_has_the_condition_and_clears_the_nomination() {
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
    async fn new_patch_of_a_pod_replaces_the_queued_one() {
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
        assert_eq!(
            all[1].2["status"]["nominatedNodeName"], "n1",
            "fields that the newest patch does not set are kept"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_queued_nomination_that_is_cleared_is_not_written() {
        let patches = vec![
            patch("u1", "first", Nomination::Keep),
            patch("u1", "second", Nomination::Override(Some("n1".into()))),
            patch("u1", "third", Nomination::Override(None)),
        ];
        let requests = written(patches, vec![]).await.all();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[1].2["status"]["nominatedNodeName"], Value::Null);
        assert!(!format!("{requests:?}").contains("n1"));
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried_three_times() {
        assert_eq!(
            written(vec![patch("u1", "a", Nomination::Keep)], vec![500, 503, 200]).await.all().len(),
            3
        );
        assert_eq!(written(vec![patch("u1", "a", Nomination::Keep)], vec![500; 9]).await.all().len(), 4);
        assert_eq!(written(vec![patch("u1", "a", Nomination::Keep)], vec![404]).await.all().len(), 1);
        assert_eq!(written(vec![patch("u1", "a", Nomination::Keep)], vec![422]).await.all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn settle_drops_queued_patches() {
        let (api, answered) = slow();
        let (sender, writer) = StatusWriter::new(api);
        for filler in 0..PATCHES_IN_FLIGHT {
            sender.send(patch(&format!("filler {filler}"), "filler", Nomination::Keep));
        }
        sender.send(patch("u1", "queued", Nomination::Keep));
        sender.send(patch("filler 0", "next", Nomination::Keep));
        let settled = [sender.settle(&"u1".into()), sender.settle(&"filler 0".into())];
        drop(sender);
        tokio::join!(writer.run(), futures::future::join_all(settled));
        assert_eq!(*answered.lock(), vec!["filler"; PATCHES_IN_FLIGHT]);
    }

    #[tokio::test(start_paused = true)]
    async fn settle_waits_for_the_patch_in_flight() {
        let (api, answered) = slow();
        let (sender, writer) = StatusWriter::new(api);
        sender.send(patch("u1", "in flight", Nomination::Keep));
        let settled = sender.settle(&"u1".into());
        sender.send(patch("u1", "later", Nomination::Keep));
        drop(sender);
        let written_before = async {
            settled.await;
            answered.lock().clone()
        };
        let ((), written_before) = tokio::join!(writer.run(), written_before);
        assert_eq!(written_before, ["in flight"]);
        assert_eq!(*answered.lock(), ["in flight", "later"], "later patches are written");
    }

    #[tokio::test(start_paused = true)]
    async fn settle_prevents_retries() {
        let (api, requests) = answering(vec![500; 9]);
        let (sender, writer) = StatusWriter::new(api);
        sender.send(patch("u1", "a", Nomination::Keep));
        let settled = sender.settle(&"u1".into());
        drop(sender);
        tokio::join!(writer.run(), settled);
        assert_eq!(requests.all().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn settle_without_pending_patch_completes_immediately() {
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
    async fn pod_that_fails_again_after_settle_is_patched_once() {
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
