//! Upstream's side: the program that plays histories on kube-scheduler's own package.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

use super::answer::Answer;
use super::history::History;

/// The program, running.
pub(super) struct Upstream {
    child: Child,
    input: Option<ChildStdin>,
    /// Its lines. They are read as they come: it takes no more input while nobody reads what it says.
    lines: Receiver<std::io::Result<String>>,
}

/// What it prints for a history.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Answers {
    #[serde(default)]
    steps: Vec<Answer>,
    #[serde(default)]
    error: String,
}

impl Upstream {
    pub(super) fn start(program: &Path) -> Result<Self> {
        let mut child = Command::new(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("its output is a pipe")?);
        let (sender, lines) = channel();
        // It ends with the program.
        thread::spawn(move || output.lines().try_for_each(|line| sender.send(line)));
        Ok(Self { child, input, lines })
    }

    /// Asks for the answers to a history; [`answers`](Self::answers) takes them, in the order of asking.
    pub(super) fn ask(&mut self, history: &History) -> Result<()> {
        let input = self.input.as_mut().context("its input is open")?;
        writeln!(input, "{}", history.line()).and_then(|()| input.flush()).context("write to upstream's side")
    }

    pub(super) fn answers(&mut self) -> Result<Vec<Answer>> {
        let Ok(line) = self.lines.recv() else {
            bail!("upstream's side has ended: {:?}", self.child.try_wait());
        };
        let line = line.context("read from upstream's side")?;
        let answers: Answers = serde_json::from_str(&line).context("read upstream's answers")?;
        if !answers.error.is_empty() {
            bail!("upstream's side says: {}", answers.error);
        }
        Ok(answers.steps)
    }

    /// Plays one history.
    pub(super) fn play(&mut self, history: &History) -> Result<Vec<Answer>> {
        self.ask(history)?;
        self.answers()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        // It ends when its input does; a test that failed need not wait for what it still has to say.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
