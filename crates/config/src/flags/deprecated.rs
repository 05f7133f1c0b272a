//! What the configuration says better.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::value::{FlagError, boolean, length};
use crate::{Config, MediaType};

/// Flags for what the configuration says better. But for the first and the last they count only without --config.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Flags that a configuration makes unnecessary")]
pub struct DeprecatedOptions {
    /// How to reach the API server, where no configuration says it (clientConnection.kubeconfig). Without either: the
    /// pod's service account.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Requests to the API server per second. Default: no limit. Ignored with --config.
    #[arg(long, value_name = "NUMBER")]
    pub kube_api_qps: Option<f32>,
    /// Requests at once, beyond --kube-api-qps. Default: 100. Ignored with --config.
    #[arg(long, value_name = "COUNT")]
    pub kube_api_burst: Option<i32>,
    /// What requests are encoded in: application/vnd.kubernetes.protobuf, the default, or application/json. Ignored with
    /// --config.
    #[arg(long, value_name = "TYPE", value_parser = content_type)]
    pub kube_api_content_type: Option<MediaType>,
    /// Serve /debug/flags/v, which changes what is logged. Profiles there are none. Default: true. Ignored with --config.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean
    )]
    pub profiling: Option<bool>,
    /// Of no effect here: nothing contends. Ignored with --config.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean
    )]
    pub contention_profiling: Option<bool>,
    /// How long a pod that fits nowhere waits at most while nothing happens that could help it.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = length)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
}

impl Default for DeprecatedOptions {
    fn default() -> Self {
        super::defaults()
    }
}

impl DeprecatedOptions {
    /// Sets what counts, given whether there is a configuration file. Returns the flags that are given and do not.
    pub(super) fn over(&self, config: &mut Config, has_file: bool) -> Vec<&'static str> {
        config.pod_max_in_unschedulable_pods_duration = self.pod_max_in_unschedulable_pods_duration;
        let mut ignored = Vec::new();
        let connection = &mut config.client_connection;
        match (&connection.kubeconfig, &self.kubeconfig) {
            (Some(of_file), Some(given)) if of_file != given => ignored.push("--kubeconfig"),
            (Some(_), _) => {}
            (None, given) => connection.kubeconfig.clone_from(given),
        }
        if has_file {
            ignored.extend(self.unless_configured());
            return ignored;
        }
        if let Some(qps) = self.kube_api_qps {
            connection.qps = Some(qps).filter(|qps| *qps > 0.0);
        }
        if let Some(burst) = self.kube_api_burst {
            connection.burst = Some(burst).filter(|burst| *burst > 0);
        }
        if let Some(content_type) = self.kube_api_content_type {
            connection.content_type = content_type;
        }
        config.enable_profiling = self.profiling.unwrap_or(config.enable_profiling);
        let contention = self.contention_profiling.unwrap_or(config.enable_contention_profiling);
        config.enable_contention_profiling = contention && config.enable_profiling;
        ignored
    }

    /// The given ones of those that count only without a configuration.
    fn unless_configured(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--kube-api-qps", self.kube_api_qps.is_some()),
            ("--kube-api-burst", self.kube_api_burst.is_some()),
            ("--kube-api-content-type", self.kube_api_content_type.is_some()),
            ("--profiling", self.profiling.is_some()),
            ("--contention-profiling", self.contention_profiling.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag)
    }
}

fn content_type(name: &str) -> Result<MediaType, FlagError> {
    MediaType::of(name).ok_or(FlagError::ContentType)
}
