//! The two schedulers with their metrics.

use std::sync::Arc;
use std::thread;

use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use supercargo::run::{Clients, Instance};
use supercargo_config::{Catalog, Config};
use supercargo_controlplane::{ControlPlane, Handle, SchedulerOptions};
use supercargo_framework::features::{Feature, Features};
use supercargo_telemetry::metrics::Metrics;
use tokio::runtime::Runtime;
use tokio_util::sync::CancellationToken;

use super::exposition::Exposition;
use super::scenario::Scraped;
use crate::support::{eventually, free_port};

/// kube-scheduler as a process.
pub(super) struct Reference {
    scheduler: Handle,
    runtime: Runtime,
    client: Client,
}

impl Reference {
    /// Starts it for pods of this scheduler name and waits until it serves.
    pub(super) fn start(plane: &ControlPlane, scheduler_name: &str) -> Self {
        Self::start_with(plane, scheduler_name, &[])
    }

    /// The same with these feature gates on.
    pub(super) fn start_with(plane: &ControlPlane, scheduler_name: &str, gates: &[Feature]) -> Self {
        let port = free_port();
        let gates = gates.iter().map(|gate| format!("--feature-gates={}=true", gate.name()));
        // The metrics need no authorization: the port is on loopback and open only for this test.
        let extra_args = ["--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics"];
        let options = SchedulerOptions {
            scheduler_name: scheduler_name.to_owned(),
            extra_args: extra_args
                .map(str::to_owned)
                .into_iter()
                .chain([format!("--secure-port={port}")])
                .chain(gates)
                .collect(),
            ..SchedulerOptions::default()
        };
        let scheduler = plane.start_kube_scheduler(&options).unwrap();
        let runtime = Runtime::new().unwrap();
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse().unwrap());
        // It creates a self-signed certificate.
        config.accept_invalid_certs = true;
        let client = runtime.block_on(async { Client::try_from(config).unwrap() });
        let reference = Self { scheduler, runtime, client };
        let within = std::time::Duration::from_mins(1);
        let serves = || reference.read().is_some().then_some(());
        eventually("kube-scheduler serves metrics", within, serves, || reference.scheduler.log());
        reference
    }

    fn read(&self) -> Option<String> {
        let request = Request::get("/metrics").body(Vec::new()).unwrap();
        self.runtime.block_on(self.client.request_text(request)).ok()
    }
}

impl Scraped for Reference {
    fn scrape(&self) -> Exposition {
        Exposition::parse(&self.read().unwrap_or_else(|| panic!("no metrics\n{}", self.scheduler.log())))
    }
}

/// supercargo, in this process.
pub(super) struct Ours {
    runtime: Arc<Runtime>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ours {
    /// Starts it for pods of this scheduler name.
    pub(super) fn start(plane: &ControlPlane, scheduler_name: &str) -> Self {
        Self::start_with(plane, scheduler_name, &[])
    }

    /// The same with these feature gates on.
    pub(super) fn start_with(plane: &ControlPlane, scheduler_name: &str, gates: &[Feature]) -> Self {
        let text = crate::support::config(&[scheduler_name]);
        let features = gates.iter().fold(Features::default(), |features, gate| features.with(*gate, true));
        let catalog = Catalog::in_tree().with_features(features);
        let config = Config::parse("config.yaml", &text, &catalog).unwrap();
        let metrics = Metrics::new(&config.features);
        let runtime = Arc::new(Runtime::new().unwrap());
        let stop = CancellationToken::new();
        let file = Kubeconfig::read_from(plane.kubeconfig("system:kube-scheduler").unwrap()).unwrap();
        let (tasks, counted, stopped) = (Arc::clone(&runtime), Arc::clone(&metrics), stop.clone());
        let thread = thread::spawn(move || {
            tasks.block_on(async {
                let options = KubeConfigOptions::default();
                let mut connection = kube::Config::from_custom_kubeconfig(file, &options).await.unwrap();
                connection.default_retry = false;
                let clients = Clients::connect(connection).unwrap();
                let instance = Instance { metrics: counted, ..Instance::new(&config, clients) };
                instance.run(&config, &stopped).await.unwrap();
            });
        });
        Self { runtime, metrics, stop, thread: Some(thread) }
    }

    /// The resource metrics of pods.
    pub(super) fn resources(&self) -> Exposition {
        Exposition::parse(&self.runtime.block_on(self.metrics.resources()))
    }
}

impl Scraped for Ours {
    fn scrape(&self) -> Exposition {
        Exposition::parse(&self.runtime.block_on(self.metrics.encode()))
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A failing test has reported the reason already.
            let _ = thread.join();
        }
    }
}
