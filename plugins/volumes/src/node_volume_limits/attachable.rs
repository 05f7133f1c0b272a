//! Volumes of a pod that count against a node's limits, and their identity.
//!
//! On nodes with a CSINode, a volume of an in-tree plugin counts for the CSI driver that the plugin
//! is migrated to.

use std::sync::Arc;

use supercargo_framework::context::NamedClaim;
use supercargo_framework::objects::{
    PersistentVolume, PersistentVolumeClaim, StorageClass, Typed, resources,
};
use supercargo_framework::volume::{Volume, VolumeSource};
use supercargo_framework::{Context, PodInfo, Status, Text};

use crate::pod_volumes::{KeyBuffer, claim_not_found};

/// A volume's identity for a driver. Two uses of one volume are equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attachable {
    // First: it differs where drivers are alike.
    handle: Handle,
    /// The driver.
    pub(super) driver: Text,
}

/// The identity of a volume within a driver.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Handle {
    /// The volume handle.
    Volume(Text),
    /// Not provisioned or bound yet, for the claim at this address. A pod can have tens of
    /// thousands with long keys, and none moves within a cycle. Upstream generates random names.
    OfClaim(usize),
}

impl Attachable {
    /// A volume by its handle.
    pub(super) fn new(driver: impl Into<Text>, handle: impl Into<Text>) -> Self {
        Self { driver: driver.into(), handle: Handle::Volume(handle.into()) }
    }
}

/// A volume that counts.
#[derive(Clone, Debug)]
pub(super) enum Counted {
    /// On every node.
    Everywhere(Attachable),
    /// Counts on nodes with a CSINode; an error there if it cannot be translated.
    Migrated(Result<Attachable, Text>),
}

impl Counted {
    /// The volume on a node with a CSINode.
    pub(super) fn with_csi_node(self) -> Result<Attachable, Status> {
        match self {
            Self::Everywhere(volume) | Self::Migrated(Ok(volume)) => Ok(volume),
            Self::Migrated(Err(error)) => Err(Status::error(error)),
        }
    }

    /// The volume on a node without a CSINode.
    pub(super) fn without_csi_node(&self) -> Option<&Attachable> {
        match self {
            Self::Everywhere(volume) => Some(volume),
            Self::Migrated(_) => None,
        }
    }
}

/// The in-tree plugins whose volumes count, with their CSI drivers.
const MIGRATED: [(&str, &str); 5] = [
    ("kubernetes.io/aws-ebs", EBS),
    ("kubernetes.io/gce-pd", GCE_PD),
    ("kubernetes.io/azure-disk", AZURE_DISK),
    ("kubernetes.io/cinder", CINDER),
    ("kubernetes.io/portworx-volume", PORTWORX),
];

const EBS: &str = "ebs.csi.aws.com";
const GCE_PD: &str = "pd.csi.storage.gke.io";
const AZURE_DISK: &str = "disk.csi.azure.com";
const CINDER: &str = "cinder.csi.openstack.org";
const PORTWORX: &str = "pxd.portworx.com";

const AZURE_FILE: &str = "file.csi.azure.com";
const VSPHERE: &str = "csi.vsphere.vmware.com";

/// In-tree plugins with a CSI driver whose volumes do not count.
const NOT_COUNTED: [&str; 2] = ["kubernetes.io/azure-file", "kubernetes.io/vsphere-volume"];

/// The CSI driver of an in-tree plugin, if its volumes count.
fn successor(plugin: &str) -> Option<&'static str> {
    MIGRATED.iter().find(|(name, _)| *name == plugin).map(|(_, driver)| *driver)
}

/// Whether a volume with this source can matter to limits: a claim, or of an in-tree plugin with a
/// CSI driver. As upstream, also of one whose volumes do not count.
pub(super) fn may_count(source: &VolumeSource) -> bool {
    source.is_claim() || inline_driver(source).is_some()
}

/// The driver of an inline volume of an in-tree plugin that has one; `None` for other sources.
pub(super) fn inline_driver(source: &VolumeSource) -> Option<Result<Text, String>> {
    match source {
        VolumeSource::AzureFile => Some(Ok(AZURE_FILE.into())),
        VolumeSource::Vsphere => Some(Ok(VSPHERE.into())),
        source => inline(source).map(|translated| translated.map(|volume| volume.driver)),
    }
}

/// The driver and handle of an inline volume that counts; `None` for other sources.
fn inline(source: &VolumeSource) -> Option<Result<Attachable, String>> {
    let volume = match source {
        VolumeSource::GcePersistentDisk { pd_name, .. } => {
            // The pod does not name the zone of the disk.
            Attachable::new(GCE_PD, format!("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/{pd_name}"))
        }
        VolumeSource::AwsElasticBlockStore { volume_id, .. } => {
            return Some(ebs_handle(volume_id).map(|handle| Attachable::new(EBS, handle)));
        }
        VolumeSource::AzureDisk { disk_uri, .. } => Attachable::new(AZURE_DISK, Arc::clone(disk_uri)),
        VolumeSource::Cinder(volume_id) => Attachable::new(CINDER, Arc::clone(volume_id)),
        VolumeSource::Portworx(volume_id) => Attachable::new(PORTWORX, Arc::clone(volume_id)),
        _ => return None,
    };
    Some(Ok(volume))
}

