//! What the slim types of all kinds have in common.

use serde::Deserialize;
use supercargo_framework::labels::Labels;
use supercargo_framework::objects::Body;
use supercargo_framework::raw_object::RawObject;

use crate::error::FieldError;
use crate::interners::Interners;
use crate::metadata::Metadata;

/// Written by `kubectl apply`: long, and no plugin needs it.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The slim type of an object of one kind.
pub(super) trait Document<'a>: Deserialize<'a> + Default {
    /// Whether to keep the whole object, too.
    const KEEPS_RAW: bool = false;
    /// `apiVersion` and `kind` of the kept object.
    const TYPE: Option<(&'static str, &'static str)> = None;

    fn metadata(&self) -> &Metadata<'a>;

    /// The annotations to keep. Defaults to none.
    fn annotations(&self, _: &mut Interners) -> Labels {
        Labels::default()
    }

    /// The node that the object belongs to.
    fn node_name(&self) -> Option<&str> {
        None
    }

    /// The body of the record. `raw` is set if the whole object is kept.
    fn body(&self, shared: &mut Interners, raw: Option<RawObject>) -> Result<Body, FieldError>;
}

/// The annotations of kinds with annotations that plugins read.
pub(super) fn annotations(metadata: &Metadata<'_>, shared: &mut Interners) -> Labels {
    shared.labels(metadata.annotations.iter().filter(|(key, _)| *key != LAST_APPLIED))
}
