//! What calls of the queue need.

use rustc_hash::FxHashSet;
use supercargo_framework::objects::Objects;
use supercargo_framework::{Now, QueueContext, Uid};

use crate::observer::Observer;
use crate::profile::Profiles;

/// What a call needs beside the queue itself.
pub(crate) struct QueueCx<'a> {
    pub(crate) now: Now,
    pub(crate) profiles: &'a Profiles,
    pub(crate) objects: &'a Objects,
    pub(crate) preempting: &'a FxHashSet<Uid>,
    pub(crate) observer: &'a dyn Observer,
    /// What a plugin said that panicked.
    pub(crate) panic: Option<String>,
}

impl QueueCx<'_> {
    /// What plugins may read of it.
    pub(crate) fn for_plugins(&self) -> QueueContext<'_> {
        QueueContext { objects: self.objects, preempting: self.preempting }
    }
}
