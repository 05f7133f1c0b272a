//! Figures: cost by cluster size and by differences of pods.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use supercargo_benches::figure::Chart;
use supercargo_benches::grouped;

use crate::report::{Row, signatures_name};

/// Writes a figure for each workload that was measured at several sizes or with several kinds of
/// signatures. Returns the written files.
pub(crate) fn write(rows: &[Row], dir: &Path) -> Result<Vec<String>> {
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    let names: BTreeSet<&str> = rows.iter().map(|row| row.workload.as_str()).collect();
    let mut written = Vec::new();
    for name in names {
        let of_workload = || rows.iter().filter(|row| row.workload == name);
        let signatures = distinct(of_workload().map(|row| signatures_name(row.signatures)));
        let nodes = distinct(of_workload().map(|row| row.nodes));
        for kind in &signatures {
            let rows: Vec<_> = of_workload().filter(|row| signatures_name(row.signatures) == *kind).collect();
            let places = rows.iter().map(|row| grouped(row.nodes as u64)).collect();
            let chart = chart(format!("{name}, {kind} pods"), "nodes", places, &rows);
            written.extend(save(dir, &format!("{name}-{kind}-by-nodes"), &chart, rows.len())?);
        }
        for count in nodes {
            let rows: Vec<_> = of_workload().filter(|row| row.nodes == count).collect();
            let places = rows.iter().map(|row| signatures_name(row.signatures)).collect();
            let title = format!("{name}, {} nodes", grouped(count as u64));
            let chart = chart(title, "signatures", places, &rows);
            written.extend(save(dir, &format!("{name}-{count}-by-signatures"), &chart, rows.len())?);
        }
    }
    Ok(written)
}

/// Distinct values in their order.
fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

fn chart(title: String, across: &str, places: Vec<String>, rows: &[&Row]) -> Chart {
    let microseconds = |value: Option<f64>| value.map(|nanoseconds| nanoseconds / 1000.0);
    let line = |name: &str, of: &dyn Fn(&Row) -> Option<f64>| {
        (name.to_owned(), rows.iter().map(|row| microseconds(of(row))).collect::<Vec<_>>())
    };
    let mut lines = vec![
        line("supercargo", &|row| row.tables.mean()),
        line("its plain path", &|row| row.plain.mean()),
        line("kube-scheduler", &|row| row.upstream_default_mean()),
        line("… scoring all nodes", &|row| row.upstream_all_mean()),
    ];
    lines.retain(|(_, line)| line.iter().any(Option::is_some));
    let up = "mean time of a cycle, µs".to_owned();
    Chart { title, across: across.to_owned(), up, places, lines }
}

/// Saves a chart with more than one position.
fn save(dir: &Path, name: &str, chart: &Chart, places: usize) -> Result<Option<String>> {
    let Some(svg) = chart.svg().filter(|_| places > 1) else { return Ok(None) };
    let path = dir.join(format!("{}.svg", name.to_lowercase()));
    fs::write(&path, svg).with_context(|| format!("write {}", path.display()))?;
    Ok(Some(path.display().to_string()))
}
