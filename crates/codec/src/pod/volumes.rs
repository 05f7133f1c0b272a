//! Volumes of a pod.

use kube_informers::protobuf::wire::Value;
use serde::Deserialize;
use serde::de::IgnoredAny;
use supercargo_framework::volume::{Volume, VolumeSource, Volumes};

use crate::interners::Interners;
use crate::json::{Obj, Str};
use crate::proto::{Field as _, FieldResult, ProtoMessage, merge, message};
use crate::volume_source::{AwsElasticBlockStore, AzureDisk, ById, GcePersistentDisk, Iscsi, Rbd};

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WireVolume<'a> {
    #[serde(borrow)]
    name: Str<'a>,
    #[serde(borrow)]
    pub(super) image: Obj<ImageVolume<'a>>,
    #[serde(borrow)]
    persistent_volume_claim: Option<Obj<ClaimVolume<'a>>>,
    ephemeral: Option<IgnoredAny>,
    #[serde(borrow)]
    csi: Option<Obj<CsiVolume<'a>>>,
    #[serde(borrow)]
    gce_persistent_disk: Option<Obj<GcePersistentDisk<'a>>>,
    #[serde(borrow)]
    aws_elastic_block_store: Option<Obj<AwsElasticBlockStore<'a>>>,
    #[serde(borrow)]
    iscsi: Option<Obj<Iscsi<'a>>>,
    #[serde(borrow)]
    rbd: Option<Obj<Rbd<'a>>>,
    #[serde(borrow)]
    azure_disk: Option<Obj<AzureDisk<'a>>>,
    #[serde(borrow)]
    cinder: Option<Obj<ById<'a>>>,
    #[serde(borrow)]
    portworx_volume: Option<Obj<ById<'a>>>,
    azure_file: Option<IgnoredAny>,
    vsphere_volume: Option<IgnoredAny>,
}

impl<'a> ProtoMessage<'a> for WireVolume<'a> {
    fn field(&mut self, number: u32, value: Value<'a>) -> FieldResult {
        match (number, value) {
            (1, value) => self.name.set(value),
            (2, Value::Bytes(bytes)) => Some(merge(&mut Sources(self), bytes)),
            (2, _) => None,
            _ => Some(Ok(())),
        }
    }
}

/// The source of a volume: a separate message in protobuf, part of the volume in JSON.
struct Sources<'v, 'a>(&'v mut WireVolume<'a>);

impl<'a> ProtoMessage<'a> for Sources<'_, 'a> {
    fn field(&mut self, number: u32, value: Value<'a>) -> FieldResult {
        let volume = &mut *self.0;
        match number {
            3 => volume.gce_persistent_disk.set(value),
            4 => volume.aws_elastic_block_store.set(value),
            8 => volume.iscsi.set(value),
            10 => volume.persistent_volume_claim.set(value),
            11 => volume.rbd.set(value),
            13 => volume.cinder.set(value),
            18 => volume.azure_file.set(value),
            20 => volume.vsphere_volume.set(value),
            22 => volume.azure_disk.set(value),
            24 => volume.portworx_volume.set(value),
            28 => volume.csi.set(value),
            29 => volume.ephemeral.set(value),
            30 => volume.image.set(value),
            _ => Some(Ok(())),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ImageVolume<'a> {
    #[serde(borrow)]
    pub(super) reference: Str<'a>,
}

message!(ImageVolume { 1 => reference });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClaimVolume<'a> {
    #[serde(borrow)]
    claim_name: Str<'a>,
}

message!(ClaimVolume { 1 => claim_name });

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CsiVolume<'a> {
    #[serde(borrow)]
    driver: Str<'a>,
}

message!(CsiVolume { 1 => driver });

impl Interners {
    /// The volumes that constrain nodes.
    pub(super) fn volumes(&mut self, volumes: &[Obj<WireVolume<'_>>]) -> Volumes {
        let kept = |volume: &Obj<WireVolume<'_>>| {
            let source = self.volume_source(volume)?;
            Some(Volume { name: self.text(&volume.name), source })
        };
        volumes.iter().filter_map(kept).collect()
    }

    /// A volume has one source; the API server validates it.
    fn volume_source(&mut self, volume: &WireVolume<'_>) -> Option<VolumeSource> {
        if let Some(claim) = &volume.persistent_volume_claim {
            Some(VolumeSource::Claim(self.text(&claim.claim_name)))
        } else if volume.ephemeral.is_some() {
            Some(VolumeSource::Ephemeral)
        } else if let Some(inline) = &volume.csi {
            Some(VolumeSource::Csi(self.text(&inline.driver)))
        } else {
            self.disk(volume)
        }
    }

    /// In-tree sources.
    fn disk(&mut self, volume: &WireVolume<'_>) -> Option<VolumeSource> {
        let is_set = |flag: Option<bool>| flag.unwrap_or_default();
        Some(if let Some(disk) = &volume.gce_persistent_disk {
            VolumeSource::GcePersistentDisk {
                pd_name: self.text(&disk.pd_name),
                read_only: is_set(disk.read_only),
            }
        } else if let Some(disk) = &volume.aws_elastic_block_store {
            VolumeSource::AwsElasticBlockStore {
                volume_id: self.text(&disk.volume_id),
                read_only: is_set(disk.read_only),
            }
        } else if let Some(disk) = &volume.iscsi {
            VolumeSource::Iscsi {
                target_portal: self.text(&disk.target_portal),
                iqn: self.text(&disk.iqn),
                lun: disk.lun.unwrap_or_default(),
                read_only: is_set(disk.read_only),
            }
        } else if let Some(disk) = &volume.rbd {
            VolumeSource::Rbd {
                monitors: self.texts(&disk.monitors),
                pool: self.text(&disk.pool),
                image: self.text(&disk.image),
                read_only: is_set(disk.read_only),
            }
        } else if let Some(disk) = &volume.azure_disk {
            VolumeSource::AzureDisk {
                disk_name: self.text(&disk.disk_name),
                disk_uri: self.text(&disk.disk_uri),
            }
        } else if let Some(disk) = &volume.cinder {
            VolumeSource::Cinder(self.text(&disk.volume_id))
        } else if volume.azure_file.is_some() {
            VolumeSource::AzureFile
        } else if volume.vsphere_volume.is_some() {
            VolumeSource::Vsphere
        } else {
            VolumeSource::Portworx(self.text(&volume.portworx_volume.as_ref()?.volume_id))
        })
    }
}
