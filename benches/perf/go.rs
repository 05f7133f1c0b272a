//! kube-scheduler on the same objects (`testing/controlplane/schedbench`).

use std::io::{BufWriter, ErrorKind, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use supercargo_benches::Progress;
use supercargo_benches::plan::{GroupKind, Plan};
use supercargo_controlplane::{Assets, Program};

use crate::run::Meanwhile;

/// The program.
pub(crate) struct Upstream {
    program: PathBuf,
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
        Ok(Self { program: Assets::locate()?.path(Program::SchedBench)? })
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
        let mut child = Command::new(&self.program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        let input = child.stdin.take().context("its input is a pipe")?;
        let written = write(plan, percentage, budget, &mut BufWriter::new(input), progress);
        let output = child.wait_with_output().context("hear schedbench")?;
        ensure!(output.status.success(), "schedbench failed");
        match written {
            // It stops reading when the time is used up.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            other => other.context("tell schedbench")?,
        }
        serde_json::from_slice(&output.stdout).context("read what schedbench measured")
    }
}

fn write(
    plan: &Plan,
    percentage: i32,
    budget: Duration,
    to: &mut impl Write,
    progress: Progress,
) -> std::io::Result<()> {
    let mut line = |what: &str, value: Value| {
        serde_json::to_writer(&mut *to, &json!({ what: value }))?;
        to.write_all(b"\n")
    };
    let budget = budget.as_millis() as u64;
    line("settings", json!({ "percentageOfNodesToScore": percentage, "budgetMilliseconds": budget }))?;
    for object in plan.objects().chain(plan.nodes()) {
        line("add", object)?;
    }
    for (number, group) in plan.groups_of(GroupKind::Bound) {
        for i in 0..group.count {
            line("add", plan.pod(number, i))?;
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
                line(
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
            line("schedule", plan.pod(number, i))?;
        }
    }
    to.flush()
}
