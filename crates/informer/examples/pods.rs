//! Prints the changes of pods, with a resync once a minute; then reads the lister's cache.
//!
//! ```console
//! $ cargo run --example pods -- --kubeconfig ~/.kube/config
//! ```
//!
//! Without `--kubeconfig`, it uses the file of `KUBECONFIG`, or else a pod's service account.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};
use kube_informers::{
    HandlerFuncs, HandlerOptions, Lister, ObjectKey, SharedInformerFactory, Typed, informer_client_from,
    informer_config,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

const USAGE: &str = "\
usage: pods [--kubeconfig FILE] [--namespace NAME]
            [--resync SECONDS] [--for SECONDS]";

/// Receives the lines.
type Output = Arc<Mutex<dyn Write + Send>>;

/// The options of the command line.
#[derive(Debug)]
pub(crate) struct Options {
    kubeconfig: Option<PathBuf>,
    namespace: Option<String>,
    /// The resync period.
    resync: Duration,
    /// How long to run. The default is until Ctrl-C.
    duration: Option<Duration>,
}

impl Options {
    /// Parses the command line.
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut options =
            Self { kubeconfig: None, namespace: None, resync: Duration::from_mins(1), duration: None };
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
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
    let variable = std::env::var_os("KUBECONFIG").map(PathBuf::from);
    let kubeconfig = options.kubeconfig.clone().or(variable);
    let config = informer_config(kubeconfig.as_deref()).await?;
    let url = config.cluster_url.to_string();
    watch(options, informer_client_from(config)?, &url, output).await
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
        // A program that goes on without its informers acts on what was true once.
        tokio::select! {
            failed = factory.failed() => Err(failed.into()),
            () = stop.cancelled() => Ok(()),
        }
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
    let outcome: Result<_, Box<dyn std::error::Error>> = tokio::try_join!(reading, ending);
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
