//! Compares answers by columns with those by node.

use super::{Mismatch, holds, same};
use crate::context::Context;
use crate::cycle_state::CycleState;
use crate::nodes::Nodes;
use crate::plugin::PreFilter;
use crate::pod::PodInfo;
use crate::testing::Driver;

/// Which points of a plugin answered by columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// [`filter_columns`](crate::caching::Caching::filter_columns) did.
    pub filter: bool,
    /// [`score_columns`](crate::caching::Caching::score_columns) did.
    pub score: bool,
}

/// Some slots are `false` before the plugin is called, as after another filter: it must not change
/// them.
fn passed_before(slot: usize) -> bool {
    !slot.is_multiple_of(5)
}

/// Checks that `filter_columns` and `score_columns`, where they answer, equal Filter and Score of
/// every node, and that they record at least the same reads.
pub fn check_columns<'a>(
    driver: &Driver,
    cx: impl Fn() -> Context<'a>,
    pod: &PodInfo,
    nodes: &Nodes,
) -> Result<Columns, Mismatch> {
    let mut state = CycleState::new();
    let prepared = driver.points.pre_filter.as_ref().map(|plugin| plugin.pre_filter(&cx(), &mut state, pod));
    let skips = matches!(prepared, Some(PreFilter::Skip | PreFilter::Reject(_)));
    let filter = !skips && check_filter(driver, &cx, &state, pod, nodes)?;
    let prepared = driver
        .points
        .pre_score
        .as_ref()
        .map(|plugin| plugin.pre_score(&cx(), &mut state, pod, nodes.order()));
    let scores = prepared.is_none_or(|status| status.is_success());
    let score = scores && check_score(driver, &cx, &state, pod, nodes)?;
    Ok(Columns { filter, score })
}

fn check_filter<'a>(
    driver: &Driver,
    cx: &impl Fn() -> Context<'a>,
    state: &CycleState,
    pod: &PodInfo,
    nodes: &Nodes,
) -> Result<bool, Mismatch> {
    let Some(plugin) = &driver.points.filter else { return Ok(false) };
    let mut passes: Vec<_> = (0..nodes.columns().len()).map(passed_before).collect();
    let answered = driver.caching().filter_columns(&cx(), state, pod, nodes, &mut passes);
    for (index, node) in nodes.iter() {
        let slot = index.0 as usize;
        let fits = !answered || plugin.filter(&cx(), state, pod, node).is_success();
        let what = format!("filter_columns for node {}", node.name());
        same(&what, &passes[slot], &(passed_before(slot) && fits))?;
    }
    Ok(answered)
}

fn check_score<'a>(
    driver: &Driver,
    cx: &impl Fn() -> Context<'a>,
    state: &CycleState,
    pod: &PodInfo,
    nodes: &Nodes,
) -> Result<bool, Mismatch> {
    let Some(plugin) = &driver.points.score else { return Ok(false) };
    let mut scores = vec![i64::MIN; nodes.columns().len()];
    let by_columns = cx();
    let answered = driver.caching().score_columns(&by_columns, state, pod, nodes, &mut scores);
    let reads = by_columns.take_reads();
    for (index, node) in nodes.iter() {
        let cx = cx();
        let score = scores[index.0 as usize];
        let fresh = if answered { plugin.score(&cx, state, pod, node) } else { Ok(i64::MIN) };
        same(&format!("score_columns for node {}", node.name()), &Ok(score), &fresh)?;
        holds(
            "score_columns reads what Score reads",
            cx.take_reads().iter().all(|read| reads.contains(read)),
        )?;
    }
    Ok(answered)
}
