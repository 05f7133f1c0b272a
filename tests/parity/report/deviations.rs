//! Reads the tables of `docs/deviations.md`.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::feature::{Feature, MIXED};

/// Its rows.
#[derive(Clone, Debug)]
pub(super) struct Deviations(Vec<Row>);

#[derive(Clone, Debug)]
struct Row {
    section: String,
    /// The first cell: what differs.
    what: String,
}

impl Deviations {
    pub(super) fn read(file: &Path) -> Result<Self> {
        let text = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
        let rows = Self::parse(&text);
        ensure!(!rows.0.is_empty(), "{} has no tables", file.display());
        Ok(rows)
    }

    fn parse(text: &str) -> Self {
        let (mut section, mut rows, mut lines) = (String::new(), Vec::new(), text.lines().peekable());
        while let Some(line) = lines.next() {
            if let Some(heading) = line.strip_prefix("## ") {
                heading.trim().clone_into(&mut section);
            }
            let is_rule = |line: &str| line.starts_with("|--");
            let is_head = lines.peek().is_some_and(|next| is_rule(next));
            if line.starts_with('|') && !is_rule(line) && !is_head {
                let what = line.split('|').nth(1).unwrap_or_default().trim().to_owned();
                rows.push(Row { section: section.clone(), what });
            }
        }
        Self(rows)
    }

    /// The heading of each row.
    pub(super) fn sections(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|row| row.section.as_str())
    }

    /// Removes and returns what differs in a feature. With `rest`, it takes all remaining rows of
    /// [`MIXED`].
    pub(super) fn take(&mut self, feature: &Feature, rest: bool) -> Vec<String> {
        let is_of = |row: &mut Row| {
            let named = feature.sections.contains(&row.section.as_str());
            let matches = || feature.words.iter().any(|word| row.what.contains(word));
            named || row.section == MIXED && (rest || matches())
        };
        self.0.extract_if(.., is_of).map(|row| row.what).collect()
    }
}

#[test]
fn rows_go_to_the_first_feature_with_a_matching_word() {
    let text = "# Title\n\n## Decisions\n\n| what | why |\n|---|---|\n| host ports | a |\n| other | b |\n\n\
                ## Binding\n\n| what | why |\n|---|---|\n| bind | c |\n";
    let mut rows = Deviations::parse(text);
    assert_eq!(rows.sections().collect::<Vec<_>>(), ["Decisions", "Decisions", "Binding"]);
    let feature = |sections, words| Feature { title: "", groups: &[], tests: &[], sections, words };
    assert_eq!(rows.take(&feature(&[], &["ports"]), false), ["host ports"]);
    assert_eq!(rows.take(&feature(&["Binding"], &["ports"]), false), ["bind"]);
    assert_eq!(rows.take(&feature(&[], &[]), true), ["other"]);
}
