//! Records the calls of a scheduler, and replays them.
//!
//! A record consists of lines of JSON: each call, its time, the answers of extenders, and the
//! effects. A replay makes the same calls to a new scheduler with the same configuration and
//! compares the effects. The hash seed is not part of a record, because no effect depends on it.

mod capture;
mod comparison;
mod waking;

use std::io::{self, BufRead};

use serde::{Deserialize, Serialize};
use supercargo_framework::Now;
use thiserror::Error;

pub use self::capture::{Restored, restore};
pub use self::comparison::{Comparer, Comparison, Decision, Difference, Reason};
pub use self::waking::Waking;
use crate::effect::Effect;
use crate::input::Input;
use crate::scheduler::{BuildError, Options, Scheduler};
use crate::timeline::Entry;
use supercargo_evaluation::extender::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec};

/// A call to the scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SchedulerCall {
    /// `handle`.
    Handle(Box<Input>),
    /// `schedule_one`, with the answers of extenders.
    ScheduleOne(Vec<Result<ExtenderAnswer, String>>),
    /// `reconfigure`, with the text of the configuration.
    Reconfigure(String),
    /// No call, but the history of pods up to here; in captures only.
    Remember(Vec<Entry>),
}

/// A call and its effects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RecordedCall {
    /// The time.
    pub now: Now,
    /// The call.
    pub call: SchedulerCall,
    /// The effects, one line each.
    pub effects: Vec<String>,
}

impl RecordedCall {
    /// The step as a line of a record.
    pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }
}

/// Keeps recorded steps. It must not block: scheduling waits for it.
pub trait StepLog {
    /// Keeps a step.
    fn push(&mut self, step: RecordedCall);
}

/// A scheduler whose calls are recorded.
pub struct Recorded<L> {
    scheduler: Scheduler,
    log: L,
}

impl<L: StepLog> Recorded<L> {
    /// Records the calls to `scheduler`, which must be new, to `log`.
    pub fn new(scheduler: Scheduler, log: L) -> Self {
        Self { scheduler, log }
    }

    /// The recorded scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    /// Calls `handle` and returns the effects.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let call = SchedulerCall::Handle(Box::new(input.clone()));
        self.scheduler.handle(now, input);
        self.note(now, call)
    }

    /// Calls `schedule_one` and returns the effects.
    pub fn schedule_one(&mut self, now: Now, calls: &mut dyn Calls) -> Vec<Effect> {
        let mut noting = Noting { calls, answers: Vec::new() };
        self.scheduler.schedule_one(now, &mut noting);
        let call = SchedulerCall::ScheduleOne(noting.answers);
        self.note(now, call)
    }

    /// Calls `reconfigure` and returns the effects. A replay gets `text` and derives the options
    /// from it. A rejected change is not recorded: it has no effect.
    pub fn reconfigure(
        &mut self,
        now: Now,
        options: Options,
        text: String,
    ) -> Result<Vec<Effect>, BuildError> {
        self.scheduler.reconfigure(now, options)?;
        Ok(self.note(now, SchedulerCall::Reconfigure(text)))
    }

    fn note(&mut self, now: Now, call: SchedulerCall) -> Vec<Effect> {
        let effects = self.scheduler.take_effects();
        let texts = effects.iter().map(|effect| format!("{effect:?}")).collect();
        self.log.push(RecordedCall { now, call, effects: texts });
        effects
    }
}

/// Records the answers of extenders.
struct Noting<'a> {
    calls: &'a mut dyn Calls,
    answers: Vec<Result<ExtenderAnswer, String>>,
}

impl Calls for Noting<'_> {
    fn ask(
        &mut self,
        extender: &ExtenderSpec,
        question: ExtenderQuestion<'_>,
    ) -> Result<ExtenderAnswer, String> {
        let answer = self.calls.ask(extender, question);
        self.answers.push(answer.clone());
        answer
    }
}

/// Returns recorded answers.
struct Replaying(std::vec::IntoIter<Result<ExtenderAnswer, String>>);

