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
    /// The bytes of new reasons of rejections, which make a table larger that is not new.
    pub(super) reasons: Cell<usize>,
}

impl View<'_> {
    pub(super) fn replayed(&mut self, rows: usize) {
        *self.replays += rows as u64;
    }
}
