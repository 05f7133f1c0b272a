//! Syntax: YAML, JSON, and invalid text.

use std::time::Duration;

use super::super::yaml::{Content, parse as parse_yaml};
use supercargo_framework::go_duration;

use super::super::Config;
use super::{HEADER, catalog, errors, errors_of, parse, valid};

#[test]
fn invalid_yaml_is_rejected_at_its_position() {
    let header = HEADER.trim_end();
    let cases = [
        (
            "nothing",
            String::new(),
            "c.yaml:1:1: the file is empty; it must hold a KubeSchedulerConfiguration",
        ),
        (
            "comments alone",
            "# hello\n".to_owned(),
            "c.yaml:1:1: the file is empty; it must hold a KubeSchedulerConfiguration",
        ),
        (
            "null",
            "---\nnull\n".to_owned(),
            "c.yaml:1:1: the file is empty; it must hold a KubeSchedulerConfiguration",
        ),
        ("a list", "- a\n".to_owned(), "c.yaml:1:1: must be a mapping, is a list"),
        ("a string", "hello\n".to_owned(), "c.yaml:1:1: must be a mapping, is the string \"hello\""),
        (
            "two documents",
            format!("{header}\n---\n{header}\n"),
            "c.yaml:3:1: a second document begins here; a configuration is one document",
        ),
        (
            "a tab",
            format!("{header}\nprofiles:\n\t- a\n"),
            "c.yaml:4:2: this is not YAML: tabs disallowed within this context (block indentation)",
        ),
        ("no end", "{a: [1".to_owned(), "c.yaml:1:5: this is not YAML: unclosed bracket '['"),
        (
            "an unknown alias",
            "a: *b\n".to_owned(),
            "c.yaml:1:4: this is not YAML: while parsing node, found unknown anchor",
        ),
        (
            "an alias within its anchor",
            "a: &a [*a]\n".to_owned(),
            "c.yaml:1:8: an alias inside the value that it repeats",
        ),
        (
            "a key that is no string",
            "1: a\n".to_owned(),
            "c.yaml:1:1: a key must be a string, this is the number 1",
        ),
        (
            "a key that is a mapping",
            "? {a: 1}\n: b\n".to_owned(),
            "c.yaml:1:3: a key must be a string, this is a mapping",
        ),
        ("a merge of a string", "<<: a\n".to_owned(), "c.yaml:1:5: only mappings can be merged with <<"),
        ("a tag", "a: !secret b\n".to_owned(), "c.yaml:1:12: the tag does not match the value; remove it"),
        ("a tagged list", "a: !x [b]\n".to_owned(), "c.yaml:1:7: tags are not supported; remove it"),
        (
            "a wrong tag",
            "a: !!int b\n".to_owned(),
            "c.yaml:1:10: the tag does not match the value; remove it",
        ),
        ("not a number", "a: .nan\n".to_owned(), "c.yaml:1:4: .nan is not a JSON number"),
        ("a large number", "a: 1e999\n".to_owned(), "c.yaml:1:4: 1e999 is too large"),
        (
            "a leading zero",
            "a: 010\n".to_owned(),
            "c.yaml:1:4: 010 is ambiguous (octal or decimal); write it without the leading 0, or in quotes",
        ),
    ];
    for (name, text, expected) in cases {
        assert_eq!(errors_of(&text), expected, "{name}");
    }
}

#[test]
fn oversized_files_are_rejected() {
    let flow = format!("a: {}", "[".repeat(1000));
    assert!(errors_of(&flow).contains("more than 64 levels"), "{}", errors_of(&flow));
    let block: Vec<String> = (0..1000).map(|level| format!("{}a:", " ".repeat(level))).collect();
    let block = block.join("\n");
    assert!(errors_of(&block).contains("more than 64 levels"), "{}", errors_of(&block));

    let below = |level: usize, times| vec![format!("*a{}", level - 1); times].join(", ");
    let anchored = |level: usize, items: String| format!("a{level}: &a{level} [{items}]\n");
    let tower = |times| {
        let levels = (1..100).map(|level| anchored(level, below(level, times)));
        std::iter::once(anchored(0, "x".to_owned())).chain(levels).collect::<String>()
    };
    let (laughs, towers) = (tower(10), tower(1));
    assert!(errors_of(&laughs).contains("more than 10000 values"), "{}", errors_of(&laughs));
    assert!(errors_of(&towers).contains("more than 64 levels"), "{}", errors_of(&towers));
}

