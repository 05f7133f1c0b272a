//! Translates in-tree volume sources to their CSI drivers, as upstream's csi-translation-lib. Only
//! sources that count against a node's volume limits are translated.

use supercargo_framework::objects::CsiSource;

use super::storage::VolumeSpec;
use crate::interners::Interners;
use crate::json::Pairs;

/// Separates the zones of a volume with several zones.
const ZONE_DELIMITER: &str = "__";
/// Placeholder for a project or zone that the source does not name.
const UNSPECIFIED: &str = "UNSPECIFIED";

impl Interners {
    /// The CSI source of a volume, with in-tree sources translated. `labels` are the volume's.
    pub(super) fn csi_source(&mut self, spec: &VolumeSpec<'_>, labels: &Pairs<'_>) -> Option<CsiSource> {
        if let Some(csi) = &spec.csi {
            let (driver, handle) = (self.text(&csi.driver), self.text(&csi.volume_handle));
            return Some(CsiSource { driver, handle, migrated_from: None });
        }
        let (plugin, driver, handle) = translated(spec, labels)?;
        Some(CsiSource {
            driver: self.text(driver),
            handle: self.text(&handle),
            migrated_from: Some(self.text(plugin)),
        })
    }
}

/// In-tree plugin, CSI driver and handle. Also `None` if upstream cannot translate the source.
fn translated(spec: &VolumeSpec<'_>, labels: &Pairs<'_>) -> Option<(&'static str, &'static str, String)> {
    if let Some(disk) = &spec.aws_elastic_block_store {
        let handle = ebs_handle(&disk.volume_id)?;
        return Some(("kubernetes.io/aws-ebs", "ebs.csi.aws.com", handle));
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        let handle = gce_handle(&disk.pd_name, labels)?;
        return Some(("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", handle));
    }
    if let Some(disk) = &spec.azure_disk {
        // Unmanaged disks were never migrated.
        let managed = disk.kind.as_ref().is_none_or(|kind| kind.eq_ignore_ascii_case("managed"));
        let handle = managed.then(|| disk.disk_uri.to_string())?;
        return Some(("kubernetes.io/azure-disk", "disk.csi.azure.com", handle));
    }
    if let Some(disk) = &spec.cinder {
        return Some(("kubernetes.io/cinder", "cinder.csi.openstack.org", disk.volume_id.to_string()));
    }
    let disk = spec.portworx_volume.as_ref()?;
    Some(("kubernetes.io/portworx-volume", "pxd.portworx.com", disk.volume_id.to_string()))
}

/// `vol-…`, extracted from `aws://<zone>/vol-…` if necessary.
fn ebs_handle(id: &str) -> Option<String> {
    let Some(address) = id.strip_prefix("aws://") else {
        return Some(id.to_owned());
    };
    let (_zone, path) = address.split_once('/')?;
    let name = path.trim_matches('/');
    (name.starts_with("vol-") && !name.contains('/')).then(|| name.to_owned())
}

/// The disk in its zone, or in its region if it has several zones.
fn gce_handle(name: &str, labels: &Pairs<'_>) -> Option<String> {
    let label = |wanted: &str| {
        let mut labels = labels.iter();
        labels.find(|(key, value)| *key == wanted && !value.is_empty()).map(|(_, value)| value)
    };
    let zones =
        label("failure-domain.beta.kubernetes.io/zone").or_else(|| label("topology.kubernetes.io/zone"));
    let zones: Vec<&str> = zones.unwrap_or(UNSPECIFIED).split(ZONE_DELIMITER).collect();
    Some(match &*zones {
        [zone] => format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{name}"),
        zones => format!("projects/{UNSPECIFIED}/regions/{}/disks/{name}", region_of(zones)?),
    })
}

/// The common region of the zones; a zone is `<locale>-<region>-<zone>`.
fn region_of<'z>(zones: &[&'z str]) -> Option<&'z str> {
    let mut regions = zones.iter().map(|zone| {
        let (region, _) = zone.rsplit_once('-')?;
        (region.matches('-').count() == 1).then_some(region)
    });
    let first = regions.next()??;
    regions.all(|region| region == Some(first)).then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Str;

    #[test]
    fn aws_disks_are_named_by_the_last_path_segment() {
        for (id, handle) in [
            ("vol-1", Some("vol-1")),
            ("any-name", Some("any-name")),
            ("aws://us-east-1a/vol-1", Some("vol-1")),
            ("aws:///vol-1/", Some("vol-1")),
            ("aws://us-east-1a/disk-1", None),
            ("aws://us-east-1a/vol-1/x", None),
            ("aws://vol-1", None),
        ] {
            assert_eq!(ebs_handle(id).as_deref(), handle, "{id}");
        }
    }

    #[test]
    fn gce_disks_are_in_a_zone_or_a_region() {
        let handle = |labels: &[(&'static str, &'static str)]| {
            let text = |text: &'static str| Str(text.into());
            let pairs = labels.iter().map(|(key, value)| (text(key), text(value))).collect();
            gce_handle("d", &Pairs(pairs))
        };
        let (old, new) = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone");
        for (labels, expected) in [
            (&[][..], Some("projects/UNSPECIFIED/zones/UNSPECIFIED/disks/d")),
            (&[(new, "us-east1-a")], Some("projects/UNSPECIFIED/zones/us-east1-a/disks/d")),
            (&[(old, "b"), (new, "a")], Some("projects/UNSPECIFIED/zones/b/disks/d")),
            (&[(old, ""), (new, "a")], Some("projects/UNSPECIFIED/zones/a/disks/d")),
            (&[(new, "us-east1-a__us-east1-b")], Some("projects/UNSPECIFIED/regions/us-east1/disks/d")),
            (&[(new, "us-east1-a__us-west1-b")], None),
            (&[(new, "a__b")], None),
            (&[(new, "x-us-east1-a__x-us-east1-b")], None),
        ] {
            assert_eq!(handle(labels).as_deref(), expected, "{labels:?}");
        }
    }
}
