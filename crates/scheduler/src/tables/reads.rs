//! The reads behind a plugin's answers, beside the pod and the nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

use rustc_hash::FxHashSet;
use supercargo_framework::context::Read;
use supercargo_framework::{NodeRecord, Text};

use super::fallback::Fallback;
use super::rule::{Rule, Rules};
use super::view::View;

/// The tracked reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// Ordered, because strangers choose the keys.
    objects: BTreeSet<(Text, Arc<str>)>,
    /// Their size in bytes.
    object_bytes: usize,
    kinds: FxHashSet<Text>,
    /// Kinds of which the object named after the evaluated node was read.
    of_node: FxHashSet<Text>,
    node_count: bool,
    images: bool,
}

impl Reads {
    /// Notes the reads of preparing for all nodes.
    pub(super) fn note_of_all(&mut self, reads: Vec<Read>) -> Result<(), Fallback> {
        for read in reads {
            // The plugin's state follows the nodes.
            if read != Read::AllNodes {
                self.note(read, None)?;
            }
        }
        Ok(())
    }

    /// Notes the reads of evaluating one node.
    pub(super) fn note_of_node(&mut self, view: &View<'_>, node: &str) -> Result<(), Fallback> {
        let before = self.object_bytes;
        let noted = view.cx.take_reads().into_iter().try_for_each(|read| self.note(read, Some(node)));
        view.gain(self.object_bytes - before);
        noted
    }

    fn note(&mut self, read: Read, node: Option<&str>) -> Result<(), Fallback> {
        match read {
            Read::Object { resource, key } if node == Some(&*key) => {
                self.of_node.insert(resource);
            }
            Read::Object { resource, key } => {
                let bytes = key.len() + size_of::<(Text, Arc<str>)>();
                if self.objects.insert((resource, key)) {
                    self.object_bytes += bytes;
                }
            }
            Read::Kind(kind) => {
                self.kinds.insert(kind);
            }
            Read::NodeCount => self.node_count = true,
            Read::Images => self.images = true,
            Read::AllNodes | Read::Now | Read::WaitingPods => return Err(Fallback::Signature),
        }
        Ok(())
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.object_bytes + (self.kinds.len() + self.of_node.len()) * size_of::<Text>()
    }

    /// Whether a changed object was read for all nodes.
    pub(super) fn object_concerns_all(&self, resource: &Text, key: &Arc<str>, rules: &mut Rules) -> bool {
        let of_kind = self.kinds.contains(resource);
        let itself = !self.objects.is_empty() && self.objects.contains(&(resource.clone(), Arc::clone(key)));
        (of_kind && rules.follow(Rule::Kind)) || (itself && rules.follow(Rule::Object))
    }

    /// Whether a changed object was read for the node that it is named after.
    pub(super) fn object_concerns_node(&self, resource: &Text) -> bool {
        self.of_node.contains(resource)
    }

    /// Whether the change of a node invalidates the answers about all nodes.
    pub(super) fn node_concerns_all(
        &self,
        old: Option<&NodeRecord>,
        new: Option<&NodeRecord>,
        rules: &mut Rules,
    ) -> bool {
        let counts = self.node_count && old.is_none() != new.is_none();
        let images = self.images
            && old.map_or(&[][..], |node| &node.images) != new.map_or(&[][..], |node| &node.images);
        (counts && rules.follow(Rule::NodeCount)) || (images && rules.follow(Rule::Images))
    }
}
