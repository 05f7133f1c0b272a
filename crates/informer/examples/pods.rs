//! Prints the changes of pods, with a resync once a minute; then reads the lister's cache.
//!
//! ```text
//! cargo run -p kube-informers --example pods -- --embedded
//! cargo run -p kube-informers --example pods -- --kubeconfig ~/.kube/config
//! ```
//!
//! Without `--kubeconfig`, it uses the file of `KUBECONFIG`, or else a pod's service account.
//! `--embedded` starts an API server in memory, where pods come and go.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, Config, ResourceExt};
use kube_informers::{
    HandlerFuncs, HandlerOptions, Lister, ObjectKey, SharedInformerFactory, SyncError, Typed, informer_config,
};
use parking_lot::Mutex;
use supercargo_apiserver::sim::Simulation;
use supercargo_apiserver::{ApiServer, Listen};
use tokio_util::sync::CancellationToken;

/// The initial content of `--embedded`.
const CLUSTER: &str = "
{apiVersion: v1, kind: Node, metadata: {name: node-a}}
---
{apiVersion: v1, kind: Node, metadata: {name: node-b}}
---
apiVersion: v1
kind: Pod
metadata: {name: dns, namespace: kube-system}
spec: {nodeName: node-a, containers: [{name: dns, image: dns}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-1, namespace: shop}
spec: {nodeName: node-a, containers: [{name: web, image: web}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-2, namespace: shop}
spec: {nodeName: node-b, containers: [{name: web, image: web}]}
";

const USAGE: &str = "\
usage: pods [--kubeconfig FILE | --embedded] [--namespace NAME]
            [--resync SECONDS] [--for SECONDS]";

/// Receives the lines.
type Output = Arc<Mutex<dyn Write + Send>>;

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    kubeconfig: Option<PathBuf>,
    embedded: bool,
    namespace: Option<String>,
    /// The resync period.
    resync: Duration,
    /// How long to run. The default is until Ctrl-C.
    duration: Option<Duration>,
}

impl Options {
    /// Parses the command line.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            kubeconfig: None,
            embedded: false,
            namespace: None,
            resync: Duration::from_mins(1),
            duration: None,
        };
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            if name == "--embedded" {
                options.embedded = true;
                continue;
            }
            if !["--kubeconfig", "--namespace", "--resync", "--for"].contains(&name.as_str()) {
                return Err(format!("unknown argument {name:?}\n{USAGE}"));
            }
            let value = arguments.next().ok_or_else(|| format!("{name} requires a value\n{USAGE}"))?;
            match name.as_str() {
                "--kubeconfig" => options.kubeconfig = Some(value.into()),
                "--namespace" => options.namespace = Some(value),
                "--resync" => options.resync = seconds(&value)?,
                _ => options.duration = Some(seconds(&value)?),
            }
        }
        if options.embedded && options.kubeconfig.is_some() {
            return Err(format!("--embedded and --kubeconfig exclude each other\n{USAGE}"));
        }
        Ok(options)
    }
}

/// Parses `90` or `90s`.
fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number
        .parse()
        .map(Duration::from_secs)
        .map_err(|_| format!("{text:?} is not a number of seconds\n{USAGE}"))
}

