//! Values of `--log-level`.

use thiserror::Error;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::reload;

/// Libraries that log every frame and every buffer below info. They are heard only by name, as in
/// `debug,h2=debug`.
const CHATTY: [&str; 7] = ["h2", "hyper", "kube_client", "mio", "rustls", "tokio_util", "tower"];

/// Logs every 5xx response as an error without naming the request. The caller logs more.
const UNHELPFUL: &str = "kube_client::client::builder";

/// Lines of each informer about a server that it cannot reach.
/// [`OutageLog`](crate::outage::OutageLog) says the same once.
const OF_EACH_INFORMER: &str = "kube_informers::unreachable";

/// Why the log level cannot be set.
#[derive(Debug, Error)]
pub enum LevelError {
    /// Not a log level.
    #[error(
        "{0:?} is not a log level: must be off, error, warn, info, debug or trace, or a level per module as in \
         info,supercargo=debug{hint}", hint = hint(.0)
    )]
    NoLevel(String),
    /// The logger has shut down.
    #[error("cannot change the log level: {0}")]
    Gone(#[source] reload::Error),
}

fn hint(level: &str) -> &'static str {
    if level.parse::<u32>().is_ok() { "; numbers are values of -v" } else { "" }
}

/// The level for this verbosity of kube-scheduler: 4 is for debugging, and above it every pod is
/// logged.
pub fn level_of_verbosity(verbosity: u32) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4..=5 => "debug",
        _ => "trace",
    }
}

/// What is logged at this level. Without a level for all modules, only the named ones are logged.
pub(super) fn filter(text: &str) -> Result<Targets, LevelError> {
    let refused = || LevelError::NoLevel(text.to_owned());
    let mut filter = Targets::new().with_target(UNHELPFUL, LevelFilter::OFF);
    for directive in text.split(',').map(str::trim) {
        match directive.split_once('=') {
            None => {
                let level = level(directive).ok_or_else(refused)?;
                let quiet = level.min(LevelFilter::INFO);
                let of_each = if level < LevelFilter::DEBUG { LevelFilter::OFF } else { level };
                let libraries = CHATTY.map(|target| (target, quiet));
                for (target, level) in libraries.into_iter().chain([(OF_EACH_INFORMER, of_each)]) {
                    // Libraries that are named before keep their level.
                    if !filter.iter().any(|(known, _)| known == target) {
                        filter = filter.with_target(target, level);
                    }
                }
                filter = filter.with_default(level);
            }
            Some((module, name)) => {
                if module.is_empty() || !module.chars().all(is_of_a_module) {
                    return Err(refused());
                }
                filter = filter.with_target(module, level(name).ok_or_else(refused)?);
            }
        }
    }
    Ok(filter)
}

fn level(name: &str) -> Option<LevelFilter> {
    Some(match name.to_ascii_lowercase().as_str() {
        "off" => LevelFilter::OFF,
        "error" => LevelFilter::ERROR,
        "warn" => LevelFilter::WARN,
        "info" => LevelFilter::INFO,
        "debug" => LevelFilter::DEBUG,
        "trace" => LevelFilter::TRACE,
        _ => return None,
    })
}

fn is_of_a_module(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_' || letter == ':'
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn levels_and_levels_per_module_are_accepted() {
        for (text, target, logged, not_logged) in [
            ("warn", "supercargo::run", Level::WARN, Level::INFO),
            ("WARN", "supercargo::run", Level::WARN, Level::INFO),
            ("debug", "mine", Level::DEBUG, Level::TRACE),
            ("info,supercargo=debug", "supercargo_scheduler::cycle", Level::DEBUG, Level::TRACE),
            ("info, supercargo=debug", "mine", Level::INFO, Level::DEBUG),
            ("supercargo=debug", "supercargo", Level::DEBUG, Level::TRACE),
        ] {
            let filter = filter(text).unwrap();
            assert!(filter.would_enable(target, &logged), "{text}");
            assert!(!filter.would_enable(target, &not_logged), "{text}");
        }
        assert!(!filter("off").unwrap().would_enable("supercargo", &Level::ERROR));
        assert!(!filter("supercargo=debug").unwrap().would_enable("mine", &Level::ERROR));
    }

    #[test]
    fn what_is_no_level_is_rejected_and_the_levels_are_listed() {
        for text in [
            "",
            "warning",
            "loud",
            "7",
            "3",
            "foo=bar=baz",
            "info,",
            "supercargo=",
            "=info",
            "info,[x]=debug",
        ] {
            let error = filter(text).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{text:?} is not a log level")), "{error}");
            assert!(error.contains("off, error, warn, info, debug or trace"), "{error}");
            assert_eq!(error.ends_with("; numbers are values of -v"), text.parse::<u32>().is_ok(), "{error}");
        }
    }

    #[test]
    fn verbosity_is_not_for_http2_frames() {
        for verbosity in [4, 10] {
            let filter = filter(level_of_verbosity(verbosity)).unwrap();
            for target in ["h2::codec::framed_read", "hyper_util::client::legacy", "tower::buffer::worker"] {
                assert!(!filter.would_enable(target, &Level::DEBUG), "{target}");
                assert!(filter.would_enable(target, &Level::WARN), "{target}");
            }
            assert!(filter.would_enable("kube_informers::reflector", &Level::DEBUG));
        }
        for text in ["debug,h2=trace", "h2=trace,debug"] {
            assert!(filter(text).unwrap().would_enable("h2::frame", &Level::TRACE), "{text}");
        }
        assert!(!filter("trace").unwrap().would_enable(UNHELPFUL, &Level::ERROR));
    }

    #[test]
    fn outages_are_logged_by_each_informer_only_for_debugging() {
        for (text, is_logged) in [
            ("warn", false),
            ("info", false),
            ("debug", true),
            ("info,kube_informers::unreachable=warn", true),
        ] {
            let filter = filter(text).unwrap();
            assert_eq!(filter.would_enable(OF_EACH_INFORMER, &Level::WARN), is_logged, "{text}");
            assert!(filter.would_enable("kube_informers::reflector", &Level::WARN), "{text}");
        }
    }
}
