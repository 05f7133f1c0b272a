//! Random histories, checked against the rules of a queue.

use std::collections::{BTreeMap, BTreeSet};

use futures::FutureExt;
use proptest::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, advance, timeout};

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    AddAfter(u8, u64),
    Get,
    /// Drops one of the keys in progress.
    Done(usize),
    Advance(u64),
    ShutDown,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = 0..6_u8;
    let step = prop_oneof![
        8 => key.clone().prop_map(Step::Add),
        6 => (key, 0..30_u64).prop_map(|(key, delay)| Step::AddAfter(key, delay)),
        12 => Just(Step::Get),
        8 => any::<usize>().prop_map(Step::Done),
        5 => (0..20_u64).prop_map(Step::Advance),
        1 => Just(Step::ShutDown),
    ];
    proptest::collection::vec(step, 0..120)
}

fn paused() -> Runtime {
    Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// The expected effect of the adds so far.
#[derive(Default)]
struct Model {
    wanted: BTreeSet<u8>,
    delayed: BTreeMap<u8, Instant>,
    held: Vec<Item<u8>>,
    shut_down: bool,
}

impl Model {
    fn catch_up(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.delayed.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
        for key in due {
            self.delayed.remove(&key);
            self.wanted.insert(key);
        }
    }

    fn add_after(&mut self, key: u8, delay: u64) {
        if self.shut_down {
            return;
        }
        if delay == 0 {
            // A due time in the future remains.
            self.wanted.insert(key);
            return;
        }
        let at = Instant::now() + ms(delay);
        let earliest = self.delayed.entry(key).or_insert(at);
        *earliest = at.min(*earliest);
    }

    fn may_come(&self) -> BTreeSet<u8> {
        let held: BTreeSet<_> = self.held.iter().map(|item| **item).collect();
        self.wanted.difference(&held).copied().collect()
    }

    fn get(&mut self, queue: &WorkQueue<u8>) -> Result<(), TestCaseError> {
        let may_come = self.may_come();
        match queue.get().now_or_never() {
            Some(Some(item)) => {
                prop_assert!(may_come.contains(&item), "{item:?} came, of {may_come:?}");
                self.wanted.remove(&item);
                self.held.push(item);
            }
            Some(None) => prop_assert!(self.shut_down && may_come.is_empty(), "the end before {may_come:?}"),
            None => prop_assert!(!self.shut_down && may_come.is_empty(), "nothing, and not {may_come:?}"),
        }
        Ok(())
    }
}

async fn play(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let queue = WorkQueue::new();
    let mut model = Model::default();
    let all_done = [Step::Advance(60), Step::ShutDown].into_iter();
    for step in steps.into_iter().chain(all_done) {
        match step {
            Step::Add(key) => {
                queue.add(key);
                if !model.shut_down {
                    model.wanted.insert(key);
                }
            }
            Step::AddAfter(key, delay) => {
                queue.add_after(key, ms(delay));
                model.add_after(key, delay);
            }
            Step::Get => model.get(&queue)?,
            Step::Done(which) => {
                if !model.held.is_empty() {
                    let which = which % model.held.len();
                    drop(model.held.swap_remove(which));
                }
            }
            Step::Advance(time) => {
                advance(ms(time)).await;
                model.catch_up();
            }
            Step::ShutDown => {
                queue.shut_down();
                model.shut_down = true;
                model.delayed.clear();
            }
        }
        prop_assert_eq!(queue.len(), model.may_come().len());
        prop_assert_eq!(queue.metrics().depth, model.wanted.len());
    }
    // Every added key is delivered in the end.
    while !(model.wanted.is_empty() && model.held.is_empty()) {
        model.held.clear();
        model.get(&queue)?;
    }
    model.get(&queue)
}

#[derive(Clone, Debug)]
struct Plan {
    /// The time, key and delay of each add.
    adds: Vec<(u64, u8, u64)>,
    /// The patience and the working time of each worker.
    workers: Vec<(u64, u64)>,
}

fn plans() -> impl Strategy<Value = Plan> {
    let adds = proptest::collection::vec((0..100_u64, 0..5_u8, prop_oneof![Just(0), 1..50_u64]), 1..60);
    let workers = proptest::collection::vec((1..20_u64, 0..15_u64), 1..4);
    (adds, workers).prop_map(|(adds, workers)| Plan { adds, workers })
}

/// A worker's processing of a key.
struct Visit {
    key: u8,
    from: Instant,
    to: Instant,
}

async fn work(queue: WorkQueue<u8>, patience: u64, effort: u64) -> Vec<Visit> {
    let mut visits = Vec::new();
    loop {
        // Workers lose patience, so that wake-ups meet workers that are leaving.
        let Ok(got) = timeout(ms(patience), queue.get()).await else { continue };
        let Some(item) = got else { return visits };
        let from = Instant::now();
        tokio::time::sleep(ms(effort)).await;
        visits.push(Visit { key: *item, from, to: Instant::now() });
    }
}

async fn carry_out(plan: Plan) -> Result<(), TestCaseError> {
    let queue = WorkQueue::new();
    let start = Instant::now();
    let spawn = |(patience, effort)| tokio::spawn(work(queue.clone(), patience, effort));
    let workers: Vec<_> = plan.workers.iter().copied().map(spawn).collect();
    let adders: Vec<_> = (plan.adds.iter().copied())
        .map(|(at, key, delay)| {
            let queue = queue.clone();
            tokio::spawn(async move {
                tokio::time::sleep_until(start + ms(at)).await;
                queue.add_after(key, ms(delay));
            })
        })
        .collect();
    for adder in adders {
        adder.await.unwrap();
    }
    tokio::time::sleep(ms(60)).await;
    queue.shut_down_with_drain().await;
    let mut visits = Vec::new();
    for worker in workers {
        visits.extend(worker.await.unwrap());
    }
    for key in 0..5 {
        let mut visits: Vec<_> = visits.iter().filter(|visit| visit.key == key).collect();
        visits.sort_by_key(|visit| (visit.from, visit.to));
        prop_assert!(visits.windows(2).all(|pair| pair[0].to <= pair[1].from), "{key} was in two hands");
        let adds: Vec<_> = plan.adds.iter().filter(|add| add.1 == key).collect();
        prop_assert!(visits.len() <= adds.len(), "{key} came without having been added");
        // It may be due earlier than the last request, but not before the request.
        if let Some(asked) = adds.iter().map(|(at, ..)| start + ms(*at)).max() {
            let seen = visits.last().is_some_and(|visit| visit.from >= asked);
            prop_assert!(seen, "{key} was asked for at {:?}, and did not come after that", asked - start);
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn random_histories_lose_no_key_and_share_none(steps in steps()) {
        // Unconstrained, so that no step has to yield.
        paused().block_on(unconstrained(play(steps)))?;
    }

    #[test]
    fn every_add_is_followed_by_processing(plan in plans()) {
        paused().block_on(carry_out(plan))?;
    }
}
