//! Questions to a capture, or to a record.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use supercargo_config::{Catalog, Config};
use supercargo_framework::Timestamp;
use supercargo_scheduler::record::restore;
use supercargo_scheduler::{Fork, Scheduler};

use super::progress::Deadline;
use super::question::{LONG, State};
use crate::options::scheduler_options;

/// The memory limit of the log of what happened to pods, for all pods of a file.
pub(crate) const TIMELINE_MEMORY: usize = 1 << 30;

/// Opens a record. A folder can be opened, too, but not read.
pub(crate) fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(BufReader::new(file)) }
}

/// A capture, or a record.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Capture")]
pub(crate) struct Files {
    /// Answer from this capture, or from this record of `run --record`; repeated, from the segments
    /// of one record. --config replaces its configuration
    #[arg(long = "from", value_name = "FILE", conflicts_with_all = ["leader", "server", "standalone"])]
    files: Vec<PathBuf>,
    /// Answer for this time in the record, such as 2026-11-28T14:02:11Z. Defaults to its end
    #[arg(long = "at", value_name = "TIME", requires = "files", value_parser = time)]
    until: Option<Timestamp>,
}

fn time(text: &str) -> Result<Timestamp, String> {
    let time: jiff::Timestamp = text.parse().map_err(|_| "must be like 2026-11-28T14:02:11Z".to_owned())?;
    Ok(Timestamp(time.as_microsecond()))
}

impl Files {
    /// A record or a capture, up to its end.
    pub(crate) fn new(files: Vec<PathBuf>) -> Self {
        Self { files, until: None }
    }

    /// The state at this time, and the configuration.
    pub(crate) fn at(
        &self,
        until: Timestamp,
        catalog: &Catalog,
        config: Option<&Path>,
    ) -> Result<(Fork, Arc<Config>)> {
        let files = Self { until: Some(until), ..self.clone() };
        let State { fork, config, .. } = files.state(catalog, config, Deadline::after(LONG))?;
        Ok((fork, config))
    }

    /// Whether they are asked.
    pub(super) fn are_asked(&self) -> bool {
        !self.files.is_empty()
    }

    /// The state that they lead to. `config` is another configuration than theirs.
    pub(super) fn state(
        &self,
        catalog: &Catalog,
        config: Option<&Path>,
        deadline: Deadline,
    ) -> Result<State> {
        let is_fixed = config.is_some();
        let mut current = with_timeline(Config::load_or_default(config, catalog)?);
        let mut scheduler = Scheduler::new(scheduler_options(&current))?;
        let (mut now, mut steps) = (None, 0);
        for file in &self.files {
            let name = || file.display().to_string();
            let configure = |text: &str| {
                if !is_fixed {
                    let new = Config::parse("configuration", text, catalog);
                    current = with_timeline(new.map_err(|errors| errors.to_string())?);
                }
                Ok(scheduler_options(&current))
            };
            let record = open(file).with_context(|| format!("cannot read {}", name()))?;
            let restored = restore(&mut scheduler, record, configure, self.until).with_context(name)?;
            steps += restored.steps;
            if restored.steps > 0 {
                now = Some(restored.now);
            }
            if restored.is_over {
                break;
            }
        }
        let now = now.filter(|_| steps > 0);
        ensure!(now.is_some() || self.until.is_none(), "the record begins after --at");
        let now = now.with_context(|| format!("{}: the file is empty", self.files[0].display()))?;
        let fork = scheduler.fork(now, scheduler_options(&current))?;
        let fork = fork.stop_when(move || deadline.is_over());
        Ok(State { fork, config: Arc::new(current), namespace: "default".to_owned(), deadline })
    }
}

fn with_timeline(config: Config) -> Config {
    Config { timeline_memory: TIMELINE_MEMORY, ..config }
}
