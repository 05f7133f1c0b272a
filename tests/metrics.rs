//! Metrics: kube-scheduler's and supercargo's after the same scenario, and the series in
//! dashboards, rules and documentation.

#![allow(clippy::unwrap_used, reason = "the failure of a test is a panic")]
#![allow(clippy::float_cmp, reason = "what is compared are counts")]

mod dashboards;
mod devices;
mod documentation;
mod exposition;
mod groups;
mod promql;
mod scenario;
mod subjects;
mod upstream;
