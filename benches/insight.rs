//! What insight costs the scheduler's thread: the log of what happened to pods, and forks for
//! questions that another thread asks.
//!
//! `cargo bench -p supercargo-benches --bench insight`; `-- --help` lists the options.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::Parser;
use serde::Serialize;
use supercargo_benches::{
    Bench, FilterArgs, Output, Progress, RunArgs, default_options, default_pod, grouped, time_of, too_big_pod,
};
use supercargo_framework::PodInfo;
use supercargo_framework::testing::pod;
use supercargo_scheduler::{Fork, ForkPace, Input, Notification, Options};

/// The default of `--timeline-memory`.
const LOG_MEMORY: usize = 8 << 20;
/// The pods that are created at once.
const BATCH: usize = 200;
/// The batches that exist at a time.
const LIVE: usize = 10;

/// Measure what insight costs
#[derive(Debug, Parser)]
struct Args {
    /// Nodes
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    /// Pods that are on each node all the time
    #[arg(long, default_value_t = 30)]
    pods_per_node: usize,
    /// Rounds; each has both sides
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Milliseconds of one side of a round
    #[arg(long, default_value_t = 1000)]
    length: u64,
    /// Questions a second
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    questions: u32,
    #[command(flatten)]
    run: RunArgs,
    #[command(flatten)]
    filter: FilterArgs,
}

fn main() -> Result<()> {
    let mut args = Args::parse();
    if args.filter.leaves_out("insight") {
        return Ok(());
    }
    if args.run.test {
        (args.nodes, args.pods_per_node, args.rounds, args.length) = (50, 2, 2, 150);
    }
    let progress = Progress::new();
    let comparisons = [log(&args, progress)?, questions(&args, progress)?];
    progress.clear();
    match args.run.output {
        Output::Table => comparisons.iter().for_each(|comparison| print!("{}", comparison.table())),
        Output::Json => println!("{}", serde_json::to_string_pretty(&comparisons)?),
    }
    Ok(())
}

/// The log, off and on.
fn log(args: &Args, progress: Progress) -> Result<Comparison> {
    let mut off = Cluster::new(args, 0);
    let mut on = Cluster::new(args, if args.run.test { 1 << 16 } else { LOG_MEMORY });
    // Until the log drops entries.
    let is_full =
        |on: &Cluster| on.bench.scheduler.history(&on.first.key()).is_some_and(|it| it.cut_at.is_some());
    while !is_full(&on) {
        on.batch(None);
        off.batch(None);
    }
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        progress.at("log", "round", round, args.rounds);
        let mut sides = [Times::default(); 2];
        for side in in_turn(round) {
            sides[side] = if side == 0 { off.round(args, None)? } else { on.round(args, None)? };
        }
        rounds.push(sides);
    }
    Ok(Comparison { title: "the log of what happened to pods", sides: ["off", "on"], rounds, asked: None })
}

/// Nobody asks, and somebody asks.
fn questions(args: &Args, progress: Progress) -> Result<Comparison> {
    let mut cluster = Cluster::new(args, LOG_MEMORY);
    let (mut rounds, mut questions, mut forks) = (Vec::new(), 0, 0);
    for round in 0..args.rounds {
        progress.at("questions", "round", round, args.rounds);
        let mut sides = [Times::default(); 2];
        for side in in_turn(round) {
            sides[side] = match side {
                0 => cluster.round(args, None)?,
                _ => asked(&mut cluster, args, (&mut questions, &mut forks))?,
            };
        }
        rounds.push(sides);
    }
    ensure!(questions >= args.rounds, "{questions} questions were asked");
    Ok(Comparison { title: "questions", sides: ["none", "asked"], rounds, asked: Some((questions, forks)) })
}

/// The sides of a round, in an order that changes.
fn in_turn(round: usize) -> [usize; 2] {
    [round % 2, (round + 1) % 2]
}