#[tokio::main]
async fn main() -> ExitCode {
    let output = Arc::new(Mutex::new(io::stdout()));
    let done = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => run(&options, output).await,
        Err(usage) => Err(usage.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("pods: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Connects to the cluster of the options, and watches until the end.
pub(crate) async fn run(options: &Options, output: Output) -> Result<(), Box<dyn std::error::Error>> {
    if !options.embedded {
        let variable = std::env::var_os("KUBECONFIG").map(PathBuf::from);
        let kubeconfig = options.kubeconfig.clone().or(variable);
        let config = informer_config(kubeconfig.as_deref()).await?;
        let url = config.cluster_url.to_string();
        return watch(options, Client::try_from(config)?, &url, output).await;
    }
    let server = ApiServer::default();
    let _simulation = embed(&server)?;
    let endpoint = server.listen(Listen { tls: false, ..Listen::default() }).await?;
    let mut config = Config::new(endpoint.url().parse()?);
    config.default_retry = false;
    config.headers.push(("authorization".parse()?, format!("Bearer {}", endpoint.token()).parse()?));
    watch(options, Client::try_from(config)?, &endpoint.url(), output).await
}

/// Starts a cluster whose pods come and go until the result is dropped.
pub(crate) fn embed(
    server: &ApiServer,
) -> Result<(Simulation, impl Drop + use<>), Box<dyn std::error::Error>> {
    server.load(CLUSTER)?;
    let simulation = server.simulate(&supercargo_apiserver::sim::Options::default());
    let end = CancellationToken::new();
    let pods = Api::namespaced(Client::new(server.service(), "shop"), "shop");
    tokio::spawn(end.clone().run_until_cancelled_owned(come_and_go(pods)));
    Ok((simulation, end.drop_guard()))
}

/// Creates a pod every other second, and deletes the oldest.
async fn come_and_go(pods: Api<Pod>) {
    for number in 3_u32.. {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let pod = serde_json::from_value(serde_json::json!({
            "metadata": {"name": format!("web-{number}")},
            "spec": {"nodeName": "node-b", "containers": [{"name": "web", "image": "web"}]},
        }));
        let Ok(pod) = pod else { return };
        let (new, none) = (PostParams::default(), DeleteParams::default());
        let created = pods.create(&new, &pod).await.map(drop);
        let deleted = pods.delete(&format!("web-{}", number - 2), &none).await.map(drop);
        if let Err(error) = created.and(deleted) {
            eprintln!("pods: the embedded server rejected a request: {error}");
            return;
        }
    }
}

/// The life of an informer: handlers, start, wait; at the end, an orderly shutdown.
pub(crate) async fn watch(
    options: &Options,
    client: Client,
    url: &str,
    output: Output,
) -> Result<(), Box<dyn std::error::Error>> {
    let print = move |line: String| {
        // If nobody reads the output, nobody reads an error either.
        let _ = writeln!(output.lock(), "{line}");
    };
    let mut settings = SharedInformerFactory::builder(client).default_resync(options.resync);
    if let Some(namespace) = &options.namespace {
        settings = settings.namespace(namespace);
    }
    let factory = settings.build();
    let informer = factory.informer(Typed::<Pod>::new());
    let (added, updated, deleted) = (print.clone(), print.clone(), print.clone());
    let handler = HandlerFuncs::<Pod>::new()
        .with_add(move |pod, _| added(format!("New Pod Added to Store: {}", key(pod))))
        .with_update(move |old, new| updated(format!("{} Updated to {}", key(old), key(new))))
        .with_delete(move |gone| {
            if let Some(pod) = gone.object() {
                deleted(format!("Pod Deleted from Store: {}", key(pod)));
            }
        });
    informer.add_event_handler(handler, HandlerOptions::named("printer"))?;

    print(format!("Pods at {url}, resynced every {:?}:", options.resync));
    let stop = CancellationToken::new();
    factory.start(&stop);
    let reading = async {
        factory.wait_for_handlers_sync(&stop).await.into_result()?;
        for line in cache(&informer.lister()) {
            print(line);
        }
        Ok::<(), SyncError>(())
    };
    let ending = async {
        match options.duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => ctrl_c().await,
        }
        stop.cancel();
        Ok(())
    };
    // A run that ends before the informer has synced reports what it waited for.
    let outcome = tokio::try_join!(reading, ending);
    factory.shutdown().await;
    print("The informer has stopped.".to_owned());
    outcome?;
    Ok(())
}

/// The lister's content, without requests to the server.
fn cache(lister: &Lister<Pod>) -> Vec<String> {
    let mut pods = lister.list();
    pods.sort_by_key(|pod| key(pod));
    let mut lines = vec![format!("The lister's cache has {} pods:", pods.len())];
    lines.extend(pods.iter().map(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        format!("  {} on {}", key(pod), node.unwrap_or("no node yet"))
    }));
    lines
}

async fn ctrl_c() {
    if tokio::signal::ctrl_c().await.is_err() {
        // Without Ctrl-C, only a signal such as SIGKILL ends the program.
        std::future::pending::<()>().await;
    }
}

fn key(pod: &Pod) -> ObjectKey {
    ObjectKey::new(pod.metadata.namespace.as_deref(), &pod.name_any())
}