impl Calls for Replaying {
    fn ask(&mut self, extender: &ExtenderSpec, _: ExtenderQuestion<'_>) -> Result<ExtenderAnswer, String> {
        self.0
            .next()
            .unwrap_or_else(|| Err(format!("the record has no answer of extender {}", extender.name)))
    }
}

/// Why a replay stopped.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The record cannot be read.
    #[error("line {line}: {source}")]
    Read {
        /// The line number, from 1.
        line: usize,
        /// The cause.
        source: io::Error,
    },
    /// A recorded configuration is invalid.
    #[error("line {line}: configuration: {problem}")]
    Configuration {
        /// The line number, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// A call has other effects than recorded.
    #[error("line {line}: the record has {recorded:#?}, the replay {replayed:#?}")]
    Differs {
        /// The line number, from 1.
        line: usize,
        /// The recorded effects.
        recorded: Vec<String>,
        /// The effects of the replay.
        replayed: Vec<String>,
    },
}

/// What a replay has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The number of complete steps, all with the recorded effects.
    pub steps: usize,
    /// Whether the record ends within a line, as after a crash.
    pub is_cut: bool,
}

/// Makes the recorded calls to `scheduler`, which must be configured like the recorded one and in
/// the same state: new for the first part of a record. `configure` derives options from the text of
/// a recorded configuration.
pub fn replay(
    scheduler: &mut Scheduler,
    record: impl BufRead,
    configure: impl Fn(&str) -> Result<Options, String>,
) -> Result<Replayed, ReplayError> {
    replay_with(scheduler, record, configure, |_, _| {})
}

/// The same, and shows `before` the scheduler and each call before it is made.
pub fn replay_with(
    scheduler: &mut Scheduler,
    record: impl BufRead,
    configure: impl Fn(&str) -> Result<Options, String>,
    mut before: impl FnMut(&mut Scheduler, &RecordedCall),
) -> Result<Replayed, ReplayError> {
    read(record, |line, step| {
        before(scheduler, &step);
        perform(scheduler, step.now, step.call, line, &configure)?;
        let effects = scheduler.take_effects();
        let replayed: Vec<_> = effects.iter().map(|effect| format!("{effect:?}")).collect();
        if replayed == step.effects {
            Ok(true)
        } else {
            Err(ReplayError::Differs { line, recorded: step.effects, replayed })
        }
    })
}

/// Reads calls with their line numbers, from 1, until `each` returns `false`.
fn read(
    mut record: impl BufRead,
    mut each: impl FnMut(usize, RecordedCall) -> Result<bool, ReplayError>,
) -> Result<Replayed, ReplayError> {
    let (mut steps, mut text) = (0, Vec::new());
    loop {
        let line = steps + 1;
        let read = |source| ReplayError::Read { line, source };
        text.clear();
        if record.read_until(b'\n', &mut text).map_err(read)? == 0 {
            return Ok(Replayed { steps, is_cut: false });
        }
        let step: RecordedCall = match serde_json::from_slice(&text) {
            Ok(step) => step,
            Err(_) if !text.ends_with(b"\n") => return Ok(Replayed { steps, is_cut: true }),
            Err(error) => return Err(read(error.into())),
        };
        if !each(line, step)? {
            return Ok(Replayed { steps, is_cut: false });
        }
        steps += 1;
    }
}

/// Makes a recorded call.
fn perform(
    scheduler: &mut Scheduler,
    now: Now,
    call: SchedulerCall,
    line: usize,
    mut configure: impl FnMut(&str) -> Result<Options, String>,
) -> Result<(), ReplayError> {
    match call {
        SchedulerCall::Handle(input) => scheduler.handle(now, *input),
        SchedulerCall::ScheduleOne(answers) => {
            scheduler.schedule_one(now, &mut Replaying(answers.into_iter()));
        }
        SchedulerCall::Reconfigure(text) => {
            let reconfigured = configure(&text)
                .and_then(|options| scheduler.reconfigure(now, options).map_err(|error| error.to_string()));
            reconfigured.map_err(|problem| ReplayError::Configuration { line, problem })?;
        }
        SchedulerCall::Remember(entries) => scheduler.timeline.replace(entries),
    }
    Ok(())
}
