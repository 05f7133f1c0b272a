//! Volumes of a pod that restrict nodes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::indexed::{Indexed, Keyed};

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
    /// `rbd`. A volume with several monitors is stored once for each.
    Rbd {
        /// One of `monitors`.
        monitor: Arc<str>,
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

    /// The identity of the claim or the disk: its kind and up to three names. Sources with
    /// different identities are different volumes. As upstream, that of iSCSI ignores portal and
    /// LUN.
    fn identity(&self) -> Identity<'_> {
        match self {
            Self::Claim(name) => (CLAIM, name, "", ""),
            Self::Ephemeral => (EPHEMERAL, "", "", ""),
            Self::Csi(driver) => (2, driver, "", ""),
            Self::GcePersistentDisk { pd_name, .. } => (3, pd_name, "", ""),
            Self::AwsElasticBlockStore { volume_id, .. } => (4, volume_id, "", ""),
            Self::Iscsi { iqn, .. } => (5, iqn, "", ""),
            Self::Rbd { monitor, pool, image, .. } => (6, monitor, pool, image),
            Self::AzureDisk { disk_name, disk_uri } => (7, disk_name, disk_uri, ""),
            Self::Cinder(volume_id) => (8, volume_id, "", ""),
            Self::Portworx(volume_id) => (9, volume_id, "", ""),
            Self::AzureFile => (10, "", "", ""),
            Self::Vsphere => (11, "", "", ""),
        }
    }
}

/// The kind and the names of a volume.
type Identity<'a> = (u8, &'a str, &'a str, &'a str);

/// The kind of claims in an [`Identity`].
const CLAIM: u8 = 0;
/// The kind of ephemeral volumes, which are named by their volume.
const EPHEMERAL: u8 = 1;

/// Volumes are found by the identity of their sources, and by whether the use is shared.
impl Keyed for Volume {
    type Key<'a> = (Identity<'a>, bool);

    fn key(&self) -> Self::Key<'_> {
        let identity = match &self.source {
            VolumeSource::Ephemeral => (EPHEMERAL, &*self.name, "", ""),
            source => source.identity(),
        };
        (identity, self.source.is_shared())
    }
}

impl Indexed<Volume> {
    /// Whether any volume is a claim of this name, other than an ephemeral one.
    pub fn have_claim(&self, name: &str) -> bool {
        self.have((CLAIM, name, "", ""))
    }

    /// Whether any volume is an ephemeral one of this name.
    pub fn have_ephemeral(&self, name: &str) -> bool {
        self.have((EPHEMERAL, name, "", ""))
    }

    fn have(&self, identity: Identity<'_>) -> bool {
        self.find_by(|(known, _)| known.cmp(&identity)).next().is_some()
    }

    /// Whether any volume is the same disk as this one, and one of the two is not shared.
    pub fn conflict_with(&self, disk: &VolumeSource) -> bool {
        let identity = disk.identity();
        // Uses that are not shared come first.
        let at_most = |is_shared| disk.is_shared() && is_shared;
        let order = |(known, is_shared): (Identity<'_>, bool)| {
            known.cmp(&identity).then(at_most(is_shared).cmp(&false))
        };
        disk.is_exclusive_disk() && self.find_by(order).next().is_some()
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
