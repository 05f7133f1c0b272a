//! Errors of API objects as texts. Upstream lists all of them; here there are a few, because a user
//! can write a hundred thousand.

/// The most errors that a text lists.
pub const MOST: usize = 64;

/// The most letters of a value that an error repeats.
const MOST_LETTERS: usize = 256;

/// The first errors.
pub fn few(errors: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut few: Vec<String> = errors.into_iter().take(MOST + 1).collect();
    if few.len() > MOST {
        few.truncate(MOST);
        few.push("more errors are not listed".to_owned());
    }
    few
}

/// Errors as one text, like Go's aggregate: each once, in brackets if there are several. `None`
/// without errors.
pub fn aggregate(errors: impl IntoIterator<Item = String>) -> Option<String> {
    let mut distinct: Vec<String> = Vec::new();
    for error in errors {
        if !distinct.contains(&error) {
            distinct.push(error);
        }
        if distinct.len() > MOST {
            break;
        }
    }
    match &mut few(distinct)[..] {
        [] => None,
        [only] => Some(std::mem::take(only)),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

/// A value in an error.
pub fn quoted(value: &str) -> String {
    match value.char_indices().nth(MOST_LETTERS) {
        None => format!("{value:?}"),
        Some((end, _)) => format!("{:?}...", &value[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_listed_once_each() {
        let listed = |errors: &[&str]| aggregate(errors.iter().map(|error| (*error).to_owned()));
        assert_eq!(listed(&[]), None);
        assert_eq!(listed(&["a"]).as_deref(), Some("a"));
        assert_eq!(listed(&["a", "a"]).as_deref(), Some("a"));
        assert_eq!(listed(&["b", "a", "b"]).as_deref(), Some("[b, a]"));
    }

    #[test]
    fn many_errors_and_long_values_are_cut() {
        let all = |count: usize| (0..count).map(|i| i.to_string());
        assert!(!aggregate(all(MOST)).unwrap().contains("more"));
        let text = aggregate(all(1000)).unwrap();
        assert!(text.ends_with(" 63, more errors are not listed]"), "{text}");
        assert_eq!(quoted("a\"b"), r#""a\"b""#);
        assert_eq!(quoted(&"ä".repeat(1000)).chars().count(), MOST_LETTERS + 5);
    }
}
