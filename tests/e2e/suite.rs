//! What an installed scheduler must do in a whole cluster, with controllers, kubelets and another scheduler beside it. Each
//! test has a namespace and nodes of its own, so that all run at once on one cluster, the scheduler's restarts included.
//!
//! Without more words the cluster is one of the suite's own: etcd, kube-apiserver, kube-controller-manager, kube-scheduler
//! and two of the binary just built, one of which leads. `SUPERCARGO_E2E_KUBECONFIG` names another, whose admin's file
//! it is: see `docs/testing-on-a-cluster.md`. The nodes are simulated in either case ([`kubelets`]): how much is on them, when a
//! machine stops and what its kubelet reports must be the tests' to say.

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
