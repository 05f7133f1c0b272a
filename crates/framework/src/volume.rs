//! Volumes of a pod that restrict nodes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::indexed::{Indexed, Keyed};
use crate::small_map::FEW;
use crate::steps;

/// A volume. Volumes without effect on scheduling (config maps, empty directories, …) are not
/// stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Volume {
    /// The name within the pod.
    pub name: Arc<str>,
    /// The source.
    pub source: VolumeSource,
}

/// The source of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum VolumeSource {
    /// `persistentVolumeClaim`: a claim of this name in the pod's namespace.
    Claim(Arc<str>),
    /// `ephemeral`: a claim named `<pod>-<volume>` that the pod owns.
    Ephemeral,
    /// `csi`: an inline volume of this driver.
    Csi(Arc<str>),
    /// `gcePersistentDisk`.
    GcePersistentDisk {
        /// `pdName`.
        pd_name: Arc<str>,
        /// `readOnly`.
        read_only: bool,
    },
    /// `awsElasticBlockStore`.
    AwsElasticBlockStore {
        /// `volumeID`.
        volume_id: Arc<str>,
        /// `readOnly`.
        read_only: bool,
    },
    /// `iscsi`.
    Iscsi {
        /// `targetPortal`.
        target_portal: Arc<str>,
        /// `iqn`.
        iqn: Arc<str>,
        /// `lun`.
        lun: i32,
        /// `readOnly`.
        read_only: bool,
    },
    /// `rbd`.
    Rbd {
        /// `monitors`.
        monitors: Box<[Arc<str>]>,
        /// `pool`.
        pool: Arc<str>,
        /// `image`.
        image: Arc<str>,
        /// `readOnly`.
        read_only: bool,
    },
    /// `azureDisk`: the disk's name and URI.
    AzureDisk {
        /// `diskName`.
        disk_name: Arc<str>,
        /// `diskURI`.
        disk_uri: Arc<str>,
    },
    /// `cinder`: the `volumeID`.
    Cinder(Arc<str>),
    /// `portworxVolume`: the `volumeID`.
    Portworx(Arc<str>),
    /// `azureFile`.
    AzureFile,
    /// `vsphereVolume`.
    Vsphere,
}

impl VolumeSource {
    /// Whether the volume may turn out to be invalid: the claim of an ephemeral volume may be
    /// another pod's, a claim may have no name, and an EBS volume may be a URL.
    pub fn is_doubtful(&self) -> bool {
        match self {
            Self::Ephemeral => true,
            Self::Claim(name) => name.is_empty(),
            Self::AwsElasticBlockStore { volume_id, .. } => volume_id.starts_with("aws://"),
            _ => false,
        }
    }

    /// Whether this is a disk that pods on one node can only share if all uses of it
    /// [are shared](Self::is_shared).
    pub fn is_exclusive_disk(&self) -> bool {
        matches!(
            self,
            Self::GcePersistentDisk { .. }
                | Self::AwsElasticBlockStore { .. }
                | Self::Iscsi { .. }
                | Self::Rbd { .. }
        )
    }

    /// Whether this use of a disk allows others that do. As upstream, a use of an EBS volume never
    /// does.
    pub fn is_shared(&self) -> bool {
        match self {
            Self::GcePersistentDisk { read_only, .. }
            | Self::Iscsi { read_only, .. }
            | Self::Rbd { read_only, .. } => *read_only,
            _ => false,
        }
    }

    /// Whether the volume has a claim.
    pub fn is_claim(&self) -> bool {
        matches!(self, Self::Claim(_) | Self::Ephemeral)
    }

    /// The identity of the claim or the disk: its kind and up to two names. Sources with different
    /// identities are different volumes. As upstream, that of iSCSI ignores portal and LUN. RBD
    /// images with one identity are the same if they have a common monitor.
    fn identity(&self) -> Identity<'_> {
        match self {
            Self::Claim(name) => (CLAIM, name, ""),
            Self::Ephemeral => (EPHEMERAL, "", ""),
            Self::Csi(driver) => (2, driver, ""),
            Self::GcePersistentDisk { pd_name, .. } => (3, pd_name, ""),
            Self::AwsElasticBlockStore { volume_id, .. } => (4, volume_id, ""),
            Self::Iscsi { iqn, .. } => (5, iqn, ""),
            Self::Rbd { pool, image, .. } => (6, pool, image),
            Self::AzureDisk { disk_name, disk_uri } => (7, disk_name, disk_uri),
            Self::Cinder(volume_id) => (8, volume_id, ""),
            Self::Portworx(volume_id) => (9, volume_id, ""),
            Self::AzureFile => (10, "", ""),
            Self::Vsphere => (11, "", ""),
        }
    }
}

