//! Selectors of default constraints: those of the pod's services and of its owner.

use std::sync::Arc;

use supercargo_framework::affinity::{Operator, Requirement};
use supercargo_framework::objects::{Service, Typed, Workload, resources};
use supercargo_framework::{Context, LabelSelector, PodInfo, QueueContext, SmallMap, Text};

/// The source of services and workloads: a cycle, or a queueing hint.
pub(super) trait Lookup {
    /// Visits the services of a namespace.
    fn services(&self, namespace: &str, visit: &mut dyn FnMut(&Service));
    /// A workload.
    fn workload(&self, resource: &Text, key: &str) -> Option<&Workload>;
}

impl Lookup for Context<'_> {
    fn services(&self, namespace: &str, visit: &mut dyn FnMut(&Service)) {
        self.list_in::<Service>(&resources::SERVICE, namespace).for_each(|service| visit(service.body));
    }

    fn workload(&self, resource: &Text, key: &str) -> Option<&Workload> {
        Some(self.get::<Workload>(resource, key)?.body)
    }
}

impl Lookup for QueueContext<'_> {
    fn services(&self, namespace: &str, visit: &mut dyn FnMut(&Service)) {
        let services = self.objects.list_in(&resources::SERVICE, namespace);
        services.filter_map(Typed::<Service>::of).for_each(|service| visit(service.body));
    }

    fn workload(&self, resource: &Text, key: &str) -> Option<&Workload> {
        Some(Typed::<Workload>::of(self.objects.get(resource, key)?)?.body)
    }
}

/// The selectors of all services that select the pod and of its owner, combined; empty if there are
/// none.
pub(super) fn default_selector(lookup: &dyn Lookup, pod: &PodInfo) -> LabelSelector {
    let mut requirements: Vec<Requirement> = Vec::new();
    let mut known = SmallMap::default();
    lookup.services(&pod.namespace, &mut |service| {
        if !service.selector.is_subset_of(&pod.labels) {
            return;
        }
        for (key, value) in service.selector.iter() {
            if known.insert(Arc::clone(key), ()).is_none() {
                requirements.push(Requirement {
                    key: Arc::clone(key),
                    operator: Operator::In,
                    values: [Arc::clone(value)].into(),
                });
            }
        }
    });
    if let Some((kind, owner)) = owner(lookup, pod) {
        let owners = owner.selector.as_ref().map_or(&[][..], LabelSelector::requirements);
        if kind == resources::REPLICATION_CONTROLLER {
            // Upstream merges this owner's map into that of the services; it takes precedence.
            let own: SmallMap<_, _> = owners.iter().map(|owner| (&owner.key, ())).collect();
            requirements.retain(|requirement| !own.contains(&requirement.key));
        }
        requirements.extend(owners.iter().cloned());
    }
    LabelSelector::new(requirements)
}

/// The workload that controls the pod, if it exists and its kind has a selector.
fn owner<'a>(lookup: &'a dyn Lookup, pod: &PodInfo) -> Option<(Text, &'a Workload)> {
    let owner = pod.controller.as_ref()?;
    let resource = match (&*owner.api_version, &*owner.kind) {
        ("v1", "ReplicationController") => resources::REPLICATION_CONTROLLER,
        ("apps/v1", "ReplicaSet") => resources::REPLICA_SET,
        ("apps/v1", "StatefulSet") => resources::STATEFUL_SET,
        _ => return None,
    };
    let workload = lookup.workload(&resource, &format!("{}/{}", pod.namespace, owner.name))?;
    Some((resource, workload))
}
