//! The command line.

use crate::Result;

pub(crate) const HELP: &str = "\
Measures the informers of this crate, client-go and kube_runtime

Usage: cargo bench -p kube-informers --bench informers [-- OPTIONS] [FILTER]

Options:
      --pods N      Number of pods of 2 KB; a fifth as many large pods [default: 50000]
      --events N    Number of changes; a fifth as many to large pods [default: 50000]
      --rounds N    Number of rounds [default: 5]
      --only PART   Run only pipeline (after decoding) or wire (from a server)
      --no-go       Skip client-go
  -o, --output AS   Output format: table or json [default: table]
      --test        Run everything once with little work, as a smoke test
  -h, --help        Print help
  [FILTER]          Run only if the name of this benchmark contains this text
";

/// The options.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) pods: usize,
    pub(crate) events: usize,
    pub(crate) rounds: usize,
    pub(crate) pipeline: bool,
    pub(crate) wire: bool,
    pub(crate) go: bool,
    pub(crate) json: bool,
    pub(crate) test: bool,
}

/// The command.
pub(crate) enum Command {
    Measure(Options),
    Help,
    /// Another benchmark was selected.
    Nothing,
}

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Command> {
        let mut options = Self {
            pods: 50_000,
            events: 50_000,
            rounds: 5,
            pipeline: true,
            wire: true,
            go: true,
            json: false,
            test: false,
        };
        // `cargo test` runs this without `--bench`, `cargo bench` with it.
        let mut bench = false;
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let (name, given) = match argument.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name.to_owned(), Some(value.to_owned())),
                _ => (argument, None),
            };
            let mut value =
                || given.clone().or_else(|| arguments.next()).ok_or(format!("{name} needs a value"));
            match name.as_str() {
                "--pods" => options.pods = count(&value()?, 1)?,
                "--events" => options.events = count(&value()?, 1)?,
                "--rounds" => options.rounds = count(&value()?, 1)?,
                "--only" => match value()?.as_str() {
                    "pipeline" => options.wire = false,
                    "wire" => options.pipeline = false,
                    other => {
                        return Err(
                            format!("no part is called {other:?}; there are pipeline and wire").into()
                        );
                    }
                },
                "--no-go" => options.go = false,
                "-o" | "--output" => match value()?.as_str() {
                    "table" => options.json = false,
                    "json" => options.json = true,
                    other => return Err(format!("cannot write {other:?}, only table and json").into()),
                },
                "--test" => options.test = true,
                "-h" | "--help" => return Ok(Command::Help),
                "--bench" => bench = true,
                // Options of the other benchmarks' library, accepted so that one command line
                // serves all.
                "--save-baseline" | "--baseline" => drop(value()?),
                _ if name.starts_with('-') => {
                    return Err(format!("no option is called {name}; see --help").into());
                }
                filter if !"informers".contains(filter) => return Ok(Command::Nothing),
                _ => {}
            }
        }
        if options.test || !bench {
            options = Self { pods: 200, events: 100, rounds: 1, test: true, ..options };
        }
        Ok(Command::Measure(options))
    }
}

fn count(text: &str, least: usize) -> Result<usize> {
    let number = text.parse().ok().filter(|number| *number >= least);
    number.ok_or_else(|| format!("{text:?} is not a number from {least} on").into())
}