/// A request for a fork, with plugins for it: plugins serve one thread.
struct Request {
    options: Options,
    answer: Sender<Shared>,
}

/// A fork, and until when it may be used.
struct Shared {
    fork: Fork,
    until: Instant,
}

/// A round in which another thread asks.
fn asked(cluster: &mut Cluster, args: &Args, (questions, forks): (&mut usize, &mut usize)) -> Result<Times> {
    let (sender, requests) = channel();
    let is_over = AtomicBool::new(false);
    let interval = Duration::from_secs(1) / args.questions;
    scope(|scope| {
        let asker = scope.spawn(|| ask(sender, &is_over, interval));
        let times = cluster.round(args, Some(&requests));
        is_over.store(true, Ordering::Relaxed);
        // A request that came too late fails.
        drop(requests);
        let (asked, taken) = asker.join().map_err(|_| anyhow::anyhow!("the asker panicked"))?;
        (*questions, *forks) = (*questions + asked, *forks + taken);
        times
    })
}

/// Asks until the round is over. Returns the number of questions, and that of forks.
fn ask(requests: Sender<Request>, is_over: &AtomicBool, interval: Duration) -> (usize, usize) {
    let pending = Arc::new(too_big_pod("pending"));
    let (mut questions, mut forks) = (0, 0);
    let mut kept: Option<Shared> = None;
    while !is_over.load(Ordering::Relaxed) {
        let began = Instant::now();
        kept = kept.filter(|kept| began < kept.until);
        let shared = match kept.take() {
            Some(shared) => shared,
            None => {
                let (answer, shared) = channel();
                let sent = requests.send(Request { options: default_options(), answer });
                let Some(shared) = sent.ok().and_then(|()| shared.recv().ok()) else { break };
                forks += 1;
                shared
            }
        };
        // Askers share a fork: each copies it.
        let mut copy = shared.fork.fork(default_options()).expect("the default options make a scheduler");
        let why = copy.why(&pending).expect("the pod has no claims");
        assert!(why.feasible.is_empty(), "the pod fits nowhere");
        questions += 1;
        kept = Some(shared);
        sleep(interval.saturating_sub(began.elapsed()));
        // As the endpoint does.
        kept = kept.filter(|kept| Instant::now() < kept.until);
    }
    (questions, forks)
}

/// A scheduler, and the pods that come and go.
struct Cluster {
    bench: Bench,
    created: usize,
    /// The pods of the last batches, as they were created.
    live: VecDeque<Vec<Arc<PodInfo>>>,
    first: Arc<PodInfo>,
    pace: ForkPace,
}

/// The times of a batch or a round, and the number of its pods.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Times {
    cycles: Duration,
    all: Duration,
    pods: usize,
}

impl Cluster {
    fn new(args: &Args, timeline_memory: usize) -> Self {
        let options = Options { timeline_memory, ..default_options() };
        let mut bench = Bench::of(options, args.nodes);
        for i in 0..args.nodes * args.pods_per_node {
            let on_it = pod(&format!("old-{i}")).request("cpu", "100m").request("memory", "500Mi");
            let on_it = on_it.node(&format!("node-{}", i % args.nodes)).build();
            bench.handle(Input::AssignedPod(Notification::Added(Arc::new(on_it))));
        }
        let mut cluster = Self {
            bench,
            created: 0,
            live: VecDeque::new(),
            first: Arc::new(new_pod(0)),
            pace: ForkPace::default(),
        };
        cluster.batch(None);
        cluster
    }

    /// Batches for the length of a round.
    fn round(&mut self, args: &Args, requests: Option<&Receiver<Request>>) -> Result<Times> {
        let (began, length) = (Instant::now(), Duration::from_millis(args.length));
        let mut sum = Times::default();
        while began.elapsed() < length {
            let Times { cycles, all, pods } = self.batch(requests);
            sum = Times { cycles: sum.cycles + cycles, all: sum.all + all, pods: sum.pods + pods };
        }
        ensure!(self.bench.scheduler.queue_lengths().iter().sum::<usize>() == 0, "all pods have a node");
        Ok(sum)
    }

