//! `docs/metrics.md` lists every family.

use std::fmt::Write as _;
use std::path::Path;

use supercargo_telemetry::metrics::spec::{ALL, Buckets, MetricKind, Spec};

/// The table in the document.
const BEGIN: &str = "<!-- families: begin -->\n";
const END: &str = "<!-- families: end -->\n";

/// Updates the table if set.
const UPDATE: &str = "UPDATE_METRICS";

fn row(spec: &Spec) -> String {
    let labels = spec.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    let kind = match spec.kind {
        MetricKind::Counter => "counter".to_owned(),
        MetricKind::Gauge => "gauge".to_owned(),
        MetricKind::Histogram(Buckets::Exponential(first, factor, count)) => {
            format!("histogram: {count} bounds from {first}, ×{factor}")
        }
        MetricKind::Histogram(Buckets::Given(bounds)) => {
            format!("histogram: {} bounds from {} to {}", bounds.len(), bounds[0], bounds[bounds.len() - 1])
        }
    };
    format!(
        "| `{}` | {kind} | {labels} | {} |\n",
        spec.name,
        spec.help.replace('|', "\\|").replace('<', "&lt;")
    )
}

fn table() -> String {
    let mut table = "| family | type | labels | what it tells |\n|---|---|---|---|\n".to_owned();
    for spec in ALL {
        let _ = write!(table, "{}", row(spec));
    }
    table
}

#[test]
fn metrics_docs_list_every_family() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (current, after) = rest.split_once(END).unwrap();
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{}{END}{after}", table())).unwrap();
        return;
    }
    assert_eq!(current, table(), "docs/metrics.md is out of date: run this test with {UPDATE}=1");
}
