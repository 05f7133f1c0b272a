//! PreBind: writes the changes of the pod's volumes and claims, and waits until they are bound.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use supercargo_framework::binding::{ApiCall, BindingContext, ClusterView, WaitError};
use supercargo_framework::objects::{
    Object, ObjectBody, Objects, PersistentVolume, PersistentVolumeClaim, annotations, resources,
};
use supercargo_framework::pod::PodKey;
use supercargo_framework::{NodeRecord, Text, Uid};

use super::change::{Changes, PutRequest};
use super::claims::is_bound;
use super::reach::{Reach, Unreachable, Viewpoint};

/// The work of PreBind for a pod.
pub(super) struct Work {
    /// The pod.
    pub(super) pod: PodKey,
    /// Its UID.
    pub(super) uid: Uid,
    /// Its node.
    pub(super) node: Arc<str>,
    /// The changes to write.
    pub(super) changes: Arc<Changes>,
    /// The timeout of the wait for the bindings.
    pub(super) timeout: Duration,
}

/// Does the work. Errors have upstream's texts.
pub(super) async fn run(cx: BindingContext, work: Work) -> Result<(), String> {
    let timeout = work.timeout;
    let written = write(&cx, work).await?;
    let failure = Arc::<OnceLock<String>>::default();
    let noticed = Arc::clone(&failure);
    let predicate = move |cluster: &dyn ClusterView| {
        written.is_done(cluster).unwrap_or_else(|error| {
            // Only the first failure is reported.
            let _ = noticed.set(error);
            true
        })
    };
    let waited = cx.wait_for(Box::new(predicate), timeout).await;
    let failure = match waited {
        Ok(()) => failure.get().cloned(),
        Err(WaitError::TimedOut) => Some("context deadline exceeded".to_owned()),
        Err(WaitError::Cancelled) => Some("context canceled".to_owned()),
    };
    failure.map_or(Ok(()), |failure| Err(format!("binding volumes: {failure}")))
}

/// Writes the volumes, then the claims. If a write fails, earlier writes are not reverted: the
/// controllers resolve that.
async fn write(cx: &BindingContext, work: Work) -> Result<Written, String> {
    let Work { pod, uid, node, changes, .. } = work;
    let mut bindings = Vec::with_capacity(changes.bindings.len());
    for binding in &changes.bindings {
        let (volume, claim) = (&binding.volume, &binding.claim);
        let version = put(cx, volume, PutRequest::volume(volume, claim)).await?;
        let (name, claim) = (Arc::clone(&volume.key), Arc::clone(&claim.key));
        bindings.push(WrittenVolume { name, claim, version });
    }
    let mut provisions = Vec::with_capacity(changes.provisions.len());
    for claim in &changes.provisions {
        let version = put(cx, claim, PutRequest::claim(claim)).await?;
        provisions.push((Arc::clone(&claim.key), version));
    }
    Ok(Written { pod, uid, node, bindings, provisions })
}

/// Replaces an object and returns its new version.
async fn put(cx: &BindingContext, object: &Object, put: Option<PutRequest>) -> Result<u64, String> {
    let Some(put) = put else {
        return Err(format!("{} {} is neither a volume nor a claim", object.resource, object.key));
    };
    let answer = cx.call(ApiCall::request("PUT", put.path, "application/json", put.object));
    let written = answer.await.map_err(|error| error.to_string())?;
    let version = written["metadata"]["resourceVersion"].as_str();
    Ok(version.and_then(|version| version.parse().ok()).unwrap_or(0))
}

/// The written objects, with the versions in the server's responses.
struct Written {
    pod: PodKey,
    uid: Uid,
    node: Arc<str>,
    bindings: Vec<WrittenVolume>,
    /// Claims by `namespace/name`.
    provisions: Vec<(Arc<str>, u64)>,
}

struct WrittenVolume {
    name: Arc<str>,
    claim: Arc<str>,
    version: u64,
}