#[test]
fn byte_order_marks_and_crlf_are_accepted() {
    let text = format!("\u{feff}{HEADER}parallelism: 3\n").replace('\n', "\r\n");
    assert_eq!(parse(&text).expect("valid").parallelism, 3);
    let wrong = text.replace("parallelism", "parallelisms");
    assert!(errors_of(&wrong).starts_with("c.yaml:4:1: parallelisms: "), "{}", errors_of(&wrong));
}

#[test]
fn columns_count_characters() {
    let text = "{\"apiVersion\": \"kubescheduler.config.k8s.io/v1\", \"kind\": \"KubeSchedulerConfiguration\",\n\
                \"clientConnection\": {\"kubeconfig\": \"ä\u{1f6a2}\", \"qp\": 1}}";
    assert_eq!(errors_of(text), "c.yaml:2:42: clientConnection.qp: unknown field; did you mean \"qps\"?");
}

#[test]
fn json_is_yaml() {
    let text = r#"{
	"apiVersion": "kubescheduler.config.k8s.io/v1",
	"kind": "KubeSchedulerConfiguration",
	"profiles": [{"schedulerName": "j", "percentageOfNodesToScore": 5}]
}"#;
    let config = parse(text).expect("valid");
    assert_eq!(&*config.profiles[0].scheduler_name, "j");
    assert_eq!(config.profiles[0].percentage_of_nodes_to_score, Some(5));
}

#[test]
fn aliases_and_merge_keys_are_resolved() {
    let text = "
profiles:
- &one
  schedulerName: one
  percentageOfNodesToScore: 7
  plugins: &plugins {multiPoint: {disabled: [{name: NodeName}]}}
- schedulerName: two
  plugins: *plugins
- <<: *one
  schedulerName: three
- schedulerName: four
  <<: [{percentageOfNodesToScore: 9}, *one]
";
    let config = valid(text);
    let summary: Vec<_> = config
        .profiles
        .iter()
        .map(|profile| {
            (&*profile.scheduler_name, profile.percentage_of_nodes_to_score, profile.plugins.filter.len())
        })
        .collect();
    assert_eq!(summary, [("one", Some(7), 5), ("two", None, 5), ("three", Some(7), 5), ("four", Some(9), 5)]);
}

#[test]
fn errors_in_repeated_aliases_are_reported_once() {
    let text = "
profiles:
- schedulerName: one
  plugins: &plugins
    filtr: {}
- schedulerName: two
  plugins: *plugins
";
    assert_eq!(
        errors(text),
        "c.yaml:8:5: profiles[0].plugins.filtr: unknown field; did you mean \"filter\"?"
    );
}

#[test]
fn an_alias_of_the_wrong_type_is_reported_at_its_use() {
    let text = "parallelism: &p 3\nclientConnection: {burst: *p}\nprofiles: [{plugins: *p}]\n";
    assert_eq!(errors(text), "c.yaml:6:13: profiles[0].plugins: must be a mapping, is the number 3");
}

#[test]
fn plain_scalars_resolve_as_in_kube_scheduler() {
    let cases = [
        ("yes", "Bool(true)"),
        ("Off", "Bool(false)"),
        ("~", "Null"),
        ("-12", "Number(Number(-12))"),
        ("+12", "Number(Number(12))"),
        ("0x1F", "Number(Number(31))"),
        ("0o17", "Number(Number(15))"),
        ("-0b11", "Number(Number(-3))"),
        ("1.5", "Number(Number(1.5))"),
        (".5", "Number(Number(0.5))"),
        ("1e3", "Number(Number(1000.0))"),
        ("0", "Number(Number(0))"),
        ("18446744073709551615", "Number(Number(18446744073709551615))"),
        ("1.2.3", "String(\"1.2.3\")"),
        ("0x", "String(\"0x\")"),
        ("0x-1", "String(\"0x-1\")"),
        ("inf", "String(\"inf\")"),
        ("nan", "String(\"nan\")"),
        ("15s", "String(\"15s\")"),
        ("'no'", "String(\"no\")"),
        ("!!str no", "String(\"no\")"),
        ("!!bool no", "Bool(false)"),
        ("!!float 2", "Number(Number(2))"),
    ];
    for (text, expected) in cases {
        let node =
            parse_yaml(&format!("[{text}]")).unwrap_or_else(|error| panic!("{text}: {}", error.message));
        let Content::List(items) = node.content else {
            panic!("{text} is no list");
        };
        assert_eq!(format!("{:?}", items[0].content), expected, "{text}");
    }
}

