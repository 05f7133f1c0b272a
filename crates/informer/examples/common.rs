//! Shared parts of the examples: their options, and the cluster that they watch.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use kube_informers::informer_client;
use serde_json::json;
use supercargo_apiserver::ApiServer;
use tokio_util::sync::CancellationToken;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The options of an example.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// `--kubeconfig FILE`: the cluster. The default is `KUBECONFIG`, or the cluster of this pod.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// `--embedded`: a cluster in memory, with some pods that change.
    pub(crate) embedded: bool,
    /// `--for 5s`: how long to run. The default is until Ctrl-C.
    pub(crate) run_for: Option<Duration>,
}

impl Options {
    pub(crate) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut options = Self::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} requires a value"));
            match argument.as_str() {
                "--kubeconfig" => options.kubeconfig = Some(value()?.into()),
                "--embedded" => options.embedded = true,
                "--for" => {
                    let text = value()?;
                    let seconds = text.strip_suffix('s').unwrap_or(&text).parse()?;
                    options.run_for = Some(Duration::try_from_secs_f64(seconds)?);
                }
                _ => {
                    return Err(format!(
                        "unknown argument {argument}; use --kubeconfig FILE, --embedded or --for SECONDS"
                    )
                    .into());
                }
            }
        }
        Ok(options)
    }

    /// Builds a client that does not retry: informers retry themselves.
    pub(crate) async fn connect(&self) -> Result<Client> {
        if self.embedded {
            return embedded_cluster();
        }
        let from_environment = std::env::var_os("KUBECONFIG").map(PathBuf::from);
        let file = self.kubeconfig.clone().or(from_environment);
        Ok(informer_client(file.as_deref()).await?)
    }

    /// A token that is cancelled when the program must end.
    pub(crate) fn stop(&self) -> CancellationToken {
        let stop = CancellationToken::new();
        let (ended, run_for) = (stop.clone(), self.run_for);
        tokio::spawn(async move {
            let _ended = ended.drop_guard();
            match run_for {
                Some(time) => tokio::time::sleep(time).await,
                None => drop(tokio::signal::ctrl_c().await),
            }
        });
        stop
    }
}

/// An API server in this process, with some initial pods and others that come and go.
fn embedded_cluster() -> Result<Client> {
    let server = ApiServer::default();
    let pods = ["mypod", "fails", "panics"].map(|name| pod(name, name).to_string());
    server.load(&pods.join("\n"))?;
    let client = Client::new(server.service(), "default");
    tokio::spawn(come_and_go(client.clone()));
    Ok(client)
}

/// A pod; `mood` is one of its labels.
fn pod(name: &str, mood: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"mood": mood}},
        "spec": {"containers": [{"name": "main", "image": "example.com/image"}]},
    })
}

/// Creates, changes and deletes one pod after another, with a second between the steps.
async fn come_and_go(client: Client) -> Result<()> {
    let pods = Api::<Pod>::default_namespaced(client);
    let pause = || tokio::time::sleep(Duration::from_secs(1));
    for number in 1.. {
        let name = format!("web-{number}");
        pause().await;
        pods.create(&PostParams::default(), &serde_json::from_value(pod(&name, "new"))?).await?;
        pause().await;
        let change = json!({"metadata": {"labels": {"mood": "changed"}}});
        pods.patch(&name, &PatchParams::default(), &Patch::Merge(change)).await?;
        pause().await;
        pods.delete(&name, &DeleteParams::default()).await?;
    }
    Ok(())
}
