//! supercargo as a whole under one seed: three scheduler processes with clocks of their own, the
//! network, the API server, users, kubelets and controllers, and what goes wrong with each.
//!
//! ```text
//! plan ──> world ──> machine (runtime, clocks, process) ──letters──> network ──> API server
//!            │                                                         │           ^
//!            └── faults                                    invariants: checker   workload
//! ```
//!
//! A seed decides everything, and two runs of it have the same trace. The package's README says
//! what is not simulated.

pub mod api;
pub mod disk;
pub mod entropy;
pub mod extender;
pub mod invariants;
pub mod machine;
pub mod network;
pub mod out_of_tree_plugin;
pub mod plan;
pub mod regressions;
pub mod retained;
pub mod run;
pub mod sabotage;
pub mod trace;
pub mod workload;
pub mod world;
