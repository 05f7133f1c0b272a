//! Several candidates for one lease.

use std::time::Duration;

use jiff::SignedDuration;
use supercargo_apiserver::ApiServer;
use tokio::time::{Instant, sleep};

use super::super::Timing;
use super::world::{Candidate, Connection, LEASE_DURATION, LONGEST_LOOK, RETRY_PERIOD, TIMING, notes, spec};

/// Longer than any request in these tests.
const A_MOMENT: Duration = Duration::from_millis(50);

fn candidates(server: &ApiServer, count: usize, watches: bool) -> Vec<Candidate> {
    let start = |_| Candidate::start(server, TIMING, watches);
    (0..count).map(start).collect()
}

/// Waits until a candidate leads, and removes it.
async fn first_to_lead(candidates: &mut Vec<Candidate>) -> Candidate {
    let leads: Vec<_> = candidates.iter().map(|candidate| Box::pin(candidate.until_it_leads())).collect();
    let ((), first, _) = futures::future::select_all(leads).await;
    candidates.swap_remove(first)
}

#[tokio::test(start_paused = true)]
async fn one_of_three_candidates_leads_and_the_others_succeed_it() {
    let server = ApiServer::default();
    let mut waiting = candidates(&server, 3, true);
    let mut expected = Vec::new();
    for transitions in 0..3 {
        let began = Instant::now();
        let leader = first_to_lead(&mut waiting).await;
        assert!(began.elapsed() < A_MOMENT, "a released lease is taken at once: {:?}", began.elapsed());
        sleep(LEASE_DURATION * 3).await;
        assert!(leader.leads() && waiting.iter().all(|candidate| !candidate.leads()));
        assert!(waiting.iter().all(|candidate| !candidate.fence.is_open()));
        let holder = Some(leader.identity());
        for candidate in &waiting {
            assert_eq!(candidate.leadership.borrow().holder.as_deref(), holder.as_deref());
        }
        let lease = spec(&server).await;
        assert_eq!(
            (lease["holderIdentity"].as_str(), &lease["leaseTransitions"]),
            (holder.as_deref(), &serde_json::json!(transitions))
        );
        let identity = leader.identity();
        expected.extend([format!("{identity} became leader"), format!("{identity} stopped leading")]);
        leader.resign().await;
    }
    let mut received = notes(&server).await;
    received.sort();
    expected.sort();
    assert_eq!(received, expected);
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_replaced_when_its_lease_expires() {
    for watches in [true, false] {
        let server = ApiServer::default();
        let first = Candidate::start(&server, TIMING, watches);
        first.until_it_leads().await;
        let second = Candidate::start(&server, TIMING, watches);
        sleep(LEASE_DURATION * 2).await;
        let last_renewal = first.leadership.borrow().last_renewal.unwrap();
        first.kill().await;
        second.until_it_leads().await;
        let gap = last_renewal.elapsed();
        // A watching candidate observes the renewal at once, and wakes when the lease expires.
        let latest = LEASE_DURATION + if watches { A_MOMENT } else { LONGEST_LOOK + A_MOMENT };
        assert!((LEASE_DURATION..latest).contains(&gap), "watches: {watches}, {gap:?}");
        assert!(latest <= LEASE_DURATION + RETRY_PERIOD || !watches);
        assert_eq!(spec(&server).await["leaseTransitions"], 1);
    }
}

#[tokio::test(start_paused = true)]
async fn clocks_that_are_years_apart_make_no_difference() {
    let years = SignedDuration::from_hours(24 * 365 * 10);
    for (first_skew, second_skew) in [(years, -years), (-years, years)] {
        let server = ApiServer::default();
        let start = |skew| {
            let connection = Connection::default();
            connection.skew(skew);
            Candidate::start_by(&server, TIMING, true, connection)
        };
        let first = start(first_skew);
        first.until_it_leads().await;
        let second = start(second_skew);
        sleep(LEASE_DURATION * 4).await;
        assert!(first.leads() && !second.leads());
        first.kill().await;
        let killed = Instant::now();
        second.until_it_leads().await;
        let gap = killed.elapsed();
        assert!(
            (LEASE_DURATION.saturating_sub(RETRY_PERIOD)..LEASE_DURATION + A_MOMENT).contains(&gap),
            "{gap:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn candidates_wait_for_the_duration_in_the_lease() {
    let server = ApiServer::default();
    let longer = Timing { lease_duration: Duration::from_mins(1), ..TIMING };
    let first = Candidate::start(&server, longer, true);
    first.until_it_leads().await;
    let second = Candidate::start(&server, TIMING, true);
    first.kill().await;
    let killed = Instant::now();
    second.until_it_leads().await;
    assert!(killed.elapsed() > Duration::from_secs(58), "{:?}", killed.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_candidate_resigns_without_writing() {
    let server = ApiServer::default();
    let first = Candidate::start(&server, TIMING, true);
    first.until_it_leads().await;
    let second = Candidate::start(&server, TIMING, true);
    sleep(LEASE_DURATION).await;
    second.connection.take_requests();
    let connection = second.connection.clone();
    let began = Instant::now();
    second.resign().await;
    assert!(began.elapsed() < A_MOMENT);
    assert!(connection.take_requests().iter().all(|method| method == "GET"));
    assert!(first.leads());
}
