//! Flags of kube-scheduler that supercargo accepts and ignores, so that its command lines keep
//! working.

use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};

/// The flags, and whether the value may be a separate argument.
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

/// The ignored flags of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WithoutEffect {
    /// Their names, without the leading dashes.
    pub given: Vec<&'static str>,
}

impl WithoutEffect {
    /// Whether `name` is an ignored flag.
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
