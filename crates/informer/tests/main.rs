//! The only binary of integration tests, which links once for all of them.

mod api_server;
mod client_go;
mod controller_example;
mod custom_resource_example;
mod kube_runtime;
mod own_kind;
mod sample_pods;
mod wire;
