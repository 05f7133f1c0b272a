//! Selectors of default constraints: those of the pod's services and of its owner.

use smallvec::SmallVec;
use supercargo_framework::affinity::Requirement;
use supercargo_framework::objects::{Service, Typed, Workload, resources};
use supercargo_framework::{Context, LabelSelector, Labels, PodInfo, QueueContext, SmallMap, Text};

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

/// Selectors that must all match; an empty one matches every pod.
#[derive(Clone, Default, Hash)]
pub(super) struct Selectors(SmallVec<[LabelSelector; 1]>);

impl Selectors {
    /// Whether they match every pod.
    pub(super) fn are_empty(&self) -> bool {
        self.0.iter().all(LabelSelector::is_empty)
    }

    /// Whether they are clones of the same selectors.
    pub(super) fn are_clones_of(&self, others: &Self) -> bool {
        let pairs = || self.0.iter().zip(&others.0);
        self.0.len() == others.0.len() && pairs().all(|(one, other)| one.is_clone_of(other))
    }

    /// Whether all of them match these labels.
    pub(super) fn match_labels(&self, labels: &Labels) -> bool {
        self.0.iter().all(|selector| selector.matches(labels))
    }
}

impl From<LabelSelector> for Selectors {
    fn from(selector: LabelSelector) -> Self {
        Self([selector].into())
    }
}

/// The selectors of all services that select the pod and of its owner; empty if there are none.
pub(super) fn default_selectors(lookup: &dyn Lookup, pod: &PodInfo) -> Selectors {
    let owner = owner(lookup, pod);
    let of_owner = owner.as_ref().and_then(|(_, owner)| owner.selector.as_ref());
    // Upstream merges the map of this owner into that of the services; it takes precedence.
    let overriding = match (&owner, of_owner) {
        (Some((kind, _)), Some(selector)) if *kind == resources::REPLICATION_CONTROLLER => {
            selector.requirements()
        }
        _ => &[],
    };
    let overridden: SmallMap<_, _> = overriding
        .iter()
        .filter(|own| pod.labels.get(&own.key).is_none_or(|value| !own.values.contains(value)))
        .map(|own| (&*own.key, ()))
        .collect();
    let mut selectors = Selectors::default();
    lookup.services(&pod.namespace, &mut |service| {
        let labels = service.selector.labels();
        if labels.is_empty() || !labels.is_subset_of(&pod.labels) {
            return;
        }
        let selector = service.selector.as_selector();
        let is_overridden = |requirement: &Requirement| overridden.contains(&*requirement.key);
        selectors.0.push(if selector.requirements().iter().any(is_overridden) {
            let rest = selector.requirements().iter().filter(|it| !is_overridden(it)).cloned();
            LabelSelector::new(rest.collect::<Vec<_>>())
        } else {
            selector.clone()
        });
    });
    selectors.0.extend(of_owner.cloned());
    selectors
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
