//! A run of a plan on supercargo, and its result.

use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use supercargo_benches::Progress;
use supercargo_benches::plan::{CHURN, Churn, GroupKind, Plan, SCHEDULER, identified};
use supercargo_benches::workload::ChurnMode;
use supercargo_scheduler::TableStats;

use crate::memory::{peak, resident};
use crate::world::{Spent, World};

/// The result of a run.
pub(crate) struct Outcome {
    /// The number of measured pods that found a node.
    pub(crate) decisions: usize,
    /// The number of those that did not.
    pub(crate) unscheduled: usize,
    pub(crate) spent: Spent,
    /// Statistics of the evaluation tables.
    pub(crate) stats: TableStats,
    /// The resident memory of the process at the end, with the objects, in bytes.
    pub(crate) resident: Option<u64>,
    /// The peak over all runs.
    pub(crate) peak: Option<u64>,
}

/// After this many steps without a scheduled pod the run is given up: minutes of scheduler time.
const PATIENCE: u64 = 5 * 60 * 1000;

/// Runs a plan within a time limit for the measured part. Returns the world for inspection.
pub(crate) fn run(
    plan: &Plan,
    mut world: World,
    budget: Option<Duration>,
    progress: Progress,
) -> Result<(Outcome, World)> {
    set_up(plan, &mut world, progress)?;
    let total = plan.measured();
    let mut waiting = Vec::with_capacity(total);
    for (number, group) in plan.groups_of(GroupKind::Measured) {
        for i in 0..group.count {
            progress.at(&plan.label, "reading pods", waiting.len(), total);
            waiting.push(world.decode_pod(&plan.pod(number, i))?);
        }
    }
    world.start_measuring();
    world.enqueue(waiting)?;
    let mut meanwhile = Meanwhile::new(plan);
    let (mut decisions, mut idle) = (0, 0);
    let mut used = Duration::ZERO;
    while decisions < total && idle < PATIENCE && budget.is_none_or(|budget| used <= budget) {
        progress.at(&plan.label, "scheduling", decisions, total);
        for (object, deleted) in meanwhile.until(world.elapsed()) {
            world.tell(&object, deleted)?;
        }
        if world.step(|pod| plan.is_measured(&pod.name))? {
            decisions += 1;
            idle = 0;
            used += world.spent.last_cycle();
        } else {
            idle += 1;
        }
    }
    let outcome = Outcome {
        decisions,
        unscheduled: if idle < PATIENCE { 0 } else { total - decisions },
        spent: std::mem::take(&mut world.spent),
        stats: world.scheduler.table_stats(),
        resident: resident(),
        peak: peak(),
    };
    Ok((outcome, world))
}

fn set_up(plan: &Plan, world: &mut World, progress: Progress) -> Result<()> {
    for object in plan.objects() {
        world.tell(&object, false)?;
    }
    for (at, node) in plan.nodes().enumerate() {
        progress.at(&plan.label, "adding nodes", at, plan.node_count());
        world.tell(&node, false)?;
    }
    for (number, group) in plan.groups().enumerate().filter(|(_, group)| group.kind != GroupKind::Measured) {
        for i in 0..group.count {
            progress.at(&plan.label, "adding pods", i, group.count);
            world.tell(&plan.pod(number, i), false)?;
        }
    }
    Ok(())
}

/// Churn while pods are measured, by the scheduler's time.
pub(crate) struct Meanwhile<'a> {
    plan: &'a Plan,
    churns: Vec<(&'a Churn, u64)>,
    deletions: Vec<(usize, usize)>,
}

impl<'a> Meanwhile<'a> {
    pub(crate) fn new(plan: &'a Plan) -> Self {
        let churns = plan.churn.iter().map(|churn| (churn, 0)).collect();
        let deletions = plan.groups_of(GroupKind::Bound).filter(|(_, group)| group.deletions_per_second > 0);
        Self { plan, churns, deletions: deletions.map(|(number, _)| (number, 0)).collect() }
    }

    /// The changes that are due now; `true` for deletions.
    pub(crate) fn until(&mut self, elapsed: Duration) -> Vec<(Value, bool)> {
        let elapsed = elapsed.as_millis() as u64;
        let mut changes = Vec::new();
        for (churn, done) in &mut self.churns {
            while *done < elapsed / churn.interval_milliseconds {
                changes.extend(turn(churn, *done as usize));
                *done += 1;
            }
        }
        for (number, done) in &mut self.deletions {
            let Some(group) = self.plan.groups().nth(*number) else { continue };
            let due = (elapsed as usize * group.deletions_per_second / 1000).min(group.count);
            for i in *done..due {
                let gone = [Some(self.plan.pod(*number, i)), self.plan.claim(*number, i)];
                changes.extend(gone.into_iter().flatten().map(|object| (object, true)));
            }
            *done = due;
        }
        changes
    }
}

/// The changes of a turn.
fn turn(churn: &Churn, turn: usize) -> Vec<(Value, bool)> {
    let (at, deleted, life) = match churn.mode {
        ChurnMode::Create => (turn, false, 0),
        ChurnMode::Recreate => {
            let within = turn % (2 * churn.number);
            (within % churn.number, within >= churn.number, turn / (2 * churn.number))
        }
    };
    churn.templates.iter().map(|template| (churning(template, at, life), deleted)).collect()
}

/// An object of a template with its own name and, when it is recreated, another UID.
fn churning(template: &Value, at: usize, life: usize) -> Value {
    let mut object = template.clone();
    let name = format!("{CHURN}{at}");
    if object["kind"] != "Node" {
        object["metadata"]["namespace"] = json!("default");
    }
    if object["kind"] == "Pod" {
        object["spec"]["schedulerName"] = json!(SCHEDULER);
    }
    object["metadata"]["uid"] = json!(format!("{name}-{life}"));
    object["metadata"]["name"] = json!(name);
    identified(object)
}
