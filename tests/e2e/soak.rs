//! Whether what comes and goes leaves something behind: a scheduler lives through pods, nodes and other objects that come and go, with
//! an API server that refuses, cuts and forgets, and must hold as much in the end as it held in the beginning.
//!
//! `SUPERCARGO_SOAK` says for how long, as in `10m` or `1h`; without it there is no soak. In the end the cluster is what it was, and
//! is left alone until the last warning is old enough to be forgotten: some seven minutes.
//!
//! The API server is the one in memory, which can fail by order, in this process; the scheduler is a process of its own, whose
//! memory is nobody else's.

mod churn;
mod footprint;
mod trouble;

use std::env;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use kube::Client;
use supercargo::api::connect;
use supercargo_apiserver::{ApiServer, Listen, Settings, sim};
use tokio::task::block_in_place;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::support::{Supercargo, free_port, say};
use churn::{Churn, Furniture};
use footprint::{Footprint, Gauges, surplus};
use trouble::Trouble;

const TEST: &str = "soak";
/// How long the cluster may take to be what it was: pods of a node that is gone are collected after 40 s.
const TIDYING: Duration = Duration::from_mins(3);
/// When the last warning is forgotten.
const FORGETTING: Duration = Duration::from_mins(8);
/// How often everything is touched before it is looked at again how much is held.
const TOUCHES: usize = 20;

/// How long, if at all: only those who ask for it have so much time.
fn duration() -> Option<Duration> {
    let text = env::var("SUPERCARGO_SOAK").ok()?;
    let duration: SignedDuration = text.parse().unwrap_or_else(|error| {
        panic!("SUPERCARGO_SOAK is \"{text}\", and should be a duration such as 10m or 1h: {error}")
    });
    Some(Duration::try_from(duration).expect("time goes forward"))
}

/// The scheduler, and what it says of itself.
struct Subject {
    supercargo: Supercargo,
    gauges: Gauges,
}

impl Subject {
    fn start(kubeconfig: &std::path::Path) -> Self {
        let port = free_port();
        let args = [
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            // Nobody but this test can reach it.
            "--authorization-always-allow-paths=/debug/footprint".to_owned(),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let supercargo = Supercargo::start(kubeconfig, None, &args);
        supercargo.wait_until_scheduling();
        let gauges = Gauges::new(supercargo.pid(), port);
        Self { supercargo, gauges }
    }

    /// What it holds once everything in the cluster has been read anew some times, as it is for interners to notice what nobody
    /// uses.
    async fn at_rest(&self, churn: &Churn) -> Footprint {
        for _ in 0..TOUCHES {
            churn.touch().await;
        }
        let began = Instant::now();
        loop {
            let footprint = self.gauges.read().await;
            if !footprint.is_at_work() {
                return footprint;
            }
            assert!(
                began.elapsed() < TIDYING,
                "there is nothing to do, and it is still at work: {footprint}"
            );
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// How many pods it has bound.
    fn bound(&self) -> usize {
        self.supercargo.log().matches("Successfully assigned").count()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn churn_leaves_nothing_behind() {
    let began = Instant::now();
    let Some(duration) = duration() else {
        return say(TEST, began, "skipped: SUPERCARGO_SOAK says for how long, as in 10m");
    };
    // Its own memory is bounded, too.
    let server = ApiServer::new(Settings { history: 20_000, ..Settings::default() });
    let _simulation = server.simulate(&sim::Options::default());
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let mut connection = connect(Some(&kubeconfig)).await.unwrap();
    // What goes wrong by order is tried again here, and counted.
    connection.default_retry = false;
    let client = Client::try_from(connection).unwrap();
    let furniture = Furniture::create(&client).await;
    let mut subject = block_in_place(|| Subject::start(&kubeconfig));
    let mut churn = Churn::new(client, furniture);
    let mut trouble = Trouble::new(server);
    churn.tidy(TIDYING).await;

    // What it keeps for good, such as an answer for each kind of pod, it has after the first fifth.
    live(&subject, &mut churn, &mut trouble, duration / 5, began).await;
    churn.tidy(TIDYING).await;
    let base = subject.at_rest(&churn).await;
    say(TEST, began, &format!("in the beginning: {base}"));
    live(&subject, &mut churn, &mut trouble, duration / 5 * 4, began).await;
    churn.tidy(TIDYING).await;
    say(TEST, began, &format!("{churn}; {trouble}; now {}", subject.gauges.read().await));

    let quiet = Instant::now();
    let mut end = subject.at_rest(&churn).await;
    loop {
        let found = surplus(&base, &end);
        if found.is_empty() || quiet.elapsed() > FORGETTING {
            break;
        }
        // Against warnings nothing helps but time.
        if found.iter().all(|what| what.starts_with("eventSeries")) {
            sleep(Duration::from_secs(5)).await;
            end = subject.gauges.read().await;
        } else {
            end = subject.at_rest(&churn).await;
        }
    }
    say(TEST, began, &format!("in the end: {end}"));
    assert_eq!(surplus(&base, &end), Vec::<String>::new(), "{}", subject.supercargo.log_tail());
    assert!(subject.supercargo.is_running());
    // It compares what it knows with what its informers hold, and says what differs before it dumps.
    subject.supercargo.signal("USR2");
    block_in_place(|| subject.supercargo.wait_for_log("Dump of scheduling queue"));
    let log = subject.supercargo.log();
    // That a list failed is what the trouble was for.
    let mut lines = log.lines().filter(|line| !line.contains("failed to list or watch"));
    let is_bad =
        |line: &&str| ["panicked", "Cache mismatch", " ERROR "].iter().any(|word| line.contains(word));
    assert_eq!(lines.find(is_bad), None);
    // Bouts of trouble, and the waits that follow them, take a third of the time; a slow machine takes more.
    assert!(subject.bound() > churn.pods_that_fit() / 4, "{churn}: only {} were bound", subject.bound());
    churn.see_one_more_bound(TIDYING).await;
    assert!(churn.has_had_all() && trouble.has_been_had(), "{churn}; {trouble}: too little came and went");
    block_in_place(|| subject.supercargo.stop());
}

/// Lets pods, nodes and others come and go for a while, with trouble, and says every minute how it goes.
async fn live(
    subject: &Subject,
    churn: &mut Churn,
    trouble: &mut Trouble,
    duration: Duration,
    began: Instant,
) {
    let end = Instant::now() + duration;
    let mut beat = interval(churn::BEAT);
    // What comes late is not made up for.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut told = Instant::now();
    while Instant::now() < end {
        beat.tick().await;
        churn.go_on().await;
        trouble.go_on();
        if told.elapsed() > Duration::from_mins(1) {
            told = Instant::now();
            let (footprint, bound) = (subject.gauges.read().await, subject.bound());
            say(TEST, began, &format!("{churn}; {trouble}; {bound} bound; {footprint}"));
        }
    }
    trouble.end();
}
