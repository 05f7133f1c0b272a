//! Filters nodes that would exceed the volume limits of CSI drivers.

mod attachable;
mod hint;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde_json::Value;
use smallvec::SmallVec;
use supercargo_framework::caching::HintScope;
use supercargo_framework::caching::{Caching, Stateless};
use supercargo_framework::event::EventRegistration;
use supercargo_framework::objects::{CsiDriver, CsiNode, PersistentVolume, VolumeAttachment, resources};
use supercargo_framework::plugin::{
    EnqueueExtensions, ExtensionPoints, FilterPlugin, PreFilter, PreFilterPlugin, SignPlugin,
};
use supercargo_framework::registry::{ArgsError, without_args};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::{
    ActionType, Context, CycleState, EventResource, Feature, Features, NodeFlags, NodeInfo, Plugin, PodInfo,
    SmallMap, Status, Text,
};

use crate::pod_volumes::{KeyBuffer, USED_CLAIMS, has_claims, sign};
use attachable::{Attachable, Counted, may_count};

/// The plugin's name.
pub const NAME: &str = "NodeVolumeLimits";

#[derive(Default)]
struct NodeVolumeLimits {
    /// Whether a driver can require to be installed on the node (`VolumeLimitScaling`).
    heeds_missing_drivers: bool,
}

/// Builds the plugin.
pub(crate) fn from_args(args: &Value, features: &Features) -> Result<Arc<dyn Plugin>, ArgsError> {
    // For the errors.
    without_args::<NodeVolumeLimits>(args, features)?;
    Ok(Arc::new(NodeVolumeLimits { heeds_missing_drivers: features.enabled(Feature::VolumeLimitScaling) }))
}

/// The volumes of the pod that can count.
#[derive(Clone)]
struct NewVolumes {
    /// On nodes with a CSINode.
    with_csi_node: Result<Arc<Wanted>, Status>,
    /// On nodes without one, which have no limits.
    without_csi_node: Result<Arc<Wanted>, Status>,
}

impl NewVolumes {
    fn of(cx: &Context<'_>, pod: &PodInfo) -> Self {
        let claims = cx.claims_of(pod);
        let mut claims = claims.iter();
        let mut found = Vec::new();
        for volume in &pod.spec.volumes {
            let named = if volume.source.is_claim() { claims.next() } else { None };
            match attachable::of_new_pod(cx, pod, volume, named) {
                Ok(None) => {}
                Ok(Some(counted)) => found.push(Ok(counted)),
                // It fails on every node.
                Err(status) => {
                    found.push(Err(status));
                    break;
                }
            }
        }
        let is_same = found.iter().flatten().all(|counted| matches!(counted, Counted::Everywhere(_)));
        let elsewhere = (!is_same).then(|| {
            let volumes = found.iter().filter_map(|lookup| match lookup {
                Ok(counted) => counted.without_csi_node().cloned().map(Ok),
                Err(status) => Some(Err(status.clone())),
            });
            Wanted::of(volumes).map(Arc::new)
        });
        let volumes = found.into_iter().map(|lookup| lookup?.with_csi_node());
        let with_csi_node = Wanted::of(volumes).map(Arc::new);
        Self { without_csi_node: elsewhere.unwrap_or_else(|| with_csi_node.clone()), with_csi_node }
    }

    /// The volumes that count on a node with or without a CSINode.
    fn on(&self, has_csi_node: bool) -> Result<&Wanted, Status> {
        let wanted = if has_csi_node { &self.with_csi_node } else { &self.without_csi_node };
        wanted.as_deref().map_err(Clone::clone)
    }
}

/// New volumes by driver. Drivers are in the order of the volumes if there are few.
#[derive(Debug, Default)]
struct Wanted(SmallMap<Text, Volumes>);

impl Wanted {
    /// These volumes; the first error.
    fn of(volumes: impl Iterator<Item = Result<Attachable, Status>>) -> Result<Self, Status> {
        let mut by_driver: SmallMap<Text, Volumes> = SmallMap::default();
        for volume in volumes {
            let volume = volume?;
            by_driver.or_default(&volume.driver).push(volume);
        }
        for volumes in by_driver.values_mut() {
            *volumes = sorted(std::mem::take(volumes));
        }
        Ok(Self(by_driver))
    }

