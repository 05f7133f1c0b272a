//! `simulate`: runs seeds, each in a process of its own, and sums up.

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum as _};
use supercargo_simulation::entropy;
use supercargo_simulation::plan::{Mood, Plan};
use supercargo_simulation::regressions;
use supercargo_simulation::run::{Options, Report, run};
use supercargo_simulation::sabotage::Sabotage;

/// Runs supercargo as a whole under seeds, with faults.
///
/// Each seed decides a cluster, its workload and its faults. A failure prints the seed and the
/// command that repeats it.
#[derive(Parser)]
struct Arguments {
    /// The number of seeds.
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// The first seed, or "today": other seeds each day.
    #[arg(long, default_value = "1", value_parser = first_seed)]
    from: u64,
    /// Run seeds that failed once, before the others.
    #[arg(long)]
    regressions: bool,
    /// Start no further seed, and look for no further bug, after this many seconds.
    #[arg(long)]
    within: Option<u64>,
    /// The simulated minutes with workload and faults, per seed.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// The number of processes.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Run each seed twice, and compare the traces.
    #[arg(long)]
    twice: bool,
    /// Run this seed only, in this process.
    #[arg(long)]
    seed: Option<u64>,
    /// Print the trace and the logs.
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Leave out faults of the plan, by their positions.
    #[arg(long, value_delimiter = ',')]
    without: Vec<usize>,
    /// Leave out faults until only those are left that the failure needs.
    #[arg(long, requires = "seed")]
    shrink: bool,
    /// A deliberate bug of the program.
    #[arg(long, value_enum)]
    sabotage: Option<Sabotage>,
    /// Find every deliberate bug, each within this many seeds that pass without it.
    #[arg(long)]
    find_sabotage: Option<u64>,
    /// Print the report of a seed as JSON.
    #[arg(long, hide = true)]
    json: bool,
}

