//! The configurations in this repository: in examples, manifests and documents.

use std::path::Path;
use std::sync::LazyLock;

use super::super::{Catalog, Config, ConfigErrors};

/// A configuration and its source.
pub(super) struct File {
    pub(super) name: String,
    pub(super) text: String,
}

/// Files that are or contain a configuration.
const SOURCES: &[&str] = &[
    "docs/configuration.md",
    "manifests/base/configmap.yaml",
    "manifests/profiles/bin-packing.yaml",
    "tests/parity/config.yaml",
];

/// All configurations; none is empty.
pub(super) static FILES: LazyLock<Vec<File>> =
    LazyLock::new(|| SOURCES.iter().flat_map(|name| read(name)).collect());

/// Loads a file with the in-tree plugins.
pub(super) fn in_tree(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse("c.yaml", text, &Catalog::in_tree())
}

fn read(name: &str) -> Vec<File> {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
    let found: Vec<File> = configurations(&text).map(|text| File { name: name.to_owned(), text }).collect();
    assert!(!found.is_empty(), "{name} has no configuration");
    found
}

/// Extracts each configuration, without the indentation of its block.
fn configurations(text: &str) -> impl Iterator<Item = String> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &&str| line.trim_start().starts_with("apiVersion: kubescheduler.config.k8s.io/");
    let starts: Vec<usize> = (0..lines.len()).filter(|index| begins(&lines[*index])).collect();
    starts.into_iter().map(move |start| {
        let indent = lines[start].len() - lines[start].trim_start().len();
        let belongs = |line: &&&str| {
            line.is_empty()
                || (line.len() >= indent && line[..indent].trim().is_empty() && !line.starts_with("```"))
        };
        let block = lines[start..].iter().take_while(belongs);
        let lines: Vec<&str> = block.map(|line| line.get(indent..).unwrap_or_default()).collect();
        lines.join("\n") + "\n"
    })
}
