//! Runs the command lines of `kubectl/`: kubectl's output must be the same for both servers.

use std::time::Instant;

use futures::StreamExt as _;
use supercargo_controlplane::{Assets, Program};
use tempfile::TempDir;

use super::differences::{self, Difference, between};
use super::requests::{folder, hold};
use super::session::{Outcome, Session, Shell};
use super::target::{Pair, RUNTIME, pair};

/// The number of concurrent sessions. Each has a process for either server.
const CONCURRENCY: usize = 3;

#[test]
fn every_session_is_well_formed() {
    let sessions = hold(Session::all(&folder("kubectl")));
    let commands: usize = sessions.iter().map(Session::len).sum();
    assert!(commands >= 300, "only {commands} commands");
}

#[test]
fn kubectl_output_is_the_same_for_both_servers() {
    let filter = std::env::var("SUPERCARGO_KUBECTL").unwrap_or_default();
    let mut sessions = hold(Session::all(&folder("kubectl")));
    sessions.retain(|session| session.name.contains(&filter));
    let Some(pairs) = sessions.iter().map(|session| pair(session.pod_groups)).collect::<Option<Vec<_>>>()
    else {
        return;
    };
    let program = Assets::locate().unwrap().path(Program::Kubectl).unwrap();
    let scratch = TempDir::new().unwrap();
    let shells = |pair: &'static Pair| {
        [&pair.real, &pair.ours].map(|target| Shell::new(&program, target, scratch.path()))
    };
    let began = Instant::now();
    let runs = futures::stream::iter(sessions.iter().zip(pairs))
        .map(|(session, pair)| {
            let [real, ours] = shells(pair);
            async move { futures::future::join(session.run(&real), session.run(&ours)).await }
        })
        .buffered(CONCURRENCY);
    let runs: Vec<(Vec<Outcome>, Vec<Outcome>)> = RUNTIME.block_on(runs.collect());

    let (mut found, mut faults, mut commands) = (Vec::new(), Vec::new(), 0);
    for (session, (real, ours)) in sessions.iter().zip(runs) {
        for (real, ours) in real.into_iter().zip(ours) {
            let name = format!("kubectl {}/{}", session.name, real.command);
            let differences = between(&name, &real.seen, &ours.seen);
            let verdict = match (real.faults.is_empty() && ours.faults.is_empty(), differences.is_empty()) {
                (true, true) => "same",
                (true, false) => "DIFFERS",
                (false, _) => "FAILS",
            };
            let (of_real, of_ours) = (real.took.as_millis(), ours.took.as_millis());
            println!("{verdict:8}{of_real:5} ms real{of_ours:6} ms ours  kubectl {}", real.command);
            commands += 1;
            found.extend(differences);
            found.extend(ours.faults.into_iter().map(|fault| Difference::unexpected(&name, fault)));
            faults.extend(real.faults);
        }
    }
    println!("{commands} commands on both servers in {:.1} s", began.elapsed().as_secs_f32());
    let (differences, unused) = hold(differences::excuse(&folder("kubectl/differences.yaml"), found));
    if filter.is_empty() {
        faults.extend(unused);
    }
    faults.extend(differences.iter().map(Difference::to_string));
    assert!(faults.is_empty(), "{} failures:\n{}", faults.len(), faults.join("\n"));
}
