//! A file of command lines that run in sequence. `README.md` describes the format.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::normal::Names;
use super::output;
use super::table::{Variables, fill, read_all};
use super::target::Target;

/// The timeout of a command on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    #[serde(skip)]
    pub(super) name: String,
    pub(super) about: String,
    /// Whether both servers serve the kinds of gang scheduling.
    #[serde(default)]
    pub(super) pod_groups: bool,
    /// The files in the session's folder.
    #[serde(default)]
    files: BTreeMap<String, String>,
    steps: Vec<Step>,
}

/// One command line, without `kubectl`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    /// Runs to its end.
    run: Option<String>,
    /// Runs in the background until `end`. The next steps wait until it has printed `lines` lines,
    /// so that it has seen the initial state.
    start: Option<String>,
    /// Ends a started command line, after waiting for its lines.
    end: Option<String>,
    #[serde(default)]
    lines: usize,
    /// The expected exit code.
    #[serde(default)]
    code: i32,
    /// Substrings of the output.
    #[serde(default)]
    says: Vec<String>,
    /// The standard input.
    input: Option<String>,
    /// Only compares lines that begin with one of these words.
    #[serde(default)]
    only: Vec<String>,
    /// Whether to ignore the order of lines.
    #[serde(default)]
    sorted: bool,
}

/// kubectl for one server.
pub(super) struct Shell<'a> {
    program: &'a Path,
    target: &'a Target,
    folder: PathBuf,
}

/// The outcome of one command.
pub(super) struct Outcome {
    pub(super) command: String,
    /// Status code and output, normalized.
    pub(super) seen: serde_json::Value,
    /// Deviations from the session's expectations.
    pub(super) faults: Vec<String>,
    pub(super) took: Duration,
}

/// A started command.
struct Running {
    child: Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStdout>>,
    /// The output so far, and its number of lines.
    reported: (String, usize),
}

impl Session {
    /// All files of a folder.
    pub(super) fn all(folder: &Path) -> Result<Vec<Self>> {
        read_all(folder, |name, session: &mut Self| {
            name.clone_into(&mut session.name);
            session.check()
        })
    }

    fn check(&self) -> Result<()> {
        ensure!(self.about.ends_with('.'), "`about` is not a sentence");
        for step in &self.steps {
            let given = [&step.run, &step.start, &step.end].iter().filter(|given| given.is_some()).count();
            ensure!(given == 1, "a step needs exactly one action: {step:?}");
            let known = |started: &String| self.steps.iter().any(|step| step.start.as_ref() == Some(started));
            ensure!(step.end.as_ref().is_none_or(known), "the command was not started: {step:?}");
        }
        Ok(())
    }

    /// The number of command lines.
    pub(super) fn len(&self) -> usize {
        self.steps.iter().filter(|step| step.end.is_none()).count()
    }

    /// Runs all commands in a namespace of their own.
    pub(super) async fn run(&self, shell: &Shell<'_>) -> Vec<Outcome> {
        let namespace = format!("kubectl-{}", self.name);
        let variables = Variables::from([("ns".to_owned(), namespace.clone())]);
        let folder = shell.folder.join(&self.name);
        fs::create_dir_all(&folder).unwrap();
        for (name, text) in &self.files {
            fs::write(folder.join(name), fill(text, &variables)).unwrap();
        }
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
        let (code, answer) = shell.target.call("POST", "/api/v1/namespaces", Some(&object)).await;
        assert_eq!(code, 201, "{answer}");

        let mut names = Names::default();
        let mut running = BTreeMap::new();
        let mut outcomes = Vec::new();
        for step in &self.steps {
            let began = Instant::now();
            let command = |line: &str| shell.command(&fill(line, &variables), &namespace, &folder);
            let (line, ended) = match (&step.run, &step.start, &step.end) {
                (Some(line), _, _) => (line, finish(command(line), step.input.as_deref()).await),
                (_, Some(line), _) => {
                    let mut started = Running::start(command(line));
                    started.wait_for_lines(step.lines).await;
                    running.insert(line, started);
                    continue;
                }
                (_, _, Some(line)) => {
                    (line, running.remove(line).expect("it was started").lines(step.lines).await)
                }
                _ => unreachable!("a step needs exactly one action"),
            };
            let what = format!("{}: kubectl {line}", shell.target.name);
            let faults = step.faults(&what, &ended);
            let seen = output::normal(line, ended, &step.only, step.sorted, &mut names);
            outcomes.push(Outcome { command: line.clone(), seen, faults, took: began.elapsed() });
        }
        outcomes
    }
}

