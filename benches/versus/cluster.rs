//! The control plane with the nodes and pods of a workload.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use supercargo_benches::{Progress, claims};
use supercargo_controlplane::{ControlPlane, Options};

use crate::api::{Call, JSON, MERGE, STRATEGIC_MERGE, Server, Wire};
use crate::checks;
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
        let group = |kind: &str| format!("/apis/resource.k8s.io/v1/{kind}");
        let classes = self.workload.classes().map(|class| (group("deviceclasses"), class));
        self.create("device classes", classes).await?;
        let nodes = self.workload.nodes().map(|node| ("/api/v1/nodes".to_owned(), node));
        self.create("nodes", nodes).await?;
        let slices = self.workload.slices().map(|slice| (group("resourceslices"), slice));
        self.create("resource slices", slices).await?;
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
        let sequences = calls.into_iter().map(|call| vec![call]).collect();
        self.admin.send_all(Wire::Http1, IN_FLIGHT, sequences, done).await.context(what)
    }

    /// Creates the pods of a turn, and their claims.
    pub(crate) async fn create_pods(&self, names: &Names) -> Result<()> {
        let pods =
            (0..names.count).map(|index| self.workload.measured_pod(&names.pod(index).name, self.size));
        self.create("create pods", pods.map(|pod| (collection(&pod), pod))).await?;
        if self.workload.has_claims() { self.create_claims(names).await } else { Ok(()) }
    }

    /// Creates a claim for each pod and names it in the pod's status, as kube-controller-manager.
    async fn create_claims(&self, names: &Names) -> Result<()> {
        let namespace = format!("/api/v1/namespaces/{}/pods", names.namespace);
        let pods: Vec<Value> = checks::list(&self.admin, &namespace).await?;
        let (mut creations, mut patches) = (Vec::new(), Vec::new());
        for pod in &pods {
            let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
            let (namespace, name) = (text("namespace").to_owned(), text("name").to_owned());
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/status");
            if names.index(&PodName { namespace, name }).is_none() {
                continue;
            }
            let status = json!({"status": {"resourceClaimStatuses": claims::claim_statuses(text("name"))}});
            creations.extend(
                self.workload.claim(text("name"), text("uid")).map(|claim| (names.claims_path(), claim)),
            );
            patches.push(Call::patch(path, STRATEGIC_MERGE, status.to_string()));
        }
        self.create("create claims", creations.into_iter()).await?;
        self.send("name claims in pods", patches).await
    }

    /// The claims of a turn by the index of their pod.
    pub(crate) async fn claims(&self, names: &Names) -> Result<HashMap<usize, Value>> {
        if !self.workload.has_claims() {
            return Ok(HashMap::new());
        }
        let all: Vec<Value> = checks::list(&self.admin, &names.claims_path()).await?;
        let of_pod = |claim: Value| {
            let name = claim["metadata"]["ownerReferences"][0]["name"].as_str()?.to_owned();
            Some((names.index(&PodName { namespace: names.namespace.clone(), name })?, claim))
        };
        Ok(all.into_iter().filter_map(of_pod).collect())
    }

    /// Deletes the claims of a turn as kube-controller-manager and the garbage collector do.
    async fn delete_claims(&self, names: &Names) -> Result<()> {
        let paths = || (0..names.count).map(|index| names.claim_path(index));
        let finalizers = json!({"metadata": {"finalizers": null}}).to_string();
        let release = |path| Call::patch(path, MERGE, finalizers.clone());
        self.send("release claims", paths().map(release).collect()).await?;
        self.send("delete claims", paths().map(Call::delete).collect()).await
    }

    /// Deletes the pods of a turn with their claims and events.
    pub(crate) async fn delete_pods(&self, names: &Names) -> Result<()> {
        let namespace = format!("/api/v1/namespaces/{}", names.namespace);
        let pods = (0..names.count).map(|index| format!("{namespace}/pods/{}", names.pod(index).name));
        self.send("delete pods", pods.map(Call::delete).collect()).await?;
        if self.workload.has_claims() {
            self.delete_claims(names).await?;
        }
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