    /// Creates pods, schedules them, answers a request, and deletes the oldest pods.
    fn batch(&mut self, requests: Option<&Receiver<Request>>) -> Times {
        let pods: Vec<_> = (self.created..self.created + BATCH).map(|i| Arc::new(new_pod(i))).collect();
        self.created += BATCH;
        let oldest =
            if self.live.len() < LIVE { Vec::new() } else { self.live.pop_front().unwrap_or_default() };
        let on_node = |pod: &Arc<PodInfo>| self.bench.scheduler.cache().pod(&pod.uid).cloned();
        let oldest: Vec<_> = oldest.iter().filter_map(on_node).collect();
        let bench = &mut self.bench;
        let created = time_of(|| {
            for pod in &pods {
                bench.handle(Input::QueuedPod(Notification::Added(Arc::clone(pod))));
            }
        });
        let cycles = time_of(|| {
            while bench.schedule_and_bind() {}
            if let Some(request) = requests.and_then(|requests| requests.try_recv().ok()) {
                let began = Instant::now();
                let fork = bench.scheduler.fork(bench.now, request.options);
                let fork = fork.expect("the default options make a scheduler");
                let copied = bench.scheduler.cache().copied();
                let until = Instant::now() + self.pace.share_for(began.elapsed(), copied);
                // The asker may have gone.
                _ = request.answer.send(Shared { fork, until });
            }
        });
        let deleted = time_of(|| {
            for pod in oldest {
                bench.handle(Input::AssignedPod(Notification::Deleted(pod)));
            }
        });
        let count = pods.len();
        self.live.push_back(pods);
        Times { cycles, all: created + cycles + deleted, pods: count }
    }
}

fn new_pod(i: usize) -> PodInfo {
    let namespace = ["team-a", "team-b", "team-c", "team-d", "team-e"][i % 5];
    PodInfo { namespace: namespace.into(), ..default_pod(&format!("web-{i:08}")) }
}

/// Two sides, round by round.
#[derive(Debug, Serialize)]
struct Comparison {
    title: &'static str,
    sides: [&'static str; 2],
    rounds: Vec<[Times; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    /// The numbers of questions and of forks.
    asked: Option<(usize, usize)>,
}

impl Comparison {
    fn table(&self) -> String {
        let pods: usize = self.rounds.iter().flatten().map(|times| times.pods).sum();
        let asked = |(questions, forks)| {
            format!(", {} questions, {} forks", grouped(questions as u64), grouped(forks as u64))
        };
        let forks = self.asked.map(asked).unwrap_or_default();
        let [one, other] = self.sides;
        format!(
            "{}: {} rounds, {} pods{forks}\n\n{:8} {one:>11} {other:>11} {:>9}   range\n{}{}\n",
            self.title,
            self.rounds.len(),
            grouped(pods as u64),
            "µs a pod",
            "ratio",
            self.row("cycle", |times| times.cycles),
            self.row("all", |times| times.all)
        )
    }

    fn row(&self, name: &str, time: impl Fn(&Times) -> Duration) -> String {
        let micros = |times: &Times| time(times).as_secs_f64() * 1e6 / times.pods as f64;
        let side = |side: usize| median(self.rounds.iter().map(|round| micros(&round[side])).collect());
        let mut ratios: Vec<f64> =
            self.rounds.iter().map(|[one, other]| micros(other) / micros(one)).collect();
        ratios.sort_by(f64::total_cmp);
        let (least, most) = (ratios.first().copied().unwrap_or(0.0), ratios.last().copied().unwrap_or(0.0));
        let (one, other, ratio) = (side(0), side(1), median(ratios));
        format!("{name:8} {one:>11.2} {other:>11.2} {ratio:>9.3}   {least:.3} to {most:.3}\n")
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
