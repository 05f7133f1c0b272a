//! No text panics, and every error says where it is.

use proptest::prelude::*;

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

/// Pieces that mean something in YAML or in the file.
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
    if let Err(errors) = parse(text) {
        assert!(errors.iter().count() > 0);
        for error in &errors {
            let position = error.position.expect("an error in a text has a position");
            let lines = text.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count();
            assert!(position.line <= lines + 1 && position.column >= 1, "{error} in {text:?}");
        }
    }
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
    fn no_mutation_of_a_valid_file_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..12_usize, prop::sample::select(PIECES)), 1..6),
    ) {
        let mut letters: Vec<char> = VALID.chars().collect();
        for (index, dropped, piece) in edits {
            let start = index.index(letters.len() + 1);
            let end = (start + dropped).min(letters.len());
            letters.splice(start..end, piece.chars());
        }
        check(&letters.into_iter().collect::<String>());
    }
}