fn main() -> ExitCode {
    match Arguments::parse().execute() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("simulate: {error:#}");
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn execute(&self) -> Result<bool> {
        match (self.seed, self.find_sabotage) {
            (Some(seed), _) if self.shrink => self.shrink(seed),
            (Some(seed), _) => self.run_here(seed),
            (None, Some(seeds)) => self.find_sabotage(seeds),
            (None, None) => self.run_all(),
        }
    }

    /// Runs one seed in this process.
    fn run_here(&self, seed: u64) -> Result<bool> {
        // The end of a run takes as long as half an hour.
        let longest = LONGEST_MINUTE * u32::try_from(self.minutes + 30).unwrap_or(u32::MAX);
        std::thread::spawn(move || {
            std::thread::sleep(longest);
            eprintln!("simulate: seed {seed} does not end");
            std::process::exit(1);
        });
        entropy::seed(seed);
        if self.trace {
            let subscriber = tracing_subscriber::fmt().without_time().with_ansi(false);
            let _ = subscriber.with_writer(std::io::stdout).try_init();
        }
        let options = Options {
            seed,
            length: Duration::from_secs(60 * self.minutes),
            without: self.without.clone(),
            sabotage: self.sabotage,
            trace: self.trace,
        };
        // A new thread takes the keys of its maps from the seed.
        let Ok(report) = std::thread::spawn(move || run(&options)).join() else {
            eprintln!("simulate: seed {seed} panicked");
            return Ok(false);
        };
        let report = report?;
        if self.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            print!("{}", Summary::of(std::slice::from_ref(&report), Duration::ZERO));
            println!("trace {:016x}", report.hash);
            for failure in &report.failures {
                println!("FAILED {failure}");
            }
            if !report.failures.is_empty() {
                println!("again with: {}", command(seed, self.minutes, &self.without, self.sabotage));
            }
        }
        Ok(report.failures.is_empty())
    }

    /// A process that runs one seed.
    fn start(&self, seed: u64, minutes: u64, without: &[usize], sabotage: Option<Sabotage>) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--json", "--seed", &seed.to_string(), "--minutes", &minutes.to_string()]);
        if !without.is_empty() {
            command.args(["--without", &positions(without)]);
        }
        if let Some(sabotage) = sabotage {
            command.args(["--sabotage", &name(sabotage)]);
        }
        command.env("RUST_BACKTRACE", "0").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().context("cannot start a process")
    }

    fn run_one(&self, seed: u64, without: &[usize], sabotage: Option<Sabotage>) -> Result<Report> {
        finish(seed, self.start(seed, self.minutes, without, sabotage)?)
    }

    fn run_all(&self) -> Result<bool> {
        let began = Instant::now();
        println!("seeds {} to {}", self.from, self.from + self.seeds.saturating_sub(1));
        let runs = if self.twice { 2 } else { 1 };
        let failed_once = if self.regressions { regressions::ALL } else { &[] };
        let failed_once = failed_once.iter().map(|it| (it.seed, it.minutes, Some(it.name)));
        let others = (self.from..self.from + self.seeds).map(|seed| (seed, self.minutes, None));
        let mut seeds = failed_once.chain(others).flat_map(|seed| std::iter::repeat_n(seed, runs));
        let (mut running, mut reports) = (Vec::new(), Vec::<Report>::new());
        let mut printed = Duration::ZERO;
        loop {
            let is_late = self.within.is_some_and(|limit| began.elapsed().as_secs() >= limit);
            while running.len() < self.jobs.max(1)
                && !is_late
                && let Some((seed, minutes, name)) = seeds.next()
            {
                let child = self.start(seed, minutes, &self.without, self.sabotage)?;
                running.push((seed, minutes, name, child));
            }
            if running.is_empty() {
                break;
            }
            // The oldest first: seeds take about the same time.
            let (seed, minutes, name, child) = running.remove(0);
            let mut report = finish(seed, child)?;
            // Reports come in order.
            if let Some(first) = reports.last().filter(|_| reports.len() % runs == 1)
                && first.hash != report.hash
            {
                let hashes = format!("{:x} and {:x}", first.hash, report.hash);
                report.failures.push(format!("it is not reproducible: traces {hashes}"));
            }
            if !report.failures.is_empty() {
                if let Some(name) = name {
                    println!("regression: {name}");
                }
                let command = command(seed, minutes, &self.without, self.sabotage);
                println!("seed {seed} failed; again with: {command}");
                println!("    --shrink instead of --trace finds the faults that it needs");
                report.failures.iter().take(5).for_each(|failure| println!("    {failure}"));
            }
            reports.push(report);
            progress(&reports, began.elapsed(), &mut printed);
        }
        let summary = Summary::of(&reports, began.elapsed());
        let rare = if self.sabotage.is_none() { summary.rare_checks() } else { Vec::new() };
        print!("{summary}");
        rare.iter().for_each(|check| println!("FAILED too few {check}"));
        Ok(summary.failed == 0 && rare.is_empty())
    }

    /// Leaves out one fault after the other, as long as the run fails.
    fn shrink(&self, seed: u64) -> Result<bool> {
        let mut without = self.without.clone();
        let first = self.run_one(seed, &without, self.sabotage)?;
        let Some(failure) = first.failures.first().map(|failure| kind_of(failure)) else {
            println!("seed {seed} does not fail");
            return Ok(true);
        };
        // Larger parts first.
        let all = Plan::new(seed, Duration::from_secs(60 * self.minutes), &[]).faults.len();
        let mut part = all.div_ceil(2);
        while part > 0 {
            let kept: Vec<usize> = (0..all).filter(|position| !without.contains(position)).collect();
            for some in kept.chunks(part) {
                let candidate: Vec<usize> = without.iter().chain(some).copied().collect();
                // Another failure may need other faults.
                let failures = self.run_one(seed, &candidate, self.sabotage)?.failures;
                if failures.iter().any(|it| kind_of(it) == failure) {
                    without = candidate;
                    println!("{} of {all} faults are left", all - without.len());
                }
            }
            part = if part == 1 { 0 } else { part.div_ceil(2) };
        }
        without.sort_unstable();
        println!(
            "{} of {all} faults are needed: {}",
            all - without.len(),
            command(seed, self.minutes, &without, self.sabotage)
        );
        Ok(false)
    }

    /// A bug is found if a seed fails with it and passes without it.
    fn find_sabotage(&self, seeds: u64) -> Result<bool> {
        let mut sound = BTreeMap::<u64, bool>::new();
        let mut all_are_found = true;
        let began = Instant::now();
        let mut wanted = self.sabotage.map_or_else(|| Sabotage::all().to_vec(), |one| vec![one]);
        // Others each day, if there is no time for all.
        if self.within.is_some() {
            let day = usize::try_from(today()).unwrap_or_default();
            let first = (BUGS_A_DAY * day) % wanted.len();
            wanted.rotate_left(first);
        }
        let all = wanted.len();
        for (tried, sabotage) in wanted.into_iter().enumerate() {
            if self.within.is_some_and(|limit| began.elapsed().as_secs() >= limit) {
                println!("there was no time for {} of {all} bugs", all - tried);
                break;
            }
            let mut found = None;
            for seed in self.from..self.from + seeds {
                let report = self.run_one(seed, &self.without, Some(sabotage))?;
                let mut failures = report.failures.into_iter();
                let Some(failure) = failures.find(|failure| failure.contains(sabotage.evidence())) else {
                    continue;
                };
                let is_sound = match sound.get(&seed) {
                    Some(is_sound) => *is_sound,
                    None => {
                        let failures = self.run_one(seed, &self.without, None)?.failures;
                        if let Some(failure) = failures.first() {
                            let command = command(seed, self.minutes, &self.without, None);
                            println!("seed {seed} fails without a bug: {failure}; again with: {command}");
                            all_are_found = false;
                        }
                        sound.insert(seed, failures.is_empty());
                        failures.is_empty()
                    }
                };
                if is_sound {
                    found = Some((seed, failure));
                    break;
                }
            }
            match found {
                Some((seed, failure)) => println!("{:<20} seed {seed}: {failure}", name(sabotage)),
                None => {
                    println!("{:<20} not found", name(sabotage));
                    all_are_found = false;
                }
            }
        }
        Ok(all_are_found)
    }
}

