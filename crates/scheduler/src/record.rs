//! Records the calls of a scheduler, and replays them.
//!
//! A record consists of lines of JSON: each call, its time, the answers of extenders, and the
//! effects. A replay makes the same calls to a new scheduler with the same configuration and
//! compares the effects.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};
use supercargo_framework::Now;
use thiserror::Error;

use crate::effect::Effect;
use crate::extender::{Calls, ExtenderAnswer, ExtenderQuestion, ExtenderSpec};
use crate::input::Input;
use crate::scheduler::Scheduler;

/// A call to the scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Call {
    /// `handle`.
    Handle(Box<Input>),
    /// `schedule_one`, with the answers of extenders.
    ScheduleOne(Vec<Result<ExtenderAnswer, String>>),
}

/// A call and its effects.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// The time.
    pub now: Now,
    /// The call.
    pub call: Call,
    /// The effects, one line each.
    pub effects: Vec<String>,
}

/// A scheduler whose calls are recorded.
pub struct Recorded<W> {
    scheduler: Scheduler,
    log: W,
}

impl<W: Write> Recorded<W> {
    /// Records the calls to `scheduler`, which must be new, to `log`.
    pub fn new(scheduler: Scheduler, log: W) -> Self {
        Self { scheduler, log }
    }

    /// The recorded scheduler.
    pub fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }

    #[cfg(test)]
    pub(crate) fn scheduler_mut(&mut self) -> &mut Scheduler {
        &mut self.scheduler
    }

    /// Calls `handle` and returns the effects.
    pub fn handle(&mut self, now: Now, input: Input) -> io::Result<Vec<Effect>> {
        let call = Call::Handle(Box::new(input.clone()));
        self.scheduler.handle(now, input);
        self.write(now, call)
    }

    /// Calls `schedule_one` and returns the effects.
    pub fn schedule_one(&mut self, now: Now, calls: &mut dyn Calls) -> io::Result<Vec<Effect>> {
        let mut noting = Noting { calls, answers: Vec::new() };
        self.scheduler.schedule_one(now, &mut noting);
        let call = Call::ScheduleOne(noting.answers);
        self.write(now, call)
    }

    fn write(&mut self, now: Now, call: Call) -> io::Result<Vec<Effect>> {
        let effects = self.scheduler.take_effects();
        let step = Step { now, call, effects: effects.iter().map(|effect| format!("{effect:?}")).collect() };
        serde_json::to_writer(&mut self.log, &step)?;
        self.log.write_all(b"\n")?;
        Ok(effects)
    }

    /// Flushes the log.
    pub fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
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

/// Makes the recorded calls to `scheduler`, which must be new and configured like the recorded one.
/// Returns the number of steps.
pub fn replay(scheduler: &mut Scheduler, record: impl BufRead) -> Result<usize, ReplayError> {
    let mut steps = 0;
    for (i, text) in record.lines().enumerate() {
        let line = i + 1;
        let read = |source| ReplayError::Read { line, source };
        let step: Step = serde_json::from_str(&text.map_err(read)?).map_err(|error| read(error.into()))?;
        match step.call {
            Call::Handle(input) => scheduler.handle(step.now, *input),
            Call::ScheduleOne(answers) => {
                scheduler.schedule_one(step.now, &mut Replaying(answers.into_iter()));
            }
        }
        let replayed: Vec<_> = scheduler.take_effects().iter().map(|effect| format!("{effect:?}")).collect();
        if replayed != step.effects {
            return Err(ReplayError::Differs { line, recorded: step.effects, replayed });
        }
        steps += 1;
    }
    Ok(steps)
}
