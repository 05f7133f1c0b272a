//! Captures of random histories with pseudonyms.

use std::cell::Cell;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::histories::{History, SMALL};
use super::tally::APP;
use super::twins::options_of;
use crate::tests::redaction::Captures;

/// The pods that nobody has tried before the capture.
const UNTRIED: usize = 14;

#[test]
fn a_redacted_capture_decides_as_the_plain_one() {
    let config = Config { cases: 40, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[9; 32]));
    let bound = Cell::new(0);
    let found = runner.run(&History::any(SMALL), |history| {
        let mut twins = history.after(SMALL).map_err(TestCaseError::fail)?;
        twins.add_untried(UNTRIED).map_err(TestCaseError::fail)?;
        let mut fork = twins.scheduler().fork(twins.now, options_of(&SMALL, false)).unwrap();
        // A plugin of the histories reads this label. The search for victims begins at a hash of
        // the UID, which is no UUID here.
        let uids: Vec<String> = twins.pods.keys().map(ToString::to_string).collect();
        let kept: Vec<&str> = uids.iter().map(|uid| &**uid).chain(["Uncached", APP]).collect();
        let captures = Captures::of(&mut fork, &kept).unwrap();
        let [plain, redacted] = captures.decisions(|| options_of(&SMALL, false));
        bound.set(bound.get() + plain.iter().filter(|line| line.starts_with("binds ")).count());
        prop_assert_eq!(plain, redacted);
        Ok(())
    });
    found.unwrap();
    assert!(bound.get() > 100, "{} pods are bound", bound.get());
}
