//! Compares what was watched with what a list returns. For tests against a real server.
//!
//! There are two ways. [`ReflectorOptions::detect_inconsistency`] compares after every watch-list
//! and panics on a difference, like client-go's detector, without its environment variable.
//! [`check`] and [`check_objects`] compare the store of a running informer on demand:
//!
//! ```
//! # use kube_informers::consistency_detector::{Against, ConsistencyError, check};
//! # use kube_informers::{Kind, ListerWatcher, SharedInformer};
//! # async fn example<K: Kind>(
//! #     informer: &SharedInformer<K>,
//! #     source: &dyn ListerWatcher<K>,
//! # ) -> Result<(), ConsistencyError> {
//! let objects = check(&**informer.kind(), source, &informer.store(), Against::StoreVersion).await?;
//! println!("{objects} objects, and not one differs");
//! # Ok(())
//! # }
//! ```
//!
//! [`ReflectorOptions::detect_inconsistency`]: field@crate::ReflectorOptions::detect_inconsistency

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use thiserror::Error;

use crate::key::ObjectKey;
use crate::kind::Kind;
use crate::list_watch::{ListOptions, ListWatchError, ListerWatcher, Page, Undecodable, VersionMatch};
use crate::reflector::Transform;
use crate::store::Store;

/// The pause before a failed list is repeated. Same as client-go's.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum number of differences in an error message.
const MAX_SHOWN: usize = 20;

/// The list that a store is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Against {
    /// The list at exactly the store's own version. Correct at any time, even while objects change.
    /// Fails with an expired version once the server has compacted it.
    StoreVersion,
    /// The most recent list. Correct once objects no longer change and the informer has caught up.
    MostRecent,
}

