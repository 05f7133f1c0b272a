//! The control plane with the nodes and pods of a workload.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;
use supercargo_benches::Progress;
use supercargo_controlplane::{ControlPlane, Options};

use crate::api::{Call, JSON, Server, Wire};
use crate::names::{Names, PodName};
use crate::process;
use crate::workload::{Size, Workload};

/// The user of both schedulers and of the bare client.
pub(crate) const USER: &str = "system:kube-scheduler";
/// The number of concurrent requests that prepare a turn.
const IN_FLIGHT: usize = 32;

/// A running control plane.
pub(crate) struct Cluster {
    pub(crate) plane: ControlPlane,
    pub(crate) admin: Server,
    /// The same server with the schedulers' credentials.
    pub(crate) scheduler: Server,
    /// The process ID of kube-apiserver.
    pub(crate) server: u32,
    pub(crate) progress: Progress,
    workload: Workload,
    size: Size,
}

impl Cluster {
    /// Starts a control plane with all objects that exist before the measurement.
    pub(crate) async fn start(workload: &Workload, size: Size, progress: Progress) -> Result<Self> {
        progress.at(&workload.name, "start the control plane", 0, 1);
        // Faster deletion of many objects, which is not measured.
        let apiserver_args = vec!["--delete-collection-workers=16".to_owned()];
        let options = Options { apiserver_args, gogc: None, ..Options::default() };
        let plane = tokio::task::block_in_place(|| ControlPlane::start(options))?;
        let server = |user| Server::new(plane.url(), plane.ca_pem(), plane.token(user)?);
        let cluster = Self {
            admin: server("admin")?,
            scheduler: server(USER)?,
            server: process::descendant("kube-apiserver")?,
            progress,
            workload: workload.clone(),
            size,
            plane,
        };
        cluster.populate().await?;
        Ok(cluster)
    }

    async fn populate(&self) -> Result<()> {
        let namespaces = self.workload.namespaces();
        self.create("namespaces", namespaces.map(|object| ("/api/v1/namespaces".to_owned(), object))).await?;
        let nodes = self.workload.nodes().map(|node| ("/api/v1/nodes".to_owned(), node));
        self.create("nodes", nodes).await?;
        let pods = self.workload.bound_pods(self.size);
        self.create("bound pods", pods.map(|pod| (collection(&pod), pod))).await
    }

    async fn create(&self, what: &'static str, objects: impl Iterator<Item = (String, Value)>) -> Result<()> {
        let calls = objects.map(|(path, object)| Call::post(path, JSON, object.to_string())).collect();
        self.send(what, calls).await
    }

    async fn send(&self, what: &'static str, calls: Vec<Call>) -> Result<()> {
        let (progress, name) = (self.progress, self.workload.name.clone());
        let done = move |done: usize, all: usize| progress.at(&name, what, done, all);
        self.admin.send_all(Wire::Http1, IN_FLIGHT, calls, done).await.context(what)
    }

    /// Creates the pods of a turn.
    pub(crate) async fn create_pods(&self, names: &Names) -> Result<()> {
        let pods =
            (0..names.count).map(|index| self.workload.measured_pod(&names.pod(index).name, self.size));
        self.create("create pods", pods.map(|pod| (collection(&pod), pod))).await
    }

    /// Deletes the pods of a turn with their events.
    pub(crate) async fn delete_pods(&self, names: &Names) -> Result<()> {
        let namespace = format!("/api/v1/namespaces/{}", names.namespace);
        let pods = (0..names.count).map(|index| format!("{namespace}/pods/{}", names.pod(index).name));
        self.send("delete pods", pods.map(Call::delete).collect()).await?;
        self.send("delete events", vec![Call::delete(format!("{namespace}/events"))]).await
    }

    /// Creates bound pods again that were deleted.
    pub(crate) async fn restore(&self, gone: &HashSet<PodName>) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let name = |pod: &Value, key: &str| pod["metadata"][key].as_str().unwrap_or_default().to_owned();
        let is_gone = |pod: &Value| {
            gone.contains(&PodName { namespace: name(pod, "namespace"), name: name(pod, "name") })
        };
        let pods = self.workload.bound_pods(self.size).filter(is_gone);
        self.create("bound pods", pods.map(|pod| (collection(&pod), pod))).await
    }

    /// The size of a pod of a turn in JSON, as the API server stores it.
    pub(crate) async fn pod_bytes(&self, names: &Names) -> Result<usize> {
        let pod = names.pod(0);
        let path = format!("/api/v1/namespaces/{}/pods/{}", pod.namespace, pod.name);
        let call = Call::get(path, JSON);
        Ok(self.admin.connect(Wire::Http1).await?.send(&call).await?.len())
    }

    /// Waits until the API server is nearly idle.
    pub(crate) async fn rest(&self) -> Result<()> {
        const LOOK: Duration = Duration::from_millis(250);
        const PATIENCE: Duration = Duration::from_secs(15);
        let started = Instant::now();
        let mut before = process::cpu(self.server)?;
        loop {
            tokio::time::sleep(LOOK).await;
            let now = process::cpu(self.server)?;
            if now.saturating_sub(before) < LOOK / 10 || started.elapsed() > PATIENCE {
                return Ok(());
            }
            before = now;
        }
    }
}

/// The path of a pod's collection.
fn collection(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods", pod["metadata"]["namespace"].as_str().unwrap_or_default())
}