#[test]
fn durations_are_parsed_as_in_go() {
    let cases = [
        ("15s", Some(Duration::from_secs(15))),
        ("1m30s", Some(Duration::from_secs(90))),
        ("1.5h", Some(Duration::from_mins(90))),
        ("100ms", Some(Duration::from_millis(100))),
        ("+3µs", Some(Duration::from_micros(3))),
        ("0", Some(Duration::ZERO)),
        (".5s", Some(Duration::from_millis(500))),
        ("0.1234567890123s", Some(Duration::from_nanos(123_456_789))),
        ("1ns1ns", Some(Duration::from_nanos(2))),
        ("", None),
        ("5", None),
        ("s", None),
        (".s", None),
        ("1.2.3s", None),
        ("-1s", None),
        ("1 s", None),
        ("1d", None),
        ("2562048h", None),
        ("99999999999999999999s", None),
    ];
    for (text, expected) in cases {
        assert_eq!(go_duration::parse(text), expected, "{text}");
    }
}

#[test]
fn durations_are_formatted_as_in_go() {
    let cases = [
        (Duration::ZERO, "0s"),
        (Duration::from_nanos(1), "1ns"),
        (Duration::from_nanos(1_500), "1.5µs"),
        (Duration::from_micros(20_030), "20.03ms"),
        (Duration::from_millis(1_500), "1.5s"),
        (Duration::from_secs(15), "15s"),
        (Duration::from_mins(1), "1m0s"),
        (Duration::from_millis(3_600_250), "1h0m0.25s"),
        (Duration::from_secs(90_061), "25h1m1s"),
    ];
    for (length, expected) in cases {
        assert_eq!(go_duration::format(length), expected);
        assert_eq!(go_duration::parse(expected), Some(length));
    }
}

#[test]
fn a_file_is_read_from_disk() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    std::fs::write(&path, format!("{HEADER}parallelism: 5\n")).expect("written");
    let config = Config::load(&path, &catalog()).expect("valid");
    assert_eq!(config.parallelism, 5);
}

#[test]
fn unreadable_files_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("config.yaml");
    let load = || Config::load(&path, &catalog()).expect_err("invalid").to_string();
    let shown = path.display();

    assert_eq!(load(), format!("{shown}: cannot be read: No such file or directory (os error 2)"));
    std::fs::write(&path, b"# caf\xc3\xa9\nparallelism: \xff\n").expect("written");
    assert_eq!(load(), format!("{shown}:2:14: the text is not UTF-8"));
    std::fs::write(&path, vec![b'#'; (1 << 20) + 1]).expect("written");
    assert_eq!(load(), format!("{shown}: cannot be read: it has more than 1048576 bytes"));
}

#[test]
fn configuration_is_read_from_the_data_of_a_config_map() {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";
    let data = "data:\n  notes: hello\n  config.yaml: |\n    apiVersion: kubescheduler.config.k8s.io/v1\n    kind: KubeSchedulerConfiguration\n";
    let config = parse(&format!("{head}{data}    parallelism: 3\n")).unwrap();
    assert_eq!(config.parallelism, 3);
    let wrong = errors_of(&format!("{head}{data}    parallelism: 0\n"));
    assert_eq!(wrong, "c.yaml: config.yaml:3:14: parallelism: must be greater than 0, is 0");
    let none = "c.yaml:1:1: the data of this ConfigMap holds no KubeSchedulerConfiguration";
    for text in ["", "data: 7\n", "data: {a: 7}\n", "data: {a: hello}\n"] {
        assert_eq!(errors_of(&format!("{head}{text}")), none, "{text}");
    }
    let several = "data: {a: KubeSchedulerConfiguration, b: KubeSchedulerConfiguration}\n";
    assert_eq!(
        errors_of(&format!("{head}{several}")),
        "c.yaml:1:1: the data of this ConfigMap holds several: a, b; extract one"
    );
}
