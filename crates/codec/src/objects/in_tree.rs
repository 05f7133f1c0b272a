//! Translates in-tree volume sources to their CSI drivers, as upstream's csi-translation-lib. Only
//! sources that count against a node's volume limits are translated.

use std::collections::BTreeSet;

use supercargo_framework::objects::{CsiSource, Untranslatable};

use super::storage::VolumeSpec;
use crate::interners::Interners;
use crate::json::Pairs;

/// Separates the zones of a volume with several zones.
const ZONE_DELIMITER: &str = "__";
/// Placeholder for a project or zone that the source does not name.
const UNSPECIFIED: &str = "UNSPECIFIED";

impl Interners {
    /// The CSI source of a volume, with in-tree sources translated. `labels` are the volume's.
    pub(super) fn csi_source(
        &mut self,
        spec: &VolumeSpec<'_>,
        labels: &Pairs<'_>,
    ) -> Result<Option<CsiSource>, Untranslatable> {
        if let Some(csi) = &spec.csi {
            let (driver, handle) = (self.text(&csi.driver), self.text(&csi.volume_handle));
            return Ok(Some(CsiSource { driver, handle, migrated_from: None }));
        }
        let Some(InTree { plugin, driver, handle }) = in_tree(spec, labels) else { return Ok(None) };
        let plugin = self.text(plugin);
        match handle {
            Ok(handle) => Ok(Some(CsiSource {
                driver: self.text(driver),
                handle: self.text(&handle),
                migrated_from: Some(plugin),
            })),
            Err(error) => Err(Untranslatable { plugin, error: error.into() }),
        }
    }
}

/// An in-tree source.
struct InTree {
    plugin: &'static str,
    driver: &'static str,
    /// The handle for the driver, or upstream's error.
    handle: Result<String, String>,
}

fn in_tree(spec: &VolumeSpec<'_>, labels: &Pairs<'_>) -> Option<InTree> {
    let of = |plugin, driver, handle| Some(InTree { plugin, driver, handle });
    if let Some(disk) = &spec.aws_elastic_block_store {
        return of("kubernetes.io/aws-ebs", "ebs.csi.aws.com", ebs_handle(&disk.volume_id));
    }
    if let Some(disk) = &spec.gce_persistent_disk {
        let handle = gce_handle(&disk.pd_name, labels);
        return of("kubernetes.io/gce-pd", "pd.csi.storage.gke.io", handle);
    }
    if let Some(disk) = &spec.azure_disk {
        let handle = match &disk.kind {
            // Unmanaged disks were never migrated.
            Some(kind) if !kind.eq_ignore_ascii_case("managed") => {
                Err(format!("kind({}) is not supported in csi migration", &**kind))
            }
            _ => Ok(disk.disk_uri.to_string()),
        };
        return of("kubernetes.io/azure-disk", "disk.csi.azure.com", handle);
    }
    if let Some(disk) = &spec.cinder {
        return of("kubernetes.io/cinder", "cinder.csi.openstack.org", Ok(disk.volume_id.to_string()));
    }
    let disk = spec.portworx_volume.as_ref()?;
    of("kubernetes.io/portworx-volume", "pxd.portworx.com", Ok(disk.volume_id.to_string()))
}

/// `vol-…`, extracted from `aws://<zone>/vol-…` if necessary.
fn ebs_handle(id: &str) -> Result<String, String> {
    let Some(address) = id.strip_prefix("aws://") else {
        return Ok(id.to_owned());
    };
    let path = address.split_once('/').map_or("", |(_zone, path)| path);
    let name = path.split(['?', '#']).next().unwrap_or_default().trim_matches('/');
    if name.starts_with("vol-") && !name.contains('/') {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "failed to translate Kubernetes ID to EBS Volume ID Invalid format for AWS volume ({id})"
        ))
    }
}

/// The disk in its zone, or in its region if it has several zones.
fn gce_handle(name: &str, labels: &Pairs<'_>) -> Result<String, String> {
    let label = |wanted: &str| {
        let mut labels = labels.iter();
        labels.find(|(key, value)| *key == wanted && !value.is_empty()).map(|(_, value)| value)
    };
    let zones =
        label("failure-domain.beta.kubernetes.io/zone").or_else(|| label("topology.kubernetes.io/zone"));
    let zones: Vec<&str> = zones.unwrap_or(UNSPECIFIED).split(ZONE_DELIMITER).collect();
    if let [zone] = &*zones {
        return Ok(format!("projects/{UNSPECIFIED}/zones/{zone}/disks/{name}"));
    }
    let region = region_of(&zones).map_err(|error| format!("failed to get region from zones: {error}"))?;
    Ok(format!("projects/{UNSPECIFIED}/regions/{region}/disks/{name}"))
}

/// The common region of the zones; a zone is `<locale>-<region>-<zone>`.
fn region_of<'z>(zones: &[&'z str]) -> Result<&'z str, String> {
    let mut regions = BTreeSet::new();
    for zone in zones {
        let region = zone.rsplit_once('-').map(|(region, _)| region);
        let region = region.filter(|region| region.matches('-').count() == 1).ok_or_else(|| {
            format!("zone in unexpected format, expected: {{locale}}-{{region}}-{{zone}}, got: {zone}")
        })?;
        regions.insert(region);
    }
    match regions.first() {
        Some(region) if regions.len() == 1 => Ok(*region),
        _ => {
            // A set as Go prints it.
            let set: Vec<_> = regions.iter().map(|region| format!("{region}:{{}}")).collect();
            Err(format!("multiple or no regions gotten from zones, got: map[{}]", set.join(" ")))
        }
    }
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
            ("aws://x/vol-1?y#z", Some("vol-1")),
            ("aws://us-east-1a/disk-1", None),
            ("aws://us-east-1a/vol-1/x", None),
            ("aws://vol-1", None),
        ] {
            assert_eq!(ebs_handle(id).ok().as_deref(), handle, "{id}");
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
            assert_eq!(handle(labels).ok().as_deref(), expected, "{labels:?}");
        }
    }
}
