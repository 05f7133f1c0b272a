//! Leader election flags.

use std::time::Duration;

use clap::{ArgAction, Args};

use super::value::{FlagError, boolean, length};
use crate::leader_election::{Election, Source};

/// Leader election settings of the command line. Unset flags leave the configuration as it is.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
#[command(next_help_heading = "Leader election flags (they take precedence over the configuration file)")]
pub struct LeaderElectionOptions {
    /// Schedule only while holding the lease, so that replicas can run for high availability.
    /// Default: true.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean
    )]
    pub leader_elect: Option<bool>,
    /// How long candidates wait after the last observed renewal before one of them takes the lease.
    /// Default: 15s.
    #[arg(long = "leader-elect-lease-duration", value_name = "DURATION", value_parser = length)]
    pub lease_duration: Option<Duration>,
    /// How long the leader retries a renewal before it gives up leading; less than the lease
    /// duration. Default: 10s.
    #[arg(long = "leader-elect-renew-deadline", value_name = "DURATION", value_parser = length)]
    pub renew_deadline: Option<Duration>,
    /// Time between attempts to acquire or renew the lease. Default: 2s.
    #[arg(long = "leader-elect-retry-period", value_name = "DURATION", value_parser = length)]
    pub retry_period: Option<Duration>,
    /// Type of the lock; only leases is supported.
    #[arg(long = "leader-elect-resource-lock", value_name = "KIND", value_parser = ["leases"], hide_possible_values = true)]
    pub resource_lock: Option<String>,
    /// Name of the lease. Default: supercargo.
    #[arg(long = "leader-elect-resource-name", value_name = "NAME")]
    pub resource_name: Option<String>,
    /// Namespace of the lease. Default: kube-system.
    #[arg(long = "leader-elect-resource-namespace", value_name = "NAMESPACE")]
    pub resource_namespace: Option<String>,
}

impl LeaderElectionOptions {
    /// Applies the flags that are set to `election`. Errors are about flags, not the file.
    pub(super) fn over(&self, election: &mut Election) -> Result<(), FlagError> {
        let config = &mut election.config;
        set(&mut config.leader_elect, self.leader_elect.as_ref());
        set(&mut config.resource_name, self.resource_name.as_ref());
        set(&mut config.resource_namespace, self.resource_namespace.as_ref());
        for (length, source, flag) in [
            (&mut config.lease_duration, &mut election.lease_duration, self.lease_duration),
            (&mut config.renew_deadline, &mut election.renew_deadline, self.renew_deadline),
            (&mut config.retry_period, &mut election.retry_period, self.retry_period),
        ] {
            if let Some(given) = flag {
                (*length, *source) = (given, Source::Flag);
            }
        }
        if self.resource_lock.is_some() {
            election.other_lock = None;
        }
        match election.contradiction() {
            Some((Source::Flag, message)) => Err(FlagError::LeaderElection(message)),
            _ => Ok(()),
        }
    }
}

fn set<T: Clone>(field: &mut T, given: Option<&T>) {
    if let Some(given) = given {
        field.clone_from(given);
    }
}
