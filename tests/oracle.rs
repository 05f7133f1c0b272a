//! supercargo beside upstream's scheduler package: both play the same random histories and must
//! give the same answers after every step. `README.md` describes how to run, reproduce and read a
//! failure.

mod answer;
mod compare;
mod counts;
mod device_counts;
mod extender;
mod generate;
mod history;
mod shrink;
mod subject;
mod upstream;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use answer::Answer;
use compare::{Difference, Excuses, Meant};
use counts::{Counts, Recorded};
use generate::Played;
use history::History;
use subject::Subject;
use upstream::Upstream;

/// The number of steps without `SUPERCARGO_ORACLE_STEPS`.
const STEPS: usize = 24_000;
/// In a run of this many steps, each kind occurs.
const LONG: usize = 200_000;
/// Records the counts of a successful run in `counts.yaml`, for `docs/parity.md`.
const RECORD: &str = "SUPERCARGO_ORACLE_RECORD";
/// The steps of a history after its first objects.
const STEPS_PER_HISTORY: usize = 120;
/// The number of histories that upstream's side plays ahead.
const AHEAD: usize = 4;
/// The maximum of steps that are not compared, in percent.
const MOST_LEFT_OUT: u64 = 5;
/// The maximum of reported kinds of difference.
const MOST_KINDS: usize = 6;

#[test]
fn random_histories_match_kube_scheduler() {
    if let Err(error) = made_up() {
        panic!("{error:#}");
    }
}

#[test]
fn recorded_histories_match_kube_scheduler() {
    if let Err(error) = kept() {
        panic!("{error:#}");
    }
}

#[test]
fn seed_determines_history_and_answers() {
    for seed in 0..3 {
        let play = || generate::history(seed, STEPS_PER_HISTORY, "").unwrap();
        let (once, twice) = (play(), play());
        assert_eq!(once.history, twice.history);
        assert_eq!(once.answers, twice.answers);
        assert_eq!(once.stopped, None, "seed {seed}");
    }
}

#[test]
fn replayed_history_has_the_same_answers() {
    let Played { history, answers, .. } = generate::history(11, STEPS_PER_HISTORY, "").unwrap();
    assert_eq!(play(&history).unwrap(), answers);
}

/// The settings of the environment.
struct Wishes {
    steps: usize,
    seed: u64,
    mix: String,
}

impl Wishes {
    fn read() -> Result<Self> {
        let number = |name: &str, default: u64| match std::env::var(name) {
            Ok(text) => text.parse().with_context(|| format!("{name}={text} is not a number")),
            Err(_) => Ok(default),
        };
        Ok(Self {
            steps: usize::try_from(number("SUPERCARGO_ORACLE_STEPS", STEPS as u64)?)?,
            seed: number("SUPERCARGO_ORACLE_SEED", 1)?,
            mix: std::env::var("SUPERCARGO_ORACLE_MIX").unwrap_or_default(),
        })
    }
}

/// A history with differences.
struct Parted {
    seed: u64,
    played: Played,
    found: Vec<Difference>,
}

/// Plays histories on both sides until enough steps are compared, or too many differ.
fn made_up() -> Result<()> {
    let Some(upstream) = Upstream::start_or_skip() else { return Ok(()) };
    let (wishes, meant) = (Wishes::read()?, Meant::read()?);
    let (mut counts, began) = (Counts::default(), Instant::now());
    let (mut waiting, mut seed, mut made) = (VecDeque::new(), wishes.seed, 0);
    let mut parted: BTreeMap<String, Parted> = BTreeMap::new();
    while (made < wishes.steps && parted.len() < MOST_KINDS) || !waiting.is_empty() {
        while waiting.len() < AHEAD && made < wishes.steps {
            let played = generate::history(seed, STEPS_PER_HISTORY, &wishes.mix)?;
            upstream.ask(&played.history)?;
            made += played.history.steps.len();
            waiting.push_back((seed, played));
            seed += 1;
        }
        let Some((seed, played)) = waiting.pop_front() else { break };
        let theirs = upstream.answers().with_context(|| format!("seed {seed}"))?;
        let compare::StepComparison { found, counts: compared, .. } =
            compare::compared(&played.history, &theirs, &played.answers, &meant.in_random(&played.history));
        counts.merge(&compared);
        let kind = found.first().map(|difference| kind_of(&difference.path));
        let stop = || played.stopped.as_ref().map(|_| "supercargo stopped".to_owned());
        if let Some(kind) = stop().or(kind) {
            eprintln!("seed {seed}: {kind}");
            parted.entry(kind).or_insert(Parted { seed, played, found });
        }
    }
    let took = began.elapsed().as_secs_f32();
    println!("compared with upstream in {took:.0} s, seeds {} to {}:\n{counts}", wishes.seed, seed - 1);
    let mut text = String::new();
    for Parted { seed, played, found } in parted.values() {
        write!(
            text,
            "seed {seed}:\n{}",
            explain(&upstream, played, found, &meant.in_random(&played.history))?
        )?;
    }
    ensure!(text.is_empty(), "{text}");
    if wishes.steps >= STEPS && wishes.mix.is_empty() {
        ensure_enough(&counts, made)?;
    }
    if std::env::var_os(RECORD).is_some_and(|value| value == "1") {
        counts.write(&folder("counts.yaml"), wishes.seed, seed - 1)?;
    }
    Ok(())
}

