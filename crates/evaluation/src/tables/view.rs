//! The view of a cycle that tables are updated from.

use std::cell::Cell;

use supercargo_framework::{Context, Nodes, PodInfo};

use super::layout::Topology;
use super::rule::Rules;
use crate::changes::ChangeLog;
use supercargo_runtime::plugin_calls::PluginCalls;

/// What tables read while they are updated.
pub(super) struct View<'a> {
    /// Tracks reads.
    pub(super) cx: &'a Context<'a>,
    pub(super) nodes: &'a Nodes,
    pub(super) log: &'a ChangeLog,
    pub(super) labels_version: u64,
    pub(super) pod: &'a PodInfo,
    pub(super) calls: &'a PluginCalls<'a>,
    pub(super) topology: &'a mut Topology,
    pub(super) rules: &'a mut Rules,
    /// The number of rows updated one by one.
    pub(super) replays: &'a mut u64,
    /// The bytes that columns and the table gained, but for the rows of the table.
    pub(super) gained: Cell<usize>,
}

impl View<'_> {
    /// Notes that something grew by this number of bytes.
    pub(super) fn gain(&self, bytes: usize) {
        self.gained.set(self.gained.get() + bytes);
    }

    pub(super) fn replayed(&mut self, rows: usize) {
        *self.replays += rows as u64;
    }
}
