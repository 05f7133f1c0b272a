//! Writes Prometheus' text format, version 0.0.4.
//!
//! ```
//! use kube_informers::prometheus::{MetricType, TextWriter};
//!
//! # fn main() -> std::fmt::Result {
//! let mut out = String::new();
//! let mut text = TextWriter::new(&mut out);
//! text.family("requests_total", MetricType::Counter, "Requests by verb.")?;
//! text.sample("requests_total", [("verb", "list")], 2.0)?;
//! assert!(out.ends_with("requests_total{verb=\"list\"} 2\n"));
//! # Ok(())
//! # }
//! ```

use std::fmt::{self, Write};

/// The content type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MetricType {
    /// A value that only increases.
    Counter,
    /// A value that increases and decreases.
    Gauge,
    /// Observations counted in buckets.
    Histogram,
}

/// Writes families and samples to `W`, one line each.
///
/// Labels are pairs of name and value. The writer escapes values; names must be valid already.
/// Bucket bounds are written as Go writes them, so they are the same label values as upstream's.
#[derive(Debug, Default)]
pub struct TextWriter<W>(W);

impl<W: Write> TextWriter<W> {
    /// A writer that appends to `out`.
    pub fn new(out: W) -> Self {
        Self(out)
    }

    /// Writes the HELP and TYPE lines of a family. Its samples must follow.
    pub fn family(&mut self, name: &str, metric_type: MetricType, help: &str) -> fmt::Result {
        let metric_type = match metric_type {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
            MetricType::Histogram => "histogram",
        };
        let help = Escaped { text: help, quotes: false };
        writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {metric_type}")
    }

    /// Writes one sample.
    pub fn sample<'l>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        value: f64,
    ) -> fmt::Result {
        self.line(name, "", labels, None, value)
    }

    /// Writes the samples of one histogram: `_bucket`, `_sum` and `_count`.
    ///
    /// `counts` are per bucket, not cumulative. There is one more count than bounds, for
    /// observations above all bounds.
    pub fn histogram<'l>(
        &mut self,
        name: &str,
        labels: impl IntoIterator<Item = (&'l str, &'l str)> + Clone,
        bounds: &[f64],
        counts: &[u64],
        sum: f64,
    ) -> fmt::Result {
        let mut cumulative = 0;
        for (bound, count) in bounds.iter().copied().chain([f64::INFINITY]).zip(counts) {
            cumulative += count;
            self.line(name, "_bucket", labels.clone(), Some(bound), cumulative as f64)?;
        }
        self.line(name, "_sum", labels.clone(), None, sum)?;
        self.line(name, "_count", labels, None, cumulative as f64)
    }

    /// The underlying output.
    pub fn into_inner(self) -> W {
        self.0
    }

    fn line<'l>(
        &mut self,
        name: &str,
        suffix: &str,
        labels: impl IntoIterator<Item = (&'l str, &'l str)>,
        bound: Option<f64>,
        value: f64,
    ) -> fmt::Result {
        write!(self.0, "{name}{suffix}")?;
        let mut separator = '{';
        for (label, text) in labels {
            write!(self.0, "{separator}{label}=\"{}\"", Escaped { text, quotes: true })?;
            separator = ',';
        }
        if let Some(bound) = bound {
            write!(self.0, "{separator}le=\"{}\"", Bound(bound))?;
            separator = ',';
        }
        if separator == ',' {
            self.0.write_char('}')?;
        }
        writeln!(self.0, " {}", Number(value))
    }
}

/// Escapes backslashes and line feeds, and `"` in label values.
struct Escaped<'a> {
    text: &'a str,
    quotes: bool,
}

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.chars().try_for_each(|c| match c {
            '\\' => f.write_str(r"\\"),
            '\n' => f.write_str(r"\n"),
            '"' if self.quotes => f.write_str("\\\""),
            c => f.write_char(c),
        })
    }
}

/// Writes a bucket's bound as Prometheus' client for Go does: bounds are label values, which are
/// equal only if their texts are.
struct Bound(f64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() && self.0.abs() >= 1e6 { scientific(f, self.0) } else { Number(self.0).fmt(f) }
    }
}

/// Writes a number so that it stays readable: with an exponent only if it is very small or large.
struct Number(f64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0;
        if number.is_infinite() {
            return f.write_str(if number > 0.0 { "+Inf" } else { "-Inf" });
        }
        if number == 0.0 || number.is_nan() || (1e-4..1e21).contains(&number.abs()) {
            return write!(f, "{number}");
        }
        scientific(f, number)
    }
}

fn scientific(f: &mut fmt::Formatter<'_>, number: f64) -> fmt::Result {
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let (sign, exponent) = exponent.strip_prefix('-').map_or(('+', exponent), |digits| ('-', digits));
    write!(f, "{digits}e{sign}{exponent:0>2}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable_and_bounds_as_in_go() {
        for (number, expected) in [
            (0.0, "0"),
            (1.0, "1"),
            (0.001, "0.001"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000_015, "1.5e-05"),
            (0.000_075_937_5, "7.59375e-05"),
            (5242.88, "5242.88"),
            (1_234_567.0, "1234567"),
            (999_999_999_999_999.0, "999999999999999"),
            (1e21, "1e+21"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(Number(number).to_string(), expected);
        }
        for (bound, expected) in [
            (0.000_015, "1.5e-05"),
            (262_144.0, "262144"),
            (1_048_576.0, "1.048576e+06"),
            (16_777_216.0, "1.6777216e+07"),
            (f64::INFINITY, "+Inf"),
        ] {
            assert_eq!(Bound(bound).to_string(), expected);
        }
    }

    #[test]
    fn help_and_label_values_are_escaped() {
        let mut text = TextWriter::new(String::new());
        text.family("plain_total", MetricType::Counter, "A \"b\" \\ and\nmore.").unwrap();
        text.sample("plain_total", [], 3.0).unwrap();
        text.family("labelled", MetricType::Gauge, "Two.").unwrap();
        text.sample("labelled", [("a", "x\"\\\n"), ("b", "")], 0.5).unwrap();
        assert_eq!(
            text.into_inner(),
            "# HELP plain_total A \"b\" \\\\ and\\nmore.\n# TYPE plain_total counter\nplain_total 3\n\
             # HELP labelled Two.\n# TYPE labelled gauge\nlabelled{a=\"x\\\"\\\\\\n\",b=\"\"} 0.5\n"
        );
    }

    #[test]
    fn histogram_buckets_are_cumulative() {
        let mut text = TextWriter::new(String::new());
        text.histogram("h", [("l", "v")], &[1.0, 2.0], &[1, 0, 2], 7.5).unwrap();
        text.histogram("g", [], &[0.1], &[1, 0], 0.05).unwrap();
        assert_eq!(
            text.into_inner(),
            "h_bucket{l=\"v\",le=\"1\"} 1\nh_bucket{l=\"v\",le=\"2\"} 1\nh_bucket{l=\"v\",le=\"+Inf\"} 3\n\
             h_sum{l=\"v\"} 7.5\nh_count{l=\"v\"} 3\n\
             g_bucket{le=\"0.1\"} 1\ng_bucket{le=\"+Inf\"} 1\ng_sum 0.05\ng_count 1\n"
        );
    }
}
