//! The client side of the API server: requests, limits, leader election.
//!
//! No other crate opens connections to the API server. The watches of `kube-informers` go over
//! `watch_service`.
//!
//! ```text
//! Api ──> Fence ──> RateLimiter ──> AdaptiveLimit ──> Transport ──> Wire ──> API server
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `api` | requests, and what a failure says about the server's state |
//! | `kubeconfig`, `key_pair` | the kubeconfig and client certificates, and what is wrong with them |
//! | `host` | the machine's name, clocks and randomness |
//! | `fence` | blocks requests from a process that does not lead |
//! | `rate_limit` | `clientConnection.qps` and `burst` |
//! | `adaptive_limit` | limits the requests in flight; adapts to an overloaded server |
//! | `transport` | sends requests; which failed requests may be retried |
//! | `outgoing_body` | whether any of a request's body was sent |
//! | `wire` | HTTP/2 and HTTP/1.1 connections, and how soon dead ones are noticed |
//! | `watch_service` | the same for watches |
//! | `connection`, `exec_plugin` | the server and credentials, as files and an exec plugin say at the moment |
//! | `election` | leader election by Lease |

pub mod adaptive_limit;
pub mod api;
pub mod connection;
pub mod election;
mod exec_plugin;
pub mod fence;
pub mod host;
pub mod key_pair;
pub mod kubeconfig;
mod outgoing_body;
pub mod rate_limit;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transport;
pub mod watch_service;
mod wire;
