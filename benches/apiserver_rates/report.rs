//! The report as a table.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use supercargo_benches::grouped;

/// The measurements of one server.
#[derive(Clone, Debug)]
pub(crate) struct Measure {
    pub(crate) name: &'static str,
    unit: &'static str,
    value: f64,
    better: Better,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Better {
    More,
    Less,
    /// Printed, but not compared.
    Neither,
}

/// The measures of one server.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) measures: Vec<Measure>,
}

impl Measure {
    pub(crate) fn rate(name: &'static str, count: usize, took: Duration) -> Self {
        let value = count as f64 / took.as_secs_f64();
        Self { name, unit: "1/s", value, better: Better::More }
    }

    pub(crate) fn time(name: &'static str, took: Duration) -> Self {
        Self { name, unit: "ms", value: took.as_secs_f64() * 1000.0, better: Better::Less }
    }

    pub(crate) fn count(name: &'static str, count: usize) -> Self {
        Self { name, unit: "", value: count as f64, better: Better::Neither }
    }

    /// The ratio to another server.
    fn times(&self, other: &Self) -> Option<f64> {
        match self.better {
            Better::More => Some(self.value / other.value),
            Better::Less => Some(other.value / self.value),
            Better::Neither => None,
        }
    }

    fn shown(&self) -> String {
        if self.better == Better::Less {
            format!("{:.2}", self.value)
        } else {
            grouped(self.value.round() as u64)
        }
    }
}

/// The table, 80 columns wide: a row per measurement, a column per server, and the ratio of each to
/// the last server.
pub(crate) fn table(columns: &[Column]) -> String {
    let Some((last, others)) = columns.split_last() else { return String::new() };
    // Writing to a String cannot fail.
    let mut out = format!("{:<34}", "");
    for column in columns {
        _ = write!(out, "{:>11}", column.name);
    }
    if !others.is_empty() {
        _ = write!(out, "{:>13}", format!("× {}", last.name));
    }
    out.push('\n');
    for (row, measure) in last.measures.iter().enumerate() {
        _ = write!(out, "{:<30}{:>4}", measure.name, measure.unit);
        for column in columns {
            _ = write!(out, "{:>11}", column.measures[row].shown());
        }
        if !others.is_empty() {
            let times = others.iter().filter_map(|other| other.measures[row].times(measure)).map(ratio);
            _ = write!(out, "{:>13}", times.collect::<Vec<_>>().join("  "));
        }
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// The report as JSON.
pub(crate) fn to_json(columns: &[Column]) -> Value {
    let Some(last) = columns.last() else { return json!([]) };
    let rows = last.measures.iter().enumerate().map(|(row, measure)| {
        let of = |value: &dyn Fn(&Measure) -> Option<f64>| -> Value {
            let values = columns.iter().map(|column| (column.name, value(&column.measures[row]).into()));
            values
                .map(|(name, value): (&str, Value)| (name.to_owned(), value))
                .collect::<serde_json::Map<_, _>>()
                .into()
        };
        json!({
            "name": measure.name, "unit": measure.unit,
            "values": of(&|measure| Some(measure.value)), "times": of(&|other| other.times(measure)),
        })
    });
    rows.collect()
}

fn ratio(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.1}") } else { grouped(ratio.round() as u64) }
}
