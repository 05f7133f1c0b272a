//! kube-scheduler with the groups (`testing/controlplane/schedbench`).

use std::io::{BufRead as _, BufReader, Result as IoResult};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::json;
use supercargo_controlplane::{SchedBench, SchedBenchInput};

use crate::cases::{Case, Policy};

/// The program.
pub(crate) struct Upstream {
    program: SchedBench,
    /// No cycle begins after this time in cycles.
    budget: Duration,
}

/// The cycle of a group, in nanoseconds.
#[derive(Deserialize)]
pub(crate) struct Cycle {
    /// All of it, including what is sent.
    pub(crate) wall: u64,
    /// Until its pods have been tried.
    pub(crate) algorithm: u64,
    pub(crate) bound: usize,
}

impl Upstream {
    /// Builds it, if it is missing.
    pub(crate) fn locate(budget: Duration) -> Result<Self> {
        Ok(Self { program: SchedBench::locate()?, budget })
    }

    /// The cycles of a case's gangs with this percentage of nodes to score, 0 for the default.
    pub(crate) fn cycles(&self, case: Case, nodes: usize, percentage: i32) -> Result<Vec<Cycle>> {
        let (mut child, input, output) = self.program.start()?;
        let budget = self.budget;
        let writer = input.write_beside(move |input| write(case, nodes, percentage, budget, input));
        let cycles = BufReader::new(output)
            .lines()
            .map(|line| serde_json::from_str(&line?).context("read what schedbench measured"))
            .collect();
        ensure!(child.wait()?.success(), "schedbench failed");
        writer.end()?;
        cycles
    }
}

fn write(
    case: Case,
    nodes: usize,
    percentage: i32,
    budget: Duration,
    to: &mut SchedBenchInput,
) -> IoResult<()> {
    let gates = json!({ "GenericWorkload": true, "TopologyAwareWorkloadScheduling": true });
    to.line(
        "settings",
        json!({
            "percentageOfNodesToScore": percentage,
            "budgetMilliseconds": budget.as_millis() as u64,
            "each": true,
            "featureGates": gates,
        }),
    )?;
    for object in case.groups(Policy::Gang).chain(Case::nodes(nodes)).chain(case.bound(nodes)) {
        to.line("add", object)?;
    }
    for gang in 0..case.gangs {
        to.line("group", case.gang(gang).collect())?;
    }
    Ok(())
}
