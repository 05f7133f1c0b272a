//! Prints the changes of a custom resource, from its own Rust type.
//!
//! ```console
//! $ kubectl apply -f widgets.example.dev.yaml
//! $ cargo run --example custom_resource -- ~/.kube/config
//! ```
//!
//! Without an argument, it uses the file of `KUBECONFIG`, or else a pod's service account.

use std::path::PathBuf;
use std::process::ExitCode;

use kube::{Client, ResourceExt};
use kube_derive::CustomResource; // `kube::CustomResource` with kube's feature `derive`
use kube_informers::{HandlerFuncs, HandlerOptions, SharedInformerFactory, Typed, informer_client};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

/// The specification of a `Widget`, whose type the macro derives.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize)]
#[kube(group = "example.dev", version = "v1", kind = "Widget", namespaced, schema = "disabled")]
pub(crate) struct WidgetSpec {
    pub(crate) size: u32,
}

#[tokio::main]
async fn main() -> ExitCode {
    let stop = CancellationToken::new();
    let watched = async {
        let argument = std::env::args_os().nth(1).or_else(|| std::env::var_os("KUBECONFIG"));
        let client = informer_client(argument.map(PathBuf::from).as_deref()).await?;
        watch(client, &stop, |line| println!("{line}")).await
    };
    let ended = tokio::select! {
        ended = watched => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("custom_resource: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Prints the changes of widgets until `stop` is cancelled.
pub(crate) async fn watch(
    client: Client,
    stop: &CancellationToken,
    print: impl Fn(String) + Clone + Send + 'static,
) -> Result<(), Box<dyn std::error::Error>> {
    let factory = SharedInformerFactory::new(client);
    let widgets = factory.informer(Typed::<Widget>::new());
    let (added, updated, deleted) = (print.clone(), print.clone(), print.clone());
    let handler = HandlerFuncs::<Widget>::new()
        .with_add(move |widget, _| added(format!("{} has size {}", widget.name_any(), widget.spec.size)))
        .with_update(move |old, new| {
            if old.spec.size != new.spec.size {
                updated(format!("{} grows from {} to {}", new.name_any(), old.spec.size, new.spec.size));
            }
        })
        .with_delete(move |gone| deleted(format!("{} is gone", gone.key(&Typed::new()).name())));
    widgets.add_event_handler(handler, HandlerOptions::named("printer"))?;
    factory.start(stop);
    factory.wait_for_handlers_sync(stop).await.into_result()?;
    print(format!("{} widgets", widgets.store().len()));
    let failed = tokio::select! {
        () = stop.cancelled() => None,
        // Without this, the program would go on without any changes.
        failed = factory.failed() => Some(failed),
    };
    factory.shutdown().await;
    failed.map_or(Ok(()), |failed| Err(failed.into()))
}
