//! Plugins whose state belongs to one pod. They run in each cycle, or reuse the answers of pods
//! with equal signatures.

use smallvec::SmallVec;
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{CycleState, NodeIndex};

use super::fallback::Fallback;
use super::view::View;
use crate::skipped_filters::SkippedFilters;
use supercargo_runtime::profile::TablePlugin;

/// A plugin with its prepared state for the pod of this cycle.
struct UncachedPlugin {
    /// Its number among the plugins.
    plugin: usize,
    state: CycleState,
    skips_filter: bool,
    /// Whether only the state is the pod's own: the answers are cached.
    is_cached: bool,
}

/// All uncached plugins of a cycle.
#[derive(Default)]
pub(super) struct UncachedPlugins(SmallVec<[UncachedPlugin; 4]>);

impl UncachedPlugin {
    fn prepare(
        view: &View<'_>,
        plugin: &TablePlugin,
        number: usize,
        is_cached: bool,
    ) -> Result<Self, Fallback> {
        let mut entry = Self { plugin: number, state: CycleState::new(), skips_filter: false, is_cached };
        if let Some(pre_filter) = &plugin.pre_filter {
            view.calls.enter("PreFilter", plugin.name);
            entry.skips_filter = match pre_filter.pre_filter(view.cx, &mut entry.state, view.pod) {
                PreFilter::AllNodes => false,
                PreFilter::Skip => true,
                PreFilter::Nodes(_) | PreFilter::Reject(_) => return Err(Fallback::Cycle),
            };
        }
        let scores = !is_cached && (plugin.pre_score.is_some() || plugin.score.is_some());
        if scores && !entry.skips_score(view, plugin) {
            return Err(Fallback::Cycle);
        }
        Ok(entry)
    }

    fn skips_score(&mut self, view: &View<'_>, plugin: &TablePlugin) -> bool {
        let Some(pre_score) =
            plugin.pre_score.as_ref().filter(|_| !plugin.caching.pre_score_depends_on_nodes())
        else {
            return false;
        };
        view.calls.enter("PreScore", plugin.name);
        pre_score.pre_score(view.cx, &mut self.state, view.pod, &[]).is_skip()
    }

    fn passes(&self, view: &View<'_>, plugin: &TablePlugin, index: NodeIndex) -> Result<bool, Fallback> {
        let Some((_, filter)) = plugin.filter.as_ref().filter(|_| !self.skips_filter) else {
            return Ok(true);
        };
        view.calls.enter("Filter", plugin.name);
        let status = filter.filter(view.cx, &self.state, view.pod, view.nodes.at(index));
        if status.is_success() || status.is_rejected() {
            Ok(status.is_success())
        } else {
            Err(Fallback::Cycle)
        }
    }

    fn never_fails(&self, view: &View<'_>, plugin: &TablePlugin) -> bool {
        let filters = plugin.filter.is_some() && !self.skips_filter;
        !filters || plugin.caching.filter_never_fails(view.cx, &self.state, view.pod)
    }
}

impl UncachedPlugins {
    /// Lets plugins prepare for the pod: those of these numbers, and those with cached answers that
    /// [prepare for each pod](supercargo_framework::caching::Caching::prepares_each).
    pub(super) fn prepare(
        view: &View<'_>,
        plugins: &[TablePlugin],
        numbers: &[usize],
    ) -> Result<Self, Fallback> {
        let prepared = plugins.iter().enumerate().filter_map(|(number, plugin)| {
            let is_cached = !numbers.contains(&number);
            let prepares = !is_cached || (plugin.sets_aside && plugin.caching.prepares_each(view.pod));
            prepares.then(|| UncachedPlugin::prepare(view, plugin, number, is_cached))
        });
        view.cx.untracked(|| prepared.collect::<Result<_, _>>().map(Self))
    }

    /// Whether the answers of all plugins are cached.
    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.is_cached)
    }

    /// Whether the plugin of this number skipped in PreFilter; `None` if it has no state for the
    /// pod.
    pub(super) fn skips_filter(&self, number: usize) -> Option<bool> {
        self.0.iter().find(|entry| entry.plugin == number).map(|entry| entry.skips_filter)
    }

    /// Whether all of them accept the node.
    pub(super) fn pass(
        &self,
        view: &View<'_>,
        plugins: &[TablePlugin],
        index: NodeIndex,
    ) -> Result<bool, Fallback> {
        view.cx.untracked(|| {
            for entry in self.0.iter().filter(|entry| !entry.is_cached) {
                if !entry.passes(view, &plugins[entry.plugin], index)? {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Whether none of them can fail on any node.
    pub(super) fn never_fail(&self, view: &View<'_>, plugins: &[TablePlugin]) -> bool {
        self.0.iter().all(|entry| entry.is_cached || entry.never_fails(view, &plugins[entry.plugin]))
    }

    /// Adds their prepared states to those of the cached plugins, in place of those of other pods.
    pub(super) fn write(
        &self,
        plugins: &[TablePlugin],
        state: &mut CycleState,
        skipped: &mut SkippedFilters,
    ) {
        for entry in &self.0 {
            state.absorb(&entry.state);
            if entry.skips_filter {
                skipped.add(plugins[entry.plugin].name);
            }
        }
    }

    /// Passes on what later extension points may read.
    pub(super) fn hand_over(&self, plugins: &[TablePlugin], state: &mut CycleState) {
        for entry in self.0.iter().filter(|entry| plugins[entry.plugin].sets_aside) {
            state.absorb(&entry.state);
        }
    }
}
