//! Slim types of volume sources, in pods and persistent volumes.

use serde::Deserialize;

use super::json::{List, Str};
use super::proto::message;

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct GcePersistentDisk<'a> {
    #[serde(borrow)]
    pub(super) pd_name: Str<'a>,
    pub(super) read_only: Option<bool>,
}

message!(GcePersistentDisk { 1 => pd_name, 4 => read_only });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AwsElasticBlockStore<'a> {
    #[serde(borrow, rename = "volumeID")]
    pub(super) volume_id: Str<'a>,
    pub(super) read_only: Option<bool>,
}

message!(AwsElasticBlockStore { 1 => volume_id, 4 => read_only });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Iscsi<'a> {
    #[serde(borrow)]
    pub(super) target_portal: Str<'a>,
    #[serde(borrow)]
    pub(super) iqn: Str<'a>,
    pub(super) lun: Option<i32>,
    pub(super) read_only: Option<bool>,
}

message!(Iscsi { 1 => target_portal, 2 => iqn, 3 => lun, 6 => read_only });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rbd<'a> {
    #[serde(borrow)]
    pub(super) monitors: List<Str<'a>>,
    #[serde(borrow)]
    pub(super) image: Str<'a>,
    #[serde(borrow)]
    pub(super) pool: Str<'a>,
    pub(super) read_only: Option<bool>,
}

message!(Rbd { 1 => monitors, 2 => image, 4 => pool, 8 => read_only });

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct AzureDisk<'a> {
    #[serde(borrow)]
    pub(super) disk_name: Str<'a>,
    #[serde(borrow, rename = "diskURI")]
    pub(super) disk_uri: Str<'a>,
    #[serde(borrow)]
    pub(super) kind: Option<Str<'a>>,
}

message!(AzureDisk { 1 => disk_name, 2 => disk_uri, 6 => kind });

/// `cinder` and `portworxVolume`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ById<'a> {
    #[serde(borrow, rename = "volumeID")]
    pub(super) volume_id: Str<'a>,
}

message!(ById { 1 => volume_id });
