//! The context of calls of the queue.

use rustc_hash::FxHashSet;
use supercargo_framework::objects::Objects;
use supercargo_framework::{Now, QueueContext, Uid};

use supercargo_runtime::observer::Observer;
use supercargo_runtime::profile::Profiles;

/// What a call needs beside the queue itself.
pub(crate) struct QueueCx<'a> {
    pub(crate) now: Now,
    pub(crate) profiles: &'a Profiles,
    pub(crate) objects: &'a Objects,
    pub(crate) preempting: &'a FxHashSet<Uid>,
    pub(crate) observer: &'a dyn Observer,
    /// The report of a plugin's panic.
    pub(crate) panic: Option<String>,
}

impl QueueCx<'_> {
    /// The part that plugins may read.
    pub(crate) fn for_plugins(&self) -> QueueContext<'_> {
        QueueContext { objects: self.objects, preempting: self.preempting }
    }
}
