//! kube-scheduler with the groups (`testing/controlplane/schedbench`).

use std::io::{BufRead as _, BufReader, BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};
use supercargo_controlplane::{Assets, Program};

use crate::cases::{Case, Policy};

/// The program.
pub(crate) struct Upstream {
    program: PathBuf,
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
        Ok(Self { program: Assets::locate()?.path(Program::SchedBench)?, budget })
    }

    /// The cycles of a case's gangs with this percentage of nodes to score, 0 for the default.
    pub(crate) fn cycles(&self, case: Case, nodes: usize, percentage: i32) -> Result<Vec<Cycle>> {
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let output = child.stdout.take().context("its output is a pipe")?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let budget = self.budget;
        let writer =
            thread::spawn(move || write(case, nodes, percentage, budget, &mut BufWriter::new(input)));
        let cycles = BufReader::new(output)
            .lines()
            .map(|line| serde_json::from_str(&line?).context("read what schedbench measured"))
            .collect();
        ensure!(child.wait()?.success(), "schedbench failed");
        match writer.join() {
            // It stops reading when the time is used up.
            Ok(Err(error)) if error.kind() == ErrorKind::BrokenPipe => {}
            Ok(written) => written.context("tell schedbench")?,
            Err(_) => bail!("the writer of schedbench's input panicked"),
        }
        cycles
    }
}

fn write(
    case: Case,
    nodes: usize,
    percentage: i32,
    budget: Duration,
    to: &mut impl Write,
) -> std::io::Result<()> {
    let mut line = |what: &str, value: Value| {
        serde_json::to_writer(&mut *to, &json!({ what: value }))?;
        to.write_all(b"\n")
    };
    let gates = json!({ "GenericWorkload": true, "TopologyAwareWorkloadScheduling": true });
    line(
        "settings",
        json!({
            "percentageOfNodesToScore": percentage,
            "budgetMilliseconds": budget.as_millis() as u64,
            "each": true,
            "featureGates": gates,
        }),
    )?;
    for object in case.groups(Policy::Gang).chain(Case::nodes(nodes)).chain(case.bound(nodes)) {
        line("add", object)?;
    }
    for gang in 0..case.gangs {
        line("group", case.gang(gang).collect())?;
    }
    to.flush()
}
