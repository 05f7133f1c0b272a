//! A Kubernetes API server in memory, for demos, tests, simulation and benchmarks.
//!
//! It serves lists, watches, all patch types, subresources, and the validation and defaults that a
//! scheduler depends on. kubectl, client-go and kube use it like kube-apiserver 1.37. It needs no
//! etcd, starts in a millisecond, and injects [`faults`] on demand. **It is not a database**: its
//! state ends with the process unless you [save](ApiServer::save) it. The crate's README lists what
//! is not implemented.
//!
//! In process, the server is a tower service; `kube::Client::new(server.service(), "default")`
//! makes a client:
//!
//! ```
//! use http_body_util::{BodyExt as _, Full};
//! use supercargo_apiserver::ApiServer;
//! use tower_service::Service as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = ApiServer::default();
//! server.load("{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {capacity: {cpu: 4, pods: 110}}}")?;
//! let request = http::Request::get("/api/v1/nodes/n1").body(Full::<bytes::Bytes>::default())?;
//! let response = server.service().call(request).await?;
//! let node: serde_json::Value = serde_json::from_slice(&response.into_body().collect().await?.to_bytes())?;
//! assert_eq!(node["status"]["allocatable"]["cpu"], "4");
//! # Ok(())
//! # }
//! ```
//!
//! Over HTTPS on loopback, for kubectl and other programs that read a kubeconfig:
//!
//! ```no_run
//! use supercargo_apiserver::{ApiServer, Listen};
//!
//! # async fn example() -> std::io::Result<()> {
//! let endpoint = ApiServer::default().listen(Listen::default()).await?;
//! endpoint.write_kubeconfig("kubeconfig".as_ref())?;
//! # Ok(())
//! # }
//! ```
//!
//! The path of a request: [`Service`] or [`Endpoint`] → faults → `handle` (dispatches the verb) →
//! `rest` (executes it, with the kind's strategy) → `store` (one sequence of resourceVersions) →
//! `encode`. Objects are stored as the JSON that is sent, encoded once.

mod body;
mod decode;
mod depth;
mod discovery;
mod encode;
pub mod faults;
mod handle;
mod json;
pub mod kinds;
mod listen;
mod media;
mod nonresource;
mod object;
mod openapi;
mod patch;
mod proto;
mod quantity;
mod random;
mod registry;
mod request;
mod response;
mod rest;
mod schema;
mod selector;
mod server;
mod service;
pub mod sim;
mod state;
pub mod status;
mod store;
mod strategy;
mod table;
#[cfg(test)]
mod tests;
mod time;
mod watch;

pub use listen::{Endpoint, Listen};
pub use proto::{ProtobufError, message as protobuf_message};
pub use response::{Body, Disconnect};
pub use server::{ApiServer, Backup, Clock, Settings};
pub use service::Service;
pub use state::LoadError;
