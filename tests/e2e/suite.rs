//! An installed scheduler in a whole cluster, with controllers, kubelets and another scheduler.
//! Each test has its own namespace and nodes, so that all run at once on one cluster, including
//! restarts of the scheduler.
//!
//! By default, the suite starts its own cluster: etcd, kube-apiserver, kube-controller-manager,
//! kube-scheduler and two processes of the built program, one of which leads.
//! `SUPERCARGO_E2E_KUBECONFIG` names another cluster by its admin's kubeconfig: see
//! `docs/testing-on-a-cluster.md`. The nodes are simulated in both cases ([`kubelets`]), because
//! the tests control their load, their failures and what their kubelets report.

mod claims;
mod kubelets;
mod nodes;
mod preemption;
mod scenario;
mod schedulers;
mod side_by_side;
mod site;
mod takeover;
mod volumes;
mod workloads;
