//! Tests of PreFilter state in dry runs.

use proptest::test_runner::TestCaseError;
use proptest::{prop_assert, prop_assert_eq};
use supercargo_framework::objects::Objects;
use supercargo_framework::plugin::PreFilter;
use supercargo_framework::{Context, CycleState, NodeInfo, PodInfo, Status};

use supercargo_framework::testing::{Driver, node_info, nodes};

/// A step on a node: a pod is added, or (`None`) the last pod is removed.
pub(crate) type Step = (usize, Option<PodInfo>);

fn verdicts(
    driver: &Driver,
    cx: &Context<'_>,
    state: &CycleState,
    pod: &PodInfo,
    infos: &[NodeInfo],
) -> Vec<Status> {
    let filter = driver.points.filter.as_ref().expect("the plugin filters");
    infos.iter().map(|info| filter.filter(cx, state, pod, info)).collect()
}

/// Pods are removed by UID, and generated pods may share one.
fn with_distinct_uids(infos: &[NodeInfo]) -> Vec<NodeInfo> {
    let renamed = |i: usize, info: &NodeInfo| {
        let pods = info
            .pods()
            .iter()
            .enumerate()
            .map(|(j, pod)| PodInfo { uid: (&*format!("{i}-{j}")).into(), ..(**pod).clone() });
        node_info((**info.node()).clone(), pods.collect::<Vec<_>>())
    };
    infos.iter().enumerate().map(|(i, info)| renamed(i, info)).collect()
}

/// Checks that after any steps the state gives the same verdicts as a fresh one, and that the state
/// that the dry run was cloned from is unchanged.
pub(crate) fn check(
    driver: &Driver,
    objects: &Objects,
    pod: &PodInfo,
    infos: Vec<NodeInfo>,
    steps: Vec<Step>,
) -> Result<(), TestCaseError> {
    let mut infos = with_distinct_uids(&infos);
    let cluster = nodes(infos.clone());
    let cx = Context::at_rest(&cluster, objects);
    let plugin = driver.points.pre_filter.as_ref().expect("the plugin implements PreFilter");
    let extensions = plugin.extensions().expect("the plugin implements PreFilterExtensions");
    let mut original = CycleState::new();
    if !matches!(plugin.pre_filter(&cx, &mut original, pod), PreFilter::AllNodes) {
        // The plugin is skipped in the cycle, dry runs included.
        return Ok(());
    }
    let (before, start) = (verdicts(driver, &cx, &original, pod, &infos), infos.clone());
    let mut state = original.clone();
    for (i, (node, added)) in steps.into_iter().enumerate() {
        let Some(node) = node.checked_rem(infos.len()) else {
            return Ok(());
        };
        let gone = infos[node].pods().last().cloned();
        let earlier = state.clone();
        let status = match (added, gone) {
            (Some(mut added), _) => {
                added.uid = (&*format!("added-{i}")).into();
                let others = infos[node].pods().iter().map(|pod| (**pod).clone());
                let record = (**infos[node].node()).clone();
                infos[node] = node_info(record, others.chain([added.clone()]).collect::<Vec<_>>());
                extensions.add_pod(&mut state, pod, &added, &infos[node])
            }
            (None, Some(gone)) => {
                infos[node].remove_pod(&gone.uid);
                extensions.remove_pod(&mut state, pod, &gone, &infos[node])
            }
            (None, None) => continue,
        };
        prop_assert!(status.is_success() || status.is_skip());
        let fresh = driver.verdicts(pod, &nodes(infos.clone()), objects);
        prop_assert_eq!(&verdicts(driver, &cx, &state, pod, &infos), &fresh, "after step {}", i);
        if status.is_skip() {
            prop_assert_eq!(verdicts(driver, &cx, &earlier, pod, &infos), fresh, "skipped step {}", i);
        }
    }
    prop_assert_eq!(verdicts(driver, &cx, &original, pod, &start), before, "the original is unchanged");
    Ok(())
}
