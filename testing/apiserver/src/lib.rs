//! A Kubernetes API server in memory: for demos, tests, simulation and benchmarks.
//!
//! It has lists, watches, all patches, the subresources, validation and defaults that a scheduler's input depends on, and it
//! speaks to kubectl, client-go and kube as kube-apiserver 1.36 does. It needs no etcd, starts in a millisecond, and can be
//! made to fail ([`faults`]). **It is not a database**: its state goes with the process, unless it is
//! [saved](ApiServer::save). What it leaves out is listed in this crate's README.
//!
//! In process, it is a tower service; `kube::Client::new(server.service(), "default")` makes a client of it:
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
//! Over HTTPS on loopback, for kubectl and everything else that takes a kubeconfig:
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
//! How a request goes: [`Service`] or [`Endpoint`] → faults → `handle` (which verb on which kind) → `rest` (what the verb does,
//! with the kind's strategy) → `store` (one sequence of resourceVersions) → `encode`. Objects are kept as the JSON they are
//! sent as, encoded once.

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
mod watch;

pub use listen::{Endpoint, Listen};
pub use proto::{Error as ProtobufError, message as protobuf_message};
pub use response::{Body, Disconnect};
pub use server::{ApiServer, Clock, Settings};
pub use service::Service;
pub use state::LoadError;
