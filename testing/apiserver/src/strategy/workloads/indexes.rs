//! Sets of job indexes: `0-3,5`.

use crate::json::int;
use serde_json::Value;

/// The number of indexes in a text, or its error.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut last: Option<i64> = None;
    if text.is_empty() {
        return Ok(0);
    }
    for interval in text.split(',') {
        let (first, end) = parse(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// The first index that both texts contain.
pub(super) fn overlap(completed: &str, failed: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<(i64, i64)> {
        text.split(',').filter_map(|interval| parse(interval, completions).ok()).collect()
    };
    let (completed, failed) = (intervals(completed), intervals(failed));
    let common = completed.iter().flat_map(|(first, end)| {
        let meets = failed.iter().filter(move |(other, other_end)| first <= other_end && other <= end);
        meets.map(move |(other, _)| *first.max(other))
    });
    common.min()
}

/// The number of completions of a job.
pub(super) fn completions(spec: &Value) -> i64 {
    int(spec, "completions").unwrap_or_default()
}

fn parse(interval: &str, completions: i64) -> Result<(i64, i64), String> {
    let index = |text: &str| {
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let mut parts = interval.split('-');
    let (first, end, more) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    if more.is_some() {
        return Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let first = index(first)?;
    let Some(end) = end else { return Ok((first, first)) };
    let end = index(end)?;
    if first >= end {
        return Err(format!("non-increasing order, previous: {first}, current: {end}"));
    }
    Ok((first, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_lists_are_counted_or_have_upstream_errors() {
        assert_eq!(count("", 3), Ok(0));
        assert_eq!(count("0-2,4", 5), Ok(4));
        assert_eq!(count("3", 3).unwrap_err(), "too large index: \"3\"");
        assert_eq!(count("2,1", 3).unwrap_err(), "non-increasing order, previous: 2, current: 1");
        assert_eq!(count("a", 3).unwrap_err(), "cannot convert string to integer for index: \"a\"");
        assert!(count("0-1-2", 3).unwrap_err().starts_with("the fragment \"0-1-2\" violates"));
    }

    #[test]
    fn index_lists_overlap_at_a_common_index() {
        assert_eq!(overlap("0-3,7", "5,7-8", 10), Some(7));
        assert_eq!(overlap("0-3", "2", 10), Some(2));
        assert_eq!(overlap("0", "1", 10), None);
    }
}
