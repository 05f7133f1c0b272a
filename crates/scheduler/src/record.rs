//! Recording what a scheduler was told, and replaying it.
//!
//! A record is a sequence of lines of JSON: what was called, at what time, what extenders answered, and what came of it. A
//! replay makes the same calls to a new scheduler with the same configuration and compares what comes of them.

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
    /// `schedule_one`, with what extenders answered.
    ScheduleOne(Vec<Result<ExtenderAnswer, String>>),
}

/// A call and what came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    /// When.
    pub now: Now,
    /// What was called.
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
    /// Records the calls to `scheduler`, which must be new, into `log`.
    pub fn new(scheduler: Scheduler, log: W) -> Self {
        Self { scheduler, log }
    }

    /// The scheduler, to look at.
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

    /// Writes out what is buffered.
    pub fn flush(&mut self) -> io::Result<()> {
        self.log.flush()
    }
}

/// Notes what extenders answer.
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

/// Answers from a record.
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
        /// The line, from 1.
        line: usize,
        /// Why.
        source: io::Error,
    },
    /// Other effects came of a call than recorded.
    #[error("line {line}: the record has {recorded:#?}, the replay {replayed:#?}")]
    Differs {
        /// The line, from 1.
        line: usize,
        /// What was recorded.
        recorded: Vec<String>,
        /// What came of it now.
        replayed: Vec<String>,
    },
}

/// Makes the recorded calls to `scheduler`, which must be new and configured as the recorded one was. Returns the number of
/// steps.
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
