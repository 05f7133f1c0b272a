//! Sends the tables of `requests/`: both servers must respond the same.

use std::path::{Path, PathBuf};

use anyhow::Result;
use futures::StreamExt as _;

use super::differences::{self, Difference};
use super::exchange::{self, Run};
use super::table::Table;
use super::target::{Pair, RUNTIME, Target, pair};

/// The number of concurrent tables.
const CONCURRENCY: usize = 8;

#[test]
fn every_table_is_well_formed() {
    let tables = hold(Table::all(&folder("requests")));
    let requests: usize = tables.iter().map(|table| table.requests.len()).sum();
    assert!(requests >= 500, "only {requests} requests");
}

#[test]
fn responses_are_the_same_as_from_the_real_server() {
    let filter = std::env::var("SUPERCARGO_REQUESTS").unwrap_or_default();
    let mut tables = hold(Table::all(&folder("requests")));
    tables.retain(|table| table.name.contains(&filter));
    let Some(pairs) = tables.iter().map(|table| pair(table.pod_groups)).collect::<Option<Vec<_>>>() else {
        return;
    };
    let runs = futures::stream::iter(tables.iter().zip(pairs))
        .map(|(table, Pair { real, ours, .. })| async move {
            let (real, ours) = futures::future::join(send(real, table), send(ours, table)).await;
            (table, real, ours)
        })
        .buffered(CONCURRENCY);
    let runs: Vec<(&Table, Run, Run)> = RUNTIME.block_on(runs.collect());

    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for (table, real, ours) in runs {
        let differences = compare(table, &real, &ours);
        println!(
            "{:24} {:3} requests, {:5} ms real, {:5} ms ours, {} differences",
            table.name,
            table.requests.len(),
            real.took.as_millis(),
            ours.took.as_millis(),
            differences.len()
        );
        found.extend(differences);
        faults.extend(real.unexpected);
    }
    let (differences, unused) = hold(differences::excuse(&folder("requests/differences.yaml"), found));
    if filter.is_empty() {
        faults.extend(unused);
    }
    faults.extend(differences.iter().map(Difference::to_string));
    assert!(faults.is_empty(), "{} failures:\n{}", faults.len(), faults.join("\n"));
}

async fn send(target: &Target, table: &Table) -> Run {
    exchange::run(target, table).await.unwrap_or_else(|error| panic!("{}: {error:#}", table.name))
}

fn compare(table: &Table, real: &Run, ours: &Run) -> Vec<Difference> {
    let compare = |(name, real)| {
        let request = format!("{}/{name}", table.name);
        differences::between(&request, real, &ours.answers[name])
    };
    real.answers.iter().flat_map(compare).collect()
}

pub(super) fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join("apiserver").join(name)
}

/// Fails with the message as written, not in Rust's debug format.
pub(super) fn hold<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("{error:#}"))
}
