//! Reads the Prometheus text format.

use std::collections::{BTreeMap, BTreeSet};

/// One line with a value.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

/// All series of one name.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    /// The type in the TYPE line.
    pub(super) kind: String,
    /// The beginning of the HELP line: the stability, and since when it is deprecated.
    pub(super) stability: String,
    pub(super) samples: Vec<Sample>,
}

/// The scraped families by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Exposition(pub(super) BTreeMap<String, Family>);

impl Family {
    /// The names of its labels, without `le`.
    pub(super) fn label_names(&self) -> BTreeSet<&str> {
        let names = self.samples.iter().flat_map(|sample| sample.labels.keys());
        names.map(String::as_str).filter(|name| *name != "le").collect()
    }

    /// The bucket bounds as text.
    pub(super) fn bounds(&self) -> BTreeSet<&str> {
        self.values_of("le")
    }

    /// The values of a label in all samples.
    pub(super) fn values_of(&self, label: &str) -> BTreeSet<&str> {
        self.samples.iter().filter_map(|sample| sample.labels.get(label)).map(String::as_str).collect()
    }
}

impl Exposition {
    /// Parses a text. Every line must be valid, and every sample must belong to an announced
    /// family.
    pub(super) fn parse(text: &str) -> Self {
        let mut families = BTreeMap::<String, Family>::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let mut words = comment.splitn(3, ' ');
                let (word, name, rest) = (words.next().unwrap(), words.next().unwrap(), words.next());
                let family = families.entry(name.to_owned()).or_default();
                match word {
                    "HELP" => stability(rest.unwrap_or_default()).clone_into(&mut family.stability),
                    "TYPE" => {
                        assert!(family.kind.is_empty() && family.samples.is_empty(), "{line}");
                        rest.unwrap().clone_into(&mut family.kind);
                    }
                    _ => panic!("what is {line:?}?"),
                }
                continue;
            }
            let sample = sample(line);
            let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| sample.name.strip_suffix(end));
            let has_parts = |name: &&str| {
                families.get(*name).is_some_and(|it| ["histogram", "summary"].contains(&&*it.kind))
            };
            let name = base.filter(has_parts).unwrap_or(&sample.name).to_owned();
            let family = families.get_mut(&name).unwrap_or_else(|| panic!("of which family is {line:?}?"));
            family.samples.push(sample);
        }
        Self(families)
    }

    /// The sum of the series of this name with all these labels; `None` if none exists.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let family = self.0.get(name).or_else(|| self.0.get(base?))?;
        let has = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(label, value)| sample.labels.get(*label).is_some_and(|it| it == value))
        };
        let mut found = family.samples.iter().filter(has).map(|sample| sample.value).peekable();
        found.peek()?;
        Some(found.sum())
    }

    /// The sums by the values of one label.
    pub(super) fn by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let family = self.0.get(name).or_else(|| self.0.get(base?));
        let mut sums = BTreeMap::new();
        for sample in family.iter().flat_map(|family| &family.samples).filter(|sample| sample.name == name) {
            let value = sample.labels.get(label).cloned().unwrap_or_default();
            *sums.entry(value).or_default() += sample.value;
        }
        sums
    }
}

fn sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("what is {line:?}?"));
    let value = match value {
        "+Inf" => f64::INFINITY,
        "-Inf" => f64::NEG_INFINITY,
        "NaN" => f64::NAN,
        number => number.parse().unwrap_or_else(|_| panic!("what is {line:?}?")),
    };
    let (name, labels) = match series.split_once('{') {
        Some((name, labels)) => (name, labels.strip_suffix('}').unwrap_or_else(|| panic!("{line:?}"))),
        None => (series, ""),
    };
    Sample { name: name.to_owned(), labels: labels_of(labels), value }
}

/// `a="x",b="y"`, with `\\`, `\"` and `\n` in values.
fn labels_of(mut text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    while !text.is_empty() {
        let (name, rest) = text.split_once("=\"").unwrap_or_else(|| panic!("what is {text:?}?"));
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next() {
                Some((_, '\\')) => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, escaped)) => value.push(escaped),
                    None => panic!("{text:?} ends in the middle"),
                },
                Some((at, '"')) => break at,
                Some((_, plain)) => value.push(plain),
                None => panic!("{text:?} ends in the middle"),
            }
        };
        labels.insert(name.trim_start_matches(',').to_owned(), value);
        text = &rest[end + 1..];
    }
    labels
}

#[test]
fn exposition_round_trips() {
    let text = "# HELP h Some.\n# TYPE h histogram\nh_bucket{a=\"x,\\\"y\\\"\",le=\"+Inf\"} 2\nh_sum{a=\"x,\\\"y\\\"\"} 1.5\n\
                h_count{a=\"x,\\\"y\\\"\"} 2\n# HELP c_total Other.\n# TYPE c_total counter\nc_total 3\n";
    let read = Exposition::parse(text);
    assert_eq!(read.sum("h_count", &[("a", "x,\"y\"")]), Some(2.0));
    assert_eq!((read.sum("c_total", &[]), read.sum("c_total", &[("a", "b")])), (Some(3.0), None));
    assert_eq!(read.0["h"].bounds(), BTreeSet::from(["+Inf"]));
    assert_eq!(read.by("h_sum", "a"), BTreeMap::from([("x,\"y\"".to_owned(), 1.5)]));
}

/// What a help text says in front of its sentence, such as `[ALPHA] (Deprecated since 1.37.0)`.
fn stability(help: &str) -> &str {
    if !help.starts_with('[') {
        return "";
    }
    let stage = help.find(']').map_or(0, |end| end + 1);
    match help[stage..].strip_prefix(" (Deprecated since ") {
        Some(rest) => &help[..help.len() - rest.len() + rest.find(')').map_or(0, |end| end + 1)],
        None => &help[..stage],
    }
}
