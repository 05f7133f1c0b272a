//! `supercargo replay`: replays a recorded run.

use std::io::{IsTerminal as _, Write as _, stderr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{ArgGroup, Args};
use supercargo_config::flags::FeatureOptions;
use supercargo_config::{Catalog, Config};
use supercargo_report as report;
use supercargo_scheduler::record::{
    ClosedLoop, Companion, Comparer, Influence, RecordedCall, Replayed, replay_with,
};
use supercargo_scheduler::{BuildError, Effect, Options, Scheduler};
use tokio::time::Instant;

use super::output::{error_line, print, print_error};
use crate::insight::{
    FileCatalog, Format, NO_ANSWER, Reopened, TIMELINE_MEMORY, is_wrong_file, key, open_record, pod_name,
    yaml,
};
use supercargo_owner::options::scheduler_options;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("question").args(["with", "timeline", "closed_loop", "influence"]).multiple(true))]
pub(super) struct Replay {
    /// Files written by `run --record`: all segments of one run, in order
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Start with this configuration instead of the recorded one
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Compare with what this configuration decides on each recorded state. Exit codes: 0 if no
    /// decision differs, 1 if one does, 3 if the record cannot be replayed
    #[arg(long, value_name = "FILE")]
    with: Option<PathBuf>,
    /// Show what happened to this pod in the recorded run. Exit codes: 0, or 3 if the record has
    /// nothing about it or cannot be replayed
    #[arg(long, value_name = "NAMESPACE/POD", conflicts_with = "with")]
    timeline: Option<String>,
    /// Let the decisions of --with stand, and show what a model says became of the pods. Without
    /// --with, the recorded configuration decides again. Exit codes: as for --with
    #[arg(long, conflicts_with = "timeline")]
    closed_loop: bool,
    /// Show in how many attempts each plugin refuses a node, and how many would end on another
    /// node without it or with another weight. Exit codes: 0, or 3 if the record cannot be replayed
    #[arg(long, conflicts_with_all = ["with", "timeline", "closed_loop"])]
    influence: bool,
    /// Output format of --with, --timeline, --closed-loop and --influence
    #[arg(long, short, value_enum, default_value = "table", requires = "question")]
    output: Format,
    /// Value of this flag in the recorded run
    #[arg(
        long, value_name = "DURATION", default_value = "5m", value_parser = supercargo_config::flags::length
    )]
    pod_max_in_unschedulable_pods_duration: Duration,
    #[command(flatten)]
    features: FeatureOptions,
}

