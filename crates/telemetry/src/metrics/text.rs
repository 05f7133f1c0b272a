//! Prometheus text format, version 0.0.4, as served by kube-scheduler.
//!
//! `kube-informers` has a similar writer. This crate does not depend on it, so that both compile in
//! parallel.

use std::fmt::{self, Write as _};

use super::spec::{Kind, Spec};

/// The content type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Writes a text.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a family; its samples follow.
    pub fn family(&mut self, spec: &Spec) {
        let kind = match spec.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram(_) => "histogram",
        };
        self.line(format_args!("# HELP {} {}", spec.name, spec.help));
        self.line(format_args!("# TYPE {} {kind}", spec.name));
    }

    /// Writes a sample of a counter or gauge.
    pub fn sample(&mut self, spec: &Spec, labels: &[&str], value: f64) {
        self.line(format_args!("{}{} {}", spec.name, Labels(spec, labels, None), Number(value)));
    }

    /// Writes a series of a histogram. `counts` are per bucket, not cumulative; the last is above
    /// all bounds.
    pub fn histogram(&mut self, spec: &Spec, labels: &[&str], bounds: &[f64], counts: &[u64], sum: f64) {
        let (name, mut below) = (spec.name, 0);
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(counts) {
            below += count;
            self.line(format_args!("{name}_bucket{} {below}", Labels(spec, labels, Some(bound))));
        }
        self.line(format_args!("{name}_sum{} {}", Labels(spec, labels, None), Number(sum)));
        self.line(format_args!("{name}_count{} {below}", Labels(spec, labels, None)));
    }

    /// The finished text.
    pub fn finish(self) -> String {
        self.0
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.0.write_fmt(line);
        self.0.push('\n');
    }
}

/// Writes `{name="value",…}`, with a bucket's bound last.
struct Labels<'a>(&'a Spec, &'a [&'a str], Option<f64>);

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(spec, values, bound) = self;
        let mut before = '{';
        for (name, value) in spec.labels.iter().zip(*values) {
            write!(f, "{before}{name}=\"{}\"", Escaped(value))?;
            before = ',';
        }
        if let Some(bound) = bound {
            write!(f, "{before}le=\"{}\"", Bound(*bound))?;
            before = ',';
        }
        if before == ',' { f.write_char('}') } else { Ok(()) }
    }
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\\' | '"' => write!(f, "\\{c}"),
            '\n' => f.write_str("\\n"),
            c => f.write_char(c),
        })
    }
}

/// Formats a bucket bound as Prometheus' client for Go does: bounds are labels, which must be textually
/// equal.
struct Bound(f64);

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_finite() && self.0.abs() >= 1e6 { scientific(f, self.0) } else { Number(self.0).fmt(f) }
    }
}

/// Formats a number so that it stays readable.
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
    fn numbers_are_formatted_as_in_go() {
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
            (f64::INFINITY, "+Inf"),
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
    fn label_values_are_escaped() {
        const PLAIN: Spec = Spec::counter("plain_total", &[], "None.");
        const LABELLED: Spec = Spec::gauge("labelled", &["a", "b"], "Two.");
        let mut text = Text::default();
        text.family(&PLAIN);
        text.sample(&PLAIN, &[], 3.0);
        text.family(&LABELLED);
        text.sample(&LABELLED, &["x\"\\\n", ""], 0.5);
        assert_eq!(
            text.finish(),
            "# HELP plain_total None.\n# TYPE plain_total counter\nplain_total 3\n# HELP labelled Two.\n\
             # TYPE labelled gauge\nlabelled{a=\"x\\\"\\\\\\n\",b=\"\"} 0.5\n"
        );
    }

    #[test]
    fn buckets_are_cumulative() {
        const SPEC: Spec =
            Spec::histogram("h", &["l"], super::super::spec::Buckets::Given(&[1.0, 2.0]), "H.");
        let mut text = Text::default();
        text.histogram(&SPEC, &["v"], &[1.0, 2.0], &[1, 0, 2], 7.5);
        assert_eq!(
            text.finish(),
            "h_bucket{l=\"v\",le=\"1\"} 1\nh_bucket{l=\"v\",le=\"2\"} 1\nh_bucket{l=\"v\",le=\"+Inf\"} 3\n\
             h_sum{l=\"v\"} 7.5\nh_count{l=\"v\"} 3\n"
        );
    }
}
