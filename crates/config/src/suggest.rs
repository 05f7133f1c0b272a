//! Suggestions for misspelt names.

/// A suggestion for an unknown field.
pub(super) fn field(name: &str, known: &[&str]) -> String {
    near(name, known.iter().copied()).unwrap_or_else(|| match known {
        [] => "no fields are allowed here".to_owned(),
        known => format!("the fields here are {}", known.join(", ")),
    })
}

/// A question that offers the nearest names, if any are close.
pub(crate) fn near<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    const MOST: usize = 3;
    const LONGEST: usize = 64;
    if name.len() > LONGEST {
        return None;
    }
    let mut near: Vec<(usize, &str)> = known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= candidate.len().max(3) / 3)
        .collect();
    near.sort_unstable();
    near.dedup();
    near.truncate(MOST);
    let quoted: Vec<String> = near.iter().map(|(_, name)| format!("\"{name}\"")).collect();
    (!quoted.is_empty()).then(|| format!("did you mean {}?", quoted.join(" or ")))
}

/// The edit distance, ignoring case.
fn distance(from: &str, to: &str) -> usize {
    strsim::levenshtein(&from.to_lowercase(), &to.to_lowercase())
}
