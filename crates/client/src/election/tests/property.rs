//! Random delays, losses, suspensions and kills: at most one candidate leads at any time, and
//! eventually one does.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use proptest::prelude::*;
use supercargo_apiserver::ApiServer;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use super::super::{Fence, Timing};
use super::world::{Candidate, Fate, Trip};

const CANDIDATES: usize = 3;
/// How often the leaders are counted.
const LOOK: Duration = Duration::from_millis(5);

/// What happens to a candidate.
#[derive(Clone, Debug)]
enum Trouble {
    /// The fates of its next requests.
    Trips(Vec<Trip>),
    /// It is suspended for this long.
    Sleeps(Duration),
    /// The server refuses connections from now on, or accepts them again.
    Closes(bool),
    /// It is killed and replaced.
    Dies,
    /// It resigns and is replaced.
    Resigns,
}

const SHORT: Timing = Timing {
    lease_duration: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    retry_period: Duration::from_millis(500),
};

fn millis(most: u64) -> impl Strategy<Value = Duration> {
    (0..most).prop_map(Duration::from_millis)
}

fn trip() -> impl Strategy<Value = Trip> {
    let fate = prop_oneof![4 => Just(Fate::Answered), 1 => Just(Fate::LostThere), 1 => Just(Fate::LostBack)];
    let delay = || prop_oneof![2 => millis(50), 1 => millis(4_000)];
    (delay(), delay(), fate).prop_map(|(there, back, fate)| Trip { there, back, fate })
}

fn trouble() -> impl Strategy<Value = Trouble> {
    prop_oneof![
        6 => prop::collection::vec(trip(), 1..6).prop_map(Trouble::Trips),
        2 => millis(8_000).prop_map(Trouble::Sleeps),
        2 => any::<bool>().prop_map(Trouble::Closes),
        1 => Just(Trouble::Dies),
        1 => Just(Trouble::Resigns),
    ]
}

/// Which candidate is affected how, and how long after the previous trouble.
fn history() -> impl Strategy<Value = Vec<(Duration, usize, Trouble)>> {
    prop::collection::vec((millis(2_500), 0..CANDIDATES, trouble()), 1..40)
}

/// Continuously counts the candidates that may write.
struct Watchman {
    fences: Arc<Mutex<Vec<Fence>>>,
    task: JoinHandle<()>,
}

impl Watchman {
    fn start() -> Self {
        let fences: Arc<Mutex<Vec<Fence>>> = Arc::default();
        let watched = Arc::clone(&fences);
        let task = tokio::spawn(async move {
            let mut looks = interval(LOOK);
            looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                looks.tick().await;
                let open = watched.lock().iter().filter(|fence| fence.is_open()).count();
                assert!(open <= 1, "{open} lead at once");
            }
        });
        Self { fences, task }
    }

    fn has_seen_nothing(self) {
        assert!(!self.task.is_finished(), "two led at once");
        self.task.abort();
    }

    /// Killed candidates are watched, too: their requests may still be in flight.
    fn watch(&self, candidate: Candidate) -> Candidate {
        self.fences.lock().push(candidate.fence.clone());
        candidate
    }
}

async fn play(history: Vec<(Duration, usize, Trouble)>, watches: bool) {
    let (server, watchman) = (ApiServer::default(), Watchman::start());
    let new = || watchman.watch(Candidate::start(&server, SHORT, watches));
    let mut candidates: Vec<Candidate> = (0..CANDIDATES).map(|_| new()).collect();
    for (pause, who, trouble) in history {
        sleep(pause).await;
        match trouble {
            Trouble::Trips(trips) => candidates[who].connection.plan(trips),
            Trouble::Sleeps(duration) => candidates[who].sleep(duration),
            Trouble::Closes(is_closed) => candidates[who].connection.close(is_closed),
            Trouble::Dies => std::mem::replace(&mut candidates[who], new()).task.abort(),
            Trouble::Resigns => std::mem::replace(&mut candidates[who], new()).begin_to_resign(),
        }
        restart(&mut candidates, new);
    }
    for candidate in &candidates {
        candidate.connection.end_trouble();
    }
    // Wait for suspended candidates and delayed responses.
    let calm = Instant::now();
    while !candidates.iter().any(|candidate| candidate.leads() && candidate.fence.is_open()) {
        assert!(calm.elapsed() < Duration::from_secs(30), "nobody leads");
        sleep(LOOK).await;
        restart(&mut candidates, new);
    }
    watchman.has_seen_nothing();
}

/// Candidates that lost leadership are restarted.
fn restart(candidates: &mut [Candidate], new: impl Fn() -> Candidate) {
    for candidate in candidates.iter_mut().filter(|candidate| candidate.task.is_finished()) {
        *candidate = new();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn at_most_one_candidate_leads_and_eventually_one_does(history in history(), watches in any::<bool>()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(history, watches));
    }
}
