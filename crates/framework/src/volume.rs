//! Volumes of a pod that restrict nodes.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

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