impl Replay {
    pub(super) fn run(&self, catalog: &Catalog) -> Result<ExitCode> {
        let catalog = FileCatalog::new(&self.features, catalog)?;
        let answer = match (&self.with, &self.timeline) {
            _ if self.closed_loop => self.model(&catalog),
            _ if self.influence => self.influence(&catalog).map(|text| (text, true)),
            (Some(with), _) => self.compare(&catalog, with),
            (None, Some(pod)) => self.history(&catalog, pod).map(|text| (text, true)),
            (None, None) => {
                let (_, steps) =
                    self.replay(self.open(&catalog)?, &mut |_: &mut Scheduler, _: &RecordedCall| {})?;
                print(format!("{steps} steps, every decision the same\n").as_bytes())?;
                return Ok(ExitCode::SUCCESS);
            }
        };
        match answer {
            Ok((text, is_same)) => {
                let text = if self.output == Format::Yaml { yaml(&text)? } else { text };
                print(text.as_bytes())?;
                Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::FAILURE })
            }
            Err(error) if is_wrong_file(&error) => Err(error),
            Err(error) => {
                print_error(&error_line(&format!("{error:#}")));
                Ok(ExitCode::from(NO_ANSWER))
            }
        }
    }

    /// How decisions differ with this configuration, and whether none does.
    fn compare(&self, catalog: &FileCatalog, with: &Path) -> Result<(String, bool)> {
        let (first, catalog) = self.open(catalog)?;
        let other = self.options(Config::load_or_default(Some(with), &catalog)?);
        let mut comparer = Comparer::new(other).with_context(|| with.display().to_string())?;
        let mut unrecorded = None;
        let mut counter = Counter::new();
        self.replay((first, catalog), &mut |scheduler: &mut Scheduler, call: &RecordedCall| {
            unrecorded.get_or_insert_with(|| comparer.unrecorded_kinds(scheduler));
            comparer.before(scheduler, call);
            counter.show(comparer.comparison.steps);
        })?;
        drop(counter);
        let unrecorded: Vec<_> = unrecorded.iter().flatten().map(ToString::to_string).collect();
        let comparison = comparer.comparison;
        let text = self.output.write(
            |width| report::comparison(&comparison, &unrecorded, width),
            || report::comparison_json(&comparison, &unrecorded),
            || comparison.differences.iter().map(|it| pod_name(&it.pod)).collect(),
        );
        Ok((text, comparison.differing() == 0))
    }

    /// What a model says became of the pods, and whether that is as recorded.
    fn model(&self, catalog: &FileCatalog) -> Result<(String, bool)> {
        let (first, catalog) = self.open(catalog)?;
        let given = self.with.as_deref().or(self.config.as_deref());
        let given = given.map(|file| Config::load_or_default(Some(file), &catalog)).transpose()?;
        let own = catalog.clone();
        let configure = |text: &str| {
            let config = Config::parse("configuration", text, &own).ok()?;
            Some(self.options(config))
        };
        let mut modelling = Modelling {
            options: given.map(|config| self.options(config)),
            configure: &configure,
            is_recorded: self.with.is_none(),
            run: None,
            counter: Counter::new(),
        };
        let (scheduler, _) = self.replay((first, catalog), &mut modelling)?;
        drop(modelling.counter);
        let run = modelling.run.context("the record has no configuration")??.end(&scheduler)?;
        let text = self.output.write(
            |width| report::modelled_run(&run, width),
            || report::modelled_run_json(&run),
            || run.outcomes.iter().map(|it| pod_name(&it.pod)).collect(),
        );
        Ok((text, run.outcomes.is_empty()))
    }

    /// How much each plugin decides.
    fn influence(&self, catalog: &FileCatalog) -> Result<String> {
        let mut influence = Influence::default();
        let mut counter = Counter::new();
        self.replay(self.open(catalog)?, &mut |scheduler: &mut Scheduler, call: &RecordedCall| {
            influence.before(scheduler, call);
            counter.show(influence.steps);
        })?;
        drop(counter);
        Ok(self.output.write(
            |width| report::influence(&influence, width),
            || report::influence_json(&influence),
            Vec::new,
        ))
    }

    /// What happened to a pod.
    fn history(&self, catalog: &FileCatalog, pod: &str) -> Result<String> {
        let pod = key(pod, None, "default")?;
        let mut counter = Counter::new();
        let mut steps = 0;
        let (scheduler, _) =
            self.replay(self.open(catalog)?, &mut |_: &mut Scheduler, _: &RecordedCall| {
                steps += 1;
                counter.show(steps);
            })?;
        drop(counter);
        let history = scheduler.history(&pod).unwrap_or_default();
        ensure!(!history.entries.is_empty(), "the record has nothing about pod {pod}");
        Ok(self.output.write(
            |width| report::timeline(&pod, &history, width),
            || report::timeline_json(&pod, &history),
            || vec![pod_name(&pod)],
        ))
    }

    fn options(&self, mut config: Config) -> Options {
        if self.timeline.is_some() {
            config.timeline_memory = TIMELINE_MEMORY;
        }
        config.pod_max_in_unschedulable_pods_duration = self.pod_max_in_unschedulable_pods_duration;
        scheduler_options(&config)
    }

    /// The first file, and the catalog with its feature gates.
    fn open(&self, catalog: &FileCatalog) -> Result<(Reopened, Catalog)> {
        catalog.open(self.files.first().context("no file is given")?)
    }

    /// Replays the record, and shows `companion` each call. Returns the scheduler and the
    /// number of steps.
    fn replay(
        &self,
        (first, catalog): (Reopened, Catalog),
        companion: &mut impl Companion,
    ) -> Result<(Scheduler, usize)> {
        let own = self.config.as_deref().map(|file| Config::load_or_default(Some(file), &catalog));
        let mut own = own.transpose()?;
        let mut configure = |text: &str| {
            // The first one is that of the begin.
            let config = match own.take() {
                Some(own) => own,
                None => {
                    Config::parse("configuration", text, &catalog).map_err(|errors| errors.to_string())?
                }
            };
            Ok(self.options(config))
        };
        let (mut scheduler, mut first) = (None, Some(first));
        let (mut steps, mut incomplete): (_, Option<String>) = (0, None);
        for file in &self.files {
            let name = file.display().to_string();
            if let Some(problem) = incomplete {
                bail!("{problem}, but {name} follows");
            }
            let record = match first.take() {
                Some(first) => first,
                None => Box::new(open_record(file).with_context(|| format!("cannot read {name}"))?),
            };
            let replayed = replay_with(&mut scheduler, record, &mut configure, companion);
            let replayed = replayed.with_context(|| name.clone())?;
            incomplete = problem(&replayed).map(|problem| format!("{name}: {problem}"));
            steps += replayed.steps;
        }
        let scheduler =
            scheduler.with_context(|| format!("{}: the record is empty", self.files[0].display()))?;
        // A crash ends a record at any byte.
        if let Some(problem) = incomplete {
            print_error(&format!("warning: {problem}; the replay ends there"));
        }
        Ok((scheduler, steps))
    }
}