    fn drivers(&self) -> impl Iterator<Item = &Text> {
        self.0.keys()
    }

    fn has_driver(&self, driver: &str) -> bool {
        self.0.contains(driver)
    }
}

/// Volumes, sorted and deduplicated.
type Volumes = SmallVec<[Attachable; 4]>;

/// The volumes of the node's pods that belong to the drivers of these volumes.
fn used_by_pods(cx: &Context<'_>, node: &NodeInfo, wanted: &Wanted) -> Result<Volumes, Status> {
    let mut key = KeyBuffer::default();
    let mut used = Volumes::new();
    for pod in node.pods() {
        for volume in &pod.spec.volumes {
            let counted = attachable::of_running_pod(cx, pod, volume, &mut key)?;
            // A node without CSINode has no limits, so its pods are not visited.
            if let Some(volume) = counted.map(Counted::with_csi_node).transpose()?
                && wanted.has_driver(&volume.driver)
            {
                used.push(volume);
            }
        }
    }
    Ok(sorted(used))
}

/// The volumes attached to the node that belong to the drivers of these volumes and are used by
/// none of its pods.
fn only_attached(cx: &Context<'_>, node: &NodeInfo, wanted: &Wanted, used: &Volumes) -> Volumes {
    let mut attached = Volumes::new();
    for attachment in cx.list_on::<VolumeAttachment>(&resources::VOLUME_ATTACHMENT, node.name()) {
        let (driver, Some(volume)) = (&attachment.attacher, &attachment.volume_name) else { continue };
        if !wanted.has_driver(driver) {
            continue;
        }
        let volume = cx.get::<PersistentVolume>(&resources::PERSISTENT_VOLUME, volume);
        let source = volume.and_then(|volume| volume.body.csi.as_ref());
        // As upstream, in-tree volumes are not translated here.
        if let Some(source) = source.filter(|source| source.migrated_from.is_none()) {
            attached.push(Attachable::new(Arc::clone(driver), Arc::clone(&source.handle)));
        }
    }
    let mut attached = sorted(attached);
    attached.retain(|volume| used.binary_search(volume).is_err());
    attached
}

fn sorted(mut volumes: Volumes) -> Volumes {
    volumes.sort_unstable();
    volumes.dedup();
    volumes
}

/// The volume limit of a driver on the node; `None` is unlimited.
fn limit_of(node: &CsiNode, driver: &str) -> Option<i64> {
    // The last of several entries with one name takes precedence.
    node.drivers.iter().rfind(|known| *known.name == *driver)?.limit.map(i64::from)
}

impl NodeVolumeLimits {
    /// The first of these drivers that must be installed on the node and is not.
    fn missing_driver<'a>(
        &self,
        cx: &Context<'_>,
        node: Option<&CsiNode>,
        wanted: &'a Wanted,
    ) -> Option<&'a Text> {
        let is_there =
            |driver: &Text| node.is_some_and(|node| node.drivers.iter().any(|known| *driver == *known.name));
        let is_demanded = |driver: &Text| {
            let driver = cx.get::<CsiDriver>(&resources::CSI_DRIVER, driver);
            driver.is_some_and(|driver| driver.prevents_scheduling_if_missing)
        };
        let mut drivers = wanted.drivers();
        drivers.find(|driver| self.heeds_missing_drivers && is_demanded(driver) && !is_there(driver))
    }
}

/// Whether the node can attach these volumes in addition to its own.
fn has_room(cx: &Context<'_>, node: &NodeInfo, limits: &CsiNode, wanted: &Wanted) -> Result<bool, Status> {
    let is_limited = wanted.drivers().any(|driver| limit_of(limits, driver).is_some());
    // Only volumes that cannot be identified make a difference then.
    if !is_limited && node.doubtful_volumes() == 0 {
        return Ok(true);
    }
    let used = used_by_pods(cx, node, wanted)?;
    let attached = only_attached(cx, node, wanted, &used);
    let fits = |(driver, volumes): (&Text, &Volumes)| {
        let of_driver = |volume: &&Attachable| volume.driver == *driver;
        let had = used.iter().filter(of_driver).count() + attached.iter().filter(of_driver).count();
        // As upstream, a new volume that is already attached counts twice.
        let new = volumes.len() - used.iter().filter(|volume| volumes.binary_search(volume).is_ok()).count();
        limit_of(limits, driver).is_none_or(|limit| new == 0 || (had + new) as i64 <= limit)
    };
    Ok(wanted.0.iter().all(fits))
}

