//! Flags of upstream's that mean nothing here. They are accepted, so that a command line can be taken over.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// The flags, and whether a value may follow as a word of its own.
const FLAGS: &[(&str, bool)] = &[
    ("allow-metric-labels", true),
    ("allow-metric-labels-manifest", true),
    ("disabled-metrics", true),
    ("emulation-forward-compatible", false),
    ("log-flush-frequency", true),
    ("log-json-info-buffer-size", true),
    ("log-json-split-stream", false),
    ("log-text-info-buffer-size", true),
    ("log-text-split-stream", false),
    ("min-compatibility-version", true),
    ("permit-address-sharing", false),
    ("permit-port-sharing", false),
    ("show-hidden-metrics-for-version", true),
    ("tls-curve-preferences", true),
    ("vmodule", true),
];

/// Those of upstream's flags that are given and mean nothing here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutEffect {
    /// Their names, without dashes.
    pub given: Vec<&'static str>,
}

impl WithoutEffect {
    /// Whether this is one of them.
    pub(super) fn has(name: &str) -> bool {
        FLAGS.iter().any(|(flag, _)| *flag == name)
    }
}

impl Args for WithoutEffect {
    fn augment_args(command: Command) -> Command {
        FLAGS.iter().fold(command, |command, (name, takes_word)| {
            let arg = Arg::new(*name).long(*name).hide(true).action(ArgAction::Append);
            command.arg(if *takes_word { arg } else { arg.num_args(0..=1).require_equals(true) })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for WithoutEffect {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let is_given = |name: &&str| matches.value_source(name) == Some(ValueSource::CommandLine);
        Ok(Self { given: FLAGS.iter().map(|(name, _)| *name).filter(is_given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
