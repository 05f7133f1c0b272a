//! Simulations of a whole server.

mod nodes;
mod pods;
mod scale;

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Options, Simulation};
use crate::strategy::json::{list, text};
use crate::tests::Client;

const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// A server with a simulation in it. The time is tokio's, which tests pause.
struct World {
    client: Client,
    _simulation: Simulation,
}

impl World {
    fn new() -> Self {
        Self::with(&Options::default())
    }

    fn with(options: &Options) -> Self {
        let client = Client::new();
        let simulation = client.server.simulate(options);
        Self { client, _simulation: simulation }
    }

    async fn node(&self, name: &str) -> Value {
        let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        self.client
            .create(NODES, &json!({"metadata": {"name": name}, "status": {"capacity": capacity}}))
            .await
    }

    /// Creates a pod that needs a processor and binds it.
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

    /// Waits until an object is as it should be. Whatever happens to it meanwhile is looked at.
    async fn until(&self, collection: &str, name: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let mut last = Value::Null;
        let wait = async {
            let mut events = self
                .client
                .watch(&format!("{collection}?watch=true&fieldSelector=metadata.name={name}"))
                .await;
            loop {
                let event = events.next().await.expect("the watch goes on");
                last = event["object"].clone();
                if event["type"] != "DELETED" && is_so(&event["object"]) {
                    return event["object"].clone();
                }
            }
        };
        match tokio::time::timeout(Duration::from_mins(10), wait).await {
            Ok(object) => object,
            Err(_) => panic!("{collection}/{name} did not come to be so; it is {last}"),
        }
    }

    async fn until_phase(&self, name: &str, phase: &str) -> Value {
        self.until(PODS, name, |pod| pod["status"]["phase"] == phase).await
    }

    /// Waits until an object is gone; gives how it was last, or null if it was gone before.
    async fn until_gone(&self, collection: &str, name: &str) -> Value {
        let wait = async {
            let path = format!("{collection}?watch=true&fieldSelector=metadata.name={name}");
            let mut events = self.client.watch(&path).await;
            if self.client.get(&format!("{collection}/{name}")).await.0 == StatusCode::NOT_FOUND {
                return Value::Null;
            }
            loop {
                let event = events.next().await.expect("the watch goes on");
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

/// The status of an object's condition; empty when there is none.
fn condition<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = list(&object["status"], "conditions");
    conditions.iter().find(|condition| text(condition, "type") == kind).map_or("", |one| text(one, "status"))
}