/// The handle of an EBS volume: its ID, which may be the last part of an `aws://<zone>/<id>` URL.
fn ebs_handle(volume_id: &Arc<str>) -> Result<Text, String> {
    let Some(url) = volume_id.strip_prefix("aws://") else {
        return Ok(Arc::clone(volume_id).into());
    };
    let path = url.split_once('/').map_or("", |(_, path)| path);
    let id = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    if id.starts_with("vol-") && !id.contains('/') {
        Ok(id.to_owned().into())
    } else {
        Err(format!(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({volume_id})"
        ))
    }
}

/// A volume of the incoming pod. Its claim, if it has one, must exist.
pub(super) fn of_new_pod(
    cx: &Context<'_>,
    pod: &PodInfo,
    volume: &Volume,
    named: Option<&NamedClaim>,
) -> Result<Option<Counted>, Status> {
    let Some(named) = named else { return Ok(of_inline(volume)) };
    let counted = of_named(cx, pod, volume, named)?;
    if named.claim().is_none() {
        let name = volume.claim_name(&pod.name).unwrap_or_default();
        let missing = format!("looking up PVC {}/{name}: {}", pod.namespace, claim_not_found(&name));
        return Err(Status::unresolvable(missing));
    }
    Ok(counted)
}

/// A volume of a pod on a node. A volume whose claim does not exist is ignored.
pub(super) fn of_running_pod(
    cx: &Context<'_>,
    pod: &PodInfo,
    volume: &Volume,
    key: &mut KeyBuffer,
) -> Result<Option<Counted>, Status> {
    let key = match &volume.source {
        VolumeSource::Claim(name) => key.join(&[&pod.namespace, "/", name]),
        VolumeSource::Ephemeral => key.join(&[&pod.namespace, "/", &pod.name, "-", &volume.name]),
        _ => return Ok(of_inline(volume)),
    };
    of_named(cx, pod, volume, &cx.named_claim(key))
}

fn of_named(
    cx: &Context<'_>,
    pod: &PodInfo,
    volume: &Volume,
    named: &NamedClaim,
) -> Result<Option<Counted>, Status> {
    if matches!(&volume.source, VolumeSource::Claim(name) if name.is_empty()) {
        return Err(Status::error("PersistentVolumeClaim had no name"));
    }
    let Some(claim) = named.claim() else { return Ok(None) };
    if volume.source == VolumeSource::Ephemeral && !is_owner(pod, &claim) {
        return Err(Status::error(format!(
            "PVC {} was not created for pod {}/{} (pod is not owner)",
            claim.object.key, pod.namespace, pod.name
        )));
    }
    Ok(of_claim(cx, &claim, named.volume()))
}

fn of_inline(volume: &Volume) -> Option<Counted> {
    inline(&volume.source).map(|translated| migrated_inline(volume, translated))
}

fn migrated_inline(volume: &Volume, translated: Result<Attachable, String>) -> Counted {
    Counted::Migrated(translated.map_err(|error| {
        Text::from(format!("converting volume({}) from inline to csi: {error}", volume.name))
    }))
}

fn is_owner(pod: &PodInfo, claim: &Typed<'_, PersistentVolumeClaim>) -> bool {
    claim.object.controller.as_ref().is_some_and(|controller| pod.uid.is(&controller.uid))
}

/// The volume of a claim; `None` if it does not count.
fn of_claim(
    cx: &Context<'_>,
    claim: &Typed<'_, PersistentVolumeClaim>,
    volume: Option<Typed<'_, PersistentVolume>>,
) -> Option<Counted> {
    let Some(volume) = volume else { return of_class(cx, claim) };
    let source = volume.body.csi.as_ref()?;
    if source.driver.is_empty() || source.handle.is_empty() {
        return None;
    }
    let attachable = Attachable::new(Arc::clone(&source.driver), Arc::clone(&source.handle));
    match &source.migrated_from {
        None => Some(Counted::Everywhere(attachable)),
        Some(plugin) => successor(plugin).map(|_| Counted::Migrated(Ok(attachable))),
    }
}

/// The volume of an unbound claim, by its class. A claim without a class must be bound before
/// scheduling, and does not count.
fn of_class(cx: &Context<'_>, claim: &Typed<'_, PersistentVolumeClaim>) -> Option<Counted> {
    let class = cx.get::<StorageClass>(&resources::STORAGE_CLASS, &claim.storage_class)?;
    let provisioner = &class.body.provisioner;
    let address = Arc::as_ptr(claim.object) as usize;
    let by = |driver: Text| Attachable { handle: Handle::OfClaim(address), driver };
    if let Some(driver) = successor(provisioner) {
        return Some(Counted::Migrated(Ok(by(driver.into()))));
    }
    let counts = !provisioner.is_empty() && !NOT_COUNTED.contains(&&**provisioner);
    counts.then(|| Counted::Everywhere(by(Arc::clone(provisioner).into())))
}
