//! The cluster that the suite runs on.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use supercargo_controlplane::{
    ControlPlane, Handle, ManagerOptions, Options, SchedulerOptions, User, assets_or_skip,
};

use super::kubelets::Kubelets;
use super::schedulers::Schedulers;
use crate::support::Cluster;

/// The kubeconfig of an existing cluster.
const KUBECONFIG: &str = "SUPERCARGO_E2E_KUBECONFIG";

/// The user of the schedulers on the suite's own control plane, with the permissions that they
/// need.
const USER: &str = "supercargo";

/// A cluster with everything that tests need: its API, schedulers, simulated kubelets.
pub(super) struct Site {
    pub(super) cluster: Cluster,
    pub(super) kubelets: Kubelets,
    pub(super) schedulers: Schedulers,
    /// A static is never dropped, so it ends with the process.
    _plane: Option<Plane>,
}

/// The suite's own control plane and its programs.
struct Plane {
    _server: ControlPlane,
    _manager: Handle,
    _kube_scheduler: Handle,
}

impl Site {
    /// The site that all tests share, or `None` after printing to stderr why none is available.
    pub(super) fn shared_or_skip() -> Option<&'static Self> {
        static SITE: OnceLock<Result<Site, String>> = OnceLock::new();
        let given = env::var_os(KUBECONFIG).filter(|path| !path.is_empty()).map(PathBuf::from);
        if given.is_none() {
            assets_or_skip()?;
        }
        let start = || match &given {
            Some(kubeconfig) => Self::given(kubeconfig),
            None => Self::own().map_err(|error| format!("{error:#}")),
        };
        match SITE.get_or_init(start) {
            Ok(site) => Some(site),
            Err(error) => panic!("there is no cluster for the suite: {error}"),
        }
    }

    /// An existing cluster, with its installed scheduler or with processes of the built program.
    fn given(kubeconfig: &Path) -> Result<Self, String> {
        if !kubeconfig.is_file() {
            return Err(format!("{KUBECONFIG} names {}, which is no file", kubeconfig.display()));
        }
        let cluster = Cluster::at(kubeconfig);
        let schedulers = match Schedulers::installed(&cluster) {
            Some(installed) => installed,
            None => Schedulers::start(kubeconfig),
        };
        Ok(Self::on(cluster, schedulers, None))
    }

    fn own() -> anyhow::Result<Self> {
        let options = Options {
            users: vec![User::new(USER)],
            // As in any cluster, pods have service accounts and new nodes are not ready.
            disabled_admission_plugins: Vec::new(),
            ..Options::default()
        };
        let plane = ControlPlane::start(options)?;
        let cluster = Cluster::of(&plane);
        cluster.allow_supercargo(USER);
        let manager = plane.start_controller_manager_with(&ManagerOptions {
            controllers: vec!["*".to_owned()],
            extra_args: vec![
                // A stopped machine is noticed sooner than after a minute, but later than a busy
                // machine takes to renew leases.
                "--node-monitor-period=1s".to_owned(),
                "--node-monitor-grace-period=20s".to_owned(),
                "--pvclaimbinder-sync-period=2s".to_owned(),
            ],
        })?;
        let kube_scheduler = plane.start_kube_scheduler(&SchedulerOptions::default())?;
        let schedulers = Schedulers::start(&plane.kubeconfig(USER)?);
        let plane = Plane { _server: plane, _manager: manager, _kube_scheduler: kube_scheduler };
        Ok(Self::on(cluster, schedulers, Some(plane)))
    }

    fn on(cluster: Cluster, schedulers: Schedulers, plane: Option<Plane>) -> Self {
        let kubelets = Kubelets::start(&cluster);
        Self { cluster, kubelets, schedulers, _plane: plane }
    }

    /// The last log lines of the programs, for a failing test.
    pub(super) fn logs(&self) -> String {
        self.schedulers.log()
    }
}