impl Written {
    /// Whether every claim is bound; an error if that cannot happen any more. Reads only API state:
    /// assumed changes may be another pod's.
    fn is_done(&self, cluster: &dyn ClusterView) -> Result<bool, String> {
        let name = &self.node;
        let node = cluster
            .node(name)
            .ok_or_else(|| format!("failed to get node {name:?}: node {name:?} not found"))?;
        if !cluster.has_pod(&self.pod, &self.uid) {
            return Err(format!("pod does not exist any more: pod {:?} not found", self.pod.name));
        }
        let view = View { objects: cluster.objects(), node };
        for binding in &self.bindings {
            if !view.volume_is_done(binding)? {
                return Ok(false);
            }
        }
        for (key, version) in &self.provisions {
            if !view.claim_is_done(key, *version)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// API state, as seen from the pod's node.
struct View<'a> {
    objects: &'a Objects,
    node: &'a NodeRecord,
}

impl View<'_> {
    fn volume_is_done(&self, written: &WrittenVolume) -> Result<bool, String> {
        let failed = |missing| format!("failed to check binding: {missing}");
        let volume = self
            .existing(&resources::PERSISTENT_VOLUME, "persistentvolumes", &written.name)
            .map_err(failed)?;
        let claim = self
            .existing(&resources::PERSISTENT_VOLUME_CLAIM, "persistentvolumeclaims", &written.claim)
            .map_err(failed)?;
        if is_older(volume, written.version) {
            return Ok(false);
        }
        self.check_reach(volume).map_err(|unreachable| match unreachable {
            Unreachable::Mismatch(error) => error,
            Unreachable::Untranslatable(error) => format!("failed to translate pv to csi: {error}"),
        })?;
        let holder = PersistentVolume::of(&volume.body).and_then(|body| body.claim.as_ref());
        if holder.is_none_or(|holder| holder.uid.is_empty()) {
            return Err(format!("ClaimRef got reset for pv {:?}", volume.name()));
        }
        Ok(is_bound(claim))
    }

    fn claim_is_done(&self, key: &str, version: u64) -> Result<bool, String> {
        let claim = self
            .existing(&resources::PERSISTENT_VOLUME_CLAIM, "persistentvolumeclaims", key)
            .map_err(|missing| format!("failed to check provisioning pvc: {missing}"))?;
        if is_older(claim, version) {
            return Ok(false);
        }
        let Some(body) = PersistentVolumeClaim::of(&claim.body) else {
            return Ok(false);
        };
        // As upstream, a claim without annotations differs from one with other annotations.
        if claim.annotations.is_empty() && !body.raw.value()["metadata"]["annotations"].is_object() {
            return Err(format!("selectedNode annotation reset for PVC {:?}", claim.name()));
        }
        if claim.annotations.get(annotations::SELECTED_NODE) != Some(&self.node.name) {
            return Err(format!("provisioning failed for PVC {:?}", claim.name()));
        }
        if !body.volume_name.is_empty() {
            match self.objects.from_api(&resources::PERSISTENT_VOLUME, &body.volume_name) {
                // It may be on its way.
                None => return Ok(false),
                Some(volume) => self.check_reach(volume).map_err(|unreachable| match unreachable {
                    Unreachable::Mismatch(error) | Unreachable::Untranslatable(error) => error,
                })?,
            }
        }
        Ok(is_bound(claim))
    }

    fn existing(&self, resource: &Text, plural: &str, key: &str) -> Result<&Arc<Object>, String> {
        self.objects.from_api(resource, key).ok_or_else(|| format!("{plural} {key:?} not found"))
    }

    fn check_reach(&self, volume: &Arc<Object>) -> Result<(), Unreachable> {
        let csi_node = self.objects.from_api(&resources::CSI_NODE, &self.node.name).map(|node| &**node);
        let from = Viewpoint { labels: &self.node.labels, csi_node };
        Reach::of(volume).check(from).map_err(|unreachable| match unreachable {
            Unreachable::Mismatch(why) => {
                let (volume, node) = (volume.name(), &self.node.name);
                Unreachable::Mismatch(format!(
                    "pv {volume:?} node affinity doesn't match node {node:?}: {why}"
                ))
            }
            untranslatable @ Unreachable::Untranslatable(_) => untranslatable,
        })
    }
}

/// Whether the informer does not have the written version yet.
fn is_older(object: &Object, written: u64) -> bool {
    object.resource_version.parse::<u64>().unwrap_or(0) < written
}
