//! Carries the plan out.

use anyhow::{Result, anyhow};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use serde_json::{Value, json};
use tokio::time::{Duration, Instant, sleep_until};

use super::plan::{Action, Manifest, Step};
use super::watch::Shared;
use supercargo_client::api::{Api, Call, CallError};

/// So many requests at most are under way while nodes are created.
const AT_ONCE: usize = 16;

/// Asks the API server for what the plan has in it.
#[derive(Clone)]
pub(crate) struct Driver {
    api: Api,
}

impl Driver {
    /// Asks by these requests.
    pub(crate) fn new(api: Api) -> Self {
        Self { api }
    }

    /// Creates these: nodes at once, as nobody watches yet, and before them one after the other
    /// what is no node.
    pub(crate) async fn create_all(&self, objects: &[Manifest]) -> Result<()> {
        let is_node = |object: &&Manifest| object.kind() == "Node";
        for object in objects.iter().filter(|object| !is_node(object)) {
            self.create(object).await?;
        }
        let nodes = objects.iter().filter(is_node).map(|node| self.create(node));
        futures::stream::iter(nodes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Does each step at its time. In order, so that the same plan leads to the same decisions.
    pub(crate) async fn carry_out(&self, steps: &[Step], speed: f64, shared: &Shared) -> Result<()> {
        let started = Instant::now();
        for step in steps {
            let at = Duration::try_from_secs_f64(step.at.as_secs_f64() / speed).unwrap_or(step.at);
            sleep_until(started + at).await;
            match &step.action {
                Action::Create(object) => self.create_or_tell(object, shared).await?,
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
        self.try_create(object).await.map_err(|error| refused(object, &error))
    }

    /// What is refused is told, and the rest goes on.
    async fn create_or_tell(&self, object: &Manifest, shared: &Shared) -> Result<()> {
        match self.try_create(object).await {
            Err(error) if error.status.is_some_and(|status| status.is_client_error()) => {
                let refusal = refused(object, &error).to_string();
                shared.change(|model, at| model.refuse(at, refusal));
                Ok(())
            }
            result => result.map_err(|error| refused(object, &error)),
        }
    }

    async fn try_create(&self, object: &Manifest) -> Result<(), CallError> {
        let path = object.collection();
        match self.send(Method::POST, &path, "application/json", &object.value).await {
            // The namespaces of the API server's own, and priority classes that a folder has twice.
            Err(error) if error.status == Some(http::StatusCode::CONFLICT) && is_shared(object) => Ok(()),
            result => result,
        }
    }

    async fn lift_gates(&self, namespace: &str, name: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let change = json!({ "spec": { "schedulingGates": [] } });
        match self.send(Method::PATCH, &path, "application/merge-patch+json", &change).await {
            // Somebody has deleted it.
            Err(error) if error.status == Some(http::StatusCode::NOT_FOUND) => Ok(()),
            Err(error) => Err(anyhow!("the gates of pod {name}: {}", error.error.message)),
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

fn refused(object: &Manifest, error: &CallError) -> anyhow::Error {
    anyhow!("{}: the API server says: {}", object.describe(), error.error.message)
}

/// Whether one like it may be there before.
fn is_shared(object: &Manifest) -> bool {
    matches!(object.kind(), "Namespace" | "PriorityClass")
}
