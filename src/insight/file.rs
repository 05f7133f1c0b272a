//! Questions to a capture, or to a record.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use supercargo_config::Config;
use supercargo_framework::Timestamp;
use supercargo_scheduler::record::{ReplayError, Restored, restore_with};
use supercargo_scheduler::{Fork, Scheduler};

use super::checkpoints::{Checkpoints, Counted, Place};
use super::file_catalog::{FileCatalog, Reopened};
use super::progress::Deadline;
use super::question::{LONG, State};
use crate::cli::output::print_error;
use supercargo_owner::options::scheduler_options;

/// The memory limit of the log of what happened to pods, for all pods of a file.
pub(crate) const TIMELINE_MEMORY: usize = 1 << 30;

/// Opens a record. A folder can be opened, too, but not read.
pub(crate) fn open(path: &Path) -> io::Result<BufReader<File>> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok(BufReader::new(file)) }
}

/// Opens a file behind these bytes.
fn open_at(path: &Path, bytes: u64) -> io::Result<Reopened> {
    let mut file = open(path)?;
    if bytes > 0 {
        file.seek(SeekFrom::Start(bytes))?;
    }
    Ok(Box::new(file))
}

/// Whether a file is not the one that the command needs.
pub(crate) fn is_wrong_file(error: &anyhow::Error) -> bool {
    error.downcast_ref::<ReplayError>().is_some_and(ReplayError::is_wrong_file)
}

/// A capture, or a record.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Capture")]
pub(crate) struct Files {
    /// Answer from this capture, or from this record of `run --record`; repeated, from the segments
    /// of one record, the first one included. --config replaces its configuration
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

    /// The state at this time, and the configuration. It continues from a checkpoint, if one is
    /// before this time, and adds checkpoints if they are new.
    pub(crate) fn at(
        &self,
        until: Timestamp,
        catalog: &FileCatalog,
        config: Option<&Path>,
        checkpoints: &mut Checkpoints,
    ) -> Result<(Fork, Arc<Config>)> {
        let files = Self { until: Some(until), ..self.clone() };
        let restored = files.restored(catalog, config, Deadline::after(LONG), checkpoints);
        checkpoints.end();
        let (State { fork, config, .. }, _) = restored?;
        Ok((fork, config))
    }

    /// Whether they are asked.
    pub(super) fn are_asked(&self) -> bool {
        !self.files.is_empty()
    }

    /// The state that they lead to, and its time. `config` is another configuration than theirs.
    pub(super) fn state(
        &self,
        catalog: &FileCatalog,
        config: Option<&Path>,
        deadline: Deadline,
    ) -> Result<(State, Timestamp)> {
        self.restored(catalog, config, deadline, &mut Checkpoints::default())
    }

    fn restored(
        &self,
        catalog: &FileCatalog,
        config: Option<&Path>,
        deadline: Deadline,
        checkpoints: &mut Checkpoints,
    ) -> Result<(State, Timestamp)> {
        let path = self.files.first().context("no file is given")?;
        let (first, catalog) = catalog.open(path)?;
        let catalog = &catalog;
        let own = config.map(|file| Config::load_or_default(Some(file), catalog)).transpose()?;
        let current = RefCell::new(own.clone().map(with_timeline));
        let current_text = RefCell::new(String::new());
        let options = || current.borrow().as_ref().map(scheduler_options).ok_or_else(String::new);
        let mut configure = |text: &str| {
            if own.is_none() {
                let new =
                    Config::parse("configuration", text, catalog).map_err(|errors| errors.to_string())?;
                *current.borrow_mut() = Some(with_timeline(new));
            }
            text.clone_into(&mut current_text.borrow_mut());
            options()
        };
        let (mut scheduler, mut last, mut is_over) = (None, None, false);
        let mut first = Some(first);
        let mut begin = Place::default();
        if let Some(checkpoint) = checkpoints.before(self.until) {
            let options = configure(&checkpoint.configuration).map_err(anyhow::Error::msg)?;
            scheduler = Some(checkpoint.scheduler(options)?);
            (begin, last) = (checkpoint.place, Some(checkpoint.now()));
        }
        for (number, file) in self.files.iter().enumerate().skip(begin.file) {
            let name = || file.display().to_string();
            let skipped = if number == begin.file { begin.bytes } else { 0 };
            let record = match first.take().filter(|_| begin == Place::default()) {
                Some(first) => first,
                None => open_at(file, skipped).with_context(|| format!("cannot read {}", name()))?,
            };
            let bytes = Rc::new(Cell::new(skipped));
            let record = Counted::new(record, Rc::clone(&bytes));
            let after = |scheduler: &Scheduler, restored: &Restored| {
                let place = Place { file: number, bytes: bytes.get() };
                checkpoints.note(scheduler, restored, (current_text.borrow().as_str(), place), options);
            };
            let restored =
                restore_with(&mut scheduler, record, &mut configure, self.until, after).with_context(name)?;
            if restored.steps > 0 {
                last = Some(restored.now);
            }
            is_over = restored.is_over;
            if restored.is_cut {
                print_error(&format!("warning: {}: the last line is cut off; the record ends there", name()));
            }
            if is_over || restored.is_cut {
                break;
            }
        }
        ensure!(last.is_some() || !is_over, "the record begins after --at");
        let empty = || format!("{}: the file is empty", self.files[0].display());
        let (scheduler, now) = scheduler.zip(last).with_context(empty)?;
        let config = current.into_inner().context("a scheduler has a configuration")?;
        if let Some(until) = self.until.filter(|until| !is_over && now.wall < *until) {
            let (end, until) = (now.wall.to_rfc3339(), until.to_rfc3339());
            print_error(&format!("warning: the record ends at {end}, before --at={until}"));
        }
        let fork = scheduler.fork(now, scheduler_options(&config))?;
        let fork = fork.stop_when(move || deadline.is_over());
        let (config, namespace) = (Arc::new(config), "default".to_owned());
        Ok((State { fork, config, namespace, deadline, most_bytes: usize::MAX }, now.wall))
    }
}

fn with_timeline(config: Config) -> Config {
    Config { timeline_memory: TIMELINE_MEMORY, ..config }
}