/// The kind and the names of a volume.
type Identity<'a> = (u8, &'a str, &'a str);

/// The kind of claims in an [`Identity`].
const CLAIM: u8 = 0;
/// The kind of ephemeral volumes, which are named by their volume.
const EPHEMERAL: u8 = 1;

/// Volumes are found by the identity of their sources, and by whether the use is shared.
impl Keyed for Volume {
    type Key<'a> = (Identity<'a>, bool);

    fn key(&self) -> Self::Key<'_> {
        let identity = match &self.source {
            VolumeSource::Ephemeral => (EPHEMERAL, &*self.name, ""),
            source => source.identity(),
        };
        (identity, self.source.is_shared())
    }
}

/// The volumes of a pod, which are found by the claim or the disk that they use.
#[derive(Clone, Default, Deserialize)]
#[serde(from = "Vec<Volume>")]
pub struct Volumes {
    list: Indexed<Volume>,
    /// The monitors of RBD images in the order of [`Volumes::monitor`]: the places of the volume in
    /// the list and of the monitor in the volume. Empty for few monitors.
    monitors: Box<[(u32, u32)]>,
}

impl Volumes {
    fn new(list: Indexed<Volume>) -> Self {
        let count = |volume: &Volume| match &volume.source {
            VolumeSource::Rbd { monitors, .. } => monitors.len() as u32,
            _ => 0,
        };
        let mut volumes = Self { list, monitors: Box::default() };
        let places = (0..).zip(&volumes.list).flat_map(|(i, volume)| (0..count(volume)).map(move |m| (i, m)));
        if places.clone().nth(FEW).is_some() {
            let mut monitors: Box<[_]> = places.collect();
            monitors.sort_unstable_by(|a, b| volumes.monitor(a).cmp(&volumes.monitor(b)));
            volumes.monitors = monitors;
        }
        volumes
    }

    /// A monitor with its image, and whether the use of it is shared.
    fn monitor(&self, (volume, monitor): &(u32, u32)) -> Option<(Identity<'_>, &str, bool)> {
        let source = &self.list[*volume as usize].source;
        let VolumeSource::Rbd { monitors, .. } = source else { return None };
        Some((source.identity(), &monitors[*monitor as usize], source.is_shared()))
    }

    /// The number of claims, disks and monitors: at most this many lookups compare the volumes with
    /// others.
    fn lookups(&self) -> usize {
        self.list.len() + self.monitors.len()
    }

    /// Whether any volume is a claim of this name, other than an ephemeral one.
    pub fn have_claim(&self, name: &str) -> bool {
        self.have((CLAIM, name, ""))
    }

    /// Whether any volume is an ephemeral one of this name.
    pub fn have_ephemeral(&self, name: &str) -> bool {
        self.have((EPHEMERAL, name, ""))
    }

    fn have(&self, identity: Identity<'_>) -> bool {
        self.list.find_by(|(known, _)| known.cmp(&identity)).next().is_some()
    }

    /// The [exclusive disks](VolumeSource::is_exclusive_disk), of many equal ones only one. RBD
    /// images with one identity may differ in their monitors.
    fn exclusive_disks(&self) -> impl Iterator<Item = &VolumeSource> {
        let mut last = None;
        let disks = self.list.grouped().filter(|volume| volume.source.is_exclusive_disk());
        let distinct = disks.filter(move |disk| {
            steps::add(1);
            let before = last.replace(disk.key());
            before != last || matches!(disk.source, VolumeSource::Rbd { .. })
        });
        distinct.map(|disk| &disk.source)
    }

    /// Whether any disk of one pod is also a disk of the other, and one of the two uses is not
    /// shared.
    pub fn conflict(&self, other: &Self) -> bool {
        let (few, many) = if self.lookups() <= other.lookups() { (self, other) } else { (other, self) };
        few.exclusive_disks().any(|disk| many.have_disk(disk))
    }

    /// Whether any volume is the same disk as this one, and one of the two is not shared.
    fn have_disk(&self, disk: &VolumeSource) -> bool {
        let identity = disk.identity();
        // Uses that are not shared come first.
        let order = |known: Identity<'_>, is_shared: bool| {
            known.cmp(&identity).then((disk.is_shared() && is_shared).cmp(&false))
        };
        let like = || self.list.find_by(|(known, is_shared)| order(known, is_shared));
        match disk {
            VolumeSource::Rbd { monitors, .. } if self.monitors.is_empty() => like().any(|volume| {
                let VolumeSource::Rbd { monitors: known, .. } = &volume.source else { return false };
                steps::add(known.len() * monitors.len());
                known.iter().any(|monitor| monitors.contains(monitor))
            }),
            VolumeSource::Rbd { monitors, .. } => monitors.iter().any(|monitor| {
                let wanted = (identity, &**monitor, false);
                let at = self.monitors.partition_point(|place| {
                    steps::add(1);
                    self.monitor(place) < Some(wanted)
                });
                let found = self.monitors.get(at).and_then(|place| self.monitor(place));
                found.is_some_and(|(known, name, is_shared)| {
                    name == &**monitor && order(known, is_shared).is_eq()
                })
            }),
            _ => like().next().is_some(),
        }
    }
}