impl Step {
    fn faults(&self, what: &str, ended: &Ended) -> Vec<String> {
        let Ended { code, stdout, stderr } = ended;
        let mut faults = Vec::new();
        if *code != self.code {
            faults.push(format!(
                "{what}: expected the status code {}, got {code}:\n{stdout}{stderr}",
                self.code
            ));
        }
        for text in &self.says {
            if !stdout.contains(text) && !stderr.contains(text) {
                faults.push(format!("{what}: does not say {text:?}:\n{stdout}{stderr}"));
            }
        }
        faults
    }
}

/// The result of a command.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) code: i32,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl<'a> Shell<'a> {
    /// `folder` is the working directory.
    pub(super) fn new(program: &'a Path, target: &'a Target, folder: &Path) -> Self {
        let folder = folder.join(target.name);
        fs::create_dir_all(folder.join("home")).unwrap();
        Self { program, target, folder }
    }

    fn command(&self, line: &str, namespace: &str, folder: &Path) -> Command {
        let mut command = Command::new(self.program);
        command
            .args(words(line))
            .arg("--namespace")
            .arg(namespace)
            .arg("--cache-dir")
            .arg(self.folder.join("cache"))
            .current_dir(folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.folder.join("home"))
            .env("KUBECONFIG", &self.target.kubeconfig)
            .env("TZ", "UTC")
            .env("KUBE_EDITOR", "sed -i s/before-edit/after-edit/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }
}

async fn finish(mut command: Command, input: Option<&str>) -> Ended {
    if input.is_some() {
        command.stdin(Stdio::piped());
    }
    let mut child = command.spawn().unwrap();
    if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
        stdin.write_all(input.as_bytes()).await.unwrap();
    }
    let output = timeout(PATIENCE, child.wait_with_output()).await;
    let output = output.unwrap_or_else(|_| panic!("timed out: {command:?}")).unwrap();
    Ended {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

impl Running {
    fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines, reported: (String::new(), 0) }
    }

    /// Waits until the command has printed a total number of lines.
    async fn wait_for_lines(&mut self, count: usize) {
        let (reported, heard) = &mut self.reported;
        while *heard < count {
            let line = timeout(PATIENCE, self.lines.next_line()).await;
            match line {
                Ok(Ok(Some(line))) => *reported += &(line + "\n"),
                Ok(Ok(None)) => break,
                Ok(Err(error)) => panic!("cannot read the output of kubectl: {error}"),
                Err(_) => {
                    *reported += "says nothing more\n";
                    break;
                }
            }
            *heard += 1;
        }
    }

    /// Waits until the command has printed a total number of lines, then ends it.
    async fn lines(mut self, count: usize) -> Ended {
        self.wait_for_lines(count).await;
        self.child.kill().await.unwrap();
        Ended { code: 0, stdout: self.reported.0, stderr: String::new() }
    }
}

/// Splits a command line at spaces outside of quotes.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), letter) if open == letter => quote = None,
            (None, '\'' | '"') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, ' ' | '\n') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_keep_words_together() {
        assert_eq!(words("patch a -p '{\"b\": 1}'  ''"), ["patch", "a", "-p", "{\"b\": 1}", ""]);
    }
}
