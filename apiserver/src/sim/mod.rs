//! Simulated kubelets and workload controllers.
