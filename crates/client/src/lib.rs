//! The client side of the API server: requests, limits, leader election.
//!
//! No other crate opens connections to the API server, except for the watches of `kube-informers`.
//!
//! ```text
//! Api ──> Fence ──> RateLimiter ──> AdaptiveLimit ──> Transport ──> API server
//! ```
//!
//! | module | subject |
//! |---|---|
//! | `api` | requests, and what a failure says about the server's state |
//! | `fence` | blocks requests from a process that does not lead |
//! | `rate_limit` | `clientConnection.qps` and `burst` |
//! | `adaptive_limit` | limits the requests in flight; adapts to an overloaded server |
//! | `transport` | HTTP/2 and HTTP/1.1 connections; which failed requests may be retried |
//! | `election` | leader election by Lease |

pub mod adaptive_limit;
pub mod api;
pub mod election;
pub mod fence;
pub mod rate_limit;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod transport;
