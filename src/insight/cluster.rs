//! Which cluster, and as which user: the options that kubectl has, too.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;
use supercargo_client::connection::Choice;

/// Options of the same names and meanings as kubectl's.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub(crate) struct ClusterOptions {
    /// Kubeconfig. Defaults to kubectl's own if the leader is asked; else, in order: the
    /// configuration's, the files of $KUBECONFIG, ~/.kube/config, the service account
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig, instead of the current one
    #[arg(long, value_name = "NAME")]
    pub(super) context: Option<String>,
    /// Cluster of the kubeconfig, instead of the context's
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// User of the kubeconfig, instead of the context's
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// User to act as, instead of the one whose credentials are used
    #[arg(long = "as", value_name = "USER")]
    act_as: Option<String>,
    /// Group to act in, with --as. May be repeated
    #[arg(long = "as-group", value_name = "GROUP", requires = "act_as")]
    groups: Vec<String>,
}

impl ClusterOptions {
    /// What to use instead of what the kubeconfig selects.
    pub(super) fn choice(&self) -> Choice {
        let Self { context, cluster, user, act_as, groups, .. } = self.clone();
        let impersonate = act_as.filter(|user| !user.is_empty()).map(|user| (user, groups));
        Choice { context, cluster, user, impersonate, more_files: Vec::new() }
    }

    /// The arguments that pass all of it on to kubectl.
    pub(super) fn for_kubectl(&self) -> Vec<OsString> {
        let Self { kubeconfig, context, cluster, user, act_as, groups } = self;
        let file = kubeconfig.as_ref().map(|file| file.as_os_str());
        let given = [
            ("--kubeconfig", file),
            ("--context", context.as_ref().map(OsStr::new)),
            ("--cluster", cluster.as_ref().map(OsStr::new)),
            ("--user", user.as_ref().map(OsStr::new)),
            ("--as", act_as.as_ref().map(OsStr::new)),
        ];
        let groups = groups.iter().map(|group| ("--as-group", Some(OsStr::new(group))));
        let given = given.into_iter().chain(groups);
        let given = given.filter_map(|(name, value)| Some([name.into(), value?.to_owned()]));
        given.flatten().collect()
    }
}
