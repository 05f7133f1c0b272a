//! Places in a record from which a seek continues, so that it need not begin at the start.

use std::cell::Cell;
use std::io::{self, BufRead, Read};
use std::rc::Rc;

use anyhow::Result;
use supercargo_framework::{Now, Timestamp};
use supercargo_scheduler::record::Restored;
use supercargo_scheduler::{Fork, Options, Scheduler};

/// The most checkpoints. Each is a copy of the state, whose pods and objects are shared.
const MOST: usize = 16;

/// The checkpoints of a record, in order.
#[derive(Default)]
pub(crate) struct Checkpoints {
    kept: Vec<Checkpoint>,
    /// The number of calls between two; 0 if none is kept.
    period: usize,
    /// The calls so far, and the latest of their times.
    calls: usize,
    latest: Timestamp,
}

/// The state after a call. It has the effects of all calls before, and of none that follows.
pub(super) struct Checkpoint {
    fork: Fork,
    /// The text of the configuration.
    pub(super) configuration: String,
    pub(super) place: Place,
    /// The latest time of these calls.
    latest: Timestamp,
}

/// The end of a line: the number of its file, and the bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: usize,
    pub(super) bytes: u64,
}

impl Checkpoints {
    /// Keeps checkpoints while a record of this number of calls is read.
    pub(crate) fn of(calls: usize) -> Self {
        Self { period: calls.div_ceil(MOST + 1).max(1), ..Self::default() }
    }

    /// The last one from which a seek to this time can continue.
    pub(super) fn before(&self, until: Option<Timestamp>) -> Option<&Checkpoint> {
        self.kept.iter().rev().find(|kept| until.is_none_or(|until| kept.latest <= until))
    }

    /// Keeps the state after this call if the last checkpoint is far enough behind. A scheduler
    /// that is binding has state that no copy has, so it waits until that is done.
    pub(super) fn note(
        &mut self,
        scheduler: &Scheduler,
        restored: &Restored,
        (configuration, place): (&str, Place),
        options: impl FnOnce() -> Result<Options, String>,
    ) {
        self.calls += 1;
        self.latest = self.latest.max(restored.now.wall);
        let is_due = self.period > 0 && self.calls >= (self.kept.len() + 1) * self.period;
        if !is_due || self.kept.len() == MOST || !scheduler.is_settled() {
            return;
        }
        // Without one, a seek takes longer.
        let Ok(Ok(fork)) = options().map(|options| scheduler.fork(restored.now, options)) else { return };
        let (configuration, latest) = (configuration.to_owned(), self.latest);
        self.kept.push(Checkpoint { fork, configuration, place, latest });
    }

    /// Later reading adds none.
    pub(super) fn end(&mut self) {
        self.period = 0;
    }
}

impl Checkpoint {
    /// A scheduler with this state, and plugins of its own.
    pub(super) fn scheduler(&self, options: Options) -> Result<Scheduler> {
        Ok(self.fork.fork(options)?.into_scheduler())
    }

    /// The time of the state.
    pub(super) fn now(&self) -> Now {
        self.fork.now()
    }
}

/// Counts the bytes that are read. Another part of the program sees the number.
pub(super) struct Counted<R> {
    reader: R,
    bytes: Rc<Cell<u64>>,
}

impl<R: BufRead> Counted<R> {
    pub(super) fn new(reader: R, bytes: Rc<Cell<u64>>) -> Self {
        Self { reader, bytes }
    }
}

impl<R: BufRead> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let bytes = self.reader.read(into)?;
        self.bytes.set(self.bytes.get() + bytes as u64);
        Ok(bytes)
    }
}

impl<R: BufRead> BufRead for Counted<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, bytes: usize) {
        self.bytes.set(self.bytes.get() + bytes as u64);
        self.reader.consume(bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::path::{Path, PathBuf};
    use std::sync::Arc;
    use std::time::Duration;

    use supercargo_config::flags::FeatureOptions;
    use supercargo_config::{Catalog, Config};
    use supercargo_framework::PodInfo;
    use supercargo_framework::binding::BindOutcome;
    use supercargo_framework::testing::{node, pod};
    use supercargo_owner::options::scheduler_options;
    use supercargo_scheduler::record::{Recorded, RecordedCall, StepLog};
    use supercargo_scheduler::{Effect, Input, NoCalls, Notification};

    use super::*;
    use crate::insight::{FileCatalog, Files};

    /// The number of pods in the record. Each takes a second.
    const PODS: i64 = 60;

    struct Lines<'a>(&'a mut Vec<u8>);

