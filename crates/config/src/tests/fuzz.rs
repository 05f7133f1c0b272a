//! No text panics, every error has a position, and valid files stay valid when written and read
//! again.
//!
//! Set `PROPTEST_CASES=100000` for a long run.

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::{Catalog, Config, decode};
use super::files::{FILES, in_tree};
use super::parse;

const VALID: &str = "\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
leaderElection: {leaderElect: false, leaseDuration: 1m15.5s}
clientConnection:
  qps: 50.5
  burst: 0x10
podMaxBackoffSeconds: 20
profiles:
- &first
  schedulerName: \"one\"
  plugins: &plugins
    multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}, {name: DefaultBinder}]}
    score:
      enabled:
      - name: NodeResourcesFit
        weight: 2
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy:
        resources:
        - {name: cpu, weight: 1}
- <<: *first
  schedulerName: two
  plugins: *plugins
";

/// Pieces with a meaning in YAML or in the file.
const PIECES: &[&str] = &[
    "\n",
    " ",
    "  ",
    "\t",
    ":",
    ": ",
    "- ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "&a ",
    "*a",
    "*first",
    "<<: ",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "!!str ",
    "!x ",
    "|\n",
    ">-\n",
    "'",
    "\"",
    "\\",
    "\u{feff}",
    "\0",
    "é",
    "\u{1f6a2}",
    "# ",
    "? ",
    "null",
    "-1",
    "0",
    "007",
    "1e999",
    ".nan",
    "99999999999999999999",
    "name",
    "enabled",
    "profiles",
    "plugins",
    "*",
    "yes",
    "NodeName",
    "\r",
    "\r\n",
    "\u{85}",
    "\u{2028}",
];

fn check(text: &str) {
    check_result(text, parse(text));
}

/// The same with the in-tree plugins.
fn check_in_tree(text: &str) {
    let catalog = Catalog::in_tree();
    let config = check_result(text, Config::parse("c.yaml", text, &catalog));
    if let Some(written) = config.map(|config| config.to_yaml()) {
        let again = Config::parse("written.yaml", &written, &catalog);
        let again = again.unwrap_or_else(|errors| panic!("{errors} in\n{written}"));
        assert_eq!(again.to_yaml(), written);
    }
}

/// Checks that every error is inside the text and names its field.
fn check_result(text: &str, read: Result<Config, super::ConfigErrors>) -> Option<Config> {
    let errors = match read {
        Ok(config) => return Some(config),
        Err(errors) => errors,
    };
    assert!(errors.iter().count() > 0);
    for error in &errors {
        assert_eq!(error.file, "c.yaml");
        let position = error.position.expect("an error in a text has a position");
        let lines: Vec<&str> = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).collect();
        assert!(position.line >= 1 && position.line <= lines.len() + 1, "{error} in {text:?}");
        assert!(position.column >= 1, "{error} in {text:?}");
        assert!(!error.problem.to_string().is_empty());
    }
    None
}

/// Replaces some characters.
fn edited(text: &str, edits: &[(Index, usize, &str)]) -> String {
    let mut letters: Vec<char> = text.chars().collect();
    for (index, dropped, piece) in edits {
        let start = index.index(letters.len() + 1);
        let end = (start + dropped).min(letters.len());
        letters.splice(start..end, piece.chars());
    }
    letters.into_iter().collect()
}

/// Drops, repeats and moves lines, and inserts lines of another text.
fn shuffled(text: &str, other: &str, moves: &[(Index, Index, u8)]) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let others: Vec<&str> = other.lines().collect();
    for (from, to, kind) in moves.iter().filter(|_| !others.is_empty()) {
        let at = to.index(lines.len() + 1);
        match kind {
            0 if at < lines.len() => {
                lines.remove(at);
            }
            1 if !lines.is_empty() => lines.insert(at, lines[from.index(lines.len())]),
            _ => lines.insert(at, others[from.index(others.len())]),
        }
    }
    lines.join("\n")
}

fn edits() -> impl Strategy<Value = Vec<(Index, usize, &'static str)>> {
    prop::collection::vec((any::<Index>(), 0..12_usize, prop::sample::select(PIECES)), 1..6)
}

#[test]
fn the_valid_text_is_valid() {
    parse(VALID).expect("the text that is mutated below");
}

proptest! {
    #[test]
    fn no_string_panics(text in any::<String>()) {
        check(&text);
    }

    #[test]
    fn no_sequence_of_yaml_pieces_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..40)) {
        check(&pieces.concat());
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        match decode(bytes) {
            Ok(text) => check_in_tree(&text),
            Err((position, _)) => assert!(position.is_some(), "what is no text is so somewhere"),
        }
    }

    #[test]
    fn no_mutation_of_a_valid_file_panics(edits in edits()) {
        check(&edited(VALID, &edits));
    }

    #[test]
    fn no_mutation_of_a_published_file_panics(file in any::<Index>(), edits in edits()) {
        check_in_tree(&edited(file.get(&FILES).text.as_str(), &edits));
    }

    #[test]
    fn no_mixture_of_files_panics(
        (file, other) in (any::<Index>(), any::<Index>()),
        moves in prop::collection::vec((any::<Index>(), any::<Index>(), 0..3_u8), 1..8),
    ) {
        check_in_tree(&shuffled(&file.get(&FILES).text, &other.get(&FILES).text, &moves));
    }
}

#[test]
fn every_published_file_is_valid() {
    for file in FILES.iter() {
        in_tree(&file.text).unwrap_or_else(|errors| panic!("{}: {errors}", file.name));
        check_in_tree(&file.text);
    }
}
