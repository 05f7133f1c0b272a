//! Flags that the configuration file replaces.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::value::{FlagError, boolean, length};
use crate::config::{Config, MediaType};

/// Flags that the configuration file replaces. All but the first and the last apply only without
/// `--config`.
#[derive(Args, Clone, Debug, PartialEq)]
#[command(next_help_heading = "Deprecated flags (use the configuration file instead)")]
pub struct DeprecatedOptions {
    /// Kubeconfig file for the API server. Used only if the configuration sets no
    /// clientConnection.kubeconfig. Defaults to the service account of the pod.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Maximum requests per second to the API server. Default: no limit. Ignored with --config.
    #[arg(long, value_name = "NUMBER")]
    pub kube_api_qps: Option<f32>,
    /// Maximum burst of requests above --kube-api-qps. Default: 100. Ignored with --config.
    #[arg(long, value_name = "COUNT")]
    pub kube_api_burst: Option<i32>,
    /// Encoding of requests: application/vnd.kubernetes.protobuf (default) or application/json.
    /// Ignored with --config.
    #[arg(long, value_name = "TYPE", value_parser = content_type)]
    pub kube_api_content_type: Option<MediaType>,
    /// Serve /debug/flags/v, which sets the log level at run time; pprof is not available. Default:
    /// true. Ignored with --config.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean
    )]
    pub profiling: Option<bool>,
    /// Accepted for compatibility; has no effect. Ignored with --config.
    #[arg(
        long, value_name = "BOOL", action = ArgAction::Set, num_args = 0..=1, require_equals = true,
        default_missing_value = "true", value_parser = boolean
    )]
    pub contention_profiling: Option<bool>,
    /// Maximum time that a pod stays in the unschedulable pods before it is retried without a
    /// cluster event.
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = length)]
    pub pod_max_in_unschedulable_pods_duration: Duration,
}

impl Default for DeprecatedOptions {
    fn default() -> Self {
        super::defaults()
    }
}

impl DeprecatedOptions {
    /// Applies these flags to `config`. Returns the flags that are set and ignored because the file
    /// takes precedence.
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

    /// The flags that are set and that a configuration file overrides.
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