type Configure<'a> = &'a dyn Fn(&str) -> Option<Options>;
type Reconfigure<'a> = Box<dyn FnMut(&str) -> Option<Options> + 'a>;

/// A modelled run, which begins with the record.
struct Modelling<'a> {
    /// The first options, if they are not the recorded ones.
    options: Option<Options>,
    configure: Configure<'a>,
    /// Whether later configurations are the recorded ones.
    is_recorded: bool,
    run: Option<Result<ClosedLoop<Reconfigure<'a>>, BuildError>>,
    counter: Counter,
}

impl Companion for Modelling<'_> {
    fn begin(&mut self, configuration: &str) {
        let (configure, is_recorded) = (self.configure, self.is_recorded);
        let first = self.options.take().or_else(|| configure(configuration));
        let reconfigure = move |text: &str| if is_recorded { configure(text) } else { None };
        self.run = first.map(|options| ClosedLoop::new(options, Box::new(reconfigure) as Reconfigure<'_>));
    }

    fn before(&mut self, scheduler: &mut Scheduler, call: &RecordedCall) {
        if let Some(Ok(run)) = &mut self.run {
            run.before(scheduler, call);
        }
    }

    fn after(&mut self, scheduler: &Scheduler, effects: &[Effect]) {
        if let Some(Ok(run)) = &mut self.run {
            run.after(scheduler, effects);
            self.counter.show(run.steps());
        }
    }
}

/// Why a segment of a record is not complete.
fn problem(replayed: &Replayed) -> Option<&'static str> {
    if replayed.is_cut {
        Some("the last line is cut off")
    } else {
        (replayed.steps == 0).then_some("the file is empty")
    }
}

/// Counts steps on standard error, if that is a terminal.
struct Counter {
    /// The time of the last line; `None` without a terminal.
    last: Option<Instant>,
    is_shown: bool,
}

impl Counter {
    /// The time between two lines, and before the first.
    const INTERVAL: Duration = Duration::from_millis(200);

    fn new() -> Self {
        Self { last: stderr().is_terminal().then(Instant::now), is_shown: false }
    }

    fn show(&mut self, steps: usize) {
        if let Some(last) = &mut self.last
            && last.elapsed() >= Self::INTERVAL
        {
            *last = Instant::now();
            self.is_shown = true;
            // Nobody may read it.
            let _ = write!(stderr(), "\r{steps} steps ");
        }
    }
}

/// Clears the line.
impl Drop for Counter {
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(stderr(), "\r{:40}\r", "");
        }
    }
}
