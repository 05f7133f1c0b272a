//! Common parts of plugins that read a pod's volumes.

use std::sync::Arc;

use smallvec::SmallVec;
use supercargo_framework::PodInfo;
use supercargo_framework::caching::{HintMarks, Mark};
use supercargo_framework::context::NamedClaim;
use supercargo_framework::event::Change;
use supercargo_framework::objects::{Object, ObjectBody, PersistentVolumeClaim, Typed};
use supercargo_framework::signature::{Signer, Unsignable};
use supercargo_framework::volume::{Volume, VolumeSource};

/// Builds keys of objects without allocating.
#[derive(Default)]
pub(crate) struct KeyBuffer(SmallVec<[u8; 128]>);

impl KeyBuffer {
    /// The parts as one string.
    pub(crate) fn join(&mut self, parts: &[&str]) -> &str {
        self.0.clear();
        for part in parts {
            self.0.extend_from_slice(part.as_bytes());
        }
        // A concatenation of strings is valid UTF-8.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The error of upstream's lister for a claim that does not exist.
pub(crate) fn claim_not_found(name: &str) -> String {
    format!("persistentvolumeclaim {name:?} not found")
}

/// The claims of the pod's volumes, in order, without ephemeral volumes.
pub(crate) fn claim_names(pod: &PodInfo) -> impl Iterator<Item = &str> {
    pod.spec.volumes.iter().filter_map(|volume| match &volume.source {
        VolumeSource::Claim(name) => Some(&**name),
        _ => None,
    })
}

/// The pod's volumes that have a claim, with [their
/// claims](supercargo_framework::Context::claims_of).
pub(crate) fn with_claims<'a>(
    pod: &'a PodInfo,
    claims: &'a [NamedClaim],
) -> impl Iterator<Item = (&'a Volume, &'a NamedClaim)> {
    pod.spec.volumes.iter().filter(|volume| volume.source.is_claim()).zip(claims)
}

/// Whether any volume of the pod is a claim. Most claims belong to one pod, so answers about them
/// cannot be shared.
pub(crate) fn has_claims(pod: &PodInfo) -> bool {
    pod.spec.volumes.iter().any(|volume| volume.source.is_claim())
}

/// Whether the pod uses this claim, other than as an ephemeral volume.
pub(crate) fn names_claim(pod: &PodInfo, claim: &Object) -> bool {
    claim.namespace() == &*pod.namespace && pod.spec.volumes.have_claim(claim.name())
}

/// The same, including as an ephemeral volume.
pub(crate) fn uses_claim(pod: &PodInfo, claim: &Object) -> bool {
    let ephemeral = claim.name().strip_prefix(&*pod.name).and_then(|rest| rest.strip_prefix('-'));
    let is_ephemeral = ephemeral.is_some_and(|volume| pod.spec.volumes.have_ephemeral(volume));
    names_claim(pod, claim) || (is_ephemeral && claim.namespace() == &*pod.namespace)
}

/// The claims that [`names_claim`] finds.
pub(crate) fn named_claims(pod: &PodInfo) -> impl Iterator<Item = Mark> {
    claim_names(pod).map(|name| Mark::VolumeClaim(format!("{}/{name}", pod.namespace).into()))
}

/// Finds the pods that name the event's claim.
pub(crate) const NAMED_CLAIMS: HintMarks =
    HintMarks { of_pod: |pod| Mark::wishes(named_claims(pod)), of_change: changed_claim };

/// Finds the pods that use the event's claim, for a hint that reads all of the pod.
pub(crate) const USED_CLAIMS: HintMarks = HintMarks {
    of_pod: |pod| {
        let is_ephemeral = |volume: &&Volume| volume.source == VolumeSource::Ephemeral;
        let ephemeral = pod.spec.volumes.iter().filter(is_ephemeral).map(|volume| {
            Mark::VolumeClaim(format!("{}/{}-{}", pod.namespace, pod.name, volume.name).into())
        });
        Mark::wishes(named_claims(pod).chain(ephemeral))
    },
    of_change: changed_claim,
};

/// The claim after an event about claims.
fn changed_claim(change: &Change) -> Option<Vec<Mark>> {
    let claim = new_object::<PersistentVolumeClaim>(change).ok()?;
    Some(vec![Mark::VolumeClaim(Arc::clone(&claim.object.key))])
}

/// Whether both pods use a common claim.
pub(crate) fn share_claim(a: &PodInfo, b: &PodInfo) -> bool {
    let (few, many) = if a.spec.volumes.len() <= b.spec.volumes.len() { (a, b) } else { (b, a) };
    a.namespace == b.namespace && claim_names(few).any(|name| many.spec.volumes.have_claim(name))
}

/// Signs the sources of the pod's volumes. Unlike upstream, claims are signed with the pod's
/// namespace, in which they are looked up. Ephemeral volumes cannot be signed: their claim belongs
/// to the pod.
pub(crate) fn sign(pod: &PodInfo, signer: &mut Signer) -> Result<(), Unsignable> {
    let volumes = &pod.spec.volumes;
    signer.write(&volumes.len());
    for volume in volumes {
        match &volume.source {
            VolumeSource::Ephemeral => return Err(Unsignable),
            VolumeSource::Claim(_) => signer.write(&(&volume.source, &pod.namespace)),
            source => signer.write(source),
        }
    }
    Ok(())
}

/// The object after an event about a kind.
pub(crate) fn new_object<T: ObjectBody>(change: &Change) -> Result<Typed<'_, T>, String> {
    let object = match change {
        Change::Object { new, .. } => new.as_ref(),
        _ => None,
    };
    object
        .and_then(Typed::of)
        .ok_or_else(|| "expected an object of the event's kind after the event".to_owned())
}

