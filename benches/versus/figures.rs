//! Figures that compare the contenders by workload.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use supercargo_benches::figure::Chart;

use crate::report::{self, Measure, SCHEDULING, STEADY, THROUGHPUT};
use crate::stats::median;

/// Writes figures into a folder. A single workload has none.
pub(crate) fn write(results: &[report::Result], dir: &Path) -> Result<Vec<PathBuf>> {
    let mut written = Vec::new();
    if results.len() < 2 {
        return Ok(written);
    }
    fs::create_dir_all(dir).with_context(|| format!("create {}", dir.display()))?;
    for (name, measure) in [("throughput", THROUGHPUT), ("cpu", SCHEDULING), ("memory", STEADY)] {
        let Some(svg) = chart(results, &measure).svg() else { continue };
        let path = dir.join(format!("versus-{name}.svg"));
        fs::write(&path, svg).with_context(|| format!("write {}", path.display()))?;
        written.push(path);
    }
    Ok(written)
}

fn chart(results: &[report::Result], measure: &Measure) -> Chart {
    let names = results.first().map(|result| result.contenders.each_ref().map(|(name, _)| *name));
    let line = |(who, name): (usize, &str)| {
        let of = |result: &report::Result| {
            let values = measure.values(&result.contenders[who].1);
            (!values.is_empty()).then(|| median(&values))
        };
        (name.to_owned(), results.iter().map(of).collect::<Vec<_>>())
    };
    let mut lines: Vec<_> = names.into_iter().flatten().enumerate().map(line).collect();
    lines.retain(|(_, line)| line.iter().any(Option::is_some));
    // Drops the common prefix of the names to save space.
    let short = |result: &report::Result| result.workload.trim_start_matches("Scheduling").to_owned();
    Chart {
        title: "On a real control plane".to_owned(),
        across: "workload".to_owned(),
        up: measure.name.to_owned(),
        places: results.iter().map(short).collect(),
        lines,
    }
}
