//! The series names and labels of a PromQL expression.

use std::collections::BTreeSet;

/// A series of an expression: its name, and the labels that it selects by.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) labels: BTreeSet<String>,
}

/// Words that are not series: functions, operators and label lists.
const WORDS: &[&str] = &[
    "sum",
    "rate",
    "increase",
    "max",
    "min",
    "avg",
    "count",
    "histogram_quantile",
    "by",
    "without",
    "on",
    "ignoring",
    "group_left",
    "group_right",
    "and",
    "or",
    "unless",
    "absent",
    "clamp_min",
    "changes",
    "topk",
    "bool",
    "offset",
    "vector",
    "time",
];

/// Keywords before a label list.
const GROUPING: &[&str] = &["by", "without", "on", "ignoring", "group_left", "group_right"];

/// The series of an expression, and the labels that it groups by.
pub(super) fn read(expression: &str) -> (Vec<Selector>, BTreeSet<String>) {
    let (mut selectors, mut grouped) = (Vec::new(), BTreeSet::new());
    let mut rest = expression;
    while let Some(begins) =
        rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '"' || c == '[' || c == '$')
    {
        rest = &rest[begins..];
        if let Some(quoted) = rest.strip_prefix('"') {
            rest = &quoted[quoted.find('"').unwrap_or_else(|| panic!("{expression}")) + 1..];
            continue;
        }
        if rest.starts_with('[') {
            rest = &rest[rest.find(']').unwrap_or_else(|| panic!("{expression}"))..];
            continue;
        }
        let end =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || "_:$".contains(c))).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        rest = after;
        if GROUPING.contains(&word) {
            let list = after.trim_start().strip_prefix('(').and_then(|list| list.split_once(')'));
            if let Some((labels, after)) = list {
                grouped.extend(
                    labels.split(',').map(|label| label.trim().to_owned()).filter(|it| !it.is_empty()),
                );
                rest = after;
            }
        } else if !word.starts_with(|c: char| c.is_ascii_digit()) && !WORDS.contains(&word) {
            let mut labels = BTreeSet::new();
            if let Some((matchers, after)) = after.strip_prefix('{').and_then(|it| it.split_once('}')) {
                let label =
                    |matcher: &str| matcher.split(['=', '!']).next().unwrap_or_default().trim().to_owned();
                labels.extend(matchers.split(',').map(label).filter(|label| !label.is_empty()));
                rest = after;
            }
            selectors.push(Selector { name: word.to_owned(), labels });
        }
    }
    (selectors, grouped)
}

#[test]
fn promql_names_and_labels_are_distinguished() {
    let (selectors, grouped) = read(
        "histogram_quantile(0.99, sum by (le, result) (rate(a_bucket{job=\"x\", verb!=\"GET\"}[5m]))) > 0.5 \
         and on (instance) b:c_total offset 5m",
    );
    let names: Vec<_> = selectors.iter().map(|selector| &*selector.name).collect();
    assert_eq!(names, ["a_bucket", "b:c_total"]);
    assert!(selectors[0].labels.contains("verb") && selectors[0].labels.contains("job"), "{selectors:?}");
    assert_eq!(grouped.iter().collect::<Vec<_>>(), ["instance", "le", "result"]);
}
