//! Names of informers in metrics: unique in the process, each resource counted once per name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use thiserror::Error;

use crate::kind::GroupVersionResource;

/// The names in use. Two sets of informers with one name would overwrite each other's metrics.
static NAMES: Mutex<BTreeSet<Arc<str>>> = Mutex::new(BTreeSet::new());

/// Why a name is not available.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InformerNameError {
    /// The name is empty.
    #[error("the informer name is empty")]
    Empty,
    /// The name is already in use in this process.
    #[error("the informer name {0:?} is already in use in this process")]
    Taken(String),
}

/// The name of a factory's informers in metrics; same as client-go's `InformerName`.
///
/// A name has one owner per process until it is [released](Self::release), explicitly or by
/// dropping the last clone. Under each name, only the first informer of a resource is counted.
#[derive(Clone, Debug)]
pub struct InformerName(Arc<Owner>);

#[derive(Debug)]
struct Owner {
    name: Arc<str>,
    held: Mutex<Held>,
}

#[derive(Debug)]
struct Held {
    released: bool,
    resources: BTreeMap<GroupVersionResource, Arc<AtomicBool>>,
}

impl InformerName {
    /// Reserves a name. Fails if it is empty or in use.
    pub fn new(name: &str) -> Result<Self, InformerNameError> {
        if name.is_empty() {
            return Err(InformerNameError::Empty);
        }
        let name: Arc<str> = name.into();
        if !NAMES.lock().insert(Arc::clone(&name)) {
            return Err(InformerNameError::Taken(name.to_string()));
        }
        let held = Mutex::new(Held { released: false, resources: BTreeMap::new() });
        Ok(Self(Arc::new(Owner { name, held })))
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The identity of an informer of this resource. A second identity for the same resource, or
    /// one after the release, is [not reserved](InformerIdentity::is_reserved) and logs an error.
    pub fn with_resource(&self, resource: GroupVersionResource) -> InformerIdentity {
        let mut held = self.0.held.lock();
        let is_first = !held.released && !held.resources.contains_key(&resource);
        let reserved = Arc::new(AtomicBool::new(is_first));
        if is_first {
            held.resources.insert(resource.clone(), Arc::clone(&reserved));
        } else if !held.released {
            tracing::error!(name = %self.0.name, %resource,
                "a second informer of a resource under one name has no metrics");
        }
        InformerIdentity(Some(Arc::new(Identity { name: Arc::clone(&self.0.name), resource, reserved })))
    }

    /// Releases the name for all clones, and ends the metrics of its informers.
    pub fn release(&self) {
        self.0.release();
    }
}

impl Owner {
    fn release(&self) {
        let mut held = self.held.lock();
        if std::mem::replace(&mut held.released, true) {
            // The name may have another owner by now.
            return;
        }
        for reserved in std::mem::take(&mut held.resources).into_values() {
            reserved.store(false, Ordering::Relaxed);
        }
        NAMES.lock().remove(&self.name);
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.release();
    }
}

/// The identity of an informer in metrics: a name and a resource. The default is anonymous, without
/// metrics.
#[derive(Clone, Debug, Default)]
pub struct InformerIdentity(Option<Arc<Identity>>);

#[derive(Debug)]
struct Identity {
    name: Arc<str>,
    resource: GroupVersionResource,
    reserved: Arc<AtomicBool>,
}

impl InformerIdentity {
    /// Whether the informer has metrics. One atomic read, cheap enough for every change.
    pub fn is_reserved(&self) -> bool {
        self.0.as_ref().is_some_and(|identity| identity.reserved.load(Ordering::Relaxed))
    }

    /// The name; empty if anonymous.
    pub fn name(&self) -> &str {
        self.0.as_ref().map_or("", |identity| &identity.name)
    }

    /// The resource; none if anonymous.
    pub fn resource(&self) -> Option<&GroupVersionResource> {
        self.0.as_ref().map(|identity| &identity.resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> GroupVersionResource {
        GroupVersionResource::namespaced("", "v1", "pods")
    }

    fn nodes() -> GroupVersionResource {
        GroupVersionResource::cluster("", "v1", "nodes")
    }

    #[test]
    fn a_name_belongs_to_one_owner_until_it_is_released() {
        assert_eq!(InformerName::new("").unwrap_err(), InformerNameError::Empty);
        let first = InformerName::new("unique-first").unwrap();
        let taken = InformerName::new("unique-first").unwrap_err();
        assert_eq!(taken, InformerNameError::Taken("unique-first".to_owned()));
        assert!(taken.to_string().contains("\"unique-first\""), "{taken}");
        assert_eq!(InformerName::new("unique-second").unwrap().name(), "unique-second");
        first.release();
        let again = InformerName::new("unique-first").unwrap();
        // The previous owner has nothing left to release.
        first.release();
        drop(first);
        assert!(InformerName::new("unique-first").is_err());
        drop(again);
        assert!(InformerName::new("unique-first").is_ok());
    }

    #[test]
    fn under_a_name_each_resource_is_counted_once() {
        let name = InformerName::new("counted-once").unwrap();
        let (first, second) = (name.with_resource(pods()), name.clone().with_resource(pods()));
        assert!(first.is_reserved() && !second.is_reserved());
        assert_eq!((first.name(), first.resource()), ("counted-once", Some(&pods())));
        assert!(name.with_resource(nodes()).is_reserved());
        let nobody = InformerIdentity::default();
        assert_eq!((nobody.is_reserved(), nobody.name(), nobody.resource()), (false, "", None));
    }

    #[test]
    fn releasing_a_name_ends_the_metrics_of_its_informers() {
        let name = InformerName::new("released").unwrap();
        let identity = name.with_resource(pods());
        name.release();
        assert!(!identity.is_reserved() && !name.with_resource(nodes()).is_reserved());
        let next = InformerName::new("released").unwrap();
        assert!(next.with_resource(pods()).is_reserved() && !identity.is_reserved());
    }
}
