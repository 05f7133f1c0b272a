//! Records the calls of a scheduler, and replays them.
//!
//! A record consists of lines of JSON: the configuration with the feature gates, and each call, its
//! time, the answers of extenders, and the effects. A replay makes the same calls to a new
//! scheduler with the same configuration and compares the effects. The hash seed is not part of a
//! record, because no effect depends on it.

mod capture;
mod closed_loop;
mod comparison;
mod influence;
mod redaction;

use std::io::{self, BufRead};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use supercargo_framework::{Features, Now, Timestamp};
use thiserror::Error;

pub use self::capture::{Memory, Restored, restore, restore_with};
pub use self::closed_loop::{ClosedLoop, ClosedLoopError, ModelledPod, ModelledRun, Placement, Usage};
pub use self::comparison::{Comparer, Comparison, Decision, Difference, Reason};
pub use self::influence::{FilterInfluence, Influence, ScoreInfluence};
pub use self::redaction::{Pseudonyms, Redaction, RedactionError};
use crate::effect::Effect;
use crate::input::Input;
use crate::scheduler::{BuildError, Options, Scheduler};
use supercargo_evaluation::extender::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec};

/// What a file of calls is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// The calls of a run, from its begin.
    Record,
    /// Calls that lead to a state. [`SchedulerCall::Remember`] is the last one.
    Capture,
}

/// A call to the scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum SchedulerCall {
    /// No call, but the first line of a file: what follows, the text of the configuration, and the
    /// feature gates. Files of earlier versions have no gates.
    Begin(Content, String, #[serde(default)] Option<Features>),
    /// `handle`.
    Handle(Box<Input>),
    /// `schedule_one`, with the answers of extenders.
    ScheduleOne(Vec<Result<ExtenderAnswer, String>>),
    /// `reconfigure`, with the text of the configuration.
    Reconfigure(String),
    /// No call, but what no object shows; in captures only.
    Remember(Box<Memory>),
}

/// The features of a file that begins with this line; `None` if it does not say.
pub fn features(first_line: &[u8]) -> Option<Features> {
    let RecordedCall { call, .. } = serde_json::from_slice(first_line).ok()?;
    if let SchedulerCall::Begin(_, _, features) = call { features } else { None }
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
    /// Records the calls to `scheduler`, which must be new, to `log`. A replay gets the text of the
    /// configuration and the scheduler's features, and derives the options from them.
    pub fn new(now: Now, scheduler: Scheduler, configuration: String, mut log: L) -> Self {
        let features = Some(scheduler.features.clone());
        let call = SchedulerCall::Begin(Content::Record, configuration, features);
        log.push(RecordedCall { now, call, effects: Vec::new() });
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
    /// A call was made before 1970, or more than a thousand years later.
    #[error("line {line}: the time is out of range")]
    Time {
        /// The line number, from 1.
        line: usize,
    },
    /// The file continues another one, or is of another version.
    #[error("neither a capture nor the first file of a record of this version")]
    NoBegin,
    /// Another record or capture begins.
    #[error("line {line}: another record or capture begins; each needs a command of its own")]
    SecondBegin {
        /// The line number, from 1.
        line: usize,
    },
    /// A capture ends too early.
    #[error("the capture is cut off after line {lines}")]
    CutCapture {
        /// The number of complete lines.
        lines: usize,
    },
    /// A capture has no decisions.
    #[error("a capture has no decisions to replay; ask questions with --from, such as `supercargo why`")]
    Capture,
}

impl ReplayError {
    /// Whether another file was meant.
    pub fn is_wrong_file(&self) -> bool {
        use ReplayError::{Capture, CutCapture, NoBegin, SecondBegin};
        matches!(self, NoBegin | SecondBegin { .. } | CutCapture { .. } | Capture)
    }
}

/// What a replay has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Replayed {
    /// The number of complete steps, all with the recorded effects.
    pub steps: usize,
    /// Whether the record ends within a line, as after a crash.
    pub is_cut: bool,
}

