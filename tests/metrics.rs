//! Metrics: what kube-scheduler says of a scenario and what supercargo says of it; and whether dashboards, rules and the
//! documentation name what there is.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]
#![allow(clippy::float_cmp, reason = "what is compared are counts")]

mod dashboards;
mod documentation;
mod exposition;
mod promql;
mod scenario;
mod subjects;
mod upstream;
