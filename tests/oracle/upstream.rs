//! Upstream's side: a program that plays histories with kube-scheduler's package.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use supercargo_controlplane::Oracle;

use super::answer::Answer;
use super::history::History;

/// The running program and the thread that talks to it.
pub(super) struct Upstream {
    questions: Sender<String>,
    answers: Receiver<Result<String>>,
}

/// Its answer to a history.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answers {
    #[serde(default)]
    steps: Vec<Answer>,
    #[serde(default)]
    error: String,
}

impl Upstream {
    /// Starts it, or returns `None` after printing why the test is skipped.
    pub(super) fn start_or_skip() -> Option<Self> {
        let mut oracle = Oracle::start_or_skip()?;
        let (questions, asked) = channel::<String>();
        let (answered, answers) = channel();
        // The thread ends when its channels close.
        thread::spawn(move || {
            for question in asked {
                if answered.send(oracle.ask(&question)).is_err() {
                    break;
                }
            }
        });
        Some(Self { questions, answers })
    }

    /// Sends a history; [`answers`](Self::answers) returns the answers in the same order.
    pub(super) fn ask(&self, history: &History) -> Result<()> {
        self.questions.send(history.line()).context("ask upstream's side, which has ended")
    }

    pub(super) fn answers(&self) -> Result<Vec<Answer>> {
        let line = self.answers.recv().context("hear upstream's side, which has ended")??;
        let answers: Answers = serde_json::from_str(&line).context("read upstream's answers")?;
        if !answers.error.is_empty() {
            bail!("upstream's side says: {}", answers.error);
        }
        Ok(answers.steps)
    }

    /// Plays one history.
    pub(super) fn play(&self, history: &History) -> Result<Vec<Answer>> {
        self.ask(history)?;
        self.answers()
    }
}
