//! Random changes, reproducible by seed.

use std::collections::BTreeSet;

use crate::support::Random;
use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use serde_json::{Value, json};
use supercargo_apiserver::{ApiServer, Service};
use tower::ServiceExt as _;

/// The resources to change.
pub(super) const RESOURCES: [&str; 3] = ["pods", "nodes", "configmaps"];

/// The number of names per resource, small enough that deleted names are reused.
const NAMES: usize = 120;

const NAMESPACES: [&str; 2] = ["default", "kube-public"];

/// Changes the objects of a server, in process.
pub(super) struct Changes {
    service: Service,
    random: Random,
    /// The paths of the existing objects.
    live: BTreeSet<String>,
    /// The pods that are bound to a node.
    bound: BTreeSet<String>,
    pub(super) made: usize,
}

impl Changes {
    pub(super) fn new(server: &ApiServer, seed: u64) -> Self {
        let (live, bound) = (BTreeSet::new(), BTreeSet::new());
        Self { service: server.service(), random: Random::new(seed), live, bound, made: 0 }
    }

    /// Makes a number of changes.
    pub(super) async fn make(&mut self, count: usize) {
        for _ in 0..count {
            match self.random.below(10) {
                0..6 => self.change_pod().await,
                6..8 => self.change_node().await,
                _ => self.change_config_map().await,
            }
            self.made += 1;
        }
    }

    async fn change_pod(&mut self) {
        let (namespace, name) =
            (NAMESPACES[self.random.below(2)], format!("pod-{}", self.random.below(NAMES)));
        let collection = format!("/api/v1/namespaces/{namespace}/pods");
        let path = format!("{collection}/{name}");
        if !self.live.contains(&path) {
            let number = self.random.below(5).to_string();
            let pod = json!({
                "metadata": { "name": name, "labels": { "number": number } },
                "spec": { "containers": [{ "name": "main", "image": "none" }] },
            });
            return self.create(&collection, path, &pod).await;
        }
        let number = self.random.below(1000);
        match self.random.below(6) {
            0 => {
                self.bound.remove(&path);
                self.delete(path).await;
            }
            1 | 2 if !self.bound.contains(&path) => {
                let binding = json!({
                    "metadata": { "name": name },
                    "target": { "kind": "Node", "name": format!("node-{}", number % NAMES) },
                });
                self.send(Method::POST, &format!("{path}/binding"), "application/json", &binding).await;
                self.bound.insert(path);
            }
            3 | 4 => {
                let change = json!({ "status": { "phase": "Running", "message": format!("at {number}") } });
                self.patch(&format!("{path}/status"), &change).await;
            }
            _ => {
                let change = json!({ "metadata": { "labels": { "number": number.to_string() } } });
                self.patch(&path, &change).await;
            }
        }
    }

    async fn change_node(&mut self) {
        let name = format!("node-{}", self.random.below(NAMES));
        let path = format!("/api/v1/nodes/{name}");
        let number = self.random.below(1000);
        if !self.live.contains(&path) {
            let node = json!({
                "metadata": { "name": name },
                "status": { "allocatable": { "cpu": "4", "pods": "110" } },
            });
            return self.create("/api/v1/nodes", path, &node).await;
        }
        match self.random.below(6) {
            0 => self.delete(path).await,
            1 => self.patch(&path, &json!({ "spec": { "unschedulable": number.is_multiple_of(2) } })).await,
            _ => {
                let change = json!({ "status": { "allocatable": { "memory": format!("{number}Mi") } } });
                self.patch(&format!("{path}/status"), &change).await;
            }
        }
    }

    async fn change_config_map(&mut self) {
        let (namespace, name) =
            (NAMESPACES[self.random.below(2)], format!("map-{}", self.random.below(NAMES)));
        let collection = format!("/api/v1/namespaces/{namespace}/configmaps");
        let path = format!("{collection}/{name}");
        let data = json!({ "metadata": { "name": name }, "data": { "number": self.random.below(1000).to_string() } });
        if !self.live.contains(&path) {
            return self.create(&collection, path, &data).await;
        }
        match self.random.below(4) {
            0 => self.delete(path).await,
            1 => self.patch(&path, &data).await,
            _ => self.send(Method::PUT, &path, "application/json", &data).await,
        }
    }

    async fn create(&mut self, collection: &str, path: String, object: &Value) {
        self.send(Method::POST, collection, "application/json", object).await;
        self.live.insert(path);
    }

    async fn patch(&mut self, path: &str, change: &Value) {
        self.send(Method::PATCH, path, "application/merge-patch+json", change).await;
    }

    async fn delete(&mut self, path: String) {
        let now = json!({ "gracePeriodSeconds": 0 });
        self.send(Method::DELETE, &path, "application/json", &now).await;
        self.live.remove(&path);
    }

    async fn send(&self, method: Method, path: &str, content_type: &str, body: &Value) {
        let request = Request::builder().method(&method).uri(path).header("content-type", content_type);
        let request = request.body(Full::<Bytes>::from(body.to_string())).unwrap();
        let answer = self.service.clone().oneshot(request).await.unwrap();
        if !answer.status().is_success() {
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            panic!("{method} {path}: {}", String::from_utf8_lossy(&body));
        }
    }
}
