//! The program `simulate`: what its callers rely on.

use std::process::{Command, Output};

/// Runs the program with arguments that are separated by blanks.
fn simulate(arguments: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_simulate"));
    command.args(arguments.split_whitespace()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What the line that contains this text says after it.
fn after(output: &Output, what: &str) -> String {
    let all = text(&output.stdout);
    let line = all.lines().find_map(|line| line.split_once(what));
    line.map_or_else(|| panic!("{what:?} is missing in {all}"), |(_, rest)| rest.trim().to_owned())
}

#[test]
fn two_runs_of_a_seed_have_the_same_trace() {
    let hash = |seed| {
        let output = simulate(&format!("--seed {seed} --minutes 1"));
        assert!(output.status.success(), "{}", text(&output.stdout));
        after(&output, "trace")
    };
    let first = hash(2);
    assert_eq!(first, hash(2));
    assert_ne!(first, hash(4));
    // It compares traces itself, too.
    assert!(simulate("--from 2 --seeds 1 --minutes 1 --twice").status.success());
}

#[test]
fn claims_and_binds_of_gangs_are_checked_in_a_seed_that_has_them() {
    let output = simulate("--seed 5 --minutes 1");
    assert!(output.status.success(), "{}", text(&output.stdout));
    for check in ["sums of all claims", "checks of gangs at a bind"] {
        let line = text(&output.stdout).lines().find(|line| line.ends_with(check)).map(str::to_owned);
        let count = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        // Nine members come after the faults.
        assert!(count.is_some_and(|count| count >= 9), "{check}: {}", text(&output.stdout));
    }
}

#[test]
fn each_day_has_seeds_of_its_own() {
    let output = simulate("--from today --seeds 0");
    assert!(output.status.success(), "{}", text(&output.stderr));
    let first: u64 = after(&output, "seeds").split_whitespace().next().unwrap().parse().unwrap();
    assert!(first > 20_000_000 && first.is_multiple_of(1000), "{first}");
}

#[test]
fn wrong_flags_end_with_2_and_say_what_is_expected() {
    for (arguments, expected) in [
        ("--from tomorrow", "a number or \"today\" is expected"),
        ("--sabotage nothing", "possible values: no-election"),
        ("--sedes 3", "a similar argument exists: '--seeds'"),
        ("--shrink", "--seed <SEED>"),
    ] {
        let output = simulate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(text(&output.stderr).contains(expected), "{arguments}: {}", text(&output.stderr));
    }
}

#[test]
fn a_failure_ends_with_1_and_prints_the_command_that_repeats_it() {
    let output = simulate("--from 2 --seeds 1 --minutes 1 --sabotage bind-twice");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let command = after(&output, "again with: cargo run -p supercargo-simulation --");
    assert_eq!(command, "--seed 2 --minutes 1 --trace --sabotage bind-twice");
    let again = simulate(&command);
    assert_eq!(again.status.code(), Some(1));
    assert!(after(&again, "FAILED").contains("binding sent again"), "{}", text(&again.stdout));
}

#[test]
fn a_panic_of_the_scheduler_is_found_as_one() {
    let output = simulate("--seed 2 --minutes 1 --sabotage panic");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    assert!(after(&output, "FAILED").contains("the scheduler panicked"), "{}", text(&output.stdout));
}

#[test]
fn only_needed_faults_are_left() {
    // The fault of the program needs none of the plan's.
    let output = simulate("--seed 5 --minutes 1 --sabotage bind-twice --shrink");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    let all: usize = after(&output, "0 of ").split(' ').next().unwrap().parse().unwrap();
    assert!(all > 1, "{}", text(&output.stdout));
    let positions = (0..all).map(|position| position.to_string()).collect::<Vec<_>>().join(",");
    let command = after(&output, "faults are needed: cargo run -p supercargo-simulation --");
    assert_eq!(command, format!("--seed 5 --minutes 1 --trace --sabotage bind-twice --without {positions}"));
}

#[test]
fn a_seed_that_does_not_fail_needs_no_faults() {
    let output = simulate("--seed 2 --minutes 1 --shrink");
    assert!(output.status.success(), "{}", text(&output.stdout));
    assert!(text(&output.stdout).contains("seed 2 does not fail"), "{}", text(&output.stdout));
}
