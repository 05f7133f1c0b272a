//! Normalizes the output of kubectl.

use serde_json::{Value, json};

use super::normal::{Names, is_age};
use super::session::Ended;

/// Status code and output of a command. JSON and YAML are compared as values, tables and texts line
/// by line.
pub(super) fn normal(command: &str, ended: Ended, only: &[String], sorted: bool, names: &mut Names) -> Value {
    let has = |format: &str| command.split(' ').any(|word| word == format);
    let object: Option<Value> = if ended.code == 0 && (has("-o=json") || has("--raw")) {
        serde_json::from_str(&ended.stdout).ok()
    } else if ended.code == 0 && has("-o=yaml") {
        serde_saphyr::from_str(&ended.stdout).ok()
    } else {
        None
    };
    let stdout = match object {
        Some(mut object) => {
            names.normalize(&mut object);
            object
        }
        None => lines(&ended.stdout, only, sorted, names),
    };
    json!({ "code": ended.code, "stdout": stdout, "stderr": lines(&ended.stderr, &[], false, names) })
}

fn lines(text: &str, only: &[String], sorted: bool, names: &Names) -> Value {
    let wanted = |line: &&str| {
        let first = line.split_whitespace().next().unwrap_or_default();
        only.is_empty() || only.iter().any(|word| word == first)
    };
    let mut lines: Vec<String> = text.lines().filter(wanted).map(|line| normal_line(line, names)).collect();
    if sorted {
        lines.sort();
    }
    json!(lines)
}

/// Collapses spaces, because column widths depend on their content.
fn normal_line(line: &str, names: &Names) -> String {
    let mut words: Vec<String> = line.split_whitespace().map(|word| normal_word(word, names)).collect();
    while let Some(zone) = words.iter().position(|word| word == "+0000") {
        // For example `2006-01-02 15:04:05.9 +0000` or `Mon, 02 Jan 2006 15:04:05 +0000`.
        let is_short = zone >= 2 && words[zone - 2].matches('-').count() == 2;
        let start = zone.saturating_sub(if is_short { 2 } else { 5 });
        words.splice(start..=zone, ["<time>".to_owned()]);
    }
    names.text(&words.join(" "))
}

fn normal_word(word: &str, names: &Names) -> String {
    let inner = word.trim_matches(|letter: char| "\"',()".contains(letter));
    let of_tmp = |word: &str| word.contains("/LIVE-") || word.contains("/MERGED-");
    if is_age(inner) {
        word.replace(inner, "<age>")
    } else if of_tmp(word) {
        // The files that `diff` compares.
        word.rsplit('/').next().unwrap_or_default().to_owned()
    } else if is_address(inner) {
        word.replace(inner, "<ip>")
    } else if inner.starts_with("https://127.0.0.1:") {
        word.replace(inner, "<server>")
    } else {
        names.text(word)
    }
}

/// The address of a service.
fn is_address(word: &str) -> bool {
    word.starts_with("10.") && word.parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_times_and_widths_are_normalized() {
        let names = &Names::default();
        assert_eq!(
            normal_line("a   1/1  Running  0 (5s ago)   2m10s", names),
            "a 1/1 Running 0 (<age> ago) <age>"
        );
        let time = "CreationTimestamp:  Sat, 21 Nov 2026 17:30:00 +0000";
        assert_eq!(normal_line(time, names), "CreationTimestamp: <time>");
        assert_eq!(normal_line("--- a 2026-11-21 17:36:04.589096678 +0000", names), "--- a <time>");
        assert_eq!(
            normal_line("web ClusterIP 10.0.0.7 <none> 80/TCP 5s", names),
            "web ClusterIP <ip> <none> 80/TCP <age>"
        );
    }
}