/// The command that repeats a seed without these faults, in the same build: others take other
/// paths.
fn command(seed: u64, minutes: u64, without: &[usize], sabotage: Option<Sabotage>) -> String {
    let program = if cfg!(debug_assertions) { DEBUG_BUILD } else { "cargo xtask simulate" };
    let mut command = format!("{program} --seed {seed} --minutes {minutes} --trace");
    if let Some(sabotage) = sabotage {
        command += &format!(" --sabotage {}", name(sabotage));
    }
    if !without.is_empty() {
        command += &format!(" --without {}", positions(without));
    }
    command
}

/// What runs the program as the tests build it.
const DEBUG_BUILD: &str = "cargo run -p supercargo-simulation --";

/// A failure without words that have digits: names, amounts and times.
fn kind_of(failure: &str) -> String {
    let words = failure.split_whitespace().filter(|word| !word.contains(|char: char| char.is_ascii_digit()));
    words.collect::<Vec<_>>().join(" ")
}

/// Waits for a process and reads its report.
fn finish(seed: u64, child: Child) -> Result<Report> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    match text.lines().last().and_then(|line| serde_json::from_str(line).ok()) {
        Some(report) => Ok(report),
        // A panic is a failure of the seed.
        None => {
            let errors = String::from_utf8_lossy(&output.stderr);
            let failures = vec![format!("ended with {}: {}", output.status, errors.trim())];
            Ok(Report {
                seed,
                mood: Plan::new(seed, Duration::ZERO, &[]).mood,
                simulated: Duration::ZERO,
                took: Duration::ZERO,
                hash: 0,
                counts: BTreeMap::new(),
                failures,
            })
        }
    }
}

/// No simulated minute takes this long. A process that waits forever would hold up all others.
const LONGEST_MINUTE: Duration = Duration::from_mins(1);
/// How often progress is printed if nobody looks at a terminal.
const PROGRESS_PERIOD: Duration = Duration::from_mins(1);

/// Seeds of a day: its number times this, and on.
const SEEDS_A_DAY: u64 = 1000;

/// About as many deliberate bugs as there is time for.
const BUGS_A_DAY: usize = 5;

/// The number of this day.
fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() / (24 * 3600)
}

fn first_seed(text: &str) -> Result<u64, String> {
    if text == "today" {
        return Ok(today() * SEEDS_A_DAY);
    }
    text.parse().map_err(|_| "a number or \"today\" is expected".to_owned())
}

fn positions(of: &[usize]) -> String {
    of.iter().map(usize::to_string).collect::<Vec<_>>().join(",")
}

