//! `/statusz`: start time, version and paths.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

/// The constant content.
#[derive(Clone, Debug)]
pub(super) struct Statusz {
    started: Timestamp,
    since: Instant,
    emulated_version: String,
    paths: String,
}

impl Statusz {
    pub(super) fn new(started: Timestamp, emulated_version: String, paths: &[&str]) -> Self {
        Self { started, since: Instant::now(), emulated_version, paths: paths.join(" ") }
    }

    /// The page, one line per item.
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
    async fn statusz_has_start_time_and_uptime() {
        let started = "2026-01-02T03:04:05.6Z".parse().unwrap();
        let statusz = Statusz::new(started, "1.37".into(), &["/livez", "/readyz"]);
        tokio::time::advance(Duration::from_secs(3 * 3600 + 4 * 60 + 5)).await;
        let text = statusz.text();
        let expected = "Started: Fri Jan  2 03:04:05 UTC 2026\nUp: 3 hr 04 min 05 sec\nBinary version: ";
        assert!(text.starts_with(expected), "{text}");
        assert!(text.ends_with("Emulation version: 1.37\nPaths: /livez /readyz\n"), "{text}");
    }
}
