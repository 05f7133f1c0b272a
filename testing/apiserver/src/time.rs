//! Times in the format of the API.

use jiff::Timestamp;

/// The time in seconds, as in `metadata.creationTimestamp`.
pub(crate) fn timestamp(time: Timestamp) -> String {
    let seconds = Timestamp::from_second(time.as_second()).unwrap_or(time);
    seconds.to_string()
}
