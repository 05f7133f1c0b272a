//! kube-scheduler and supercargo in one leader election, as in `manifests/static-pod` and the
//! overlay `only-scheduler`.

use std::time::Duration;

use serde_json::Value;
use supercargo_controlplane::SchedulerOptions;

use crate::rbac::manifests::{self, text};
use crate::support::{Bindings, Cluster, Supercargo, eventually, node, own_plane, pod};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler";
const PATIENCE: Duration = Duration::from_mins(1);

/// The configuration of the static pod, which both use, with a kubeconfig of this machine. Its
/// times are the defaults: a busy machine does not lose the lease, and a released lease is acquired
/// at once.
fn config(kubeconfig: &str) -> String {
    let mut config = manifests::read("static-pod/config.yaml");
    config["clientConnection"]["kubeconfig"] = kubeconfig.into();
    config.to_string()
}

/// Waits for a leader and returns its identity.
fn leader(cluster: &Cluster, is_it: impl Fn(&str) -> bool) -> String {
    let lease = || cluster.find(LEASE).unwrap_or_default();
    let holder =
        || lease()["spec"]["holderIdentity"].as_str().filter(|holder| is_it(holder)).map(str::to_owned);
    eventually("another leads", PATIENCE, holder, || format!("{:#}", lease()))
}

/// Creates a pod for the default scheduler and waits until it is bound.
fn placed(cluster: &Cluster, name: &str) -> Value {
    let pod = pod(name).by("default-scheduler").build();
    cluster.create(&pod);
    cluster.bound_node("default", name);
    pod
}

#[test]
fn static_pod_starts_beside_kube_scheduler() {
    let pod = manifests::read("static-pod/supercargo.yaml");
    let container = &pod["spec"]["containers"][0];
    let args: Vec<&str> = container["args"].as_array().unwrap().iter().map(text).collect();
    let port = args.iter().find_map(|arg| arg.strip_prefix("--secure-port=")).unwrap();
    assert_ne!(port, "10259", "kube-scheduler listens there until supercargo is ready");
    assert_eq!(container["ports"][0]["containerPort"].to_string(), port);

    let guide = std::fs::read_to_string(manifests::root().join("../docs/migrating.md")).unwrap();
    let (_, steps) = guide.split_once("## Replace kube-scheduler with a static pod").unwrap();
    let (forward, back) = steps.split_once("To go back,").unwrap();
    let at = |steps: &str, command: &str| steps.find(command).unwrap_or_else(|| panic!("no {command}"));
    let mut order = [
        at(forward, "/etc/kubernetes/manifests/supercargo.yaml"),
        at(forward, "wait --for=condition=Ready pod/supercargo-NODE"),
        at(forward, "mv /etc/kubernetes/manifests/kube-scheduler.yaml"),
    ];
    assert!(order.is_sorted(), "{order:?}");
    order = [
        at(back, "mv /etc/kubernetes/kube-scheduler.yaml.off"),
        at(back, "wait --for=condition=Ready pod/kube-scheduler-NODE"),
        at(back, "rm /etc/kubernetes/manifests/supercargo.yaml"),
    ];
    assert!(order.is_sorted(), "{order:?}");
}

#[test]
fn leadership_moves_between_kube_scheduler_and_supercargo() {
    let Some(plane) = own_plane() else { return };
    let cluster = Cluster::of(&plane);
    cluster.create(&node("a", &[], &[("cpu", "8")]));
    let start_upstream = || {
        let options = SchedulerOptions {
            config_yaml: Some(config("{kubeconfig}")),
            extra_args: vec!["--leader-elect=true".to_owned()],
            ..SchedulerOptions::default()
        };
        plane.start_kube_scheduler(&options).unwrap()
    };
    let upstream = start_upstream();
    let first = leader(&cluster, |holder| !holder.is_empty());

    let kubeconfig = plane.kubeconfig("system:kube-scheduler").unwrap();
    let ours = config(kubeconfig.to_str().unwrap());
    let mut supercargo = Supercargo::start(&kubeconfig, Some(&ours), &["--leader-elect=true"]);
    supercargo.wait_for_log("attempting to acquire leader lease");
    let mut pods = vec![placed(&cluster, "before")];

    upstream.stop();
    let second = leader(&cluster, |holder| !holder.is_empty() && holder != first);
    pods.push(placed(&cluster, "between"));

    let upstream = start_upstream();
    let stands_by = || upstream.log().contains("Attempting to acquire leader lease").then_some(());
    eventually("kube-scheduler is back", PATIENCE, stands_by, || upstream.log());
    assert_eq!(text(&cluster.get(LEASE)["spec"]["holderIdentity"]), second);
    supercargo.terminate();
    assert!(supercargo.wait(PATIENCE).success());
    leader(&cluster, |holder| !holder.is_empty() && holder != second);
    pods.push(placed(&cluster, "after"));

    Bindings::of_each_once(&plane, &pods, 0);
    let transitions = &cluster.get(LEASE)["spec"]["leaseTransitions"];
    assert!(transitions.as_u64() >= Some(2), "{transitions}");
}
