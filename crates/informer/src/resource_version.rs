//! Ordering of resource versions.
//!
//! Since Kubernetes 1.35, resource versions of one resource are comparable (KEP-5504): decimal
//! integers of any length without leading zeros. Versions of different resources are not
//! comparable, and older servers guarantee nothing. The informers themselves only test for
//! equality.

use std::cmp::Ordering;

use thiserror::Error;

/// Why a text is not a comparable resource version.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ResourceVersionError {
    /// Empty: the version of an object that was never stored, or "most recent" in requests.
    #[error("the resource version is empty")]
    Empty,
    /// A leading zero, including "0": no stored object has such a version.
    #[error("the resource version {0:?} starts with 0")]
    LeadingZero(String),
    /// Something other than decimal digits.
    #[error("the resource version {0:?} is not a decimal number")]
    NotDecimal(String),
}

/// Compares two resource versions of the same resource.
///
/// Their length is unlimited, so the comparison uses their texts: the longer is newer, and texts of
/// equal length compare as strings.
pub fn compare_rv(a: &str, b: &str) -> Result<Ordering, ResourceVersionError> {
    check(a)?;
    check(b)?;
    Ok(a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

fn check(version: &str) -> Result<(), ResourceVersionError> {
    match version.as_bytes() {
        [] => Err(ResourceVersionError::Empty),
        digits if !digits.iter().all(u8::is_ascii_digit) => {
            Err(ResourceVersionError::NotDecimal(version.to_owned()))
        }
        [b'0', ..] => Err(ResourceVersionError::LeadingZero(version.to_owned())),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_length_then_text() {
        let huge = "9".repeat(50);
        let huger = format!("1{}", "0".repeat(50));
        for (a, b, expected) in [
            ("1", "1", Ordering::Equal),
            ("1", "2", Ordering::Less),
            ("10", "9", Ordering::Greater),
            ("99", "100", Ordering::Less),
            (huge.as_str(), huger.as_str(), Ordering::Less),
            (huge.as_str(), huge.as_str(), Ordering::Equal),
        ] {
            assert_eq!(compare_rv(a, b), Ok(expected), "{a} and {b}");
            assert_eq!(compare_rv(b, a), Ok(expected.reverse()), "{b} and {a}");
        }
    }

    #[test]
    fn versions_that_no_server_stores_are_rejected() {
        assert_eq!(compare_rv("", "1"), Err(ResourceVersionError::Empty));
        for zero in ["0", "01", "007"] {
            assert_eq!(compare_rv(zero, "1"), Err(ResourceVersionError::LeadingZero(zero.to_owned())));
        }
        for letters in ["a", "1a", "-1", "1.5", "+3", " 1", "0x1"] {
            assert_eq!(compare_rv("1", letters), Err(ResourceVersionError::NotDecimal(letters.to_owned())));
        }
    }
}