/// Fails if a run shows much less than the recorded one: because differences on purpose end
/// histories early, or because the generator makes less of a kind.
fn ensure_enough(counts: &Counts, made: usize) -> Result<()> {
    let compared = counts.of("steps");
    let left_out = (made as u64).saturating_sub(compared);
    ensure!(left_out * 100 <= made as u64 * MOST_LEFT_OUT, "{left_out} of {made} steps were not compared");
    let missing = if made < LONG { Vec::new() } else { counts.missing() };
    ensure!(missing.is_empty(), "compared nothing of these kinds: {}", missing.join(", "));
    if std::env::var_os(RECORD).is_none() {
        let rare = counts.much_rarer_than(&Recorded::read()?);
        ensure!(
            rare.is_empty(),
            "compared much less than tests/oracle/counts.yaml says: {}",
            rare.join(", ")
        );
    }
    Ok(())
}

/// Plays the histories of `scenarios/`. Each has shown a difference once, or shows one that is on
/// purpose.
fn kept() -> Result<()> {
    let Some(upstream) = Upstream::start_or_skip() else { return Ok(()) };
    let meant = Meant::read()?;
    let files: BTreeMap<String, PathBuf> = std::fs::read_dir(folder("scenarios"))
        .context("list the scenarios")?
        .map(|entry| entry.map(|entry| entry.path()))
        .filter_map(|path| path.map(|path| Some((path.file_stem()?.to_str()?.to_owned(), path))).transpose())
        .collect::<Result<_, _>>()?;
    let mut text = String::new();
    for scenario in meant.scenarios().iter().filter(|scenario| !files.contains_key(**scenario)) {
        writeln!(text, "differences.yaml: there is no scenario {scenario}")?;
    }
    for (name, file) in &files {
        let history = History::read(file)?;
        let theirs = upstream.play(&history).with_context(|| format!("play {name}"))?;
        let ours = play(&history).with_context(|| format!("play {name}"))?;
        let excuses = meant.in_scenario(name);
        let comparison = compare::compared(&history, &theirs, &ours, &excuses);
        for difference in comparison.found {
            write!(text, "{name}: {difference}")?;
        }
        for path in excuses.unused(&comparison.used) {
            writeln!(text, "differences.yaml: {name} does not show {path}, so delete it")?;
        }
    }
    ensure!(text.is_empty(), "{text}");
    Ok(())
}

/// supercargo's answers.
fn play(history: &History) -> Result<Vec<Answer>> {
    let mut subject = Subject::new(history)?;
    history.steps.iter().map(|step| subject.step(step)).collect()
}

/// A readable failure: the differences, and the smallest history that shows them.
fn explain(
    upstream: &Upstream,
    played: &Played,
    found: &[Difference],
    meant: &Excuses<'_>,
) -> Result<String> {
    let mut text = String::new();
    if let Some(why) = &played.stopped {
        writeln!(text, "supercargo stopped after {} steps: {why}", played.answers.len())?;
    }
    for difference in found {
        write!(text, "{difference}")?;
    }
    let mut history = played.history.clone();
    let kind = if played.stopped.is_some() { None } else { found.first() };
    history.steps.truncate(kind.map_or(history.steps.len(), |difference| difference.step + 1));
    let kind = kind.map(|difference| kind_of(&difference.path));
    let compared = |upstream: &Upstream, history: &History| -> Result<Vec<Difference>> {
        let (theirs, ours) = (upstream.play(history)?, play(history)?);
        Ok(compare::compared(history, &theirs, &ours, meant).found)
    };
    let smallest = shrink::shrink(&history, &mut |history| match &kind {
        None => play(history).is_err(),
        Some(kind) => compared(upstream, history)
            .is_ok_and(|found| found.first().is_some_and(|first| kind_of(&first.path) == *kind)),
    });
    writeln!(text, "a small history that shows it (keep it in tests/oracle/scenarios once it is mended):")?;
    writeln!(text, "{}", smallest.to_yaml()?)?;
    match compared(upstream, &smallest) {
        Ok(found) => found.iter().try_for_each(|difference| write!(text, "{difference}"))?,
        Err(why) => writeln!(text, "{why:#}")?,
    }
    Ok(text)
}

/// A field without names of pods and nodes. Shrinking a history keeps it.
fn kind_of(path: &str) -> String {
    let parts: Vec<&str> = path.split('.').collect();
    match parts[..] {
        ["cycle", part @ ("filters" | "scores"), _, plugin, ..] => format!("cycle.{part}.{plugin}"),
        ["trials", _, part @ ("filters" | "scores"), _, plugin, ..] => format!("trials.{part}.{plugin}"),
        ["pods" | "groups" | "events" | "trials", _, ref rest @ ..] => [&parts[..1], rest].concat().join("."),
        ["cycle", "preemption", ..] => "cycle.preemption".to_owned(),
        ["writes", ..] => {
            let is_name = |part: &&&str| part.parse::<usize>().is_err();
            parts.iter().filter(is_name).copied().collect::<Vec<_>>().join(".")
        }
        _ => path.to_owned(),
    }
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("oracle").join(name)
}