/// Why a check failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConsistencyError {
    /// The list failed, so there is nothing to compare with.
    #[error("failed to list: {0}")]
    List(#[from] ListWatchError),
    /// The store differs from the list.
    #[error(transparent)]
    Inconsistent(#[from] Inconsistency),
}

/// The differences between two states, by key.
#[derive(Debug, Error)]
pub struct Inconsistency {
    resource: String,
    version: String,
    differences: BTreeMap<ObjectKey, Difference>,
}

#[derive(Debug, PartialEq, Eq)]
enum Difference {
    OnlyHeld(String),
    OnlyListed(String),
    Version { held: String, listed: String },
    Content(String),
}

impl Inconsistency {
    /// The keys of the objects that differ.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.differences.keys()
    }
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { resource, version, differences } = self;
        write!(f, "{} {resource} differ from the list at version {version:?}", differences.len())?;
        for (key, difference) in differences.iter().take(MAX_SHOWN) {
            match difference {
                Difference::OnlyHeld(version) => write!(f, "\n- {key} at {version} is not in the list"),
                Difference::OnlyListed(version) => write!(f, "\n+ {key} at {version} is only in the list"),
                Difference::Version { held, listed } => {
                    write!(f, "\n~ {key} at {held} is listed at {listed}")
                }
                Difference::Content(version) => {
                    write!(f, "\n! {key} at {version} is listed with different content")
                }
            }?;
        }
        match differences.len().saturating_sub(MAX_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

/// Compares keys and resource versions of a store with a list. Returns the number of equal objects.
///
/// Skips objects that cannot be decoded: the store keeps an older state of them by design.
pub async fn check<K: Kind>(
    kind: &K,
    source: &dyn ListerWatcher<K>,
    store: &Store<K::Object>,
    against: Against,
) -> Result<usize, ConsistencyError> {
    compare_store(kind, source, store, against, None, |_, _| true).await
}

/// Compares keys, resource versions and contents of a store with a list. Returns the number of
/// equal objects. `transform` must be the informer's own.
pub async fn check_objects<K: Kind>(
    kind: &K,
    source: &dyn ListerWatcher<K>,
    store: &Store<K::Object>,
    against: Against,
    transform: Option<&Transform<K::Object>>,
) -> Result<usize, ConsistencyError>
where
    K::Object: PartialEq,
{
    compare_store(kind, source, store, against, transform, K::Object::eq).await
}

async fn compare_store<K: Kind>(
    kind: &K,
    source: &dyn ListerWatcher<K>,
    store: &Store<K::Object>,
    against: Against,
    transform: Option<&Transform<K::Object>>,
    same: impl Fn(&K::Object, &K::Object) -> bool,
) -> Result<usize, ConsistencyError> {
    let (page, version, mut held) = match against {
        Against::StoreVersion => {
            let (version, held) = store.snapshot();
            (list_at(source, &version).await?, version, held)
        }
        Against::MostRecent => {
            let page = source.list(&ListOptions::default()).await?;
            let version = page.resource_version.clone();
            // Read the store last, which gives it the time of the list to catch up.
            (page, version, store.snapshot().1)
        }
    };
    let undecodable: BTreeSet<_> = page.undecodable.iter().filter_map(|item| item.key.as_ref()).collect();
    held.retain(|(key, _)| !undecodable.contains(key));
    let mut listed = BTreeMap::new();
    for mut object in page.items {
        if let Some(transform) = transform {
            transform(&mut object);
        }
        listed.insert(kind.key(&object), object);
    }
    let versions = |object: &K::Object| kind.resource_version(object).to_owned();
    let held_versions = held.iter().map(|(key, object)| (key.clone(), versions(object))).collect();
    let listed_versions = listed.iter().map(|(key, object)| (key.clone(), versions(object))).collect();
    let mut differences = compare(held_versions, listed_versions);
    for (key, object) in &held {
        let differs = listed.get(key).is_some_and(|listed| !same(object, listed));
        if differs && !differences.contains_key(key) {
            differences.insert(key.clone(), Difference::Content(versions(object)));
        }
    }
    if differences.is_empty() {
        return Ok(held.len());
    }
    Err(Inconsistency { resource: kind.gvr().to_string(), version, differences }.into())
}

/// Resource versions by key. `None`, for an object that cannot be decoded, equals any version.
pub(crate) type Versions = BTreeMap<ObjectKey, Option<String>>;

pub(crate) fn versions_of<'a, K: Kind>(
    kind: &K,
    items: impl IntoIterator<Item = &'a K::Object>,
    undecodable: &[Undecodable],
) -> Versions {
    let version = |item| (kind.key(item), Some(kind.resource_version(item).to_owned()));
    let known = items.into_iter().map(version);
    let unknown = undecodable.iter().filter_map(|item| Some((item.key.clone()?, None)));
    known.chain(unknown).collect()
}

/// Compares initial events, which are transformed, with a list at their version. Repeats a list
/// that fails.
///
/// # Panics
///
/// Panics if they differ.
pub(crate) async fn compare_initial_events<K: Kind>(
    kind: &K,
    source: &dyn ListerWatcher<K>,
    transform: Option<&Transform<K::Object>>,
    version: &str,
    watched: Versions,
) {
    let resource = kind.gvr();
    if matches!(version, "" | "0") {
        tracing::debug!(%resource, version, "initial events not compared: no list at this version");
        return;
    }
    tracing::warn!(%resource, version, "comparing initial events with an uncached list");
    let mut page = loop {
        match list_at(source, version).await {
            Ok(page) => break page,
            // An expired version never becomes available again.
            Err(error) if error.is_expired() => {
                tracing::warn!(%resource, version, %error, "initial events not compared");
                return;
            }
            Err(error) => {
                tracing::error!(%resource, version, %error, "failed to list for the comparison; retrying");
            }
        }
        tokio::time::sleep(RETRY).await;
    };
    if let Some(transform) = transform {
        page.items.iter_mut().for_each(|item| transform(item));
    }
    let listed = versions_of(kind, &page.items, &page.undecodable);
    let readable = |versions: &Versions| -> BTreeMap<ObjectKey, String> {
        let both = |key| !matches!((watched.get(key), listed.get(key)), (Some(None), _) | (_, Some(None)));
        let known = versions.iter().filter(|(key, _)| both(*key));
        known.filter_map(|(key, version)| Some((key.clone(), version.clone()?))).collect()
    };
    let differences = compare(readable(&watched), readable(&listed));
    if !differences.is_empty() {
        let resource = resource.to_string();
        panic!("{}", Inconsistency { resource, version: version.to_owned(), differences });
    }
}

/// Lists the state at exactly this version, without pages.
async fn list_at<K: Kind>(
    source: &dyn ListerWatcher<K>,
    version: &str,
) -> Result<Page<K::Object>, ListWatchError> {
    let options = ListOptions {
        resource_version: version.to_owned(),
        version_match: Some(VersionMatch::Exact),
        ..ListOptions::default()
    };
    source.list(&options).await
}

fn compare(
    held: BTreeMap<ObjectKey, String>,
    mut listed: BTreeMap<ObjectKey, String>,
) -> BTreeMap<ObjectKey, Difference> {
    let mut differences = BTreeMap::new();
    for (key, held) in held {
        let difference = match listed.remove(&key) {
            None => Difference::OnlyHeld(held),
            Some(listed) if listed != held => Difference::Version { held, listed },
            Some(_) => continue,
        };
        differences.insert(key, difference);
    }
    differences.extend(listed.into_iter().map(|(key, version)| (key, Difference::OnlyListed(version))));
    differences
}

#[cfg(test)]
mod tests;
