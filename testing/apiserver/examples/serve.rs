//! Runs an API server for use from a shell: loads YAML files, listens on loopback, writes a
//! kubeconfig, and runs until Ctrl-C.
//!
//! ```text
//! cargo run -p supercargo-apiserver --example serve -- KUBECONFIG [FILE.yaml …]
//! export KUBECONFIG=…; kubectl get nodes
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use supercargo_apiserver::{ApiServer, Listen};

#[tokio::main]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("serve: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).map(PathBuf::from);
    let kubeconfig = arguments.next().ok_or("usage: serve KUBECONFIG [FILE.yaml …]")?;
    let server = ApiServer::default();
    for file in arguments {
        let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        let count = server.load(&text).map_err(|error| format!("{}: {error}", file.display()))?;
        println!("{}: {count} objects", file.display());
    }
    let endpoint = server.listen(Listen::default()).await?;
    let written = endpoint.write_kubeconfig(&kubeconfig);
    written.map_err(|error| format!("{}: {error}", kubeconfig.display()))?;
    println!(
        "Listening on {}. In another shell:\n\n  export KUBECONFIG={}",
        endpoint.url(),
        kubeconfig.display()
    );
    println!("  kubectl get namespaces\n\nCtrl-C ends the server and discards its state.");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
