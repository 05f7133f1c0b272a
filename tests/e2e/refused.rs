//! Two schedulers bind to the same place at the same time: the kubelet rejects the second pod.
//!
//! Here the race lasts as long as needed, because the scheduler receives no pod events for a while.

use std::time::Duration;

use serde_json::{Value, json};
use supercargo_apiserver::faults::{Fault, Matcher, Rule};
use supercargo_apiserver::status::Status;
use supercargo_apiserver::{ApiServer, Endpoint, Listen, sim};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::support::{Cluster, Supercargo, eventually, node, node_of, pod};

const PATIENCE: Duration = Duration::from_secs(30);

/// A scheduler on an API server in memory with kubelets.
struct TestBed {
    supercargo: Supercargo,
    cluster: Cluster,
    server: ApiServer,
    _folder: TempDir,
    _simulation: sim::Simulation,
    _endpoint: Endpoint,
    _runtime: Runtime,
}

impl TestBed {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let server = ApiServer::default();
        let (simulation, endpoint) = runtime.block_on(async {
            (server.simulate(&sim::Options::default()), server.listen(Listen::default()).await.unwrap())
        });
        let folder = tempfile::tempdir().unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        endpoint.write_kubeconfig(&kubeconfig).unwrap();
        let cluster = Cluster::at(&kubeconfig);
        let supercargo = Supercargo::start(&kubeconfig, None, &[]);
        supercargo.wait_until_scheduling();
        Self {
            supercargo,
            cluster,
            server,
            _folder: folder,
            _simulation: simulation,
            _endpoint: endpoint,
            _runtime: runtime,
        }
    }

    /// Stops pod events for the scheduler.
    fn deafen(&self) {
        let of_pods =
            |verb: &str| Matcher { verb: verb.into(), resource: "pods".into(), ..Matcher::default() };
        let rules = ["list", "watch"].map(|verb| {
            self.server.faults().add(Rule::new(of_pods(verb), Fault::Answer(Status::internal("not now"))))
        });
        self.server.cut_watches(of_pods("watch"), false);
        // The current watch ends then, too.
        let is_refused = || rules.iter().any(|rule| self.server.faults().remaining(*rule) < u64::MAX);
        self.eventually("what it asks for again is refused", || is_refused().then_some(()));
    }

    /// Labels the node, so that pods that require the label fit.
    fn label(&self, label: &str) {
        self.cluster.patch("/api/v1/nodes/n", &json!({ "metadata": { "labels": { label: "yes" } } }));
    }

    /// Binds a pod as another scheduler would.
    fn bind(&self, pod: &str) {
        let binding = json!({
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": { "name": pod },
            "target": { "kind": "Node", "name": "n" },
        });
        let path = format!("/api/v1/namespaces/default/pods/{pod}/binding");
        self.cluster.request("POST", &path, Some(&binding)).unwrap();
    }

    /// Waits until the pod is in this phase.
    fn await_phase(&self, pod: &str, phase: &str) -> Value {
        let found = || Some(self.cluster.pod("default", pod)).filter(|pod| pod["status"]["phase"] == phase);
        self.eventually(&format!("{pod} is {phase}"), found)
    }

    fn eventually<T>(&self, what: &str, probe: impl FnMut() -> Option<T>) -> T {
        eventually(what, PATIENCE, probe, || self.supercargo.log_tail())
    }
}

#[test]
fn pod_rejected_by_kubelet_frees_its_resources() {
    let bed = TestBed::new();
    let cluster = &bed.cluster;
    cluster.create(&node("n", &[], &[("cpu", "1")]));
    for (name, cpu) in [("ours", "800m"), ("next", "500m")] {
        cluster.create(&pod(name).by("supercargo").on((name, "yes")).asking("cpu", cpu).build());
        cluster.condition("default", name, "Unschedulable");
    }
    bed.deafen();
    cluster.create(&pod("theirs").by("another").asking("cpu", "300m").build());
    bed.bind("theirs");
    bed.await_phase("theirs", "Running");

    bed.label("ours");
    let ours = bed.await_phase("ours", "Failed");
    assert_eq!((node_of(&ours), &ours["status"]["reason"]), (Some("n"), &json!("OutOfcpu")));
    // The scheduler does not know about that pod either, so the next one waits.
    bed.label("next");
    bed.eventually("next waits for room", || {
        let conditions = &cluster.pod("default", "next")["status"]["conditions"];
        conditions.to_string().contains("Insufficient cpu").then_some(())
    });

    bed.server.faults().clear();
    let next = bed.await_phase("next", "Running");
    assert_eq!(node_of(&next), Some("n"));
    // A controller replaces a rejected pod; the pod itself is not retried.
    assert_eq!(bed.supercargo.log().matches("Successfully assigned default/ours").count(), 1);
    bed.supercargo.stop();
}
