//! Formatting of numbers and texts.

use std::time::Duration;

pub(crate) use supercargo_report::words::{count, wrap};

/// As `4.2 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// As `3 ms`, or `1.2 s`.
pub(crate) fn milliseconds(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "<1 ms".to_owned(),
        ms @ 1..1000 => format!("{ms} ms"),
        _ => seconds(duration),
    }
}

/// As `46 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted_with_units() {
        assert_eq!(count(1, "pod"), "1 pod");
        assert_eq!(count(0, "pod"), "0 pods");
        assert_eq!(seconds(Duration::from_millis(4249)), "4.2 s");
        let took = [0, 3, 999, 1250].map(|ms| milliseconds(Duration::from_millis(ms)));
        assert_eq!(took, ["<1 ms", "3 ms", "999 ms", "1.2 s"]);
        assert_eq!(percent(0.456), "46 %");
    }
}