/// The object before an event about a kind; `None` if it was added.
pub(crate) fn old_object<T: ObjectBody>(change: &Change) -> Option<Typed<'_, T>> {
    match change {
        Change::Object { old, .. } => old.as_ref().and_then(Typed::of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use supercargo_framework::signature::Signature;
    use supercargo_framework::testing::{PodBuilder, pod};

    use super::*;

    fn with(pod: PodBuilder, sources: &[VolumeSource]) -> PodInfo {
        let volume = |source: &VolumeSource| Volume { name: "v".into(), source: source.clone() };
        pod.with_spec(|spec| spec.volumes = sources.iter().map(volume).collect()).build()
    }

    fn signature(pod: &PodInfo) -> Result<Signature, Unsignable> {
        let mut signer = Signer::default();
        sign(pod, &mut signer).map(|()| signer.finish())
    }

    #[test]
    fn signatures_contain_volume_sources() {
        let disk = || VolumeSource::Cinder("a".into());
        let claim = || VolumeSource::Claim("a".into());
        assert_eq!(signature(&with(pod("p"), &[disk()])), signature(&with(pod("q"), &[disk()])));
        assert_ne!(signature(&with(pod("p"), &[disk()])), signature(&with(pod("p"), &[disk(), disk()])));
        assert_ne!(signature(&with(pod("p"), &[disk()])), signature(&with(pod("p"), &[claim()])));
        assert_eq!(signature(&with(pod("p"), &[claim()])), signature(&with(pod("q"), &[claim()])));
        let elsewhere = with(pod("p").namespace("other"), &[claim()]);
        assert_ne!(
            signature(&with(pod("p"), &[claim()])),
            signature(&elsewhere),
            "another claim of the same name"
        );
        assert_eq!(signature(&with(pod("p"), &[VolumeSource::Ephemeral])), Err(Unsignable));
    }

    #[test]
    fn key_buffers_join_and_reset() {
        let mut key = KeyBuffer::default();
        assert_eq!(key.join(&["default", "/", "data"]), "default/data");
        assert_eq!(key.join(&["a"]), "a");
        let name: Arc<str> = "x".repeat(500).into();
        assert_eq!(key.join(&[&name]), &*name);
    }
}
