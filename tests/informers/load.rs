//! Concurrent writers of pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, Request};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::trouble::Random;
use crate::support::namespace;

/// The namespaces of the pods.
pub(super) const NAMESPACES: [&str; 3] = ["soak-a", "soak-b", "soak-c"];

/// The number of pods, and the writers that share them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) pods: usize,
    pub(super) writers: usize,
    pub(super) seed: u64,
}

/// The progress of the writers.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) created: AtomicUsize,
    pub(super) updated: AtomicUsize,
    pub(super) deleted: AtomicUsize,
}

impl Progress {
    pub(super) fn writes(&self) -> usize {
        [&self.created, &self.updated, &self.deleted].iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

impl Load {
    /// Creates, changes and deletes pods until all have been created; some remain.
    pub(super) async fn run(self, client: &Client, progress: &Arc<Progress>) {
        for name in NAMESPACES {
            send(client, Method::POST, "/api/v1/namespaces", &namespace(name)).await;
        }
        let mut writers = JoinSet::new();
        for number in 0..self.writers {
            let random = Random::new(self.seed + number as u64);
            let mut writer =
                Writer { client: client.clone(), random, live: Vec::new(), progress: Arc::clone(progress) };
            let mine = (number..self.pods).step_by(self.writers);
            writers.spawn(async move { writer.run(mine).await });
        }
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
    }
}

/// A writer with its own pods.
struct Writer {
    client: Client,
    random: Random,
    live: Vec<Live>,
    progress: Arc<Progress>,
}

struct Live {
    namespace: &'static str,
    name: String,
    bound: bool,
}

impl Live {
    fn path(&self) -> String {
        format!("/api/v1/namespaces/{}/pods/{}", self.namespace, self.name)
    }
}

impl Writer {
    async fn run(&mut self, numbers: impl Iterator<Item = usize>) {
        for number in numbers {
            let namespace = NAMESPACES[self.random.below(NAMESPACES.len())];
            self.create(Live { namespace, name: format!("pod-{number}"), bound: false }).await;
            for _ in 0..self.random.below(3) {
                self.change().await;
            }
            // Enough live pods for long lists, and few enough that most are deleted again.
            while self.live.len() > 70 || self.random.below(3) == 0 {
                if self.end_one().await.is_none() {
                    break;
                }
            }
        }
    }

    async fn create(&mut self, pod: Live) {
        let object = json!({
            "metadata": { "name": pod.name, "labels": { "number": "0" } },
            "spec": { "containers": [{ "name": "main", "image": "none" }] },
        });
        let collection = format!("/api/v1/namespaces/{}/pods", pod.namespace);
        send(&self.client, Method::POST, &collection, &object).await;
        self.progress.created.fetch_add(1, Ordering::Relaxed);
        self.live.push(pod);
    }

    async fn change(&mut self) {
        let (chosen, number) = (self.random.below(self.live.len().max(1)), self.random.below(1000));
        let Some(pod) = self.live.get_mut(chosen) else { return };
        let path = pod.path();
        if pod.bound || number % 2 == 0 {
            let change = json!({ "metadata": { "labels": { "number": number.to_string() } } });
            send(&self.client, Method::PATCH, &path, &change).await;
        } else {
            let target = json!({ "kind": "Node", "name": format!("node-{}", number % 7) });
            let binding = json!({ "metadata": { "name": pod.name }, "target": target });
            send(&self.client, Method::POST, &format!("{path}/binding"), &binding).await;
            pod.bound = true;
        }
        self.progress.updated.fetch_add(1, Ordering::Relaxed);
    }

    /// Deletes a pod; sometimes recreates it immediately under its name.
    async fn end_one(&mut self) -> Option<()> {
        let chosen = self.random.below(self.live.len().max(1));
        let pod = (chosen < self.live.len()).then(|| self.live.swap_remove(chosen))?;
        let now = json!({ "gracePeriodSeconds": 0 });
        send(&self.client, Method::DELETE, &pod.path(), &now).await;
        self.progress.deleted.fetch_add(1, Ordering::Relaxed);
        if self.random.below(8) == 0 {
            self.create(Live { bound: false, ..pod }).await;
        }
        Some(())
    }
}

async fn send(client: &Client, method: Method, path: &str, body: &Value) {
    let content_type =
        if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let request = Request::builder().method(&method).uri(path).header("content-type", content_type);
    let request = request.body(Body::from(body.to_string().into_bytes())).unwrap();
    let answer = client.send(request).await.unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    let status = answer.status();
    // Reads the whole body, so that the connection can be reused.
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(status.is_success(), "{method} {path}: {status}: {}", String::from_utf8_lossy(&body));
}
