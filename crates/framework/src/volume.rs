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
    /// `rbd`.
    Rbd {
        /// `monitors`.
        monitors: Indexed<Arc<str>>,
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

    /// The identity of the claim or the disk: its kind and up to two names. Sources with different
    /// identities are different volumes.
    pub fn identity(&self) -> (u8, &str, &str) {
        match self {
            Self::Claim(name) => (CLAIM, name, ""),
            Self::Ephemeral => (1, "", ""),
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

/// The kind of claims in an [identity](VolumeSource::identity).
const CLAIM: u8 = 0;

/// Volumes are found by the identity of their sources.
impl Keyed for Volume {
    type Key<'a> = (u8, &'a str, &'a str);

    fn key(&self) -> Self::Key<'_> {
        self.source.identity()
    }
}

impl Indexed<Volume> {
    /// Whether any volume is a claim of this name, other than an ephemeral one.
    pub fn have_claim(&self, name: &str) -> bool {
        self.find_by(move |known| known.cmp(&(CLAIM, name, ""))).next().is_some()
    }

    /// The volumes whose sources have the identity of this one.
    pub fn like<'a>(&'a self, source: &'a VolumeSource) -> impl Iterator<Item = &'a Volume> {
        let identity = source.identity();
        self.find_by(move |known| known.cmp(&identity))
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
