//! The value of every flag, for `/flagz`.

use std::collections::BTreeMap;

use clap::{ArgMatches, Args, Command, Error, FromArgMatches};

use super::{Flags, LogOptions, WithoutEffect};
use crate::config::Config;
use supercargo_framework::go_duration;

/// The text of every flag, by its clap id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Texts(BTreeMap<String, String>);

impl Args for Texts {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for Texts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let text = |id: &str| {
            // Argument groups have no values.
            let values = matches.try_get_raw(id).ok()??;
            let values: Vec<_> = values.map(|value| value.to_string_lossy().into_owned()).collect();
            Some((id.to_owned(), values.join(",")))
        };
        Ok(Self(matches.ids().filter_map(|id| text(id.as_str())).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Flags {
    /// Every flag with its value, one `name=value` line each, sorted by name. Values that the
    /// configuration file can set are the effective ones. Flags hold no secrets: they name files.
    pub fn flagz(&self, config: &Config) -> String {
        let command = LogOptions::augment_args(Self::augment_args(Command::new("supercargo")));
        let effective = effective(config);
        let mut lines: Vec<String> = command
            .get_arguments()
            .filter_map(|arg| {
                let name = arg.get_long().filter(|name| !WithoutEffect::has(name))?;
                let text = self.texts.0.get(arg.get_id().as_str()).map_or("", String::as_str);
                Some(format!("{name}={}\n", effective.get(name).map_or(text, String::as_str)))
            })
            .collect();
        lines.sort_unstable();
        lines.concat()
    }
}

/// The effective values of flags that the configuration file, or a default of supercargo, can set.
fn effective(config: &Config) -> BTreeMap<&'static str, String> {
    let (connection, election) = (&config.client_connection, &config.leader_election);
    BTreeMap::from([
        ("kube-api-qps", connection.qps.unwrap_or(0.0).to_string()),
        ("kube-api-burst", connection.burst.unwrap_or(0).to_string()),
        ("kube-api-content-type", connection.content_type.name().to_owned()),
        ("profiling", config.enable_profiling.to_string()),
        ("contention-profiling", config.enable_contention_profiling.to_string()),
        ("leader-elect", election.leader_elect.to_string()),
        ("leader-elect-lease-duration", go_duration::format(election.lease_duration)),
        ("leader-elect-renew-deadline", go_duration::format(election.renew_deadline)),
        ("leader-elect-retry-period", go_duration::format(election.retry_period)),
        ("leader-elect-resource-lock", "leases".to_owned()),
        ("leader-elect-resource-name", election.resource_name.clone()),
        ("leader-elect-resource-namespace", election.resource_namespace.clone()),
    ])
}
