//! The reads behind a plugin's answers, beside the pod and the nodes.

use std::collections::BTreeSet;
use std::sync::Arc;

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
    kinds: BTreeSet<Text>,
    /// Kinds whose changes the plugin follows.
    followed: BTreeSet<Text>,
    /// Kinds of which the object named after the evaluated node was read.
    of_node: BTreeSet<Text>,
    /// The approximate size of all in bytes.
    bytes: usize,
    node_count: bool,
    images: bool,
}

impl Reads {
    /// Notes the reads of preparing for all nodes.
    pub(super) fn note_of_all(&mut self, view: &View<'_>) -> Result<(), Fallback> {
        // The plugin's state follows the nodes.
        self.note_each(view, None, |read| *read != Read::AllNodes)
    }

    /// Notes the reads of evaluating one node.
    pub(super) fn note_of_node(&mut self, view: &View<'_>, node: &str) -> Result<(), Fallback> {
        self.note_each(view, Some(node), |_| true)
    }

    fn note_each(
        &mut self,
        view: &View<'_>,
        node: Option<&str>,
        counts: impl Fn(&Read) -> bool,
    ) -> Result<(), Fallback> {
        let before = self.bytes;
        let mut reads = view.cx.take_reads().into_iter().filter(counts);
        let noted = reads.try_for_each(|read| self.note(read, node));
        view.gain(self.bytes - before);
        noted
    }

    fn note(&mut self, read: Read, node: Option<&str>) -> Result<(), Fallback> {
        match read {
            Read::Object { resource, key } if node == Some(&*key) => {
                if self.of_node.insert(resource) {
                    self.bytes += size_of::<Text>();
                }
            }
            Read::Object { resource, key } => {
                let bytes = key.len() + size_of::<(Text, Arc<str>)>();
                if self.objects.insert((resource, key)) {
                    self.bytes += bytes;
                }
            }
            Read::Kind(kind) => {
                if self.kinds.insert(kind) {
                    self.bytes += size_of::<Text>();
                }
            }
            Read::Followed(kind) => {
                if self.followed.insert(kind) {
                    self.bytes += size_of::<Text>();
                }
            }
            Read::NodeCount => self.node_count = true,
            Read::Images => self.images = true,
            Read::AllNodes | Read::Now | Read::WaitingPods => return Err(Fallback::Signature),
        }
        Ok(())
    }

    /// The approximate size in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a changed object was read for all nodes.
    pub(super) fn object_concerns_all(&self, resource: &Text, key: &Arc<str>, rules: &mut Rules) -> bool {
        let of_kind = self.kinds.contains(resource);
        let itself = !self.objects.is_empty() && self.objects.contains(&(resource.clone(), Arc::clone(key)));
        (of_kind && rules.follow(Rule::Kind)) || (itself && rules.follow(Rule::Object))
    }

    /// Whether the plugin follows the changes of a kind.
    pub(super) fn follows(&self, resource: &Text) -> bool {
        self.followed.contains(resource)
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
