//! Preempts for a group, anywhere in the cluster.
//!
//! All pods of lower priority are removed, and the group is scheduled once. Then they come back,
//! the most important first, unless the group would no longer fit. A group whose `disruptionMode`
//! is `all` comes back whole or not at all.

use std::sync::Arc;

use supercargo_framework::context::{Command, Preemptor, PreemptorGroup, Victims};
use supercargo_framework::objects::resources::POD_DISRUPTION_BUDGET;
use supercargo_framework::plugin::{GroupCycle, Nomination, Nominations, PodGroupPostFilterPlugin};
use supercargo_framework::{Code, Context, NodeInfo, PodInfo, Status, Text};

use super::budgets::Budgets;
use super::victim::{Groups, PodOnNode, Victim, pods_of, sort_by_importance};
use super::{DefaultPreemption, NAME, is_preempted};

/// As upstream, a preemption for a group concerns no single node.
const CLUSTER: &str = "cluster";

impl PodGroupPostFilterPlugin for DefaultPreemption {
    fn pod_group_post_filter(&self, cycle: &mut dyn GroupCycle) -> (Nominations, Status) {
        let (nominations, status) = match preempt(cycle, self.asks_groups) {
            Ok((nominations, text)) => (nominations, Status::new(Code::Success, text)),
            Err(status) => (Nominations::new(), status),
        };
        let text = format!("pod group preemption: {}", status.message());
        (nominations, Status::new(status.code(), text))
    }
}

fn preempt(cycle: &mut dyn GroupCycle, asks_group: bool) -> Result<(Nominations, String), Status> {
    let (cx, pods) = (cycle.context(), cycle.pods());
    let (key, forest) = (cycle.group().clone(), cx.forest());
    let group = forest.get(&key).zip(forest.spec(&key));
    let (object, spec) = group.ok_or_else(|| Status::error(format!("failed to get podGroup {key}")))?;
    let never_preempts = if asks_group {
        spec.never_preempts == Some(true)
    } else {
        pods.iter().any(|pod| pod.spec.never_preempts)
    };
    if never_preempts {
        return Err(Status::unschedulable("not eligible due to preemptionPolicy=Never."));
    }
    let priority = spec.priority;
    let groups = Groups::new(&cx, true);
    if is_waiting(&cx, &groups, &pods, priority) {
        let current = |pod: &Arc<PodInfo>| {
            (pod.uid.clone(), Nomination::Override(pod.status.nominated_node_name.clone()))
        };
        return Ok((pods.iter().map(current).collect(), "ongoing preemption on nominated nodes".to_owned()));
    }
    let mut potential = groups.victims_below(priority, cx.nodes().iter());
    if potential.is_empty() {
        return Err(Status::unresolvable("No preemption victims found for incoming preemptor"));
    }
    let mut pods = pods.into_iter();
    let pod = pods.next().ok_or_else(|| Status::error("the group has no pods"))?;
    let group = PreemptorGroup {
        key,
        uid: (&*object.uid).into(),
        resource_version: Arc::clone(&object.resource_version),
        others: pods.collect(),
    };
    drop(groups);
    drop(cx);

    for PodOnNode { pod, .. } in potential.iter().flat_map(Victim::pods) {
        cycle.remove_pod(pod)?;
    }
    let placed = cycle.schedule()?;
    sort_by_importance(&mut potential);
    let potential = Budgets::new(cycle.context().list(&POD_DISRUPTION_BUDGET)).violated_first(potential);
    let (mut victims, mut pdb_violations) = (Vec::new(), 0);
    for (victim, violations) in potential {
        victim.pods().try_for_each(|it| cycle.add_pod(&it.pod))?;
        if !cycle.still_fits() {
            victim.pods().try_for_each(|it| cycle.remove_pod(&it.pod))?;
            victims.push(victim);
            pdb_violations += violations;
        }
    }
    sort_by_importance(&mut victims);
    let of_groups = victims.iter().filter(|victim| victim.rank.is_some()).count();
    let victims = Victims { pods: pods_of(&victims), pdb_violations, of_groups };
    let text = format!("found a placement for podgroup, preempting {} victims", victims.pods.len());
    cycle.command(Command::Preempt {
        preemptor: Preemptor { pod, group: Some(group) },
        node: CLUSTER.into(),
        victims,
        plugin: Text::Static(NAME),
        asynchronous: true,
    });
    let nominated = |(pod, node): (Arc<PodInfo>, _)| (pod.uid.clone(), Nomination::Override(Some(node)));
    Ok((placed.into_iter().map(nominated).collect(), text))
}

/// Whether a pod of lower priority leaves a node that a pod of the group is nominated for.
fn is_waiting(cx: &Context<'_>, groups: &Groups<'_>, pods: &[Arc<PodInfo>], priority: i32) -> bool {
    let nominated = pods.iter().filter_map(|pod| pod.status.nominated_node_name.as_deref());
    let mut on_nodes = nominated.filter_map(|node| cx.nodes().get(node)).flat_map(NodeInfo::pods);
    on_nodes.any(|pod| is_preempted(pod) && groups.priority_of(pod) < priority)
}
