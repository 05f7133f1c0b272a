//! Tests with a registry of fake plugins that have kube-scheduler's names and extension points.

mod completion;
mod expansion;
mod extenders;
mod fakes;
mod files;
mod fuzz;
mod plugin_refusals;
mod refusals;
mod round_trip;
mod text;

use super::{Catalog, Config, ConfigErrors};
use fakes::{DEFAULTS, registry};

/// The header of every file: three lines, so that the tested part begins on the fourth.
const HEADER: &str = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n\n";

/// The catalog of the tests.
fn catalog() -> Catalog {
    Catalog::new(registry(), DEFAULTS)
}

/// Parses this text.
fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse("c.yaml", text, &catalog())
}

/// Parses the header followed by this text, which must be valid.
fn valid(text: &str) -> Config {
    let text = format!("{HEADER}{text}");
    parse(&text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// The errors of this text.
fn errors_of(text: &str) -> String {
    match parse(text) {
        Ok(config) => panic!("no error in\n{text}\n{config:#?}"),
        Err(errors) => errors.to_string(),
    }
}

/// The errors of the header followed by this text.
fn errors(text: &str) -> String {
    errors_of(&format!("{HEADER}{text}"))
}

/// Checks the errors of several texts, each below the header.
fn check(cases: &[(&str, &str, &str)]) {
    for (name, text, expected) in cases {
        assert_eq!(errors(text), *expected, "{name}");
    }
}