/// Makes the recorded calls to `scheduler`: `None` for the first part of a record, which creates
/// it, and what is left there for each next part. `configure` derives options from the text of a
/// recorded configuration; the first one is that of the begin.
pub fn replay(
    scheduler: &mut Option<Scheduler>,
    record: impl BufRead,
    configure: impl FnMut(&str) -> Result<Options, String>,
) -> Result<Replayed, ReplayError> {
    replay_with(scheduler, record, configure, &mut |_: &mut Scheduler, _: &RecordedCall| {})
}

/// Sees each call of a replay.
pub trait Companion {
    /// To be called with the text of the first configuration.
    fn begin(&mut self, _configuration: &str) {}

    /// To be called before the call is made; not before the begin, which creates the scheduler.
    fn before(&mut self, scheduler: &mut Scheduler, call: &RecordedCall);

    /// To be called after it, with the effects, which are as recorded.
    fn after(&mut self, _scheduler: &Scheduler, _effects: &[Effect]) {}
}

impl<F: FnMut(&mut Scheduler, &RecordedCall)> Companion for F {
    fn before(&mut self, scheduler: &mut Scheduler, call: &RecordedCall) {
        self(scheduler, call);
    }
}

/// The same with a companion, such as a function that sees the scheduler and each call before it is
/// made.
pub fn replay_with(
    scheduler: &mut Option<Scheduler>,
    record: impl BufRead,
    mut configure: impl FnMut(&str) -> Result<Options, String>,
    companion: &mut impl Companion,
) -> Result<Replayed, ReplayError> {
    read(record, |line, step| {
        if matches!(step.call, SchedulerCall::Begin(Content::Capture, ..)) {
            return Err(ReplayError::Capture);
        }
        if let SchedulerCall::Begin(_, configuration, _) = &step.call {
            companion.begin(configuration);
        }
        if let Some(scheduler) = scheduler {
            companion.before(scheduler, &step);
        }
        let scheduler = perform(scheduler, step.now, step.call, line, &mut configure)?;
        let effects = scheduler.take_effects();
        let replayed: Vec<_> = effects.iter().map(|effect| format!("{effect:?}")).collect();
        if replayed != step.effects {
            return Err(ReplayError::Differs { line, recorded: step.effects, replayed });
        }
        companion.after(scheduler, &effects);
        Ok(true)
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
        if !is_in_range(step.now) {
            return Err(ReplayError::Time { line });
        }
        if !each(line, step)? {
            return Ok(Replayed { steps, is_cut: false });
        }
        steps += 1;
    }
}

/// Whether no sum of this time and a setting overflows.
fn is_in_range(now: Now) -> bool {
    const THOUSAND_YEARS: Duration = Duration::from_hours(1000 * 366 * 24);
    let latest = Timestamp(0).plus(THOUSAND_YEARS);
    (Timestamp(0)..=latest).contains(&now.wall) && now.monotonic <= THOUSAND_YEARS
}

/// Makes a recorded call, and returns the scheduler. The first one creates it.
fn perform(
    scheduler: &mut Option<Scheduler>,
    now: Now,
    call: SchedulerCall,
    line: usize,
    mut configure: impl FnMut(&str) -> Result<Options, String>,
) -> Result<&mut Scheduler, ReplayError> {
    let invalid = |problem| ReplayError::Configuration { line, problem };
    if let SchedulerCall::Begin(_, text, _) = &call {
        if scheduler.is_some() {
            return Err(ReplayError::SecondBegin { line });
        }
        let new = configure(text)
            .and_then(|options| Scheduler::new(options).map_err(|error| error.to_string()))
            .map_err(invalid)?;
        return Ok(scheduler.insert(new));
    }
    let scheduler = scheduler.as_mut().ok_or(ReplayError::NoBegin)?;
    match call {
        SchedulerCall::Begin(..) => {}
        SchedulerCall::Handle(input) => scheduler.handle(now, *input),
        SchedulerCall::ScheduleOne(answers) => {
            scheduler.schedule_one(now, &mut Replaying(answers.into_iter()));
        }
        SchedulerCall::Reconfigure(text) => {
            let reconfigured = configure(&text)
                .and_then(|options| scheduler.reconfigure(now, options).map_err(|error| error.to_string()));
            reconfigured.map_err(invalid)?;
        }
        SchedulerCall::Remember(memory) => scheduler.remember(now, *memory),
    }
    Ok(scheduler)
}
