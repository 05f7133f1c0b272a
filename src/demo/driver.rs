//! Carries out the plan.

use anyhow::{Result, anyhow};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use super::plan::{Action, Manifest, TimedAction};
use super::watch::Shared;
use supercargo_client::api::{Api, Call, CallError};

/// Maximum number of concurrent requests while nodes are created.
const MAX_CONCURRENT: usize = 16;

/// Sends the changes of the plan to the API server.
#[derive(Clone)]
pub(crate) struct Driver {
    api: Api,
}

impl Driver {
    /// Creates a driver that sends requests through `api`.
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    /// Creates other objects in order, and then nodes concurrently.
    pub(crate) async fn create_all(&self, objects: &[Manifest]) -> Result<()> {
        let is_node = |object: &&Manifest| object.kind() == "Node";
        for object in objects.iter().filter(|object| !is_node(object)) {
            self.create(object).await?;
        }
        let nodes = objects.iter().filter(is_node).map(|node| self.create(node));
        futures::stream::iter(nodes).buffer_unordered(MAX_CONCURRENT).try_collect().await
    }

    /// Performs each step at its time, one after the other, so that the same plan leads to the same
    /// decisions.
    pub(crate) async fn carry_out(&self, steps: &[TimedAction], speed: f64, shared: &Shared) -> Result<()> {
        let started = Instant::now();
        for step in steps {
            let at = Duration::try_from_secs_f64(step.at.as_secs_f64() / speed).unwrap_or(step.at);
            sleep_until(started + at).await;
            match &step.action {
                Action::Create(object) => self.create_or_report(object, shared).await?,
                Action::LiftGates { note, pods } => {
                    shared.change(|model, at| model.note(at, note.clone()));
                    for (namespace, name) in pods {
                        self.lift_gates(namespace, name).await?;
                    }
                }
            }
        }
        Ok(())
    }

    async fn create(&self, object: &Manifest) -> Result<()> {
        self.try_create(object).await.map_err(|error| not_created(object, &error))
    }

    /// Creates an object. A rejection is shown, and the plan continues.
    async fn create_or_report(&self, object: &Manifest, shared: &Shared) -> Result<()> {
        match self.try_create(object).await {
            Err(error) if error.status.is_some_and(|status| status.is_client_error()) => {
                let rejection = not_created(object, &error).to_string();
                shared.change(|model, at| model.reject(at, rejection));
                Ok(())
            }
            result => result.map_err(|error| not_created(object, &error)),
        }
    }

    async fn try_create(&self, object: &Manifest) -> Result<(), CallError> {
        let path = object.collection();
        match self.send(Method::POST, &path, "application/json", &object.value).await {
            // Namespaces that the API server creates, and duplicate priority classes.
            Err(error) if error.status == Some(http::StatusCode::CONFLICT) && may_exist(object) => Ok(()),
            result => result,
        }
    }

    async fn lift_gates(&self, namespace: &str, name: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let change = json!({ "spec": { "schedulingGates": [] } });
        match self.send(Method::PATCH, &path, "application/merge-patch+json", &change).await {
            // The pod has been deleted.
            Err(error) if error.status == Some(http::StatusCode::NOT_FOUND) => Ok(()),
            Err(error) => {
                Err(anyhow!("cannot remove the scheduling gates of pod {name}: {}", error.error.message))
            }
            Ok(()) => Ok(()),
        }
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: &Value,
    ) -> Result<(), CallError> {
        self.api.write(Call { method, path, content_type, body }).await
    }
}

fn not_created(object: &Manifest, error: &CallError) -> anyhow::Error {
    anyhow!("{}", object.not_created(&error.error.message))
}

/// Whether the object may already exist.
fn may_exist(object: &Manifest) -> bool {
    matches!(object.kind(), "Namespace" | "PriorityClass" | "DeviceClass")
}