impl Plugin for NodeVolumeLimits {
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

    fn reads(&self) -> Vec<Text> {
        let mut kinds = vec![resources::PERSISTENT_VOLUME, resources::STORAGE_CLASS];
        if self.heeds_missing_drivers {
            kinds.push(resources::CSI_DRIVER);
        }
        kinds
    }
}

impl PreFilterPlugin for NodeVolumeLimits {
    fn pre_filter(&self, cx: &Context<'_>, state: &mut CycleState, pod: &PodInfo) -> PreFilter {
        if !pod.spec.volumes.iter().any(|volume| may_count(&volume.source)) {
            return PreFilter::Skip;
        }
        state.write(NewVolumes::of(cx, pod));
        PreFilter::AllNodes
    }
}

impl FilterPlugin for NodeVolumeLimits {
    fn filter(&self, cx: &Context<'_>, state: &CycleState, pod: &PodInfo, node: &NodeInfo) -> Status {
        let computed;
        let new = match state.read::<NewVolumes>() {
            Some(new) => new,
            None => {
                // Only if a profile disables the plugin at PreFilter.
                computed = NewVolumes::of(cx, pod);
                &computed
            }
        };
        let csi_node = cx.get::<CsiNode>(&resources::CSI_NODE, node.name()).map(|node| node.body);
        let wanted = match new.on(csi_node.is_some()) {
            Ok(wanted) if wanted.0.is_empty() => return Status::success(),
            Ok(wanted) => wanted,
            Err(status) => return status,
        };
        if let Some(driver) = self.missing_driver(cx, csi_node, wanted) {
            return Status::unschedulable(format!("{driver} CSI driver is not installed on the node"));
        }
        let Some(limits) = csi_node.filter(|node| node.drivers.iter().any(|driver| driver.limit.is_some()))
        else {
            return Status::success();
        };
        match has_room(cx, node, limits, wanted) {
            Ok(true) => Status::success(),
            Ok(false) => Status::unschedulable("node(s) exceed max volume count"),
            Err(status) => status,
        }
    }
}

impl EnqueueExtensions for NodeVolumeLimits {
    fn events_to_register(self: Arc<Self>) -> Vec<EventRegistration> {
        let other = EventResource::Other;
        vec![
            EventRegistration::always(other(resources::CSI_NODE), ActionType::ADD),
            EventRegistration::hinted(
                other(resources::CSI_NODE),
                ActionType::UPDATE,
                hint::after_csi_node_update,
            )
            .scoped(HintScope::empty()),
            EventRegistration::hinted(
                EventResource::AssignedPod,
                ActionType::DELETE,
                hint::after_pod_deleted,
            )
            .scoped(HintScope::empty()),
            EventRegistration::hinted(
                other(resources::PERSISTENT_VOLUME_CLAIM),
                ActionType::ADD,
                hint::after_claim_added,
            )
            .marked(USED_CLAIMS),
            EventRegistration::hinted(
                other(resources::VOLUME_ATTACHMENT),
                ActionType::DELETE,
                hint::after_volume_detached,
            )
            .scoped(HintScope::VOLUMES),
        ]
    }
}

impl SignPlugin for NodeVolumeLimits {
    fn sign(&self, _: &Context<'_>, pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
        sign(pod, signer)
    }
}

impl Caching for NodeVolumeLimits {
    /// Filter fails only for volumes that cannot be identified: the pod's, or those of a pod on the
    /// node.
    fn filter_never_fails(&self, cx: &Context<'_>, state: &CycleState, _: &PodInfo) -> bool {
        state.read::<NewVolumes>().is_some_and(|new| new.with_csi_node.is_ok())
            && cx.nodes().columns().with_flags(NodeFlags::DOUBTFUL_VOLUMES).next().is_none()
    }

    fn stands_alone(&self, pod: &PodInfo) -> bool {
        has_claims(pod)
    }
}
