//! Tests of simulations on a whole server.

mod claims;
mod deployments;
mod nodes;
mod pods;
mod scale;
mod workloads;

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Options, Simulation};
use crate::ApiServer;
use crate::json::{list, text};
use crate::tests::Client;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with a simulation, in tokio's paused time.
struct World {
    client: Client,
    simulation: Simulation,
}

impl World {
    fn new() -> Self {
        Self::with(&Options::default())
    }

    fn with(options: &Options) -> Self {
        let client = Client::new();
        let simulation = client.server.simulate(options);
        Self { client, simulation }
    }

    /// A server with nodes and a minimal scheduler, which only considers the node name that a pod
    /// requires.
    async fn scheduled(nodes: usize) -> (Self, AbortOnDrop) {
        let world = Self::new();
        for node in 0..nodes {
            world.node(&format!("n{node}")).await;
        }
        let scheduler = tokio::spawn(schedule(world.client.server.clone(), nodes));
        (world, AbortOnDrop(scheduler))
    }

    /// The objects of a collection.
    async fn list(&self, collection: &str) -> Vec<Value> {
        list(&self.client.get(collection).await.1, "items").to_vec()
    }

    /// The names of the pods that are not terminating.
    async fn pod_names(&self) -> Vec<String> {
        let pods = self.list(PODS).await;
        let stays = pods.iter().filter(|pod| pod["metadata"].get("deletionTimestamp").is_none());
        stays.map(|pod| text(&pod["metadata"], "name").to_owned()).collect()
    }

    async fn delete(&self, path: &str) {
        self.client.ok(Method::DELETE, path, &Value::Null).await;
    }

    async fn node(&self, name: &str) -> Value {
        let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        self.client
            .create(NODES, &json!({"metadata": {"name": name}, "status": {"capacity": capacity}}))
            .await
    }

    /// Creates a pod that requests a CPU, and binds it.
    async fn bound(&self, name: &str, node: &str, mut pod: Value) -> Value {
        pod["metadata"]["name"] = name.into();
        pod["spec"]["containers"] =
            json!([{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}]);
        self.client.create(PODS, &pod).await;
        self.bind(name, node).await;
        self.client.get(&format!("{PODS}/{name}")).await.1
    }

    async fn bind(&self, name: &str, node: &str) {
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        self.client.create(&format!("{PODS}/{name}/binding"), &binding).await;
    }

    /// Waits until an object satisfies a condition, and checks every state in between.
    async fn until(&self, collection: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let wait = async {
            let mut events = self
                .client
                .watch(&format!("{collection}?watch=true&fieldSelector=metadata.name={name}"))
                .await;
            loop {
                let event = events.next().await.expect("the watch continues");
                last = event["object"].clone();
                if event["type"] != "DELETED" && is_so(&event["object"]) {
                    return event["object"].clone();
                }
            }
        };
        let found = tokio::time::timeout(Duration::from_mins(10), wait).await;
        found.unwrap_or_else(|_| panic!("{collection}/{name} did not come to be so; it is {last}"))
    }

    async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until(PODS, name, |pod| pod["status"]["phase"] == phase).await
    }

    /// Waits until an object is gone. Returns its last state, or null if it was already gone.
    async fn until_gone(&self, collection: &str, name: &str) -> Value {
        let wait = async {
            let path = format!("{collection}?watch=true&fieldSelector=metadata.name={name}");
            let mut events = self.client.watch(&path).await;
            if self.client.get(&format!("{collection}/{name}")).await.0 == StatusCode::NOT_FOUND {
                return Value::Null;
            }
            loop {
                let event = events.next().await.expect("the watch continues");
                if event["type"] == "DELETED" {
                    return event["object"].clone();
                }
            }
        };
        let gone = tokio::time::timeout(Duration::from_mins(10), wait).await;
        gone.unwrap_or_else(|_| panic!("{collection}/{name} is still there"))
    }

    async fn patch(&self, path: &str, patch: Value) -> Value {
        self.client.ok(Method::PATCH, path, &patch).await
    }
}

/// The status of an object's condition; empty if missing.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = list(&object["status"], "conditions");
    conditions.iter().find(|condition| text(condition, "type") == kind).map_or("", |one| text(one, "status"))
}

/// Aborts a task at the end of a test.
struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Binds each pod to the node that it requires, or to the nodes in turn.
async fn schedule(server: ApiServer, nodes: usize) {
    const NAME: &str = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchFields/0/values/0";
    let client = Client { server };
    let mut events = client.watch("/api/v1/pods?watch=true&fieldSelector=spec.nodeName=").await;
    let mut next = 0;
    while let Some(event) = events.next().await {
        if event["type"] != "ADDED" {
            continue;
        }
        let pod = &event["object"];
        let node = match pod.pointer(NAME) {
            Some(node) => node.clone(),
            None => format!("n{}", next % nodes).into(),
        };
        next += 1;
        let name = text(&pod["metadata"], "name");
        let binding = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
        // The pod may be gone by now.
        let _ = client.request(Method::POST, &format!("{PODS}/{name}/binding"), &binding).await;
    }
}

/// A pod template of an app.
fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": image}], "terminationGracePeriodSeconds": 1},
    })
}

fn number(object: &Value, field: &str) -> i64 {
    object["status"][field].as_i64().unwrap_or_default()
}
