//! `/statusz`: since when this runs, and what it is.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

/// What stays the same while the process runs.
#[derive(Clone, Debug)]
pub(super) struct Statusz {
    started: Timestamp,
    since: Instant,
    emulated_version: String,
    paths: String,
}

impl Statusz {
    pub(super) fn new(emulated_version: String, paths: &[&str]) -> Self {
        Self { started: Timestamp::now(), since: Instant::now(), emulated_version, paths: paths.join(" ") }
    }

    /// A line for each.
    pub(super) fn text(&self) -> String {
        let started = self.started.to_zoned(TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y");
        let seconds = self.since.elapsed().as_secs();
        format!(
            "Started: {started}\nUp: {} hr {:02} min {:02} sec\nBinary version: {}\nEmulation version: {}\nPaths: {}\n",
            seconds / 3600,
            seconds / 60 % 60,
            seconds % 60,
            env!("CARGO_PKG_VERSION"),
            self.emulated_version,
            self.paths,
        )
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_says_how_long_it_has_been_up() {
        let started = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let statusz = Statusz { started, ..Statusz::new("1.36".into(), &["/livez", "/readyz"]) };
        tokio::time::advance(Duration::from_secs(3 * 3600 + 4 * 60 + 5)).await;
        let text = statusz.text();
        let expected = "Started: Fri Jan  2 03:04:05 UTC 2026\nUp: 3 hr 04 min 05 sec\nBinary version: ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("Emulation version: 1.36\nPaths: /livez /readyz\n"), "{text}");
    }
}
