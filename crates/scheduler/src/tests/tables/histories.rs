//! Random histories with and without tables.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::steps::{Step, first_nodes, palette, step};
use super::templates::Shape;
use super::twins::{Difference, Setting, Twins};
use crate::Rule;

/// How often each rule must apply by default. With enough more histories, it must apply 1,000
/// times.
const LEAST: u64 = 50;

/// What the histories of a run covered.
#[derive(Clone, Debug, Default)]
struct Coverage {
    cycles: u64,
    hits: u64,
    /// Hits by a table that was updated since it was built.
    replayed: u64,
    builds: u64,
    plain: u64,
    replays: u64,
    compared: u64,
    without_node: u64,
    allocations: u64,
    deallocations: u64,
    creations: u64,
    shares: u64,
    waits: u64,
    tolerated: u64,
    reports: u64,
    forks: u64,
    narrowed: u64,
    applied: BTreeMap<Rule, u64>,
}

impl Coverage {
    /// Checks that the histories covered enough.
    fn check(&self, scale: u64) {
        assert_eq!(self.compared, self.hits + self.builds);
        assert!(self.hits * 10 >= self.cycles * 7, "most cycles are hits: {self:#?}");
        assert!(self.replayed * 10 >= self.compared * 7, "most answers come from updated tables: {self:#?}");
        assert!(self.without_node * 10 >= self.compared, "many answers have no node: {self:#?}");
        let claims = [self.allocations, self.deallocations, self.creations];
        assert!(claims.into_iter().all(|count| count >= LEAST), "claims get devices: {self:#?}");
        let special = [self.shares, self.waits, self.tolerated, self.reports];
        assert!(special.into_iter().all(|count| count >= LEAST), "claims get special devices: {self:#?}");
        assert!(self.forks >= LEAST, "forks take part: {self:#?}");
        assert!(self.narrowed * 10 >= self.cycles * 2, "tables choose among some nodes: {self:#?}");
        for rule in Rule::ALL {
            let least = (LEAST * scale).min(1000);
            assert!(self.applied[&rule] >= least, "{rule:?} applies at least {least} times: {self:#?}");
        }
    }

    fn line(&self) -> String {
        let Self { cycles, hits, replayed, builds, plain, replays, without_node, .. } = self;
        format!(
            "{cycles} cycles: {hits} hits, {replayed} by a table that was replayed, {builds} builds, {plain} plain, {replays} replays, {without_node} without a node"
        )
    }

    fn add(&mut self, other: &Self) {
        self.cycles += other.cycles;
        self.hits += other.hits;
        self.replayed += other.replayed;
        self.builds += other.builds;
        self.plain += other.plain;
        self.replays += other.replays;
        self.compared += other.compared;
        self.without_node += other.without_node;
        self.allocations += other.allocations;
        self.deallocations += other.deallocations;
        self.creations += other.creations;
        self.shares += other.shares;
        self.waits += other.waits;
        self.tolerated += other.tolerated;
        self.reports += other.reports;
        self.forks += other.forks;
        self.narrowed += other.narrowed;
        for (rule, count) in &other.applied {
            *self.applied.entry(*rule).or_default() += count;
        }
    }

    fn take(&mut self, twins: &Twins) {
        let (scheduler, stats) = (twins.scheduler(), twins.scheduler().table_stats());
        self.cycles += twins.cycles;
        self.allocations += twins.allocations;
        self.deallocations += twins.deallocations;
        self.creations += twins.creations;
        self.shares += twins.shares;
        self.waits += twins.waits;
        self.tolerated += twins.tolerated;
        self.reports += twins.reports;
        self.forks += twins.forks;
        self.narrowed += twins.narrowed;
        self.hits += stats.hits;
        self.replayed += scheduler.tables.as_ref().map_or(0, |tables| tables.replayed);
        self.builds += stats.builds;
        self.plain += stats.plain;
        self.replays += stats.replays;
        if let Some(comparison) = &scheduler.comparison {
            self.compared += comparison.compared;
            self.without_node += comparison.without_node;
        }
        for rule in Rule::ALL {
            *self.applied.entry(rule).or_default() += scheduler.applied(rule);
        }
    }
}

/// The parameters of a history.
#[derive(Clone, Debug)]
pub(super) struct History {
    palette: Vec<usize>,
    nodes: Vec<Shape>,
    steps: Vec<Step>,
}