    impl StepLog for Lines<'_> {
        fn push(&mut self, step: RecordedCall) {
            self.0.extend(step.to_line().unwrap());
        }
    }

    fn now(micros: i64) -> Now {
        Now { wall: Timestamp(micros), monotonic: Duration::from_micros(micros as u64) }
    }

    /// Two files with the record of pods that come one after the other. Those with an odd number
    /// are bound half a second later, until the node is full. The others never fit.
    fn record(folder: &Path) -> Vec<PathBuf> {
        let config = Config::default_with(&Catalog::in_tree()).unwrap();
        let scheduler = Scheduler::new(scheduler_options(&config)).unwrap();
        let mut text = Vec::new();
        let mut recorded = Recorded::new(now(0), scheduler, config.to_yaml_without_keys(), Lines(&mut text));
        let node = node("n").allocatable("cpu", "20").allocatable("pods", "100").build();
        recorded.handle(now(1), Input::Node(Notification::Added(Arc::new(node))));
        for number in 0..PODS {
            let begin = number * 1_000_000;
            let cpu = if number % 2 == 0 { "30" } else { "500m" };
            let pod =
                Arc::new(pod(&format!("p{number}")).scheduler("supercargo").request("cpu", cpu).build());
            recorded.handle(now(begin + 10), Input::QueuedPod(Notification::Added(Arc::clone(&pod))));
            while recorded.scheduler().has_work() {
                for effect in recorded.schedule_one(now(begin + 20), &mut NoCalls) {
                    let Effect::Bind { pod, node, .. } = effect else { continue };
                    let bound = Arc::new(PodInfo { node_name: Some(node), ..PodInfo::clone(&pod) });
                    let ended = Input::Bound {
                        pod: pod.uid.clone(),
                        by: "DefaultBinder".into(),
                        outcome: BindOutcome::Bound,
                    };
                    for input in [
                        ended,
                        Input::AssignedPod(Notification::Added(bound)),
                        Input::QueuedPod(Notification::Deleted(pod)),
                    ] {
                        recorded.handle(now(begin + 500_000), input);
                    }
                }
            }
            recorded.handle(now(begin + 600_000), Input::Tick);
        }
        drop(recorded);
        let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
        let (one, other) = lines.split_at(lines.len() / 3);
        let write = |(name, lines): (&str, &[&[u8]])| {
            let file = folder.join(name);
            std::fs::write(&file, lines.concat()).unwrap();
            file
        };
        [("one", one), ("other", other)].map(write).to_vec()
    }

    /// All that a page can show of a state.
    fn all_of(fork: &mut Fork) -> String {
        let mut text = format!("{:?} {:?}", fork.now(), fork.scheduler().queue_lengths());
        let mut waiting: Vec<_> = fork
            .waiting()
            .map(|(place, pod)| format!("{place:?} {} {}", pod.pod.key(), pod.attempts))
            .collect();
        waiting.sort();
        text += &waiting.join("\n");
        let _: ControlFlow<()> = fork.capture(String::new(), |call| {
            text += &String::from_utf8(call.to_line().unwrap()).unwrap();
            ControlFlow::Continue(())
        });
        text
    }

    #[test]
    fn a_seek_through_a_checkpoint_leads_to_the_state_of_one_from_the_begin() {
        let folder = tempfile::tempdir().unwrap();
        let files = record(folder.path());
        let catalog = FileCatalog::new(&FeatureOptions::default(), &Catalog::in_tree()).unwrap();
        let lines: usize =
            files.iter().map(|file| std::fs::read_to_string(file).unwrap().lines().count()).sum();
        let files = Files::new(files);
        let mut checkpoints = Checkpoints::of(lines);
        let end = Timestamp(PODS * 1_000_000);
        files.at(end, &catalog, None, &mut checkpoints).unwrap();
        assert_eq!(checkpoints.kept.len(), MOST);
        assert!(checkpoints.kept.iter().any(|kept| kept.place.file == 1));
        let begins: Vec<_> = checkpoints.kept.iter().map(|kept| kept.latest).collect();
        for half_seconds in 0..2 * PODS {
            let to = Timestamp(half_seconds * 500_000);
            let seek = |checkpoints: &mut Checkpoints| {
                all_of(&mut files.at(to, &catalog, None, checkpoints).unwrap().0)
            };
            let from = checkpoints.before(Some(to)).map(|kept| kept.latest);
            assert_eq!(from, begins.iter().rev().find(|begin| **begin <= to).copied());
            assert_eq!(seek(&mut checkpoints), seek(&mut Checkpoints::default()), "{to:?}");
        }
        assert_eq!(checkpoints.kept.len(), MOST, "seeks add none");
    }
}
