//! kube-scheduler on the same objects (`testing/controlplane/schedbench`).

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Result as IoResult};
use std::process::{Child, ChildStdout};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use supercargo_controlplane::{SchedBench, SchedBenchInput};
use supercargo_framework::testing::giants::{NodeList, PodList, objects, plain_node, plain_pod, type_of};

use crate::cluster::{Size, plain_document};

/// The program.
pub(crate) struct Upstream {
    program: SchedBench,
    patience: Duration,
}

/// Its longest cycle.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Longest {
    milliseconds: f64,
    /// Whether a cycle did not end in time, so that this is a time on the wall that is too short.
    at_least: bool,
}

impl Longest {
    /// The time, and how many times as long as ours it is. A time on the wall is not compared.
    pub(crate) fn beside(self, ours: f64) -> (String, String) {
        let Self { milliseconds, at_least } = self;
        if at_least {
            return ("stopped".to_owned(), "–".to_owned());
        }
        (format!("{milliseconds:.1}"), format!("{:.1}", milliseconds / ours.max(RESOLUTION)))
    }
}

/// A cycle that schedbench has measured.
#[derive(Deserialize)]
struct Cycle {
    /// Processor time of the process in nanoseconds.
    processor: u64,
}

/// How long the program may take to read the cluster.
const SETTING_UP: Duration = Duration::from_mins(5);

/// The resolution of processor time, in milliseconds.
const RESOLUTION: f64 = 4.0;

type Line = (&'static str, Value);

impl Upstream {
    /// Builds it, if it is missing.
    pub(crate) fn locate(patience: Duration) -> Result<Self> {
        Ok(Self { program: SchedBench::locate()?, patience })
    }

    /// The longest cycle with the giant: its own, that of a plain pod beside it, and that of
    /// another giant. `None` for a gated pod, which never has a cycle.
    pub(crate) fn with_pod(&self, list: PodList, items: usize, size: Size) -> Result<Option<Longest>> {
        if list == PodList::Gates {
            return Ok(None);
        }
        let giant = |name: &str| list.pod(name, items);
        let mut bound = giant("bound");
        bound["spec"]["nodeName"] = "node-0".into();
        let lines = vec![
            ("schedule", giant("first")),
            ("add", bound),
            ("schedule", plain_document("plain")),
            ("schedule", giant("next")),
        ];
        self.longest(size, list.objects(items), lines).map(Some)
    }

    /// The longest cycle beside the giant: of a plain pod after it is added, and after it is
    /// cordoned.
    pub(crate) fn with_node(&self, list: NodeList, items: usize, size: Size) -> Result<Option<Longest>> {
        let giant = list.node("giant", items);
        let mut cordoned = giant.clone();
        cordoned["spec"]["unschedulable"] = true.into();
        let lines = vec![
            ("add", giant),
            ("schedule", plain_document("another")),
            ("add", cordoned),
            ("schedule", plain_document("last")),
        ];
        self.longest(size, Vec::new(), lines).map(Some)
    }

    fn longest(&self, size: Size, beside: Vec<Value>, lines: Vec<Line>) -> Result<Longest> {
        let (mut child, input, output) = self.program.start()?;
        let expected = lines.iter().filter(|(what, _)| *what == "schedule").count();
        let writer = input.write_beside(move |input| write(input, size, &beside, lines));
        let longest = self.read(&mut child, output, expected);
        writer.end()?;
        longest
    }

    /// Reads the cycles. A cycle that takes too long ends the program.
    fn read(&self, child: &mut Child, output: ChildStdout, expected: usize) -> Result<Longest> {
        let (sender, cycles) = mpsc::channel();
        let reader = thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                if line.is_ok_and(|line| sender.send(line).is_err()) {
                    return;
                }
            }
        });
        let mut longest = Longest { milliseconds: 0.0, at_least: false };
        // The first cycle warms up. It waits for all objects to be read.
        let (mut measured, mut patience) = (0, SETTING_UP);
        while measured <= expected {
            match cycles.recv_timeout(patience) {
                Ok(line) => {
                    let cycle: Cycle =
                        serde_json::from_str(&line).context("read what schedbench measured")?;
                    if measured > 0 {
                        longest.milliseconds = longest.milliseconds.max(cycle.processor as f64 / 1e6);
                    }
                    (measured, patience) = (measured + 1, self.patience);
                }
                Err(mpsc::RecvTimeoutError::Timeout) if measured > 0 => {
                    let milliseconds = longest.milliseconds.max(patience.as_secs_f64() * 1000.0);
                    longest = Longest { milliseconds, at_least: true };
                    break;
                }
                Err(_) => break,
            }
        }
        if measured <= expected {
            child.kill().context("stop schedbench")?;
        }
        let status = child.wait().context("wait for schedbench")?;
        drop(reader.join());
        ensure!(longest.at_least || (status.success() && measured > expected), "schedbench failed");
        Ok(longest)
    }
}

fn write(to: &mut SchedBenchInput, size: Size, beside: &[Value], lines: Vec<Line>) -> IoResult<()> {
    let Size { nodes, namespaces, .. } = size;
    let settings = json!({ "percentageOfNodesToScore": 100, "budgetMilliseconds": 3_600_000, "each": true });
    to.line("settings", settings)?;
    // The giant's take the place of others of their name.
    let replaced: HashSet<_> = beside.iter().map(identity).collect();
    for object in objects(nodes, namespaces).filter(|object| !replaced.contains(&identity(object))) {
        to.line("add", object)?;
    }
    for object in beside.iter().cloned().chain((0..nodes).map(plain_node)) {
        to.line("add", object)?;
    }
    for i in 0..size.pods() {
        to.line("add", plain_pod(i, nodes, namespaces))?;
    }
    to.line("schedule", plain_document("warm-up"))?;
    for (what, value) in lines {
        to.line(what, value)?;
    }
    Ok(())
}

/// Type and name of an object; no giant has two of one name in several namespaces.
fn identity(object: &Value) -> ([&str; 2], Option<&str>) {
    (type_of(object), object["metadata"]["name"].as_str())
}
