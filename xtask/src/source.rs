//! Source files, and where their code has certain words.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::root;

/// The text of a file, by its path from the root.
pub fn read(path: &Path) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The Rust files below a folder, as sorted paths from the root.
pub fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("a readable folder");
            let path = folder.join(entry.file_name());
            if entry.file_type().expect("a file type").is_dir() {
                let name = entry.file_name();
                // Not what Cargo or an editor keeps here.
                let is_source = name != "target" && !name.to_string_lossy().starts_with('.');
                folders.extend(is_source.then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    assert!(!files.is_empty(), "no Rust files in {folder}");
    files.sort();
    files
}

/// Whether a file is compiled for tests only, by its name.
pub fn is_test(path: &Path) -> bool {
    let mut names = path.components().map(Component::as_os_str);
    names.any(|name| ["tests", "tests.rs", "testing", "testing.rs"].iter().any(|test| name == *test))
}

/// The numbered lines that are compiled outside tests and documentation, without comments.
///
/// Relies on rustfmt: an item for tests begins with an attribute at some depth and ends with a
/// line at the same depth.
pub fn code(source: &str) -> Vec<(usize, &str)> {
    let mut code = Vec::new();
    let mut lines = source.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let depth = line.len() - line.trim_start().len();
        if ["#[cfg(test)]", "#[cfg(doc)]", "#[cfg(doctest)]"].contains(&line.trim_start()) {
            let is_end = |line: &str| {
                let is_item =
                    line.len() - line.trim_start().len() == depth && !line.trim_start().starts_with("//");
                is_item && (line.ends_with(';') || line.ends_with('}') || line.ends_with(','))
            };
            lines.by_ref().find(|(_, line)| is_end(line));
            continue;
        }
        code.push((number + 1, line.split("//").next().unwrap_or_default()));
    }
    code
}

/// The code lines that have one of these words: number and word.
pub fn found<'a>(source: &str, words: &[&'a str]) -> Vec<(usize, &'a str)> {
    let mut found = Vec::new();
    for (number, line) in code(source) {
        let here = words.iter().filter(|word| has_word(line, word));
        found.extend(here.map(|word| (number, *word)));
    }
    found
}

/// Whether a line has a word that is not part of a longer name.
fn has_word(line: &str, word: &str) -> bool {
    let is_name =
        |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        let ends = word.ends_with([':', '!']) || !is_name(after.chars().next());
        !is_name(before.chars().next_back()) && ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_code_but_not_in_comments_or_tests() {
        let source = "\
use http::{Method, Request}; // not Method::PUT
/// Like a Method::PATCH.
fn change() -> Requester {
    send(Method::POST);
}
#[cfg(test)]
use http::Method::PUT;
#[cfg(test)]
mod tests {
    fn f() { Method::PUT; }
}
impl X {
    #[cfg(test)]
    fn for_tests() {
        Method::PUT;
    }
    fn last() { Method::DELETE }
}
";
        let words = ["Method::POST", "Method::PUT", "Method::PATCH", "Method::DELETE", "Request"];
        assert_eq!(found(source, &words), [(1, "Request"), (4, "Method::POST"), (17, "Method::DELETE")]);
    }
}