fn name(sabotage: Sabotage) -> String {
    sabotage.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

fn progress(reports: &[Report], took: Duration, printed: &mut Duration) {
    let mut out = std::io::stderr();
    let (start, end) = if out.is_terminal() { ("\r", " ") } else { ("", "\n") };
    if out.is_terminal() || took >= *printed + PROGRESS_PERIOD {
        *printed = took;
        let simulated: Duration = reports.iter().map(|report| report.simulated).sum();
        let (hours, seconds) = (simulated.as_secs() / 3600, took.as_secs());
        // The summary follows in any case.
        let _ = write!(out, "{start}{} seeds, {hours} simulated hours in {seconds} s{end}", reports.len());
    }
}

/// What a long run checks, with the least number in ten simulated hours. Faults keep many gangs
/// from being checked. A workload that no longer shows something would never fail.
const CHECKS: [(&str, u64); 11] = [
    ("checks of a node's room", 100),
    ("checks of claims of bound pods", 100),
    ("checks of devices", 100),
    ("checks of extended resources", 20),
    ("checks of gangs at a bind", 20),
    ("checks of gangs and trees", 10),
    ("checks of inner consistency", 100),
    ("checks of special devices", 100),
    ("checks of the lease", 100),
    ("checks of waiting groups", 10),
    ("sums of all claims", 100),
];
/// The simulated time of a long run.
const LONG_RUN: Duration = Duration::from_hours(3);

/// Simulated time and the CPU time that it took, of the seeds of a mood.
#[derive(Clone, Copy, Default)]
struct Speed {
    seeds: usize,
    simulated: Duration,
    took: Duration,
}

/// Sums of reports, as text.
struct Summary {
    speeds: BTreeMap<Mood, Speed>,
    seeds: usize,
    failed: usize,
    simulated: Duration,
    took: Duration,
    counts: BTreeMap<String, u64>,
}

impl Summary {
    fn of(reports: &[Report], took: Duration) -> Self {
        let mut speeds = BTreeMap::<Mood, Speed>::new();
        for report in reports {
            let speed = speeds.entry(report.mood).or_default();
            speed.seeds += 1;
            speed.simulated += report.simulated;
            speed.took += report.took;
        }
        let mut counts = BTreeMap::<String, u64>::new();
        for (what, count) in reports.iter().flat_map(|report| &report.counts) {
            let sum = counts.entry(what.clone()).or_default();
            let is_greatest = ["latest", "longest", "largest"].iter().any(|it| what.starts_with(it));
            *sum = if is_greatest { (*sum).max(*count) } else { *sum + count };
        }
        Self {
            speeds,
            seeds: reports.len(),
            failed: reports.iter().filter(|report| !report.failures.is_empty()).count(),
            simulated: reports.iter().map(|report| report.simulated).sum(),
            took,
            counts,
        }
    }

    /// The checks that were too rare, if the run was a long one.
    fn rare_checks(&self) -> Vec<&'static str> {
        if self.simulated < LONG_RUN {
            return Vec::new();
        }
        let hours = self.simulated.as_secs() / 3600;
        let count = |check: &str| self.counts.get(check).copied().unwrap_or_default();
        let rare = CHECKS.into_iter().filter(|(check, least)| count(check) < least * hours / 10);
        rare.map(|(check, _)| check).collect()
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (what, count) in &self.counts {
            writeln!(f, "{count:>12} {what}")?;
        }
        for (mood, Speed { seeds, simulated, took }) in &self.speeds {
            let hours = simulated.as_secs_f64() / 3600.0;
            let minutes = (took.as_secs_f64() / 60.0).max(f64::EPSILON);
            let rate = hours / minutes;
            writeln!(
                f,
                "{seeds:>12} {mood:?} seeds: {hours:.1} simulated hours, {rate:.1} in a minute of CPU"
            )?;
        }
        let hours = self.simulated.as_secs_f64() / 3600.0;
        write!(f, "{} seeds, {} failed, {hours:.1} simulated hours", self.seeds, self.failed)?;
        if !self.took.is_zero() {
            write!(f, " in {} s", self.took.as_secs())?;
        }
        writeln!(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_runs_with_too_few_checks_of_a_kind_fail() {
        let report = |hours, special| Report {
            seed: 1,
            mood: Mood::Quiet,
            simulated: Duration::from_hours(hours),
            took: Duration::ZERO,
            hash: 0,
            counts: CHECKS
                .iter()
                .map(|(check, _)| {
                    ((*check).to_owned(), if check.contains("special") { special } else { 1000 })
                })
                .collect(),
            failures: Vec::new(),
        };
        let rare = |reports: &[Report]| Summary::of(reports, Duration::ZERO).rare_checks();
        assert_eq!(rare(&[report(2, 20), report(2, 19)]), ["checks of special devices"]);
        assert_eq!(rare(&[report(2, 20), report(2, 20)]), [""; 0]);
        assert_eq!(rare(&[report(2, 0)]), [""; 0], "a short run");
    }
}
