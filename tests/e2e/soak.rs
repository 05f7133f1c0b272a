//! A soak test for leaks. A scheduler runs while pods, nodes and other objects are created and
//! deleted, with an API server that rejects requests, cuts watches and loses history. At the end it
//! must hold as much as at the beginning.
//!
//! `SUPERCARGO_SOAK` sets the duration, such as `10m` or `1h`; without it the test does nothing. At
//! the end, the cluster is restored and left alone until the last warning expires, which takes
//! about seven minutes.
//!
//! The API server runs in memory in this process, with injected faults. The scheduler is another
//! process, so that its memory can be measured.

mod churn;
mod footprint;
mod trouble;

use std::env;
use std::time::{Duration, Instant};

use jiff::SignedDuration;
use kube::Client;
use supercargo_apiserver::{ApiServer, Listen, Settings, sim};
use supercargo_client::connection::connect;
use tokio::task::block_in_place;
use tokio::time::{MissedTickBehavior, interval, sleep};

use crate::support::{Supercargo, free_port, say};
use churn::{Churn, Furniture};
use footprint::{Footprint, Gauges, surplus};
use trouble::Trouble;

const TEST: &str = "soak";
/// The time limit to restore the cluster: pods of a deleted node are collected after 40 s.
const TIDYING: Duration = Duration::from_mins(3);
/// The time until the last warning has expired.
const FORGETTING: Duration = Duration::from_mins(8);
/// How often everything is updated before the footprint is read again.
const TOUCHES: usize = 20;

/// The duration, or `None` to skip the test.
fn duration() -> Option<Duration> {
    let text = env::var("SUPERCARGO_SOAK").ok()?;
    let duration: SignedDuration = text.parse().unwrap_or_else(|error| {
        panic!("SUPERCARGO_SOAK is \"{text}\", and should be a duration such as 10m or 1h: {error}")
    });
    Some(Duration::try_from(duration).expect("time goes forward"))
}

/// The scheduler and its metrics.
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
            // Only this test can reach it.
            "--authorization-always-allow-paths=/metrics".to_owned(),
        ];
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let supercargo = Supercargo::start(kubeconfig, None, &args);
        supercargo.wait_until_scheduling();
        let gauges = Gauges::new(supercargo.pid(), port);
        Self { supercargo, gauges }
    }

    /// Its footprint after every object has been updated several times, which interners need to
    /// notice unused values.
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

    /// The number of pods it has bound.
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
    // The server's own memory is bounded, too.
    let server = ApiServer::new(Settings { history: 20_000, ..Settings::default() });
    let _simulation = server.simulate(&sim::Options::default());
    let endpoint = server.listen(Listen::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    endpoint.write_kubeconfig(&kubeconfig).unwrap();
    let mut connection = connect(Some(&kubeconfig)).await.unwrap();
    // Injected faults are retried and counted here.
    connection.default_retry = false;
    let client = Client::try_from(connection).unwrap();
    let furniture = Furniture::create(&client).await;
    let mut subject = block_in_place(|| Subject::start(&kubeconfig));
    let mut churn = Churn::new(client, furniture);
    let mut trouble = Trouble::new(server);
    churn.tidy(TIDYING).await;

    // After a fifth of the time, caches such as those for each kind of pod are filled.
    live(&subject, &mut churn, &mut trouble, duration / 5, began).await;
    // Otherwise pods that nobody deletes meanwhile may hold all devices.
    churn.tidy(TIDYING).await;
    churn.share_a_claim(TIDYING).await;
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
        // Warnings expire only with time.
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
    // The scheduler compares its cache with its informers and logs differences before the dump.
    subject.supercargo.signal("USR2");
    block_in_place(|| subject.supercargo.wait_for_log("Dump of scheduling queue"));
    let log = subject.supercargo.log();
    // Failed lists are expected.
    let mut lines = log.lines().filter(|line| !line.contains("failed to list or watch"));
    let is_bad =
        |line: &&str| ["panicked", "Cache mismatch", " ERROR "].iter().any(|word| line.contains(word));
    assert_eq!(lines.find(is_bad), None);
    // Faults and the backoffs after them take a third of the time, and more on a slow machine.
    assert!(subject.bound() > churn.pods_that_fit() / 4, "{churn}: only {} were bound", subject.bound());
    churn.see_one_more_bound(TIDYING).await;
    assert!(churn.has_had_all() && trouble.has_been_had(), "{churn}; {trouble}: too little came and went");
    block_in_place(|| subject.supercargo.stop());
}

/// Runs churn with faults for a while and prints the state every minute.
async fn live(
    subject: &Subject,
    churn: &mut Churn,
    trouble: &mut Trouble,
    duration: Duration,
    began: Instant,
) {
    let end = Instant::now() + duration;
    let mut beat = interval(churn::BEAT);
    // A late tick is not made up for.
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut received = Instant::now();
    while Instant::now() < end {
        beat.tick().await;
        churn.go_on().await;
        trouble.go_on();
        if received.elapsed() > Duration::from_mins(1) {
            received = Instant::now();
            let (footprint, bound) = (subject.gauges.read().await, subject.bound());
            say(TEST, began, &format!("{churn}; {trouble}; {bound} bound; {footprint}"));
        }
    }
    trouble.end();
}
