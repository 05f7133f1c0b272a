//! Texts are plain English. A word list guards against relapses; CONTRIBUTING.md says how to write
//! instead.
#![allow(clippy::unwrap_used)] // all of it is for tests

use std::path::Path;
use std::process::Command;

use xtask::root;
use xtask::source::read;

/// Phrases that read as translated.
const PHRASES: &[&str] = &[
    "whoever",
    "of one's own",
    "of ones own",
    "so many",
    "held against",
    "is told",
    "are told",
    "what is asked",
    "what comes of",
    "what came of",
    "whom it",
    "by which it is",
    "who asks",
    "says so",
    "it is said",
    "as it comes",
    "to be had",
    "is no token",
    "is no error",
    "is no member",
];

/// Names of tests are shorter: they are the first thing that a person reads of a failure.
const MAX_TEST_NAME: usize = 70;

/// The width of comments, but for code, tables and drawings in them.
const MAX_COMMENT: usize = 100;

/// Files of ours with text for people.
fn files() -> Vec<String> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output().unwrap();
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let is_prose = |path: &str| {
        ([".md", ".rs", ".yaml", ".yml", ".toml", ".go", ".sh", ".tpl", "NOTES.txt", "dashboard.json", "Dockerfile"]
            .iter()
            .any(|end| path.ends_with(end))
            || path.starts_with(".ci/"))
            // This one has the list.
            && !path.ends_with("xtask/tests/prose.rs")
    };
    let paths = String::from_utf8(output.stdout).unwrap();
    paths
        .split('\0')
        .filter(|path| is_prose(path) && root().join(path).is_file())
        .map(str::to_owned)
        .collect()
}

#[test]
fn texts_have_none_of_the_phrases() {
    let mut found = Vec::new();
    for path in files() {
        let lines: Vec<String> = read(path.as_ref()).lines().map(words).collect();
        for (number, line) in lines.iter().enumerate() {
            // A phrase may go on in the next line.
            let next = lines.get(number + 1).map_or("", String::as_str);
            let both = format!("{line} {next}");
            let phrases =
                PHRASES.iter().filter(|phrase| has_phrase(&both, phrase) && !has_phrase(next, phrase));
            found.extend(phrases.map(|phrase| format!("{path}:{}: {phrase}", number + 1)));
        }
    }
    assert!(found.is_empty(), "{} times:\n{}", found.len(), found.join("\n"));
}

/// A line in small letters, without what marks comments and lists.
fn words(line: &str) -> String {
    line.to_lowercase().trim().trim_start_matches(['/', '!', '*', '#', '-', '>']).trim().to_owned()
}

#[test]
fn test_names_are_short() {
    let mut found = Vec::new();
    for path in files().iter().filter(|path| Path::new(path).extension().is_some_and(|it| it == "rs")) {
        let source = read(path.as_ref());
        let lines: Vec<&str> = source.lines().map(str::trim).collect();
        for (number, line) in lines.iter().enumerate() {
            let is_test = lines[..number]
                .iter()
                .rev()
                .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
                .any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"));
            let name =
                line.trim_start_matches("async ").strip_prefix("fn ").and_then(|it| it.split('(').next());
            let too_long = name.filter(|name| is_test && name.len() >= MAX_TEST_NAME);
            found.extend(too_long.map(|name| format!("{path}:{}: {name}", number + 1)));
        }
    }
    assert!(found.is_empty(), "{} names:\n{}", found.len(), found.join("\n"));
}

/// Whether a line has a phrase as words of its own.
fn has_phrase(line: &str, phrase: &str) -> bool {
    let goes_on = |letter: Option<char>| letter.is_some_and(char::is_alphanumeric);
    line.match_indices(phrase).any(|(at, _)| {
        !goes_on(line[..at].chars().next_back()) && !goes_on(line[at + phrase.len()..].chars().next())
    })
}

#[test]
fn phrases_are_found_as_words() {
    assert!(has_phrase("whoever asks", "whoever") && has_phrase("(so many)", "so many"));
    assert!(!has_phrase("also manyfold", "so many") && !has_phrase("this tolding", "is told"));
}

/// Whether the line has words after a mark of comments, and none of what cannot be wrapped.
fn is_prose(line: &str) -> bool {
    let comment = ["//!", "///", "//", "# "].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
    comment.is_some_and(|text| {
        let is_code = text.starts_with('\t') || text.starts_with("go:") || text.trim().starts_with('|');
        !is_code && text.trim().contains(' ') && !text.contains(['│', '─', '└'])
    })
}

#[test]
fn comments_fit_100_columns() {
    let mut found = Vec::new();
    for path in files().iter().filter(|path| Path::new(path).extension().is_none_or(|it| it != "md")) {
        let mut is_code = false;
        for (number, line) in read(path.as_ref()).lines().enumerate() {
            is_code ^= line.trim_start_matches(['/', '!', ' ']).starts_with("```");
            if !is_code && is_prose(line) && line.chars().count() > MAX_COMMENT {
                found.push(format!("{path}:{}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{} comments are wider:\n{}", found.len(), found.join("\n"));
}