impl History {
    pub(super) fn any(Setting { nodes, zones, .. }: Setting) -> impl Strategy<Value = Self> {
        let steps = prop::collection::vec(step(nodes * 5 / 4, zones), 40..140);
        (palette(), first_nodes(nodes, zones), steps).prop_map(|(palette, nodes, steps)| Self {
            palette,
            nodes,
            steps,
        })
    }

    fn begin(&self, twins: &mut Twins) -> Result<(), Difference> {
        twins.begin_objects()?;
        self.nodes.iter().enumerate().try_for_each(|(number, shape)| {
            twins.shape_node(number, *shape)?;
            twins.set_csi_node(number)?;
            twins.set_slice(number)
        })
    }

    /// The state after the history.
    pub(super) fn after(&self, setting: Setting) -> Result<Twins, Difference> {
        let mut twins = Twins::new(setting, self.palette.clone());
        self.begin(&mut twins)?;
        self.steps.iter().try_for_each(|step| twins.make(step))?;
        Ok(twins)
    }

    /// Runs the history up to the first difference.
    fn live(&self, setting: Setting, coverage: &RefCell<Coverage>) -> Result<(), Difference> {
        let mut twins = Twins::new(setting, self.palette.clone());
        let result =
            self.begin(&mut twins).and_then(|()| self.steps.iter().try_for_each(|step| twins.make(step)));
        coverage.borrow_mut().take(&twins);
        result
    }
}

/// Runs a number of histories of a setting, always the same ones. A difference is minimized before
/// it is reported.
fn go_through(
    setting: Setting,
    histories: u32,
    shrinks: u32,
    coverage: &RefCell<Coverage>,
) -> Result<(), String> {
    let config = Config {
        cases: histories,
        failure_persistence: None,
        max_shrink_iters: shrinks,
        ..Config::default()
    };
    let seed = [setting.nodes as u8; 32];
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let found = runner
        .run(&History::any(setting), |history| history.live(setting, coverage).map_err(TestCaseError::fail));
    found.map_err(|error| format!("{setting:?}: {error}"))
}

const SETTINGS: [Setting; 6] = [
    SMALL,
    Setting { nodes: 20, coarse: 2, ..SMALL },
    Setting { nodes: 10, zones: 4, coarse: 4, kept: 60, with_tallies: true, ..SMALL },
    Setting { nodes: 9, with_tallies: true, ..SMALL },
    Setting { nodes: 90, zones: 80, ..SMALL },
    Setting { nodes: 12, is_mixed: true, ..SMALL },
];

pub(super) const SMALL: Setting = Setting {
    nodes: 8,
    zones: 3,
    coarse: 64,
    kept: 1 << 16,
    with_tallies: false,
    is_mixed: false,
    off: None,
};

/// The factor for the number of histories: `TABLE_HISTORIES`.
fn scale() -> u32 {
    std::env::var("TABLE_HISTORIES").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

#[test]
fn tables_decide_as_the_plain_path_does() {
    let run = |setting: Setting| {
        let coverage = RefCell::new(Coverage::default());
        let histories = if setting.nodes > 64 { 2 } else { 12 };
        go_through(setting, histories * scale(), 2000, &coverage).map(|()| coverage.into_inner())
    };
    let mut all = Coverage::default();
    std::thread::scope(|scope| {
        for (setting, run) in SETTINGS.map(|setting| (setting, scope.spawn(move || run(setting)))) {
            let coverage = run.join().unwrap().unwrap_or_else(|error| panic!("{error}"));
            println!("{setting:?}: {}", coverage.line());
            all.add(&coverage);
        }
    });
    println!("{all:#?}");
    all.check(u64::from(scale()));
}

#[test]
fn without_any_one_rule_tables_differ() {
    let coverage = RefCell::new(Coverage::default());
    let shows = |off| {
        let fails = |setting| go_through(Setting { off: Some(off), ..setting }, 40, 0, &coverage).is_err();
        SETTINGS[..4].iter().any(|setting| fails(*setting))
    };
    let redundant: Vec<Rule> = Rule::ALL.into_iter().filter(|rule| !shows(*rule)).collect();
    assert_eq!(redundant, [], "no history shows that these rules are needed");
}