impl Deref for Volumes {
    type Target = [Volume];

    fn deref(&self) -> &[Volume] {
        &self.list
    }
}

impl<'a> IntoIterator for &'a Volumes {
    type Item = &'a Volume;
    type IntoIter = std::slice::Iter<'a, Volume>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl FromIterator<Volume> for Volumes {
    fn from_iter<I: IntoIterator<Item = Volume>>(volumes: I) -> Self {
        Self::new(volumes.into_iter().collect())
    }
}

impl From<Vec<Volume>> for Volumes {
    fn from(volumes: Vec<Volume>) -> Self {
        Self::new(volumes.into())
    }
}

impl<const N: usize> From<[Volume; N]> for Volumes {
    fn from(volumes: [Volume; N]) -> Self {
        Self::new(volumes.into())
    }
}

impl Serialize for Volumes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.list.serialize(serializer)
    }
}

impl fmt::Debug for Volumes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl PartialEq for Volumes {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for Volumes {}

impl Hash for Volumes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.list.hash(state);
    }
}

impl Volume {
    /// The name of the volume's claim, if it has one.
    pub fn claim_name(&self, pod_name: &str) -> Option<Arc<str>> {
        match &self.source {
            VolumeSource::Claim(name) => Some(Arc::clone(name)),
            VolumeSource::Ephemeral => Some(format!("{pod_name}-{}", self.name).into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn random_source() -> impl Strategy<Value = VolumeSource> {
        let text = || proptest::sample::select(vec!["a", "b", "c", "d"]).prop_map(Arc::<str>::from);
        let read_only = || proptest::bool::weighted(0.9);
        let monitor = || proptest::sample::select(vec!["k", "l", "m", "n"]).prop_map(Arc::<str>::from);
        let rbd = (proptest::collection::vec(monitor(), 0..5), text(), text(), read_only()).prop_map(
            |(monitors, pool, image, read_only)| VolumeSource::Rbd {
                monitors: monitors.into(),
                pool,
                image,
                read_only,
            },
        );
        let iscsi = (text(), text(), read_only()).prop_map(|(target_portal, iqn, read_only)| {
            VolumeSource::Iscsi { target_portal, iqn, lun: 0, read_only }
        });
        prop_oneof![
            4 => rbd,
            1 => iscsi,
            1 => (text(), read_only())
                .prop_map(|(pd_name, read_only)| VolumeSource::GcePersistentDisk { pd_name, read_only }),
            1 => (text(), read_only())
                .prop_map(|(volume_id, read_only)| VolumeSource::AwsElasticBlockStore { volume_id, read_only }),
            3 => text().prop_map(VolumeSource::Cinder),
            3 => text().prop_map(VolumeSource::Claim),
        ]
    }

    /// Upstream's rule for two volumes.
    fn conflict(a: &VolumeSource, b: &VolumeSource) -> bool {
        use VolumeSource::{AwsElasticBlockStore, GcePersistentDisk, Iscsi, Rbd};
        let both_read = a.is_shared() && b.is_shared();
        match (a, b) {
            (GcePersistentDisk { pd_name: a, .. }, GcePersistentDisk { pd_name: b, .. })
            | (Iscsi { iqn: a, .. }, Iscsi { iqn: b, .. }) => a == b && !both_read,
            (AwsElasticBlockStore { volume_id: a, .. }, AwsElasticBlockStore { volume_id: b, .. }) => a == b,
            (
                Rbd { monitors, pool, image, .. },
                Rbd { monitors: b_monitors, pool: b_pool, image: b_image, .. },
            ) => {
                let overlap = monitors.iter().any(|monitor| b_monitors.contains(monitor));
                overlap && pool == b_pool && image == b_image && !both_read
            }
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn conflicts_are_those_of_any_pair(
            ours in proptest::collection::vec(random_source(), 0..14),
            theirs in proptest::collection::vec(random_source(), 0..14),
        ) {
            let volumes = |sources: &[VolumeSource]| -> Volumes {
                let named = |source: &VolumeSource| Volume { name: "v".into(), source: source.clone() };
                sources.iter().map(named).collect()
            };
            let expected = ours.iter().any(|our| theirs.iter().any(|their| conflict(our, their)));
            prop_assert_eq!(volumes(&ours).conflict(&volumes(&theirs)), expected);
        }
    }
}
