//! Random histories of the cluster.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use supercargo_framework::Uid;

use super::api::Flavour;
use super::model::World;
use super::steps::{Bind, Step, step, step_or_reload};
use crate::QueuedPod;
use crate::tests::devices;

/// The default number of cases; `PROPTEST_CASES` overrides it.
fn config() -> Config {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    Config { cases, failure_persistence: None, max_shrink_iters: 4000, ..Config::default() }
}

impl World {
    /// A world of two nodes after these steps.
    fn after(steps: Vec<Step>) -> Self {
        let mut world = Self::new();
        world.api.set_object(devices::class(true));
        for node in 0..2 {
            world.api.set_node(node, 4, false);
            world.api.set_slice(node, 2);
        }
        while world.deliver() {}
        for step in steps {
            world.make(step);
        }
        world
    }

    /// Runs without failures until all pods are bound: calls are answered, nodes have room, and
    /// time passes. Events move every pod: none waits until it is flushed after five minutes.
    fn settle(&mut self) {
        let before = self.flushed();
        self.api.delete_greedy();
        for round in 0..40 {
            for node in 0..3 {
                self.api.set_node(node, 100 + round, false);
                if round == 0 {
                    // Two for each pod with a claim fit in any order.
                    self.api.set_slice(node, 4);
                }
            }
            // A last pod allows all that wait.
            if round < 35 {
                self.api.create(100 + round, 1, -1, Flavour::Releases);
            }
            self.api.finish_terminating();
            while self.deliver() {}
            while self.cycle() {
                while self.deliver() {}
            }
            for _ in 0..self.pre_binds.len() {
                self.answer_pre_bind(0, 0);
            }
            for _ in 0..self.binds.len() {
                self.answer_bind(0, Bind::Answered);
            }
            for _ in 0..self.evictions.len() {
                self.answer_eviction(0, 0);
            }
            for _ in 0..self.reads.len() {
                self.answer_read(0, false);
            }
            self.answer_writes(true);
            self.make(Step::Patch { carried_out: true });
            self.pass(Duration::from_secs(if round % 2 == 0 { 1 } else { 31 }));
            assert_eq!(self.flushed().difference(&before).collect::<Vec<_>>(), Vec::<&Uid>::new());
            self.check();
        }
    }

    /// The queued pods that have waited too long, other than terminating ones, which nothing helps.
    fn flushed(&self) -> BTreeSet<Uid> {
        let waited = |entry: &&QueuedPod| entry.flushed && !entry.pod.terminating;
        let flushed = self.scheduler().queue.entries().filter(waited);
        flushed.map(|entry| entry.uid().clone()).collect()
    }

    /// Checks that no pod is lost and no work is left.
    fn check_settled(&self) {
        for pod in self.api.pods.values() {
            let excused = pod.terminating || !pod.scheduling_gates.is_empty();
            assert!(
                pod.is_assigned() || excused,
                "{} has no node: {:?}",
                pod.uid,
                self.scheduler().place(&pod.uid)
            );
        }
        assert_eq!(self.scheduler().bindings_in_flight(), 0);
        assert_eq!((self.allocations_in_flight(), self.writes.len()), (0, 0));
        assert_eq!(self.scheduler().preemptions.len(), 0);
        assert!(self.scheduler().preemptions.preempting().is_empty());
        assert_eq!(self.scheduler().cache().pod_counts().1, 0, "every binding has been confirmed");
        let [active, backoff, unschedulable, _, in_flight] = self.scheduler().queue_lengths();
        assert_eq!([active, backoff, unschedulable, in_flight], [0; 4]);
    }
}

#[test]
fn captures_have_claims_in_flight() {
    let mut runner = TestRunner::deterministic();
    let mut history = || prop::collection::vec(step(), 1..120).new_tree(&mut runner).unwrap().current();
    let in_flight = (0..100).filter(|_| World::after(history()).allocations_in_flight() > 0).count();
    assert!(in_flight >= 10, "{in_flight} of 100");
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_pod_is_lost_or_bound_twice(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::after(steps);
        world.check_capture();
        world.settle();
        world.check_settled();
        world.check_replay();
    }

    #[test]
    fn no_pod_is_lost_or_bound_twice_across_reloads(
        steps in prop::collection::vec(step_or_reload(), 1..120),
    ) {
        let mut world = World::after(steps);
        world.make(Step::Reload { serves: true });
        world.check_capture();
        world.settle();
        world.check_settled();
        world.check_replay();
    }
}
