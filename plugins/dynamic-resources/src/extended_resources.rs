//! Extended resources that devices provide: those that a DeviceClass names.
//!
//! A node that offers such a resource itself, by a device plugin, is not asked for devices.

use std::sync::{Arc, Mutex, MutexGuard};

use supercargo_devices::ClassCounter;
use supercargo_framework::objects::{DeviceClass, Object, ObjectBody as _};
use supercargo_framework::resource::names;
use supercargo_framework::{Context, CycleState, Feature, Features, NodeRecord, PodInfo};

use crate::devices::Devices;

/// Whether a DeviceClass names this resource.
pub fn is_of_devices(cx: &Context<'_>, name: &str) -> bool {
    cx.class_of_resource(name).is_some()
}

/// Whether the pod requests a resource that a DeviceClass names.
pub fn requests_devices(cx: &Context<'_>, pod: &PodInfo) -> bool {
    let scalars = pod.spec.requests.resource.scalars();
    scalars.iter().any(|(name, amount)| *amount != 0 && is_of_devices(cx, name))
}

/// The number of classes whose compiled selectors are kept.
const MAX_COUNTERS: usize = 64;

/// The devices of the cluster, for scores of extended resources.
///
/// It holds nothing but what follows from the objects of a scheduler.
pub struct ScoredDevices(Mutex<Counted>);

struct Counted {
    devices: Devices,
    counters: Vec<(Arc<Object>, ClassCounter)>,
}

/// The class of each extended resource that the pod requests and a score counts.
#[derive(Clone)]
struct Classes(Arc<[(Arc<str>, Arc<Object>)]>);

impl ScoredDevices {
    /// `None` if no extended resource is of devices.
    pub fn if_enabled(features: &Features) -> Option<Self> {
        let devices = || Devices::new(supercargo_devices::Features::of(features), false);
        let is_enabled = features.enabled(Feature::DRAExtendedResource);
        is_enabled.then(|| Self(Mutex::new(Counted { devices: devices(), counters: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(|poisoned| {
            // What a panic has left behind may be incomplete.
            self.0.clear_poison();
            let mut counted = poisoned.into_inner();
            counted.devices.forget();
            counted.counters.clear();
            counted
        })
    }

    /// Whether the pod requests one of these scalar resources, which are scored, and devices may
    /// provide it.
    pub fn are_scored<'a>(
        cx: &Context<'_>,
        pod: &PodInfo,
        mut scored: impl Iterator<Item = &'a str>,
    ) -> bool {
        scored.any(|name| is_requested(pod, name)) && requests_devices(cx, pod)
    }

    /// Keeps fewer answers of selectors. Returns their approximate size in bytes.
    #[cfg(test)]
    pub(crate) fn limit_answers(&self, bytes: usize) -> usize {
        let devices = &mut self.lock().devices;
        devices.matches().map_or(0, |matches| {
            matches.limit_answers(bytes);
            matches.bytes()
        })
    }

    /// Prepares the scores of these scalar resources for a pod. Does nothing if it requests none
    /// of devices.
    pub fn prepare<'a>(
        &self,
        cx: &Context<'_>,
        state: &mut CycleState,
        pod: &PodInfo,
        mut scored: impl Iterator<Item = &'a str>,
    ) {
        let scalars = pod.spec.requests.resource.scalars();
        if scalars.is_empty() || !scored.any(|name| is_requested(pod, name)) {
            return;
        }
        let class = |name: &Arc<str>| {
            let class = cx.class_of_resource(name).filter(|_| names::is_of_devices(name))?;
            Some((Arc::clone(name), Arc::clone(class.object)))
        };
        let classes: Arc<[_]> = scalars.iter().filter_map(|(name, _)| class(name)).collect();
        if !classes.is_empty() {
            // Only an attempt forgets answers about slices that are gone.
            self.lock().devices.begin(cx);
            state.write(Classes(classes));
        }
    }

    /// How many devices of the resource's class the node has in use, and in all; `None` if there
    /// are none. Same as upstream's `calculateDRAResourceTotals`: slices of old generations count,
    /// too.
    pub fn usage(&self, state: &CycleState, name: &str, node: &NodeRecord) -> Option<(i64, i64)> {
        let Classes(classes) = state.read()?;
        let (_, class) = classes.iter().find(|(of, _)| **of == *name)?;
        let counted = &mut *self.lock();
        if !counted.counters.iter().any(|(of, _)| Arc::ptr_eq(of, class)) {
            if counted.counters.len() == MAX_COUNTERS {
                counted.counters.clear();
            }
            let counter = counted.devices.counter(DeviceClass::of(&class.body)?)?;
            counted.counters.push((Arc::clone(class), counter));
        }
        let (_, counter) = counted.counters.iter().find(|(of, _)| Arc::ptr_eq(of, class))?;
        counted.devices.count(counter, node)
    }
}

fn is_requested(pod: &PodInfo, name: &str) -> bool {
    pod.spec.requests.resource.scalar(name) != 0
}
