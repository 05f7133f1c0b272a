//! kube-scheduler on the same objects (`testing/controlplane/schedbench`).

use std::io::Result as IoResult;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use supercargo_benches::Progress;
use supercargo_benches::plan::{GroupKind, Plan};
use supercargo_controlplane::{SchedBench, SchedBenchInput};

use crate::run::Meanwhile;

/// The program.
pub(crate) struct Upstream {
    program: SchedBench,
}

/// Its measurements in nanoseconds of wall time.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measured {
    pub(crate) decisions: usize,
    pub(crate) unscheduled: usize,
    pub(crate) mean: u64,
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    pub(crate) go_version: String,
    pub(crate) processors: usize,
}

impl Upstream {
    /// Builds it, if it is missing.
    pub(crate) fn locate() -> Result<Self> {
        Ok(Self { program: SchedBench::locate()? })
    }

    /// Runs a plan with this percentage of nodes to score, 0 for the default, until the pods or the
    /// time are used up.
    pub(crate) fn run(
        &self,
        plan: &Plan,
        percentage: i32,
        budget: Duration,
        progress: Progress,
    ) -> Result<Measured> {
        let (mut child, input, output) = self.program.start()?;
        let written = input.write(|input| write(plan, percentage, budget, input, progress));
        let measured = serde_json::from_reader(output);
        ensure!(child.wait()?.success(), "schedbench failed");
        written?;
        measured.context("read what schedbench measured")
    }
}

fn write(
    plan: &Plan,
    percentage: i32,
    budget: Duration,
    to: &mut SchedBenchInput,
    progress: Progress,
) -> IoResult<()> {
    let budget = budget.as_millis() as u64;
    to.line("settings", json!({ "percentageOfNodesToScore": percentage, "budgetMilliseconds": budget }))?;
    for object in plan.objects().chain(plan.nodes()) {
        to.line("add", object)?;
    }
    for (number, group) in plan.groups_of(GroupKind::Bound) {
        for i in 0..group.count {
            to.line("add", plan.pod(number, i))?;
        }
    }
    let mut meanwhile = Meanwhile::new(plan);
    let mut scheduled = 0;
    for (number, group) in plan.groups_of(GroupKind::Measured) {
        for i in 0..group.count {
            progress.at(&plan.label, "upstream", scheduled, plan.measured());
            scheduled += 1;
            for (object, deleted) in meanwhile.until(Duration::from_millis(scheduled as u64)) {
                let waits = object["kind"] == "Pod" && object["spec"]["nodeName"].is_null();
                to.line(
                    if deleted {
                        "remove"
                    } else if waits {
                        "try"
                    } else {
                        "add"
                    },
                    object,
                )?;
            }
            to.line("schedule", plan.pod(number, i))?;
        }
    }
    Ok(())
}
