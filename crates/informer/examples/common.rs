//! The options of the controller example, and the pods that it watches.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_informers::testing::FakeSource;
use kube_informers::{KubeListWatch, ListerWatcher, Typed, informer_client};
use tokio_util::sync::CancellationToken;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The options of an example.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// `--kubeconfig FILE`: the cluster. The default is `KUBECONFIG`, or the cluster of this pod.
    pub(crate) kubeconfig: Option<PathBuf>,
    /// `--embedded`: no cluster, but some made-up pods that change.
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

    /// The pods of the cluster. The client does not retry: informers retry themselves.
    pub(crate) async fn pods(&self) -> Result<impl ListerWatcher<Typed<Pod>> + use<>> {
        let from_environment = std::env::var_os("KUBECONFIG").map(PathBuf::from);
        let file = self.kubeconfig.clone().or(from_environment);
        Ok(KubeListWatch::new(informer_client(file.as_deref()).await?, Typed::<Pod>::new().into()))
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

/// A fake API server with some initial pods, and others that come and go.
pub(crate) fn embedded_pods() -> FakeSource<Typed<Pod>> {
    let pods = FakeSource::typed();
    for name in ["mypod", "fails", "panics"] {
        pods.apply(pod(name, name));
    }
    tokio::spawn(come_and_go(pods.clone()));
    pods
}

/// A pod; `mood` is one of its labels.
fn pod(name: &str, mood: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.namespace = Some("default".to_owned());
    pod.metadata.labels = Some([("mood".to_owned(), mood.to_owned())].into());
    pod
}

/// Creates, changes and deletes one pod after another, with a second between the steps.
async fn come_and_go(pods: FakeSource<Typed<Pod>>) {
    let pause = || tokio::time::sleep(Duration::from_secs(1));
    for number in 1_u64.. {
        let name = format!("web-{number}");
        pause().await;
        pods.apply(pod(&name, "new"));
        pause().await;
        pods.apply(pod(&name, "changed"));
        pause().await;
        pods.delete(pod(&name, "changed"));
    }
}
