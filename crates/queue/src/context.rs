//! The context of calls of the queue.

use rustc_hash::FxHashSet;
use supercargo_framework::objects::Objects;
use supercargo_framework::{Now, QueueContext, Uid};
use supercargo_runtime::observer::Observer;
use supercargo_runtime::profile::Profiles;

/// What a call needs beside the queue itself.
pub struct QueueCx<'a> {
    /// The time of the call.
    pub now: Now,
    /// The profiles, whose plugins order, gate and hint.
    pub profiles: &'a Profiles,
    /// The objects that plugins read.
    pub objects: &'a Objects,
    /// The pods whose victims are being evicted.
    pub preempting: &'a FxHashSet<Uid>,
    /// Learns what happens.
    pub observer: &'a dyn Observer,
    /// The report of a plugin's panic.
    pub panic: Option<String>,
    /// The pods that an event made worth another attempt, without those of groups and those that
    /// PreEnqueue held.
    pub woken: Vec<Uid>,
}

impl QueueCx<'_> {
    /// The part that plugins may read.
    pub(crate) fn for_plugins(&self) -> QueueContext<'_> {
        QueueContext { objects: self.objects, preempting: self.preempting }
    }
}
