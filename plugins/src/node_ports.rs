//! Filters nodes on which a requested host port is in use.

use std::sync::Arc;

use supercargo_framework::caching::{Caching, HintMarks, HintScope, Mark, Stateless};
use supercargo_framework::event::{Change, EventRegistration, QueueingHint};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::ports::any_conflict;
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, NodeFlags, NodeInfo, Nodes, Plugin, PodInfo, Status,
};

use supercargo_framework::hint::{self, Hint};

/// The plugin's name.
pub const NAME: &str = "NodePorts";

#[derive(Default)]
pub(crate) struct NodePorts;

fn after_pod_deleted(pod: &PodInfo, change: &Change) -> Hint {
    let gone = hint::old_pod(change)?;
    let frees = hint::held_a_node(gone) && any_conflict(&pod.spec.host_ports, &gone.spec.host_ports);
    Ok(QueueingHint::queue_if(frees))
}

fn ports(pod: &PodInfo) -> impl Iterator<Item = Mark> {
    pod.spec.host_ports.iter().map(|port| Mark::HostPort(port.port))
}

/// Finds the pods that request a port of the event's pod.
const MARKS: HintMarks = HintMarks {
    of_pod: |pod| Mark::wishes(ports(pod)),
    of_change: |change| Some(ports(change.old_pod()?).collect()),
};

impl Plugin for NodePorts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn extension_points(self: Arc<Self>) -> ExtensionPoints {
        ExtensionPoints::new()
            .pre_filter(&self)
            .filter(&self)
            .enqueue_extensions(&self)
            .sign(&self)
            .caching(&self)
            .incremental(&Arc::new(Stateless))
    }
}

impl PreFilterPlugin for NodePorts {
    fn pre_filter(&self, _: &Context<'_>, _: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if pod.spec.host_ports.is_empty() { PreFilter::Skip } else { PreFilter::AllNodes }
    }
}

impl FilterPlugin for NodePorts {
    fn filter(&self, _: &Context<'_>, _: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        if node.used_ports().conflict_with(&pod.spec.host_ports) {
            Status::unschedulable("node(s) didn't have free ports for the requested pod ports")
        } else {
            Status::success()
        }
    }
}

impl EnqueueExtensions for NodePorts {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        vec![
            EventRegistration::hinted(EventResource::AssignedPod, ActionType::DELETE, after_pod_deleted)
                .scoped(HintScope::HOST_PORTS)
                .marked(MARKS),
            EventRegistration::always(EventResource::Node, ActionType::ADD),
        ]
    }
}

impl SignPlugin for NodePorts {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        signer.write(&pod.spec.host_ports);
        Ok(())
    }
}

impl Caching for NodePorts {
    fn filter_columns(
        &self,
        _: &Context<'_>,
        _: &CycleState,
        pod: &PodInfo,
        nodes: &Nodes,
        passes: &mut [bool],
    ) -> bool {
        for index in nodes.columns().with_flags(NodeFlags::PORTS) {
            let passes = &mut passes[index.0 as usize];
            *passes = *passes && !nodes.at(index).used_ports().conflict_with(&pod.spec.host_ports);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::HostPort;
    use supercargo_framework::ports::Protocol;
    use supercargo_framework::testing::{node, node_added, node_info, pod, pod_deleted};

    use super::*;
    use crate::testing::driver;

    #[test]
    fn requested_host_ports_must_be_free() {
        let taken = || Status::unschedulable("node(s) didn't have free ports for the requested pod ports");
        let cases = [
            ("no port", pod("p"), Status::success()),
            ("a free port", pod("p").host_port(81), Status::success()),
            ("a taken port", pod("p").host_port(80), taken()),
            ("one of two taken", pod("p").host_port(81).host_port(80), taken()),
        ];
        let node = node_info(node("n").build(), [pod("other").host_port(80).build()]);
        for (name, pod, expected) in cases {
            assert_eq!(driver(NAME).filter(&pod.build(), &node), expected, "{name}");
        }
    }

    #[test]
    fn ports_conflict_per_address_and_protocol() {
        // The builder creates only TCP ports of all addresses, and sets the spec when it builds.
        let with_port = |ip: &str, protocol| {
            let mut pod = pod("p").build();
            let port = HostPort { ip: ip.into(), protocol, port: 80 };
            Arc::make_mut(&mut pod.spec).host_ports = [port].into();
            pod
        };
        let local = || with_port("127.0.0.1", Protocol::Tcp);
        let cases = [
            ("the same address", local(), local(), false),
            ("another address", local(), with_port("10.0.0.1", Protocol::Tcp), true),
            ("every address", local(), with_port("0.0.0.0", Protocol::Tcp), false),
            ("another protocol", local(), with_port("127.0.0.1", Protocol::Udp), true),
        ];
        for (name, wanted, used, fits) in cases {
            let status = driver(NAME).filter(&wanted, &node_info(node("n").build(), [used]));
            assert_eq!(status.is_success(), fits, "{name}");
        }
    }

    #[test]
    fn pods_without_host_ports_skip_filter() {
        let plugin = driver(NAME);
        assert!(matches!(plugin.pre_filter(&pod("p").build()), PreFilter::Skip));
        assert!(matches!(plugin.pre_filter(&pod("p").host_port(80).build()), PreFilter::AllNodes));
    }

    #[test]
    fn deleted_pods_with_a_conflicting_port_wake_the_pod() {
        use QueueingHint::{Queue, Skip};
        let cases = [
            ("assigned", pod("q").host_port(80).node("n"), Queue),
            ("nominated", pod("q").host_port(80).nominated("n"), Queue),
            ("waiting", pod("q").host_port(80), Skip),
            ("another port", pod("q").host_port(81).node("n"), Skip),
            ("no port", pod("q").node("n"), Skip),
        ];
        let (plugin, waiting) = (driver(NAME), pod("p").host_port(80).build());
        for (name, gone, expected) in cases {
            let change = pod_deleted(gone.build());
            let hint = plugin.hint(EventResource::AssignedPod, ActionType::DELETE, &waiting, &change);
            assert_eq!(hint, Some(Ok(expected)), "{name}");
        }
        let added = node_added(node("n").build());
        assert_eq!(
            plugin.hint(EventResource::Node, ActionType::ADD, &waiting, &added),
            Some(Ok(Queue)),
            "every added node helps"
        );
    }
}
