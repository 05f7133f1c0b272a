//! Output: progress on a terminal, tables of 80 columns, goals.

use std::fmt::Write as _;
use std::io::{IsTerminal as _, Write as _, stderr};

use serde_json::{Map, Value, json};

/// A progress line, on terminals only.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    shown: bool,
}

/// One row per client, one column per measure, and a value per round in each field.
pub(crate) struct Table {
    pub(crate) title: String,
    pub(crate) columns: &'static [Column],
    pub(crate) rows: Vec<(&'static str, Vec<Series>)>,
}

/// The name of a column, in two lines and for programs.
pub(crate) struct Column {
    pub(crate) head: [&'static str; 2],
    pub(crate) name: &'static str,
}

/// The values of several rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series(pub(crate) Vec<f64>);

/// A goal and its result.
pub(crate) struct Goal {
    pub(crate) what: String,
    pub(crate) at_most: f64,
    pub(crate) ratio: f64,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { shown: stderr().is_terminal() }
    }

    pub(crate) fn say(self, what: &str) {
        if self.shown {
            // Progress is optional.
            let _ = write!(stderr(), "\r\x1b[K{what}");
        }
    }

    /// Removes the line.
    pub(crate) fn clear(self) {
        self.say("");
    }
}

impl Series {
    pub(crate) fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// Half the distance between the quartiles.
    fn spread(&self) -> Option<f64> {
        Some((self.quantile(0.75)? - self.quantile(0.25)?) / 2.0)
    }

    fn quantile(&self, share: f64) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = share * last as f64;
        let (below, above) = (sorted[at.floor() as usize], sorted[at.ceil() as usize]);
        Some(below + (above - below) * at.fract())
    }

    fn shown(&self) -> String {
        let (Some(median), Some(spread)) = (self.median(), self.spread()) else { return "–".to_owned() };
        let digits = match median.abs() {
            ..10.0 => 2,
            ..100.0 => 1,
            _ => 0,
        };
        format!("{median:.digits$} ±{spread:.digits$}")
    }
}

impl Table {
    /// The median of a row and column.
    pub(crate) fn median(&self, row: &str, column: &str) -> Option<f64> {
        let (_, fields) = self.rows.iter().find(|(name, _)| *name == row)?;
        let at = self.columns.iter().position(|known| known.name == column)?;
        fields[at].median()
    }

    pub(crate) fn show(&self) -> String {
        const LABEL: usize = 20;
        let width = (80 - LABEL) / self.columns.len().max(1);
        // Writing to a String cannot fail.
        let mut out = format!("{}\n", self.title);
        for line in 0..2 {
            let mut head = format!("{:LABEL$}", "");
            for column in self.columns {
                _ = write!(head, "{:>width$}", column.head[line]);
            }
            _ = writeln!(out, "{}", head.trim_end());
        }
        for (name, fields) in &self.rows {
            _ = write!(out, "{name:LABEL$}");
            for field in fields {
                _ = write!(out, "{:>width$}", field.shown());
            }
            out.push('\n');
        }
        out
    }

    pub(crate) fn to_json(&self) -> Value {
        let row = |(name, fields): &(&'static str, Vec<Series>)| {
            let fields = self.columns.iter().zip(fields).map(|(column, field)| {
                let value = json!({"median": field.median(), "spread": field.spread(), "rounds": field.0});
                (column.name.to_owned(), value)
            });
            json!({"client": name, "measures": fields.collect::<Map<_, _>>()})
        };
        json!({"title": self.title, "rows": self.rows.iter().map(row).collect::<Value>()})
    }
}

impl Goal {
    /// `None` if either was not measured.
    pub(crate) fn new(what: String, at_most: f64, ours: Option<f64>, theirs: Option<f64>) -> Option<Self> {
        let ratio = ours? / theirs.filter(|theirs| *theirs > 0.0)?;
        Some(Self { what, at_most, ratio })
    }

    fn is_met(&self) -> bool {
        self.ratio <= self.at_most
    }

    pub(crate) fn show(&self) -> String {
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        format!("{:<54}{:>6.2}  at most {:.1}  {verdict}\n", self.what, self.ratio, self.at_most)
    }

    pub(crate) fn to_json(&self) -> Value {
        json!({"goal": self.what, "ratio": self.ratio, "atMost": self.at_most, "met": self.is_met()})
    }
}

/// As `12,345`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
